"""`seq2see train`: trains a model from text files and writes it to a directory."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli import corpus_options as c
from seq2see.cli.model_options import Device
from seq2see.config import Boundaries, Config, DataConfig
from seq2see.errors import UsageError

_LENGTH = "Training length"


def train(
    out: Annotated[Path | None, typer.Option(help="Output directory for the model.", metavar="DIRECTORY")] = None,
    src: c.Src = None,
    tgt: c.Tgt = None,
    pairs: c.PairFiles = None,
    columns: c.Columns = None,
    fields: c.Fields = None,
    languages: c.Languages = None,
    text: c.Text = None,
    boundaries: Annotated[
        Boundaries, typer.Option(help="What separates documents in plain text.", rich_help_panel="Text")
    ] = "blank-line",
    pictures: c.Pictures = None,
    sounds: c.Sounds = None,
    valid_pictures: c.ValidPictures = None,
    valid_sounds: c.ValidSounds = None,
    valid_src: c.ValidSrc = None,
    valid_tgt: c.ValidTgt = None,
    valid_pairs: c.ValidPairs = None,
    valid_text: c.ValidText = None,
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME", help='Preset (see "seq2see model"); by default chosen by corpus size and training time.'
        ),
    ] = "",
    steps: Annotated[
        int | None, typer.Option(help="Maximum number of training steps.", rich_help_panel=_LENGTH)
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Maximum number of passes over the corpus.", rich_help_panel=_LENGTH)
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Maximum training time in minutes; settings that you leave unset are adapted to it.",
            rich_help_panel=_LENGTH,
        ),
    ] = None,
    batch_tokens: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Target tokens per step; auto: the preset's, in as few micro-batches as fit in memory.",
        ),
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, such as train.lr=3e-4; can be repeated."),
    ] = None,
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
    device: Device = "",
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
    limits = {"steps": steps, "epochs": epochs, "minutes": minutes}
    for name, limit in limits.items():
        if limit is not None and limit <= 0:
            raise UsageError(f"--{name} {limit:g} would not train at all: use a number above 0")
    overrides = list(settings or [])
    if any(value is not None for value in limits.values()):
        # An explicit limit replaces all limits of the preset.
        overrides = [f"train.{name}={value or 0}" for name, value in limits.items()] + overrides
    if batch_tokens:
        automatic = batch_tokens == "auto"
        overrides.insert(0, "train.gradient_accumulation=0" if automatic else f"train.batch_tokens={batch_tokens}")
    from seq2see.train import start as run
    from seq2see.train.stop_signals import stop_when_closed

    if stop_on_eof:
        stop_when_closed(sys.stdin)
    if resume is not None:
        own = {
            "--out": out, "--src": src, "--tgt": tgt, "--pairs": pairs, "--text": text, "--valid-src": valid_src,
            "--valid-tgt": valid_tgt, "--valid-pairs": valid_pairs, "--valid-text": valid_text, "--preset": preset,
            "--pictures": pictures, "--sounds": sounds, "--valid-pictures": valid_pictures,
            "--valid-sounds": valid_sounds, "--config": config, "--init": init,
        }  # fmt: skip
        for option, value in own.items():
            if value:
                raise UsageError(f"--resume continues a run with its own data and model: omit {option}")
        with _exit_on_interrupt():
            run.resume(resume, overrides, device)
        return
    if out is None:
        raise UsageError("missing --out DIRECTORY")
    data = DataConfig(
        src=_paths(src), tgt=_paths(tgt), pairs=_paths(pairs), columns=columns or "", fields=fields or "",
        languages=languages or "", text=_paths(text), boundaries=boundaries, valid_src=_paths(valid_src),
        valid_tgt=_paths(valid_tgt), valid_pairs=_paths(valid_pairs), valid_text=_paths(valid_text),
        pictures=_paths(pictures), sounds=_paths(sounds), valid_pictures=_paths(valid_pictures),
        valid_sounds=_paths(valid_sounds),
    )  # fmt: skip
    base = Config.load(config, training=True) if config is not None else None
    with _exit_on_interrupt():
        run.train(data, out, preset=preset, settings=overrides, init=init, config=base, device=device)


@contextmanager
def _exit_on_interrupt() -> Iterator[None]:
    """Exits immediately on a second signal; a normal exit would wait for the writer and prefetch threads."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("seq2see: interrupted; the last checkpoint is intact", err=True)
        os._exit(130)


def _paths(files: c.Files) -> tuple[str, ...]:
    return tuple(str(file) for file in files or ())
