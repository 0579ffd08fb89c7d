"""`seq2see train`: from text files to a scored model in a directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli import corpus_options as c
from seq2see.config import Boundaries, Config, DataConfig
from seq2see.errors import UsageError

_HOW = "How long"


def train(
    out: Annotated[Path | None, typer.Option(help="The directory that becomes the model.", metavar="DIRECTORY")] = None,
    src: c.Src = None,
    tgt: c.Tgt = None,
    pairs: c.PairFiles = None,
    columns: c.Columns = None,
    fields: c.Fields = None,
    languages: c.Languages = None,
    text: c.Text = None,
    boundaries: Annotated[
        Boundaries, typer.Option(help="Where a document of plain text ends.", rich_help_panel="Text")
    ] = "blank-line",
    valid_src: c.ValidSrc = None,
    valid_tgt: c.ValidTgt = None,
    valid_pairs: c.ValidPairs = None,
    valid_text: c.ValidText = None,
    preset: Annotated[str, typer.Option(help='A model by name (see "seq2see model"); else chosen by the data.')] = "",
    steps: Annotated[int | None, typer.Option(help="Stop after so many steps.", rich_help_panel=_HOW)] = None,
    epochs: Annotated[float | None, typer.Option(help="Stop after so many rounds.", rich_help_panel=_HOW)] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after so much time.", rich_help_panel=_HOW)] = None,
    tokens: Annotated[
        str, typer.Option(help="Target tokens a step; auto: the preset's, cut into as few pieces as fit in memory.")
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as train.lr=3e-4.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The same run again, from its config.toml.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this directory.")] = None,
    init: Annotated[Path | None, typer.Option(help="Begin with this model's weights and tokenizer.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; else the best there is.")] = "",
) -> None:
    """Train a model: a translator from two text files, or a language model from one.

    Examples:

    seq2see train --src a.en --tgt a.hi --out runs/en-hi

    seq2see train --text book.txt --out runs/book --minutes 20

    seq2see train --resume runs/en-hi --set train.lr=1e-4

    seq2see train --init runs/en-hi --src new.en --tgt new.hi --out runs/tuned

    torchrun --nproc-per-node 4 -m seq2see train --src a.en --tgt a.hi --out runs/en-hi
    """
    given = {"steps": steps, "epochs": epochs, "minutes": minutes}
    chosen = list(settings or [])
    if any(value is not None for value in given.values()):
        # Naming one limit means that one: the preset's own no longer counts, unless named too.
        chosen = [f"train.{name}={value or 0}" for name, value in given.items()] + chosen
    if tokens:
        chosen.insert(0, "train.accumulate=0" if tokens == "auto" else f"train.tokens={tokens}")
    from seq2see.train import run

    if resume is not None:
        with _leaving_at_once():
            run.resume(resume, chosen, device)
        return
    if out is None:
        raise UsageError("say where the model is to be: --out DIRECTORY")
    data = DataConfig(
        src=_paths(src), tgt=_paths(tgt), pairs=_paths(pairs), columns=columns or "", fields=fields or "",
        languages=languages or "", text=_paths(text), boundaries=boundaries, valid_src=_paths(valid_src),
        valid_tgt=_paths(valid_tgt), valid_pairs=_paths(valid_pairs), valid_text=_paths(valid_text),
    )  # fmt: skip
    again = Config.load(config) if config is not None else None
    with _leaving_at_once():
        run.train(data, out, preset=preset, settings=chosen, init=init, config=again, device=device)


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """A Ctrl-C that ends the run: in an orderly end, Python would wait for the threads that write and read ahead."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("seq2see: left at once; the last checkpoint is intact", err=True)
        os._exit(130)


def _paths(files: c.Files) -> tuple[str, ...]:
    return tuple(str(file) for file in files or ())
