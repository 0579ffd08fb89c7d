"""A model is a directory: what it is, its words, its weights, how good it is, and a card that tells a person.

    config.toml   tokenizer.json   (source.json, where the source has words of its own)   model.safetensors
    scores.json   README.md   snapshots/step-….safetensors

No pickle anywhere. `load` gives the model with its tokenizers, ready for text; without a directory, the small
English–Hindi model that comes with seq2see.
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

from seq2see.compact import expand
from seq2see.config import Config
from seq2see.decode.greedy import translate
from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.model.transformer import Transformer
from seq2see.text.tokenizer import Tokenizer

BUNDLED = Path(__file__).parent / "bundled"


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


def load(path: Path | str | None = None, device: str = "cpu", step: int | None = None) -> Model:
    """The model in a directory, or the bundled one; with `step`, as it was at that step of its training."""
    folder = BUNDLED if path is None else Path(path)
    if not (folder / "config.toml").is_file():
        raise UserError(f"{folder} is no model directory: it has no config.toml")
    config = Config.load(folder / "config.toml")
    tokenizers = load_tokenizers(folder)
    file = folder / "model.safetensors" if step is None else _snapshot(folder, step)
    try:
        model = Transformer.from_weights(config.model, expand(load_file(file, device=device)))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"cannot read {file}: {reason}; is the training finished?") from error
    scores = folder / "scores.json"
    return Model(config, model.eval(), tokenizers, json.loads(scores.read_text()) if scores.is_file() else {})


def snapshots(path: Path | str | None = None) -> list[int]:
    """The steps of a model's training at which its weights were kept."""
    folder = BUNDLED if path is None else Path(path)
    return sorted(int(file.stem.removeprefix("step-")) for file in folder.glob("snapshots/step-*.safetensors"))


def snapshot_file(folder: Path, step: int) -> Path:
    return folder / "snapshots" / f"step-{step:08d}.safetensors"


def _snapshot(folder: Path, step: int) -> Path:
    known = snapshots(folder)
    if step not in known:
        raise UserError(f"{folder} has no snapshot of step {step:,}, but of {', '.join(map(str, known)) or 'none'}")
    return snapshot_file(folder, step)


def save_weights(path: Path, weights: Mapping[str, Tensor], dtype: torch.dtype | None = torch.float32) -> None:
    """In this precision, or each in its own."""
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
