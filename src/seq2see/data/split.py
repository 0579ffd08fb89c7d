"""Splits a corpus into training and validation data, the same on every machine and in every run."""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from seq2see.data.corpus import ParallelCorpus, TextCorpus
from seq2see.data.lines import ignore_progress
from seq2see.data.readers import TextChunk
from seq2see.errors import ProgressFactory, no_progress

# Held out for validation if no validation set is given; each is a maximum.
HELD_OUT_SHARE, MAX_HELD_OUT_SHARE = 0.02, 0.05
HELD_OUT_PAIRS = 200, 1000  # at least and at most, if the shares allow
HELD_OUT_CHARACTERS, HELD_OUT_TEXT_SHARE = 1_000_000, 0.1

Pair = tuple[str, str]


class PairSplit:
    """Sentence pairs split into training and validation. The split depends on the source alone, so that a sentence with two
    translations is never on both sides; of a picture or sound it depends on the file's name, wherever the file lies. Pairs
    with an empty side are left out.
    """

    def __init__(
        self, train: ParallelCorpus, valid: ParallelCorpus | None, count: int, sources_are_paths: bool = False
    ) -> None:
        self._train, self._valid, self._sources_are_paths = train, valid, sources_are_paths
        low, high = (pairs / max(count, 1) for pairs in HELD_OUT_PAIRS)
        share = 0.0 if valid is not None else min(max(HELD_OUT_SHARE, low), high, MAX_HELD_OUT_SHARE)
        self._hash_limit = int(share * (1 << 32))
        self.fingerprint = f"{train.fingerprint} {self._hash_limit}"
        self.valid_fingerprint = f"{self.fingerprint if valid is None else valid.fingerprint} held out"

    def _is_held_out(self, source: str) -> bool:
        source = Path(source).name if self._sources_are_paths else source
        digest = hashlib.blake2b(source.encode(errors="replace"), digest_size=4).digest()
        return int.from_bytes(digest) < self._hash_limit

    def train(self) -> Iterator[Pair]:
        return (pair for pair in _non_empty(self._train) if not self._is_held_out(pair[0]))

    def valid(self) -> list[Pair]:
        if self._valid is not None:
            return list(_non_empty(self._valid))
        return [pair for pair in _non_empty(self._train) if self._is_held_out(pair[0])]


class TextSplit:
    """Text split into training and validation: the given validation text, or else the end of the training text. Yields
    (text, ends_document) chunks.
    """

    def __init__(self, train: TextCorpus, valid: TextCorpus | None, progress: ProgressFactory = no_progress) -> None:
        self._train, self._valid, self._progress = train, valid, progress
        size = 0 if valid is not None else sum(len(chunk.text) for chunk in self._chunks("reading"))
        self._train_size = size - min(HELD_OUT_CHARACTERS, int(size * HELD_OUT_TEXT_SHARE))  # in characters; 0: all
        self.fingerprint = f"{train.fingerprint} {self._train_size}"
        self.valid_fingerprint = f"{train.fingerprint} from {self._train_size}" if valid is None else valid.fingerprint

    def _chunks(self, task: str) -> Iterator[TextChunk]:
        yield from self._train.chunks(self._progress(task, self._train.size) if task else ignore_progress)

    def train(self, task: str = "") -> Iterator[tuple[str, bool]]:
        """Yields the training text; shows the progress of the named task."""
        remaining = self._train_size or sys.maxsize
        for chunk in self._chunks(task):
            yield chunk.text[:remaining], chunk.ends_document or len(chunk.text) >= remaining
            remaining -= len(chunk.text)
            if remaining <= 0:
                return

    def valid(self) -> Iterator[tuple[str, bool]]:
        remaining = self._train_size
        for chunk in (self._train if self._valid is None else self._valid).chunks():
            if len(chunk.text) > remaining:
                yield chunk.text[remaining:], chunk.ends_document
            remaining = max(0, remaining - len(chunk.text))


def _non_empty(pairs: Iterable[Pair]) -> Iterator[Pair]:
    return (pair for pair in pairs if pair[0].strip() and pair[1].strip())
