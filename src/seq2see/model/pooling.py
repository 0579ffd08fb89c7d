"""One vector for a whole text, from the vectors of its tokens.

Shapes: T tokens in the batch, S sequences.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.data.layout import Layout
from seq2see.errors import UserError
from seq2see.model.network import Network

PoolingKind = Literal["mean", "first", "last", "max", "pooler"]


@dataclass(frozen=True)
class Pooling:
    """How an encoder's vectors become one, as its publisher says; by default their mean."""

    kind: PoolingKind = "mean"
    normalize: bool = False  # to length 1
    max_tokens: int = 0  # longer texts are cut; 0: at the model's positions

    def with_options(self, kind: PoolingKind | None, normalize: bool | None) -> "Pooling":
        """Returns the pooling with what is given in place of its own."""
        return Pooling(kind or self.kind, self.normalize if normalize is None else normalize, self.max_tokens)

    def __call__(self, network: Network, vectors: Tensor, layout: Layout) -> Tensor:
        """Returns one vector per sequence, [S, width]."""
        pooled = self._pool(network, vectors, layout)
        return F.normalize(pooled, dim=-1) if self.normalize else pooled

    def _pool(self, network: Network, vectors: Tensor, layout: Layout) -> Tensor:
        starts = layout.starts.long()
        if self.kind == "first":
            return vectors[starts[:-1]]
        if self.kind == "last":
            return vectors[starts[1:] - 1]
        if self.kind == "pooler":
            if network.pooler is None:
                raise UserError("this model has no pooler: choose another pooling, such as mean")
            return network.pool(vectors, layout)
        reduce = "mean" if self.kind == "mean" else "amax"
        sequences = layout.padded_index // layout.max_length  # [T]
        index = sequences[:, None].expand_as(vectors)
        pooled = vectors.new_zeros(len(layout), vectors.shape[1])
        return torch.scatter_reduce(pooled, 0, index, vectors, reduce, include_self=False)
