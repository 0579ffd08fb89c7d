"""Writes a cleaned copy of a corpus: removes what the check found and copies the rest unchanged.

Pairs of any format become two files of plain text; a line break inside a sentence becomes a space, because a line is a
sentence there. Files appear under their final names only when all are complete, and no existing file is overwritten.
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

from seq2see.check.documents import TEXT_REMOVAL_REASONS, CheckedText
from seq2see.check.pairs import REMOVAL_REASONS, CheckedPairs
from seq2see.check.report import FindingKind
from seq2see.check.statistics import IssueLog
from seq2see.data.corpus import ParallelCorpus, TextChunk, TextCorpus, format_paths
from seq2see.data.formats.lines import ReadCallbacks, ignore_issue
from seq2see.data.formats.tabular import SentencePair, strip_compression_suffix
from seq2see.errors import ProgressFactory, UserError, no_progress
from seq2see.tensors.files import atomic_write

_LINE_BREAKS = re.compile(r"[\r\n]+")


@dataclass(frozen=True)
class CleanedCopy:
    """The files written, the number of items kept, and the number removed for each reason."""

    files: tuple[Path, ...]
    kept: int
    removed: Mapping[FindingKind, int]


def write_clean_pairs(
    pairs: ParallelCorpus, checked: CheckedPairs, out: Path, progress: ProgressFactory = no_progress
) -> CleanedCopy:
    """Writes the good pairs of each reader to two files in `out`, named after the input."""
    if checked.issues.mismatches:
        reason = checked.issues.mismatches[0].reason
        raise UserError(f"{reason}: no copy written, because it would pair the wrong lines; fix this first")
    kept = [reasons == 0 for reasons in _split_by_file(checked.reasons, checked.starts)]
    names = [reader.output_names if keep.any() else () for reader, keep in zip(pairs.readers, kept, strict=True)]
    files = _output_paths(out, [name for both in names for name in both], pairs.files)
    callbacks = ReadCallbacks(ignore_issue, progress("writing", pairs.size))
    with _all_or_nothing(out) as stack:
        for reader, keep, both in zip(pairs.readers, kept, names, strict=True):
            if both:
                source, target = (stack.enter_context(atomic_write(out / name)) for name in both)
                if _write_pairs(compress(reader.read(callbacks), keep), source, target) != keep.sum():
                    changed = format_paths(reader.files)
                    raise UserError(f"{changed} changed during the check: no copy written; try again")
    return CleanedCopy(files, checked.report.kept, _count_removed(checked.reasons, REMOVAL_REASONS, checked.issues))


def _write_pairs(pairs: Iterator[SentencePair], source: Path, target: Path) -> int:
    with (
        source.open("w", encoding="utf-8", newline="\n") as source_file,
        target.open("w", encoding="utf-8", newline="\n") as target_file,
    ):
        count = 0
        for pair in pairs:
            count += 1
            source_file.write(_LINE_BREAKS.sub(" ", pair.source) + "\n")
            target_file.write(_LINE_BREAKS.sub(" ", pair.target) + "\n")
    return count


def write_clean_text(
    corpus: TextCorpus, checked: CheckedText, out: Path, progress: ProgressFactory = no_progress
) -> CleanedCopy:
    """Writes the good documents to files in `out`, named after the input, without lines that are not UTF-8."""
    kept = [reasons == 0 for reasons in _split_by_file(checked.reasons, checked.starts)]
    names = [
        strip_compression_suffix(file) if keep.any() else "" for file, keep in zip(corpus.files, kept, strict=True)
    ]
    files = _output_paths(out, [name for name in names if name], corpus.files)
    callbacks = ReadCallbacks(ignore_issue, progress("writing", corpus.size))
    separator = "\n\n" if corpus.boundaries == "blank-line" else "\n"
    with _all_or_nothing(out) as stack:
        for file, keep, name in zip(corpus.files, kept, names, strict=True):
            if name:
                path = stack.enter_context(atomic_write(out / name))
                _write_chunks(corpus.read(file, callbacks), keep, path, separator)
    removed = _count_removed(checked.reasons, TEXT_REMOVAL_REASONS, checked.issues)
    return CleanedCopy(files, checked.report.kept, removed)


def _write_chunks(chunks: Iterator[TextChunk], keep: NDArray[np.bool_], path: Path, separator: str) -> None:
    document = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for chunk in chunks:
            if keep[document]:
                file.write(chunk.text + separator * chunk.ends_document)
            document += chunk.ends_document


def _split_by_file(reasons: NDArray[np.uint8], starts: Sequence[int]) -> list[NDArray[np.uint8]]:
    return np.split(reasons, starts[1:-1])


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


def _count_removed(
    reasons: NDArray[np.uint8], kinds: Sequence[FindingKind], issues: IssueLog
) -> dict[FindingKind, int]:
    counts = np.bincount(reasons, minlength=len(kinds) + 1)[1:]
    removed: dict[FindingKind, int] = {kind: issues.counts[kind] for kind in ("encoding", "malformed")}
    removed |= dict(zip(kinds, map(int, counts), strict=True))
    return {kind: count for kind, count in removed.items() if count}
