"""Packed batches: where each sequence starts.

The model never sees padding: the vectors of all tokens of a batch lie end to end in one [T, width] tensor, and a
`Layout` says where each sequence starts. Every layer except attention then works row by row, and attention from one
sequence to another only needs two layouts.

Shapes: T tokens in the batch, S sequences, L tokens in the longest sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Tokens = Sequence[int] | NDArray[Any]  # [T] ids; of pictures and sounds, [T, F] numbers


@dataclass(frozen=True)
class Layout:
    """The sequence lengths of one batch, in the forms the layers need."""

    starts: Tensor  # [S + 1] int32: start of each sequence; the last entry is T
    positions: Tensor  # [T] position of each token in its own sequence, from 0
    padded_index: Tensor  # [T] index of each token in a padded [S · L] table
    mask: Tensor  # [S, L] true where the padded table holds a token
    max_length: int  # L; may be rounded up to limit recompilation
    sequence_ids: Tensor | None = None  # [S] the caller's index of each sequence; None: 0, 1, 2, …
    # The maximum length in this batch, if max_length is a bound for all batches. A CPU scalar: compiled code passes it to a
    # kernel without specialising on its value.
    batch_max_length: Tensor | None = None

    @classmethod
    def from_lengths(cls, lengths: Sequence[int] | Tensor, max_length: int = 0) -> Self:
        """Lays out sequences of these lengths. Empty sequences are allowed if nothing attends to them."""
        lengths = torch.as_tensor(lengths, dtype=torch.int64)
        return cls.without_sync(lengths, int(lengths.sum()), max(max_length, int(lengths.max()) if len(lengths) else 0))

    @classmethod
    def without_sync(cls, lengths: Tensor, total: int, max_length: int, batch_max_length: Tensor | None = None) -> Self:
        """Lays out `total` tokens in sequences of at most `max_length`, without a device sync."""
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        indices = torch.arange(len(lengths), device=lengths.device)
        sequences = indices.repeat_interleave(lengths, output_size=total)  # [T]
        positions = torch.arange(total, device=lengths.device) - starts[sequences]
        return cls(
            starts=starts.int(),
            positions=positions,
            padded_index=sequences * max_length + positions,
            mask=torch.arange(max_length, device=lengths.device) < lengths[:, None],
            max_length=max_length,
            batch_max_length=batch_max_length,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Tensor:
        return self.starts.diff()  # [S]

    @property
    def resolved_sequence_ids(self) -> Tensor:
        """The caller's index of each sequence, [S]."""
        return torch.arange(len(self), device=self.starts.device) if self.sequence_ids is None else self.sequence_ids

    @property
    def is_uniform(self) -> bool:
        """Whether all sequences have length L, so that packed and padded tensors share one memory layout."""
        return len(self.positions) == len(self) * self.max_length

    def first_tokens(self) -> Self:
        """Returns the layout of the first token of each sequence."""
        return self.without_sync(torch.ones_like(self.starts[1:], dtype=torch.int64), len(self), 1)

    def slice(self, sequence: int) -> slice:
        """The rows of one sequence."""
        return slice(int(self.starts[sequence]), int(self.starts[sequence + 1]))

    def to(self, device: torch.device | str) -> Self:
        moved: dict[str, Any] = {f.name: getattr(self, f.name).to(device) for f in fields(self)[:4]}
        ids = None if self.sequence_ids is None else self.sequence_ids.to(device)
        return replace(self, **moved, sequence_ids=ids)

    def pad(self, x: Tensor) -> Tensor:
        """[T, ...] → [S, L, ...], zero-padded."""
        if self.is_uniform:
            return x.unflatten(0, (len(self), self.max_length))
        table = x.new_zeros(len(self) * self.max_length, *x.shape[1:])
        return table.index_copy_(0, self.padded_index, x).unflatten(0, (len(self), self.max_length))

    def unpad(self, x: Tensor) -> Tensor:
        """[S, L, ...] → [T, ...]: the inverse of `pad`."""
        if self.is_uniform:
            return x.flatten(0, 1)
        return _SelectUniqueRows.apply(x.flatten(0, 1), self.padded_index)


class _SelectUniqueRows(torch.autograd.Function):
    """x[rows] for distinct rows: the gradient is then a copy, whereas index_select's gradient must accumulate."""

    @staticmethod
    def forward(x: Tensor, rows: Tensor) -> Tensor:
        return x.index_select(0, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        x, rows = inputs
        ctx.save_for_backward(rows)
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.shape).index_copy_(0, rows, gradient), None


@dataclass(frozen=True)
class Packed:
    """Tokens end to end with their layout: the input of a model."""

    tokens: Tensor  # [T] int64 ids; of pictures and sounds, [T, F] numbers
    layout: Layout

    @classmethod
    def from_sequences(
        cls, sequences: Sequence[Tokens], device: torch.device | str = "cpu", ids: Sequence[int] | None = None
    ) -> Self:
        """Packs sequences; `ids` are the caller's, if these are not sequences 0, 1, 2, …"""
        if sequences and isinstance(sequences[0], np.ndarray):
            tokens = torch.from_numpy(np.concatenate(sequences))
            tokens = tokens if tokens.dim() > 1 else tokens.long()
        else:
            tokens = torch.tensor([token for sequence in sequences for token in sequence], dtype=torch.int64)
        lengths = [len(sequence) for sequence in sequences]
        layout = Layout.without_sync(torch.tensor(lengths, dtype=torch.int64), len(tokens), max(lengths, default=0))
        if ids is not None:
            layout = replace(layout, sequence_ids=torch.tensor(ids))
        packed = cls(tokens, layout)
        return packed if torch.device(device).type == "cpu" else packed.to(device)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.tokens.to(device), self.layout.to(device))
