"""The layers of a Transformer block: norm, multi-head attention, feed-forward, and the add & norm around each.

All layers work on packed rows [T, width]; only attention knows about sequences. What a pass through a stack carries is a
`Pass`; where an attention puts its new keys and values, and what it attends to, is its `Store`: in training nothing is
stored, in decoding a cache is. With active taps, attention and norm are computed step by step by the reference
implementation, otherwise by the fast path: a test checks that the two agree.

Shapes: T tokens in the batch, U tokens of the encoder memory, H heads, G heads of keys and values, d the width of a head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.data.layout import Layout
from seq2see.model.attention import Keys, PackedKeys, Scoring
from seq2see.model.positions import Rotation, rotate
from seq2see.model.taps import NO_TAPS, Taps


@dataclass(frozen=True)
class Memory:
    """What the encoder made of the source."""

    vectors: Tensor  # [U, width]
    layout: Layout


@dataclass(frozen=True)
class Pass:
    """What one pass through a stack carries. Nothing in it differs by layer, or torch.compile would recompile the blocks."""

    layout: Layout
    memory: Memory | None = None  # None: there is no source, or its keys and values are stored
    rotation: Rotation | None = None  # of rotary positions
    local_rotation: Rotation | None = None  # in layers with a window
    bias: Tensor | None = None  # relative positions, [S or 1, H, L, L]


class Store(Protocol):
    """Where one attention puts its new keys and values."""

    takes_bias: ClassVar[bool]  # whether the bias of positions comes from the pass; a step computes its own

    def append(self, new: PackedKeys) -> Keys:
        """Stores these; returns all keys to attend to."""

    def stored(self) -> Keys:
        """Returns the keys to attend to when there are no new ones: in a decoding step, those of the source."""


class NoStore:
    """In training and in an encoder, a pass attends to its own keys and nothing is stored."""

    takes_bias: ClassVar[bool] = True

    def append(self, new: PackedKeys) -> Keys:
        return new

    def stored(self) -> Keys:
        raise TypeError("a decoder without stored keys of the source needs the encoder's memory")


Stores = tuple[Store, Store]  # of the self-attention and of the cross-attention of a block
NO_STORES: Stores = NoStore(), NoStore()

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
    return stacked.unflatten(-1, (-1, width)).split(heads, dim=-2)


class Attention(nn.Module):
    """Common part of self- and cross-attention: all heads attend, and W_O mixes their outputs."""

    project: nn.Linear

    def __init__(self, config: ModelConfig, causal: bool, local: bool = False) -> None:
        super().__init__()
        self.causal, self.local = causal, local
        self.scoring = Scoring.of(config, local)
        self.dropout = config.attention_dropout

    def attend(self, q: Tensor, queries: Layout, keys: Keys, taps: Taps) -> Tensor:
        heads = keys.attend(q, queries, self.scoring, self.dropout if self.training else 0.0, taps)  # [T, H, d]
        return taps("projected", self.project(taps("concatenated", heads.flatten(-2))))  # [T, width]


class SelfAttention(Attention):
    """Each token attends to all tokens of its sequence or, if causal ("masked"), to itself and earlier ones.

    One stacked map computes queries, keys and values; its rows are ordered by head, d rows each:

        H = 4, G = 2:   q0 q1 q2 q3 k0 k1 v0 v1       heads 0 and 1 use k0, v0; heads 2 and 3 use k1, v1
    """

    def __init__(self, config: ModelConfig, causal: bool, local: bool = False) -> None:
        super().__init__(config, causal, local)
        kv_heads, width = config.actual_key_value_heads, config.actual_head_width
        self.queries_keys_values = StackedLinear(config, (config.heads, kv_heads, kv_heads))
        self.query_norm = RMSNorm(width, eps=config.norm_epsilon) if config.query_key_norm else None
        self.key_norm = RMSNorm(width, eps=config.norm_epsilon) if config.query_key_norm else None
        self.project = nn.Linear(config.heads * width, config.width, bias=config.projection_bias)

    def forward(self, x: Tensor, p: Pass, taps: Taps, store: Store) -> Tensor:
        q, k, v = self.queries_keys_values(x)  # [T, H, d], [T, G, d], [T, G, d]
        q, k, v = taps("queries", q), taps("keys", k), taps("values", v)
        if self.query_norm is not None and self.key_norm is not None:
            q = taps("normed_queries", self.query_norm(q, NO_TAPS))
            k = taps("normed_keys", self.key_norm(k, NO_TAPS))
        rotation = p.local_rotation if self.local else p.rotation
        if rotation is not None:
            q, k = taps("rotated_queries", rotate(q, rotation)), taps("rotated_keys", rotate(k, rotation))
        return self.attend(q, p.layout, store.append(PackedKeys(k, v, p.layout, self.causal, p.bias)), taps)


class CrossAttention(Attention):
    """Each target token attends to the source tokens: queries from one sequence, keys and values from another."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, causal=False)
        kv_heads = config.actual_key_value_heads
        self.queries = StackedLinear(config, (config.heads,))
        self.keys_values = StackedLinear(config, (kv_heads, kv_heads))
        self.project = nn.Linear(config.heads * config.actual_head_width, config.width, bias=config.projection_bias)

    def forward(self, x: Tensor, p: Pass, taps: Taps, store: Store) -> Tensor:
        (q,) = self.queries(x)  # [T, H, d]
        q = taps("queries", q)
        if p.memory is None:
            return self.attend(q, p.layout, store.stored(), taps)
        k, v = self.keys_values(p.memory.vectors)  # [U, G, d] each
        k, v = taps("keys", k), taps("values", v)
        return self.attend(q, p.layout, store.append(PackedKeys(k, v, p.memory.layout)), taps)


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
    """The norms and the dropout around a sub-layer f: norm(x + f(x)) as in the paper, or x + f(norm(x)) as in later models.

    With an output norm, f(x) is normalised as well before it is added.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        self.norm = build_norm(config)
        self.output_norm = build_norm(config) if config.output_norm else None
        self.dropout = Dropout(config.dropout)

    def before(self, x: Tensor, taps: Taps) -> Tensor:
        """The input of the sub-layer."""
        return self.norm(x, taps.at("norm")) if self.norm_first else x

    def output(self, y: Tensor, taps: Taps) -> Tensor:
        """What is added to the residual stream, from the output of the sub-layer."""
        return self.dropout(y if self.output_norm is None else self.output_norm(y, taps.at("output_norm")))

    def after(self, x: Tensor, taps: Taps) -> Tensor:
        """The residual stream, after the sum."""
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

    def forward(self, x: Tensor, p: Pass, taps: Taps = NO_TAPS, stores: Stores = NO_STORES) -> Tensor:
        """x is the residual stream, [T, width]; the stores are those of the self-attention and of the cross-attention."""
        self_store, cross_store = stores
        around, self_taps = self.attention_norm, taps.at(self.name, p.layout, p.layout, self.attention.scoring.window)
        y = self.attention(around.before(x, self_taps), p, self_taps, self_store)
        x = around.after(self_taps("sum", x + around.output(y, self_taps)), self_taps)
        if self.cross is not None and self.cross_norm is not None:
            memory_layout = None if p.memory is None else p.memory.layout
            around, cross_taps = self.cross_norm, taps.at("cross", p.layout, memory_layout)
            y = self.cross(around.before(x, cross_taps), p, cross_taps, cross_store)
            x = around.after(cross_taps("sum", x + around.output(y, cross_taps)), cross_taps)
        around, inner_taps = self.feed_forward_norm, taps.at("feed_forward")
        y = self.feed_forward(around.before(x, inner_taps), inner_taps)
        return around.after(inner_taps("sum", x + around.output(y, inner_taps)), inner_taps)


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
