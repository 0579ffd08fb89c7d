"""BPE-dropout: the same sentence cut into other pieces each epoch, so that a model learns how words are spelt.

A word is merged from its bytes as always, but at each step every possible merge is left out with some probability; when
none is left, the word stays as it is (Provilkov et al. 2020). The library's own version cannot be seeded. This one
draws each number from (seed, epoch, side, sentence, word, step, place), so a sentence is cut the same way whatever
batch it is in, and merges all words of a batch at once: one round of array operations merges one pair in every word.

Shapes: N symbols (bytes at first) of all words end to end, C pairs that could merge, W words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from seq2see.rng import Hashes, mix, seeded

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

_NEVER = np.int64(2**31 - 1)  # the rank of a pair that no merge rule joins


@dataclass(frozen=True)
class Dropout:
    """How the pieces of one epoch are drawn. `side` keeps source and target apart: 0 and 1."""

    probability: float
    seed: int
    epoch: int
    side: int = 0


@dataclass(frozen=True)
class Merges:
    """The merge rules as arrays: rule `r` makes `results[r]` of a pair; pairs are sorted, `ranks` says which rule."""

    pairs: Longs  # [rules] left · vocabulary + right, ascending
    ranks: Longs  # [rules] the rule of each pair
    results: Ints  # [rules] the token that each rule makes
    vocabulary: int

    @classmethod
    def of(cls, rules: Sequence[tuple[int, int, int]], vocabulary: int) -> Self:
        """From (left, right, result), the first rule first."""
        left, right, results = np.array(rules, dtype=np.int64).reshape(-1, 3).T
        pairs = left * vocabulary + right
        ranks = np.argsort(pairs)
        return cls(pairs[ranks], ranks, results.astype(np.int32), vocabulary)

    def rank(self, left: Ints, right: Ints) -> Longs:
        """The rule that joins each pair, or _NEVER."""
        if not len(self.pairs):
            return np.full(len(left), _NEVER)
        pairs = left.astype(np.int64) * self.vocabulary + right
        found = np.minimum(np.searchsorted(self.pairs, pairs), len(self.pairs) - 1)
        return np.where(self.pairs[found] == pairs, self.ranks[found], _NEVER)


def word_seeds(dropout: Dropout, sentences: Longs, words: Longs) -> Hashes:
    """One random number for each word from its place in the corpus: sentence, and word in the sentence. [W]"""
    seeds = seeded(len(words), dropout.seed, dropout.epoch, dropout.side)
    return mix(mix(seeds + sentences.astype(np.uint64)) + words.astype(np.uint64))


def merge(symbols: Ints, words: Longs, seeds: Hashes, merges: Merges, probability: float) -> tuple[Ints, Longs]:
    """Merge the symbols of all words, [N] with the word each belongs to; the same two arrays come back, shorter."""
    threshold = _threshold(probability)
    origins = np.arange(len(symbols))  # [N] where a symbol's first byte stood
    heads = np.flatnonzero(np.r_[True, words[1:] != words[:-1]])  # [W]
    keys = seeds[words] + (origins - heads[words]).astype(np.uint64)  # [N] for the draws: the word and the place in it
    results = np.full(len(symbols), -1, dtype=np.int32)  # [N] at the origin of each symbol that is finished

    alive, owners, ranks = symbols.copy(), words, np.full(len(symbols), _NEVER)
    _refresh(ranks, origins, alive, owners, merges)
    step = 0
    while True:
        pairs = np.flatnonzero(ranks != _NEVER)  # [C]
        pairs = pairs[mix(keys[pairs] + np.uint64(step << 32)) >> np.uint64(32) >= threshold]
        # A word whose every merge was dropped is finished: it gets no second chance in the next step.
        goes_on = np.zeros(len(seeds), dtype=bool)
        goes_on[owners[pairs]] = True
        kept = goes_on[owners]
        results[origins[~kept]] = alive[~kept]
        if not len(pairs):
            return results[results >= 0], words[results >= 0]

        best = _best_of_each(pairs, ranks[pairs], owners[pairs])  # [words that go on] where they merge
        alive[best] = merges.results[ranks[best]]
        kept[best + 1] = False
        best = np.cumsum(kept)[best] - 1  # the same places among those kept
        alive, owners, ranks, origins, keys = alive[kept], owners[kept], ranks[kept], origins[kept], keys[kept]
        for changed in (best, best[best > 0] - 1):
            _refresh(ranks, changed, alive, owners, merges)
        step += 1


def merge_openly(symbols: Ints, words: Longs, seeds: Hashes, merges: Merges, probability: float) -> tuple[Ints, Longs]:
    """The same, one word and one merge at a time."""
    merged: list[int] = []
    owners: list[int] = []
    for word, seed in enumerate(seeds):
        pieces = [(place, int(symbol)) for place, symbol in enumerate(symbols[words == word])]
        for step in count():
            possible = []
            for i, ((place, left), (_, right)) in enumerate(pairwise(pieces)):
                rank = merges.rank(np.array([left]), np.array([right]))[0]
                drawn = mix(np.array([int(seed) + place + (step << 32) & 2**64 - 1], dtype=np.uint64))[0]
                if rank != _NEVER and drawn >> np.uint64(32) >= _threshold(probability):
                    possible.append((rank, i))
            if not possible:
                break
            rank, i = min(possible)
            pieces[i : i + 2] = [(pieces[i][0], int(merges.results[rank]))]
        merged += [symbol for _, symbol in pieces]
        owners += [word] * len(pieces)
    return np.array(merged, dtype=np.int32), np.array(owners, dtype=np.int64)


def _threshold(probability: float) -> np.uint64:
    """A merge is dropped where the upper half of its random number is less than this."""
    return np.uint64(round(probability * 2**32))


def _best_of_each(pairs: Longs, ranks: Longs, owners: Longs) -> Longs:
    """Of the pairs in each word, the one whose rule comes first, and of equal ones the leftmost."""
    heads = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
    return np.minimum.reduceat((ranks << 32) | pairs, heads) & 0xFFFFFFFF


def _refresh(ranks: Longs, changed: Longs, symbols: Ints, words: Longs, merges: Merges) -> None:
    """Look up the pairs that begin at the changed symbols."""
    ranks[changed] = _NEVER
    changed = changed[changed < len(symbols) - 1]
    joined = words[changed] == words[changed + 1]
    ranks[changed] = np.where(joined, merges.rank(symbols[changed], symbols[changed + 1]), _NEVER)
