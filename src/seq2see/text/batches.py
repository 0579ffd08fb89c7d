"""Batches out of a store of tokens: pairs packed to a token budget, or text in blocks of the context length.

A batch is a handful of numpy arrays whose sequences lie end to end, and becomes tensors at the very end. Batches are
numbered through the epoch: process r of w takes numbers r, r + w, r + 2w, …, from any number on. If the last round is
not complete, the processes without a batch get an idle one, in which nothing counts: all make the same number of steps,
and every sentence is met exactly once an epoch.

Shapes: U source tokens and T target tokens in a batch, S sequences.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from seq2see.errors import UserError
from seq2see.rng import draws
from seq2see.text.batch_plan import Budget, Plan, budget_in_ratio, fitted, most_sentences, plan
from seq2see.text.store import Side, Store
from seq2see.text.tokenizer import Tokenizer, ranges

if TYPE_CHECKING:
    import torch

    from seq2see.layout import Packed

Longs = NDArray[np.int64]

IGNORED = -100  # the target of a position that does not count; torch's own choice
_SHORTEST_BUCKET = 16


@dataclass(frozen=True)
class Sequences:
    """Sequences end to end."""

    tokens: Longs  # [T]
    lengths: Longs  # [S]
    longest: int  # of the lengths, or that rounded up

    def part(self, first: int, end: int) -> "Sequences":
        bounds = np.concatenate([[0], np.cumsum(self.lengths)])
        return Sequences(self.tokens[bounds[first] : bounds[end]], self.lengths[first:end], self.longest)


@dataclass(frozen=True)
class Shape:
    """What static batches are filled up to."""

    source: int  # U
    target: int  # T
    sequences: int  # S
    longest: int  # no sequence is longer


@dataclass(frozen=True)
class Batch:
    """What the model reads and what it should say. A language model has no source."""

    source: Sequences | None
    inputs: Sequences  # <start> y1 y2 …
    targets: Longs  # [T] y1 y2 … <end>, and IGNORED where nothing counts
    sentences: Longs  # which sentences of the corpus these are, or blocks of the text

    @property
    def count(self) -> int:
        """Targets that count."""
        return int((self.targets != IGNORED).sum())

    def halves(self) -> list["Batch"]:
        """The batch as two of about half its sequences, for a device that cannot hold it; one sequence stays whole."""
        count = len(self.inputs.lengths)
        if count < 2:
            return [self]
        middle = count // 2
        return [self._part(0, middle), self._part(middle, count)]

    def _part(self, first: int, end: int) -> "Batch":
        source = None if self.source is None else self.source.part(first, end)
        bounds = np.concatenate([[0], np.cumsum(self.inputs.lengths)])
        targets = self.targets[bounds[first] : bounds[end]]
        return Batch(source, self.inputs.part(first, end), targets, self.sentences)

    def to(self, device: "torch.device | str" = "cpu") -> "TensorBatch":
        """The batch as tensors; to a GPU they travel from pinned memory, without anybody waiting."""
        import torch

        source = None if self.source is None else _packed(self.source, torch.device(device))
        inputs = _packed(self.inputs, torch.device(device))
        return TensorBatch(source, inputs, _moved(torch.from_numpy(self.targets), torch.device(device)), self.count)


@dataclass(frozen=True)
class TensorBatch:
    """`Batch` as the model takes it: model(source, inputs), or model(inputs) for a language model."""

    source: "Packed | None"
    inputs: "Packed"
    targets: "torch.Tensor"  # [T] int64
    count: int


def _packed(sequences: Sequences, device: "torch.device") -> "Packed":
    """As `Packed`, whose layout is computed here as `Layout.of` does, but without waking torch's threads for it."""
    import torch

    from seq2see.layout import Layout, Packed

    lengths, longest = sequences.lengths, sequences.longest
    starts = np.concatenate([[0], np.cumsum(lengths)])
    owners = np.repeat(np.arange(len(lengths)), lengths)  # [T] the sequence of each token
    positions = np.arange(len(owners)) - starts[owners]
    real = np.arange(longest) < lengths[:, None]  # [S, longest]
    arrays = (sequences.tokens, starts.astype(np.int32), positions, owners * longest + positions, real)
    tokens, *tables = (_moved(torch.from_numpy(array), device) for array in arrays)
    return Packed(tokens, Layout(tables[0], tables[1], tables[2], tables[3], longest))


def _moved(tensor: "torch.Tensor", device: "torch.device") -> "torch.Tensor":
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Batches(ABC):
    """The batches of every epoch, by number."""

    @abstractmethod
    def count(self, epoch: int) -> int:
        """How many batches this epoch has."""

    @abstractmethod
    def batch(self, epoch: int, number: int) -> Batch:
        """One batch; the idle one, of no sentences, if the epoch has fewer."""

    def share(self, epoch: int, first: int = 0, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """The batches of one process from batch `first` of the epoch on."""
        for number in range(first, self.count(epoch), world):
            yield self.batch(epoch, number + rank)


class PairBatches(Batches):
    """Sentence pairs of like length, packed to a budget of tokens a side.

    `tokens` is the target's budget at most; the source's is in the corpus's own ratio. A pair longer than `longest` on
    either side, or than a budget, is an error, or with `too_long="drop"` left out and counted in `dropped`. With
    `static`, all batches have the same shapes: the rest of each budget is filled with sequences that do not count, and
    `longest` takes few values.
    """

    def __init__(
        self, store: Store, tokens: int, tokenizer: Tokenizer, *, seed: int = 0, longest: int = 1024,
        too_long: Literal["error", "drop"] = "error", static: bool = False,
    ) -> None:  # fmt: skip
        self.source, self.target = store.sides
        self.start, self.pad, self.seed, self.static = tokenizer.start, tokenizer.pad, seed, static
        source, target = self.source.lengths, self.target.lengths
        short = (source <= longest) & (target <= longest)
        budget = budget_in_ratio(source[short], target[short], tokens)
        kept = short & (source <= budget.source) & (target <= budget.target)
        self.kept, self.dropped = np.flatnonzero(kept), np.flatnonzero(~kept)
        if len(self.dropped) and too_long == "error":
            raise _too_long(source, target, self.dropped, budget, longest)
        if not len(self.kept):
            raise UserError(f"every sentence pair is too long for batches of {tokens:,} tokens: take more tokens")
        self.lengths = source[kept], target[kept]
        self.budget = fitted(*self.lengths, budget)
        # Room for the sequences that fill up a batch: so many that none is too long, each with a source to look at.
        spare = -(-self.budget.target // longest)
        sequences = most_sentences(*self.lengths, self.budget)
        sequences += max(spare, -(-(self.budget.source + spare) // longest))
        self.shape = Shape(self.budget.source + spare, self.budget.target, sequences, longest)
        self._plan = lru_cache(1)(self._make_plan)

    def _make_plan(self, epoch: int) -> Plan:
        return plan(*self.lengths, self.budget, self.seed, epoch)

    def count(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def fill(self, epoch: int) -> float:
        """The part of all positions of an epoch's static batches that holds real tokens."""
        real = sum(int(side.sum(dtype=np.int64)) for side in self.lengths)
        return real / (self.count(epoch) * (self.shape.source + self.shape.target))

    def batch(self, epoch: int, number: int) -> Batch:
        epoch_plan = self._plan(epoch)
        chosen = epoch_plan[number] if number < len(epoch_plan) else np.zeros(0, dtype=np.int64)
        sentences = self.kept[chosen]
        source, source_lengths = _gather(self.source, sentences)
        targets, lengths = _gather(self.target, sentences)
        inputs = _shifted(targets, np.cumsum(lengths) - lengths, self.start)
        batch = Batch(
            Sequences(source, source_lengths, int(source_lengths.max(initial=0))),
            Sequences(inputs, lengths, int(lengths.max(initial=0))),
            targets, sentences,
        )  # fmt: skip
        if self.static or not len(sentences):
            return _filled_up(batch, self.shape if self.static else Shape(1, 1, 1, 1), self.pad)
        return batch


class TextBatches(Batches):
    """Text in blocks of the context length that run on across documents, the blocks shuffled.

    Each document begins with `<start>` and ends with `<end>`, and every token of the text is a target once an epoch.
    With `within_documents`, attention stops where a document does: each document of a block is a sequence of its own.
    Where the blocks begin is drawn anew each epoch, so the first one and the last are shorter.
    """

    def __init__(
        self, store: Store, tokens: int, tokenizer: Tokenizer, *, context: int, seed: int = 0,
        within_documents: bool = False, static: bool = False,
    ) -> None:  # fmt: skip
        if tokens < context:
            raise UserError(f"a batch of {tokens:,} tokens cannot hold one block of {context:,}: take more tokens")
        (self.text,) = store.sides
        self.start, self.pad, self.seed, self.static = tokenizer.start, tokenizer.pad, seed, static
        self.within_documents = within_documents
        self.context = min(context, len(self.text.tokens))
        self.blocks = min(tokens // self.context, -(-len(self.text.tokens) // self.context))  # in a batch
        begun = _most_starts(self.text.offsets, self.context) if within_documents else 0
        # Two more for what the first and the last block of the text lack.
        self.shape = Shape(0, self.blocks * self.context, self.blocks * (1 + begun) + 2, self.context)
        self._order = lru_cache(1)(self._make_order)

    def _phase(self, epoch: int) -> int:
        """Tokens by which the first block is shorter than the others."""
        if self.context == len(self.text.tokens):
            return 0
        return int(draws(1, self.seed, epoch, 0)[0] % np.uint64(self.context))

    def _make_order(self, epoch: int) -> Longs:
        blocks = -(-(len(self.text.tokens) + self._phase(epoch)) // self.context)
        return np.argsort(draws(blocks, self.seed, epoch, 1), kind="stable")

    def count(self, epoch: int) -> int:
        return -(-len(self._order(epoch)) // self.blocks)

    def batch(self, epoch: int, number: int) -> Batch:
        blocks = self._order(epoch)[number * self.blocks : (number + 1) * self.blocks]
        begins = blocks * self.context - self._phase(epoch)
        ends = np.minimum(begins + self.context, len(self.text.tokens))
        begins = np.maximum(begins, 0)
        sizes = ends - begins
        places = ranges(begins, sizes)  # [T] in the text
        targets = self.text.tokens[places].astype(np.int64)

        # Documents that begin in a block, and where in the batch.
        low, high = np.searchsorted(self.text.offsets[:-1], begins), np.searchsorted(self.text.offsets[:-1], ends)
        shift = np.repeat(np.cumsum(sizes) - sizes - begins, high - low)
        starts = self.text.offsets[ranges(low, high - low)] + shift
        inputs = self.text.tokens[places - 1].astype(np.int64)
        inputs[starts] = self.start

        lengths = sizes
        if self.within_documents:
            cuts = np.union1d(np.cumsum(sizes) - sizes, starts)
            lengths = np.diff(np.append(cuts, len(targets)))
        batch = Batch(None, Sequences(inputs, lengths, int(lengths.max(initial=0))), targets, blocks)
        if self.static or not len(blocks):
            return _filled_up(batch, self.shape if self.static else Shape(0, 1, 1, 1), self.pad)
        return batch


def _gather(side: Side, sentences: Longs) -> tuple[Longs, Longs]:
    """The tokens of some sentences end to end, and their lengths."""
    starts = side.offsets[sentences]
    lengths = side.offsets[sentences + 1] - starts
    return side.tokens[ranges(starts, lengths)].astype(np.int64), lengths


def _shifted(targets: Longs, starts: Longs, start: int) -> Longs:
    """What the decoder has read when it should say each target."""
    inputs = np.roll(targets, 1)
    inputs[starts] = start
    return inputs


def _filled_up(batch: Batch, shape: Shape, pad: int) -> Batch:
    """The batch in this shape: what is added are sequences that do not count."""
    room = shape.target - len(batch.targets)
    source_room = 0 if batch.source is None else shape.source - len(batch.source.tokens)
    # As many as keep them from being longer than the batch's own, if there is place for them and a source for each.
    count = -(-room // _bucket(batch.inputs.longest, shape.longest))
    places = shape.sequences - len(batch.inputs.lengths)
    if batch.source is not None:
        count = max(count, -(-source_room // _bucket(batch.source.longest, shape.longest)))
        places = min(places, source_room)
    count = min(count, places)
    return Batch(
        None if batch.source is None else _extended(batch.source, source_room, count, shape, pad),
        _extended(batch.inputs, room, count, shape, pad),
        np.append(batch.targets, np.full(room, IGNORED)),
        batch.sentences,
    )


def _extended(side: Sequences, tokens: int, count: int, shape: Shape, pad: int) -> Sequences:
    """`tokens` more in `count` sequences of about equal length, and then empty sequences."""
    used = len(side.lengths)
    lengths = np.zeros(shape.sequences, dtype=np.int64)
    lengths[:used] = side.lengths
    if count:
        lengths[used : used + count] = tokens // count
        lengths[used : used + tokens % count] += 1
    longest = _bucket(int(lengths.max()), shape.longest)
    return Sequences(np.append(side.tokens, np.full(tokens, pad)), lengths, longest)


def _bucket(length: int, longest: int) -> int:
    """16, 32, 64, … or the longest of all: compiled code should meet few different ones."""
    bucket = _SHORTEST_BUCKET
    while bucket < length:
        bucket *= 2
    return min(bucket, longest)


def _most_starts(offsets: Longs, window: int) -> int:
    """The most documents that begin within so many tokens."""
    starts = offsets[:-1]
    return int((np.searchsorted(starts, starts + window) - np.arange(len(starts))).max(initial=0))


def _too_long(
    source: NDArray[np.int32], target: NDArray[np.int32], dropped: Longs, budget: Budget, longest: int
) -> UserError:
    first = dropped[0]
    return UserError(
        f"{len(dropped):,} of {len(source):,} sentence pairs are too long, the first number {first + 1:,} with "
        f"{source[first]:,} and {target[first]:,} tokens where {min(longest, budget.source):,} and "
        f"{min(longest, budget.target):,} fit: leave them out, or raise the model's longest or the tokens of a batch"
    )
