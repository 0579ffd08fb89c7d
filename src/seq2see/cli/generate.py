"""`seq2see generate`: a language model goes on from a prompt."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.model_options import Device, Int8, ModelPath, converse, in_terminal, loaded
from seq2see.errors import UsageError

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.decode.search import SearchOptions

_HOW = "How it is drawn"


def generate(
    model: ModelPath = None,
    prompt: Annotated[
        str | None, typer.Option(help="What to go on from; else standard input, or a conversation in a terminal.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="Write at most so many tokens.", min=1)] = 200,
    samples: Annotated[int, typer.Option(help="Go on in so many ways.", min=1)] = 1,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; may be given more than once.")] = None,
    temperature: Annotated[
        float, typer.Option(help="Above 1 wilder, below 1 tamer; 0: always the likeliest.", min=0, rich_help_panel=_HOW)
    ] = 0.8,
    top_k: Annotated[
        int, typer.Option(help="Among so many of the likeliest tokens; 0: all.", min=0, rich_help_panel=_HOW)
    ] = 0,
    top_p: Annotated[
        float, typer.Option(help="Among the fewest with this probability together.", min=0, max=1, rich_help_panel=_HOW)
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Among those with this share of the likeliest's.", min=0, max=1, rich_help_panel=_HOW)
    ] = 0.0,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed writes the same; else another text each time.", rich_help_panel=_HOW),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print prompt and samples for a program to read.")] = False,
    int8: Int8 = False,
    device: Device = "",
) -> None:
    """Let a language model write on, shown as it is written.

    Examples:

    seq2see generate --model runs/book --prompt "Once upon a time"

    seq2see generate --model runs/book --prompt "Once" --samples 3 --temperature 1 --top-p 0.95 --seed 1

    seq2see generate --model runs/book --prompt "Q: Why?" --stop "Q:" --json

    seq2see generate --model runs/book          # in a terminal: type a beginning, see how it goes on
    """
    if samples > 1 and temperature == 0:
        raise UsageError(f"--samples {samples} at --temperature 0 would all be the same: take one above 0")
    search: SearchOptions = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    language_model = loaded(model, "decoder", device, int8)
    writer = _Writer(language_model, tokens, tuple(filter(None, stop or ())), samples, seed, search)
    if prompt is None and in_terminal() and not as_json:
        converse("> ", writer.show, "Type a beginning to see how the model goes on; --help tells more.")
        return
    if prompt is None:
        prompt = _read_prompt()
    if as_json:
        found = ["".join(pieces) for pieces in writer.continuations(prompt)]
        typer.echo(json.dumps({"prompt": prompt, "samples": found}, ensure_ascii=False))
        return
    writer.show(prompt)


@dataclass(frozen=True)
class _Writer:
    """A language model, and how it is to write."""

    model: "Model"
    tokens: int
    stop: tuple[str, ...]
    samples: int
    seed: int | None
    search: "SearchOptions"

    def show(self, prompt: str) -> None:
        """Prints the prompt and how it goes on, piece by piece as they come."""
        for number, pieces in enumerate(self.continuations(prompt)):
            typer.echo("---\n" * (number > 0) + prompt, nl=False)
            for piece in pieces:
                typer.echo(piece, nl=False)
            typer.echo()

    def continuations(self, prompt: str) -> Iterator[Iterable[str]]:
        """The pieces of each sample: of a single one as they are written, of several when all are done."""
        seed = int.from_bytes(os.urandom(4)) if self.seed is None else self.seed
        search: SearchOptions = {**self.search, "samples": self.samples, "seed": seed}
        if self.samples == 1:
            yield self.model.stream(prompt, tokens=self.tokens, stop=self.stop, **search)
            return
        for text in self.model.generate(prompt, tokens=self.tokens, stop=self.stop, **search):
            yield [text]


def _read_prompt() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    content = sys.stdin.buffer.read()
    text = content.decode(errors="replace").removeprefix("\ufeff")
    if "\ufffd" in text and "\ufffd".encode() not in content:
        typer.echo("seq2see: the prompt has bytes that are not UTF-8: replaced by U+FFFD", err=True)
    return text.removesuffix("\n").removesuffix("\r")
