"""Prompts in static shapes: the pass over the prompts and sources that join a session, so that it can be captured.

The model never sees padding, so what fills a batch up to its shape are sequences of their own, whose keys and values go to a
spare row of the cache:

    n = 2, L = 4:    I like tea · | Hello · · ·     →    I like tea  Hello  ·  · · ·        lengths 3 1, 1 3
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import torch
from torch import Tensor

from seq2see.data.layout import Layout, Packed, Tokens

MAX_TOKENS = 8192  # in a static shape: the kernels of larger passes take longer than their launches
SMALL = 1024  # tokens that may be added to a pass; more only up to twice its size
MAX_VALUES = 5 * MAX_TOKENS  # of `pack`, if each sequence has one token


@dataclass(frozen=True)
class PromptShape:
    """The static shape of a pass: n prompts and, with an encoder, their n sources."""

    sequences: int  # n
    lengths: tuple[int, ...]  # L of prompts, and of sources

    @classmethod
    def of(cls, sides: Sequence[Sequence[Tokens]], limits: Sequence[int]) -> Self | None:
        """Returns the smallest shape with lengths within the limits, or None: it would add too many tokens, or none fits."""
        longest = [max(len(each) for each in side) for side in sides]
        lengths = (min(power_of_two(length), limit) for length, limit in zip(longest, limits, strict=True))
        shape = cls(power_of_two(len(sides[0])), tuple(lengths))
        fits = all(length <= own for length, own in zip(longest, shape.lengths, strict=True))
        total, tokens = shape.sequences * sum(shape.lengths), sum(len(each) for side in sides for each in side)
        return shape if fits and total <= min(MAX_TOKENS, 2 * tokens + SMALL) else None

    def pack(self, rows: Sequence[int], spare_row: int, sides: Sequence[Sequence[Tokens]]) -> Tensor:
        """Returns all that differs between passes of this shape as one array, which is copied to the device at once."""
        n, values = self.sequences, _fill(rows, 2 * self.sequences, spare_row)
        for side, length in zip(sides, self.lengths, strict=True):
            values += _fill([len(each) for each in side], n) + _fill([*chain.from_iterable(side)], n * length)
        return torch.tensor(values)

    def unpack(self, values: Tensor) -> tuple[Tensor, list[Packed]]:
        """Returns the row of each sequence, and the sides."""
        n = self.sequences
        rows, *sides = values.split([2 * n, *(n * (1 + length) for length in self.lengths)])
        return rows, [_packed(side[:n], side[n:]) for side in sides]


def _fill(values: Sequence[int], size: int, filler: int = 0) -> list[int]:
    return [*values, *[filler] * (size - len(values))]


def _packed(lengths: Tensor, tokens: Tensor) -> Packed:
    """Packs sequences of these lengths, and after them what fills each of them up."""
    longest = len(tokens) // len(lengths)
    lengths = torch.cat([lengths, longest - lengths])
    return Packed(tokens, Layout.without_sync(lengths, len(tokens), longest))


def power_of_two(n: int) -> int:
    """Returns the smallest power of two that is at least n; 1 for 0."""
    return 1 << max(n - 1, 0).bit_length()
