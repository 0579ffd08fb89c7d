"""`seq2see explore`: serves the web page and its API on localhost."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


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
) -> None:
    """Explore models in the browser: every number of a translation, and the effect of interventions.

    Example: seq2see explore --model runs/en-hi --model runs/books
    """
    from seq2see.serve.server import serve

    def report(line: str) -> None:
        print(line, flush=True)  # a program may be waiting for the address

    serve(model or [], port, open_browser=not no_open and sys.stdout.isatty(), report=report)
    os._exit(0)  # skips torch's slow teardown
