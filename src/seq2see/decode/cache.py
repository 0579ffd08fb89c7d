"""The key-value cache of a Transformer: keys and values of the generated tokens and of the source.

All hypotheses of all sentences write at the same step into adjacent slots: the k hypotheses of a sentence take k slots per
step. A mask says which slots a hypothesis attends to, its own and its ancestors':

    slot             0   1   2   3   4   5   6   7  ← next step: hypothesis 0 writes slot 7, hypothesis 1 slot 8
    token           <s>  A   The dog man dog big
    hypothesis 0     ×   ×       ×       ×          A dog dog
    hypothesis 1     ×   ×           ×       ×      A man big

When a beam reorders its hypotheses, only rows of the mask move, never keys or values. Every few steps the cache is
compacted, which removes slots that no hypothesis attends to any more (2, above). A sentence that joins later starts at
slot 0 of its own row; the slots between its prompt and the next write stay masked.

A forward pass is either a prefill, in which whole prompts pass through the model, or a decoding step of one token per
hypothesis. `KeyValueCache.prefill` and `.step` return the layer caches of that pass, which `Transformer.decode` takes.

Shapes: S sentences, k hypotheses of each, M source tokens, H heads, G key-value heads, d head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.data.layout import Layout, Packed, Tokens
from seq2see.decode.optimize import has_kernels
from seq2see.model.attention import PAPER, Scoring, attend, attention_reference
from seq2see.model.layers import Block, BlockCaches
from seq2see.model.positions import RelativeBias
from seq2see.model.taps import Taps
from seq2see.model.transformer import Transformer

MASKED = float("-inf")
SPARE_SLOTS = 64  # more than needed, so that the cache is not compacted at every step
BUCKET = 64  # with static shapes, the number of slots attended to is a multiple of this
MATMUL_ROWS = 16  # from this many single queries, three matrix operations are faster on a CPU than SDPA
COMPACT_STEPS = 12  # steps of a beam between compactions
MAX_UNUSED_SLOTS = 64  # without a beam: compacts if the slots exceed the longest sentence twice and by this many more


class LayerKeyValues:
    """Cached keys and values of one attention, [rows, G, slots, d] each. Allocated by the first prefill."""

    def __init__(self, rows: int, slots: int) -> None:
        self.rows, self.slots = rows, slots
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def tables(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def store(self, rows: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Writes keys and values, [T, G, d], to these rows and slots, [T] each."""
        if self.keys is None or self.values is None:
            shape = (self.rows, k.shape[1], self.slots, k.shape[2])
            # Zeros, because masked values are multiplied by 0, and 0 · NaN is NaN.
            self.keys, self.values = k.new_zeros(shape), v.new_zeros(shape)
        self.keys[rows, :, slots] = k
        self.values[rows, :, slots] = v

    def move_rows(self, origins: Tensor, rows: Tensor) -> None:
        for table in (self.keys, self.values):
            if table is not None:
                table[rows] = table[origins]

    def gather_slots(self, index: Tensor, first: int, last: int, kernels: ModuleType | None) -> None:
        """Moves the entries at slots index[s], [S, last − first], to slots first … last − 1."""
        keys, values = self.tables()
        if kernels is not None:
            kernels.gather_slots(keys, values, index, first)
            return
        for table in (keys[: len(index)], values[: len(index)]):
            expanded = index[:, None, :, None].expand(-1, table.shape[1], -1, table.shape[3])
            table[:, :, first:last] = table.gather(2, expanded)


@dataclass(frozen=True)
class PrefillCache:
    """One attention during a prefill: stores the keys and values of whole prompts; attention itself needs no cache."""

    stored: LayerKeyValues
    rows: Tensor  # [T] cache row of each token
    slots: Tensor  # [T]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool, taps: Taps,
        scoring: Scoring = PAPER, bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        self.stored.store(self.rows, self.slots, k, v)
        if taps.active:
            return attention_reference(q, k, v, queries, keys, causal, taps=taps, scoring=scoring, bias=bias)
        return attend(q, k, v, queries, keys, causal, scoring=scoring, bias=bias)

    def attend_cached(self, q: Tensor, queries: Layout, taps: Taps, scoring: Scoring = PAPER) -> Tensor:
        raise NotImplementedError("a prefill computes all keys and values")


@dataclass(frozen=True)
class VisibleSlots:
    """What one decoding step attends to; shared by layers. One for the generated tokens, one for the source; a second one
    for the generated tokens that layers with a window attend to.
    """

    rows: int  # S
    beam: int  # k
    slots: int  # number of slots attended to; later slots are masked
    mask: Tensor  # [S, k or 1, all slots]: 0 or −∞
    # The mask as SDPA takes it, [S, 1, k or H / G · k or 1, slots], or with relative positions [S, G, H / G · k, slots]; None:
    # everything is visible.
    bias: Tensor | None
    write_slots: Tensor  # [k] where the new keys and values go
    first_write: int | None  # write_slots[0] on the host; None with static shapes: a captured step must read the device
    kernels: ModuleType | None  # which use `mask` instead of `bias`
    relative: "RelativePositions | None" = None


@dataclass(frozen=True)
class RelativePositions:
    """Relative positions of one decoding step."""

    bias: RelativeBias
    queries: Tensor  # [S, k]
    slots: Tensor  # [S, slots] the position of the token in each slot

    def of_slots(self, count: int, groups: int) -> Tensor:
        """Returns the bias of the first slots, [S, G, H / G · k, slots]."""
        table = self.bias(self.queries, self.slots[:, :count])  # [S, H, k, slots]
        return table.unflatten(1, (groups, -1)).flatten(2, 3)

    def of_keys(self, rows: Tensor, slots: Tensor, keys: Layout) -> Tensor:
        """Returns the bias of the keys at these rows and slots, in the layout of all hypotheses, [S · k, H, 1, M]."""
        positions = keys.pad(self.slots[rows, slots])  # [S · k, M]
        return self.bias(self.queries.flatten()[:, None], positions)


@dataclass(frozen=True)
class StepCache:
    """One attention during a decoding step: appends the new keys and values, attends to all visible slots."""

    stored: LayerKeyValues
    visible: VisibleSlots

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool, taps: Taps,
        scoring: Scoring = PAPER, bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """q is [S · k, H, d]; the keys and values of the new tokens are [S · k, G, d]."""
        visible = self.visible
        if visible.kernels is not None and not taps.active:
            return self._attend_fused(visible.kernels, q, (k, v), scoring)
        for table, new in zip(self.stored.tables(), (k, v), strict=True):
            new = new.view(visible.rows, visible.beam, *new.shape[1:]).transpose(1, 2)  # [S, G, k, d]
            if visible.first_write is None:
                table[: visible.rows].index_copy_(2, visible.write_slots, new)
            else:
                table[: visible.rows].narrow(2, visible.first_write, visible.beam).copy_(new)
        return self.attend_cached(q, queries, taps, scoring)

    def attend_cached(self, q: Tensor, queries: Layout, taps: Taps, scoring: Scoring = PAPER) -> Tensor:
        """q is [S · k, H, d], and so is the result. The window of the scoring is already in the mask."""
        visible = self.visible
        if taps.active:
            return self._attend_reference(q, queries, taps, scoring)
        if visible.kernels is not None:
            return self._attend_fused(visible.kernels, q, None, scoring)
        rows, beam = visible.rows, visible.beam
        k, v = (table[:rows, :, : visible.slots] for table in self.stored.tables())  # [S, G, slots, d]
        group = q.shape[1] // k.shape[1]
        if group == 1:
            q = q.view(rows, beam, *q.shape[1:]).transpose(1, 2)  # [S, H, k, d]
            many = beam == 1 and rows >= MATMUL_ROWS and q.device.type == "cpu" and q.dtype == torch.float32
            heads = _attend_to_slots(q, k, v, visible.bias, scoring, by_products=many)
            return heads.transpose(1, 2).flatten(0, 1)
        # Heads that share keys and values become additional queries.
        q = q.view(rows, beam, k.shape[1], group, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [S, G, group · k, d]
        heads = _attend_to_slots(q, k, v, visible.bias, scoring)
        return heads.unflatten(2, (group, beam)).permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)

    def _attend_fused(
        self, kernels: ModuleType, q: Tensor, new: tuple[Tensor, Tensor] | None, scoring: Scoring
    ) -> Tensor:
        """Writes the new keys and values, if any, and attends, in one kernel."""
        visible = self.visible
        if scoring.scale:
            q = q * (scoring.scale * q.shape[-1] ** 0.5)  # the kernel divides by √d
        return kernels.attend(q, new, *self.stored.tables(), visible.mask, visible.write_slots, visible.slots)

    def _attend_reference(self, q: Tensor, queries: Layout, taps: Taps, scoring: Scoring) -> Tensor:
        """Attends step by step: every hypothesis is a sequence of its own, with its keys in order of position."""
        visible = self.visible
        is_visible = (visible.mask == 0).expand(-1, visible.beam, -1).flatten(0, 1)  # [S · k, slots]
        rows, slots = is_visible.nonzero(as_tuple=True)
        k, v = (table[rows // visible.beam, :, slots] for table in self.stored.tables())  # [U, G, d]
        keys = replace(Layout.from_lengths(is_visible.sum(1)), sequence_ids=queries.sequence_ids)
        relative = visible.relative
        bias = None if relative is None else relative.of_keys(rows // visible.beam, slots, keys)
        taps, scoring = taps.at("", keys=keys), replace(scoring, window=0)
        return attention_reference(q, k, v, queries, keys, causal=False, taps=taps, scoring=scoring, bias=bias)


def _attend_to_slots(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scoring: Scoring, by_products: bool = False
) -> Tensor:
    """softmax(Q Kᵀ / √d + bias) V: by PyTorch's fused attention, or by products if that is faster or scores are limited."""
    if not by_products and not scoring.cap:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scoring.scale or None)
    scores = (q @ k.mT).mul_(scoring.factor(q.shape[-1]))
    if scoring.cap:
        scores = scores.div_(scoring.cap).tanh_().mul_(scoring.cap)
    return (scores if bias is None else scores.add_(bias)).softmax(-1) @ v


@dataclass(frozen=True)
class CacheSize:
    """The capacity of a session."""

    rows: int
    max_new_tokens: int
    max_positions: int  # of a row
    source_slots: int


class DecodingCache(Protocol):
    """What a session keeps of the sentences that it decodes; each kind of model has its own."""

    CAN_BE_CAPTURED: ClassVar[bool]  # whether a step can be repeated as a CUDA graph
    rows: int
    active: int  # rows in use
    steps: int

    @classmethod
    def for_session(cls, model: Any, size: CacheSize, beam: int, static_shapes: bool) -> Self: ...

    @property
    def window(self) -> int:
        """What the next step attends to."""

    def length(self, row: int) -> int:
        """Returns the number of tokens of a row that have passed through the model."""

    def prefill(self, rows: Sequence[int], sequence_ids: Sequence[int], prompts: Layout, sources: Layout | None) -> Any:
        """Starts new sentences in these rows; returns the caches for the pass over their prompts."""

    def step(self) -> tuple[Layout, Any]:
        """Returns the layout of the next tokens, each a sequence of its own, and the caches for their pass."""

    def advance(self, parents: Tensor | None, running: Tensor) -> None:
        """Records on the device that each hypothesis has a new token; hypothesis j of s continues parents[s, j]."""

    def count_step(self) -> None:
        """Records the same on the host."""

    def compact_if_needed(self) -> None: ...

    def clear_rows(self, first: int) -> None: ...

    def move_rows(self, origins: Sequence[int], rows: Sequence[int]) -> None: ...


class KeyValueCache:
    """The cached keys and values of a batch, and which slots each hypothesis attends to."""

    CAN_BE_CAPTURED = True

    @classmethod
    def for_session(cls, model: Transformer, size: CacheSize, beam: int, static_shapes: bool) -> Self:
        assert model.decoder is not None
        model.decoder.extend_positions(size.max_positions)
        slots = (size.max_positions + SPARE_SLOTS) * beam
        return cls(model, size.rows, beam, slots, size.source_slots, static_shapes)

    def __init__(
        self, model: Transformer, rows: int, beam: int, slots: int, source_slots: int, static_shapes: bool
    ) -> None:
        """With static shapes, sizes are rounded up to a few values, so that a CUDA graph per shape can be replayed."""
        assert model.decoder is not None
        self.static_shapes = static_shapes
        self.device = model.embedding.weight.device
        self.kernels = kernels_for(model) if static_shapes else None
        self.rows, self.beam, self.slots, self.source_slots = rows, beam, slots, source_slots
        self.group = model.config.heads // model.config.actual_key_value_heads
        self.layers = [LayerKeyValues(rows, slots) for _ in model.decoder.blocks]
        self.local = [isinstance(block, Block) and block.local for block in model.decoder.blocks]
        self.attention_window = model.config.attention_window
        self.relative_bias = model.decoder.relative_bias
        self.uses_positions = any(self.local) or self.relative_bias is not None
        self.source_layers = [LayerKeyValues(rows, source_slots) for _ in model.decoder.blocks if source_slots]

        self.active = 0  # rows in use, S
        self.next_slot, self.compacted_at = 0, 0  # where the next step writes, now and after the last compaction
        self.steps = 0
        self.start_steps = [0] * rows  # the step at which each row's first token was, or would have been, generated
        self.source_lengths = [0] * rows
        self.write_slots = torch.arange(beam, device=self.device)  # next_slot … next_slot + k − 1, on the device
        self.positions = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)  # of the next token
        self.sequence_ids = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)
        self.slot_positions = torch.zeros(rows, slots, dtype=torch.int64, device=self.device)
        self.mask = torch.full((rows, beam, slots), MASKED, device=self.device)
        self.source_mask = torch.full((rows, source_slots), MASKED, device=self.device)
        own_slot = torch.full((beam, beam), MASKED, device=self.device).fill_diagonal_(0.0)
        self.own_slot_mask = own_slot.expand(rows, beam, beam)

    def length(self, row: int) -> int:
        """Returns the number of tokens of a row that have passed through the model."""
        return self.steps - self.start_steps[row]

    def prefill(
        self, rows: Sequence[int], sequence_ids: Sequence[int], prompts: Layout, sources: Layout | None
    ) -> Sequence[BlockCaches]:
        """Starts new sentences in these rows; returns the layer caches for the pass over their prompts."""
        row_index = torch.tensor(rows, device=self.device)
        prompt_rows = row_index[prompts.padded_index // prompts.max_length]  # [T]
        lengths = prompts.lengths.tolist()
        self.positions[row_index] = prompts.lengths.long()[:, None]
        self.sequence_ids[row_index] = torch.tensor(sequence_ids, device=self.device)[:, None]
        self.mask[row_index] = MASKED
        self.mask[prompt_rows, :, prompts.positions] = 0.0
        self.slot_positions[prompt_rows, prompts.positions] = prompts.positions
        for row, length in zip(rows, lengths, strict=True):
            self.start_steps[row] = self.steps - length
        self._set_next_slot(max(self.next_slot, *lengths))
        caches = [PrefillCache(layer, prompt_rows, prompts.positions) for layer in self.layers]
        if sources is None:
            return [(cache, None) for cache in caches]
        source_rows = row_index[sources.padded_index // sources.max_length]  # [U]
        for row, length in zip(rows, sources.lengths.tolist(), strict=True):
            self.source_lengths[row] = length
        self.source_mask[row_index] = MASKED
        self.source_mask[source_rows, sources.positions] = 0.0
        source_caches = [PrefillCache(layer, source_rows, sources.positions) for layer in self.source_layers]
        return list(zip(caches, source_caches, strict=True))

    @property
    def window(self) -> int:
        """The number of slots that the next step attends to."""
        slots = self.next_slot + self.beam
        return min(-(-slots // BUCKET) * BUCKET, self.slots) if self.static_shapes else slots

    def step(self) -> tuple[Layout, Sequence[BlockCaches]]:
        """Returns the layout of the next tokens, each a sequence of its own, and the layer caches for their pass.

        Changes no state on the host: a captured graph repeats only what happens on the device.
        """
        size = self.active
        self.mask[:size].index_copy_(2, self.write_slots, self.own_slot_mask[:size])
        if self.uses_positions:
            self.slot_positions[:size].index_copy_(1, self.write_slots, self.positions[:size])
        layout = replace(
            single_token_layout(size * self.beam, self.device), positions=self.positions[:size].view(-1),
            sequence_ids=self.sequence_ids[:size].view(-1),
        )  # fmt: skip
        visible = self._visible_slots(local=False)
        visible_locally = self._visible_slots(local=True) if any(self.local) else visible
        caches = [
            StepCache(layer, visible_locally if local else visible)
            for layer, local in zip(self.layers, self.local, strict=True)
        ]
        if not self.source_layers:
            return layout, [(cache, None) for cache in caches]
        visible_source = self._visible_source()
        source_caches = [StepCache(layer, visible_source) for layer in self.source_layers]
        return layout, list(zip(caches, source_caches, strict=True))

    def _visible_slots(self, local: bool) -> VisibleSlots:
        mask, bias, relative = self.mask[: self.active], None, None
        positions, slot_positions = self.positions[: self.active], self.slot_positions[: self.active]
        all_visible = self.beam == 1 and max(self.start_steps[: self.active]) == self.steps - self.next_slot
        if local and (self.static_shapes or self.next_slot >= self.attention_window):
            too_old = slot_positions[:, None, :] <= positions[:, :, None] - self.attention_window
            mask, all_visible = mask.masked_fill(too_old, MASKED), False
        if self.kernels is None and (self.static_shapes or not all_visible or self.relative_bias is not None):
            bias = mask[:, None, :, : self.window].to(self._dtype)
            if self.beam > 1 and self.group > 1:
                bias = bias.repeat(1, 1, self.group, 1)
        if self.relative_bias is not None:
            assert bias is not None
            relative = RelativePositions(self.relative_bias, positions, slot_positions)
            table = relative.of_slots(self.window, self.relative_bias.embedding_dim // self.group).to(self._dtype)
            bias = bias + table
        first_write = None if self.static_shapes else self.next_slot
        return VisibleSlots(
            self.active, self.beam, self.window, mask, bias, self.write_slots, first_write, self.kernels, relative
        )

    def _visible_source(self) -> VisibleSlots:
        lengths = self.source_lengths[: self.active]
        slots = self.source_slots if self.static_shapes else max(lengths)
        mask, bias = self.source_mask[: self.active, None], None
        if self.kernels is None and (self.static_shapes or min(lengths) < slots):
            bias = mask[:, None, :, :slots].to(self._dtype)
        return VisibleSlots(self.active, self.beam, slots, mask, bias, self.write_slots, None, self.kernels)

    @property
    def _dtype(self) -> torch.dtype:
        return self.layers[0].tables()[0].dtype

    def advance(self, parents: Tensor | None, running: Tensor) -> None:
        """Records on the device that each hypothesis has a new token; hypothesis j of s continues parents[s, j]."""
        self.write_slots += self.beam
        self.positions[: self.active] += running[:, None]
        if parents is not None:
            mask = self.mask[: self.active, :, : self.window]
            mask.copy_(mask.gather(1, parents[:, :, None].expand_as(mask)))

    def count_step(self) -> None:
        """Records the same on the host."""
        self.next_slot += self.beam
        self.steps += 1

    def compact_if_needed(self) -> None:
        """Before a step: compacts if the slots run out, or if many of a beam's slots may be unused."""
        if self.beam > 1:
            unused = self.next_slot - self.compacted_at >= COMPACT_STEPS * self.beam
        else:  # sentences left, and others joined at slot 0
            longest = self.steps - min(self.start_steps[: self.active], default=self.steps)
            unused = self.next_slot >= 2 * longest + MAX_UNUSED_SLOTS
        if unused or self.next_slot + self.beam > self.slots:
            self.compact()

    def compact(self) -> None:
        """Moves the slots that are still visible to the front."""
        used = (self.mask[: self.active, :, : self.next_slot] == 0).any(1)  # [S, slots]
        max_used = int(used.sum(1).max())
        first = int(used.all(0).long().cumprod(0).sum())  # all earlier slots are in use
        if max_used < self.next_slot:
            # Used slots in order, then masked ones up to the common count.
            index = (~used).to(torch.uint8).argsort(dim=1, stable=True)[:, first:max_used]  # [S, max_used − first]
            for layer in self.layers:
                layer.gather_slots(index, first, max_used, self.kernels)
            positions = self.slot_positions[: self.active]
            positions[:, first:max_used] = positions.gather(1, index)
            mask = self.mask[: self.active]
            mask[:, :, first:max_used] = mask.gather(2, index[:, None].expand(-1, self.beam, -1))
            mask[:, :, max_used : self.next_slot] = MASKED
        self._set_next_slot(max_used)
        self.compacted_at = max_used

    def _set_next_slot(self, slot: int) -> None:
        self.write_slots += slot - self.next_slot
        self.next_slot, self.compacted_at = slot, min(self.compacted_at, slot)

    def clear_rows(self, first: int) -> None:
        """Empties the rows from this one on."""
        self.mask[first : self.active] = MASKED
        if first == 0:
            self._set_next_slot(0)

    def move_rows(self, origins: Sequence[int], rows: Sequence[int]) -> None:
        """Copies sentences from some rows to others."""
        origin_index, row_index = (torch.tensor(side, device=self.device) for side in (origins, rows))
        for layer in (*self.layers, *self.source_layers):
            layer.move_rows(origin_index, row_index)
        for table in (self.positions, self.slot_positions, self.sequence_ids, self.mask, self.source_mask):
            table[row_index] = table[origin_index]
        for origin, row in zip(origins, rows, strict=True):
            self.start_steps[row], self.source_lengths[row] = self.start_steps[origin], self.source_lengths[origin]


def kernels_for(model: Transformer) -> ModuleType | None:
    """Returns our Triton kernels if they support this model's device, dtype, head width and scores."""
    weight, config = model.embedding.weight, model.config
    width = config.actual_head_width
    if not has_kernels(weight) or width < 16 or width & (width - 1):
        return None
    if config.attention_cap or config.positions == "relative":
        return None
    from seq2see.decode.kernels import attention as kernels

    return kernels


@lru_cache(maxsize=64)
def single_token_layout(count: int, device: torch.device) -> Layout:
    """Returns the layout of `count` sequences of one token."""
    return Layout.from_lengths([1] * count).to(device)


def pack(sequences: Sequence[Tokens], sequence_ids: Sequence[int], device: torch.device) -> Packed:
    """Packs sequences with the caller's ids of the sentences they belong to."""
    packed = Packed.from_sequences(sequences)
    return Packed(packed.tokens, replace(packed.layout, sequence_ids=torch.tensor(sequence_ids))).to(device)
