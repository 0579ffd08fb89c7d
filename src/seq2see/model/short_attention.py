"""Attention over short packed sequences in Triton: one program per (sequence, head), the whole sequence in one block.

Flash attention works in tiles of 128 × 128, of which a sentence of 27 tokens wastes most. Here the block is the maximum
length of the batch rounded up to 16, 32, 64 or 128, softmax needs no running maximum, and the backward pass recomputes the
weights instead of reading saved ones. Forward pass of 25,000 tokens, 8 heads of width 64, on one H200: 0.03 ms for sentences
of 9 tokens and 0.05 ms for 100, where flash attention takes 0.49 and 0.06; the backward pass takes 0.06 and 0.13 ms.
The reference is `attention_reference`; a test checks that the two agree, on a GPU and in Triton's interpreter on a CPU.

Shapes as in `attention.py`: q is [T, H, d], k and v are [U, G, d], with any strides over rows and heads.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

MIN_BLOCK = 16  # the smallest tile of a tensor core
WARPS = {16: 1, 32: 1, 64: 4, 128: 8}  # per block size, the fastest on an H200


def forward(
    q: Tensor, k: Tensor, v: Tensor, query_starts: Tensor, key_starts: Tensor, max_query: int, max_key: int,
    causal: bool, dropout: float, seed: Tensor,
) -> Tensor:  # fmt: skip
    out = q.new_empty(q.shape)
    grid = (len(query_starts) - 1, q.shape[1])
    _forward[grid](
        q, k, v, out, query_starts, key_starts, seed, math.log2(math.e) / math.sqrt(q.shape[2]), q.shape[1],
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], out.stride(0),
        **_constants(q, k, max_query, max_key, causal, dropout),
    )  # fmt: skip
    return out


def backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, query_starts: Tensor, key_starts: Tensor, max_query: int,
    max_key: int, causal: bool, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    dq, dk, dv = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    scale = 1 / math.sqrt(q.shape[2])
    grid = (len(query_starts) - 1, k.shape[1])
    _backward[grid](
        q, k, v, gradient, dq, dk, dv, query_starts, key_starts, seed, scale * math.log2(math.e), scale, q.shape[1],
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *gradient.stride()[:2], dq.stride(0), dk.stride(0),
        **_constants(q, k, max_query, max_key, causal, dropout),
    )  # fmt: skip
    return dq, dk, dv


def _constants(q: Tensor, k: Tensor, max_query: int, max_key: int, causal: bool, dropout: float) -> dict[str, object]:
    block_q, block_k, d = (max(MIN_BLOCK, triton.next_power_of_2(n)) for n in (max_query, max_key, q.shape[2]))
    return {
        "GROUP": q.shape[1] // k.shape[1], "CAUSAL": causal, "DROPOUT": dropout, "BLOCK_Q": block_q, "BLOCK_K": block_k,
        "D": d, "WIDTH": q.shape[2], "num_warps": WARPS[max(block_q, block_k)], "num_stages": 1,
    }  # fmt: skip


@triton.jit
def _load(
    pointer, start, length, head, row_stride, head_stride, BLOCK: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr
):
    """Returns the rows of one sequence and head, [BLOCK, D]; zero past its length and the head width."""
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, D)
    offsets = (start + rows)[:, None].to(tl.int64) * row_stride + head * head_stride + columns[None, :]
    return tl.load(pointer + offsets, mask=(rows < length)[:, None] & (columns < WIDTH)[None, :], other=0.0)


@triton.jit
def _store(
    pointer, value, start, length, head, row_stride, head_stride,
    BLOCK: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Writes the rows of one sequence and head; the counterpart of `_load`."""
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, D)
    offsets = (start + rows)[:, None].to(tl.int64) * row_stride + head * head_stride + columns[None, :]
    mask = (rows < length)[:, None] & (columns < WIDTH)[None, :]
    tl.store(pointer + offsets, value.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def _weights(q, k, k_length, scale, CAUSAL: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Returns softmax(q kᵀ · scale) over the keys of the sequence, [BLOCK_Q, BLOCK_K]; `scale` includes log2(e)."""
    scores = tl.dot(q, tl.trans(k)) * scale
    row, column = tl.arange(0, BLOCK_Q)[:, None], tl.arange(0, BLOCK_K)[None, :]
    visible = column < k_length
    if CAUSAL:
        visible = visible & (column <= row)
    scores = tl.where(visible, scores, -1e30)  # finite: a padded row must not become NaN
    p = tl.exp2(scores - tl.max(scores, 1)[:, None])
    p = tl.where(visible, p, 0.0)
    return p / tl.maximum(tl.sum(p, 1), 1e-30)[:, None]


@triton.jit
def _dropout_scale(seed, sequence, head, heads, DROPOUT: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Returns the factor of each weight under dropout, 0 or 1 / (1 − DROPOUT); the same in both passes."""
    row, column = tl.arange(0, BLOCK_Q)[:, None], tl.arange(0, BLOCK_K)[None, :]
    # Strides of 128 whatever the block size, so that the mask does not change with the maximum length of the batch.
    offset = ((sequence * heads + head) * 128 + row) * 128 + column
    return tl.where(tl.rand(tl.load(seed), offset) >= DROPOUT, 1.0 / (1.0 - DROPOUT), 0.0)


@triton.jit
def _forward(
    q, k, v, out, query_starts, key_starts, seed, scale, heads, q_row, q_head, k_row, k_head, v_row, v_head, out_row,
    GROUP: tl.constexpr, CAUSAL: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    q_start, k_start = tl.load(query_starts + sequence), tl.load(key_starts + sequence)
    q_length, k_length = tl.load(query_starts + sequence + 1) - q_start, tl.load(key_starts + sequence + 1) - k_start
    if q_length > 0:
        q_tile = _load(q, q_start, q_length, head, q_row, q_head, BLOCK_Q, D, WIDTH)
        k_tile = _load(k, k_start, k_length, head // GROUP, k_row, k_head, BLOCK_K, D, WIDTH)
        v_tile = _load(v, k_start, k_length, head // GROUP, v_row, v_head, BLOCK_K, D, WIDTH)
        p = _weights(q_tile, k_tile, k_length, scale, CAUSAL, BLOCK_Q, BLOCK_K)
        if DROPOUT > 0:
            p = p * _dropout_scale(seed, sequence, head, heads, DROPOUT, BLOCK_Q, BLOCK_K)
        _store(out, tl.dot(p.to(v_tile.dtype), v_tile), q_start, q_length, head, out_row, WIDTH, BLOCK_Q, D, WIDTH)


@triton.jit
def _backward(
    q, k, v, grad, dq, dk, dv, query_starts, key_starts, seed, scale, softmax_scale, heads,
    q_row, q_head, k_row, k_head, v_row, v_head, grad_row, grad_head, dq_row, dk_row,
    GROUP: tl.constexpr, CAUSAL: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    sequence, group = tl.program_id(0), tl.program_id(1)
    q_start, k_start = tl.load(query_starts + sequence), tl.load(key_starts + sequence)
    q_length, k_length = tl.load(query_starts + sequence + 1) - q_start, tl.load(key_starts + sequence + 1) - k_start
    if k_length > 0:
        k_tile = _load(k, k_start, k_length, group, k_row, k_head, BLOCK_K, D, WIDTH)
        v_tile = _load(v, k_start, k_length, group, v_row, v_head, BLOCK_K, D, WIDTH)
        dk_tile = tl.zeros([BLOCK_K, D], tl.float32)
        dv_tile = tl.zeros([BLOCK_K, D], tl.float32)
        for member in range(GROUP):
            head = group * GROUP + member
            q_tile = _load(q, q_start, q_length, head, q_row, q_head, BLOCK_Q, D, WIDTH)
            grad_tile = _load(grad, q_start, q_length, head, grad_row, grad_head, BLOCK_Q, D, WIDTH)
            p = _weights(q_tile, k_tile, k_length, scale, CAUSAL, BLOCK_Q, BLOCK_K)
            dp = tl.dot(grad_tile, tl.trans(v_tile))
            if DROPOUT > 0:
                scales = _dropout_scale(seed, sequence, head, heads, DROPOUT, BLOCK_Q, BLOCK_K)
                dropped, dp = p * scales, dp * scales
            else:
                dropped = p
            dv_tile += tl.dot(tl.trans(dropped.to(grad_tile.dtype)), grad_tile)
            ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * softmax_scale).to(q_tile.dtype)
            dk_tile += tl.dot(tl.trans(ds), q_tile)
            _store(dq, tl.dot(ds, k_tile), q_start, q_length, head, dq_row, WIDTH, BLOCK_Q, D, WIDTH)
        _store(dk, dk_tile, k_start, k_length, group, dk_row, WIDTH, BLOCK_K, D, WIDTH)
        _store(dv, dv_tile, k_start, k_length, group, dk_row, WIDTH, BLOCK_K, D, WIDTH)
