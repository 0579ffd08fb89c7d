"""A model is a directory: what it is, its words, its weights, how good it is, and a card that tells a person.

    config.toml   tokenizer.json   (source.json, where the source has words of its own)   model.safetensors
    scores.json   README.md

No pickle anywhere. `load` gives the model with its tokenizers, ready for text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from seq2see.config import Config
from seq2see.decode.greedy import translate
from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.model.transformer import Transformer
from seq2see.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Model:
    """A trained model with its words."""

    config: Config
    transformer: Transformer
    tokenizers: tuple[Tokenizer, Tokenizer]
    scores: Mapping[str, Any]

    def translate(self, texts: Sequence[str]) -> list[str]:
        """The translation of each text."""
        if self.config.model.shape != "encoder-decoder":
            raise UserError(f"this model is a {self.config.model.shape}, and only an encoder-decoder translates")
        source, target = self.tokenizers
        tokens = [[*source.encode(text), source.end] for text in texts]
        found = translate(self.transformer, tokens, target.start, target.end)
        return [target.decode(ids) for ids in found]


def load(path: Path | str, device: str = "cpu") -> Model:
    """The model in a directory."""
    folder = Path(path)
    if not (folder / "config.toml").is_file():
        raise UserError(f"{folder} is no model directory: it has no config.toml")
    config = Config.load(folder / "config.toml")
    tokenizers = load_tokenizers(folder)
    try:
        weights = load_file(folder / "model.safetensors", device=device)
        model = Transformer.from_weights(config.model, {name: weight.float() for name, weight in weights.items()})
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"cannot read {folder / 'model.safetensors'}: {reason}; is the training finished?") from error
    scores = folder / "scores.json"
    return Model(config, model.eval(), tokenizers, json.loads(scores.read_text()) if scores.is_file() else {})


def save_weights(path: Path, weights: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> None:
    with written_whole(path) as part:
        # Not save_file, whose error on a full disk is none of the system's.
        part.write_bytes(save({name: w.detach().to("cpu", dtype).contiguous() for name, w in weights.items()}))


def save_tokenizers(folder: Path, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    source, target = tokenizers
    target.save(folder / "tokenizer.json")
    if source is not target:
        source.save(folder / "source.json")


def load_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    target = Tokenizer.load(folder / "tokenizer.json")
    own = folder / "source.json"
    return (Tokenizer.load(own) if own.is_file() else target), target


def save_config(folder: Path, config: Config) -> None:
    with written_whole(folder / "config.toml") as part:
        part.write_text(config.to_toml(), encoding="utf-8")
