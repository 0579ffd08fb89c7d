"""Writes a small model of each kind, and a run that can be resumed, as the present version saves them.

    python -m tests.storage.write_earlier FOLDER

tests/storage/earlier/ was written in November 2026, before config.toml lost `ema_decay` and `average_selection`; it stays as it
is, so that what was saved then still loads and resumes.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch

from seq2see import Packed
from seq2see.api import Model
from seq2see.config import ModelConfig
from tests.corpora import SMALL_SETTINGS, write_phrases
from tests.models import TINY, save, tiny_model

SMALL = replace(TINY, width=8, feed_forward=8, decoder_layers=1)
PICTURES = replace(SMALL, source="pictures", picture_height=8, patch_size=4, encoder_positions="grid")
DECODER = replace(SMALL, shape="decoder", max_positions=32, positions="rotary", norm="rms", norm_first=True)
RECURRENT = ModelConfig(kind="rnn", width=8, heads=1, encoder_layers=1, decoder_layers=1, dropout=0.0)
MODELS = {
    "translator": SMALL,
    "language-model": replace(DECODER, activation="swiglu", key_value_heads=1, bias="nowhere"),
    "masked": replace(SMALL, shape="encoder", positions="learned", max_positions=32, masked_head=True, pooler=True),
    "pictures": PICTURES,
    "classifier": replace(PICTURES, shape="encoder", classifier=True),
    "sounds": replace(SMALL, source="sounds", mel_bands=8),
    "rnn": RECURRENT,
    "rnn-attention": replace(RECURRENT, kind="rnn-attention"),
}
RUN, FIRST_STEPS, ALL_STEPS = "run", 10, 20
SETTINGS = [
    *SMALL_SETTINGS,
    "model.width=8",
    "model.feed_forward=8",
    "model.dropout=0",
    "text.tokenizer=word",
    "text.shared_vocab=false",
    "train.batch_tokens=100",
    "train.validate_every=10",
    "train.compile=false",
    "train.snapshots=false",
]


def last_logits(model: Model) -> list[float]:
    """The scores of the first ten tokens after a fixed input."""
    config = model.config.model
    text = Packed.from_sequences([[1, 4, 7, 5, 2, 9]])
    arguments = [text]
    if config.source != "tokens":
        layout = Packed.from_sequences([[0] * 8]).layout
        rows = torch.arange(8 * config.row_size).reshape(8, config.row_size) * 7 % 256
        arguments = [Packed(rows.to(torch.uint8) if config.source == "pictures" else rows / 256, layout)]
        arguments += [] if config.classifier else [text]
    elif config.shape == "encoder-decoder":
        arguments = [text, text]
    with torch.no_grad():
        return [round(float(x), 6) for x in model.network(*arguments)[-1, :10]]


def write_models(folder: Path) -> None:
    expected = {}
    for name, config in MODELS.items():
        model = tiny_model(["one red tea two big cups"], config)
        save(model, folder / name)
        expected[name] = last_logits(model)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def train(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "seq2see", "train", *arguments, "--device", "cpu"]
    subprocess.run(command, cwd=folder, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def write_run(folder: Path) -> None:
    """Trains a few steps with relative paths, which stay true where the run is copied to; resumes a copy for comparison."""
    write_phrases(folder)
    files = ["--src", "train.en", "--tgt", "train.hi", "--valid-src", "valid.en", "--valid-tgt", "valid.hi"]
    settings = [word for setting in (*SETTINGS, f"train.steps={FIRST_STEPS}") for word in ("--set", setting)]
    train(folder, *files, "--preset", "tiny", "--out", RUN, *settings)
    shutil.copytree(folder / RUN, folder / "resumed")
    train(folder, "--resume", "resumed", "--set", f"train.steps={ALL_STEPS}")
    (folder / "resumed" / "log.jsonl").rename(folder / "resumed.jsonl")
    shutil.rmtree(folder / "resumed")


if __name__ == "__main__":
    destination = Path(sys.argv[1]).absolute()
    destination.mkdir(parents=True)
    write_models(destination)
    write_run(destination)
