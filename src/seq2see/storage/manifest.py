"""files.json: the size and SHA-256 of every file that makes up a model, so that a damaged or foreign file is noticed.

Training and `Model.save` write it last. Loading compares the sizes and hashes of the files that it reads, except the hashes of
large weights; `verify_files` compares everything. A directory without files.json loads unchecked.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from seq2see.errors import UserError
from seq2see.tensors.files import require_regular_file, write_text

MANIFEST = "files.json"
MAX_HASHED = 100_000_000  # bytes of weights that loading hashes: 50 ms at 2 GB/s
_SINCE_NOVEMBER_2026 = ("chat.toml", "chat_template.json", "scores.json")  # not listed in an older manifest
_TEXTS = ("config.toml", "tokenizer.json", "source.json", "words.txt", "words.txt.gz", *_SINCE_NOVEMBER_2026)
_MODEL_FILES = (*_TEXTS, "model.safetensors", "snapshots/step-*.safetensors")
_REMEDY = f"copy the model directory again, or delete {MANIFEST} if you changed the file yourself"


@dataclass(frozen=True)
class FileRecord:
    size: int  # bytes
    sha256: str


def write_manifest(folder: Path) -> None:
    """Records the files of a complete model directory."""
    records = {name: asdict(_record(folder / name)) for name in _model_files(folder)}
    write_text(folder / MANIFEST, json.dumps(records, indent=1) + "\n")


def remove_manifest(folder: Path) -> None:
    """Must precede any change to a model's files, so that an interrupted change is not taken for damage."""
    (folder / MANIFEST).unlink(missing_ok=True)


def check_files(folder: Path, names: Iterable[str]) -> None:
    """Raises a UserError unless these files are regular files and, if there is a manifest, the recorded ones."""
    for name in names:
        if problem := file_problem(folder, name):
            raise UserError(problem)


def file_problem(folder: Path, name: str) -> str:
    """Describes what is wrong with a file that is loaded; an empty string if nothing is."""
    return _problem(folder / name, name, read_manifest(folder), MAX_HASHED)


def verify_files(folder: Path) -> int:
    """Compares all files with the manifest, byte for byte; returns their number."""
    records = read_manifest(folder)
    if records is None:
        raise UserError(f"{folder} has no {MANIFEST}, so its files cannot be verified")
    names = sorted({*records, *_model_files(folder)})
    problems = [p for name in names if (p := _problem(folder / name, name, records))]
    if problems:
        others = f" ({len(problems) - 1} other files differ, too)" if len(problems) > 1 else ""
        raise UserError(problems[0] + others)
    return len(names)


def read_manifest(folder: Path) -> dict[str, FileRecord] | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return {name: FileRecord(int(row["size"]), str(row["sha256"])) for name, row in table.items()}
    except (OSError, ArithmeticError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {_REMEDY}") from error


def _problem(path: Path, name: str, records: dict[str, FileRecord] | None, max_hashed: float = math.inf) -> str:
    """Describes how a file differs from its record; an empty string if it does not, or only in a content too large to hash."""
    record = records.get(name) if records is not None else None
    if not path.exists():
        return f"{path} is missing: {_REMEDY}" if record else ""
    size = require_regular_file(path).stat().st_size
    if records is None:
        return ""
    if record is None:
        if name in _SINCE_NOVEMBER_2026:
            return ""
        return f"{path} does not belong to this model: {MANIFEST} does not list it; delete it, or {MANIFEST}"
    if size != record.size:
        return f"{path} has {size:,} bytes, but {MANIFEST} says {record.size:,}: {_REMEDY}"
    if size <= max_hashed or path.suffix != ".safetensors":
        actual = _record(path).sha256
        if actual != record.sha256:
            expected = f"{MANIFEST} says {record.sha256[:12]}…"
            return f"{path} has been changed: its SHA-256 is {actual[:12]}…, but {expected}: {_REMEDY}"
    return ""


def _model_files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for pattern in _MODEL_FILES for path in sorted(folder.glob(pattern))]


def _record(path: Path) -> FileRecord:
    try:
        with path.open("rb") as file:
            return FileRecord(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
