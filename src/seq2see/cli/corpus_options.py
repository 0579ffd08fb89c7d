"""The options for input text, shared by all commands that read text.

`--src a.en b.en` takes several files, so that shell patterns such as `--src *.en` work; a command with such options is a
`MultiValueCommand`.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.errors import UsageError

if TYPE_CHECKING:
    from seq2see.data.corpus import PairOptions

Files = list[Path] | None


def _files(flag: str, help: str) -> Any:
    panel = "Validation and test" if flag.startswith(("--valid", "--test")) else "Text"
    return typer.Option(flag, help=help, metavar="FILE...", rich_help_panel=panel)


def _media(flag: str, help: str) -> Any:
    return typer.Option(flag, help=help, metavar="LIST...", rich_help_panel="Pictures and sounds")


def _names(flag: str, example: str, help: str) -> Any:
    return typer.Option(flag, help=help, metavar=example, rich_help_panel="Text")


Src = Annotated[Files, _files("--src", "Source sentences, one per line; or a directory of such files.")]
Tgt = Annotated[
    Files, _files("--tgt", "Their translations, line by line; or a directory whose files are matched by name.")
]
PairFiles = Annotated[
    Files, _files("--pairs", "Instead of --src and --tgt: .tsv, .jsonl, .tmx or .po, or a directory.")
]
Columns = Annotated[
    str | None, _names("--columns", "1,2", "Columns of a TSV file: numbers, or names from its first line.")
]
Fields = Annotated[str | None, _names("--fields", "en,hi", "Fields of JSON lines; nested: translation.en.")]
Languages = Annotated[
    str | None, _names("--languages", "en,hi", "Languages of a TMX file, or file suffixes in a directory.")
]
Text = Annotated[
    Files, _files("--text", "Plain text, or a directory of .txt files. All files may be compressed (.gz, .xz).")
]
Pictures = Annotated[
    Files,
    _media(
        "--pictures", "Pictures with their texts: a .tsv (path, tab, text) or .jsonl, or a directory with .txt files."
    ),
]
Sounds = Annotated[Files, _media("--sounds", "Sounds with their texts, likewise.")]
ValidPictures = Annotated[Files, _media("--valid-pictures", "Validation pictures.")]
ValidSounds = Annotated[Files, _media("--valid-sounds", "Validation sounds.")]
ValidSrc = Annotated[Files, _files("--valid-src", "Validation sentences.")]
ValidTgt = Annotated[Files, _files("--valid-tgt", "Their translations.")]
ValidPairs = Annotated[Files, _files("--valid-pairs", "Validation pairs, instead of --valid-src and --valid-tgt.")]
ValidText = Annotated[Files, _files("--valid-text", "Validation text.")]
TestSrc = Annotated[Files, _files("--test-src", "Test sentences.")]
TestTgt = Annotated[Files, _files("--test-tgt", "Their translations.")]
TestPairs = Annotated[Files, _files("--test-pairs", "Test pairs, instead of --test-src and --test-tgt.")]
TestText = Annotated[Files, _files("--test-text", "Test text.")]


def pair_options(
    src: Files, tgt: Files, pairs: Files, like: "PairOptions | None" = None, prefix: str = ""
) -> "PairOptions":
    """Builds the options of one set; a validation or test set takes columns, fields and languages from `like`."""
    from seq2see.data.corpus import PairOptions

    like = PairOptions() if like is None else like
    return PairOptions(src or (), tgt or (), pairs or (), like.columns, like.fields, like.languages, prefix)


def refuse_overwriting(file: Path | None, out: Path | None) -> None:
    """Raises an error if an output would replace an input, also under another path."""
    if file and out and os.path.isfile(file) and out.is_file() and os.path.samefile(file, out):
        raise UsageError(f"--out {out} would overwrite {file}, which is read: choose another name")
