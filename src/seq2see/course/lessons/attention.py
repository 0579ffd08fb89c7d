"""One-head attention on matrices that fit on a page, computed by the model's own `attention_reference`.

The lessons that need no model start from a table of features, one row per word.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.data.layout import Layout
from seq2see.errors import UserError, did_you_mean
from seq2see.inspect.trace import Trace
from seq2see.model.attention import PackedKeys, attention_reference
from seq2see.model.taps import ActiveTaps

Matrix = tuple[tuple[float, ...], ...]
Features = Mapping[str, Sequence[float]]  # the feature vector of each word


@dataclass(frozen=True)
class Steps:
    """The steps of one attention head. Rows are queries, columns are keys."""

    scores: Matrix
    scaled: Matrix
    weights: Matrix
    output: Matrix


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Steps:
    """Computes softmax(Q Kᵀ / √d) V for one sentence, from [n, d], [m, d] and [m, d]."""
    rows, columns = Layout.from_lengths([len(queries)]), Layout.from_lengths([len(keys)])
    name, trace = "decoder.0.cross", Trace(ModelConfig(), only=["*"])
    trace.layouts = {"encoder": columns, "decoder": rows}
    q, k, v = (x.double()[:, None] for x in (queries, keys, values))  # [n, 1, d]: one head
    attention_reference(
        q, rows, PackedKeys(k, v, columns, causal=False), taps=ActiveTaps(trace, prefix=name, rows=rows, keys=columns)
    )
    scores, scaled, weights = (to_matrix(trace[f"{name}.{step}", 0][0]) for step in ("scores", "scaled", "weights"))
    return Steps(scores, scaled, weights, to_matrix(trace[f"{name}.heads", 0][:, 0]))


def to_matrix(tensor: Tensor) -> Matrix:
    return tuple(tuple(row) for row in tensor.tolist())


def to_tensor(table: Sequence[Sequence[float]], name: str = "the table") -> Tensor:
    """Converts a table, which a user may have edited; checks that it is a matrix of finite numbers."""
    widths = {len(row) for row in table}
    if not table or len(widths) != 1 or 0 in widths:
        counts = ", ".join(map(str, sorted(widths))) or "none"
        raise UserError(f"{name} has rows of {counts} numbers: all rows need the same length")
    for row in table:
        for number in row:
            if not isinstance(number, Real) or isinstance(number, bool) or not math.isfinite(number):
                raise UserError(f"{name} contains {number!r}, expected a finite number")
    return torch.tensor([list(row) for row in table], dtype=torch.float64)


def look_up(sentence: str, features: Features) -> tuple[tuple[str, ...], Tensor]:
    """Returns the words of a sentence and their feature vectors, [n, d]."""
    words = tuple(sentence.split())
    for word in words:
        if word not in features:
            raise UserError(f'the table has no row for "{word}": {did_you_mean(word, features)}')
    if not words:
        raise UserError("the sentence is empty: give at least one word")
    to_tensor(list(features.values()), "the feature table")
    return words, to_tensor([features[word] for word in words])
