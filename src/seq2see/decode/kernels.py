"""Kernels for a step of decoding on a GPU, where what a step costs is the number of things that are started one by one.

`look` keeps the new keys and values and lets the queries look at all that are kept, in one go and by the cache's own mask;
`rearrange` closes up the places of what is kept; `add_and_norm` is a residual and its norm; `linear` a product of few rows
with all that comes before and after it. Those that choose a token are in `choosing`.

Shapes: S sentences, k hypotheses of each, H heads, G heads of keys and values, d the width of a head, P places.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# From Hopper on, a kernel may start while the one before it still runs, fetch its weights, and only then wait for it.
_CAPABILITIES = [torch.cuda.get_device_capability(number) for number in range(torch.cuda.device_count())]
_CAN_OVERLAP = torch.version.hip is None and min(_CAPABILITIES, default=(0, 0)) >= (9, 0)
AHEAD: dict[str, Any] = {"ahead": True, "launch_pdl": True} if _CAN_OVERLAP else {"ahead": False}


@triton.jit
def in_turn(ahead: tl.constexpr):
    """The next kernel may start, and this one waits until the one before is done."""
    if ahead:
        gdc_launch_dependents()
        gdc_wait()


PLACES = 64  # that are looked at together, or twice as many where there are too few programs to keep a GPU busy
BUSY = 128  # programs


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
    block = PLACES if size * groups > BUSY or places <= PLACES else 2 * PLACES
    k, v = new if new is not None else (q, q)
    _look[(size, groups)](
        q, k, v, keys, values, mask, place, found, places, width**-0.5,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        keys.stride(0), keys.stride(1), mask.stride(0), mask.stride(1) if mask.shape[1] > 1 else 0,
        beam=beam, group=heads // groups, rows=max(16, triton.next_power_of_2(beam * (heads // groups))),
        width=width, block=block, writes=new is not None, **AHEAD,
    )  # fmt: skip
    return found


@triton.jit
def _look(
    q, k, v, keys, values, mask, place, found, places, scale,
    q_row, q_head, k_row, k_head, v_row, v_head, kept_row, kept_head, mask_row, mask_beam,
    beam: tl.constexpr, group: tl.constexpr, rows: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
    writes: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """One sentence and one head of keys: its rows are its hypotheses, each with the group of heads that share the key."""
    in_turn(ahead)
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


def rearrange(keys: Tensor, values: Tensor, index: Tensor, first: int) -> None:
    """What lies at places index[s] of a sentence moves to those that begin at `first`: what is seen moves down, never up."""
    _, groups, _, width = keys.shape
    _rearrange[(len(index), groups, 2)](
        keys, values, index, first, index.shape[1], keys.stride(0), keys.stride(1), index.stride(0), width=width,
        block=PLACES,
    )  # fmt: skip


@triton.jit
def _rearrange(
    keys, values, index, first, count, kept_row, kept_head, index_row, width: tl.constexpr, block: tl.constexpr
):
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    table = (keys if tl.program_id(2) == 0 else values) + sentence * kept_row + head * kept_head
    column = tl.arange(0, width)
    for start in range(0, count, block):
        to = start + tl.arange(0, block)
        inside = to < count
        origin = tl.load(index + sentence * index_row + to, mask=inside, other=0)
        some = tl.load(table + origin[:, None] * width + column[None, :], mask=inside[:, None])
        tl.debug_barrier()  # all is read before it is overwritten
        tl.store(table + (first + to)[:, None] * width + column[None, :], some, mask=inside[:, None])


@dataclass(frozen=True)
class Norm:
    """Layer norm of x + y; `keeps` what is to go on beside what is made of it, the norm or the sum."""

    weight: Tensor
    bias: Tensor | None
    epsilon: float
    keeps: Literal["norm", "sum"]


def add_and_norm(x: Tensor, y: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """The norm of x + y, rows of the same width, and what it keeps."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    kept = torch.empty_like(out) if norm.keeps == "sum" else out
    _add_and_norm[(len(x),)](
        x, x if y is None else y, norm.weight, norm.weight if norm.bias is None else norm.bias, out, kept, x.stride(0),
        x.stride(0) if y is None else y.stride(0), x.shape[1], norm.epsilon, adds=y is not None,
        keeps_sum=norm.keeps == "sum", biased=norm.bias is not None, block=triton.next_power_of_2(x.shape[1]),
        **AHEAD,
    )  # fmt: skip
    return out, kept


@triton.jit
def _add_and_norm(
    x, y, weight, bias, out, kept, x_row, y_row, width, epsilon, adds: tl.constexpr, keeps_sum: tl.constexpr,
    biased: tl.constexpr, block: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    in_turn(ahead)
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    inside = column < width
    total = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    if adds:
        total += tl.load(y + row * y_row + column, mask=inside, other=0.0).to(tl.float32)
        total = total.to(out.dtype.element_ty).to(tl.float32)  # as the sum would be kept
    if keeps_sum:
        tl.store(kept + row * width + column, total.to(out.dtype.element_ty), mask=inside)
    mean = tl.sum(total, 0) / width
    centred = tl.where(inside, total - mean, 0.0)
    normed = centred / tl.sqrt(tl.sum(centred * centred, 0) / width + epsilon)
    normed *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if biased:
        normed += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, normed.to(out.dtype.element_ty), mask=inside)


FEW = 4  # rows, at most, of `linear`
WIDEST = 8192  # and so many numbers of each
A_WARP = 1024  # numbers of the rows for each warp
ACTIVATIONS = {"": 0, "relu": 1, "gelu-tanh": 2}


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, norm: Norm | None = None, y: Tensor | None = None,
    activation: str = "",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """activation(norm(x + y) · Wᵀ + b) of a few rows in one kernel, and what the norm keeps."""
    rows, width = x.shape
    few, whole = triton.next_power_of_2(rows), triton.next_power_of_2(width)
    columns = 2 if rows == 1 else 4  # of one program: many programs of little work each wait for memory side by side
    out = x.new_empty(rows, len(weight))
    kept = torch.empty_like(x, memory_format=torch.contiguous_format) if norm is not None else x
    _linear[(triton.cdiv(len(weight), columns),)](
        x, x if y is None else y, x if norm is None else norm.weight,
        x if norm is None or norm.bias is None else norm.bias, weight, x if bias is None else bias, out, kept,
        rows, width, len(weight), x.stride(0), x.stride(0) if y is None else y.stride(0), weight.stride(0),
        0.0 if norm is None else norm.epsilon,
        adds=y is not None, norms=norm is not None, norm_biased=norm is not None and norm.bias is not None,
        keeps_sum=norm is not None and norm.keeps == "sum", biased=bias is not None,
        activation=ACTIVATIONS[activation], few=few, whole=whole, columns=columns,
        num_warps=min(max(few * whole // A_WARP, 1), 8), **AHEAD,
    )  # fmt: skip
    return out, kept


@triton.jit
def _linear(
    x, y, norm_weight, norm_bias, weight, bias, out, kept, rows, width, outputs, x_row, y_row, weight_row, epsilon,
    adds: tl.constexpr, norms: tl.constexpr, norm_biased: tl.constexpr, keeps_sum: tl.constexpr, biased: tl.constexpr,
    activation: tl.constexpr, few: tl.constexpr, whole: tl.constexpr, columns: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """All rows against some of the weights. Each program norms the rows for itself: that is less than to wait for another."""
    row, place = tl.arange(0, few), tl.arange(0, whole)
    output = tl.program_id(0) * columns + tl.arange(0, columns)
    inside, wanted = place < width, output < outputs
    there = (row < rows)[:, None] & inside[None, :]
    kind = out.dtype.element_ty
    weights = tl.load(
        weight + output[:, None] * weight_row + place[None, :], mask=wanted[:, None] & inside[None, :], other=0.0
    )
    in_turn(ahead)
    given = tl.load(x + row[:, None] * x_row + place[None, :], mask=there, other=0.0).to(tl.float32)
    if adds:
        given += tl.load(y + row[:, None] * y_row + place[None, :], mask=there, other=0.0).to(tl.float32)
        given = given.to(kind).to(tl.float32)  # as the sum would be kept
    if norms:
        mean = tl.sum(given, 1) / width
        centred = tl.where(there, given - mean[:, None], 0.0)
        normed = centred / tl.sqrt(tl.sum(centred * centred, 1) / width + epsilon)[:, None]
        normed *= tl.load(norm_weight + place, mask=inside, other=0.0).to(tl.float32)[None, :]
        if norm_biased:
            normed += tl.load(norm_bias + place, mask=inside, other=0.0).to(tl.float32)[None, :]
        if tl.program_id(0) == 0:
            keep = given if keeps_sum else normed
            tl.store(kept + row[:, None] * width + place[None, :], keep.to(kind), mask=there)
        given = normed.to(kind).to(tl.float32)
    sums = tl.sum(given[:, None, :] * weights.to(tl.float32)[None, :, :], 2)
    if biased:
        sums += tl.load(bias + output, mask=wanted, other=0.0).to(tl.float32)[None, :]
    if activation == 1:
        sums = tl.maximum(sums, 0.0)
    elif activation == 2:
        inner = 0.7978845608028654 * (sums + 0.044715 * sums * sums * sums)  # √(2/π)
        sums = sums * (1.0 - 1.0 / (1.0 + tl.exp(2.0 * inner)))  # ½ (1 + tanh) = σ(2 ·)
    tl.store(
        out + row[:, None] * outputs + output[None, :], sums.to(kind), mask=(row < rows)[:, None] & wanted[None, :]
    )
