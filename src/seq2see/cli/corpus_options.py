"""The options that name text, alike in every command that reads some.

`--src a.en b.en` takes several files, as a shell makes of `--src *.en`; a command with such options is a `Spread`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from seq2see.text.corpus import PairOptions

Files = list[Path] | None


def _files(flag: str, help: str) -> Any:
    panel = "Validation and test" if flag.startswith(("--valid", "--test")) else "Text"
    return typer.Option(flag, help=help, metavar="FILE...", rich_help_panel=panel)


def _names(flag: str, example: str, help: str) -> Any:
    return typer.Option(flag, help=help, metavar=example, rich_help_panel="Text")


Src = Annotated[Files, _files("--src", "Source sentences, one a line; or a directory of such files.")]
Tgt = Annotated[Files, _files("--tgt", "Their translations, line by line; or a directory, its files paired by name.")]
PairFiles = Annotated[Files, _files("--pairs", "Instead: .tsv, .jsonl, .tmx or .po, or a directory of them.")]
Columns = Annotated[str | None, _names("--columns", "1,2", "Columns of a TSV: numbers, or names in its first line.")]
Fields = Annotated[str | None, _names("--fields", "en,hi", "Fields of JSON lines; translation.en is a nested one.")]
Languages = Annotated[str | None, _names("--languages", "en,hi", "Languages of a TMX, or the endings in a directory.")]
Text = Annotated[
    Files, _files("--text", "Plain text, or a directory with .txt files. All of these also as .gz or .xz.")
]
ValidSrc = Annotated[Files, _files("--valid-src", "The validation set, in the same ways.")]
ValidTgt = Annotated[Files, _files("--valid-tgt", "Its translations.")]
ValidPairs = Annotated[Files, _files("--valid-pairs", "Instead: a file of pairs.")]
ValidText = Annotated[Files, _files("--valid-text", "The validation text.")]
TestSrc = Annotated[Files, _files("--test-src", "The test set, in the same ways.")]
TestTgt = Annotated[Files, _files("--test-tgt", "Its translations.")]
TestPairs = Annotated[Files, _files("--test-pairs", "Instead: a file of pairs.")]
TestText = Annotated[Files, _files("--test-text", "The test text.")]


def pair_options(
    src: Files, tgt: Files, pairs: Files, like: "PairOptions | None" = None, role: str = ""
) -> "PairOptions":
    """The options of one set; `like` lends a validation or test set the columns, fields and languages of training."""
    from seq2see.text.corpus import PairOptions

    like = PairOptions() if like is None else like
    return PairOptions(src or (), tgt or (), pairs or (), like.columns, like.fields, like.languages, role)


class Spread(TyperCommand):
    """A command whose options may take several values each."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        several = {flag for option in self.params if getattr(option, "multiple", False) for flag in option.opts}
        return super().parse_args(ctx, spread(args, several))


def spread(arguments: Sequence[str], several: Iterable[str]) -> list[str]:
    """`--src a b` as `--src a --src b`, for the options that take several values."""
    several = set(several)
    written: list[str] = []
    option, filled = "", False  # the option that takes values, and whether it has one
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            option, filled = argument if argument in several else "", False
        elif option:
            if filled:
                written.append(option)
            filled = True
        written.append(argument)
    return written
