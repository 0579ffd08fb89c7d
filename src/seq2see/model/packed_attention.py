"""Attention over packed sequences on a GPU, as one opaque operation for the compiler: our own kernel for short sequences,
flash attention for longer ones.

The choice depends on the maximum length in a batch, which compiled code must not see: a Python integer that changes would
recompile the whole step. It is passed as a CPU scalar tensor instead, and the operation reads it when it runs.
"""

from typing import Any

import torch
from torch import Tensor

from seq2see.data.layout import Layout

# Maximum sequence length for our own kernel: longer ones do not fit in registers, and flash attention is faster.
MAX_SHORT_LENGTH = 128


def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool, dropout: float
) -> Tensor:
    """softmax(Q Kᵀ / √d) V over packed sequences; q is [T, H, d], k and v are [U, G, d]."""
    if dropout:
        seed = torch.randint(1 << 62, (2,), device=q.device)
    else:
        seed = torch.empty(2, dtype=torch.int64, device=q.device)
    max_lengths = [
        torch.tensor(x.max_length) if x.batch_max_length is None else x.batch_max_length for x in (queries, keys)
    ]
    out: Tensor = _forward(q, k, v, queries.starts, keys.starts, *max_lengths, causal, dropout, seed)[0]
    return out


@torch.library.custom_op("seq2see::packed_attention", mutates_args=(), tags=[torch.Tag.nondeterministic_seeded])
def _forward(
    q: Tensor, k: Tensor, v: Tensor, query_starts: Tensor, key_starts: Tensor, max_query: Tensor, max_key: Tensor,
    causal: bool, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the output, and what flash attention needs for its backward pass: log-sum-exp and random state."""
    max_q, max_k = int(max_query), int(max_key)
    if max(max_q, max_k, q.shape[2]) <= MAX_SHORT_LENGTH:
        from seq2see.model import short_attention  # needs Triton

        out = short_attention.forward(q, k, v, query_starts, key_starts, max_q, max_k, causal, dropout, seed)
        return out, q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32), torch.empty_like(seed)
    k, v = _repeat_heads(q, k, v)
    out, lse, state, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, query_starts, key_starts, max_q, max_k, dropout, causal, False
    )
    return out, lse, state.view(torch.int64).clone()


@_forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, query_starts: Tensor, key_starts: Tensor, max_query: Tensor, max_key: Tensor,
    causal: bool, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    lse = q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)
    return q.new_empty(q.shape), lse, torch.empty_like(seed)


@torch.library.custom_op("seq2see::packed_attention_backward", mutates_args=())
def _backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, state: Tensor, query_starts: Tensor,
    key_starts: Tensor, max_query: Tensor, max_key: Tensor, causal: bool, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    max_q, max_k = int(max_query), int(max_key)
    if max(max_q, max_k, q.shape[2]) <= MAX_SHORT_LENGTH:
        from seq2see.model import short_attention  # needs Triton

        return short_attention.backward(
            gradient, q, k, v, query_starts, key_starts, max_q, max_k, causal, dropout, seed
        )
    kv_heads = k.shape[1]
    k, v = _repeat_heads(q, k, v)
    dq, dk, dv = torch.ops.aten._flash_attention_backward(
        gradient, q, k, v, out, lse, query_starts, key_starts, max_q, max_k, dropout, causal,
        state.view(torch.uint64), state,
    )  # fmt: skip
    if k.shape[1] != kv_heads:
        dk, dv = (x.unflatten(1, (kv_heads, -1)).sum(2) for x in (dk, dv))
    return dq, dk, dv


@_backward.register_fake
def _(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.dropout, seed = inputs
    ctx.save_for_backward(*tensors, *output, seed)


def _autograd_backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, query_starts, key_starts, max_query, max_key, out, lse, state, seed = ctx.saved_tensors
    gradients = _backward(
        gradient, q, k, v, out, lse, state, query_starts, key_starts, max_query, max_key, ctx.causal, ctx.dropout, seed
    )
    return *gradients, *[None] * 7


_forward.register_autograd(_autograd_backward, setup_context=_setup_context)


def _repeat_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    return (k, v) if group == 1 else (k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))
