"""`seq2see data check`: checks data before training and prints a table, or JSON for programs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.options import refuse_given
from seq2see.cli.progress import progress
from seq2see.config import DataConfig, ModelConfig, option
from seq2see.errors import UsageError, UserError
from seq2see.storage.bundled import bundled_model, bundled_names

if TYPE_CHECKING:
    from seq2see.check.fix import CleanedCopy
    from seq2see.check.pairs import CheckSettings
    from seq2see.check.report import Report
    from seq2see.data.tokenizer import Tokenizer


_MEDIA_OPTIONS = {"columns", "fields", "examples", "as_json"}  # besides those that name the files
_TEST = {"metavar": "FILE...", "panel": "Validation and test"}


@dataclass(frozen=True, kw_only=True)
class CheckedData(DataConfig):
    """The files of a training, and those of a test."""

    test_src: tuple[str, ...] = option((), "Test sentences.", **_TEST)
    test_tgt: tuple[str, ...] = option((), "Their translations.", **_TEST)
    test_pairs: tuple[str, ...] = option((), "Test pairs, instead of --test-src and --test-tgt.", **_TEST)
    test_text: tuple[str, ...] = option((), "Test text.", **_TEST)


def check(
    context: typer.Context,
    *,
    data: CheckedData,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="Also count tokens, with a tokenizer.json or that of a model directory.", metavar="FILE|DIRECTORY"
        ),
    ] = None,
    max_length: Annotated[
        int, typer.Option(help="Maximum sentence length in tokens (without a tokenizer: in words).", min=1)
    ] = ModelConfig().max_positions,
    examples: Annotated[int, typer.Option(help="Number of examples per kind of problem.", min=0, max=1000)] = 3,
    fix: Annotated[
        Path | None, typer.Option(help="Write a cleaned copy to this directory.", metavar="DIRECTORY")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check data before training: find broken, misaligned, duplicate, untranslated or leaked data.

    Examples:

    seq2see data check --src train.en --tgt train.hi --valid-src dev.en --valid-tgt dev.hi --fix clean/

    seq2see data check --sounds digits.tsv

    The exit code is 1 if training is impossible and no cleaned copy was written, and 0 otherwise.
    """
    from seq2see.check.pairs import CheckSettings

    _refuse_other_kinds(context, data)
    with progress() as start_progress:
        settings = CheckSettings(max_length, examples, _load_tokenizer(tokenizer), start_progress)
        check_data = _check_media if data.pictures or data.sounds else _check_text if data.text else _check_pairs
        outcome = check_data(data, settings, fix)
    _print(outcome, as_json)
    if outcome.error is not None:
        raise outcome.error
    if not (outcome.report.trainable or outcome.cleaned):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Outcome:
    """The report, and the cleaned copy or the reason why there is none."""

    report: "Report"
    cleaned: "CleanedCopy | None" = None
    error: UserError | None = None


def _refuse_other_kinds(context: typer.Context, data: CheckedData) -> None:
    """Raises an error if there are no data, or options that do not apply to their kind."""
    from seq2see.data.corpus import has_pairs

    kind = "pictures" if data.pictures else "sounds" if data.sounds else ""
    if kind:
        applicable = {kind, f"valid_{kind}", *_MEDIA_OPTIONS}
        refuse_given(context, context.params.keys() - applicable, f"does not apply to --{kind}")
    else:
        refuse_given(context, ["valid_pictures", "valid_sounds"], "needs --pictures or --sounds")
    if data.text and has_pairs(data):
        raise UserError("use either --text, or pairs (--src and --tgt, or --pairs), not both")
    if not (data.text or has_pairs(data) or kind):
        raise UsageError(
            "missing data: use --src FILE and --tgt FILE, --pairs FILE, --text FILE, --pictures LIST or --sounds LIST"
        )


def _check_pairs(data: CheckedData, settings: "CheckSettings", fix: Path | None) -> _Outcome:
    from seq2see.check.fix import write_clean_pairs
    from seq2see.check.pairs import check_pairs
    from seq2see.data.corpus import has_pairs, open_pairs

    pairs = open_pairs(data)
    held_out = (open_pairs(data, name) if has_pairs(data, name) else None for name in ("valid_", "test_"))
    checked = check_pairs(pairs, settings, *held_out)
    return _write_copy(checked.report, lambda out: write_clean_pairs(pairs, checked, out, settings.progress), fix)


def _check_media(data: CheckedData, settings: "CheckSettings", fix: Path | None) -> _Outcome:
    """Decodes every file as a preset does, and names it: other settings make fewer or more tokens of a file."""
    from seq2see.check.media_files import check_media
    from seq2see.data.corpus import media_kind, training_pairs, validation_pairs
    from seq2see.data.media.reader import MediaReader
    from seq2see.train.presets import preset, preset_for_media

    name = preset_for_media(str(media_kind(data)))
    pairs, valid = training_pairs(data), validation_pairs(data)
    return _Outcome(check_media(pairs, MediaReader(preset(name)), settings, valid, f"the preset {name}"))


def _check_text(data: CheckedData, settings: "CheckSettings", fix: Path | None) -> _Outcome:
    from seq2see.check.documents import check_documents
    from seq2see.check.fix import write_clean_text
    from seq2see.data.corpus import plain_text

    text, *held_out = (
        plain_text(map(Path, files), data.boundaries) if files else None
        for files in (data.text, data.valid_text, data.test_text)
    )
    assert text is not None
    checked = check_documents(text, settings, *held_out)
    return _write_copy(checked.report, lambda out: write_clean_text(text, checked, out, settings.progress), fix)


def _write_copy(report: "Report", write: Callable[[Path], "CleanedCopy"], out: Path | None) -> _Outcome:
    """Keeps an error for later: the report, which explains it, is printed first."""
    if out is None:
        return _Outcome(report)
    try:
        return _Outcome(report, write(out))
    except UserError as error:
        return _Outcome(report, error=error)


def _load_tokenizer(path: Path | None) -> "Tokenizer | None":
    if path is None:
        return None
    from seq2see.data.foreign_tokenizer import load_tokenizer

    if str(path) in bundled_names() and not path.exists():
        path = bundled_model(str(path))
    return load_tokenizer(path / "tokenizer.json" if path.is_dir() else path)


def _print(outcome: _Outcome, as_json: bool) -> None:
    from seq2see.check.report import to_json

    if not as_json:
        from rich.console import Console

        from seq2see.cli.data_report import print_report

        print_report(outcome.report, outcome.cleaned, Console())
        return
    document = to_json(outcome.report)
    if outcome.cleaned is not None:
        files = [str(file) for file in outcome.cleaned.files]
        document["cleaned"] = {"files": files, "kept": outcome.cleaned.kept, "removed": dict(outcome.cleaned.removed)}
    typer.echo(json.dumps(document, ensure_ascii=False, indent=2))
