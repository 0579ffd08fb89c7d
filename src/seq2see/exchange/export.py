"""Exports a model to another library's format, checks it in that library's runtime, and writes down what was done.

An export is a new directory: it appears complete and checked, or not at all. The model card, the licence, the scores and
whatever names the data's authors go with it.
"""

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from seq2see.config import ExportFormat, ExportPrecision
from seq2see.errors import UsageError, UserError
from seq2see.exchange import to_ctranslate2, to_gguf, to_huggingface, to_onnx
from seq2see.exchange.check import Check, Exporter, Samples
from seq2see.exchange.tokenizer_writer import write_tokenizers
from seq2see.storage.foreign_model import OUR_CONFIG
from seq2see.storage.pipeline import Pipeline
from seq2see.tensors.files import check_new_directory, new_directory

EXPORTERS: dict[ExportFormat, Exporter] = {
    "huggingface": to_huggingface.EXPORTER,
    "ctranslate2": to_ctranslate2.EXPORTER,
    "onnx": to_onnx.EXPORTER,
    "gguf": to_gguf.EXPORTER,
}
_TRAVELS = ("scores.json", "LICENSE*", "LICENCE*", "NOTICE*", "COPYING*", "ATTRIBUTION*", "CITATION*")
CARD = "README.md"


@dataclass(frozen=True)
class Exported:
    """What an export wrote, and how it compares with our own model."""

    path: Path
    steps: list[str]
    files: dict[str, int]  # bytes
    check: Check | None

    @property
    def size(self) -> int:
        return sum(self.files.values())


def export_model(
    pipeline: Pipeline, source: Path, out: Path, format: ExportFormat, precision: ExportPrecision = "float32"
) -> Exported:
    """Writes a model, which was loaded from `source`, to a new directory in another format."""
    check_target(out, format, precision)
    if pipeline.config.model.source != "tokens":
        raise UserError(f"a model of {pipeline.config.model.source} cannot be exported: only models of text can")
    exporter = EXPORTERS[format]
    with new_directory(out) as folder:
        steps = exporter.write(pipeline, folder, precision, source)
        if not exporter.has_tokenizers:
            write_tokenizers(folder, pipeline)
        check = exporter.check(Samples(pipeline), folder) if find_spec(exporter.runtime) else None
        if check is not None and precision == "float32":
            check.require_close()
        _copy_documents(source, folder)
        result = f"It was {exporter.not_checked}." if check is None else f"Checked in {check}."
        account = f"Exported by seq2see to {format}, {precision}: {'; '.join(steps)}. {result}"
        _write_card(source, folder, f"# {out.name}\n", account, _usage(exporter, pipeline, out.name))
        files = {str(f.relative_to(folder)): f.stat().st_size for f in sorted(folder.rglob("*")) if f.is_file()}
    return Exported(out, steps, files, check)


def check_target(out: Path, format: ExportFormat, precision: ExportPrecision) -> None:
    """Raises a UserError if nothing can be exported like this; called before the model is loaded."""
    known = EXPORTERS[format].precisions
    if precision not in known:
        raise UsageError(f"{format} models are not written in {precision}; use one of: {', '.join(known)}")
    check_new_directory(out)


def _copy_documents(source: Path, folder: Path) -> None:
    """Copies what must travel with a model: licence, scores, attribution, and the settings of its training."""
    if not source.is_dir():
        return
    for pattern in _TRAVELS:
        for file in sorted(source.glob(pattern)):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
    if (source / OUR_CONFIG).is_file():  # under another name: a directory with config.toml is a model of ours
        shutil.copyfile(source / OUR_CONFIG, folder / "training.toml")


def _write_card(source: Path, folder: Path, title: str, account: str, usage: str) -> None:
    """Writes the model's card with a section about the export."""
    card = source / CARD if source.is_dir() else None
    text = card.read_text(encoding="utf-8", errors="replace") if card is not None and card.is_file() else title
    text = text.replace("All settings are in config.toml.", "All settings are in training.toml.").rstrip("\n")
    (folder / CARD).write_text(f"{text}\n\n## Export\n\n{account}\n\n```python\n{usage}\n```\n", encoding="utf-8")


def _usage(exporter: Exporter, pipeline: Pipeline, name: str) -> str:
    framing = pipeline.tokenizers[1].framing
    code = exporter.usage[pipeline.config.model.shape].replace("PATH", f'"{name}"')
    return code.replace("START", str(framing.start)).replace("END", str(framing.end))
