"""Turns masks over millions of items into findings: a title, a count, and a few examples with their text.

The text is fetched by reading the corpus a second time, up to the last example.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seq2see.check.collect import CheckSettings, Collected, Item, is_repeated, read_items
from seq2see.check.columns import find_tag_columns
from seq2see.check.drift import describe_drift, find_drift, find_lost_line
from seq2see.check.problems import Problems
from seq2see.check.report import TITLES, Example, Finding, FindingKind
from seq2see.check.scripts import SCRIPTS
from seq2see.data.corpus import format_paths
from seq2see.data.lines import LENIENT, ReadCallbacks, ReadIssue, ignore_issue, read_lines
from seq2see.data.readers import LineCountMismatch, ParallelFilesReader
from seq2see.errors import UserError
from seq2see.formats.tabular import TsvReader

_READ_ISSUES: tuple[Literal["encoding", "malformed", "missing"], ...] = ("encoding", "malformed", "missing")
_EXAMPLE_CHARACTERS = 300  # of a document shown as an example

# Where the title of a finding about pairs does not fit.
_OTHER_TITLES: Mapping[tuple[str, FindingKind], str] = {
    ("documents", "duplicate"): "duplicate documents",
    ("documents", "valid"): "validation documents in the training text",
    ("documents", "test"): "test documents in the training text",
    ("media", "valid"): "validation files in the training data",
}


# A finding whose examples are still row numbers, each with its note.
_RawFinding = tuple[Finding, Mapping[int, str]]


@dataclass(frozen=True)
class FindingsBuilder:
    """Builds one finding for everything that was checked, also for what was not found."""

    train: Collected
    problems: Problems
    held_out: Mapping[FindingKind, Collected]
    settings: CheckSettings

    def build(self, size: int) -> tuple[Finding, ...]:
        raw = list(self._masked())
        if self.train.kind == "pairs":
            raw = [self._misaligned(), *raw, self._multiple_translations()]
        raw += self._overlaps()
        rows = sorted({row for _, notes in raw for row in notes})
        items = dict(zip(rows, self._read_items(rows, size), strict=True))
        findings = (
            replace(each, examples=tuple(self._example(row, items[row], note) for row, note in notes.items()))
            for each, notes in raw
        )
        return *self._read_issues(), *findings

    def _title(self, kind: FindingKind) -> str:
        return _OTHER_TITLES.get((self.train.kind, kind), TITLES[kind])

    def _read_items(self, rows: list[int], size: int) -> Iterator[Item]:
        """Yields the items of these rows; of a long document, its beginning."""
        if not rows:
            return
        callbacks = ReadCallbacks(ignore_issue, self.settings.progress("reading examples", size))
        remaining, row, begins = iter(rows), 0, True
        wanted = next(remaining)
        for item in (item for reader in self.train.readers for item in read_items(reader, callbacks)):
            if begins and row == wanted:
                yield item
                if (wanted := next(remaining, -1)) < 0:
                    return
            row, begins = row + item.ends, item.ends
        changed = [file for reader in self.train.readers for file in reader.files]
        raise UserError(f"{format_paths(changed)} changed during the check: try again")

    def _example(self, row: int, item: Item, note: str) -> Example:
        file: object = self.train.reader(row).files[0]
        if self.train.kind == "documents":
            return Example(str(file), item.line, item.texts[0][:_EXAMPLE_CHARACTERS], note=note)
        if self.train.kind == "media" and len(self.train.reader(row).files) > 1:
            file = item.texts[0]  # of a directory, which has a text for each file
        return Example(str(file), item.line, item.texts[0], item.texts[1], note)

    def _read_issues(self) -> Iterator[Finding]:
        train, issues, readers = self.train, self.train.issues, self.train.readers
        parallel = sum(isinstance(reader, ParallelFilesReader) for reader in readers)
        if parallel:
            mismatches = issues.mismatches
            title = mismatches[0].reason if len(mismatches) == 1 else TITLES["line-count"]
            examples = tuple(map(_mismatch_example, mismatches[: self.settings.examples]))
            yield Finding("line-count", title, len(mismatches), parallel, examples)
        total = train.sides[0].totals.sentences if train.kind == "documents" else len(train.rows)
        total += sum(issues.counts[kind] for kind in _READ_ISSUES)
        plain_lines = train.kind == "documents" or parallel == len(readers)
        expected = {"encoding": True, "malformed": not plain_lines, "missing": train.kind == "media"}
        for kind in _READ_ISSUES:
            if expected[kind] or issues.counts[kind]:  # a plain line is malformed only if it is too long
                examples = tuple(map(_issue_example, issues.first.get(kind, ())))
                yield Finding(kind, TITLES[kind], issues.counts[kind], total, examples)
        if tables := [reader for reader in readers if isinstance(reader, TsvReader)]:
            yield find_tag_columns(tables)

    def _masked(self) -> Iterator[_RawFinding]:
        for kind, mask in self.problems.masks.items():
            if kind not in self.held_out:
                rows = np.flatnonzero(mask)
                examples = {row: self._note(kind, row) for row in self._chosen(rows)}
                title = self._too_long() if kind == "too-long" else self._title(kind)
                yield Finding(kind, title, len(rows), len(mask)), examples

    def _too_long(self) -> str:
        settings = self.settings
        if settings.reader is not None:
            return (
                f"too long for {settings.model} (at most {settings.reader.config.actual_max_source_positions:,} tokens)"
            )
        return f"longer than {settings.max_length:,} {'words' if settings.tokenizer is None else 'tokens'}"

    def _chosen(self, rows: NDArray[np.int64]) -> list[int]:
        """Returns the first few rows, those that differ from each other before their repetitions."""
        candidates = rows[: 1000 * self.settings.examples]
        repeated = is_repeated(self.train.rows["item_hash"][candidates])
        chosen = np.append(candidates[~repeated], candidates[repeated])[: self.settings.examples]
        return sorted(map(int, chosen))

    def _note(self, kind: FindingKind, row: int) -> str:
        rows, train = self.train.rows, self.train
        if kind == "script":
            sides = zip(("source", "target"), train.sides, strict=True)
            scripts = [(name, rows[f"{name}_script"][row], side.script) for name, side in sides]
            return ", ".join(
                f"{name} in {SCRIPTS[own]}" for name, own, usual in scripts if usual and own not in (0, usual)
            )
        if kind == "one-sided":
            side = "text" if train.kind == "media" else "target"
            return f"{side if rows['source_length'][row] else 'source'} empty"
        if kind == "length-ratio":
            ratio = float(self.problems.ratios[row])
            return f"target {np.exp(abs(ratio)):.1f} times {'longer' if ratio > 0 else 'shorter'} than expected"
        if kind == "duplicate":
            equal = np.flatnonzero(rows["item_hash"] == rows["item_hash"][row])
            times = f", {len(equal):,} times in all" if len(equal) > 2 and train.kind == "pairs" else ""
            return f"same as {train.location(int(equal[0]), train.reader(row).files[0])}{times}"
        return self.problems.notes.get(row, "")

    def _multiple_translations(self) -> _RawFinding:
        """Finds sources with different targets: good to know, but often correct."""
        rows, limit = self.train.rows, self.settings.examples
        distinct = np.flatnonzero(~is_repeated(rows["item_hash"]) & self.problems.usable)
        sources = rows["source_hash"][distinct]
        values, counts = np.unique(sources, return_counts=True)
        repeated = values[counts > 1]
        affected = distinct[np.isin(sources, repeated)]
        examples: dict[int, str] = {}
        for row in affected[:limit]:  # each followed by the next row with the same source
            same = affected[rows["source_hash"][affected] == rows["source_hash"][row]]
            if len(examples) + 2 <= max(2, limit) and int(row) not in examples:
                examples |= {int(same[0]): "", int(same[1]): ""}
        return Finding("multiple-translations", TITLES["multiple-translations"], len(repeated), len(values)), examples

    def _overlaps(self) -> Iterator[_RawFinding]:
        """Finds validation and test items in the training set; of pictures and sounds, counts those of the training set."""
        train, usable = self.train.rows, self.problems.usable
        for kind, held in self.held_out.items():
            rows = np.flatnonzero(self.problems.masks[kind])
            examples = {row: self._held_out_note(row, held) for row in self._chosen(rows)}
            leaked = np.isin(held.rows["source_hash"], train["source_hash"][usable])
            count, total, title = int(leaked.sum()), len(leaked), self._title(kind)
            if held.kind == "media":
                count, total = len(rows), len(train)
            elif held.kind == "pairs":
                identical = int((np.isin(held.rows["item_hash"], train["item_hash"]) & leaked).sum())
                title += f", {identical:,} with the same translation" if identical else ""
            yield Finding(kind, title, count, total), examples

    def _held_out_note(self, row: int, held: Collected) -> str:
        first = int(np.argmax(held.rows["source_hash"] == self.train.rows["source_hash"][row]))
        return ("same as " if held.kind == "media" else "") + held.location(first)

    def _misaligned(self) -> _RawFinding:
        """Finds misaligned files of equal length: one lost a line here, the other a line elsewhere."""
        mismatched = {issue.reader for issue in self.train.issues.mismatches}
        examples: dict[int, str] = {}
        for reader, start, end in zip(self.train.readers, self.train.starts, self.train.starts[1:], strict=False):
            rows = self.train.rows[start:end]
            if reader not in mismatched and (drift := find_drift(rows["source_length"], rows["target_length"])):
                note = describe_drift(drift.shift, reader.files[0].name, reader.files[-1].name)
                examples[start + drift.line - 1] = note
        shown = dict(islice(examples.items(), self.settings.examples))
        return Finding("misaligned", TITLES["misaligned"], len(examples), len(self.train.readers)), shown


def _issue_example(issue: ReadIssue) -> Example:
    return Example(str(issue.path), issue.line, note=issue.reason.partition(":")[0])


def _mismatch_example(issue: LineCountMismatch) -> Example:
    """Locates where two files of different length become misaligned, with the lines there."""
    source, target = issue.reader.source, issue.reader.target
    drift = find_lost_line(*(read_lines(path, LENIENT) for path in (source, target)))
    if drift is None:
        note = "no misalignment found before this line: the end of one file may be missing"
        return Example(str(source), issue.line, note=note)
    left, right = (next(islice(read_lines(path, LENIENT), drift.line - 1, None), None) for path in (source, target))
    note = describe_drift(drift.shift, source.name, target.name)
    return Example(str(source), drift.line, left or "", right or "", note)
