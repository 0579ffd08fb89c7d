"""`seq2see explore`: serves the web page and its API on localhost."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.model_options import ON_CPU, InspectionCompute, ModelChoice
from seq2see.config import Config, ModelConfig
from seq2see.errors import UserError
from seq2see.storage.bundled import bundled_model, bundled_names


def explore(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            metavar="DIRECTORY",
            help="Model directory or bundled model; can be repeated. By default all bundled models.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="LANGUAGE", help="Start with the bundled model into this language: hi or fr."),
    ] = None,
    port: Annotated[
        int, typer.Option(help="First port to try; the next free one is used. 0: any free port.", min=0, max=65535)
    ] = 8000,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    follow: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Watch this training run while it trains.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Offer the files in it for training from the page.")
    ] = None,
    runs_dir: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="Where the page's own trainings are written.")
    ] = Path("runs"),
    compute: InspectionCompute = ON_CPU,
) -> None:
    """Explore models in the browser: every number of a translation, and the effect of interventions.

    Examples:

    seq2see explore --model books

    seq2see explore --model runs/en-hi --model runs/books

    seq2see explore --follow runs/en-hi
    """
    for directory in (follow, data_dir):
        if directory is not None and not directory.is_dir():
            raise UserError(f"{directory} is not a directory")
    first = ModelChoice(model[0] if model else None, to).path()
    for given in model or ():
        _refuse_media_encoder(given)
    directories = model or list(dict.fromkeys([first, *map(bundled_model, bundled_names())]))
    if compute != ON_CPU:
        compute.load(first)  # fails now instead of at every request

    from seq2see.server.explore.options import TrainingOptions
    from seq2see.server.explore.server import serve

    def report(line: str) -> None:
        print(line, flush=True)  # a program may be waiting for the address

    open_browser = not no_open and sys.stdout.isatty()
    training = TrainingOptions(runs_dir, data_dir, follow)
    serve(directories, port, open_browser, report, compute.device, compute.precision, training)
    os._exit(0)  # skips torch's slow teardown


def _refuse_media_encoder(directory: Path) -> None:
    """The page shows how a picture or sound becomes text, which takes a decoder."""
    file = directory / "config.toml"
    config = Config.load(file).model if file.is_file() else ModelConfig()
    if config.shape == "encoder" and config.source != "tokens":
        raise UserError(
            f"explore shows readers of {config.source} with a decoder, and {directory} is an encoder: trace it in Python, as "
            "in docs/media.md"
        )
