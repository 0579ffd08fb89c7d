"""Options for the model that a command uses and for sampling, and the interactive prompt in a terminal."""

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.config import InferencePrecision
from seq2see.errors import UsageError, UserError
from seq2see.storage.bundled import bundled_model, bundled_translator, model_label

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.config import Shape

ModelPath = Annotated[
    Path | None,
    typer.Option(
        "--model",
        help='Model directory, ours or Hugging Face\'s, a GGUF file, or a bundled model; "seq2see model" lists those.',
        metavar="DIRECTORY",
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", help="Bundled model from English into this language: hi or fr.", metavar="LANGUAGE"),
]
# Named explicitly: without, typer 0.27 would call an option like its metavar, --DEVICE, where the two differ in case alone.
Device = Annotated[
    str, typer.Option("--device", help="cpu, cuda or mps; by default the best available.", metavar="DEVICE")
]
InspectionDevice = Annotated[str, typer.Option("--device", help="cpu, cuda or mps.", metavar="DEVICE")]
Precision = Annotated[
    InferencePrecision,
    typer.Option(help="Compute in float32, bf16 (needs a GPU or a CPU with bf16) or int8 (fastest on a CPU)."),
]

SourceLanguage = Annotated[
    str | None,
    typer.Option(
        "--source-language", help="Source language, if the model has a choice, such as eng_Latn.", metavar="CODE"
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(
        "--target-language", help="Target language, if the model has a choice, such as fra_Latn.", metavar="CODE"
    ),
]

SAMPLING = "Sampling"  # the panel of these options in the help
Temperature = Annotated[
    float, typer.Option(help="Sampling temperature; 0 for greedy decoding.", min=0, rich_help_panel=SAMPLING)
]
TopP = Annotated[
    float,
    typer.Option(
        help="Sample among the fewest tokens with this total probability.", min=0, max=1, rich_help_panel=SAMPLING
    ),
]
SamplingSeed = Annotated[
    int | None, typer.Option(help="Seed for reproducible output; by default random.", rich_help_panel=SAMPLING)
]

_COMMANDS = {"encoder-decoder": "translate", "decoder": "generate", "encoder": "embed"}
_KINDS = {"encoder-decoder": "a translator", "decoder": "a language model", "encoder": "an encoder"}


def choose_model(path: Path | None, to: str | None = None, default: str | None = None) -> Path:
    """Returns the value of --model, or the directory of the bundled model for --to, or of the default one."""
    if to is None:
        return path or (bundled_model(default) if default else bundled_translator())
    if path is not None:
        raise UsageError(f"--to {to} chooses a bundled model, and --model {path} another: give only one of the two")
    return bundled_translator(to)


def load_model(path: Path, device: str, precision: InferencePrecision) -> "Model":
    import seq2see

    return seq2see.load(path, device, precision=precision)


def load_model_of_shape(
    path: Path, shape: "Shape", device: str, precision: InferencePrecision, remedy: str = ""
) -> "Model":
    """Loads a model for inference; raises a UserError if it has another shape."""
    model = load_model(path, device, precision)
    actual = model.config.model.shape
    if actual != shape and not (shape == "encoder-decoder" and model.config.model.writes_text):
        remedy = remedy or f'use "seq2see {_COMMANDS[actual]}"'
        raise UserError(f"{model_label(path)} is {_KINDS[actual]}, not {_KINDS[shape]}: {remedy}")
    return model.for_inference()


def with_languages(model: "Model", source: str | None, target: str | None) -> "Model":
    """Chooses the languages of a model that has a choice, if any are given."""
    return model.with_languages(source, target) if source or target else model


def prompt_loop(prompt: str, respond: Callable[[str], None], hint: str) -> None:
    """Reads lines and responds to each until Ctrl-D; the arrow keys recall earlier lines."""
    with suppress(ImportError):  # where available, gives input() line editing and history
        import_module("readline")
    typer.echo(f"{hint} Press Ctrl-D to exit.", err=True)
    while True:
        try:
            text = input(prompt)
            if text.strip():
                respond(text.encode(errors="surrogateescape").decode(errors="replace"))
        except KeyboardInterrupt:
            typer.echo()
        except EOFError:
            typer.echo()
            return


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
