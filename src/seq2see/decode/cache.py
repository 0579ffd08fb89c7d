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

A forward pass is either over whole prompts or a decoding step of one token per hypothesis. `KeyValueCache.prompt_stores` and
`.next_pass` return what `Transformer.decode` takes: a store for each attention (see `slots`).

Shapes: S sentences, k hypotheses of each, M source tokens, H heads, G key-value heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from seq2see.data.layout import Layout
from seq2see.decode.optimize import has_kernels
from seq2see.decode.request import Row
from seq2see.decode.slots import PromptStore, RelativePositions, Slots, StepStore, VisibleSlots
from seq2see.model.layers import NO_STORES, Block, Stores
from seq2see.model.positions import POSITION_BIASES
from seq2see.model.transformer import Transformer

MASKED = float("-inf")
SPARE_SLOTS = 64  # more than needed, so that the cache is not compacted at every step
BUCKET = 64  # with static shapes, the number of slots attended to is a multiple of this
COMPACT_STEPS = 12  # steps of a beam between compactions
STATIC_UNUSED_SLOTS = 256  # after which a beam is compacted at the earliest on a GPU, which has to wait for it
MAX_UNUSED_SLOTS = 64  # without a beam: compacts if the slots exceed the longest sentence twice and by this many more


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
    prompt_limits: Sequence[int]  # how far prompts and sources may be padded to a static shape; empty: not at all
    active: int  # rows in use
    steps: int

    def __init__(self, model: Any, size: CacheSize, beam: int, static_shapes: bool) -> None: ...

    @property
    def visible_slots(self) -> int:
        """What the next step attends to."""

    def tables(self) -> list[Tensor]:
        """Returns all that is kept on the device, one row per sentence."""

    def reserve(self, length: int) -> None:
        """After a pass over prompts: the next step writes behind those of this length."""

    def prompt_stores(self, rows: Tensor, prompts: Layout, sources: Layout | None) -> Any:
        """Starts new sentences in these rows; returns the stores for the pass over their prompts."""

    def next_pass(self, rows: Sequence[Row[Any]]) -> tuple[Layout, Any]:
        """Returns the layout of the next tokens, each a sequence of its own, and the stores for their pass."""

    def advance(self, parents: Tensor | None, running: Tensor) -> None:
        """Records on the device that each hypothesis has a new token; hypothesis j of s continues parents[s, j]."""

    def count_step(self) -> None:
        """Records the same on the host."""

    def compact_if_needed(self, rows: Sequence[Row[Any]]) -> None: ...

    def clear_rows(self, first: int) -> None: ...


class KeyValueCache:
    """The cached keys and values of a batch, and which slots each hypothesis attends to."""

    CAN_BE_CAPTURED = True

    def __init__(self, model: Transformer, size: CacheSize, beam: int, static_shapes: bool) -> None:
        """With static shapes, sizes are rounded up to a few values, so that a CUDA graph per shape can be replayed."""
        assert model.decoder is not None
        self.prompt_limits: list[int] = []
        for stack, length in ((model.decoder, size.max_positions), (model.encoder, size.source_slots)):
            if stack is not None:
                if length > stack.max_positions:
                    stack.extend_positions(length)
                self.prompt_limits.append(min(length, stack.max_positions) if stack.positions is not None else length)
        if not static_shapes or model.config.source != "tokens":
            self.prompt_limits = []
        self.static_shapes = static_shapes
        self.device = model.embedding.weight.device
        self.kernels = kernels_for(model) if static_shapes else None
        self.beam, self.source_slots = beam, size.source_slots
        # With static shapes, passes over prompts write what fills them up to one more row.
        rows, self.slots = size.rows + static_shapes, (size.max_positions + SPARE_SLOTS) * beam
        self.heads = model.config.heads
        self.layers = [Slots(rows, self.slots) for _ in model.decoder.blocks]
        self.local = [isinstance(block, Block) and block.local for block in model.decoder.blocks]
        self.attention_window = model.config.attention_window
        self.relative_bias = model.decoder.relative_bias
        self.uses_positions = any(self.local) or self.relative_bias is not None
        self.source_layers = [Slots(rows, size.source_slots) for _ in model.decoder.blocks if size.source_slots]

        self.active = 0  # rows in use, S
        self.max_unused = max(COMPACT_STEPS * beam, STATIC_UNUSED_SLOTS if static_shapes else 0)
        self.next_slot, self.compacted_at = 0, 0  # where the next step writes, now and after the last compaction
        self.steps = 0
        self.write_slots = torch.arange(beam, device=self.device)  # next_slot … next_slot + k − 1, on the device
        self.positions = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)  # of the next token
        self.sequence_ids = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)
        self.slot_positions = torch.zeros(rows, self.slots, dtype=torch.int64, device=self.device)
        self.mask = torch.full((rows, beam, self.slots), MASKED, device=self.device)
        self.source_mask = torch.full((rows, self.source_slots), MASKED, device=self.device)
        own_slot = torch.full((beam, beam), MASKED, device=self.device).fill_diagonal_(0.0)
        self.own_slot_mask = own_slot.expand(rows, beam, beam)

    def tables(self) -> list[Tensor]:
        """Returns all that is kept on the device, one row per sentence."""
        stored = [table for layer in (*self.layers, *self.source_layers) for table in (layer.keys, layer.values)]
        own = [self.positions, self.slot_positions, self.sequence_ids, self.mask, self.source_mask]
        return [*own, *(table for table in stored if table is not None)]

    def reserve(self, length: int) -> None:
        """After a pass over prompts: the next step writes behind those of this length."""
        self._set_next_slot(max(self.next_slot, length))

    def prompt_stores(self, rows: Tensor, prompts: Layout, sources: Layout | None) -> Sequence[Stores]:
        """Starts new sentences in these rows; returns the stores for the pass over their prompts."""
        prompt_rows = rows[prompts.padded_index // prompts.max_length]  # [T]
        self.positions[rows] = prompts.lengths.long()[:, None]
        self.sequence_ids[rows] = prompts.resolved_sequence_ids[:, None]
        self.mask[rows] = _mask(prompts.lengths, self.slots)[:, None]
        self.slot_positions[prompt_rows, prompts.positions] = prompts.positions
        own = [PromptStore(layer, prompt_rows, prompts.positions) for layer in self.layers]
        if sources is None:
            return [(store, NO_STORES[1]) for store in own]
        source_rows = rows[sources.padded_index // sources.max_length]  # [U]
        self.source_mask[rows] = _mask(sources.lengths, self.source_slots)
        source = [PromptStore(layer, source_rows, sources.positions) for layer in self.source_layers]
        return list(zip(own, source, strict=True))

    @property
    def visible_slots(self) -> int:
        """The number of slots that the next step attends to."""
        slots = self.next_slot + self.beam
        return min(-(-slots // BUCKET) * BUCKET, self.slots) if self.static_shapes else slots

    def next_pass(self, rows: Sequence[Row[Any]]) -> tuple[Layout, Sequence[Stores]]:
        """Returns the layout of the next tokens, each a sequence of its own, and the stores for their pass.

        Changes no state on the host: a captured graph repeats only what happens on the device.
        """
        size = self.active
        self.mask[:size].index_copy_(2, self.write_slots, self.own_slot_mask[:size])
        if self.uses_positions:
            self.slot_positions[:size].index_copy_(1, self.write_slots, self.positions[:size])
        layout = next_token_layout(self.positions[:size], self.sequence_ids[:size])
        visible = self._visible(rows, local=False)
        visible_locally = self._visible(rows, local=True) if any(self.local) else visible
        own = [
            StepStore(layer, visible_locally if local else visible)
            for layer, local in zip(self.layers, self.local, strict=True)
        ]
        if not self.source_layers:
            return layout, [(store, NO_STORES[1]) for store in own]
        visible_source = self._visible_source(rows)
        return layout, [
            (store, StepStore(source, visible_source)) for store, source in zip(own, self.source_layers, strict=True)
        ]

    def _visible(self, rows: Sequence[Row[Any]], local: bool) -> VisibleSlots:
        mask, attn_mask, relative = self.mask[: self.active], None, None
        positions, slot_positions = self.positions[: self.active], self.slot_positions[: self.active]
        all_visible = self.beam == 1 and max(row.start for row in rows) == self.steps - self.next_slot
        if local and (self.static_shapes or self.next_slot >= self.attention_window):
            too_old = slot_positions[:, None, :] <= positions[:, :, None] - self.attention_window
            mask, all_visible = mask.masked_fill(too_old, MASKED), False
        if self.kernels is None and (self.static_shapes or not all_visible or self.relative_bias is not None):
            attn_mask = mask[:, None, :, : self.visible_slots].to(self._dtype)
            if self.beam > 1 and (group := self.heads // self._groups) > 1:
                attn_mask = attn_mask.repeat(1, 1, group, 1)
        if self.relative_bias is not None:
            assert attn_mask is not None
            relative = RelativePositions(self.relative_bias, positions, slot_positions)
            table = relative.of_slots(self.visible_slots, self._groups)
            attn_mask = attn_mask + table.to(self._dtype)
        first_write = None if self.static_shapes else self.next_slot
        return VisibleSlots(
            self.active,
            self.beam,
            self.visible_slots,
            mask,
            attn_mask,
            self.write_slots,
            first_write,
            self.kernels,
            relative,
        )

    def _visible_source(self, rows: Sequence[Row[Any]]) -> VisibleSlots:
        lengths = [row.source_length for row in rows]
        slots = self.source_slots if self.static_shapes else max(lengths)
        mask, attn_mask = self.source_mask[: self.active, None], None
        if self.kernels is None and (self.static_shapes or min(lengths) < slots):
            attn_mask = mask[:, None, :, :slots].to(self._dtype)
        return VisibleSlots(self.active, self.beam, slots, mask, attn_mask, self.write_slots, None, self.kernels)

    @property
    def _groups(self) -> int:
        """G, of the keys that are stored."""
        return self.layers[0].tables()[0].shape[1]

    @property
    def _dtype(self) -> torch.dtype:
        return self.layers[0].tables()[0].dtype

    def advance(self, parents: Tensor | None, running: Tensor) -> None:
        """Records on the device that each hypothesis has a new token; hypothesis j of s continues parents[s, j]."""
        self.write_slots += self.beam
        self.positions[: self.active] += running[:, None]
        if parents is not None:
            mask = self.mask[: self.active, :, : self.visible_slots]
            mask.copy_(mask.gather(1, parents[:, :, None].expand_as(mask)))

    def count_step(self) -> None:
        """Records the same on the host."""
        self.next_slot += self.beam
        self.steps += 1

    def compact_if_needed(self, rows: Sequence[Row[Any]]) -> None:
        """Before a step: compacts if the slots run out, or if many of a beam's slots may be unused."""
        if self.beam > 1:
            unused = self.next_slot - self.compacted_at >= self.max_unused
        else:  # sentences left, and others joined at slot 0
            longest = self.steps - min((row.start for row in rows), default=self.steps)
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
                layer.gather(index, first, max_used, self.kernels)
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


def _mask(lengths: Tensor, slots: int) -> Tensor:
    """Returns 0 for the first slots of each row, as many as its length, and −∞ for the others, [rows, slots]."""
    hidden = torch.arange(slots, device=lengths.device) >= lengths[:, None]
    return torch.zeros(hidden.shape, device=lengths.device).masked_fill_(hidden, MASKED)


def kernels_for(model: Transformer) -> ModuleType | None:
    """Returns our Triton kernels if they support this model's device, dtype, head width and scores."""
    weight, config = model.embedding.weight, model.config
    width = config.actual_head_width
    if not has_kernels(weight) or width < 16 or width & (width - 1):
        return None
    if config.attention_cap or config.positions in POSITION_BIASES:
        return None
    from seq2see.decode.kernels import attention as kernels

    return kernels


def next_token_layout(positions: Tensor, sequence_ids: Tensor) -> Layout:
    """Returns the layout of single tokens at these positions of their sequences, [S, k] or [S] each."""
    single = single_token_layout(positions.numel(), positions.device)
    return replace(single, positions=positions.reshape(-1), sequence_ids=sequence_ids.reshape(-1))


@cache  # a captured CUDA graph must not copy from the host
def single_token_layout(count: int, device: torch.device) -> Layout:
    """Returns the layout of `count` sequences of one token."""
    return Layout.from_lengths([1] * count).to(device)
