"""From masks over millions of pairs to what a person reads: a title, a count, and a few pairs with their text.

The text is fetched by reading the corpus a second time, as far as the last pair that is shown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2see.errors import UserError
from seq2see.text.check import statistics as m
from seq2see.text.check.drift import Signatures, first_drift
from seq2see.text.check.report import TITLES, Example, Finding, Kind
from seq2see.text.check.scripts import SCRIPTS
from seq2see.text.corpus import Pairs, named
from seq2see.text.formats.lines import Fault, Listener, lines
from seq2see.text.formats.tabular import Row, TwoFiles, Unequal

_BLOCK = 1 << 20  # pairs among which a shift is looked for at a time


@dataclass(frozen=True)
class HeldOut:
    """A validation or test set, which should not stand in the training set."""

    pairs: Pairs
    measured: m.Measured


@dataclass(frozen=True)
class Judged:
    """For each complaint the pairs it holds of; the pairs with text on both sides; and how far lengths are off."""

    masks: Mapping[Kind, NDArray[np.bool_]]
    usable: NDArray[np.bool_]
    ratios: NDArray[np.float32]  # log


@dataclass(frozen=True)
class _Noticed:
    """A finding whose examples are still numbers of rows, each with what is peculiar about it."""

    kind: Kind
    count: int
    among: int
    shown: Mapping[int, str]
    title: str = ""


@dataclass(frozen=True)
class Findings:
    """Makes the findings of a corpus, all that was looked for, found or not."""

    pairs: Pairs
    train: m.Measured
    judged: Judged
    held_out: Mapping[Kind, HeldOut]
    examples: int
    longest: str

    def all(self, watch: m.Watch) -> tuple[Finding, ...]:
        noticed = [self._shifted(), *self._masked(), self._several(), *self._overlaps()]
        wanted = sorted({row for each in noticed for row in each.shown})
        texts = dict(zip(wanted, self._texts(wanted, watch), strict=True))
        shown = (
            Finding(
                each.kind, each.title or TITLES[each.kind], each.count, each.among,
                tuple(self._example(row, texts[row], note) for row, note in each.shown.items()),
            )
            for each in noticed
        )  # fmt: skip
        return *self._faults(), *shown

    def _texts(self, wanted: list[int], watch: m.Watch) -> Iterator[Row]:
        if not wanted:
            return
        progress = watch("looking up examples", self.pairs.size)
        listener = Listener(lambda fault: None, progress)
        rows = chain.from_iterable(part.read(listener) for part in self.pairs.parts)
        passed = 0
        for row in wanted:
            found = next(islice(rows, row - passed, None), None)
            if found is None:
                raise UserError(f"{named(self.pairs.files)} changed while it was checked: try again")
            yield found
            passed = row + 1

    def _example(self, row: int, text: Row, note: str) -> Example:
        return Example(str(self._file(row)), text.line, text.source, text.target, note)

    def _part(self, row: int) -> int:
        return int(np.searchsorted(self.train.starts, row, side="right")) - 1

    def _file(self, row: int) -> Path:
        return self.pairs.parts[self._part(row)].files[0]

    def _place(self, row: int, beside: int) -> str:
        """`line 17`, with the file where it is another one than that of the row beside."""
        line = f"line {self.train.rows['line'][row]:,}"
        return line if self._part(row) == self._part(beside) else f"{line} of {self._file(row).name}"

    def _faults(self) -> Iterator[Finding]:
        faults = self.train.faults
        files = sum(isinstance(part, TwoFiles) for part in self.pairs.parts)
        total = len(self.train) + faults.counts["encoding"] + faults.counts["malformed"]
        if files:
            unequal = faults.unequal
            title = unequal[0].reason if len(unequal) == 1 else TITLES["unequal"]
            yield Finding("unequal", title, len(unequal), files, tuple(map(_parting, unequal[: self.examples])))
        for kind in ("encoding", "malformed"):
            if kind == "malformed" and files == len(self.pairs.parts):
                continue  # any line of plain text can be read
            examples = tuple(map(_fault_example, faults.first.get(kind, ())))
            yield Finding(kind, TITLES[kind], faults.counts[kind], total, examples)

    def _masked(self) -> Iterator[_Noticed]:
        for kind, mask in self.judged.masks.items():
            if kind in self.held_out:
                continue
            rows = np.flatnonzero(mask)
            shown = {int(row): self._note(kind, int(row)) for row in self._first(rows)}
            title = f"longer than {self.longest}" if kind == "long" else ""
            yield _Noticed(kind, len(rows), len(self.train), shown, title)

    def _first(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first few rows that differ from each other."""
        some = rows[: 1000 * self.examples]
        return np.sort(some[np.unique(self.train.rows["pair_hash"][some], return_index=True)[1]])[: self.examples]

    def _note(self, kind: Kind, row: int) -> str:
        if kind == "script":
            return self._script_note(row)
        if kind == "one-sided":
            return f"{'target' if self.train.rows['source_length'][row] else 'source'} empty"
        if kind == "ratio":
            ratio = float(self.judged.ratios[row])
            return f"target {np.exp(abs(ratio)):.1f} times too {'long' if ratio > 0 else 'short'}"
        if kind == "duplicate":
            equal = np.flatnonzero(self.train.rows["pair_hash"] == self.train.rows["pair_hash"][row])
            times = "" if len(equal) == 2 else f", {len(equal):,} times in all"
            return f"as {self._place(int(equal[0]), row)}{times}"
        return ""

    def _script_note(self, row: int) -> str:
        rows, train = self.train.rows, self.train
        sides = (
            ("source", rows["source_script"][row], train.source),
            ("target", rows["target_script"][row], train.target),
        )
        off = [f"{name} in {SCRIPTS[script]}" for name, script, tally in sides if tally.script not in (0, script)]
        return ", ".join(off)

    def _several(self) -> _Noticed:
        """Sources that stand there with different targets: worth knowing, but often right."""
        rows = self.train.rows
        distinct = np.flatnonzero(~m.again(rows["pair_hash"]) & self.judged.usable)
        sources = rows["source_hash"][distinct]
        values, counts = np.unique(sources, return_counts=True)
        repeated = values[counts > 1]
        several = distinct[np.isin(sources, repeated)]
        shown: dict[int, str] = {}
        for row in several[: self.examples]:  # each beside the next one with its source
            same = several[rows["source_hash"][several] == rows["source_hash"][row]]
            if len(shown) + 2 <= max(2, self.examples) and int(row) not in shown:
                shown |= {int(same[0]): "", int(same[1]): ""}
        return _Noticed("several", len(repeated), len(values), shown)

    def _overlaps(self) -> Iterator[_Noticed]:
        for kind, held in self.held_out.items():
            theirs, ours = held.measured.rows, self.train.rows
            stands = np.isin(theirs["source_hash"], ours["source_hash"][self.judged.usable])
            alike = np.isin(theirs["pair_hash"], ours["pair_hash"]) & stands
            rows = np.flatnonzero(self.judged.masks[kind])
            shown = {int(row): self._held_note(int(row), held) for row in self._first(rows)}
            also = f", {int(alike.sum()):,} with their translation" if alike.any() else ""
            yield _Noticed(kind, int(stands.sum()), len(theirs), shown, TITLES[kind] + also)

    def _held_note(self, row: int, held: HeldOut) -> str:
        theirs = held.measured.rows
        first = int(np.argmax(theirs["source_hash"] == self.train.rows["source_hash"][row]))
        part = int(np.searchsorted(held.measured.starts, first, side="right")) - 1
        return f"line {theirs['line'][first]:,} of {held.pairs.parts[part].files[0].name}"

    def _shifted(self) -> _Noticed:
        """Files of equal length can be out of step too: a line lost here, another one there."""
        unequal = {fault.files for fault in self.train.faults.unequal}
        shown: dict[int, str] = {}
        count = 0
        for index, part in enumerate(self.pairs.parts):
            if part in unequal:
                continue
            found = _shift_within(self.train.rows[self.train.starts[index] : self.train.starts[index + 1]])
            if found is not None:
                row, shift = found
                count += 1
                shown[self.train.starts[index] + row] = _explained(shift, part.files[0].name, part.files[-1].name)
        return _Noticed("shifted", count, len(self.pairs.parts), dict(islice(shown.items(), self.examples)))


def _shift_within(rows: m.Rows) -> tuple[int, int] | None:
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        drift = first_drift(_signatures(block["source_length"]), _signatures(block["target_length"]))
        if drift is not None:
            return start + drift.line - 1, drift.shift
    return None


def _signatures(lengths: NDArray[np.uint16]) -> Signatures:
    return Signatures(np.log(lengths.astype(np.float32) + 10), np.zeros(len(lengths), np.uint8))


def _fault_example(fault: Fault) -> Example:
    return Example(str(fault.path), fault.line, note=fault.reason.partition(":")[0])


def _parting(fault: Unequal) -> Example:
    """Where two files of unequal length fall out of step, with the lines that stand there."""
    quiet = Listener(lambda fault: None)
    source, target = fault.files.source, fault.files.target
    drift = first_drift(Signatures.of(lines(source, quiet)), Signatures.of(lines(target, quiet)))
    if drift is None:
        return Example(
            str(source), fault.line, note="nowhere before do their lengths drift apart: the end of one may be missing"
        )
    ours, theirs = (next(islice(lines(path, quiet), drift.line - 1, None), None) or "" for path in (source, target))
    return Example(str(source), drift.line, ours, theirs, _explained(drift.shift, source.name, target.name))


def _explained(shift: int, source: str, target: str) -> str:
    more = target if shift > 0 else source
    count = "a line" if abs(shift) == 1 else f"{abs(shift):,} lines"
    other = source if shift > 0 else target
    return f"near here {more} has {count} too many, or {other} too few"
