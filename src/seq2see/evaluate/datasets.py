"""Test sets out of files: sentences, and for each one or several right translations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2see.errors import UserError
from seq2see.text.check.drift import Signatures, first_drift
from seq2see.text.corpus import PairOptions, named, open_pairs
from seq2see.text.formats.lines import lines
from seq2see.text.formats.tabular import bare


@dataclass(frozen=True)
class TestSet:
    __test__ = False  # for pytest, which takes every Test… for a test

    name: str
    sources: tuple[str, ...]  # none where only references are known
    references: tuple[tuple[str, ...], ...]  # for each sentence, its right translations

    def __len__(self) -> int:
        return len(self.references)


def read_lines(path: Path) -> list[str]:
    return [line or "" for line in lines(path)]


def read_pairs(options: PairOptions) -> TestSet:
    pairs = list(open_pairs(options))
    name = named(options.pairs)
    references = tuple((target,) for _, target in pairs)
    _require_text(name, references)
    return TestSet(name, tuple(source for source, _ in pairs), references)


def read_set(source: Path | None, references: Sequence[Path]) -> TestSet:
    """Sentences from a file, and references from one or several; JSON lines may hold sentences and references both."""
    of_files = list(map(_read_references, references))
    sources, rows = of_files[0]
    for path, (_, more) in zip(references[1:], of_files[1:], strict=True):
        require_in_step(references[0], [row[0] for row in rows], path, [row[0] for row in more])
        rows = [(*row, *others) for row, others in zip(rows, more, strict=True)]
    rows = [tuple(text for text in row if text.strip()) or ("",) for row in rows]  # a blank one of several is none
    _require_text(named(references), rows)
    if source is not None:
        given = read_lines(source)
        require_in_step(source, given, references[0], [row[0] for row in rows])
        for number, (line, other) in enumerate(zip(given, sources, strict=False), 1):
            if line != other:
                raise UserError(f'{source}, line {number:,}: "{line}" where {references[0]} has "{other}"')
        sources = given
    return TestSet(str(source or references[0]), tuple(sources), tuple(rows))


def require_in_step(path: Path, left: Sequence[str], other: Path, right: Sequence[str]) -> None:
    """Files of unequal length are refused, with the place where they seem to part."""
    if len(left) == len(right):
        return
    drift = first_drift(Signatures.of(left), Signatures.of(right))
    shorter = path if len(left) < len(right) else other
    where = (
        f"the end of {shorter} seems to be missing" if drift is None else f"they seem to part at line {drift.line:,}"
    )
    raise UserError(f"{path} has {len(left):,} lines but {other} {len(right):,}: {where}")


def _read_references(path: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    if not bare(path).endswith((".jsonl", ".ndjson")):
        return [], [(line,) for line in read_lines(path)]
    rows = [_row(path, number, line) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    if not rows:
        raise UserError(f"{path}: no row in it")
    sources = [source for source, _ in rows if source is not None]
    if sources and len(sources) < len(rows):
        raise UserError(f'{path}: {len(sources):,} of {len(rows):,} rows have a "source": all must, or none')
    return sources, [references for _, references in rows]


def _row(path: Path, number: int, line: str) -> tuple[str | None, tuple[str, ...]]:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {number:,}: not JSON: {error.msg} at column {error.colno}") from error
    source, references = (row.get("source"), row.get("references")) if isinstance(row, dict) else (None, None)
    if not (references and isinstance(references, list) and all(isinstance(text, str) for text in references)):
        raise UserError(
            f'{path}, line {number:,}: wanted is {{"source": "…", "references": ["…", "…"]}}; pairs in other fields go '
            "with --pairs and --fields"
        )
    return source, tuple(references)


def _require_text(name: str, references: Sequence[Sequence[str]]) -> None:
    blank = [number for number, row in enumerate(references, 1) if not any(text.strip() for text in row)]
    if blank:
        raise UserError(
            f"{name}: {len(blank):,} of {len(references):,} references are blank, the first in line {blank[0]:,}: nothing to "
            "compare a translation with; take these lines out of all files"
        )
