"""Test sets read from files: source sentences, each with one or more reference translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2see.config import DataConfig
from seq2see.config.extensions import load_extension
from seq2see.data.corpus import format_paths, open_pairs
from seq2see.data.lines import parse_json, read_lines
from seq2see.data.readers import strip_compression_suffix
from seq2see.errors import UserError


@dataclass(frozen=True)
class TestSet:
    __test__ = False  # pytest collects classes named Test…

    name: str
    sources: tuple[str, ...]  # empty if only references are known
    references: tuple[tuple[str, ...], ...]  # one or more per sentence

    def __len__(self) -> int:
        return len(self.references)


def read_text_lines(path: Path) -> list[str]:
    return [line or "" for line in read_lines(path)]


def read_pairs(data: DataConfig) -> TestSet:
    """Reads sentence pairs, or lists of pictures or sounds with their texts, whose sources are the paths of the files."""
    pairs = list(open_pairs(data))
    name = format_paths(data.pairs or data.pictures or data.sounds)
    references = tuple((target,) for _, target in pairs)
    _require_text(name, references)
    return TestSet(name, tuple(source for source, _ in pairs), references)


def read_test_set(source: Path | None, references: Sequence[Path]) -> TestSet:
    """Reads sources from one file and references from one or more; a JSON Lines file can hold both."""
    contents = list(map(_read_references, references))
    sources, rows = contents[0]
    for path, (_, more) in zip(references[1:], contents[1:], strict=True):
        require_equal_length(references[0], [row[0] for row in rows], path, [row[0] for row in more])
        rows = [(*row, *others) for row, others in zip(rows, more, strict=True)]
    rows = [tuple(text for text in row if text.strip()) or ("",) for row in rows]  # drop blank alternatives
    _require_text(format_paths(references), rows)
    if source is not None:
        source_lines = read_text_lines(source)
        require_equal_length(source, source_lines, references[0], [row[0] for row in rows])
        for number, (line, other) in enumerate(zip(source_lines, sources, strict=False), 1):
            if line != other:
                raise UserError(f'{source}, line {number:,}: "{line}", but {references[0]} has "{other}"')
        sources = source_lines
    return TestSet(str(source or references[0]), tuple(sources), tuple(rows))


def require_equal_length(path: Path, left: Sequence[str], other: Path, right: Sequence[str]) -> None:
    """Raises a `UserError` if the files differ in length, naming the line where their alignment seems to break."""
    if len(left) == len(right):
        return
    shorter = path if len(left) < len(right) else other
    misalignment = load_extension("checks", "misalignment")(left, right)
    cause = misalignment or f"the end of {shorter} seems to be missing"
    raise UserError(f"{path} has {len(left):,} lines but {other} has {len(right):,}: {cause}")


def _read_references(path: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    if not strip_compression_suffix(path).endswith((".jsonl", ".ndjson")):
        return [], [(line,) for line in read_text_lines(path)]
    rows = [_parse_row(path, number, line) for number, line in enumerate(read_text_lines(path), 1) if line.strip()]
    if not rows:
        raise UserError(f"{path} has no rows")
    sources = [source for source, _ in rows if source is not None]
    if sources and len(sources) < len(rows):
        raise UserError(
            f'{path}: {len(sources):,} of {len(rows):,} rows have a "source": all rows must have one, or none'
        )
    return sources, [references for _, references in rows]


def _parse_row(path: Path, number: int, line: str) -> tuple[str | None, tuple[str, ...]]:
    try:
        row: Any = parse_json(line)
    except ValueError as error:
        raise UserError(f"{path}, line {number:,}: {error}") from error
    source, references = (row.get("source"), row.get("references")) if isinstance(row, dict) else (None, None)
    if not (references and isinstance(references, list) and all(isinstance(text, str) for text in references)):
        raise UserError(
            f'{path}, line {number:,}: expected {{"source": "…", "references": ["…", "…"]}}; for pairs in other fields, use '
            "--pairs with --fields"
        )
    return source, tuple(references)


def _require_text(name: str, references: Sequence[Sequence[str]]) -> None:
    blank = [number for number, row in enumerate(references, 1) if not any(text.strip() for text in row)]
    if blank:
        raise UserError(
            f"{name}: {len(blank):,} of {len(references):,} references are blank, the first in line {blank[0]:,}; "
            "remove these lines from all files"
        )
