"""Options for the model that a command uses, and the interactive prompt in a terminal."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.inputs import valid_unicode
from seq2see.cli.options import Options
from seq2see.config import InferencePrecision, option
from seq2see.errors import UsageError, UserError
from seq2see.storage.bundled import bundled_model, bundled_translator

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.config import Shape

_COMMANDS = {"encoder-decoder": "translate", "decoder": "generate", "encoder": "embed"}
_KINDS = {"encoder-decoder": "a translator", "decoder": "a language model", "encoder": "an encoder"}


@dataclass(frozen=True)
class ModelChoice:
    """A model directory, or a bundled model by its name or language."""

    model: Path | None = option(
        None,
        'Model directory, ours or Hugging Face\'s, a GGUF file, or a bundled model; "seq2see model" lists those.',
        metavar="DIRECTORY",
    )
    to: str | None = option(None, "Bundled model from English into this language: hi or fr.", metavar="LANGUAGE")

    def path(self, default: str | None = None) -> Path:
        """Returns the value of --model, or the directory of the bundled model for --to, or of the default one."""
        if self.to is None:
            return self.model or (bundled_model(default) if default else bundled_translator())
        if self.model is not None:
            raise UsageError(
                f"--to {self.to} chooses a bundled model, and --model {self.model} another: give only one of the two"
            )
        return bundled_translator(self.to)


@dataclass(frozen=True)
class Languages:
    """The languages of a model that has a choice."""

    source_language: str | None = option(
        None, "Source language, if the model has a choice, such as eng_Latn.", metavar="CODE"
    )
    target_language: str | None = option(
        None, "Target language, if the model has a choice, such as fra_Latn.", metavar="CODE"
    )

    def choose(self, model: "Model") -> "Model":
        pair = (self.source_language, self.target_language)
        return model.with_languages(*pair) if any(pair) else model


@dataclass(frozen=True)
class Compute:
    """How the numbers are computed, and where."""

    precision: InferencePrecision = option(
        "float32", "Compute in float32, bf16 (needs a GPU or a CPU with bf16) or int8 (fastest on a CPU)."
    )
    device: str = option("", "cpu, cuda or mps; by default the best available.", metavar="DEVICE")

    def load(self, path: Path) -> "Model":
        import seq2see

        return seq2see.load(path, self.device, precision=self.precision)

    def load_of_shape(self, path: Path, shape: "Shape", remedy: str = "") -> "Model":
        """Loads a model for inference; raises a UserError if it has another shape."""
        model = self.load(path)
        actual = model.config.model.shape
        if actual != shape and not (shape == "encoder-decoder" and model.config.model.writes_text):
            remedy = remedy or f'use "seq2see {_COMMANDS[actual]}"'
            raise UserError(f"{model.label} is {_KINDS[actual]}, not {_KINDS[shape]}: {remedy}")
        return model.for_inference()


# For looking inside, where the best device gains little.
InspectionCompute = Annotated[Compute, Options("precision", "device", device={"help": "cpu, cuda or mps."})]
ON_CPU = Compute(device="cpu")
SamplingSeed = Annotated[
    int | None, typer.Option(help="Seed for reproducible output; by default random.", rich_help_panel="Sampling")
]


def prompt_loop(prompt: str, respond: Callable[[str], None], hint: str) -> None:
    """Reads lines and responds to each until Ctrl-D; the arrow keys recall earlier lines."""
    with suppress(ImportError):  # where available, gives input() line editing and history
        import_module("readline")
    typer.echo(f"{hint} Press Ctrl-D to exit.", err=True)
    while True:
        try:
            text = input(prompt)
            if text.strip():
                respond(valid_unicode(text))
        except KeyboardInterrupt:
            typer.echo()
        except EOFError:
            typer.echo()
            return


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
