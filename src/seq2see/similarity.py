"""Vector similarity by three measures: the dot product; the cosine, which is independent of vector length; and the
scaled dot product of attention, divided by √d so that its size does not depend on the dimension.

Works for static word vectors and for contextual vectors from a trace.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from seq2see.errors import UsageError, did_you_mean

Measure = Literal["dot", "cosine", "scaled"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


def similarities(rows: Tensor, columns: Tensor, measure: Measure = "cosine") -> Tensor:
    """Compares [n, d] with [m, d]; returns [n, m]."""
    dots = rows @ columns.T
    if measure == "dot":
        return dots
    if measure == "scaled":
        return dots / math.sqrt(rows.shape[1])
    if measure == "cosine":
        norms = rows.norm(dim=1)[:, None] * columns.norm(dim=1)  # [n, m]
        return torch.where(norms > 0, dots / norms, 0.0)  # zero vectors have similarity 0
    raise UsageError(f'unknown measure "{measure}": {did_you_mean(measure, MEASURES)}')
