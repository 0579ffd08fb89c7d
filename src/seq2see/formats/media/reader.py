"""Reads the files that a model of pictures or sounds takes as its source.

Limits are checked from the header: a file of a few bytes can claim to be huge.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2see.config import ModelConfig
from seq2see.data.tokenizer import RaggedTokens
from seq2see.errors import UserError

VERSION = 1  # of the decoding; a change makes the tokens on disk be built again


class TooLongError(UserError):
    """A picture or a sound makes more tokens than the model takes."""


def require_tokens(path: Path, tokens: int, limit: int | None) -> None:
    """Raises an error if a file makes more tokens than the limit."""
    if limit is not None and tokens > limit:
        raise TooLongError(
            f"{path} makes {tokens:,} tokens, but the model takes at most {limit:,} "
            "(model.max_source_positions): shorten it"
        )


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
        return self._decode(Path(path), None)

    def read(self, path: Path | str) -> NDArray[Any]:
        """Returns the rows of a file that fits the model; one that does not is refused before it is decoded."""
        return self._decode(Path(path), self.config.actual_max_source_positions)[0]

    def _decode(self, path: Path, max_tokens: int | None) -> list[NDArray[Any]]:
        try:
            if self.config.source == "pictures":
                from seq2see.formats.media.pictures import read_picture

                return [read_picture(path, self.config, max_tokens)]
            from seq2see.formats.media.sounds import read_sound

            return [*read_sound(path, self.config.mel_bands, self.config.window_seconds, max_tokens)]
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "allocate" not in str(error):  # as PyTorch's errors say
                raise
            reason = "needs more memory than is free: close other programs, or use a smaller file"
            raise UserError(f"{path} {reason}") from None

    def encode_batch(self, paths: Sequence[str]) -> RaggedTokens:
        """Returns the rows of many files; of one in several windows, the first."""
        rows = [self.windows(path)[0] for path in paths]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in rows], dtype=np.int64)])
        return RaggedTokens(np.concatenate(rows).astype(self.dtype), offsets)
