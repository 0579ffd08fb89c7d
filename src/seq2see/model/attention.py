"""Scaled dot-product attention, three times with one signature: queries, their layout, and the keys they attend to.

`attend` is the fast one; `attention_reference` is the textbook formula with a tap at every step; `attention_by_columns` is
the same formula in column notation, one column per token. Tests hold all three equal, gradients included. The dispatch in
`attend` is the only place where the model checks the device.

Shapes: T query tokens and U key tokens in the batch, S sequences, L and M tokens in the longest of each; H heads, G heads
of keys and values (each serves H / G query heads), d the width of a head. q is [T, H, d], k and v are [U, G, d], and the
output is [T, H, d].
"""

import math
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.data.layout import Layout
from seq2see.model.packed_attention import MAX_SHORT_LENGTH, packed_attention
from seq2see.model.taps import NO_TAPS, Taps


@dataclass(frozen=True)
class Scoring:
    """How one attention turns the products of queries and keys into weights; the default is the paper's."""

    scale: float = 0.0  # 0: 1 / √d
    cap: float = 0.0  # limits scaled scores to ±cap; 0: no limit
    window: int = 0  # latest keys that a causal query attends to; 0: all

    @classmethod
    def of(cls, config: ModelConfig, local: bool = False) -> Self:
        return cls(config.attention_scale, config.attention_cap, config.attention_window if local else 0)

    def factor(self, head_width: int) -> float:
        """The factor of the scores."""
        return self.scale or head_width**-0.5

    def limits(self, length: int) -> bool:
        """Whether the window hides keys in a sequence of this length."""
        return 0 < self.window < length


PAPER = Scoring()


class Keys(Protocol):
    """The keys and values that the queries of a pass attend to: of whole sequences, or in the slots of a cache."""

    def attend(self, q: Tensor, queries: Layout, scoring: Scoring, dropout: float, taps: Taps) -> Tensor:
        """Returns the outputs of the heads, [T, H, d]; with active taps, computed step by step."""


@dataclass(frozen=True)
class PackedKeys:
    """Keys and values of whole sequences, packed; causal: a query sees only the keys up to its own position."""

    k: Tensor  # [U, G, d]
    v: Tensor  # [U, G, d]
    layout: Layout
    causal: bool = False
    bias: Tensor | None = None  # [S or 1, H, L, M], added to the scaled scores

    def attend(self, q: Tensor, queries: Layout, scoring: Scoring, dropout: float, taps: Taps) -> Tensor:
        attention = attention_reference if taps.active else attend
        return attention(q, queries, self, scoring, dropout, taps)


def attention_mask(queries: Layout, keys: Layout, causal: bool, window: int = 0) -> Tensor:
    """True where a query may attend to a key, [S, 1, L or 1, M]: never to padding and, if causal, never to later keys.

    With a window, only the latest `window` keys are visible, the query's own included. Textbooks add this mask to the
    scores: 0 where it is true, −∞ where it is false.
    """
    padding_mask = keys.mask[:, None, None, :]  # [S, 1, 1, M]
    if not causal:
        return padding_mask
    positions = torch.arange(keys.max_length, device=padding_mask.device)
    query_positions = queries.pad(queries.positions)[:, None, :, None]
    visible = padding_mask & (positions <= query_positions)  # [S, 1, L, M]
    return visible & (positions > query_positions - window) if window else visible


def attention_reference(
    q: Tensor, queries: Layout, keys: PackedKeys, scoring: Scoring = PAPER, dropout: float = 0.0, taps: Taps = NO_TAPS
) -> Tensor:
    """softmax(Q Kᵀ / √d) V, step by step."""
    group = q.shape[1] // keys.k.shape[1]
    q = queries.pad(q).transpose(1, 2)  # [S, H, L, d]
    k, v = (
        keys.layout.pad(x).transpose(1, 2).repeat_interleave(group, dim=1) for x in (keys.k, keys.v)
    )  # [S, H, M, d]

    scores = taps("scores", q @ k.transpose(-1, -2))  # [S, H, L, M]
    scaled = taps("scaled", scores * scoring.scale if scoring.scale else scores / math.sqrt(q.shape[-1]))
    if scoring.cap:
        scaled = taps("capped", scoring.cap * torch.tanh(scaled / scoring.cap))
    if keys.bias is not None:
        scaled = taps("biased", scaled + keys.bias)
    mask = attention_mask(queries, keys.layout, keys.causal, scoring.window)
    masked = taps("masked", scaled.masked_fill(~mask, -math.inf))
    weights = taps("weights", masked.softmax(dim=-1))
    weights = F.dropout(weights, dropout)
    heads = queries.unpad((weights @ v).transpose(1, 2))  # [T, H, d]
    return taps("heads", heads)


def attention_by_columns(
    q: Tensor, queries: Layout, keys: PackedKeys, scoring: Scoring = PAPER, dropout: float = 0.0, taps: Taps = NO_TAPS
) -> Tensor:
    """V · softmax(Kᵀ Q / √d), one column per token, the softmax down each column, one sequence at a time.

    Some texts write QᵀK here, which transposes the scores: the softmax would then run over the queries instead of over
    the keys. The paper's scores only: no cap, no bias, no taps.
    """
    group = q.shape[1] // keys.k.shape[1]
    allowed = attention_mask(queries, keys.layout, keys.causal, scoring.window).expand(-1, 1, queries.max_length, -1)
    outputs = []
    for s in range(len(queries)):
        rows, columns = queries.slice(s), keys.layout.slice(s)
        Q = q[rows].permute(1, 2, 0)  # [H, d, n]
        K, V = (x[columns].permute(1, 2, 0).repeat_interleave(group, dim=0) for x in (keys.k, keys.v))  # [H, d, m]
        scores = K.transpose(-1, -2) @ Q * scoring.factor(q.shape[-1])  # [H, m, n]
        mask = torch.zeros_like(scores).masked_fill(~allowed[s, :, : Q.shape[-1], : K.shape[-1]].mT, -math.inf)
        weights = F.dropout((scores + mask).softmax(dim=-2), dropout)
        outputs.append((V @ weights).permute(2, 0, 1))  # [n, H, d]
    return torch.cat(outputs)


def attend(
    q: Tensor, queries: Layout, keys: PackedKeys, scoring: Scoring = PAPER, dropout: float = 0.0, taps: Taps = NO_TAPS
) -> Tensor:
    """Fast attention: kernels for packed sequences on CUDA in half precision, otherwise SDPA on padded tensors."""
    if scoring.cap:  # no fused kernel applies it
        return attention_reference(q, queries, keys, scoring, dropout)
    # The packed operation has a high launch cost on the host, which matters when decoding one sentence.
    uniform = queries.is_uniform and keys.layout.is_uniform
    prefer_padded = uniform and (not torch.is_grad_enabled() or queries.max_length > MAX_SHORT_LENGTH)
    half = q.is_cuda and q.dtype in (torch.bfloat16, torch.float16)
    if half and not prefer_padded and keys.bias is None and not scoring.limits(keys.layout.max_length):
        if scoring.scale:
            q = q * (scoring.scale * math.sqrt(q.shape[-1]))  # the kernels divide by √d
        return packed_attention(q, keys.k, keys.v, queries, keys.layout, keys.causal, dropout)
    return _attend_padded(q, queries, keys, scoring, dropout)


def _attend_padded(q: Tensor, queries: Layout, keys: PackedKeys, scoring: Scoring, dropout: float) -> Tensor:
    """PyTorch's scaled_dot_product_attention (SDPA) on padded tensors."""
    grouped = q.shape[1] != keys.k.shape[1]
    # Padding comes last, so the causal mask already hides it from the tokens. SDPA aligns that mask top left, which is
    # correct only if the queries are the whole sequence.
    whole = queries is keys.layout and keys.bias is None and not scoring.limits(keys.layout.max_length)
    is_causal = keys.causal and whole
    everything = is_causal or (keys.layout.is_uniform and not keys.causal)
    mask = None if everything else attention_mask(queries, keys.layout, keys.causal, scoring.window)
    if keys.bias is not None:
        mask = keys.bias if mask is None else keys.bias.masked_fill(~mask, -math.inf)
    q = queries.pad(q).transpose(1, 2)
    k, v = (keys.layout.pad(x).transpose(1, 2) for x in (keys.k, keys.v))
    heads = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, enable_gqa=grouped, scale=scoring.scale or None
    )  # [S, H, L, d]
    return queries.unpad(heads.transpose(1, 2))
