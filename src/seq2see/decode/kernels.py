"""Two kernels for a step of decoding on a GPU, where what a step costs is the number of things that are started one by one.

`look` keeps the new keys and values and lets the queries look at all that are kept, in one go and by the cache's own mask;
`add_and_norm` is a residual and its norm. Both are written for few rows.

Shapes: S sentences, k hypotheses of each, H heads, G heads of keys and values, d the width of a head, P places.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # places that are looked at together


def look(
    q: Tensor, new: tuple[Tensor, Tensor] | None, keys: Tensor, values: Tensor, mask: Tensor, place: Tensor, places: int
) -> Tensor:
    """What the heads find, [S · k, H, d], as q. Keys and values are [rows, G, P, d], and the mask [S, k or 1, P].

    New keys and values, [S · k, G, d], are those of the tokens that now pass: each hypothesis sees its own, and they are
    written to the places that begin at `place`.
    """
    size, heads, width = len(mask), q.shape[1], q.shape[2]
    groups, beam = keys.shape[1], len(q) // size
    found = torch.empty_like(q, memory_format=torch.contiguous_format)
    k, v = new if new is not None else (q, q)
    _look[(size, groups)](
        q, k, v, keys, values, mask, place, found, places, width**-0.5,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        keys.stride(0), keys.stride(1), mask.stride(0), mask.stride(1) if mask.shape[1] > 1 else 0,
        beam=beam, group=heads // groups, rows=max(16, triton.next_power_of_2(beam * (heads // groups))),
        width=width, block=BLOCK, writes=new is not None,
    )  # fmt: skip
    return found


@triton.jit
def _look(
    q, k, v, keys, values, mask, place, found, places, scale,
    q_row, q_head, k_row, k_head, v_row, v_head, kept_row, kept_head, mask_row, mask_beam,
    beam: tl.constexpr, group: tl.constexpr, rows: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
    writes: tl.constexpr,
):  # fmt: skip
    """One sentence and one head of keys: its rows are its hypotheses, each with the group of heads that share the key."""
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.arange(0, rows)
    real = row < beam * group
    hypothesis, heads = row // group, head * group + row % group
    column = tl.arange(0, width)
    token = sentence * beam + hypothesis
    queries = tl.load(q + token[:, None] * q_row + heads[:, None] * q_head + column, mask=real[:, None], other=0.0)
    kept = sentence * kept_row + head * kept_head
    first = 0
    if writes:
        first = tl.load(place)
        own_key = tl.load(k + token[:, None] * k_row + head * k_head + column, mask=real[:, None], other=0.0)
        own_value = tl.load(v + token[:, None] * v_row + head * v_head + column, mask=real[:, None], other=0.0)
        there = kept + (first + hypothesis)[:, None] * width + column
        one_of_each = (real & (row % group == 0))[:, None]
        tl.store(keys + there, own_key, mask=one_of_each)
        tl.store(values + there, own_value, mask=one_of_each)
        most = tl.sum(queries.to(tl.float32) * own_key.to(tl.float32), 1) * scale
        total = tl.full([rows], 1.0, tl.float32)
        sums = own_value.to(tl.float32)
    else:
        most = tl.full([rows], float("-inf"), tl.float32)
        total = tl.zeros([rows], tl.float32)
        sums = tl.zeros([rows, width], tl.float32)

    for start in range(0, places, block):
        at = start + tl.arange(0, block)
        inside = at < places
        key = tl.load(keys + kept + at[None, :] * width + column[:, None], mask=inside[None, :], other=0.0)
        value = tl.load(values + kept + at[:, None] * width + column[None, :], mask=inside[:, None], other=0.0)
        seen = tl.load(
            mask + sentence * mask_row + hypothesis[:, None] * mask_beam + at[None, :],
            mask=real[:, None] & inside[None, :], other=float("-inf"),
        )  # fmt: skip
        if writes:  # these were just written, or are about to be
            seen = tl.where((at >= first) & (at < first + beam), float("-inf"), seen)
        scores = tl.dot(queries, key, input_precision="ieee") * scale + seen
        new_most = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(new_most == float("-inf"), 0.0, new_most)  # who sees nothing finds nothing
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(most - base)
        total = total * shrink + tl.sum(weights, 1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        most = new_most
    sums = sums / tl.where(total == 0.0, 1.0, total)[:, None]
    out = found + (token * (tl.num_programs(1) * group) + heads)[:, None] * width + column
    tl.store(out, sums.to(found.dtype.element_ty), mask=real[:, None])


def add_and_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """Layer norm of x + y, rows of the same width."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    block = triton.next_power_of_2(x.shape[1])
    _add_and_norm[(len(x),)](
        x, y, weight, bias if bias is not None else weight, out, x.stride(0), y.stride(0), x.shape[1], epsilon,
        biased=bias is not None, block=block,
    )  # fmt: skip
    return out


@triton.jit
def _add_and_norm(
    x, y, weight, bias, out, x_row, y_row, width, epsilon, biased: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    inside = column < width
    total = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(y + row * y_row + column, mask=inside, other=0.0).to(tl.float32)
    total = total.to(out.dtype.element_ty).to(tl.float32)  # as the sum would be kept
    mean = tl.sum(total, 0) / width
    centred = tl.where(inside, total - mean, 0.0)
    normed = centred / tl.sqrt(tl.sum(centred * centred, 0) / width + epsilon)
    normed *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if biased:
        normed += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, normed.to(out.dtype.element_ty), mask=inside)
