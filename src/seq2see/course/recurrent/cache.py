"""The cache of a recurrent decoder: one state per hypothesis, and the keys and values of the source.

It has the interface of `KeyValueCache`, so a session does not distinguish the two. A state does not grow with the output,
so there are no slots to manage; when a beam reorders its hypotheses, states are copied.

Shapes: S sentences, k hypotheses of each, M source tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from seq2see.course.recurrent.network import AttentionMemory, Recurrent
from seq2see.data.layout import Layout
from seq2see.decode.cache import CacheSize, single_token_layout


class RecurrentCache:
    CAN_BE_CAPTURED = False

    @classmethod
    def for_session(cls, model: Recurrent, size: CacheSize, beam: int, static_shapes: bool) -> Self:
        return cls(model, size.rows, beam, size.source_slots, static_shapes)

    def __init__(self, model: Recurrent, rows: int, beam: int, source_slots: int, static_shapes: bool) -> None:
        """With static shapes, the source always takes all its slots, so that there are few shapes."""
        self.device, self.static_shapes = model.embedding.weight.device, static_shapes
        self.rows, self.beam, self.source_slots = rows, beam, source_slots
        self.active, self.steps = 0, 0  # rows in use, S
        self.states: Tensor | None = None  # [rows, k, layers, 2, width]
        self.keys: Tensor | None = None  # [rows, source slots, width]
        self.values: Tensor | None = None
        self.source_mask = torch.zeros(rows, source_slots, dtype=torch.bool, device=self.device)
        self.source_lengths = [0] * rows
        self.positions = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)  # of the next token
        self.sequence_ids = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)

    def prefill(
        self, rows: Sequence[int], sequence_ids: Sequence[int], prompts: Layout, sources: Layout | None
    ) -> "RecurrentPrefillCache":
        """Starts new sentences in these rows; returns the cache for the pass over their prompts."""
        assert sources is not None
        row_index = torch.tensor(rows, device=self.device)
        self.positions[row_index] = prompts.lengths.long()[:, None]
        self.sequence_ids[row_index] = torch.tensor(sequence_ids, device=self.device)[:, None]
        self.source_mask[row_index] = False
        self.source_mask[row_index[sources.padded_index // sources.max_length], sources.positions] = True
        for row, length in zip(rows, sources.lengths.tolist(), strict=True):
            self.source_lengths[row] = length
        return RecurrentPrefillCache(self, row_index)

    def length(self, row: int) -> int:
        raise NotImplementedError("a recurrent model has no context window")

    @property
    def window(self) -> int:
        """The number of source tokens that the next step attends to."""
        return self.source_slots if self.static_shapes else max(self.source_lengths[: self.active])

    def step(self) -> tuple[Layout, "RecurrentStepCache"]:
        """Returns the layout of the next tokens, each a sequence of its own, and the cache for their pass."""
        layout = replace(
            single_token_layout(self.active * self.beam, self.device),
            positions=self.positions[: self.active].view(-1), sequence_ids=self.sequence_ids[: self.active].view(-1),
        )  # fmt: skip
        return layout, RecurrentStepCache(self)

    def advance(self, parents: Tensor | None, running: Tensor) -> None:
        """Records on the device that each hypothesis has a new token; hypothesis j of s continues parents[s, j]."""
        assert self.states is not None
        self.positions[: self.active] += running[:, None]
        if parents is not None:
            states = self.states[: self.active]
            states.copy_(states.gather(1, parents[:, :, None, None, None].expand_as(states)))

    def count_step(self) -> None:
        """Records the same on the host."""
        self.steps += 1

    def compact_if_needed(self) -> None:
        """Does nothing: states do not grow."""

    def clear_rows(self, first: int) -> None:
        """Does nothing: no other row reads them."""

    def move_rows(self, origins: Sequence[int], rows: Sequence[int]) -> None:
        """Copies sentences from some rows to others."""
        origin_index, row_index = (torch.tensor(side, device=self.device) for side in (origins, rows))
        for table in (self.states, self.keys, self.values, self.source_mask, self.positions, self.sequence_ids):
            if table is not None:
                table[row_index] = table[origin_index]
        for origin, row in zip(origins, rows, strict=True):
            self.source_lengths[row] = self.source_lengths[origin]


@dataclass(frozen=True)
class RecurrentPrefillCache:
    """The cache during a prefill: stores the states after whole prompts, and the source."""

    cache: RecurrentCache
    rows: Tensor  # [prompts]

    def load(self) -> tuple[Tensor, AttentionMemory | None]:
        raise NotImplementedError("a prefill starts from the encoder's memory")

    def store(self, state: Tensor, source: AttentionMemory | None) -> None:
        cache = self.cache
        if cache.states is None:
            cache.states = state.new_zeros(cache.rows, cache.beam, *state.shape[1:])
        cache.states[self.rows] = state[:, None].to(cache.states.dtype)
        if source is None:
            return
        if cache.keys is None or cache.values is None:
            cache.keys, cache.values = (
                x.new_zeros(cache.rows, cache.source_slots, x.shape[2]) for x in (source.keys, source.values)
            )
        cache.keys[self.rows, : source.keys.shape[1]] = source.keys
        cache.values[self.rows, : source.values.shape[1]] = source.values


@dataclass(frozen=True)
class RecurrentStepCache:
    """The cache during a decoding step: every hypothesis continues from its state."""

    cache: RecurrentCache

    def load(self) -> tuple[Tensor, AttentionMemory | None]:
        """Returns the state of every active hypothesis and its source, [S · k, …]."""
        cache, size = self.cache, self.cache.active
        assert cache.states is not None
        state = cache.states[:size].flatten(0, 1)
        if cache.keys is None or cache.values is None:
            return state, None
        tables = (table[:size, : cache.window] for table in (cache.keys, cache.values, cache.source_mask))
        return state, AttentionMemory(*(table.repeat_interleave(cache.beam, dim=0) for table in tables))

    def store(self, state: Tensor, source: AttentionMemory | None) -> None:
        cache = self.cache
        assert cache.states is not None
        cache.states[: cache.active] = state.unflatten(0, (cache.active, cache.beam)).to(cache.states.dtype)
