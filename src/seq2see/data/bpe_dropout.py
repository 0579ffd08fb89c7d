"""BPE-dropout: segments the same sentence differently each epoch, so that a model learns how words are spelt.

A word is merged from its bytes as usual, but at each step every possible merge is dropped with some probability; when
none is left, the word is finished (Provilkov et al. 2020). The version in `tokenizers` cannot be seeded. This one draws
each number from (seed, epoch, side, sentence, word, step, position), so the segmentation of a sentence does not depend
on its batch. It merges all words of a batch at once: one round of array operations merges one pair in every word.

Shapes: N symbols (initially bytes) of all words concatenated, C candidate pairs, W words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from seq2see.tensors.rng import Hashes, seed_hashes, splitmix64

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]

_NO_RULE = np.int64(2**31 - 1)  # the rank of a pair that no merge rule joins


@dataclass(frozen=True)
class BpeDropout:
    """The dropout settings of one epoch. `side` (0 or 1) gives source and target independent random numbers."""

    probability: float
    seed: int
    epoch: int
    side: int = 0


@dataclass(frozen=True)
class MergeRules:
    """The merge rules as arrays: rule `r` merges a pair into `results[r]`."""

    pairs: Int64Array  # [rules] left · vocab_size + right, ascending
    ranks: Int64Array  # [rules] the rule that merges each pair
    results: Int32Array  # [rules] the token that each rule produces
    vocab_size: int

    @classmethod
    def from_triples(cls, triples: Sequence[tuple[int, int, int]], vocab_size: int) -> Self:
        """Builds the rules from (left, right, result) in order of priority."""
        left, right, results = np.array(triples, dtype=np.int64).reshape(-1, 3).T
        pairs = left * vocab_size + right
        ranks = np.argsort(pairs)
        return cls(pairs[ranks], ranks, results.astype(np.int32), vocab_size)

    def rank(self, left: Int32Array, right: Int32Array) -> Int64Array:
        """Returns the rule that merges each pair, or _NO_RULE."""
        if not len(self.pairs):
            return np.full(len(left), _NO_RULE)
        pairs = left.astype(np.int64) * self.vocab_size + right
        found = np.minimum(np.searchsorted(self.pairs, pairs), len(self.pairs) - 1)
        return np.where(self.pairs[found] == pairs, self.ranks[found], _NO_RULE)


def word_seeds(dropout: BpeDropout, sentences: Int64Array, words: Int64Array) -> Hashes:
    """Returns one random number per word, [W], from its sentence index and its index in the sentence."""
    seeds = seed_hashes(len(words), dropout.seed, dropout.epoch, dropout.side)
    return splitmix64(splitmix64(seeds + sentences.astype(np.uint64)) + words.astype(np.uint64))


def merge(
    symbols: Int32Array, words: Int64Array, seeds: Hashes, rules: MergeRules, probability: float
) -> tuple[Int32Array, Int64Array]:
    """Merges the symbols of all words, [N], given the word index of each; returns the same two arrays, shortened."""
    threshold = np.uint64(round(probability * 2**32))  # a merge is dropped if the upper 32 bits of its number are below
    origins = np.arange(len(symbols))  # [N] the index of each symbol's first byte
    heads = np.flatnonzero(np.r_[True, words[1:] != words[:-1]])  # [W]
    keys = seeds[words] + (origins - heads[words]).astype(np.uint64)  # [N] random keys: the word and the index in it
    results = np.full(len(symbols), -1, dtype=np.int32)  # [N] finished symbols, at their origins

    active, owners, ranks = symbols.copy(), words, np.full(len(symbols), _NO_RULE)
    _update_ranks(ranks, origins, active, owners, rules)
    step = 0
    while True:
        pairs = np.flatnonzero(ranks != _NO_RULE)  # [C]
        pairs = pairs[splitmix64(keys[pairs] + np.uint64(step << 32)) >> np.uint64(32) >= threshold]
        # A word whose candidate merges were all dropped is finished; they are not drawn again in the next step.
        unfinished = np.zeros(len(seeds), dtype=bool)
        unfinished[owners[pairs]] = True
        kept = unfinished[owners]
        results[origins[~kept]] = active[~kept]
        if not len(pairs):
            return results[results >= 0], words[results >= 0]

        best = _best_pair_per_word(pairs, ranks[pairs], owners[pairs])  # [unfinished words] the pair to merge
        active[best] = rules.results[ranks[best]]
        kept[best + 1] = False
        best = np.cumsum(kept)[best] - 1  # re-indexed into the symbols kept
        active, owners, ranks, origins, keys = active[kept], owners[kept], ranks[kept], origins[kept], keys[kept]
        for changed in (best, best[best > 0] - 1):
            _update_ranks(ranks, changed, active, owners, rules)
        step += 1


def _best_pair_per_word(pairs: Int64Array, ranks: Int64Array, owners: Int64Array) -> Int64Array:
    """Returns the pair with the lowest rank in each word; of equal ranks, the leftmost."""
    heads = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
    return np.minimum.reduceat((ranks << 32) | pairs, heads) & 0xFFFFFFFF


def _update_ranks(
    ranks: Int64Array, changed: Int64Array, symbols: Int32Array, words: Int64Array, rules: MergeRules
) -> None:
    """Looks up the ranks of the pairs that begin at the changed symbols."""
    ranks[changed] = _NO_RULE
    changed = changed[changed < len(symbols) - 1]
    same_word = words[changed] == words[changed + 1]
    ranks[changed] = np.where(same_word, rules.rank(symbols[changed], symbols[changed + 1]), _NO_RULE)
