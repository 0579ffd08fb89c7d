"""Options for the model that a command uses, and the interactive prompt in a terminal."""

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.errors import UsageError, UserError, did_you_mean

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.config import Shape

ModelPath = Annotated[
    Path | None, typer.Option("--model", help="Model directory; by default the bundled model.", metavar="DIRECTORY")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps; by default the best available.", metavar="DEVICE")]
Int8 = Annotated[bool, typer.Option("--int8", help="Compute in int8: faster on a CPU, slightly less accurate.")]

_COMMANDS = {"encoder-decoder": "translate", "decoder": "generate"}
_KINDS = {"encoder-decoder": "a translator", "decoder": "a language model", "encoder": "an encoder"}


def load_model(path: Path | None, shape: "Shape", device: str, int8: bool = False, remedy: str = "") -> "Model":
    """Loads the model in a directory, or the bundled one; raises a UserError if it has another shape."""
    import seq2see
    from seq2see.train.parallel import best_device

    device = device or best_device()
    _check_device(device)
    model = seq2see.load(path, device, precision="int8" if int8 else "float32")
    actual = model.config.model.shape
    if actual != shape:
        name = path or "the bundled model"
        if actual not in _COMMANDS:
            remedy = "it cannot generate text"
        remedy = remedy or f'use "seq2see {_COMMANDS[actual]}"'
        raise UserError(f"{name} is {_KINDS[actual]}, not {_KINDS[shape]}: {remedy}")
    return model


def _check_device(device: str) -> None:
    import torch

    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda", "mps"):
        raise UsageError(f'--device cannot be "{device}": {did_you_mean(kind, ["cpu", "cuda", "mps"])}')
    if (kind == "cuda" and not torch.cuda.is_available()) or (kind == "mps" and not torch.backends.mps.is_available()):
        raise UserError(f'PyTorch finds no "{kind}" device: omit --device')


def prompt_loop(prompt: str, answer: Callable[[str], None], hint: str) -> None:
    """Reads lines and answers each until Ctrl-D; the arrow keys recall earlier lines."""
    with suppress(ImportError):  # where available, gives input() line editing and history
        import_module("readline")
    typer.echo(f"{hint} Press Ctrl-D to exit.", err=True)
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


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
