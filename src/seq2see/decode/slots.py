"""The slots of one attention layer: where a cache keeps keys and values, and how a decoding step attends to them.

A cache hands each attention of a pass its store. That of a prompt (`PromptStore`) writes whole sequences to the slots, while
the attention itself needs no cache. That of a decoding step (`StepStore`) writes the keys and values of one token per
hypothesis, and is also what the new queries attend to: all slots that the step can see.

Shapes: S sentences, k hypotheses of each, T tokens, U keys, H heads, G key-value heads, d head width.
"""

from dataclasses import dataclass, replace
from types import ModuleType
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.data.layout import Layout
from seq2see.model.attention import Keys, PackedKeys, Scoring
from seq2see.model.taps import Taps

MATMUL_ROWS = 16  # from this many single queries, three matrix operations are faster on a CPU than SDPA


class Slots:
    """Stored keys and values of one attention, [rows, G, slots, d] each. Allocated by the first prompt."""

    def __init__(self, rows: int, slots: int) -> None:
        self.rows, self.slots = rows, slots
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def tables(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def write(self, rows: Tensor, slots: Tensor, new: PackedKeys) -> None:
        """Writes U keys and values to these rows and slots, [U] each."""
        if self.keys is None or self.values is None:
            shape = (self.rows, new.k.shape[1], self.slots, new.k.shape[2])
            # Zeros, because masked values are multiplied by 0, and 0 · NaN is NaN.
            self.keys, self.values = new.k.new_zeros(shape), new.v.new_zeros(shape)
        self.keys[rows, :, slots] = new.k
        self.values[rows, :, slots] = new.v

    def gather(self, index: Tensor, first: int, last: int, kernels: ModuleType | None) -> None:
        """Moves the entries at slots index[s], [S, last − first], to slots first … last − 1."""
        keys, values = self.tables()
        if kernels is not None:
            kernels.gather_slots(keys, values, index, first)
            return
        for table in (keys[: len(index)], values[: len(index)]):
            expanded = index[:, None, :, None].expand(-1, table.shape[1], -1, table.shape[3])
            table[:, :, first:last] = table.gather(2, expanded)


@dataclass(frozen=True)
class PromptStore:
    """One attention in a pass over whole prompts: their keys are stored, and are all there is to attend to."""

    takes_bias: ClassVar[bool] = True

    slots: Slots
    rows: Tensor  # [U] of each key
    columns: Tensor  # [U]

    def append(self, new: PackedKeys) -> Keys:
        self.slots.write(self.rows, self.columns, new)
        return new

    def stored(self) -> Keys:
        raise TypeError("a pass over prompts needs the encoder's memory")


@dataclass(frozen=True)
class RelativePositions:
    """Relative positions of one decoding step."""

    scheme: nn.Module  # one of POSITION_BIASES
    queries: Tensor  # [S, k]
    slots: Tensor  # [S, slots] the position of the token in each slot

    def of_slots(self, count: int, groups: int) -> Tensor:
        """Returns the bias of the first slots, [S, G, H / G · k, slots]."""
        table: Tensor = self.scheme(self.queries, self.slots[:, :count])  # [S, H, k, slots]
        return table.unflatten(1, (groups, -1)).flatten(2, 3)

    def of_keys(self, rows: Tensor, slots: Tensor, keys: Layout) -> Tensor:
        """Returns the bias of the keys at these rows and slots, in the layout of all hypotheses, [S · k, H, 1, M]."""
        positions = keys.pad(self.slots[rows, slots])  # [S · k, M]
        bias: Tensor = self.scheme(self.queries.flatten()[:, None], positions)
        return bias


@dataclass(frozen=True)
class VisibleSlots:
    """What one decoding step attends to, shared by layers: there is one for the generated tokens, one for the source, and
    another one for the generated tokens in layers with a window.
    """

    rows: int  # S
    beam: int  # k
    slots: int  # number of slots attended to; later slots are masked
    mask: Tensor  # [S, k or 1, all slots]: 0 or −∞
    # The mask as SDPA takes it, [S, 1, k or H / G · k or 1, slots], or with relative positions [S, G, H / G · k, slots]; None:
    # everything is visible.
    attn_mask: Tensor | None
    write_slots: Tensor  # [k] where the new keys and values go
    first_write: int | None  # write_slots[0] on the host; None with static shapes: a captured step must read the device
    kernels: ModuleType | None  # which use `mask` instead of `attn_mask`
    relative: RelativePositions | None = None


@dataclass(frozen=True)
class StepStore:
    """One attention in a decoding step: the store of the new keys, and what its queries attend to."""

    takes_bias: ClassVar[bool] = False

    slots: Slots
    visible: VisibleSlots
    new: PackedKeys | None = None  # not written yet: on a GPU one kernel writes and attends

    def append(self, new: PackedKeys) -> Self:
        return replace(self, new=new)

    def stored(self) -> Self:
        return self

    def attend(self, q: Tensor, queries: Layout, scoring: Scoring, dropout: float, taps: Taps) -> Tensor:
        """q is [S · k, H, d], and so is the result. The window of the scoring is already in the mask."""
        visible = self.visible
        if visible.kernels is not None and not taps.active:
            if scoring.scale:
                q = q * (scoring.scale * q.shape[-1] ** 0.5)  # the kernel divides by √d
            new = None if self.new is None else (self.new.k, self.new.v)
            return visible.kernels.attend(
                q, new, *self.slots.tables(), visible.mask, visible.write_slots, visible.slots
            )
        if self.new is not None:
            self._write(self.new)
        if taps.active:
            keys = self._packed(queries, taps)
            return keys.attend(q, queries, replace(scoring, window=0), dropout, taps.at("", keys=keys.layout))
        return self._attend(q, scoring)

    def _write(self, new: PackedKeys) -> None:
        visible = self.visible
        for table, added in zip(self.slots.tables(), (new.k, new.v), strict=True):
            added = added.view(visible.rows, visible.beam, *added.shape[1:]).transpose(1, 2)  # [S, G, k, d]
            if visible.first_write is None:
                table[: visible.rows].index_copy_(2, visible.write_slots, added)
            else:
                table[: visible.rows].narrow(2, visible.first_write, visible.beam).copy_(added)

    def _attend(self, q: Tensor, scoring: Scoring) -> Tensor:
        visible, rows, beam = self.visible, self.visible.rows, self.visible.beam
        k, v = (table[:rows, :, : visible.slots] for table in self.slots.tables())  # [S, G, slots, d]
        group = q.shape[1] // k.shape[1]
        if group == 1:
            q = q.view(rows, beam, *q.shape[1:]).transpose(1, 2)  # [S, H, k, d]
            many = beam == 1 and rows >= MATMUL_ROWS and q.device.type == "cpu" and q.dtype == torch.float32
            heads = _attend_to_slots(q, k, v, visible.attn_mask, scoring, by_products=many)
            return heads.transpose(1, 2).flatten(0, 1)
        # Heads that share keys and values become additional queries.
        q = q.view(rows, beam, k.shape[1], group, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [S, G, group · k, d]
        heads = _attend_to_slots(q, k, v, visible.attn_mask, scoring)
        return heads.unflatten(2, (group, beam)).permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)

    def _packed(self, queries: Layout, taps: Taps) -> PackedKeys:
        """Returns the visible keys of every hypothesis as a sequence of its own, in order of position."""
        visible = self.visible
        is_visible = (visible.mask == 0).expand(-1, visible.beam, -1).flatten(0, 1)  # [S · k, slots]
        rows, slots = is_visible.nonzero(as_tuple=True)
        k, v = (table[rows // visible.beam, :, slots] for table in self.slots.tables())  # [U, G, d]
        layout = replace(Layout.from_lengths(is_visible.sum(1)), sequence_ids=queries.sequence_ids)
        relative = visible.relative
        bias = None
        if relative is not None:
            bias = relative.of_keys(rows // visible.beam, slots, layout)
            bias = taps.at_stack(queries, layout)("relative_bias", bias)
        return PackedKeys(k, v, layout, bias=bias)


def _attend_to_slots(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, scoring: Scoring, by_products: bool = False
) -> Tensor:
    """softmax(Q Kᵀ / √d + mask) V: by PyTorch's fused attention, or by products if that is faster or scores are limited."""
    if not by_products and not scoring.cap:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scoring.scale or None)
    scores = (q @ k.mT).mul_(scoring.factor(q.shape[-1]))
    if scoring.cap:
        scores = scores.div_(scoring.cap).tanh_().mul_(scoring.cap)
    return (scores if attn_mask is None else scores.add_(attn_mask)).softmax(-1) @ v
