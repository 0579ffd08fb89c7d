"""Turns masks over millions of pairs into findings: a title, a count, and a few example pairs with their text.

The text is fetched by reading the corpus a second time, up to the last example.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2see.check import statistics as stats
from seq2see.check.columns import find_tag_columns
from seq2see.check.drift import Signatures, first_drift
from seq2see.check.report import TITLES, Example, Finding, FindingKind
from seq2see.check.scripts import SCRIPTS
from seq2see.data.corpus import ParallelCorpus, format_paths
from seq2see.data.formats.lines import LENIENT, ReadCallbacks, ReadIssue, ignore_issue, read_lines
from seq2see.data.formats.tabular import LineCountMismatch, ParallelFilesReader, SentencePair, TsvReader
from seq2see.errors import ProgressFactory, UserError

_BLOCK_SIZE = 1 << 20  # pairs searched for a misalignment at a time


@dataclass(frozen=True)
class HeldOut:
    """A validation or test set, which the training set should not contain."""

    pairs: ParallelCorpus
    collected: stats.CorpusStats


@dataclass(frozen=True)
class PairProblems:
    """The pairs that have each kind of problem, the pairs with text on both sides, and their length ratios."""

    masks: Mapping[FindingKind, NDArray[np.bool_]]
    usable: NDArray[np.bool_]
    ratios: NDArray[np.float32]  # log, relative to the corpus median


@dataclass(frozen=True)
class _RawFinding:
    """A finding whose examples are still row numbers, each with its note."""

    kind: FindingKind
    count: int
    total: int
    examples: Mapping[int, str]
    title: str = ""


@dataclass(frozen=True)
class FindingsBuilder:
    """Builds one finding for everything that was checked, also for what was not found."""

    pairs: ParallelCorpus
    train: stats.CorpusStats
    problems: PairProblems
    held_out: Mapping[FindingKind, HeldOut]
    max_examples: int
    limit: str  # the maximum length with its unit

    def build(self, progress: ProgressFactory) -> tuple[Finding, ...]:
        raw = [self._misaligned(), *self._masked(), self._multiple_translations(), *self._overlaps()]
        rows = sorted({row for finding in raw for row in finding.examples})
        texts = dict(zip(rows, self._read_rows(rows, progress), strict=True))
        findings = (
            Finding(
                each.kind, each.title or TITLES[each.kind], each.count, each.total,
                tuple(self._example(row, texts[row], note) for row, note in each.examples.items()),
            )
            for each in raw
        )  # fmt: skip
        return *self._read_issues(), *findings

    def _read_rows(self, rows: list[int], progress: ProgressFactory) -> Iterator[SentencePair]:
        if not rows:
            return
        callbacks = ReadCallbacks(ignore_issue, progress("reading examples", self.pairs.size))
        pairs = chain.from_iterable(reader.read(callbacks) for reader in self.pairs.readers)
        next_row = 0
        for row in rows:
            pair = next(islice(pairs, row - next_row, None), None)
            if pair is None:
                raise UserError(f"{format_paths(self.pairs.files)} changed during the check: try again")
            yield pair
            next_row = row + 1

    def _example(self, row: int, pair: SentencePair, note: str) -> Example:
        return Example(str(self._file(row)), pair.line, pair.source, pair.target, note)

    def _reader_index(self, row: int) -> int:
        return int(np.searchsorted(self.train.starts, row, side="right")) - 1

    def _file(self, row: int) -> Path:
        return self.pairs.readers[self._reader_index(row)].files[0]

    def _location(self, row: int, relative_to: int) -> str:
        """Returns `line 17`, with the file name if it differs from that of another row."""
        line = f"line {self.train.rows['line'][row]:,}"
        same_file = self._reader_index(row) == self._reader_index(relative_to)
        return line if same_file else f"{line} of {self._file(row).name}"

    def _read_issues(self) -> Iterator[Finding]:
        issues = self.train.issues
        parallel = sum(isinstance(reader, ParallelFilesReader) for reader in self.pairs.readers)
        total = len(self.train) + issues.counts["encoding"] + issues.counts["malformed"]
        if parallel:
            mismatches = issues.mismatches
            title = mismatches[0].reason if len(mismatches) == 1 else TITLES["line-count"]
            examples = tuple(map(_mismatch_example, mismatches[: self.max_examples]))
            yield Finding("line-count", title, len(mismatches), parallel, examples)
        for kind in ("encoding", "malformed"):
            if kind == "malformed" and parallel == len(self.pairs.readers) and not issues.counts[kind]:
                continue  # a line of plain text is malformed only if it is too long
            examples = tuple(map(issue_example, issues.first.get(kind, ())))
            yield Finding(kind, TITLES[kind], issues.counts[kind], total, examples)
        if tables := [reader for reader in self.pairs.readers if isinstance(reader, TsvReader)]:
            yield find_tag_columns(tables)

    def _masked(self) -> Iterator[_RawFinding]:
        for kind, mask in self.problems.masks.items():
            if kind in self.held_out:
                continue
            rows = np.flatnonzero(mask)
            examples = {int(row): self._note(kind, int(row)) for row in self._first_distinct(rows)}
            title = f"longer than {self.limit}" if kind == "too-long" else ""
            yield _RawFinding(kind, len(rows), len(self.train), examples, title)

    def _first_distinct(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the first few rows that differ from each other."""
        candidates = rows[: 1000 * self.max_examples]
        distinct = candidates[np.unique(self.train.rows["pair_hash"][candidates], return_index=True)[1]]
        return np.sort(distinct)[: self.max_examples]

    def _note(self, kind: FindingKind, row: int) -> str:
        if kind == "script":
            return self._script_note(row)
        if kind == "one-sided":
            return f"{'target' if self.train.rows['source_length'][row] else 'source'} empty"
        if kind == "length-ratio":
            ratio = float(self.problems.ratios[row])
            return f"target {np.exp(abs(ratio)):.1f} times {'longer' if ratio > 0 else 'shorter'} than expected"
        if kind == "duplicate":
            equal = np.flatnonzero(self.train.rows["pair_hash"] == self.train.rows["pair_hash"][row])
            times = "" if len(equal) == 2 else f", {len(equal):,} times in all"
            return f"same as {self._location(int(equal[0]), row)}{times}"
        return ""

    def _script_note(self, row: int) -> str:
        rows, train = self.train.rows, self.train
        sides = (
            ("source", rows["source_script"][row], train.source),
            ("target", rows["target_script"][row], train.target),
        )
        wrong = [f"{name} in {SCRIPTS[script]}" for name, script, counts in sides if counts.script not in (0, script)]
        return ", ".join(wrong)

    def _multiple_translations(self) -> _RawFinding:
        """Finds sources with different targets: good to know, but often correct."""
        rows = self.train.rows
        distinct = np.flatnonzero(~stats.is_repeated(rows["pair_hash"]) & self.problems.usable)
        sources = rows["source_hash"][distinct]
        values, counts = np.unique(sources, return_counts=True)
        repeated = values[counts > 1]
        affected = distinct[np.isin(sources, repeated)]
        examples: dict[int, str] = {}
        for row in affected[: self.max_examples]:  # each followed by the next row with the same source
            same = affected[rows["source_hash"][affected] == rows["source_hash"][row]]
            if len(examples) + 2 <= max(2, self.max_examples) and int(row) not in examples:
                examples |= {int(same[0]): "", int(same[1]): ""}
        return _RawFinding("multiple-translations", len(repeated), len(values), examples)

    def _overlaps(self) -> Iterator[_RawFinding]:
        """Finds validation and test sentences in the training set."""
        for kind, held in self.held_out.items():
            held_rows, train_rows = held.collected.rows, self.train.rows
            leaked = np.isin(held_rows["source_hash"], train_rows["source_hash"][self.problems.usable])
            identical = np.isin(held_rows["pair_hash"], train_rows["pair_hash"]) & leaked
            rows = np.flatnonzero(self.problems.masks[kind])
            examples = {int(row): self._held_out_note(int(row), held) for row in self._first_distinct(rows)}
            suffix = f", {int(identical.sum()):,} with the same translation" if identical.any() else ""
            yield _RawFinding(kind, int(leaked.sum()), len(held_rows), examples, TITLES[kind] + suffix)

    def _held_out_note(self, row: int, held: HeldOut) -> str:
        held_rows = held.collected.rows
        first = int(np.argmax(held_rows["source_hash"] == self.train.rows["source_hash"][row]))
        reader = int(np.searchsorted(held.collected.starts, first, side="right")) - 1
        return f"line {held_rows['line'][first]:,} of {held.pairs.readers[reader].files[0].name}"

    def _misaligned(self) -> _RawFinding:
        """Finds misaligned files of equal length: one lost a line here, the other a line elsewhere."""
        mismatched = {issue.reader for issue in self.train.issues.mismatches}
        examples: dict[int, str] = {}
        count = 0
        for index, reader in enumerate(self.pairs.readers):
            if reader in mismatched:
                continue
            drift = _find_drift(self.train.rows[self.train.starts[index] : self.train.starts[index + 1]])
            if drift is not None:
                row, shift = drift
                count += 1
                note = _drift_note(shift, reader.files[0].name, reader.files[-1].name)
                examples[self.train.starts[index] + row] = note
        shown = dict(islice(examples.items(), self.max_examples))
        return _RawFinding("misaligned", count, len(self.pairs.readers), shown)


def _find_drift(rows: stats.RowArray) -> tuple[int, int] | None:
    for start in range(0, len(rows), _BLOCK_SIZE):
        block = rows[start : start + _BLOCK_SIZE]
        drift = first_drift(_length_signatures(block["source_length"]), _length_signatures(block["target_length"]))
        if drift is not None:
            return start + drift.line - 1, drift.shift
    return None


def _length_signatures(lengths: NDArray[np.uint16]) -> Signatures:
    return Signatures(np.log(lengths.astype(np.float32) + 10), np.zeros(len(lengths), np.uint8))


def issue_example(issue: ReadIssue) -> Example:
    return Example(str(issue.path), issue.line, note=issue.reason.partition(":")[0])


def _mismatch_example(issue: LineCountMismatch) -> Example:
    """Locates where two files of different length become misaligned, with the lines there."""
    source, target = issue.reader.source, issue.reader.target
    drift = first_drift(
        Signatures.from_lines(read_lines(source, LENIENT)), Signatures.from_lines(read_lines(target, LENIENT))
    )
    if drift is None:
        note = "no misalignment found before this line: the end of one file may be missing"
        return Example(str(source), issue.line, note=note)
    source_line, target_line = (
        next(islice(read_lines(path, LENIENT), drift.line - 1, None), None) or "" for path in (source, target)
    )
    note = _drift_note(drift.shift, source.name, target.name)
    return Example(str(source), drift.line, source_line, target_line, note)


def _drift_note(shift: int, source: str, target: str) -> str:
    longer, shorter = (target, source) if shift > 0 else (source, target)
    count = "1 extra line" if abs(shift) == 1 else f"{abs(shift):,} extra lines"
    return f"near here {longer} has {count}, or {shorter} is missing {'one' if abs(shift) == 1 else f'{abs(shift):,}'}"
