"""`seq2see explore`: serves the web page and its API on localhost."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.model_options import InspectionDevice, Precision, load_model


def explore(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model", metavar="DIRECTORY", help="Model directory; can be repeated. By default the bundled model."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="First port to try; the next free one is used. 0: any free port.", min=0, max=65535)
    ] = 8000,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    precision: Precision = "float32",
    device: InspectionDevice = "cpu",
) -> None:
    """Explore models in the browser: every number of a translation, and the effect of interventions.

    Example: seq2see explore --model runs/en-hi --model runs/books
    """
    if (device, precision) != ("cpu", "float32"):
        load_model(model[0] if model else None, device, precision)  # fails now instead of at every request

    from seq2see.serve.server import serve

    def report(line: str) -> None:
        print(line, flush=True)  # a program may be waiting for the address

    open_browser = not no_open and sys.stdout.isatty()
    serve(model or [], port, open_browser, report, device, precision)
    os._exit(0)  # skips torch's slow teardown
