"""Parts of a model in fewer kernels, for decoding on a GPU. Each is the part itself, which runs as ever where somebody listens,
gradients are wanted, or precisions are mixed.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.decode.kernels import FEW, WIDEST, Norm, add_and_norm, linear
from seq2see.decode.optimize import M, changed
from seq2see.layout import Layout
from seq2see.model.layers import ACTIVATIONS, AddAndNorm, Block, FeedForward, LayerNorm, Pasts, Sublayer, Turn, apart
from seq2see.model.positions import rotate
from seq2see.model.taps import NO_TAPS, Taps
from seq2see.model.transformer import Transformer

EVEN = 8
FUSED = ("relu", "gelu-tanh")  # activations that a product brings along


def in_one_go(module: M) -> M:
    """A copy that shares the weights and does the same in fewer kernels."""
    quick = changed(module, in_one_go)
    quick.__class__ = _kind(module) or type(module)
    return quick  # type: ignore[return-value]  # the kind is one of type(module)


def _kind(module: nn.Module) -> type[nn.Module] | None:
    if type(module) is Transformer:
        return QuickTransformer
    if type(module) is Block and _fits(module):
        return QuickBlock
    if type(module) is AddAndNorm and not module.first and isinstance(module.norm, LayerNorm):
        return QuickAddAndNorm
    if type(module) is FeedForward and module.activation_name in FUSED and module.expand.bias is not None:
        return QuickFeedForward
    return None


def _fits(block: Block) -> bool:
    """Whether `linear` can compute all its maps."""
    feed_forward = block.feed_forward
    widest = max(feed_forward.expand.out_features, block.attention.project.in_features, feed_forward.expand.in_features)
    normed = isinstance(block.attention_norm.norm, LayerNorm)
    return block.causal and normed and feed_forward.activation_name in FUSED and widest <= WIDEST


def _openly(taps: Taps) -> bool:
    return taps.listening or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda")


class QuickAddAndNorm(AddAndNorm):
    """norm(x + f(x)): sum and norm are one kernel."""

    norm: LayerNorm

    def forward(self, x: Tensor, sublayer: Sublayer, taps: Taps) -> Tensor:
        if _openly(taps):
            return super().forward(x, sublayer, taps)
        y = sublayer(x)
        with torch.cuda.device_of(x):
            return add_and_norm(x, y, _norm(self))[0]


class QuickFeedForward(FeedForward):
    """The first product adds the bias and applies the activation by itself."""

    def forward(self, x: Tensor, taps: Taps) -> Tensor:
        if _openly(taps):
            return super().forward(x, taps)
        return self.contract(_mapped(x, self.expand, self.activation_name))


class QuickBlock(Block):
    """A block of a decoder that writes: a residual and its norm are one kernel and, for a few tokens, one with the product
    after them.
    """

    def forward(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None, turn: Turn | None,
        taps: Taps, pasts: Pasts = (None, None),
    ) -> Tensor:  # fmt: skip
        past, past_source = pasts
        if past is None or _openly(taps):
            return super().forward(x, layout, memory, memory_layout, turn, taps, pasts)
        stacked = self.attention.queries_keys_values
        out, x = self._into(stacked, x, None, None, self.attention_norm)
        q, k, v = apart(out, stacked.heads, stacked.head_width)
        if turn is not None:
            q, k = rotate(q, turn), rotate(k, turn)
        y = past.attend(q, k, v, layout, layout, True, taps)
        y = _product(y.flatten(1), self.attention.project)[0]
        before = self.attention_norm
        if self.cross is not None and self.cross_norm is not None:
            assert past_source is not None
            queries = self.cross.queries
            out, x = self._into(queries, x, y, before, self.cross_norm)
            (q,) = apart(out, queries.heads, queries.head_width)
            if memory is None or memory_layout is None:
                y = past_source.recall(q, layout, taps)
            else:
                k, v = self.cross.keys_values(memory)
                y = past_source.attend(q, k, v, layout, memory_layout, False, taps)
            y = _product(y.flatten(1), self.cross.project)[0]
            before = self.cross_norm
        expand, last = self.feed_forward.expand, self.feed_forward_norm
        out, x = self._into(expand, x, y, before, last, self.feed_forward.activation_name)
        y = _product(out, self.feed_forward.contract)[0]
        if last.first:
            return x + y
        return add_and_norm(x, y, _norm(last))[0]

    def _into(
        self, to: nn.Linear, x: Tensor, y: Tensor | None, before: AddAndNorm | None, own: AddAndNorm,
        activation: str = "",
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The product that begins a sub-layer, and x + y as it goes on beside it: normed by the sub-layer's own norm or, as in
        the paper, by that of the one before.
        """
        residual = own if own.first else before
        return _product(x, to, None if residual is None else _norm(residual), y, activation)


class QuickTransformer(Transformer):
    """A product whose width is no multiple of 8 takes a GPU several times as long: the last tokens' logits are made apart."""

    def logits(self, vectors: Tensor, layout: Layout, taps: Taps = NO_TAPS) -> Tensor:
        weight = self.embedding.weight if self.unembedding is None else self.unembedding.weight
        even = len(weight) // EVEN * EVEN
        if _openly(taps) or even == len(weight):
            return super().logits(vectors, layout, taps)
        logits = vectors.new_empty(len(vectors), even + EVEN)[:, : len(weight)]
        for some in (slice(0, even), slice(even, len(weight))):
            if self.unembedding_bias is None:
                torch.mm(vectors, weight[some].T, out=logits[:, some])
            else:
                torch.addmm(self.unembedding_bias[some], vectors, weight[some].T, out=logits[:, some])
        return logits


def _norm(residual: AddAndNorm) -> Norm:
    """What goes on beside a sub-layer is the sum that was normed for it or, as in the paper, the norm itself."""
    assert isinstance(residual.norm, LayerNorm)
    return Norm(residual.norm.weight, residual.norm.bias, residual.norm.eps, "sum" if residual.first else "norm")


def _product(
    x: Tensor, to: nn.Linear, norm: Norm | None = None, y: Tensor | None = None, activation: str = ""
) -> tuple[Tensor, Tensor]:
    """The linear map of x, or of the norm of x + y, and what the norm keeps."""
    if len(x) <= FEW:
        return linear(x, to.weight, to.bias, norm, y, activation)
    normed, kept = (x, x) if norm is None else add_and_norm(x, y, norm)
    return _mapped(normed, to, activation), kept


def _mapped(x: Tensor, to: nn.Linear, activation: str) -> Tensor:
    if activation and to.bias is not None:
        return torch._addmm_activation(to.bias, x, to.weight.T, use_gelu=activation == "gelu-tanh")
    mapped = F.linear(x, to.weight, to.bias)
    return ACTIVATIONS[activation](mapped) if activation else mapped
