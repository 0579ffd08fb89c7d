"""The model that a command works with, and a conversation with it in a terminal."""

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.errors import UsageError, UserError, nearest

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.config import Shape

ModelPath = Annotated[
    Path | None, typer.Option("--model", help="The model's directory; else the bundled one.", metavar="DIRECTORY")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps; else the best there is.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Compute in 8-bit integers: faster on a CPU, a little less exact.")]

_COMMANDS = {"encoder-decoder": "translate", "decoder": "generate"}
_KINDS = {"encoder-decoder": "a translator", "decoder": "a language model", "encoder": "an encoder"}


def loaded(path: Path | None, shape: "Shape", device: str, int8: bool = False, remedy: str = "") -> "Model":
    """The model in a directory, or the bundled one, if it is of the shape that the command wants."""
    import seq2see
    from seq2see.train.parallel import best_device

    device = device or best_device()
    _check_device(device)
    model = seq2see.load(path, device, precision="int8" if int8 else "float32")
    found = model.config.model.shape
    if found != shape:
        name = path or "the bundled model"
        if found not in _COMMANDS:
            remedy = "it reads and does not write"
        remedy = remedy or f'use "seq2see {_COMMANDS[found]}"'
        raise UserError(f"{name} is {_KINDS[found]}, not {_KINDS[shape]}: {remedy}")
    return model


def _check_device(device: str) -> None:
    import torch

    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda", "mps"):
        raise UsageError(f'--device cannot be "{device}": {nearest(kind, ["cpu", "cuda", "mps"])}')
    if (kind == "cuda" and not torch.cuda.is_available()) or (kind == "mps" and not torch.backends.mps.is_available()):
        raise UserError(f'there is no "{kind}" device that torch can use here: leave out --device')


def converse(prompt: str, answer: Callable[[str], None], hint: str) -> None:
    """Asks for a line and answers it until Ctrl-D; the arrow keys bring back what was typed before."""
    with suppress(ImportError):  # input() then edits and remembers, on systems that have it
        import_module("readline")
    typer.echo(f"{hint} Ctrl-D leaves.", err=True)
    while True:
        try:
            text = input(prompt)
            if text.strip():
                answer(text.encode(errors="surrogateescape").decode(errors="replace"))
        except KeyboardInterrupt:
            typer.echo()
        except EOFError:
            typer.echo()
            return


def in_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
