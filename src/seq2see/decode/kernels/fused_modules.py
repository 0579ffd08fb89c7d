"""Modules with fused kernels for decoding on a GPU.

Each falls back to the original module when taps are active, gradients are enabled, or autocast mixes precisions.
"""

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
    BlockCaches,
    FeedForward,
    LayerNorm,
    Sublayer,
    split_heads,
)
from seq2see.model.positions import Rotation, rotate
from seq2see.model.taps import NO_TAPS, Taps
from seq2see.model.transformer import Transformer

ALIGNMENT = 8
FUSED_ACTIVATIONS = ("relu", "gelu-tanh")


def fuse_modules(module: M) -> M:
    """Returns a copy that shares the weights and computes the same with fewer kernels."""
    fused = replace_modules(module, fuse_modules)
    fused.__class__ = _fused_class(module) or type(module)
    return fused  # type: ignore[return-value]  # the class is a subclass of type(module)


def _fused_class(module: nn.Module) -> type[nn.Module] | None:
    if type(module) is Transformer:
        return FusedTransformer
    if type(module) is Block and _fits_kernels(module):
        return FusedBlock
    plain = type(module) is AddAndNorm and module.output_norm is None
    if plain and not module.norm_first and isinstance(module.norm, LayerNorm):
        return FusedAddAndNorm
    if type(module) is FeedForward and module.activation_name in FUSED_ACTIVATIONS and module.up.bias is not None:
        return FusedFeedForward
    return None


def _fits_kernels(block: Block) -> bool:
    """Returns whether the kernel `linear` can compute all linear layers of this block."""
    feed_forward = block.feed_forward
    widest = max(feed_forward.up.out_features, block.attention.project.in_features, feed_forward.up.in_features)
    layer_norm = isinstance(block.attention_norm.norm, LayerNorm) and block.attention_norm.output_norm is None
    if block.attention.query_norm is not None:
        return False
    return block.causal and layer_norm and feed_forward.activation_name in FUSED_ACTIVATIONS and widest <= MAX_WIDTH


def _needs_original(taps: Taps) -> bool:
    return taps.active or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda")


class FusedAddAndNorm(AddAndNorm):
    """norm(x + f(x)) with sum and norm in one kernel."""

    norm: LayerNorm

    def forward(self, x: Tensor, sublayer: Sublayer, taps: Taps) -> Tensor:
        if _needs_original(taps):
            return super().forward(x, sublayer, taps)
        y = sublayer(x)
        with torch.cuda.device_of(x):
            return add_and_norm(x, y, _norm_of(self))[0]


class FusedFeedForward(FeedForward):
    """Bias and activation are part of the first product."""

    def forward(self, x: Tensor, taps: Taps) -> Tensor:
        if _needs_original(taps):
            return super().forward(x, taps)
        return self.down(_linear(x, self.up, self.activation_name))


class FusedBlock(Block):
    """A decoder block with a cache: a residual and its norm are one kernel, which for few rows includes the next product."""

    def forward(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None, rotation: Rotation | None,
        taps: Taps, caches: BlockCaches = (None, None), bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        self_cache, cross_cache = caches
        if self_cache is None or _needs_original(taps):
            return super().forward(x, layout, memory, memory_layout, rotation, taps, caches, bias)
        stacked = self.attention.queries_keys_values
        out, x = self._project_in(stacked, x, None, None, self.attention_norm)
        q, k, v = split_heads(out, stacked.heads, stacked.head_width)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        y = self_cache.attend(q, k, v, layout, layout, True, taps, self.attention.scoring, bias)
        y = _product(y.flatten(1), self.attention.project)[0]
        previous = self.attention_norm
        if self.cross is not None and self.cross_norm is not None:
            assert cross_cache is not None
            queries = self.cross.queries
            out, x = self._project_in(queries, x, y, previous, self.cross_norm)
            (q,) = split_heads(out, queries.heads, queries.head_width)
            if memory is None or memory_layout is None:
                y = cross_cache.attend_cached(q, layout, taps, self.cross.scoring)
            else:
                k, v = self.cross.keys_values(memory)
                y = cross_cache.attend(q, k, v, layout, memory_layout, False, taps, self.cross.scoring)
            y = _product(y.flatten(1), self.cross.project)[0]
            previous = self.cross_norm
        last = self.feed_forward_norm
        out, x = self._project_in(self.feed_forward.up, x, y, previous, last, self.feed_forward.activation_name)
        y = _product(out, self.feed_forward.down)[0]
        if last.norm_first:
            return x + y
        return add_and_norm(x, y, _norm_of(last))[0]

    def _project_in(
        self, layer: nn.Linear, x: Tensor, y: Tensor | None, previous: AddAndNorm | None, current: AddAndNorm,
        activation: str = "",
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Returns the first product of a sub-layer and the residual x + y, normalised by the sub-layer's own norm (pre-norm)
        or by that of the previous sub-layer (post-norm).
        """
        residual = current if current.norm_first else previous
        return _product(x, layer, None if residual is None else _norm_of(residual), y, activation)


class FusedTransformer(Transformer):
    """If the vocabulary size is not a multiple of 8, computes the logits of the last few tokens separately: a product of
    unaligned width takes a GPU several times as long.
    """

    def logits(self, vectors: Tensor, layout: Layout, taps: Taps = NO_TAPS) -> Tensor:
        weight = self.embedding.weight if self.unembedding is None else self.unembedding.weight
        aligned = len(weight) // ALIGNMENT * ALIGNMENT
        plain = self.config.logit_scale == 1 and not self.config.logit_cap and self.masked_head is None
        if _needs_original(taps) or aligned == len(weight) or not plain:
            return super().logits(vectors, layout, taps)
        logits = vectors.new_empty(len(vectors), aligned + ALIGNMENT)[:, : len(weight)]
        for part in (slice(0, aligned), slice(aligned, len(weight))):
            if self.unembedding_bias is None:
                torch.mm(vectors, weight[part].T, out=logits[:, part])
            else:
                torch.addmm(self.unembedding_bias[part], vectors, weight[part].T, out=logits[:, part])
        return logits


def _norm_of(residual: AddAndNorm) -> Norm:
    """Returns the kernel's description of a norm. The residual continues as the sum (pre-norm) or as the norm (post-norm)."""
    assert isinstance(residual.norm, LayerNorm)
    return Norm(residual.norm.weight, residual.norm.bias, residual.norm.eps, "sum" if residual.norm_first else "norm")


def _product(
    x: Tensor, layer: nn.Linear, norm: Norm | None = None, y: Tensor | None = None, activation: str = ""
) -> tuple[Tensor, Tensor]:
    """Returns the linear layer applied to x, or to the norm of x + y, and the residual."""
    if len(x) <= MAX_ROWS:
        return linear(x, layer.weight, layer.bias, norm, y, activation)
    normed, residual = (x, x) if norm is None else add_and_norm(x, y, norm)
    return _linear(normed, layer, activation), residual


def _linear(x: Tensor, layer: nn.Linear, activation: str) -> Tensor:
    if activation and layer.bias is not None:
        return torch._addmm_activation(layer.bias, x, layer.weight.T, use_gelu=activation == "gelu-tanh")
    y = F.linear(x, layer.weight, layer.bias)
    return ACTIVATIONS[activation](y) if activation else y
