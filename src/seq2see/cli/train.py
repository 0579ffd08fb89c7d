"""`seq2see train`: trains a model from text files and writes it to a directory."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from seq2see.config import Config, DataConfig, option
from seq2see.errors import UsageError

_LENGTH = "Training length"
_READING = ("columns", "fields", "languages", "boundaries")  # how files are read


@dataclass(frozen=True)
class Changes:
    """A preset and what is different from it."""

    preset: str = option(
        "", 'Preset (see "seq2see model"); by default chosen by corpus size and training time.', metavar="NAME"
    )
    steps: int | None = option(None, "Maximum number of training steps.", panel=_LENGTH)
    epochs: float | None = option(None, "Maximum number of passes over the corpus.", panel=_LENGTH)
    minutes: float | None = option(
        None, "Maximum training time in minutes; settings that you leave unset are adapted to it.", panel=_LENGTH
    )
    batch_tokens: str = option(
        "", "Target tokens per step; auto: the preset's, in as few micro-batches as fit in memory.", metavar="N|auto"
    )
    settings: list[str] | None = option(
        None, "Override a setting, such as train.lr=3e-4; can be repeated.", flag="--set", metavar="KEY=VALUE"
    )

    def overrides(self) -> list[str]:
        """Returns the settings that change, such as `train.steps=100`."""
        limits = {"steps": self.steps, "epochs": self.epochs, "minutes": self.minutes}
        for name, limit in limits.items():
            if limit is not None and limit <= 0:
                raise UsageError(f"--{name} {limit:g} would not train at all: use a number above 0")
        settings = list(self.settings or [])
        if any(value is not None for value in limits.values()):
            # An explicit limit replaces all limits of the preset.
            settings = [f"train.{name}={value or 0}" for name, value in limits.items()] + settings
        if self.batch_tokens == "auto":
            return ["train.gradient_accumulation=0", *settings]
        return [f"train.batch_tokens={self.batch_tokens}", *settings] if self.batch_tokens else settings


def train(
    *,
    out: Path | None = option(None, "Output directory for the model.", metavar="DIRECTORY"),
    data: DataConfig,
    changes: Changes,
    config: Path | None = option(None, "Repeat a run from its config.toml.", metavar="FILE"),
    resume: Path | None = option(None, "Continue the run in this directory.", metavar="DIRECTORY"),
    init: Path | None = option(
        None, "Start from the weights and tokenizer of this model; also a bundled one.", metavar="DIRECTORY"
    ),
    stop_on_eof: bool = option(False, "Save and stop when standard input is closed."),
    device: str = option("", "cpu, cuda or mps; by default the best available.", metavar="DEVICE"),
) -> None:
    """Train a translator from parallel text, a language model from plain text, or a reader of pictures or sounds.

    Examples:

    seq2see train --src a.en --tgt a.hi --out runs/en-hi

    seq2see train --text book.txt --out runs/book --minutes 20

    seq2see train --sounds digits.tsv --out runs/digits --minutes 20

    seq2see train --resume runs/en-hi --set train.lr=1e-4

    seq2see train --init runs/en-hi --src new.en --tgt new.hi --out runs/tuned

    torchrun --nproc-per-node 4 -m seq2see train --src a.en --tgt a.hi --out runs/en-hi
    """
    overrides = changes.overrides()
    from seq2see.train import start as run
    from seq2see.train.stop_signals import stop_when_closed

    if stop_on_eof:
        stop_when_closed(sys.stdin)
    if resume is not None:
        given = {"out": out, **vars(data), "preset": changes.preset, "config": config, "init": init}
        own = [name for name, value in given.items() if value and name not in _READING]
        if own:
            raise UsageError(f"--resume continues a run with its own data and model: omit --{own[0].replace('_', '-')}")
        with _exit_on_interrupt():
            run.resume(resume, overrides, device)
        return
    if out is None:
        raise UsageError("missing --out DIRECTORY")
    base = Config.load(config, training=True) if config is not None else None
    with _exit_on_interrupt():
        run.train(data, out, preset=changes.preset, settings=overrides, init=init, config=base, device=device)


@contextmanager
def _exit_on_interrupt() -> Iterator[None]:
    """Exits immediately on a second signal; a normal exit would wait for the writer and prefetch threads."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("seq2see: interrupted; the last checkpoint is intact", err=True)
        os._exit(130)
