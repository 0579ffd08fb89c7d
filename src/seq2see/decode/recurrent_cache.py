"""What a recurrent decoder keeps of the tokens that it has written: one state, and of the source what it may look at.

It does for `Recurrent` what `Cache` does for a Transformer, and a session drives both alike. A state does not grow with what
was written, so that there are no places to find and none to close up; where hypotheses part and merge, states are copied.

Shapes: S sentences, k hypotheses of each, M source tokens.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seq2see.decode.cache import ones
from seq2see.layout import Layout
from seq2see.model.recurrent import Recurrent, Source


class States:
    def __init__(self, model: Recurrent, rows: int, beam: int, source: int, static: bool) -> None:
        """Static: the source always takes the room that there is for it, so that shapes are few."""
        self.device, self.static = model.embedding.weight.device, static
        self.rows, self.beam, self.source = rows, beam, source
        self.size, self.steps = 0, 0  # sentences
        self.pasts = self
        self.states: Tensor | None = None  # [rows, k, layers, 2, width]
        self.keys: Tensor | None = None  # [rows, source, width]
        self.values: Tensor | None = None
        self.real = torch.zeros(rows, source, dtype=torch.bool, device=self.device)
        self.source_sizes = [0] * rows
        self.positions = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)  # of the token that comes next
        self.numbers = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)
        self.filling: Tensor | None = None  # the rows whose prompts are passing

    @property
    def window(self) -> int:
        """Source tokens that the next step looks at."""
        return self.source if self.static else max(self.source_sizes[: self.size])

    def fill(self, rows: Sequence[int], numbers: Sequence[int], prompts: Layout, sources: Layout | None) -> None:
        """The next pass takes these rows' prompts."""
        assert sources is not None
        at = torch.tensor(rows, device=self.device)
        self.positions[at] = prompts.lengths.long()[:, None]
        self.numbers[at] = torch.tensor(numbers, device=self.device)[:, None]
        self.real[at] = False
        self.real[at[sources.slots // sources.longest], sources.positions] = True
        for row, length in zip(rows, sources.lengths.tolist(), strict=True):
            self.source_sizes[row] = length
        self.filling = at

    def keep(self, state: Tensor, source: Source | None) -> None:
        if self.filling is None:
            assert self.states is not None
            self.states[: self.size] = state.unflatten(0, (self.size, self.beam)).to(self.states.dtype)
            return
        if self.states is None:
            self.states = state.new_zeros(self.rows, self.beam, *state.shape[1:])
        self.states[self.filling] = state[:, None].to(self.states.dtype)
        if source is not None:
            if self.keys is None or self.values is None:
                self.keys, self.values = (
                    x.new_zeros(self.rows, self.source, x.shape[2]) for x in (source.keys, source.values)
                )
            self.keys[self.filling, : source.keys.shape[1]] = source.keys
            self.values[self.filling, : source.values.shape[1]] = source.values

    def recall(self) -> tuple[Tensor, Source | None]:
        """Of every hypothesis that goes on, [S · k, …]."""
        assert self.states is not None
        state = self.states[: self.size].flatten(0, 1)
        if self.keys is None or self.values is None:
            return state, None
        size, source = self.size, self.window
        tables = (table[:size, :source] for table in (self.keys, self.values, self.real))
        return state, Source(*(table.repeat_interleave(self.beam, dim=0) for table in tables))

    def make_room(self) -> None:
        """There always is."""

    def step(self) -> Layout:
        """The next pass takes one token of each hypothesis: their layout, every hypothesis a sequence by itself."""
        self.filling = None
        positions, numbers = self.positions[: self.size].view(-1), self.numbers[: self.size].view(-1)
        return replace(ones(self.size * self.beam, self.device), positions=positions, numbers=numbers)

    def advance(self, parents: Tensor | None, going: Tensor) -> None:
        """A token of each hypothesis is chosen. Hypothesis j of a sentence goes on from its hypothesis parents[s, j]."""
        assert self.states is not None
        self.positions[: self.size] += going[:, None]
        if parents is not None:
            states = self.states[: self.size]
            states.copy_(states.gather(1, parents[:, :, None, None, None].expand_as(states)))

    def count(self) -> None:
        self.steps += 1

    def vacate(self, first: int) -> None:
        """Nobody looks at what rows have left behind."""

    def move(self, origins: Sequence[int], rows: Sequence[int]) -> None:
        """The sentences of some rows go to others, whose own are done."""
        there, here = torch.tensor(origins, device=self.device), torch.tensor(rows, device=self.device)
        for table in (self.states, self.keys, self.values, self.real, self.positions, self.numbers):
            if table is not None:
                table[here] = table[there]
        for origin, row in zip(origins, rows, strict=True):
            self.source_sizes[row] = self.source_sizes[origin]
