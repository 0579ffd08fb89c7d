"""Reads the files that a model of pictures or sounds takes as its source."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.text.tokenizer import RaggedTokens

VERSION = 1  # of the decoding; a change makes the tokens on disk be built again


@dataclass(frozen=True)
class MediaReader:
    """Reads pictures or sounds as the rows that a model takes: what a tokenizer is for text."""

    config: ModelConfig

    @property
    def dtype(self) -> str:
        """Of the token store; half precision is enough for a spectrogram."""
        return "|u1" if self.config.source == "pictures" else "<f2"

    @property
    def row_size(self) -> int:
        return self.config.row_size

    @property
    def fingerprint(self) -> str:
        c = self.config
        size = (
            [c.picture_height, c.patch_size, c.channels] if c.source == "pictures" else [c.mel_bands, c.window_seconds]
        )
        return json.dumps([VERSION, c.source, *size])

    def windows(self, path: Path | str) -> list[NDArray[Any]]:
        """Returns the rows of a file, [U, row_size]; of a sound in windows, one array each."""
        if self.config.source == "pictures":
            from seq2see.media.pictures import read_picture

            return [read_picture(Path(path), self.config)]
        from seq2see.media.sounds import read_sound

        return [*read_sound(Path(path), self.config.mel_bands, self.config.window_seconds)]

    def read(self, path: Path | str) -> NDArray[Any]:
        """Returns the rows of a file that fits the model."""
        first, *others = self.windows(path)
        limit = self.config.actual_max_source_positions
        if others:
            raise UserError(f"{path} is longer than model.window_seconds = {self.config.window_seconds}: split it")
        if len(first) > limit:
            raise UserError(
                f"{path} makes {len(first):,} tokens, but the model takes at most {limit:,} "
                "(model.max_source_positions): shorten it"
            )
        return first

    def encode_batch(self, paths: Sequence[str]) -> RaggedTokens:
        """Returns the rows of many files; of one in several windows, the first."""
        rows = [self.windows(path)[0] for path in paths]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in rows], dtype=np.int64)])
        return RaggedTokens(np.concatenate(rows).astype(self.dtype), offsets)
