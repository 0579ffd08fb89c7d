"""The modules of a block with fused kernels, for decoding on a GPU.

A residual sum and its norm are computed where they are needed next. Until then a `Residual` stands for x + y or for its
norm, so that for a few rows one kernel computes the sum, the norm and the linear map that follows. Each module falls back
to the original when taps are active, gradients are enabled, or autocast mixes precisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.data.layout import Layout
from seq2see.decode.kernels.attention import MAX_ROWS, MAX_WIDTH, Norm, add_and_norm, linear
from seq2see.decode.optimize import M, replace_modules
from seq2see.model.layers import (
    ACTIVATIONS,
    AddAndNorm,
    Block,
    FeedForward,
    LayerNorm,
    Memory,
    StackedLinear,
    Stores,
    split_heads,
)
from seq2see.model.taps import NO_TAPS, Taps
from seq2see.model.transformer import Stack, Transformer

ALIGNMENT = 8
FUSED_ACTIVATIONS = ("relu", "gelu-tanh")


def fuse_modules(module: M) -> M:
    """Returns a copy that shares the weights and computes the same with fewer kernels."""
    fused = replace_modules(module, fuse_modules)
    if type(fused) is Transformer:
        fused.__class__ = FusedTransformer
    elif type(fused) is Stack:
        fused.__class__ = FusedStack
        if type(fused.final_norm) is LayerNorm:
            fused.final_norm.__class__ = FusedFinalNorm
    elif type(fused) is Block and _fits_kernels(fused.attention_norm):
        for part in fused.modules():
            part.__class__ = FUSED.get(type(part), type(part))
    return fused  # type: ignore[return-value]  # the class is a subclass of type(module)


def _fits_kernels(around: AddAndNorm) -> bool:
    return isinstance(around.norm, LayerNorm) and around.output_norm is None


def _needs_original(taps: Taps = NO_TAPS) -> bool:
    return taps.active or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda")


class Residual:
    """The residual stream x + y, or the norm of it, which is computed with the next linear map or sum."""

    def __init__(self, x: Tensor, y: Tensor | None = None, norm: Norm | None = None) -> None:
        self.x, self.y, self.norm = x, y, norm

    def __add__(self, addend: "Addend") -> "Residual":
        return Residual(self.tensor(), addend.y)

    def tensor(self) -> Tensor:
        if self.norm is not None:
            self.settle(add_and_norm(self.x, self.y, self.norm)[0])
        elif self.y is not None:
            self.settle(self.x + self.y)
        return self.x

    def settle(self, value: Tensor) -> None:
        self.x, self.y, self.norm = value, None, None


@dataclass(frozen=True)
class Addend:
    """The output of a sub-layer, to be added to the residual stream."""

    y: Tensor

    def __radd__(self, x: Tensor) -> Residual:
        return Residual(x, self.y)


@dataclass(frozen=True)
class Normed:
    """The norm of a residual stream which itself goes on without it (pre-norm)."""

    residual: Residual
    norm: Norm


class FusedAddAndNorm(AddAndNorm):
    norm: LayerNorm

    def before(self, x: Tensor, taps: Taps) -> Tensor:
        if _needs_original(taps) or not self.norm_first:
            return super().before(x, taps)
        residual = x if isinstance(x, Residual) else Residual(x)
        return cast(Tensor, Normed(residual, self._kernel_norm))

    def output(self, y: Tensor, taps: Taps) -> Tensor:
        return super().output(y, taps) if _needs_original(taps) else cast(Tensor, Addend(y))

    def after(self, x: Tensor, taps: Taps) -> Tensor:
        if isinstance(x, Residual) and not self.norm_first:
            x.norm = self._kernel_norm
            return x
        return super().after(x, taps)

    @property
    def _kernel_norm(self) -> Norm:
        """The norm as the kernels take it. The residual continues as the sum (pre-norm) or as the norm (post-norm)."""
        return Norm(self.norm.weight, self.norm.bias, self.norm.eps, "sum" if self.norm_first else "norm")


class FusedLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if _needs_original() else _product(x, self)


class FusedStackedLinear(StackedLinear):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        if _needs_original():
            return super().forward(x)
        return split_heads(_product(x, self), self.heads, self.head_width)


class FusedFeedForward(FeedForward):
    """Bias and activation are part of the first product."""

    def forward(self, x: Tensor, taps: Taps) -> Tensor:
        if _needs_original(taps) or self.activation_name not in FUSED_ACTIVATIONS:
            return super().forward(x, taps)
        return _product(_product(x, self.up, self.activation_name), self.down)


class FusedFinalNorm(LayerNorm):
    def forward(self, x: Tensor, taps: Taps) -> Tensor:  # type: ignore[override]
        if isinstance(x, Residual):
            x.norm = Norm(self.weight, self.bias, self.eps, "norm")
            return x
        return super().forward(x, taps)


FUSED: dict[type[nn.Module], type[nn.Module]] = {
    AddAndNorm: FusedAddAndNorm,
    nn.Linear: FusedLinear,
    StackedLinear: FusedStackedLinear,
    FeedForward: FusedFeedForward,
}


class FusedStack(Stack):
    """The residual stream of the last block is settled at the end; between blocks, their products do it."""

    def forward(
        self, embedded: Tensor, layout: Layout, taps: Taps, memory: Memory | None = None, stores: Sequence[Stores] = (),
        segments: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x = super().forward(embedded, layout, taps, memory, stores, segments)
        return x.tensor() if isinstance(x, Residual) else x


class FusedTransformer(Transformer):
    """If the vocabulary size is not a multiple of 8, computes the logits of the last few tokens separately, or those of one row
    by our own kernel: a product of unaligned width takes cuBLAS several times as long.
    """

    def logits(self, vectors: Tensor, layout: Layout, taps: Taps = NO_TAPS) -> Tensor:
        weight = self.embedding.weight if self.unembedding is None else self.unembedding.weight
        aligned = len(weight) // ALIGNMENT * ALIGNMENT
        plain = self.config.logit_scale == 1 and not self.config.logit_cap and self.masked_head is None
        if _needs_original(taps) or aligned == len(weight) or not plain:
            return super().logits(vectors, layout, taps)
        if len(vectors) == 1 and _fits(vectors):
            return linear(vectors, weight, self.unembedding_bias)[0]
        logits = vectors.new_empty(len(vectors), aligned + ALIGNMENT)[:, : len(weight)]
        for part in (slice(0, aligned), slice(aligned, len(weight))):
            if self.unembedding_bias is None:
                torch.mm(vectors, weight[part].T, out=logits[:, part])
            else:
                torch.addmm(self.unembedding_bias[part], vectors, weight[part].T, out=logits[:, part])
        return logits


def _product(x: Tensor | Residual | Normed, layer: nn.Linear, activation: str = "") -> Tensor:
    """Returns the linear map of x or of its norm; what x stands for is computed on the way."""
    if isinstance(x, Tensor):
        return (
            linear(x, layer.weight, layer.bias, activation=activation)[0] if _fits(x) else _linear(x, layer, activation)
        )
    residual, norm = (x.residual, x.norm) if isinstance(x, Normed) else (x, x.norm)
    if norm is None:
        return _product(residual.tensor(), layer, activation)
    if _fits(residual.x):
        out, settled = linear(residual.x, layer.weight, layer.bias, norm, residual.y, activation)
    else:
        normed, settled = add_and_norm(residual.x, residual.y, norm)
        out = _linear(normed, layer, activation)
    residual.settle(settled)
    return out


def _fits(x: Tensor) -> bool:
    """Whether one kernel computes norm, product and activation: faster for a few rows only."""
    return len(x) <= MAX_ROWS and x.shape[1] <= MAX_WIDTH


def _linear(x: Tensor, layer: nn.Linear, activation: str) -> Tensor:
    if activation and layer.bias is not None:
        return torch._addmm_activation(layer.bias, x, layer.weight.T, use_gelu=activation == "gelu-tanh")
    y = F.linear(x, layer.weight, layer.bias)
    return ACTIVATIONS[activation](y) if activation else y
