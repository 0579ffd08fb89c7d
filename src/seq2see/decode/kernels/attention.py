"""Triton kernels for a decoding step on a GPU, whose cost is mostly the number of kernel launches.

`attend` appends the new keys and values to the cache and attends to all visible slots; `gather_slots` compacts the cache;
`add_and_norm` is a residual and its norm; `linear` is a product of a few rows fused with the norm before and the activation
after it. The kernels that select tokens are in `select.py`.

Shapes: S sentences, k hypotheses of each, H heads, G key-value heads, d head width, P slots.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# Programmatic dependent launch (Hopper and later): a kernel starts while the previous one still runs, loads its weights,
# and only then waits.
_CAPABILITIES = [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]
_HAS_PDL = torch.version.hip is None and min(_CAPABILITIES, default=(0, 0)) >= (9, 0)
PDL: dict[str, Any] = {"use_pdl": True, "launch_pdl": True} if _HAS_PDL else {"use_pdl": False}


@triton.jit
def wait_for_previous(use_pdl: tl.constexpr):
    """Lets the next kernel start, and waits until the previous one is done."""
    if use_pdl:
        gdc_launch_dependents()
        gdc_wait()


SLOT_BLOCK, MAX_SLOT_BLOCK = (
    64,
    256,
)  # slots per iteration; more than 64 if there are too few programs to keep the GPU busy
BUSY_PROGRAMS = 128
MAX_BLOCK_BYTES = 1 << 15  # of the keys of an iteration: they and the next ones are held in registers


def attend(
    q: Tensor, new: tuple[Tensor, Tensor] | None, keys: Tensor, values: Tensor, mask: Tensor, write_slots: Tensor,
    slots: int,
) -> Tensor:  # fmt: skip
    """Returns the heads' outputs, [S · k, H, d] like q. Keys and values are [rows, G, P, d], the mask is [S, k or 1, P].

    `new` holds the keys and values of the current tokens, [S · k, G, d]: each hypothesis sees its own, and they are
    written to the slots from write_slots[0] on.
    """
    sentences, heads, width = len(mask), q.shape[1], q.shape[2]
    groups, beam = keys.shape[1], len(q) // sentences
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    block = SLOT_BLOCK
    if sentences * groups <= BUSY_PROGRAMS:
        fitting = min(MAX_SLOT_BLOCK, MAX_BLOCK_BYTES // (width * q.element_size()))
        block = max(block, min(triton.next_power_of_2(slots), fitting))
    k, v = new if new is not None else (q, q)
    _attend_kernel[(sentences, groups)](
        q, k, v, keys, values, mask, write_slots, out, slots, width**-0.5,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        keys.stride(0), keys.stride(1), mask.stride(0), mask.stride(1) if mask.shape[1] > 1 else 0,
        beam=beam, group=heads // groups, rows=max(16, triton.next_power_of_2(beam * (heads // groups))),
        width=width, block=block, append=new is not None, num_warps=max(4, block // 32), **PDL,
    )  # fmt: skip
    return out


@triton.jit
def _attend_kernel(
    q, k, v, keys, values, mask, write_slots, out, slots, scale,
    q_row, q_head, k_row, k_head, v_row, v_head, cache_row, cache_head, mask_row, mask_beam,
    beam: tl.constexpr, group: tl.constexpr, rows: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
    append: tl.constexpr, use_pdl: tl.constexpr,
):  # fmt: skip
    """One program per sentence and key-value head; its rows are the hypotheses times the heads that share the keys."""
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.arange(0, rows)
    valid = row < beam * group
    hypothesis, heads = row // group, head * group + row % group
    column = tl.arange(0, width)
    token = sentence * beam + hypothesis
    base = sentence * cache_row + head * cache_head
    keys_of_head, values_of_head = keys + base, values + base
    mask_of_rows = mask + sentence * mask_row + hypothesis[:, None] * mask_beam
    # Earlier steps wrote the slots that are visible: they are loaded while the previous kernel still runs.
    key, value, bias = _load_slots(keys_of_head, values_of_head, mask_of_rows, valid, 0, slots, width, block)
    wait_for_previous(use_pdl)
    queries = tl.load(q + token[:, None] * q_row + heads[:, None] * q_head + column, mask=valid[:, None], other=0.0)
    first = 0
    if append:
        first = tl.load(write_slots)
        own_key = tl.load(k + token[:, None] * k_row + head * k_head + column, mask=valid[:, None], other=0.0)
        own_value = tl.load(v + token[:, None] * v_row + head * v_head + column, mask=valid[:, None], other=0.0)
        destination = (first + hypothesis)[:, None] * width + column
        once_per_hypothesis = (valid & (row % group == 0))[:, None]
        tl.store(keys_of_head + destination, own_key, mask=once_per_hypothesis)
        tl.store(values_of_head + destination, own_value, mask=once_per_hypothesis)
        max_score = tl.sum(queries.to(tl.float32) * own_key.to(tl.float32), 1) * scale
        denominator = tl.full([rows], 1.0, tl.float32)
        acc = own_value.to(tl.float32)
    else:
        max_score = tl.full([rows], float("-inf"), tl.float32)
        denominator = tl.zeros([rows], tl.float32)
        acc = tl.zeros([rows, width], tl.float32)

    for start in range(0, slots, block):
        if append:  # the new slots may be written at any time, and were counted above
            slot = start + tl.arange(0, block)
            bias = tl.where((slot >= first) & (slot < first + beam), float("-inf"), bias)
        scores = tl.dot(queries, key, input_precision="ieee") * scale + bias
        new_max = tl.maximum(max_score, tl.max(scores, 1))
        finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)  # no visible slot: the output is 0
        weights = tl.exp(scores - finite_max[:, None])
        rescale = tl.exp(max_score - finite_max)
        denominator = denominator * rescale + tl.sum(weights, 1)
        acc = acc * rescale[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        max_score = new_max
        key, value, bias = _load_slots(
            keys_of_head, values_of_head, mask_of_rows, valid, start + block, slots, width, block
        )
    acc = acc / tl.where(denominator == 0.0, 1.0, denominator)[:, None]
    out_pointers = out + (token * (tl.num_programs(1) * group) + heads)[:, None] * width + column
    tl.store(out_pointers, acc.to(out.dtype.element_ty), mask=valid[:, None])


@triton.jit
def _load_slots(keys, values, mask, valid, start, slots, width: tl.constexpr, block: tl.constexpr):
    """Returns keys, [d, block], values, [block, d], and the mask, [rows, block], of the slots from `start` on."""
    column, slot = tl.arange(0, width), start + tl.arange(0, block)
    in_range = slot < slots
    key = tl.load(keys + slot[None, :] * width + column[:, None], mask=in_range[None, :], other=0.0)
    value = tl.load(values + slot[:, None] * width + column[None, :], mask=in_range[:, None], other=0.0)
    bias = tl.load(mask + slot[None, :], mask=valid[:, None] & in_range[None, :], other=float("-inf"))
    return key, value, bias


def gather_slots(keys: Tensor, values: Tensor, index: Tensor, first: int) -> None:
    """Moves the entries at slots index[s] of each sentence to the slots from `first` on; visible entries only move down."""
    _, groups, _, width = keys.shape
    _gather_slots_kernel[(len(index), groups, 2)](
        keys, values, index, first, index.shape[1], keys.stride(0), keys.stride(1), index.stride(0), width=width,
        block=SLOT_BLOCK,
    )  # fmt: skip


@triton.jit
def _gather_slots_kernel(
    keys, values, index, first, count, cache_row, cache_head, index_row, width: tl.constexpr, block: tl.constexpr
):
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    table = (keys if tl.program_id(2) == 0 else values) + sentence * cache_row + head * cache_head
    column = tl.arange(0, width)
    for start in range(0, count, block):
        offset = start + tl.arange(0, block)
        in_range = offset < count
        origin = tl.load(index + sentence * index_row + offset, mask=in_range, other=0)
        entries = tl.load(table + origin[:, None] * width + column[None, :], mask=in_range[:, None])
        tl.debug_barrier()  # everything is read before it is overwritten
        tl.store(table + (first + offset)[:, None] * width + column[None, :], entries, mask=in_range[:, None])


@dataclass(frozen=True)
class Norm:
    """Layer norm of x + y; `residual` says whether the norm or the sum continues as the residual."""

    weight: Tensor
    bias: Tensor | None
    epsilon: float
    residual: Literal["norm", "sum"]


def add_and_norm(x: Tensor, y: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """Returns the norm of x + y, and the residual."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    residual = torch.empty_like(out) if norm.residual == "sum" else out
    _add_and_norm_kernel[(len(x),)](
        x, x if y is None else y, norm.weight, norm.weight if norm.bias is None else norm.bias, out, residual, x.stride(0),
        x.stride(0) if y is None else y.stride(0), x.shape[1], norm.epsilon, has_y=y is not None,
        residual_is_sum=norm.residual == "sum", has_bias=norm.bias is not None, block=triton.next_power_of_2(x.shape[1]),
        **PDL,
    )  # fmt: skip
    return out, residual


@triton.jit
def _add_and_norm_kernel(
    x, y, weight, bias, out, residual, x_row, y_row, width, epsilon, has_y: tl.constexpr, residual_is_sum: tl.constexpr,
    has_bias: tl.constexpr, block: tl.constexpr, use_pdl: tl.constexpr,
):  # fmt: skip
    wait_for_previous(use_pdl)
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    in_range = column < width
    x_plus_y = tl.load(x + row * x_row + column, mask=in_range, other=0.0).to(tl.float32)
    if has_y:
        x_plus_y += tl.load(y + row * y_row + column, mask=in_range, other=0.0).to(tl.float32)
        x_plus_y = x_plus_y.to(out.dtype.element_ty).to(tl.float32)  # rounded as if the sum were stored
    if residual_is_sum:
        tl.store(residual + row * width + column, x_plus_y.to(out.dtype.element_ty), mask=in_range)
    mean = tl.sum(x_plus_y, 0) / width
    centered = tl.where(in_range, x_plus_y - mean, 0.0)
    normed = centered / tl.sqrt(tl.sum(centered * centered, 0) / width + epsilon)
    normed *= tl.load(weight + column, mask=in_range, other=0.0).to(tl.float32)
    if has_bias:
        normed += tl.load(bias + column, mask=in_range, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, normed.to(out.dtype.element_ty), mask=in_range)


MAX_ROWS, MAX_WIDTH = 4, 8192  # of the input of `linear`
OUTPUTS_PER_PROGRAM = 4  # many small programs hide each other's memory latency
VALUES_PER_WARP = 1024  # of one row; twice as many of several, whose products share the weights
ACTIVATIONS = {"": 0, "relu": 1, "gelu-tanh": 2}


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm: Norm | None = None,
    y: Tensor | None = None,
    activation: str = "",
) -> tuple[Tensor, Tensor]:
    """Returns activation(norm(x + y) · Wᵀ + b) of a few rows, computed in one kernel, and the residual."""
    rows, width = x.shape
    row_block, width_block = triton.next_power_of_2(rows), triton.next_power_of_2(width)
    out = x.new_empty(rows, len(weight))
    residual = torch.empty_like(x, memory_format=torch.contiguous_format) if norm is not None else x
    _linear_kernel[(triton.cdiv(len(weight), OUTPUTS_PER_PROGRAM),)](
        x, x if y is None else y, x if norm is None else norm.weight,
        x if norm is None or norm.bias is None else norm.bias, weight, x if bias is None else bias, out, residual,
        width, len(weight), x.stride(0), x.stride(0) if y is None else y.stride(0), weight.stride(0),
        0.0 if norm is None else norm.epsilon,
        rows=rows, has_y=y is not None, has_norm=norm is not None, has_norm_bias=norm is not None and norm.bias is not None,
        residual_is_sum=norm is not None and norm.residual == "sum", has_bias=bias is not None,
        activation=ACTIVATIONS[activation], row_block=row_block, width_block=width_block, output_block=OUTPUTS_PER_PROGRAM,
        num_warps=min(max(row_block * width_block // (VALUES_PER_WARP * min(rows, 2)), 1), 8), **PDL,
    )  # fmt: skip
    return out, residual


@triton.jit
def _linear_kernel(
    x, y, norm_weight, norm_bias, weight, bias, out, residual, width, outputs, x_row, y_row, weight_row, epsilon,
    rows: tl.constexpr, has_y: tl.constexpr, has_norm: tl.constexpr, has_norm_bias: tl.constexpr, residual_is_sum: tl.constexpr,
    has_bias: tl.constexpr, activation: tl.constexpr, row_block: tl.constexpr, width_block: tl.constexpr,
    output_block: tl.constexpr, use_pdl: tl.constexpr,
):  # fmt: skip
    """One program per block of outputs. Each normalises the rows itself, which is faster than waiting for another."""
    row, column = tl.arange(0, row_block), tl.arange(0, width_block)
    output = tl.program_id(0) * output_block + tl.arange(0, output_block)
    in_width, in_outputs = column < width, output < outputs
    in_range = (row < rows)[:, None] & in_width[None, :]
    dtype = out.dtype.element_ty
    weights = tl.load(
        weight + output[:, None] * weight_row + column[None, :], mask=in_outputs[:, None] & in_width[None, :], other=0.0
    )
    # All tensors have the layout of the weights, […, W], so that the products need no data of other threads.
    if has_norm:
        scale = tl.load(norm_weight + column[None, :], mask=in_width[None, :], other=0.0)
    if has_norm_bias:
        shift = tl.load(norm_bias + column[None, :], mask=in_width[None, :], other=0.0)
    if has_bias:
        output_shift = tl.load(bias + output, mask=in_outputs, other=0.0)
    wait_for_previous(use_pdl)
    inputs = tl.load(x + row[:, None] * x_row + column[None, :], mask=in_range, other=0.0).to(tl.float32)
    if has_y:
        inputs += tl.load(y + row[:, None] * y_row + column[None, :], mask=in_range, other=0.0).to(tl.float32)
        inputs = inputs.to(dtype).to(tl.float32)  # rounded as if the sum were stored
    if has_norm:
        mean = tl.sum(inputs, 1) / width
        centered = tl.where(in_range, inputs - mean[:, None], 0.0)
        normed = centered / tl.sqrt(tl.sum(centered * centered, 1) / width + epsilon)[:, None]
        normed *= scale.to(tl.float32)
        if has_norm_bias:
            normed += shift.to(tl.float32)
        if tl.program_id(0) == 0:
            continued = inputs if residual_is_sum else normed
            tl.store(residual + row[:, None] * width + column[None, :], continued.to(dtype), mask=in_range)
        inputs = normed.to(dtype).to(tl.float32)
    for i in tl.static_range(rows):
        vector = tl.sum(tl.where((row == i)[:, None], inputs, 0.0), 0)
        acc = tl.sum(vector[None, :] * weights.to(tl.float32), 1)
        if has_bias:
            acc += output_shift.to(tl.float32)
        if activation == 1:
            acc = tl.maximum(acc, 0.0)
        elif activation == 2:
            inner = 0.7978845608028654 * (acc + 0.044715 * acc * acc * acc)  # √(2/π)
            acc = acc * (1.0 - 1.0 / (1.0 + tl.exp(2.0 * inner)))  # ½ (1 + tanh) = σ(2 ·)
        tl.store(out + i * outputs + output, acc.to(dtype), mask=in_outputs)
