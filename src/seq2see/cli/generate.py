"""`seq2see generate`: continues a prompt with a language model."""

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.model_options import Compute, ModelChoice, SamplingSeed, is_interactive, prompt_loop
from seq2see.cli.options import Options
from seq2see.cli.output import print_json
from seq2see.config import option
from seq2see.config.search import Search
from seq2see.errors import UserError
from seq2see.storage.bundled import LANGUAGE_MODEL

if TYPE_CHECKING:
    from seq2see.api import Model

MAX_PROMPT_BYTES = 1 << 24
SAMPLED = Search(max_new_tokens=200, temperature=0.8)
OPTIONS = Options("max_new_tokens", "samples", "temperature", "top_k", "top_p", "min_p", max_new_tokens={"min": 1})


def generate(
    model: Path | None = option(
        None,
        "Directory of a language model, ours or Hugging Face's, a GGUF file, or a bundled model.",
        metavar="DIRECTORY",
    ),
    prompt: str | None = option(
        None, "Text to continue; by default standard input, or interactive in a terminal.", metavar="TEXT"
    ),
    search: Annotated[Search, OPTIONS] = SAMPLED,
    stop: list[str] | None = option(None, "Stop before this text; can be repeated.", metavar="TEXT"),
    seed: SamplingSeed = None,
    as_json: bool = option(False, "Print the prompt and the samples as JSON.", flag="--json"),
    *,
    compute: Compute,
) -> None:
    """Generate text with a language model, printed as it is generated.

    Examples:

    seq2see generate --prompt "Once upon a time"

    seq2see generate --model runs/book --prompt "Once" --samples 3 --temperature 1 --top-p 0.95 --seed 1

    seq2see generate --model runs/book --prompt "Q: Why?" --stop "Q:" --json

    seq2see generate --model runs/book          # interactive
    """
    language_model = compute.load_of_shape(ModelChoice(model).path(LANGUAGE_MODEL), "decoder")
    generator = _Generator(language_model, tuple(filter(None, stop or ())), seed, search)
    if prompt is None and is_interactive() and not as_json:
        prompt_loop("> ", generator.print, "Type a prompt to see how the model continues it; see --help for options.")
        return
    if prompt is None:
        prompt = _read_prompt()
    if as_json:
        texts = ["".join(pieces) for pieces in generator.continuations(prompt)]
        unknown = language_model.unknown_words(prompt)
        print_json({"prompt": prompt, "samples": texts, "unknown": unknown})
        generator.note_unknown_words(prompt)
        return
    generator.print(prompt)


@dataclass(frozen=True)
class _Generator:
    """A language model and its generation options."""

    model: "Model"
    stop: tuple[str, ...]
    seed: int | None
    search: Search

    def print(self, prompt: str) -> None:
        """Prints the prompt and its continuations, as they are generated."""
        for number, pieces in enumerate(self.continuations(prompt)):
            typer.echo("---\n" * (number > 0) + prompt, nl=False)
            for piece in pieces:
                typer.echo(piece, nl=False)
            typer.echo()
        self.note_unknown_words(prompt)

    def note_unknown_words(self, prompt: str) -> None:
        from seq2see.storage.assessment import unknown_note

        if unknown := self.model.unknown_words(prompt):
            typer.echo(f"seq2see: {unknown_note(unknown)}", err=True)

    def continuations(self, prompt: str) -> Iterator[Iterable[str]]:
        """Yields the pieces of each sample: a single sample is streamed, several come when all are done."""
        seed = int.from_bytes(os.urandom(4)) if self.seed is None else self.seed
        search = vars(replace(self.search, seed=seed))
        if self.search.samples == 1:
            yield self.model.stream(prompt, stop=self.stop, **search)
            return
        for text in self.model.generate(prompt, stop=self.stop, **search):
            yield [text]


def _read_prompt() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    content = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
    if len(content) > MAX_PROMPT_BYTES:
        raise UserError(f"the prompt is longer than {MAX_PROMPT_BYTES:,} bytes: shorten it")
    text = content.decode(errors="replace").removeprefix("\ufeff")
    if "\ufffd" in text and "\ufffd".encode() not in content:
        typer.echo("seq2see: the prompt contains bytes that are not UTF-8; they are replaced by U+FFFD", err=True)
    return text.removesuffix("\n").removesuffix("\r")
