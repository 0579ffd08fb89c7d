"""A cleaned copy of a corpus: what the check objects to is left out, the rest is written as it is.

Pairs become two files of plain text, whatever they came from; a line break inside a sentence becomes a space, for there
a line is a sentence. Files appear under their names only when all of them are complete, and none is ever overwritten.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.text.check.documents import TEXT_REASONS, CheckedText
from seq2see.text.check.pairs import REASONS, Checked
from seq2see.text.check.report import Kind
from seq2see.text.check.statistics import Faults, Watch, unwatched
from seq2see.text.corpus import Documents, Pairs, Passage, named
from seq2see.text.formats.lines import Listener
from seq2see.text.formats.tabular import Row, bare

_BREAKS = re.compile(r"[\r\n]+")


@dataclass(frozen=True)
class Cleaned:
    """What was written, how much of the corpus that is, and how much went for which reason."""

    files: tuple[Path, ...]
    kept: int
    gone: Mapping[Kind, int]


def write_clean_pairs(pairs: Pairs, checked: Checked, out: Path, watch: Watch = unwatched) -> Cleaned:
    """Writes the good pairs of each part to two files in `out`, named like the input."""
    if checked.faults.unequal:
        reason = checked.faults.unequal[0].reason
        raise UserError(f"{reason}: nothing is written, for a copy would pair the wrong lines; put that right first")
    kept = [reasons == 0 for reasons in _by_part(checked.reasons, checked.starts)]
    names = [part.names if keep.any() else () for part, keep in zip(pairs.parts, kept, strict=True)]
    files = _free(out, [name for both in names for name in both], pairs.files)
    listener = Listener(lambda fault: None, watch("writing", pairs.size))
    with _writing(out) as stack:
        for part, keep, both in zip(pairs.parts, kept, names, strict=True):
            if both:
                source, target = (stack.enter_context(written_whole(out / name)) for name in both)
                if _write_pairs(compress(part.read(listener), keep), source, target) != keep.sum():
                    raise UserError(f"{named(part.files)} changed while it was checked: nothing is written; try again")
    return Cleaned(files, checked.report.left, _gone(checked.reasons, REASONS, checked.faults))


def _write_pairs(rows: Iterator[Row], source: Path, target: Path) -> int:
    with (
        source.open("w", encoding="utf-8", newline="\n") as ours,
        target.open("w", encoding="utf-8", newline="\n") as theirs,
    ):
        count = 0
        for row in rows:
            count += 1
            ours.write(_BREAKS.sub(" ", row.source) + "\n")
            theirs.write(_BREAKS.sub(" ", row.target) + "\n")
    return count


def write_clean_text(documents: Documents, checked: CheckedText, out: Path, watch: Watch = unwatched) -> Cleaned:
    """Writes the good documents to files in `out`, named like the input, without the lines that are not UTF-8."""
    kept = [reasons == 0 for reasons in _by_part(checked.reasons, checked.starts)]
    names = [bare(file) if keep.any() else "" for file, keep in zip(documents.files, kept, strict=True)]
    files = _free(out, [name for name in names if name], documents.files)
    listener = Listener(lambda fault: None, watch("writing", documents.size))
    end = "\n\n" if documents.boundaries == "blank-line" else "\n"
    with _writing(out) as stack:
        for file, keep, name in zip(documents.files, kept, names, strict=True):
            if name:
                path = stack.enter_context(written_whole(out / name))
                _write_passages(documents.read(file, listener), keep, path, end)
    return Cleaned(files, checked.report.left, _gone(checked.reasons, TEXT_REASONS, checked.faults))


def _write_passages(passages: Iterator[Passage], keep: NDArray[np.bool_], path: Path, end: str) -> None:
    number = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for passage in passages:
            if keep[number]:
                file.write(passage.text + end * passage.ends)
            number += passage.ends


def _by_part(reasons: NDArray[np.uint8], starts: Sequence[int]) -> list[NDArray[np.uint8]]:
    return np.split(reasons, starts[1:-1])


def _free(out: Path, names: Sequence[str], inputs: Sequence[Path]) -> tuple[Path, ...]:
    """The paths to write, once it is sure that they are all different and none stands there already."""
    if not names:
        raise UserError(f"{named(inputs)}: nothing would be left, so nothing is written")
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"{count} files would be called {out / name}: clean them one at a time")
    for name in names:
        if (out / name).exists():
            raise UserError(f"{out / name} exists already: name another directory with --fix, or delete it")
    return tuple(out / name for name in names)


@contextmanager
def _writing(out: Path) -> Iterator[ExitStack]:
    """Files entered here appear all at the end; after a failure none does."""
    try:
        with ExitStack() as stack:
            yield stack
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; nothing is left there") from error


def _gone(reasons: NDArray[np.uint8], names: Sequence[Kind], faults: Faults) -> dict[Kind, int]:
    counts = np.bincount(reasons, minlength=len(names) + 1)[1:]
    gone: dict[Kind, int] = {kind: faults.counts[kind] for kind in ("encoding", "malformed")}
    gone |= dict(zip(names, map(int, counts), strict=True))
    return {kind: count for kind, count in gone.items() if count}
