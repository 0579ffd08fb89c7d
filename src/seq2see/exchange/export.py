"""Exports a model to another library's format, checks it in that library's runtime, and writes down what was done.

An export is a new directory: it appears complete and checked, or not at all. The model card, the licence, the scores and
whatever names the data's authors go with it.
"""

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from seq2see.config import ExportFormat, ExportPrecision
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UsageError, UserError
from seq2see.exchange.check import Check, Samples
from seq2see.exchange.tokenizer_writer import write_tokenizers
from seq2see.storage.foreign_model import OUR_CONFIG, find_reader
from seq2see.storage.pipeline import Pipeline
from seq2see.tensors.files import check_new_directory, new_directory

PRECISIONS: dict[ExportFormat, tuple[ExportPrecision, ...]] = {
    "huggingface": ("float32", "bf16", "float16"), "ctranslate2": ("float32", "bf16", "float16", "int8"),
    "onnx": ("float32", "int8"), "gguf": ("float32", "bf16", "float16", "int8"),
}  # fmt: skip
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "float16": torch.float16}
RUNTIMES: dict[ExportFormat, str] = {
    "huggingface": "transformers",
    "ctranslate2": "ctranslate2",
    "onnx": "onnxruntime",
    "gguf": "llama_cpp",
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
    with new_directory(out) as folder:
        steps = _write(pipeline, source, folder, format, precision)
        check = _check(pipeline, folder, format)
        if check is not None and precision == "float32":
            check.require_close()
        _copy_documents(source, folder)
        _write_card(source, folder, out.name, format, precision, pipeline, steps, check)
        files = {str(f.relative_to(folder)): f.stat().st_size for f in sorted(folder.rglob("*")) if f.is_file()}
    return Exported(out, steps, files, check)


def check_target(out: Path, format: ExportFormat, precision: ExportPrecision) -> None:
    """Raises a UserError if nothing can be exported like this; called before the model is loaded."""
    if precision not in PRECISIONS[format]:
        known = ", ".join(PRECISIONS[format])
        raise UsageError(f"{format} models are not written in {precision}; use one of: {known}")
    check_new_directory(out)


def not_checked(format: ExportFormat) -> str:
    package = {"llama_cpp": "llama-cpp-python"}.get(RUNTIMES[format], RUNTIMES[format])
    return f"not checked: {package} is not installed"


def _write(
    pipeline: Pipeline, source: Path, folder: Path, format: ExportFormat, precision: ExportPrecision
) -> list[str]:
    from seq2see.exchange import to_ctranslate2, to_gguf, to_huggingface, to_onnx

    if format == "huggingface":
        original = _original(pipeline, source)
        return to_huggingface.write_huggingface(pipeline, folder, DTYPES[precision], original)
    if format == "gguf":  # the tokenizer is in the file
        return to_gguf.write_gguf(pipeline, folder, precision)
    write = to_onnx.write_onnx if format == "onnx" else to_ctranslate2.write_ctranslate2
    steps = write(pipeline, folder, precision)
    write_tokenizers(folder, pipeline.tokenizers, pipeline.config.model, pipeline.chat_template)
    return steps


def _check(pipeline: Pipeline, folder: Path, format: ExportFormat) -> Check | None:
    from seq2see.exchange import to_ctranslate2, to_gguf, to_huggingface, to_onnx

    if find_spec(RUNTIMES[format]) is None:
        return None
    checks = {
        "huggingface": to_huggingface.check_huggingface, "ctranslate2": to_ctranslate2.check_ctranslate2,
        "onnx": to_onnx.check_onnx, "gguf": to_gguf.check_gguf,
    }  # fmt: skip
    return checks[format](Samples(pipeline), folder)


def _original(pipeline: Pipeline, source: Path) -> Path | None:
    """Returns the Hugging Face directory that a model is, or was trained from, if its tokenizers are still the model's."""
    for path in (source, Path(pipeline.config.train.init) if pipeline.config.train.init else None):
        if path is None or not path.is_dir() or not (reader := find_reader(path)):
            continue
        try:
            theirs = reader.open(path).tokenizers
        except UserError:
            continue
        if all(map(_same_tokens, theirs, pipeline.tokenizers)):
            return path
    return None


def _same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    # Not their fingerprints: the library changes the last digit of a score when it reads its own file.
    if len(one) != len(other) or one.framing != other.framing:
        return False
    return all(one.token_text(id) == other.token_text(id) for id in range(len(one)))


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


def _write_card(
    source: Path, folder: Path, name: str, format: ExportFormat, precision: str, pipeline: Pipeline, steps: list[str],
    check: Check | None,
) -> None:  # fmt: skip
    """Writes the model's card with a section about the export."""
    card = source / CARD if source.is_dir() else None
    text = card.read_text(encoding="utf-8", errors="replace") if card is not None and card.is_file() else f"# {name}\n"
    lines = [
        "",
        "## Export",
        "",
        f"Exported by seq2see to {format}, {precision}: {'; '.join(steps)}. Checked in {check}."
        if check is not None
        else f"Exported by seq2see to {format}, {precision}: {'; '.join(steps)}. It was {not_checked(format)}.",
        "",
        "```python",
        _usage(format, pipeline).replace("PATH", f'"{name}"'),
        "```",
    ]
    text = text.replace("All settings are in config.toml.", "All settings are in training.toml.")
    (folder / CARD).write_text(text.rstrip("\n") + "\n" + "\n".join(lines) + "\n", encoding="utf-8")


def _usage(format: ExportFormat, pipeline: Pipeline) -> str:
    from seq2see.exchange import to_ctranslate2, to_gguf, to_huggingface, to_onnx

    usages = {
        "huggingface": to_huggingface.USAGE, "ctranslate2": to_ctranslate2.USAGE, "onnx": to_onnx.USAGE, "gguf": to_gguf.USAGE,
    }  # fmt: skip
    framing = pipeline.tokenizers[1].framing
    code = usages[format][pipeline.config.model.shape]
    return code.replace("START", str(framing.start)).replace("END", str(framing.end))
