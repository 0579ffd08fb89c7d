"""A tiny corpus that a small model learns in seconds, for the training tests."""

import os
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file
from torch import Tensor

from seq2see.config import DataConfig

SINGLE_THREAD_ENV = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
}  # for subprocesses whose results must equal those of this process
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
SMALL_SETTINGS = [
    "model.width=32",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=32",
    "model.dropout=0.1",
    "text.vocab_size=300",
    "train.batch_tokens=300",
    "train.warmup_steps=10",
    "train.lr=0.01",
    "train.validate_every=20",
    "train.average_checkpoints=2",
    "train.epochs=0",
    "train.minutes=0",
    "train.patience=0",
]


def write_phrases(folder: Path) -> DataConfig:
    """Writes short phrases translated word by word: 340 training pairs and 60 validation pairs."""
    random = Random(1)
    pairs = [random.choices(list(WORDS), k=random.randint(3, 5)) for _ in range(400)]
    for name, phrases in (("train", pairs[:340]), ("valid", pairs[340:])):
        (folder / f"{name}.en").write_text("".join(" ".join(words) + "\n" for words in phrases), encoding="utf-8")
        (folder / f"{name}.hi").write_text(
            "".join(" ".join(WORDS[word] for word in words) + "\n" for words in phrases), encoding="utf-8"
        )
    return DataConfig(
        src=(str(folder / "train.en"),),
        tgt=(str(folder / "train.hi"),),
        valid_src=(str(folder / "valid.en"),),
        valid_tgt=(str(folder / "valid.hi"),),
    )


def load_weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def tensors_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit for bit: two runs on one machine make the same steps with the same shapes, in one thread, in aligned memory."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
