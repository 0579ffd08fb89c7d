"""Attention on a table that fits on a page, by the model's own `attend_openly`, every step kept.

The lessons that need no model stand on this: a table of features, one row a word, and what the notes do with it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from seq2see.errors import UserError, nearest
from seq2see.inspect.trace import Trace
from seq2see.layout import Layout
from seq2see.model.attention import attend_openly
from seq2see.model.taps import OpenTaps

Numbers = tuple[float, ...]
Table = tuple[Numbers, ...]
Features = Mapping[str, Sequence[float]]  # a word and its numbers


@dataclass(frozen=True)
class Steps:
    """One head of attention, step by step: a row looks, a column is looked at."""

    scores: Table
    scaled: Table
    weights: Table
    output: Table


def attention(queries: Tensor, keys: Tensor, values: Tensor, causal: bool = False) -> Steps:
    """softmax(Q Kᵀ / √d) V of one sentence, [n, d], [m, d] and [m, d]."""
    rows, columns = Layout.of([len(queries)]), Layout.of([len(keys)])
    kept = Trace("relu", only=["*"])
    q, k, v = (x.double()[:, None] for x in (queries, keys, values))  # [n, 1, d]: one head
    attend_openly(q, k, v, rows, columns, causal, taps=OpenTaps(kept, rows=rows, keys=columns))
    scores, scaled, weights = (as_table(kept[name][0, 0]) for name in ("scores", "scaled", "weights"))
    return Steps(scores, scaled, weights, as_table(kept["heads"][:, 0]))


def as_table(numbers: Tensor) -> Table:
    return tuple(tuple(row) for row in numbers.tolist())


def as_tensor(table: Sequence[Sequence[float]], name: str = "the table") -> Tensor:
    """A table that somebody may have edited: rows of the same length, of numbers."""
    widths = {len(row) for row in table}
    if not table or len(widths) != 1 or 0 in widths:
        counts = ", ".join(map(str, sorted(widths))) or "none"
        raise UserError(f"{name} has rows of {counts} numbers: every row needs the same number of them")
    for row in table:
        for number in row:
            if not isinstance(number, Real) or isinstance(number, bool) or not math.isfinite(number):
                raise UserError(f"{name} has {number!r} in it, where a number is expected")
    return torch.tensor([list(row) for row in table], dtype=torch.float64)


def vectors_of(sentence: str, features: Features) -> tuple[tuple[str, ...], Tensor]:
    """The words of a sentence and their rows, [n, d]."""
    words = tuple(sentence.split())
    for word in words:
        if word not in features:
            raise UserError(f'the table has no row for "{word}": {nearest(word, features)}')
    if not words:
        raise UserError("a sentence without words: give at least one")
    as_tensor(list(features.values()), "the table of features")
    return words, as_tensor([features[word] for word in words])
