"""The cache of a recurrent decoder: one state per hypothesis, and the keys and values of the source.

It has the interface of `KeyValueCache`, so a session does not distinguish the two. A state does not grow with the output,
so there are no slots to manage; when a beam reorders its hypotheses, states are copied.

Shapes: S sentences, k hypotheses of each, M source tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seq2see.course.recurrent.network import AttentionMemory, Recurrent
from seq2see.data.layout import Layout
from seq2see.decode.cache import CacheSize, next_token_layout
from seq2see.decode.request import Row


class RecurrentCache:
    CAN_BE_CAPTURED = False
    prompt_limits = ()

    def __init__(self, model: Recurrent, size: CacheSize, beam: int, static_shapes: bool) -> None:
        """With static shapes, the source always takes all its slots, so that there are few shapes."""
        self.static_shapes, self.rows, self.beam, self.source_slots = static_shapes, size.rows, beam, size.source_slots
        self.active, self.steps = 0, 0  # rows in use, S
        self.states: Tensor | None = None  # [rows, k, layers, 2, width]
        self.keys: Tensor | None = None  # [rows, source slots, width]
        self.values: Tensor | None = None
        device = model.embedding.weight.device
        self.source_mask = torch.zeros(size.rows, size.source_slots, dtype=torch.bool, device=device)
        self.positions = torch.zeros(size.rows, beam, dtype=torch.int64, device=device)  # of the next token
        self.sequence_ids = torch.zeros(size.rows, beam, dtype=torch.int64, device=device)

    def tables(self) -> list[Tensor]:
        """Returns all that is kept on the device, one row per sentence."""
        tables = (self.states, self.keys, self.values, self.source_mask, self.positions, self.sequence_ids)
        return [table for table in tables if table is not None]

    def reserve(self, length: int) -> None:
        """Does nothing: states do not grow."""

    def prompt_stores(self, rows: Tensor, prompts: Layout, sources: Layout | None) -> "RecurrentPromptStore":
        """Starts new sentences in these rows; returns the store for the pass over their prompts."""
        assert sources is not None
        self.positions[rows] = prompts.lengths.long()[:, None]
        self.sequence_ids[rows] = prompts.resolved_sequence_ids[:, None]
        self.source_mask[rows] = False
        self.source_mask[rows[sources.padded_index // sources.max_length], sources.positions] = True
        return RecurrentPromptStore(self, rows)

    @property
    def visible_slots(self) -> int:
        return self.source_slots

    def next_pass(self, rows: Sequence[Row[Any]]) -> tuple[Layout, "RecurrentStepStore"]:
        """Returns the layout of the next tokens, each a sequence of its own, and the store for their pass."""
        layout = next_token_layout(self.positions[: self.active], self.sequence_ids[: self.active])
        longest = self.source_slots if self.static_shapes else max(row.source_length for row in rows)
        return layout, RecurrentStepStore(self, longest)

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

    def compact_if_needed(self, rows: Sequence[Row[Any]]) -> None:
        """Does nothing: states do not grow."""

    def clear_rows(self, first: int) -> None:
        """Does nothing: no other row reads them."""


@dataclass(frozen=True)
class RecurrentPromptStore:
    """For a pass over prompts: stores the states after them, and the source."""

    cache: RecurrentCache
    rows: Tensor  # [prompts]

    def load(self) -> tuple[Tensor, AttentionMemory | None]:
        raise TypeError("a pass over prompts starts from the encoder's memory")

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
class RecurrentStepStore:
    """For a decoding step: every hypothesis continues from its state."""

    cache: RecurrentCache
    source_slots: int  # that the step attends to

    def load(self) -> tuple[Tensor, AttentionMemory | None]:
        """Returns the state of every active hypothesis and its source, [S · k, …]."""
        cache, size = self.cache, self.cache.active
        assert cache.states is not None
        state = cache.states[:size].flatten(0, 1)
        if cache.keys is None or cache.values is None:
            return state, None
        tables = (table[:size, : self.source_slots] for table in (cache.keys, cache.values, cache.source_mask))
        return state, AttentionMemory(*(table.repeat_interleave(cache.beam, dim=0) for table in tables))

    def store(self, state: Tensor, source: AttentionMemory | None) -> None:
        cache = self.cache
        assert cache.states is not None
        cache.states[: cache.active] = state.unflatten(0, (cache.active, cache.beam)).to(cache.states.dtype)
