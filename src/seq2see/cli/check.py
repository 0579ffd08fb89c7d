"""`seq2see data check`: the data report before training, as a table for a person or JSON for a program."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli import corpus_options as c
from seq2see.cli.progress import progress
from seq2see.config import Boundaries, ModelConfig
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.text.check.fix import Cleaned
    from seq2see.text.check.pairs import Settings
    from seq2see.text.check.report import Report
    from seq2see.text.corpus import Documents, PairOptions
    from seq2see.text.tokenizer import Tokenizer


def check(
    src: c.Src = None,
    tgt: c.Tgt = None,
    pairs: c.PairFiles = None,
    columns: c.Columns = None,
    fields: c.Fields = None,
    languages: c.Languages = None,
    text: c.Text = None,
    boundaries: Annotated[
        Boundaries, typer.Option(help="Where a document of plain text ends.", rich_help_panel="Text")
    ] = "blank-line",
    valid_src: c.ValidSrc = None,
    valid_tgt: c.ValidTgt = None,
    valid_pairs: c.ValidPairs = None,
    valid_text: c.ValidText = None,
    test_src: c.TestSrc = None,
    test_tgt: c.TestTgt = None,
    test_pairs: c.TestPairs = None,
    test_text: c.TestText = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Count tokens too, with a tokenizer.json or the one of a model directory.")
    ] = None,
    longest: Annotated[
        int, typer.Option(help="Tokens (without a tokenizer: words) that the model takes.", min=1)
    ] = ModelConfig().longest,
    examples: Annotated[int, typer.Option(help="Examples to show of each kind.", min=0)] = 3,
    fix: Annotated[
        Path | None, typer.Option(help="Write a cleaned copy into this directory.", metavar="DIRECTORY")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Look at text before training on it: what is broken, misaligned, doubled, untranslated or leaked.

    Example: seq2see data check --src train.en --tgt train.hi --valid-src dev.en --valid-tgt dev.hi --fix clean/

    The exit code is 1 where training would be impossible, and 0 otherwise.
    """
    from seq2see.text.check.pairs import Settings
    from seq2see.text.corpus import PairOptions, plain

    train = c.pair_options(src, tgt, pairs, PairOptions(columns=columns, fields=fields, languages=languages))
    if text and train.given:
        raise UserError("give either --text, or pairs (--src and --tgt, or --pairs), not both")
    with progress() as watch:
        settings = Settings(longest, examples, _encoder(tokenizer), watch)
        if text:
            held_out = [plain(files, boundaries) if files else None for files in (valid_text, test_text)]
            outcome = _check_text(plain(text, boundaries), held_out, settings, fix)
        else:
            valid = c.pair_options(valid_src, valid_tgt, valid_pairs, train, "valid-")
            test = c.pair_options(test_src, test_tgt, test_pairs, train, "test-")
            outcome = _check_pairs(train, [valid, test], settings, fix)
    _print(outcome, as_json)
    if outcome.refusal is not None:
        raise outcome.refusal
    if not (outcome.report.trainable or outcome.cleaned):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Outcome:
    """The report, and the cleaned copy or why there is none."""

    report: "Report"
    cleaned: "Cleaned | None" = None
    refusal: UserError | None = None


def _check_pairs(
    train: "PairOptions", held_out: Sequence["PairOptions"], settings: "Settings", fix: Path | None
) -> _Outcome:
    from seq2see.text.check.fix import write_clean_pairs
    from seq2see.text.check.pairs import check_pairs
    from seq2see.text.corpus import open_pairs

    pairs = open_pairs(train)
    checked = check_pairs(pairs, settings, *(open_pairs(other) if other.given else None for other in held_out))
    return _fixed(checked.report, lambda out: write_clean_pairs(pairs, checked, out, settings.watch), fix)


def _check_text(
    text: "Documents", held_out: Sequence["Documents | None"], settings: "Settings", fix: Path | None
) -> _Outcome:
    from seq2see.text.check.documents import check_documents
    from seq2see.text.check.fix import write_clean_text

    checked = check_documents(text, settings, *held_out)
    return _fixed(checked.report, lambda out: write_clean_text(text, checked, out, settings.watch), fix)


def _fixed(report: "Report", write: Callable[[Path], "Cleaned"], out: Path | None) -> _Outcome:
    """A refusal to write comes after the report, which explains it."""
    if out is None:
        return _Outcome(report)
    try:
        return _Outcome(report, write(out))
    except UserError as refusal:
        return _Outcome(report, refusal=refusal)


def _encoder(path: Path | None) -> "Tokenizer | None":
    if path is None:
        return None
    from seq2see.text.tokenizer import Tokenizer

    return Tokenizer.load(path / "tokenizer.json" if path.is_dir() else path)


def _print(outcome: _Outcome, as_json: bool) -> None:
    from seq2see.text.check.report import to_json

    if not as_json:
        from rich.console import Console

        from seq2see.cli.data_report import draw

        draw(outcome.report, outcome.cleaned, Console())
        return
    document = to_json(outcome.report)
    if outcome.cleaned is not None:
        files = [str(file) for file in outcome.cleaned.files]
        document["cleaned"] = {"files": files, "kept": outcome.cleaned.kept, "gone": dict(outcome.cleaned.gone)}
    typer.echo(json.dumps(document, ensure_ascii=False, indent=2))
