"""`seq2see data check`: checks data before training and prints a table, or JSON for programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seq2see.cli.options import refuse_given
from seq2see.cli.output import print_json, progress
from seq2see.config import DataConfig, ModelConfig, option
from seq2see.errors import UsageError, UserError, terminal
from seq2see.storage.bundled import bundled_model, bundled_names

if TYPE_CHECKING:
    from seq2see.check.fix import CleanedCopy
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
    tokenizer: Path | None = option(
        None, "Also count tokens, with a tokenizer.json or that of a model directory.", metavar="FILE|DIRECTORY"
    ),
    max_length: int = option(
        ModelConfig().max_positions, "Maximum sentence length in tokens (without a tokenizer: in words).", min=1
    ),
    examples: int = option(3, "Number of examples per kind of problem.", min=0, max=1000),
    fix: Path | None = option(None, "Write a cleaned copy to this directory.", metavar="DIRECTORY"),
    as_json: bool = option(False, "Print the report as JSON.", flag="--json"),
) -> None:
    """Check data before training: find broken, misaligned, duplicate, untranslated or leaked data.

    Examples:

    seq2see data check --src train.en --tgt train.hi --valid-src dev.en --valid-tgt dev.hi --fix clean/

    seq2see data check --sounds digits.tsv

    The exit code is 1 if training is impossible and no cleaned copy was written, and 0 otherwise.
    """
    from seq2see.check.collect import CheckSettings
    from seq2see.check.data import check_data
    from seq2see.check.fix import write_clean_copy
    from seq2see.data.corpus import open_data

    _refuse_other_kinds(context, data)
    cleaned, error = None, None
    with progress() as advance:
        settings = CheckSettings(max_length, examples, _load_tokenizer(tokenizer), advance, **_media_reader(data))
        corpus = open_data(data)
        assert corpus is not None
        checked = check_data(corpus, settings, open_data(data, "valid_"), open_data(data, "test_"))
        try:
            cleaned = write_clean_copy(corpus, checked, fix, advance) if fix else None
        except UserError as reason:
            error = reason  # raised later: the report, which explains it, is printed first
    _print(checked.report, cleaned, as_json)
    if error is not None:
        raise error
    if not (checked.report.trainable or cleaned):
        raise typer.Exit(1)


def _refuse_other_kinds(context: typer.Context, data: CheckedData) -> None:
    """Raises an error if there are no data, or options that do not apply to their kind."""
    from seq2see.data.corpus import is_translation

    kind = "pictures" if data.pictures else "sounds" if data.sounds else ""
    if kind:
        applicable = {kind, f"valid_{kind}", *_MEDIA_OPTIONS}
        refuse_given(context, context.params.keys() - applicable, f"does not apply to --{kind}")
    else:
        refuse_given(context, ["valid_pictures", "valid_sounds"], "needs --pictures or --sounds")
    if data.text and is_translation(data):
        raise UserError("use either --text, or pairs (--src and --tgt, or --pairs), not both")
    if not (data.text or is_translation(data)):
        raise UsageError(
            "missing data: use --src FILE and --tgt FILE, --pairs FILE, --text FILE, --pictures LIST or --sounds LIST"
        )


def _media_reader(data: CheckedData) -> dict[str, Any]:
    """Decodes pictures and sounds as a preset does, and names it: other settings make fewer or more tokens of a file."""
    from seq2see.data.corpus import media_kind
    from seq2see.formats.media.reader import MediaReader
    from seq2see.train.presets import preset, preset_for_media

    kind = media_kind(data)
    if kind is None:
        return {}
    name = preset_for_media(kind)
    return {"reader": MediaReader(preset(name)), "model": f"the preset {name}"}


def _load_tokenizer(path: Path | None) -> "Tokenizer | None":
    if path is None:
        return None
    from seq2see.data.tokenizer import Tokenizer

    if str(path) in bundled_names() and not path.exists():
        path = bundled_model(str(path))
    return Tokenizer.load(path / "tokenizer.json" if path.is_dir() else path)


def _print(report: "Report", cleaned: "CleanedCopy | None", as_json: bool) -> None:
    from seq2see.check.report import to_json

    if not as_json:
        from seq2see.cli.data_report import print_report

        print_report(report, cleaned, terminal())
        return
    document = to_json(report)
    if cleaned is not None:
        files = [str(file) for file in cleaned.files]
        document["cleaned"] = {"files": files, "kept": cleaned.kept, "removed": dict(cleaned.removed)}
    print_json(document, indent=2)
