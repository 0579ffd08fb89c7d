"""Batches from a token store: sentence pairs packed to a token budget, or text in blocks of the context length.

Batches are numbered within an epoch: process r of w takes numbers r, r + w, r + 2w, …, starting at any number. If
the last round is incomplete, the remaining processes get a dummy batch whose targets are all ignored, so that all
processes run the same number of steps and every sentence is seen exactly once per epoch.

Shapes: U source tokens and T target tokens in a batch, S sequences.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seq2see.data.batch import IGNORE_INDEX, Batch, BatchShape, Sequences, pad_to_shape
from seq2see.data.batch_plan import (
    Budget,
    Int64Array,
    balance_budget,
    limit_sentences,
    plan_epoch,
    proportional_budget,
)
from seq2see.data.store import TokenArray, TokenizedSide, TokenStore
from seq2see.data.tokenizer import Tokenizer, concat_ranges
from seq2see.errors import UserError
from seq2see.tensors.rng import random_uint64

# Changes the source of some sentences in training: (tokens, lengths, epoch, indices of the sentences) → tokens.
Augmentation = Callable[[TokenArray, Int64Array, int, Int64Array], TokenArray]


class Batches(ABC):
    """The batches of every epoch, by number."""

    shape: BatchShape  # of static batches

    @abstractmethod
    def num_batches(self, epoch: int) -> int: ...

    @abstractmethod
    def batch(self, epoch: int, number: int) -> Batch:
        """Returns one batch; a dummy batch without sentences if the epoch has fewer."""

    def iterate(self, epoch: int, first: int = 0, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """Yields the batches of one process, starting at batch `first` of the epoch."""
        for number in range(first, self.num_batches(epoch), world_size):
            yield self.batch(epoch, number + rank)


class PairBatches(Batches):
    """Sentence pairs of similar length, packed to a token budget per side.

    `tokens` is the maximum target budget; the source budget follows the ratio of the corpus. A pair with more than
    `max_length` tokens, or `max_source_length` in the source, or more than a budget, is an error; with `too_long="drop"` it
    is left out and listed in `dropped`. With `static`, all batches have the same shape: the rest of each budget is filled
    with padding sequences, and batches differ only in `batch_max_length`. With `like`, they have the shape of those batches.
    `augment` changes the sources.
    """

    def __init__(
        self,
        store: TokenStore,
        tokens: int,
        tokenizer: Tokenizer,
        *,
        seed: int = 0,
        max_length: int = 1024,
        max_source_length: int = 0,
        too_long: Literal["error", "drop"] = "error",
        static: bool = False,
        like: "PairBatches | None" = None,
        augment: Augmentation | None = None,
    ) -> None:
        self.source, self.target = store.sides
        self.start, self.pad, self.static = tokenizer.start, tokenizer.pad, static
        self.augment = augment
        source, target = self.source.lengths, self.target.lengths
        limits = max_source_length or max_length, max_length
        max_length = max(limits)
        short = (source <= limits[0]) & (target <= limits[1])
        budget = like.budget if like else proportional_budget(source[short], target[short], tokens)
        kept = short & (source <= budget.source) & (target <= budget.target)
        self.kept, self.dropped = np.flatnonzero(kept), np.flatnonzero(~kept)
        if len(self.dropped) and too_long == "error":
            raise _too_long_error(source, target, self.dropped, budget, limits)
        if not len(self.kept):
            raise UserError(f"every sentence pair is too long for batches of {tokens:,} tokens: raise the batch size")
        self.lengths = source[kept], target[kept]
        if not like:
            budget = balance_budget(*self.lengths, budget)
            budget = limit_sentences(*self.lengths, budget) if static else budget
        self.budget: Budget = budget
        # Slots for padding sequences: enough that none exceeds max_length, each with at least one source token.
        spare = -(-self.budget.target // max_length)
        sequences = self.budget.sentences + max(spare, -(-(self.budget.source + spare) // max_length))
        self.shape = BatchShape(self.budget.source + spare, self.budget.target, sequences, max_length)
        self._plan = lru_cache(1)(lambda epoch: plan_epoch(*self.lengths, self.budget, seed, epoch))
        # Two epochs, because the training loop needs the size of its epoch while the prefetch thread plans the next.
        self._num_batches = lru_cache(2)(lambda epoch: len(self._plan(epoch)))

    def num_batches(self, epoch: int) -> int:
        return self._num_batches(epoch)

    def batch(self, epoch: int, number: int) -> Batch:
        plan = self._plan(epoch)
        indices = self.kept[plan[number] if number < len(plan) else np.zeros(0, dtype=np.int64)]
        source, source_lengths = _gather(self.source, indices)
        if self.augment is not None and len(indices):
            source = self.augment(source, source_lengths, epoch, indices)
        targets, lengths = _gather(self.target, indices)
        inputs = np.roll(targets, 1)  # each sequence shifted right by one, with <start> in front
        inputs[np.cumsum(lengths) - lengths] = self.start
        batch = Batch(
            Sequences(source, source_lengths, int(source_lengths.max(initial=0))),
            Sequences(inputs, lengths, int(lengths.max(initial=0))),
            targets,
            indices,
        )
        if self.static or not len(indices):
            return pad_to_shape(batch, self.shape if self.static else BatchShape(1, 1, 1, 1), self.pad)
        return batch


class ClassBatches(PairBatches):
    """Batches for a classifier: it reads the sources, and the targets are the first token of each text, its only one."""

    def batch(self, epoch: int, number: int) -> Batch:
        batch = super().batch(epoch, number)
        assert batch.source is not None
        firsts = np.cumsum(batch.inputs.lengths) - batch.inputs.lengths
        return Batch(None, batch.source, batch.targets[firsts], batch.indices)


def require_classes(store: TokenStore) -> None:
    """Raises a UserError unless every text of a store is one token."""
    others = np.flatnonzero(store.sides[1].lengths != 2)  # the class and <end>
    if len(others):
        raise UserError(
            f"a classifier writes one token, but {len(others):,} of {len(store):,} texts have none or several, first "
            f"text {others[0] + 1:,}: use single words and --set text.tokenizer=word"
        )


class TextBatches(Batches):
    """Text in shuffled blocks of the context length, which cross document boundaries.

    Each document begins with `<start>` and ends with `<end>`, and every token is a target once per epoch. With
    `within_documents`, attention does not cross document boundaries: each document in a block is its own sequence. The
    offset of the first block is random in each epoch, so the first and last blocks are shorter.
    """

    def __init__(
        self,
        store: TokenStore,
        tokens: int,
        tokenizer: Tokenizer,
        *,
        context: int,
        seed: int = 0,
        within_documents: bool = False,
        static: bool = False,
        max_documents: int | None = None,
    ) -> None:
        if tokens < context:
            raise UserError(f"a batch of {tokens:,} tokens cannot hold one block of {context:,}: raise the batch size")
        (self.text,) = store.sides
        self.start, self.pad, self.seed, self.static = tokenizer.start, tokenizer.pad, seed, static
        self.within_documents = within_documents
        self.context = min(context, len(self.text.tokens))
        self.blocks = min(tokens // self.context, -(-len(self.text.tokens) // self.context))  # per batch
        if max_documents is None and within_documents:
            max_documents = _max_document_starts(self.text.offsets, self.context)
        documents = max_documents or 0
        # With documents, two more sequences, for padding where the first and last blocks are shorter.
        sequences = self.blocks * (1 + documents) + 2 if within_documents else self.blocks
        self.shape = BatchShape(0, self.blocks * self.context, sequences, self.context)
        self._order = lru_cache(1)(self._make_order)

    def _phase(self, epoch: int) -> int:
        """Returns by how many tokens the first block is shorter than the others."""
        if self.context == len(self.text.tokens):
            return 0
        return int(random_uint64(1, self.seed, epoch, 0)[0] % np.uint64(self.context))

    def _make_order(self, epoch: int) -> Int64Array:
        return np.argsort(random_uint64(self._num_blocks(epoch), self.seed, epoch, 1), kind="stable")

    def _num_blocks(self, epoch: int) -> int:
        return -(-(len(self.text.tokens) + self._phase(epoch)) // self.context)

    def num_batches(self, epoch: int) -> int:
        return -(-self._num_blocks(epoch) // self.blocks)

    def batch(self, epoch: int, number: int) -> Batch:
        blocks = self._order(epoch)[number * self.blocks : (number + 1) * self.blocks]
        begins = blocks * self.context - self._phase(epoch)
        ends = np.minimum(begins + self.context, len(self.text.tokens))
        begins = np.maximum(begins, 0)
        sizes = ends - begins
        indices = concat_ranges(begins, sizes)  # [T] into the text
        targets = self.text.tokens[indices].astype(np.int64)

        # Documents that begin in a block, as indices into the batch.
        low, high = np.searchsorted(self.text.offsets[:-1], begins), np.searchsorted(self.text.offsets[:-1], ends)
        shift = np.repeat(np.cumsum(sizes) - sizes - begins, high - low)
        starts = self.text.offsets[concat_ranges(low, high - low)] + shift
        inputs = self.text.tokens[indices - 1].astype(np.int64)
        inputs[starts] = self.start

        if self.static and not self.within_documents:
            return self._pad_blocks(inputs, targets, sizes, blocks)
        lengths = sizes
        if self.within_documents:
            boundaries = np.union1d(np.cumsum(sizes) - sizes, starts)
            lengths = np.diff(np.append(boundaries, len(targets)))
        batch = Batch(None, Sequences(inputs, lengths, int(lengths.max(initial=0))), targets, blocks)
        if self.static or not len(blocks):
            return pad_to_shape(batch, self.shape if self.static else BatchShape(0, 1, 1, 1), self.pad)
        return batch

    def _pad_blocks(self, inputs: Int64Array, targets: Int64Array, sizes: Int64Array, blocks: Int64Array) -> Batch:
        """Pads every block to the context length, so that packed and padded tensors are the same."""
        indices = concat_ranges(np.arange(len(sizes)) * self.context, sizes)
        padded_inputs, padded_targets = np.full(self.shape.target, self.pad), np.full(self.shape.target, IGNORE_INDEX)
        padded_inputs[indices], padded_targets[indices] = inputs, targets
        lengths = np.full(self.blocks, self.context)
        return Batch(None, Sequences(padded_inputs, lengths, self.context, self.context), padded_targets, blocks)


def _gather(side: TokenizedSide, sentences: Int64Array) -> tuple[TokenArray, Int64Array]:
    """Returns the concatenated tokens of some sentences, and their lengths."""
    starts = side.offsets[sentences]
    lengths = side.offsets[sentences + 1] - starts
    tokens = side.tokens[concat_ranges(starts, lengths)]
    return tokens if tokens.ndim > 1 else tokens.astype(np.int64), lengths


def _max_document_starts(offsets: Int64Array, window: int) -> int:
    """Returns the maximum number of documents that begin within any window of this many tokens."""
    starts = offsets[:-1]
    return int((np.searchsorted(starts, starts + window) - np.arange(len(starts))).max(initial=0))


def _too_long_error(
    source: NDArray[np.int32], target: NDArray[np.int32], dropped: Int64Array, budget: Budget, limits: tuple[int, int]
) -> UserError:
    first = dropped[0]
    return UserError(
        f"{len(dropped):,} of {len(source):,} sentence pairs are too long; the first is pair {first + 1:,} with "
        f"{source[first]:,} source and {target[first]:,} target tokens, but the limits are "
        f"{min(limits[0], budget.source):,} and {min(limits[1], budget.target):,}: leave such pairs out, or raise "
        "max_length or the batch size"
    )
