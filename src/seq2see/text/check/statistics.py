"""One pass over a corpus that keeps a few numbers of each pair and none of its text.

Thirty bytes a pair are enough to judge it by: lengths, scripts, and 64-bit hashes of its text, by which it is known
again. So millions of pairs are checked in little memory, and the few that a person should see are read a second time.
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

from seq2see.text.check.report import Side
from seq2see.text.check.scripts import SCRIPTS, count_letters
from seq2see.text.corpus import Pairs
from seq2see.text.formats.lines import Fault, FaultKind, Listener, ignore
from seq2see.text.formats.tabular import Row, Unequal

_PORTION = 8192  # pairs handled at a time

# Flags of a pair, and of one side of it.
EMPTY, ONE_SIDED, LONG, SAME = 1, 2, 4, 8
# The side has words and letters enough, all in one script, to say that they are in the wrong one.
SOURCE_CLEAR, TARGET_CLEAR = 16, 32

ROW = np.dtype(
    [
        ("line", np.uint32),
        ("source_hash", np.int64),
        ("pair_hash", np.int64),
        ("source_length", np.uint16),  # characters, at most 65,535
        ("target_length", np.uint16),
        ("source_script", np.uint8),
        ("target_script", np.uint8),
        ("flags", np.uint8),
    ]
)
Rows = NDArray[Any]  # of dtype ROW

Watch = Callable[[str, int | None], Callable[[int], None]]  # what is done, and how much of it there is, if known


def unwatched(what: str, size: int | None) -> Callable[[int], None]:
    """The progress bar of one who does not look."""
    return ignore


class Offsets(Protocol):
    @property
    def offsets(self) -> NDArray[np.int64]: ...


class Encoder(Protocol):
    """So much of a tokenizer as counting takes."""

    def encode_batch(self, texts: Sequence[str]) -> Offsets: ...


@dataclass
class Faults:
    """The lines that could not be read: how many, and the first few."""

    keep: int
    counts: Counter[FaultKind] = field(default_factory=Counter)
    first: dict[FaultKind, list[Fault]] = field(default_factory=dict)
    unequal: list[Unequal] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1
        if isinstance(fault, Unequal):
            self.unequal.append(fault)
        first = self.first.setdefault(fault.kind, [])
        if len(first) < self.keep:
            first.append(fault)


@dataclass
class Tally:
    """The figures of one side, as they add up."""

    name: str
    files: tuple[Path, ...]
    encoder: Encoder | None
    sentences: int = 0
    words: int = 0
    characters: int = 0
    tokens: int = 0
    longest: int = 0  # in words
    scripts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(SCRIPTS), np.int64))

    @property
    def script(self) -> int:
        """The index of the script that four in five of the sentences with letters are written in, or 0."""
        lettered = self.scripts[1:]
        most = int(np.argmax(lettered))
        return most + 1 if lettered[most] and lettered[most] >= 0.8 * lettered.sum() else 0

    def finished(self) -> Side:
        tokens = None if self.encoder is None else self.tokens
        script = SCRIPTS[self.script] if self.script else "mixed" if self.scripts[1:].any() else "none"
        files = tuple(map(str, self.files))
        return Side(self.name, files, self.sentences, self.words, self.characters, tokens, self.longest, script)


@dataclass(frozen=True)
class Measured:
    """A corpus in numbers: `rows` of all parts one after another; part i is rows[starts[i] : starts[i + 1]]."""

    rows: Rows
    starts: tuple[int, ...]
    source: Tally
    target: Tally
    faults: Faults

    def __len__(self) -> int:
        return len(self.rows)


def measure(
    pairs: Pairs, longest: int, encoder: Encoder | None, keep: int, progress: Callable[[int], None] = ignore
) -> Measured:
    """Reads all pairs once; `longest` is in tokens, or words without an encoder; `keep` faults of a kind are kept."""
    faults = Faults(keep)
    listener = Listener(faults.add, progress)
    source = Tally("source", tuple(part.files[0] for part in pairs.parts), encoder)
    target = Tally("target", tuple(part.files[-1] for part in pairs.parts), encoder)
    portions: list[Rows] = []
    starts = [0]
    for part in pairs.parts:
        count = 0
        for portion in portions_of(part.read(listener)):
            portions.append(_measured(portion, source, target, longest))
            count += len(portion)
        starts.append(starts[-1] + count)
    rows = np.concatenate(portions) if portions else np.zeros(0, ROW)
    return Measured(rows, tuple(starts), source, target, faults)


def portions_of(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while portion := list(islice(rows, _PORTION)):
        yield portion


def _measured(portion: list[Row], source: Tally, target: Tally, longest: int) -> Rows:
    sources, targets, lines = zip(*portion, strict=True)
    left, right = _Half.of(sources, source, longest), _Half.of(targets, target, longest)
    rows = np.zeros(len(portion), ROW)
    rows["line"] = lines
    rows["source_hash"] = _hashes(left.keys)
    rows["pair_hash"] = _hashes(zip(left.keys, right.keys, strict=True), len(portion))
    rows["source_length"], rows["target_length"] = left.lengths, right.lengths
    rows["source_script"], rows["target_script"] = left.scripts, right.scripts
    no_left, no_right = left.lengths == 0, right.lengths == 0
    same = np.fromiter((a == b for a, b in zip(left.keys, right.keys, strict=True)), bool, len(portion))
    for flag, holds in (
        (EMPTY, no_left & no_right),
        (ONE_SIDED, no_left ^ no_right),
        (LONG, left.long | right.long),
        (SAME, same & left.clear),
        (SOURCE_CLEAR, left.clear),
        (TARGET_CLEAR, right.clear),
    ):
        rows["flags"] |= flag * holds.astype(np.uint8)
    return rows


@dataclass(frozen=True)
class _Half:
    """One side of a portion of pairs."""

    keys: list[str]  # the sentences, as they are compared: composed (NFC), and single spaces
    lengths: NDArray[np.uint16]
    scripts: NDArray[np.uint8]
    clear: NDArray[np.bool_]
    long: NDArray[np.bool_]

    @classmethod
    def of(cls, sentences: Sequence[str], tally: Tally, longest: int) -> "_Half":
        split = [sentence.split() for sentence in sentences]
        keys = [unicodedata.normalize("NFC", " ".join(words)) for words in split]
        words = np.fromiter(map(len, split), np.int64, len(split))
        characters = np.fromiter(map(len, keys), np.int64, len(keys))
        letters = count_letters(keys)[:, 1:]
        scripts, most = letters.argmax(1), letters.max(1)
        sizes = words
        if tally.encoder is not None:
            sizes = np.diff(tally.encoder.encode_batch(sentences).offsets)
            tally.tokens += int(sizes.sum())
        tally.sentences += len(keys)
        tally.words += int(words.sum())
        tally.characters += int(characters.sum())
        tally.longest = max(tally.longest, int(words.max()))
        tally.scripts += np.bincount(np.where(most, scripts + 1, 0), minlength=len(SCRIPTS))
        clear = (most >= 0.98 * letters.sum(1)) & _enough(most, words, scripts + 1)
        lengths = np.minimum(characters, 0xFFFF).astype(np.uint16)
        return cls(keys, lengths, np.where(most, scripts + 1, 0).astype(np.uint8), clear, sizes > longest)


_UNSPACED = [SCRIPTS.index(name) for name in ("Han or kana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")]


def _enough(letters: NDArray[Any], words: NDArray[Any], scripts: NDArray[Any]) -> NDArray[np.bool_]:
    """More than a name or a product: those are often left as they are."""
    unspaced = np.isin(scripts, _UNSPACED)
    return np.where(unspaced, letters >= 5, (letters >= 12) & (words >= 3))


def _hashes(keys: Any, count: int = -1) -> NDArray[np.int64]:
    """Python's own 64-bit hashes; they differ from run to run, and none is kept."""
    return np.fromiter(map(hash, keys), np.int64, count if count >= 0 else len(keys))


def again(hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for all but the first of those that are equal."""
    repeated = np.ones(len(hashes), bool)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    return repeated
