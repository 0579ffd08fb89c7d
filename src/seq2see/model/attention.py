"""Scaled dot-product attention, written three times with one signature.

`attend` is the fast one; `attend_openly` is the textbook's, with a tap at every step; `attend_in_columns` is the same in
the notes' other notation, one column a word. Tests hold all three equal, gradients included. The dispatch in `attend`
is the only place where the model looks at a device.

Shapes: T query tokens and U key tokens in the batch, S sequences, L and M tokens in the longest of each; H heads, G heads
that keys and values have (each serves H / G query heads), d the width of a head. q is [T, H, d], k and v are [U, G, d], and
the output is [T, H, d].
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from seq2see.layout import Layout
from seq2see.model.taps import NO_TAPS, Taps


def visible(queries: Layout, keys: Layout, causal: bool) -> Tensor:
    """Which query may look at which key, [S, 1, L or 1, M]: real keys only and, if causal, none after the query itself.

    The notes write this as a table M that is added to the scores, 0 where this is true and −∞ where it is false.
    """
    real = keys.real[:, None, None, :]  # [S, 1, 1, M]
    if not causal:
        return real
    places = torch.arange(keys.longest, device=real.device)
    return real & (places <= queries.pad(queries.positions)[:, None, :, None])  # [S, 1, L, M]


def attend_openly(
    q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout,
    causal: bool = False, dropout: float = 0.0, taps: Taps = NO_TAPS,
) -> Tensor:  # fmt: skip
    """softmax(Q Kᵀ / √d) V, step by step."""
    group = q.shape[1] // k.shape[1]
    q = queries.pad(q).transpose(1, 2)  # [S, H, L, d]
    k, v = (keys.pad(x).transpose(1, 2).repeat_interleave(group, dim=1) for x in (k, v))  # [S, H, M, d]

    scores = taps("scores", q @ k.transpose(-1, -2))  # [S, H, L, M]
    scaled = taps("scaled", scores / math.sqrt(q.shape[-1]))
    masked = taps("masked", scaled.masked_fill(~visible(queries, keys, causal), -math.inf))
    weights = taps("weights", masked.softmax(dim=-1))
    weights = F.dropout(weights, dropout)
    heads = queries.unpad((weights @ v).transpose(1, 2))  # [T, H, d]
    return taps("heads", heads)


def attend_in_columns(
    q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """V · softmax(Kᵀ Q / √d) with one column a word and the softmax down each column, sentence by sentence.

    The notes write QᵀK here, which puts the queries on the wrong axis: the softmax would then run over the words that
    look, not over those that are looked at.
    """
    group = q.shape[1] // k.shape[1]
    looks = visible(queries, keys, causal).expand(-1, 1, queries.longest, -1)
    outputs = []
    for s in range(len(queries)):
        rows, columns = queries.slice(s), keys.slice(s)
        Q = q[rows].permute(1, 2, 0)  # [H, d, n]
        K, V = (x[columns].permute(1, 2, 0).repeat_interleave(group, dim=0) for x in (k, v))  # [H, d, m]
        scores = K.transpose(-1, -2) @ Q / math.sqrt(q.shape[-1])  # [H, m, n]
        mask = torch.zeros_like(scores).masked_fill(~looks[s, :, : Q.shape[-1], : K.shape[-1]].mT, -math.inf)
        weights = F.dropout((scores + mask).softmax(dim=-2), dropout)
        outputs.append((V @ weights).permute(2, 0, 1))  # [n, H, d]
    return torch.cat(outputs)


def attend(
    q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """The fast one: on CUDA in half precision a kernel made for packed sequences, else padded inside the call."""
    # Started from Python that kernel costs the host much, which counts where one sentence is decoded.
    plain = not torch.is_grad_enabled() and queries.is_even and keys.is_even
    if q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and not dropout and not plain:
        return _attend_packed(q, k, v, queries, keys, causal)
    return _attend_padded(q, k, v, queries, keys, causal, dropout)


def _attend_padded(
    q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool, dropout: float
) -> Tensor:
    """PyTorch's own attention, on padded tables."""
    grouped = q.shape[1] != k.shape[1]
    # Padding comes last, so among the tokens themselves the causal mask already hides it. SDPA aligns that mask top
    # left, which is right only where the queries are the whole sequence.
    whole = causal and queries is keys
    mask = None if whole or (keys.is_even and not causal) else visible(queries, keys, causal)
    q, k, v = (layout.pad(x).transpose(1, 2) for x, layout in ((q, queries), (k, keys), (v, keys)))
    heads = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=whole, enable_gqa=grouped
    )  # [S, H, L, d]
    return queries.unpad(heads.transpose(1, 2))


def _attend_packed(q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool) -> Tensor:
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    heads = varlen_attn(
        q, k, v, queries.starts, keys.starts, queries.longest, keys.longest,
        window_size=(-1, 0) if causal else (-1, -1),
    )  # fmt: skip
    assert isinstance(heads, Tensor)
    return heads
