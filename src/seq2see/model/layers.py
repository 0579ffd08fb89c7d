"""The layers of a Transformer block: norm, multi-head attention, feed-forward, and the add & norm around each.

All layers work on packed rows [T, width]; only attention knows about sequences. With active taps, attention and norm are
computed step by step by the reference implementation, otherwise by the fast path: a test checks that the two agree. For
incremental decoding, each attention receives a `LayerCache` that stores keys and values and attends to them.

Shapes: T tokens in the batch, U tokens of the encoder memory, H heads, G heads of keys and values, d the width of a head.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.data.layout import Layout
from seq2see.model.attention import Scoring, attend, attention_reference
from seq2see.model.positions import Rotation, rotate
from seq2see.model.taps import NO_TAPS, Taps

Sublayer = Callable[[Tensor], Tensor]


class LayerCache(Protocol):
    """The cached keys and values of one attention layer."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool, taps: Taps,
        scoring: Scoring, bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Appends these keys and values, then attends to everything cached. A step computes its own bias."""

    def attend_cached(self, q: Tensor, queries: Layout, taps: Taps, scoring: Scoring) -> Tensor:
        """Attends to everything cached."""


BlockCaches = tuple[LayerCache | None, LayerCache | None]  # for the self-attention and the cross-attention of a block

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,  # applied to the gate
    "geglu": lambda x: F.gelu(x, approximate="tanh"),  # likewise
}


class Dropout(nn.Dropout):
    """Skips module dispatch in eval; called dozens of times per decoding step."""

    def __call__(self, x: Tensor) -> Tensor:
        dropped: Tensor = super().__call__(x) if self.training else x
        return dropped


class LayerNorm(nn.LayerNorm):
    """(x − mean) / √(variance + ε) · γ + β over the width of each token."""

    def forward(self, x: Tensor, taps: Taps) -> Tensor:  # type: ignore[override]
        x = taps("input", x)
        if not taps.active:
            return super().forward(x)
        mean = taps("mean", x.mean(-1, keepdim=True))
        variance = taps("variance", x.var(-1, correction=0, keepdim=True))
        x = (x - mean) / (variance + self.eps).sqrt() * self.weight
        return taps("output", x + self.bias if self.bias is not None else x)


class RMSNorm(nn.RMSNorm):
    """x / √(mean of x² + ε) · γ: layer norm without centring."""

    def forward(self, x: Tensor, taps: Taps) -> Tensor:  # type: ignore[override]
        x = taps("input", x)
        if not taps.active:
            return super().forward(x)
        mean_square = taps("mean_square", x.square().mean(-1, keepdim=True))
        return taps("output", x / (mean_square + self.eps).sqrt() * self.weight)  # type: ignore[operator]


def build_norm(config: ModelConfig) -> LayerNorm | RMSNorm:
    if config.norm == "rms":
        return RMSNorm(config.width, eps=config.norm_epsilon)
    return LayerNorm(config.width, eps=config.norm_epsilon, bias=config.bias == "everywhere")


class StackedLinear(nn.Linear):
    """Several linear maps of the same input, computed as one: [T, width] → [T, n, d] each, n heads of width d."""

    def __init__(self, config: ModelConfig, heads: tuple[int, ...]) -> None:
        self.heads, self.head_width = heads, config.actual_head_width
        self.sizes = [n * self.head_width for n in heads]
        super().__init__(config.width, sum(self.sizes), bias=config.attention_bias)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return split_heads(super().forward(x), self.heads, self.head_width)


def split_heads(stacked: Tensor, heads: tuple[int, ...], width: int) -> tuple[Tensor, ...]:
    """Splits the output of a stacked map, [T, all heads · width], into one [T, n, width] per map."""
    return stacked.unflatten(-1, (-1, width)).split(heads, dim=1)


def _output_linear(config: ModelConfig) -> nn.Linear:
    """W_O, which mixes the outputs of the heads."""
    return nn.Linear(config.heads * config.actual_head_width, config.width, bias=config.projection_bias)


class Attention(nn.Module):
    """Common part of self- and cross-attention: attend with all heads, then project back to the model's width."""

    project: nn.Linear

    def __init__(self, config: ModelConfig, causal: bool, local: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.scoring = Scoring.of(config, local)
        self.dropout = config.attention_dropout

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, taps: Taps, cache: LayerCache | None,
        bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        dropout = self.dropout if self.training else 0.0
        if cache is not None:
            heads = cache.attend(q, k, v, queries, keys, self.causal, taps, self.scoring, bias)
        elif taps.active:
            heads = attention_reference(q, k, v, queries, keys, self.causal, dropout, taps, self.scoring, bias)
        else:
            heads = attend(q, k, v, queries, keys, self.causal, dropout, self.scoring, bias)  # [T, H, d]
        return self.output_projection(heads, taps)

    def output_projection(self, heads: Tensor, taps: Taps) -> Tensor:
        """Concatenates the outputs of all heads and mixes them by W_O."""
        return taps("projected", self.project(taps("concatenated", heads.flatten(1))))


class SelfAttention(Attention):
    """Each token attends to all tokens of its sequence or, if causal ("masked"), to itself and earlier ones.

    One stacked map computes queries, keys and values; its rows are ordered by head, d rows each:

        H = 4, G = 2:   q0 q1 q2 q3 k0 k1 v0 v1       heads 0 and 1 use k0, v0; heads 2 and 3 use k1, v1
    """

    def __init__(self, config: ModelConfig, causal: bool, local: bool = False) -> None:
        super().__init__(config, causal, local)
        kv_heads = config.actual_key_value_heads
        self.queries_keys_values = StackedLinear(config, (config.heads, kv_heads, kv_heads))
        normed = config.query_key_norm
        self.query_norm = RMSNorm(config.actual_head_width, eps=config.norm_epsilon) if normed else None
        self.key_norm = RMSNorm(config.actual_head_width, eps=config.norm_epsilon) if normed else None
        self.project = _output_linear(config)

    def forward(
        self, x: Tensor, layout: Layout, rotation: Rotation | None, taps: Taps, cache: LayerCache | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        q, k, v = self.queries_keys_values(x)  # [T, H, d], [T, G, d], [T, G, d]
        q, k, v = taps("queries", q), taps("keys", k), taps("values", v)
        if self.query_norm is not None and self.key_norm is not None:
            q = taps("normed_queries", self.query_norm(q, NO_TAPS))
            k = taps("normed_keys", self.key_norm(k, NO_TAPS))
        if rotation is not None:
            q, k = taps("rotated_queries", rotate(q, rotation)), taps("rotated_keys", rotate(k, rotation))
        return self.attend(q, k, v, layout, layout, taps, cache, bias)


class CrossAttention(Attention):
    """Each target token attends to the source tokens: queries from one sequence, keys and values from another."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, causal=False)
        kv_heads = config.actual_key_value_heads
        self.queries = StackedLinear(config, (config.heads,))
        self.keys_values = StackedLinear(config, (kv_heads, kv_heads))
        self.project = _output_linear(config)

    def forward(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None, taps: Taps,
        cache: LayerCache | None = None,
    ) -> Tensor:  # fmt: skip
        (q,) = self.queries(x)  # [T, H, d]
        q = taps("queries", q)
        if memory is None or memory_layout is None:  # a decoding step: the prefill cached keys and values
            assert cache is not None
            return self.output_projection(cache.attend_cached(q, layout, taps, self.scoring), taps)
        k, v = self.keys_values(memory)  # [U, G, d] each
        k, v = taps("keys", k), taps("values", v)
        return self.attend(q, k, v, layout, memory_layout, taps, cache)


class FeedForward(nn.Module):
    """Two linear maps with an activation between them, applied to each token independently."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation_name = config.activation
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)
        bias = config.feed_forward_bias
        self.up = nn.Linear(config.width, config.feed_forward, bias=bias)
        self.gate = nn.Linear(config.width, config.feed_forward, bias=bias) if config.gated else None
        self.down = nn.Linear(config.feed_forward, config.width, bias=bias)

    def forward(self, x: Tensor, taps: Taps) -> Tensor:
        hidden = taps("pre_activation", self.up(x))  # [T, feed_forward]
        if self.gate is None:
            hidden = self.activation(hidden)
        else:
            hidden = self.activation(taps("gate", self.gate(x))) * hidden
        hidden = taps("post_activation", hidden)
        return taps("output", self.down(self.dropout(hidden)))


class AddAndNorm(nn.Module):
    """The residual connection around a sub-layer: norm(x + f(x)) as in the paper, or x + f(norm(x)) as in later models.

    With an output norm, f(x) is normalised as well before it is added.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        self.norm = build_norm(config)
        self.output_norm = build_norm(config) if config.output_norm else None
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Sublayer, taps: Taps) -> Tensor:
        y = sublayer(self.norm(x, taps.at("norm")) if self.norm_first else x)
        if self.output_norm is not None:
            y = self.output_norm(y, taps.at("output_norm"))
        x = taps("sum", x + self.dropout(y))
        return x if self.norm_first else self.norm(x, taps.at("norm"))


class Block(nn.Module):
    """One layer of a stack: self-attention, cross-attention in the decoder of an encoder-decoder, then feed-forward."""

    def __init__(self, config: ModelConfig, causal: bool, cross: bool, local: bool = False) -> None:
        super().__init__()
        self.causal, self.local = causal, local
        self.name = "masked" if causal else "self"
        self.attention = SelfAttention(config, causal, local)
        self.attention_norm = AddAndNorm(config)
        self.cross = CrossAttention(config) if cross else None
        self.cross_norm = AddAndNorm(config) if cross else None
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = AddAndNorm(config)

    def forward(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None, rotation: Rotation | None,
        taps: Taps, caches: BlockCaches = (None, None), bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        self_cache, cross_cache = caches
        self_taps = taps.at(self.name, rows=layout, keys=layout, window=self.attention.scoring.window)
        x = self.attention_norm(
            x, lambda x: self.attention(x, layout, rotation, self_taps, self_cache, bias), self_taps
        )
        if self.cross is not None and self.cross_norm is not None:
            cross_taps = taps.at("cross", rows=layout, keys=memory_layout)
            x = self.cross_norm(
                x, lambda x: self.cross(x, layout, memory, memory_layout, cross_taps, cross_cache), cross_taps
            )
        feed_forward_taps = taps.at("feed_forward")
        return self.feed_forward_norm(x, lambda x: self.feed_forward(x, feed_forward_taps), feed_forward_taps)


class MaskedHead(nn.Module):
    """BERT's transformation of a token's vector before the logits of a masked token: dense, activation, norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = build_norm(config)

    def forward(self, x: Tensor, taps: Taps) -> Tensor:
        x = taps("pre_activation", self.dense(x))
        return self.norm(taps("post_activation", self.activation(x)), taps.at("norm"))
