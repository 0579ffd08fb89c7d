"""A corpus that a tiny model learns in seconds, for the tests that train."""

import os
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file
from torch import Tensor

from seq2see.config import DataConfig

THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # for processes that should compute as this one does
WORDS = {
    "one": "एक",
    "two": "दो",
    "three": "तीन",
    "red": "लाल",
    "tea": "चाय",
    "I": "मैं",
    "drink": "पीता",
    "water": "पानी",
}
SMALL = [
    "model.width=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=32",
    "model.dropout=0.1", "text.vocabulary=300", "train.tokens=300", "train.warmup=10", "train.lr=0.01",
    "train.validate_every=20", "train.average=2", "train.epochs=0", "train.minutes=0", "train.patience=0",
]  # fmt: skip


def phrases(folder: Path) -> DataConfig:
    """Short phrases, translated word by word: 340 pairs, and 60 to validate."""
    random = Random(1)
    pairs = [random.choices(list(WORDS), k=random.randint(3, 5)) for _ in range(400)]
    for name, part in (("train", pairs[:340]), ("valid", pairs[340:])):
        (folder / f"{name}.en").write_text("".join(" ".join(p) + "\n" for p in part), encoding="utf-8")
        (folder / f"{name}.hi").write_text(
            "".join(" ".join(WORDS[w] for w in p) + "\n" for p in part), encoding="utf-8"
        )
    return DataConfig(
        src=(str(folder / "train.en"),), tgt=(str(folder / "train.hi"),),
        valid_src=(str(folder / "valid.en"),), valid_tgt=(str(folder / "valid.hi"),),
    )  # fmt: skip


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
