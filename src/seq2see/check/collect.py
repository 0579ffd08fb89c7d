"""One pass over a corpus that keeps a few numbers per item and no text.

An item has one text per side: a pair of sentences has two, a document one, and the source of a picture or sound is its path.
Thirty bytes are enough to assess one: lengths, scripts, and 64-bit hashes to detect duplicates. Millions are thus checked in
little memory, and the few that are shown as examples are read a second time.
"""

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2see.check.report import SideSummary
from seq2see.check.scripts import SCRIPTS, count_letters
from seq2see.data.corpus import Corpus, ParallelCorpus, TextCorpus
from seq2see.data.lines import IssueKind, ReadCallbacks, ReadIssue
from seq2see.data.readers import DocumentReader, LineCountMismatch, PairReader, Reader
from seq2see.errors import ProgressFactory, no_progress
from seq2see.formats.media.pairs import MediaPairReader

if TYPE_CHECKING:
    from seq2see.data.tokenizer import Tokenizer
    from seq2see.formats.media.reader import MediaReader

CorpusKind = Literal["pairs", "documents", "media"]
Identity = Callable[[str], str]  # of a picture or sound, given its path

_BATCH_ITEMS, _BATCH_CHARACTERS = 8192, 1 << 20  # measured at a time
_MIN_WORDS = 20  # of a document that counts as a duplicate: "Yes." and "Chapter II" repeat in every book

# Flags of an item.
EMPTY, ONE_SIDED, TOO_LONG, SAME, MANY_WORDS, _CONTINUES = 1, 2, 4, 8, 16, 32

ROW = np.dtype(
    [
        ("line", np.uint32),
        ("source_hash", np.int64),
        ("item_hash", np.int64),  # of all sides
        ("source_length", np.uint16),  # characters, capped at 65,535
        ("target_length", np.uint16),
        ("source_script", np.uint8),
        ("target_script", np.uint8),
        ("flags", np.uint8),
    ]
)
RowArray = NDArray[Any]  # of dtype ROW


@dataclass(frozen=True)
class CheckSettings:
    """The maximum sentence length of the model, and how many examples to show of each kind of problem."""

    max_length: int = 1024  # in tokens, or in words without a tokenizer
    examples: int = 3
    tokenizer: "Tokenizer | None" = None
    progress: ProgressFactory = no_progress
    reader: "MediaReader | None" = None  # which decodes every picture and sound as `model` does
    model: str = "the model"


class Item(NamedTuple):
    texts: tuple[str, ...]
    line: int
    ends: bool = True  # else a part of a long document, which the next item continues


def read_items(reader: Reader, callbacks: ReadCallbacks) -> Iterator[Item]:
    if isinstance(reader, DocumentReader):
        return (Item((text,), line, ends) for text, line, ends in reader.read(callbacks))
    assert isinstance(reader, PairReader)
    return (Item((source, target), line) for source, target, line in reader.read(callbacks))


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


@dataclass(frozen=True)
class _Columns:
    """The numbers of one side of a batch."""

    keys: list[str]  # the texts as they are compared: NFC, with single spaces
    lengths: NDArray[np.uint16]
    words: NDArray[np.int64]
    scripts: NDArray[
        np.uint8
    ]  # of texts with enough words and letters, all in one script, to say that it is the wrong one
    too_long: NDArray[np.bool_]


@dataclass
class Side:
    """Measures the texts of one side, and holds its running totals."""

    totals: SideSummary
    tokenizer: "Tokenizer | None"
    max_length: int
    scripts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(SCRIPTS), np.int64))

    def measure(self, texts: Sequence[str]) -> _Columns:
        totals, split = self.totals, [text.split() for text in texts]
        keys = [unicodedata.normalize("NFC", " ".join(words)) for words in split]
        words = np.fromiter(map(len, split), np.int64, len(split))
        characters = np.fromiter(map(len, keys), np.int64, len(keys))
        letters = count_letters(keys)[:, 1:]
        in_script = letters.max(1)
        scripts = np.where(in_script, letters.argmax(1) + 1, 0)
        sizes = words
        if self.tokenizer is not None:
            sizes = np.diff(self.tokenizer.encode_batch(texts).offsets)
            totals.tokens = (totals.tokens or 0) + int(sizes.sum())
        totals.sentences += len(keys)
        totals.words += int(words.sum())
        totals.characters += int(characters.sum())
        totals.max_words = max(totals.max_words, int(words.max()))
        self.scripts += np.bincount(scripts, minlength=len(SCRIPTS))
        scripts[(in_script < 0.98 * letters.sum(1)) | ~_enough_text(in_script, words, scripts)] = 0
        lengths = np.minimum(characters, 0xFFFF).astype(np.uint16)
        return _Columns(keys, lengths, words, scripts.astype(np.uint8), sizes > self.max_length)

    @property
    def script(self) -> int:
        """The index of the script of at least 80% of the sentences with letters, or 0."""
        lettered = self.scripts[1:]
        best = int(np.argmax(lettered))
        return best + 1 if lettered[best] and lettered[best] >= 0.8 * lettered.sum() else 0

    def summary(self) -> SideSummary:
        script = SCRIPTS[self.script] if self.script else "mixed" if self.scripts[1:].any() else "none"
        return replace(self.totals, script=script)


@dataclass
class Paths:
    """The sources of pictures and sounds, which are compared by their identity."""

    identity: Identity
    paths: list[str] = field(default_factory=list)

    def measure(self, texts: Sequence[str]) -> _Columns:
        self.paths += texts
        keys, zeros, no = list(map(self.identity, texts)), np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
        return _Columns(keys, np.ones(len(texts), np.uint16), zeros, zeros.astype(np.uint8), no)


@dataclass(frozen=True)
class Collected:
    """The numbers of a corpus, one row per item: the items of reader i are rows[starts[i] : starts[i + 1]]."""

    kind: CorpusKind
    readers: Sequence[Reader]
    rows: RowArray
    starts: tuple[int, ...]
    sides: tuple[Side, ...]  # of text
    issues: IssueLog
    paths: Sequence[str]  # of pictures and sounds, one per row

    def reader(self, row: int) -> Reader:
        return self.readers[int(np.searchsorted(self.starts, row, side="right")) - 1]

    def location(self, row: int, file: Path | None = None) -> str:
        """Returns `line 17`, with the name of its file unless it is the given one; of a picture or sound, its path."""
        if self.kind == "media":
            return self.paths[row]
        line, own = f"line {self.rows['line'][row]:,}", self.reader(row).files[0]
        return line if own == file else f"{line} of {own.name}"


def collect(corpus: Corpus, settings: CheckSettings, identity: Identity = os.path.realpath) -> Collected:
    """Reads all items once; pictures and sounds are the same if their `identity` is."""
    readers, issues, paths = corpus.readers, IssueLog(settings.examples), Paths(identity)
    first, last = (tuple(reader.files[number] for reader in readers) for number in (0, -1))
    source, target = (
        Side(SideSummary(name, tuple(map(str, files))), settings.tokenizer, settings.max_length)
        for name, files in (("source" if isinstance(corpus, ParallelCorpus) else "text", first), ("target", last))
    )
    kind: CorpusKind = "pairs"
    measured: tuple[Side | Paths, ...] = (source, target)
    if isinstance(corpus, TextCorpus):
        kind, measured = "documents", (source,)
    elif isinstance(readers[0], MediaPairReader):
        kind, measured = "media", (paths, target)
    callbacks = ReadCallbacks(issues.add, settings.progress("reading", corpus.size))
    rows = [
        _join([_measure(batch, measured) for batch in _batched(read_items(reader, callbacks))]) for reader in readers
    ]
    starts = (0, *np.cumsum([len(each) for each in rows]).tolist())
    sides = tuple(side for side in measured if isinstance(side, Side))
    return Collected(kind, readers, np.concatenate(rows), starts, sides, issues, paths.paths)


def _batched(items: Iterable[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item.texts[0])
        if size >= _BATCH_CHARACTERS or len(batch) == _BATCH_ITEMS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _measure(batch: list[Item], sides: Sequence[Side | Paths]) -> RowArray:
    texts, lines, ends = zip(*batch, strict=True)
    columns = [side.measure(of_side) for side, of_side in zip(sides, zip(*texts, strict=True), strict=True)]
    left, right = columns[0], columns[-1]
    if len(sides) == 1 and isinstance(sides[0], Side):
        sides[0].totals.sentences += sum(text.count("\n") for (text,) in texts) - ends.count(False)
    rows = np.zeros(len(batch), ROW)
    rows["line"] = lines
    rows["source_hash"] = _hashes(left.keys)
    rows["item_hash"] = _hashes(zip(*(side.keys for side in columns), strict=True), len(batch))
    rows["source_length"], rows["target_length"] = left.lengths, right.lengths
    rows["source_script"], rows["target_script"] = left.scripts, right.scripts
    no_left, no_right = left.lengths == 0, right.lengths == 0
    same = np.fromiter((a == b for a, b in zip(left.keys, right.keys, strict=True)), bool, len(batch))
    for flag, mask in (
        (EMPTY, no_left & no_right),
        (ONE_SIDED, no_left ^ no_right),
        (TOO_LONG, left.too_long | right.too_long),
        (SAME, same & (left.scripts > 0)),
        (MANY_WORDS, left.words >= _MIN_WORDS),
        (_CONTINUES, ~np.array(ends)),
    ):
        rows["flags"] |= flag * mask.astype(np.uint8)
    return rows


def _join(batches: list[RowArray]) -> RowArray:
    """Joins the rows of one reader; the pieces of a long document become one row."""
    rows = np.concatenate([np.zeros(0, ROW), *batches])
    continues = rows["flags"] & _CONTINUES > 0
    if not continues.any():
        return rows
    firsts = np.flatnonzero(np.r_[True, ~continues[:-1]])
    joined, ends = rows[firsts], [*firsts[1:], len(rows)]
    for document in np.flatnonzero(continues[firsts]):
        pieces = rows["item_hash"][firsts[document] : ends[document]]
        joined["source_hash"][document] = joined["item_hash"][document] = hash(tuple(pieces.tolist()))
        joined["flags"][document] |= MANY_WORDS
    return joined


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
