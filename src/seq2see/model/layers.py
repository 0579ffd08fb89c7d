"""The parts of a block: norm, attention with many heads, feed-forward, and the add & norm around each.

All work on packed rows [T, width]; only attention knows that there are sequences. Where somebody listens, attention and
norm are computed openly, step by step, and otherwise by the fast path: a test holds the two equal. A decoder that writes
one token at a time hands in a `Past`, which keeps the keys and values and answers the queries from them.

Shapes: T tokens in the batch, U tokens of the memory that a decoder looks at, H heads, G heads of keys and values,
d the width of a head.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.layout import Layout
from seq2see.model.attention import attend, attend_openly
from seq2see.model.positions import rotate
from seq2see.model.taps import Taps

Turn = tuple[Tensor, Tensor]
Sublayer = Callable[[Tensor], Tensor]


class Past(Protocol):
    """The keys and values that one attention has met, in the keeping of a decoder."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool, taps: Taps
    ) -> Tensor:
        """Keeps these keys and values, and lets the queries look at them and at all that were kept before."""

    def recall(self, q: Tensor, queries: Layout, taps: Taps) -> Tensor:
        """Lets the queries look at what is kept."""


Pasts = tuple[Past | None, Past | None]  # of a block: of its self-attention and of its cross-attention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,  # of the gate
}


class Dropout(nn.Dropout):
    """Sets numbers to 0 at random while training. A decoder comes by dozens of times a step, and is not kept."""

    def __call__(self, x: Tensor) -> Tensor:
        dropped: Tensor = super().__call__(x) if self.training else x
        return dropped


class LayerNorm(nn.LayerNorm):
    """(x − mean) / √(variance + ε) · γ + β over the width of each token."""

    def forward(self, x: Tensor, taps: Taps) -> Tensor:  # type: ignore[override]
        x = taps("input", x)
        if not taps.listening:
            return super().forward(x)
        mean = taps("mean", x.mean(-1, keepdim=True))
        variance = taps("variance", x.var(-1, correction=0, keepdim=True))
        x = (x - mean) / (variance + self.eps).sqrt() * self.weight
        return taps("output", x + self.bias if self.bias is not None else x)


class RMSNorm(nn.RMSNorm):
    """x / √(mean of x² + ε) · γ: layer norm without the centring."""

    def forward(self, x: Tensor, taps: Taps) -> Tensor:  # type: ignore[override]
        x = taps("input", x)
        if not taps.listening:
            return super().forward(x)
        mean_square = taps("mean_square", x.square().mean(-1, keepdim=True))
        return taps("output", x / (mean_square + self.eps).sqrt() * self.weight)  # type: ignore[operator]


def norm(config: ModelConfig) -> LayerNorm | RMSNorm:
    if config.norm == "rms":
        return RMSNorm(config.width, eps=config.norm_epsilon)
    return LayerNorm(config.width, eps=config.norm_epsilon, bias=config.bias == "everywhere")


class StackedLinear(nn.Linear):
    """Several linear maps of the same input, computed as one: [T, width] → [T, n, d] each, n heads of width d."""

    def __init__(self, config: ModelConfig, heads: tuple[int, ...]) -> None:
        self.heads, self.head_width = heads, config.width_of_head
        self.sizes = [n * self.head_width for n in heads]
        super().__init__(config.width, sum(self.sizes), bias=config.attention_bias)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return apart(super().forward(x), self.heads, self.head_width)


def apart(stacked: Tensor, heads: tuple[int, ...], width: int) -> tuple[Tensor, ...]:
    """What a stacked map has computed, [T, all heads × width], map by map."""
    return stacked.unflatten(-1, (-1, width)).split(heads, dim=1)


def projection(config: ModelConfig) -> nn.Linear:
    """W_O, which mixes what the heads found."""
    return nn.Linear(config.heads * config.width_of_head, config.width, bias=config.attention_bias)


class Attention(nn.Module):
    """What self- and cross-attention share: the heads look, and their findings are projected back to the width."""

    project: nn.Linear

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.dropout = config.attention_dropout

    def look(
        self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, taps: Taps, past: Past | None
    ) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if past is not None:
            heads = past.attend(q, k, v, queries, keys, self.causal, taps)
        elif taps.listening:
            heads = attend_openly(q, k, v, queries, keys, self.causal, dropout, taps)
        else:
            heads = attend(q, k, v, queries, keys, self.causal, dropout)  # [T, H, d]
        return self.mix(heads, taps)

    def mix(self, heads: Tensor, taps: Taps) -> Tensor:
        """All heads' outputs side by side, then mixed by W_O."""
        return taps("projected", self.project(taps("concatenated", heads.flatten(1))))


class SelfAttention(Attention):
    """Each token asks all tokens of its own sequence or, if causal ("masked"), itself and those before it.

    One stacked map makes queries, keys and values, its rows in the order of the heads, d rows each:

        H = 4, G = 2:   q0 q1 q2 q3 k0 k1 v0 v1       heads 0 and 1 look with k0, v0; heads 2 and 3 with k1, v1
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__(config, causal)
        self.queries_keys_values = StackedLinear(config, (config.heads, config.groups, config.groups))
        self.project = projection(config)

    def forward(self, x: Tensor, layout: Layout, turn: Turn | None, taps: Taps, past: Past | None = None) -> Tensor:
        q, k, v = self.queries_keys_values(x)  # [T, H, d], [T, G, d], [T, G, d]
        q, k, v = taps("queries", q), taps("keys", k), taps("values", v)
        if turn is not None:
            q, k = taps("rotated_queries", rotate(q, turn)), taps("rotated_keys", rotate(k, turn))
        return self.look(q, k, v, layout, layout, taps, past)


class CrossAttention(Attention):
    """Each token of the output asks the tokens of the input: queries from one sequence, keys and values from another."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, causal=False)
        self.queries = StackedLinear(config, (config.heads,))
        self.keys_values = StackedLinear(config, (config.groups, config.groups))
        self.project = projection(config)

    def forward(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None, taps: Taps,
        past: Past | None = None,
    ) -> Tensor:  # fmt: skip
        (q,) = self.queries(x)  # [T, H, d]
        q = taps("queries", q)
        if memory is None or memory_layout is None:  # its keys and values were made when the first token was written
            assert past is not None
            return self.mix(past.recall(q, layout, taps), taps)
        k, v = self.keys_values(memory)  # [U, G, d] each
        k, v = taps("keys", k), taps("values", v)
        return self.look(q, k, v, layout, memory_layout, taps, past)


class FeedForward(nn.Module):
    """Two linear maps with an activation between, the same for every token: attention looks around, this thinks alone."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation_name = config.activation
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)
        bias = config.feed_forward_bias
        gated = config.activation == "swiglu"
        self.expand = nn.Linear(config.width, config.feed_forward, bias=bias)
        self.gate = nn.Linear(config.width, config.feed_forward, bias=bias) if gated else None
        self.contract = nn.Linear(config.feed_forward, config.width, bias=bias)

    def forward(self, x: Tensor, taps: Taps) -> Tensor:
        before = taps("before", self.expand(x))
        if self.gate is None:
            after = self.activation(before)
        else:
            after = self.activation(taps("gate", self.gate(x))) * before
        after = taps("after", after)
        return taps("output", self.contract(self.dropout(after)))


class AddAndNorm(nn.Module):
    """The residual around a sub-layer: norm(x + f(x)) as in the paper, or x + f(norm(x)) as later models have it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.first = config.norm_first
        self.norm = norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Sublayer, taps: Taps) -> Tensor:
        if self.first:
            return taps("sum", x + self.dropout(sublayer(self.norm(x, taps.at("norm")))))
        return self.norm(taps("sum", x + self.dropout(sublayer(x))), taps.at("norm"))


class Block(nn.Module):
    """One layer of a stack: self-attention, in a translating decoder cross-attention, then feed-forward."""

    def __init__(self, config: ModelConfig, causal: bool, cross: bool) -> None:
        super().__init__()
        self.causal = causal
        self.name = "masked" if causal else "self"
        self.attention = SelfAttention(config, causal)
        self.attention_norm = AddAndNorm(config)
        self.cross = CrossAttention(config) if cross else None
        self.cross_norm = AddAndNorm(config) if cross else None
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = AddAndNorm(config)

    def forward(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None, turn: Turn | None,
        taps: Taps, pasts: Pasts = (None, None),
    ) -> Tensor:  # fmt: skip
        past, past_source = pasts
        here = taps.at(self.name, rows=layout, keys=layout)
        x = self.attention_norm(x, lambda x: self.attention(x, layout, turn, here, past), here)
        if self.cross is not None and self.cross_norm is not None:
            there = taps.at("cross", rows=layout, keys=memory_layout)
            x = self.cross_norm(x, lambda x: self.cross(x, layout, memory, memory_layout, there, past_source), there)
        alone = taps.at("feed_forward")
        return self.feed_forward_norm(x, lambda x: self.feed_forward(x, alone), alone)
