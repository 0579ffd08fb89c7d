"""One batch: numpy arrays in which sequences are concatenated without padding; it becomes tensors at the very end.

A static batch has a fixed shape, for compiled code and CUDA graphs: the rest of it is padding sequences, whose targets are
ignored.

Shapes: U source tokens and T target tokens in a batch, S sequences.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seq2see.data.batch_plan import Int64Array
from seq2see.data.store import TokenArray

if TYPE_CHECKING:
    import torch

    from seq2see.data.layout import Packed

IGNORE_INDEX = -100  # the target of a position that the loss ignores; PyTorch's default
_MIN_BUCKET = 16


@dataclass(frozen=True)
class Sequences:
    """Concatenated sequences."""

    tokens: TokenArray  # [T] int64 ids; of pictures and sounds, [T, F] numbers
    lengths: Int64Array  # [S]
    max_length: int  # of this batch, or of all batches if they are static
    batch_max_length: int = 0  # in static batches: the maximum length of this one, rounded up

    def slice(self, first: int, end: int) -> "Sequences":
        bounds = np.concatenate([[0], np.cumsum(self.lengths)])
        tokens = self.tokens[bounds[first] : bounds[end]]
        return Sequences(tokens, self.lengths[first:end], self.max_length, self.batch_max_length)


@dataclass(frozen=True)
class BatchShape:
    """The fixed shape that static batches are padded to."""

    source: int  # U
    target: int  # T
    sequences: int  # S
    max_length: int  # of any sequence


@dataclass(frozen=True)
class Batch:
    """The model's inputs and targets. A language model has no source."""

    source: Sequences | None
    inputs: Sequences  # <start> y1 y2 …; of a classifier, the source
    targets: Int64Array  # [T] y1 y2 … <end>, and IGNORE_INDEX at padding; of a classifier, [S] the classes
    indices: Int64Array  # of the sentences in the corpus, or of the blocks of text

    @property
    def num_targets(self) -> int:
        """The number of targets that the loss counts."""
        return int((self.targets != IGNORE_INDEX).sum())

    def halves(self) -> list["Batch"]:
        """Splits the batch into two of about the same number of tokens, for a device that runs out of memory.

        Padding, which is at the end, is dropped. A single sequence is not split.
        """
        sequence = np.repeat(np.arange(len(self.inputs.lengths)), self._target_lengths)  # [T] of each target
        count = int(sequence[self.targets != IGNORE_INDEX].max(initial=-1)) + 1  # without padding sequences
        if count < 2:
            return [self]
        sizes = self.inputs.lengths[:count] + (0 if self.source is None else self.source.lengths[:count])
        ends = np.cumsum(sizes)
        middle = int(np.abs(ends[:-1] - ends[-1] / 2).argmin()) + 1
        return [self._slice(0, middle), self._slice(middle, count)]

    @property
    def _target_lengths(self) -> Int64Array:
        lengths = self.inputs.lengths
        return lengths if len(self.targets) == len(self.inputs.tokens) else np.ones_like(lengths)

    def _slice(self, first: int, end: int) -> "Batch":
        source = None if self.source is None else self.source.slice(first, end)
        bounds = np.concatenate([[0], np.cumsum(self._target_lengths)])
        targets = self.targets[bounds[first] : bounds[end]]
        return Batch(source, self.inputs.slice(first, end), targets, self.indices)

    def to(self, device: "torch.device | str" = "cpu") -> "TensorBatch":
        """Returns the batch as tensors. Copies to a GPU go through pinned memory and do not block."""
        import torch

        source = None if self.source is None else _pack(self.source, torch.device(device))
        inputs = _pack(self.inputs, torch.device(device))
        targets = _to_device(torch.from_numpy(self.targets), torch.device(device))
        return TensorBatch(source, inputs, targets, self.num_targets)


@dataclass(frozen=True)
class TensorBatch:
    """`Batch` as the model takes it: model(source, inputs), or model(inputs) for a language model."""

    source: "Packed | None"
    inputs: "Packed"
    targets: "torch.Tensor"  # [T] int64
    num_targets: int

    @property
    def model_inputs(self) -> "tuple[Packed, ...]":
        return (self.inputs,) if self.source is None else (self.source, self.inputs)


def _pack(sequences: Sequences, device: "torch.device") -> "Packed":
    """Computes the same layout as `Layout.from_lengths`, but in numpy, which does not start torch's thread pool."""
    import torch

    from seq2see.data.layout import Layout, Packed

    lengths, max_length = sequences.lengths, sequences.max_length
    starts = np.concatenate([[0], np.cumsum(lengths)])
    sequence = np.repeat(np.arange(len(lengths)), lengths)  # [T] the sequence of each token
    positions = np.arange(len(sequence)) - starts[sequence]
    mask = np.arange(max_length) < lengths[:, None]  # [S, max_length]
    arrays = (sequences.tokens, starts.astype(np.int32), positions, sequence * max_length + positions, mask)
    tokens, *tables = (_to_device(torch.from_numpy(array), device) for array in arrays)
    batch_max_length = torch.tensor(sequences.batch_max_length) if sequences.batch_max_length else None
    layout = Layout(tables[0], tables[1], tables[2], tables[3], max_length, batch_max_length=batch_max_length)
    return Packed(tokens, layout)


def _to_device(tensor: "torch.Tensor", device: "torch.device") -> "torch.Tensor":
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def pad_to_shape(batch: Batch, shape: BatchShape, pad: int) -> Batch:
    """Pads the batch to a shape by appending sequences whose targets are ignored."""
    room = shape.target - len(batch.targets)
    source_room = 0 if batch.source is None else shape.source - len(batch.source.tokens)
    # Enough padding sequences that none is longer than the batch's own, if there is room and a source token for each.
    count = -(-room // _bucket(batch.inputs.max_length, shape.max_length))
    available = shape.sequences - len(batch.inputs.lengths)
    if batch.source is not None:
        count = max(count, -(-source_room // _bucket(batch.source.max_length, shape.max_length)))
        available = min(available, source_room)
    count = min(count, available)
    return Batch(
        None if batch.source is None else _append_padding(batch.source, source_room, count, shape, pad),
        _append_padding(batch.inputs, room, count, shape, pad),
        np.append(batch.targets, np.full(room, IGNORE_INDEX)),
        batch.indices,
    )


def _append_padding(side: Sequences, tokens: int, count: int, shape: BatchShape, pad: int) -> Sequences:
    """Appends `tokens` padding tokens in `count` sequences of about equal length, then empty sequences."""
    used = len(side.lengths)
    lengths = np.zeros(shape.sequences, dtype=np.int64)
    lengths[:used] = side.lengths
    if count:
        lengths[used : used + count] = tokens // count
        lengths[used : used + tokens % count] += 1
    batch_max_length = _bucket(int(lengths.max()), shape.max_length)
    padding = np.full((tokens, *side.tokens.shape[1:]), pad, side.tokens.dtype)
    return Sequences(np.concatenate([side.tokens, padding]), lengths, shape.max_length, batch_max_length)


def _bucket(length: int, max_length: int) -> int:
    """Rounds a length up to 16, 32, 64, … or the maximum, so that compiled code sees few different values."""
    bucket = _MIN_BUCKET
    while bucket < length:
        bucket *= 2
    return min(bucket, max_length)
