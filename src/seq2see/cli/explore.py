"""`seq2see explore`: serves the web page and its API on localhost."""

import os
import sys
from pathlib import Path

from seq2see.cli.model_options import ON_CPU, InspectionCompute, ModelChoice
from seq2see.config import Config, ModelConfig, option
from seq2see.errors import UserError
from seq2see.storage.bundled import bundled_model, bundled_names


def explore(
    model: list[Path] | None = option(
        None, "Model directory or bundled model; can be repeated. By default all bundled models.", metavar="DIRECTORY"
    ),
    to: str | None = option(None, "Start with the bundled model into this language: hi or fr.", metavar="LANGUAGE"),
    port: int = option(8000, "First port to try; the next free one is used. 0: any free port.", min=0, max=65535),
    no_open: bool = option(False, "Do not open a browser."),
    follow: Path | None = option(None, "Watch this training run while it trains.", metavar="DIRECTORY"),
    data_dir: Path | None = option(None, "Offer the files in it for training from the page.", metavar="DIRECTORY"),
    runs_dir: Path = option(Path("runs"), "Where the page's own trainings are written.", metavar="DIRECTORY"),
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
            f"the page shows how {config.source} become text in a decoder, and {directory} is an encoder: use "
            f"seq2see explain --model {directory} FILE"
        )
