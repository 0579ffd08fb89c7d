"""`seq2see explore`: the page, and the API behind it, on this machine."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def explore(
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", metavar="DIR", help="A model's directory, any number of times; else the bundled one."),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Where to listen; if taken, the next free one. 0: any.", min=0, max=65535)
    ] = 8000,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Look into models in a browser: every number of a translation, and what changes when you reach in.

    Example: seq2see explore --model runs/en-hi --model runs/books
    """
    from seq2see.serve.server import serve

    def tell(line: str) -> None:
        print(line, flush=True)  # also where a program waits for the address

    serve(model or [], port, browse=not no_open and sys.stdout.isatty(), tell=tell)
    os._exit(0)  # nothing is left to do, and taking torch apart would keep a person waiting
