"""Writes a cleaned copy of a corpus: removes what the check found and copies the rest unchanged.

Pairs of any format become two files of plain text; a line break inside a sentence becomes a space, because a line is a
sentence there. Files appear under their final names only when all are complete, and no existing file is overwritten.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2see.check.collect import read_items
from seq2see.check.data import REMOVAL_REASONS, Checked
from seq2see.check.report import FindingKind
from seq2see.data.corpus import Corpus, format_paths
from seq2see.data.lines import ReadCallbacks, ignore_issue
from seq2see.data.readers import DocumentReader, Reader, SingleFileReader, strip_compression_suffix
from seq2see.errors import ProgressFactory, UserError, no_progress
from seq2see.formats.media.pairs import MediaPairReader
from seq2see.formats.tabular import JsonlReader
from seq2see.tensors.files import atomic_write

_LINE_BREAKS = re.compile(r"[\r\n]+")


@dataclass(frozen=True)
class CleanedCopy:
    """The files written, the number of items kept, and the number removed for each reason."""

    files: tuple[Path, ...]
    kept: int
    removed: Mapping[FindingKind, int]


def write_clean_copy(
    corpus: Corpus, checked: Checked, out: Path, progress: ProgressFactory = no_progress
) -> CleanedCopy:
    """Writes the good items to files in `out`, named after the input; unreadable lines are left out."""
    if checked.issues.mismatches:
        reason = checked.issues.mismatches[0].reason
        raise UserError(f"{reason}: no copy written, because it would pair the wrong lines; fix this first")
    kept = np.split(checked.reasons == 0, checked.starts[1:-1])
    written = [
        (reader, keep, _output_names(reader)) for reader, keep in zip(corpus.readers, kept, strict=True) if keep.any()
    ]
    files = _output_paths(out, [name for _, _, names in written for name in names], corpus.files)
    callbacks = ReadCallbacks(ignore_issue, progress("writing", corpus.size))
    with _all_or_nothing(out) as stack:
        for reader, keep, names in written:
            texts = _kept_texts(reader, keep, callbacks)
            _write(texts, [stack.enter_context(atomic_write(out / name)) for name in names])
    return CleanedCopy(files, checked.report.kept, _count_removed(checked))


def _kept_texts(reader: Reader, keep: NDArray[np.bool_], callbacks: ReadCallbacks) -> Iterator[Sequence[str]]:
    """Yields what is written for each item: its sentences as lines, or a document unchanged."""
    number = 0
    for texts, _, ends in read_items(reader, callbacks):
        if number == len(keep):
            break
        if keep[number] and isinstance(reader, DocumentReader):
            separator = "\n\n" if reader.boundaries == "blank-line" else "\n"
            yield [texts[0] + separator * ends]
        elif keep[number]:
            yield [_LINE_BREAKS.sub(" ", text) + "\n" for text in texts]
        number += ends
    else:
        if number == len(keep):
            return
    raise UserError(f"{format_paths(reader.files)} changed during the check: no copy written; try again")


def _write(rows: Iterator[Sequence[str]], paths: Sequence[Path]) -> None:
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
        for row in rows:
            for file, text in zip(files, row, strict=True):
                file.write(text)


def _output_names(reader: Reader) -> Sequence[str]:
    """Returns file names for the sides, such as `train.en` and `train.hi` for `train.tsv.gz` with named sides."""
    if isinstance(reader, MediaPairReader):
        raise UserError("a cleaned copy of pictures or sounds is not supported: remove the rows from the list")
    names = [strip_compression_suffix(file) for file in reader.files]
    sides: Sequence[int | str] = ()
    if isinstance(reader, SingleFileReader):
        names, sides = [Path(names[0]).stem] * 2, reader.options
        if isinstance(reader, JsonlReader):  # the last part of the path of a field
            sides = [field.rpartition(".")[2] for field in (reader.source_field, reader.target_field)]
    if len(set(names)) == len(names):
        return names
    if len({*sides}) != 2 or not all(isinstance(side, str) for side in sides):
        sides = "source", "target"
    return [f"{name}.{str(side).replace('/', '_')}" for name, side in zip(names, sides, strict=True)]


def _output_paths(out: Path, names: Sequence[str], inputs: Sequence[Path]) -> tuple[Path, ...]:
    """Returns the paths to write, after checking that they are distinct and do not exist."""
    if not names:
        raise UserError(f"{format_paths(inputs)}: nothing would be kept, so no copy is written")
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"{count} files would be called {out / name}: clean them one at a time")
    for name in names:
        if (out / name).exists():
            raise UserError(f"{out / name} already exists: choose another directory for --fix, or delete it")
    return tuple(out / name for name in names)


@contextmanager
def _all_or_nothing(out: Path) -> Iterator[ExitStack]:
    """Yields a stack; the files entered into it appear together at the end, or not at all after an error."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            yield stack
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; no copy written") from error


def _count_removed(checked: Checked) -> dict[FindingKind, int]:
    counts = np.bincount(checked.reasons, minlength=len(REMOVAL_REASONS) + 1)[1:]
    removed: dict[FindingKind, int] = {kind: checked.issues.counts[kind] for kind in ("encoding", "malformed")}
    removed |= dict(zip(REMOVAL_REASONS, map(int, counts), strict=True))
    return {kind: count for kind, count in removed.items() if count}
