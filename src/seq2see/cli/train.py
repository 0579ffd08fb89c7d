"""`seq2see train`: trains a model from text files and writes it to a directory."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.options import flag
from seq2see.config import Config, DataConfig
from seq2see.errors import UsageError

_LENGTH = "Training length"
_READING = ("columns", "fields", "languages", "boundaries")  # how files are read


@dataclass(frozen=True)
class Changes:
    """A preset and what is different from it."""

    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME", help='Preset (see "seq2see model"); by default chosen by corpus size and training time.'
        ),
    ] = ""
    steps: Annotated[int | None, typer.Option(help="Maximum number of training steps.", rich_help_panel=_LENGTH)] = None
    epochs: Annotated[
        float | None, typer.Option(help="Maximum number of passes over the corpus.", rich_help_panel=_LENGTH)
    ] = None
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Maximum training time in minutes; settings that you leave unset are adapted to it.",
            rich_help_panel=_LENGTH,
        ),
    ] = None
    batch_tokens: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Target tokens per step; auto: the preset's, in as few micro-batches as fit in memory.",
        ),
    ] = ""
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, such as train.lr=3e-4; can be repeated."),
    ] = None

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
    out: Annotated[Path | None, typer.Option(help="Output directory for the model.", metavar="DIRECTORY")] = None,
    data: DataConfig,
    changes: Changes,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Repeat a run from its config.toml.")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Continue the run in this directory.")
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Start from the weights and tokenizer of this model; also a bundled one."
        ),
    ] = None,
    stop_on_eof: Annotated[
        bool, typer.Option("--stop-on-eof", metavar="", help="Save and stop when standard input is closed.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="cpu, cuda or mps; by default the best available.", metavar="DEVICE")
    ] = "",
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
            raise UsageError(f"--resume continues a run with its own data and model: omit {flag(own[0])}")
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
