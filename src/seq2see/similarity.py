"""How alike two vectors are, by three measures: the dot product; the cosine, which lengths do not change; and the dot
product over √d, which dimensions do not change: attention's.

The tables take any vectors, static ones of words or contextual ones out of a trace.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from seq2see.errors import UsageError, nearest

Measure = Literal["dot", "cosine", "scaled"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


def similarities(rows: Tensor, columns: Tensor, measure: Measure = "cosine") -> Tensor:
    """[n, d] against [m, d]: the table [n, m]."""
    dots = rows @ columns.T
    if measure == "dot":
        return dots
    if measure == "scaled":
        return dots / math.sqrt(rows.shape[1])
    if measure == "cosine":
        lengths = rows.norm(dim=1)[:, None] * columns.norm(dim=1)  # [n, m]
        return torch.where(lengths > 0, dots / lengths, 0.0)  # a vector of zeros is like nothing
    raise UsageError(f'no measure "{measure}": {nearest(measure, MEASURES)}')
