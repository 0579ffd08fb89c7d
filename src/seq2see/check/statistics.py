"""One pass over a corpus that keeps a few numbers per pair and no text.

Thirty bytes are enough to assess a pair: lengths, scripts, and 64-bit hashes of its text to detect duplicates. Millions
of pairs are thus checked in little memory, and the few that are shown as examples are read a second time.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seq2see.check.report import SideSummary
from seq2see.check.scripts import SCRIPTS, count_letters
from seq2see.data.corpus import ParallelCorpus
from seq2see.data.formats.lines import IssueKind, ReadCallbacks, ReadIssue, ignore_progress
from seq2see.data.formats.tabular import LineCountMismatch, SentencePair

_BATCH_SIZE = 8192  # pairs processed at a time

# Flags of a pair.
EMPTY, ONE_SIDED, TOO_LONG, SAME = 1, 2, 4, 8
# The side has enough words and letters, all in one script, to decide whether it is the wrong script.
SOURCE_CLEAR, TARGET_CLEAR = 16, 32

ROW = np.dtype(
    [
        ("line", np.uint32),
        ("source_hash", np.int64),
        ("pair_hash", np.int64),
        ("source_length", np.uint16),  # characters, capped at 65,535
        ("target_length", np.uint16),
        ("source_script", np.uint8),
        ("target_script", np.uint8),
        ("flags", np.uint8),
    ]
)
RowArray = NDArray[Any]  # of dtype ROW


class HasOffsets(Protocol):
    @property
    def offsets(self) -> NDArray[np.int64]: ...


class Encoder(Protocol):
    """The part of a tokenizer that counting tokens needs."""

    def encode_batch(self, texts: Sequence[str]) -> HasOffsets: ...


@dataclass
class IssueLog:
    """Counts the lines that could not be read, and keeps the first few of each kind."""

    max_kept: int
    counts: Counter[IssueKind] = field(default_factory=Counter)
    first: dict[IssueKind, list[ReadIssue]] = field(default_factory=dict)
    mismatches: list[LineCountMismatch] = field(default_factory=list)

    def add(self, issue: ReadIssue) -> None:
        self.counts[issue.kind] += 1
        if isinstance(issue, LineCountMismatch):
            self.mismatches.append(issue)
        first = self.first.setdefault(issue.kind, [])
        if len(first) < self.max_kept:
            first.append(issue)


@dataclass
class SideCounts:
    """The running totals of one side."""

    name: str
    files: tuple[Path, ...]
    encoder: Encoder | None
    sentences: int = 0
    words: int = 0
    characters: int = 0
    tokens: int = 0
    max_words: int = 0
    scripts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(SCRIPTS), np.int64))

    @property
    def script(self) -> int:
        """The index of the script of at least 80% of the sentences with letters, or 0."""
        lettered = self.scripts[1:]
        best = int(np.argmax(lettered))
        return best + 1 if lettered[best] and lettered[best] >= 0.8 * lettered.sum() else 0

    def summary(self) -> SideSummary:
        tokens = None if self.encoder is None else self.tokens
        script = SCRIPTS[self.script] if self.script else "mixed" if self.scripts[1:].any() else "none"
        files = tuple(map(str, self.files))
        return SideSummary(
            self.name, files, self.sentences, self.words, self.characters, tokens, self.max_words, script
        )


@dataclass(frozen=True)
class CorpusStats:
    """The numbers of a corpus, one row per pair: the pairs of reader i are rows[starts[i] : starts[i + 1]]."""

    rows: RowArray
    starts: tuple[int, ...]
    source: SideCounts
    target: SideCounts
    issues: IssueLog

    def __len__(self) -> int:
        return len(self.rows)


def collect_stats(
    pairs: ParallelCorpus,
    max_length: int,
    encoder: Encoder | None,
    max_issues: int,
    on_progress: Callable[[int], None] = ignore_progress,
) -> CorpusStats:
    """Reads all pairs once; `max_length` is in tokens, or in words without an encoder."""
    issues = IssueLog(max_issues)
    callbacks = ReadCallbacks(issues.add, on_progress)
    source = SideCounts("source", tuple(reader.files[0] for reader in pairs.readers), encoder)
    target = SideCounts("target", tuple(reader.files[-1] for reader in pairs.readers), encoder)
    batches: list[RowArray] = []
    starts = [0]
    for reader in pairs.readers:
        count = 0
        for batch in _batched(reader.read(callbacks)):
            batches.append(_measure(batch, source, target, max_length))
            count += len(batch)
        starts.append(starts[-1] + count)
    rows = np.concatenate(batches) if batches else np.zeros(0, ROW)
    return CorpusStats(rows, tuple(starts), source, target, issues)


def _batched(pairs: Iterator[SentencePair]) -> Iterator[list[SentencePair]]:
    while batch := list(islice(pairs, _BATCH_SIZE)):
        yield batch


def _measure(batch: list[SentencePair], source: SideCounts, target: SideCounts, max_length: int) -> RowArray:
    sources, targets, lines = zip(*batch, strict=True)
    left = _SideColumns.measure(sources, source, max_length)
    right = _SideColumns.measure(targets, target, max_length)
    rows = np.zeros(len(batch), ROW)
    rows["line"] = lines
    rows["source_hash"] = _hashes(left.keys)
    rows["pair_hash"] = _hashes(zip(left.keys, right.keys, strict=True), len(batch))
    rows["source_length"], rows["target_length"] = left.lengths, right.lengths
    rows["source_script"], rows["target_script"] = left.scripts, right.scripts
    no_left, no_right = left.lengths == 0, right.lengths == 0
    same = np.fromiter((a == b for a, b in zip(left.keys, right.keys, strict=True)), bool, len(batch))
    for flag, mask in (
        (EMPTY, no_left & no_right),
        (ONE_SIDED, no_left ^ no_right),
        (TOO_LONG, left.too_long | right.too_long),
        (SAME, same & left.clear),
        (SOURCE_CLEAR, left.clear),
        (TARGET_CLEAR, right.clear),
    ):
        rows["flags"] |= flag * mask.astype(np.uint8)
    return rows


@dataclass(frozen=True)
class _SideColumns:
    """The numbers of one side of a batch of pairs."""

    keys: list[str]  # the sentences as they are compared: NFC, with single spaces
    lengths: NDArray[np.uint16]
    scripts: NDArray[np.uint8]
    clear: NDArray[np.bool_]
    too_long: NDArray[np.bool_]

    @classmethod
    def measure(cls, sentences: Sequence[str], counts: SideCounts, max_length: int) -> "_SideColumns":
        split = [sentence.split() for sentence in sentences]
        keys = [unicodedata.normalize("NFC", " ".join(words)) for words in split]
        words = np.fromiter(map(len, split), np.int64, len(split))
        characters = np.fromiter(map(len, keys), np.int64, len(keys))
        letters = count_letters(keys)[:, 1:]
        scripts, in_script = letters.argmax(1), letters.max(1)
        sizes = words
        if counts.encoder is not None:
            sizes = np.diff(counts.encoder.encode_batch(sentences).offsets)
            counts.tokens += int(sizes.sum())
        counts.sentences += len(keys)
        counts.words += int(words.sum())
        counts.characters += int(characters.sum())
        counts.max_words = max(counts.max_words, int(words.max()))
        counts.scripts += np.bincount(np.where(in_script, scripts + 1, 0), minlength=len(SCRIPTS))
        clear = (in_script >= 0.98 * letters.sum(1)) & _enough_text(in_script, words, scripts + 1)
        lengths = np.minimum(characters, 0xFFFF).astype(np.uint16)
        return cls(keys, lengths, np.where(in_script, scripts + 1, 0).astype(np.uint8), clear, sizes > max_length)


_UNSPACED = [SCRIPTS.index(name) for name in ("Han or kana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")]


def _enough_text(letters: NDArray[Any], words: NDArray[Any], scripts: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a sentence is more than a name or a product, which are often left untranslated."""
    unspaced = np.isin(scripts, _UNSPACED)
    return np.where(unspaced, letters >= 5, (letters >= 12) & (words >= 3))


def _hashes(keys: Any, count: int = -1) -> NDArray[np.int64]:
    """Returns Python's 64-bit hashes; they differ between runs, and none is saved."""
    return np.fromiter(map(hash, keys), np.int64, count if count >= 0 else len(keys))


def is_repeated(hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Marks every occurrence of a hash but the first."""
    repeated = np.ones(len(hashes), bool)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    return repeated
