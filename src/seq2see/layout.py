"""Where each sequence lies in a batch.

The model never sees padding: the vectors of all tokens of a batch lie end to end in one [T, width] tensor, and a
`Layout` says where each sequence starts. Every layer but attention is then a plain map of rows, and attention from one
sequence to another only takes two layouts instead of one.

Shapes: T tokens in the batch, S sequences, L tokens in the longest of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The lengths of the sequences of one batch, in the forms that the layers ask for."""

    starts: Tensor  # [S + 1] int32: where each sequence starts; the last entry is T
    positions: Tensor  # [T] the place of each token in its own sequence, from 0
    slots: Tensor  # [T] the place of each token in a padded [S · L] table
    real: Tensor  # [S, L] true where that padded table holds a token
    longest: int  # L; may be rounded up, so that compiled code meets few different ones
    numbers: Tensor | None = None  # [S] which sentence of the caller's each one is; without it, they are in order

    @classmethod
    def of(cls, lengths: Sequence[int] | Tensor, longest: int = 0) -> Self:
        """The layout of sequences of these lengths. An empty sequence is allowed where nothing attends to it."""
        lengths = torch.as_tensor(lengths, dtype=torch.int64)
        longest = max(longest, int(lengths.max()) if len(lengths) else 0)
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        sequences = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)  # [T]
        positions = torch.arange(len(sequences), device=lengths.device) - starts[sequences]
        return cls(
            starts=starts.int(),
            positions=positions,
            slots=sequences * longest + positions,
            real=torch.arange(longest, device=lengths.device) < lengths[:, None],
            longest=longest,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Tensor:
        return self.starts.diff()  # [S]

    @property
    def sentences(self) -> Tensor:
        """The caller's number of each sequence, [S]."""
        return torch.arange(len(self), device=self.starts.device) if self.numbers is None else self.numbers

    @property
    def is_even(self) -> bool:
        """All sequences are of the same length, so that packed and padded are the same memory."""
        return len(self.positions) == len(self) * self.longest

    def slice(self, sequence: int) -> slice:
        """The rows of one sequence."""
        return slice(int(self.starts[sequence]), int(self.starts[sequence + 1]))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        moved: dict[str, Any] = {
            f.name: getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)[:4]
        }
        numbers = None if self.numbers is None else self.numbers.to(device, non_blocking=non_blocking)
        return type(self)(**moved, longest=self.longest, numbers=numbers)

    def pad(self, x: Tensor) -> Tensor:
        """[T, ...] → [S, L, ...], with zeros where there is no token."""
        if self.is_even:
            return x.unflatten(0, (len(self), self.longest))
        table = x.new_zeros(len(self) * self.longest, *x.shape[1:])
        return table.index_copy_(0, self.slots, x).unflatten(0, (len(self), self.longest))

    def unpad(self, x: Tensor) -> Tensor:
        """[S, L, ...] → [T, ...]: the inverse of `pad`."""
        if self.is_even:
            return x.flatten(0, 1)
        return _TakeOnce.apply(x.flatten(0, 1), self.slots)


class _TakeOnce(torch.autograd.Function):
    """x[rows] for rows that differ: its gradient is then a copy, where index_select's own must add one row at a time."""

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
    """Token ids end to end, with their layout: what the model takes in."""

    tokens: Tensor  # [T] int64
    layout: Layout

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Self:
        tokens = torch.tensor([token for sequence in sequences for token in sequence], dtype=torch.int64)
        return cls(tokens, Layout.of([len(sequence) for sequence in sequences])).to(device)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return type(self)(self.tokens.to(device, non_blocking=non_blocking), self.layout.to(device, non_blocking))
