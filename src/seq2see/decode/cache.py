"""What a decoder keeps of the tokens that it has written: their keys and values, and those of the source.

All hypotheses of all sentences write at the same moment, into places side by side: k hypotheses of a sentence take k
places a step. Which places a hypothesis may look at, its own and its ancestors', is a mask:

    place            0   1   2   3   4   5   6   7  ← all write here next, hypothesis 0 at 7 and 1 at 8
    token           <s>  A   The dog man dog big
    hypothesis 0     ×   ×       ×       ×          A dog dog
    hypothesis 1     ×   ×           ×       ×      A man big

When hypotheses part and merge, only rows of the mask move, never a key or a value. Places that nobody looks at any more
(2, above) are closed up now and then. A sentence that comes later starts at place 0 of a row of its own, and what
lies between its prompt and the place where all write stays hidden until then.

Shapes: S sentences, k hypotheses of each, M source tokens, H heads, G heads that keys and values have, d the width of a
head.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.decode.optimize import has_kernels
from seq2see.layout import Layout, Packed
from seq2see.model.attention import attend, attend_openly
from seq2see.model.layers import Pasts
from seq2see.model.taps import Taps
from seq2see.model.transformer import Transformer

HIDDEN = float("-inf")
BUCKET = 64  # where shapes are static, the window grows by so many places at a time
MANY = 16  # sentences whose single queries a CPU answers faster in three steps than by PyTorch's attention
CLOSE_UP = 12  # steps of a beam after which places that nobody looks at are closed up


@dataclass(frozen=True)
class Filling:
    """Whole prompts are passing through the model: their keys and values go to these places."""

    rows: Tensor  # [T] the sentence of each prompt token
    places: Tensor  # [T]
    source_rows: Tensor | None  # [U] and of each source token
    source_places: Tensor | None


@dataclass(frozen=True)
class Window:
    """One token a hypothesis is passing through: what it may look at. The same for every block."""

    size: int  # S
    places: int  # that any of them may look at
    mask: Tensor | None  # [S, 1, k or H / G · k, places], added to the scores; None: all is visible
    source: int  # M, now
    source_mask: Tensor | None  # [S, 1, 1, M]


class Cache:
    def __init__(self, model: Transformer, rows: int, beam: int, places: int, source: int, static: bool) -> None:
        """Static: shapes are rounded up to a few, so that a step of one shape can be captured and replayed."""
        assert model.decoder is not None
        self.static = static
        self.device = model.embedding.weight.device
        self.kernels = kernels_for(model) if static else None
        self.beam, self.places, self.source = beam, places, source
        self.group = model.config.heads // model.config.groups
        self.written = [Kept(self, places) for _ in model.decoder.blocks]
        self.sources = [Kept(self, source, of_source=True) if source else None for _ in model.decoder.blocks]
        self.pasts: list[Pasts] = list(zip(self.written, self.sources, strict=True))
        self.now: Filling | Window | None = None

        self.rows, self.size = rows, 0  # room, and sentences
        self.next, self.closed = 0, 0  # the place where all write next, and where that was after the last closing up
        self.steps = 0
        self.began = [0] * rows  # the step at which each sentence's first token was, or would have been, written
        self.source_sizes = [0] * rows
        self.place = torch.arange(beam, device=self.device)  # where the hypotheses write next
        self.positions = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)  # of the token that comes next
        self.numbers = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)
        self.mask = torch.full((rows, beam, places), HIDDEN, device=self.device)
        self.source_mask = torch.full((rows, source), HIDDEN, device=self.device)
        own = torch.full((beam, beam), HIDDEN, device=self.device).fill_diagonal_(0.0)
        self.own = own.expand(rows, beam, beam)

    @property
    def dtype(self) -> torch.dtype:
        kept = self.written[0].keys
        return torch.float32 if kept is None else kept.dtype

    def length(self, row: int) -> int:
        """Tokens of a row that have passed through the model."""
        return self.steps - self.began[row]

    def fill(self, rows: Sequence[int], numbers: Sequence[int], prompts: Layout, sources: Layout | None) -> None:
        """The next pass takes these rows' prompts."""
        lengths = prompts.lengths.tolist()
        at, which = torch.tensor(rows, device=self.device), prompts.slots // prompts.longest  # [rows], [T]
        filling = Filling(at[which], prompts.positions, None, None)
        self.positions[at] = prompts.lengths.long()[:, None]
        self.numbers[at] = torch.tensor(numbers, device=self.device)[:, None]
        self.mask[at] = HIDDEN
        self.mask[filling.rows, :, filling.places] = 0.0
        for row, length in zip(rows, lengths, strict=True):
            self.began[row] = self.steps - length
        self._write_from(max(self.next, *lengths))
        if sources is not None:
            filling = replace(
                filling, source_rows=at[sources.slots // sources.longest], source_places=sources.positions
            )
            for row, length in zip(rows, sources.lengths.tolist(), strict=True):
                self.source_sizes[row] = length
            self.source_mask[at] = HIDDEN
            self.source_mask[filling.source_rows, filling.source_places] = 0.0
        self.now = filling

    def make_room(self) -> None:
        """Before a step: closes up where the places come to an end, or too many of them are dead."""
        if self.next + self.beam > self.places or (self.beam > 1 and self.next - self.closed >= CLOSE_UP * self.beam):
            self.close_up()

    @property
    def window(self) -> int:
        """Places that the next step looks at."""
        places = self.next + self.beam
        return min(-(-places // BUCKET) * BUCKET, self.places) if self.static else places

    def step(self) -> Layout:
        """The next pass takes one token of each hypothesis: their layout, every hypothesis a sequence by itself."""
        size, k = self.size, self.beam
        self.mask[:size].index_copy_(2, self.place, self.own[:size])
        positions, numbers = self.positions[:size].view(-1), self.numbers[:size].view(-1)
        layout = replace(ones(size * k, self.device), positions=positions, numbers=numbers)
        if self.kernels is not None:  # which take the masks as they are
            self.now = Window(size, self.window, None, self.source, None)
            return layout
        even = k == 1 and not self.static and max(self.began[:size]) == self.steps - self.next
        mask = None if even else self.mask[:size, None, :, : self.window].to(self.dtype)
        if mask is not None and k > 1 and self.group > 1:
            mask = mask.repeat(1, 1, self.group, 1)
        source = self.source if self.static else max(self.source_sizes[:size])
        same = not source or (not self.static and min(self.source_sizes[:size]) == source)
        source_mask = None if same else self.source_mask[:size, None, None, :source].to(self.dtype)
        self.now = Window(size, self.window, mask, source, source_mask)
        return layout

    def advance(self, parents: Tensor | None, going: Tensor) -> None:
        """A token of each hypothesis is chosen. Hypothesis j of a sentence goes on from its hypothesis parents[s, j].

        What the host counts is in `count`: a captured graph repeats only what is done here, on the device.
        """
        assert isinstance(self.now, Window)
        self.place += self.beam
        self.positions[: self.size] += going[:, None]
        if parents is not None:
            mask = self.mask[: self.size, :, : self.now.places]
            mask.copy_(mask.gather(1, parents[:, :, None].expand_as(mask)))

    def count(self) -> None:
        self.next += self.beam
        self.steps += 1

    def close_up(self) -> None:
        """Moves what is still looked at to the front."""
        alive = (self.mask[: self.size, :, : self.next] == 0).any(1)  # [S, places]
        most = int(alive.sum(1).max())
        first = int(alive.all(0).long().cumprod(0).sum())  # all before is in use
        if most < self.next:
            # In their order, and after them some that are hidden.
            index = (~alive).to(torch.uint8).argsort(dim=1, stable=True)[:, first:most]  # [S, places]
            for kept in self.written:
                kept.rearrange(index, first, most)
            mask = self.mask[: self.size]
            mask[:, :, first:most] = mask.gather(2, index[:, None].expand(-1, self.beam, -1))
            mask[:, :, most : self.next] = HIDDEN
        self._write_from(most)

    def _write_from(self, place: int) -> None:
        self.place += place - self.next
        self.next = self.closed = place

    def vacate(self, first: int) -> None:
        """Nobody is left in the rows from this one on."""
        self.mask[first : self.size] = HIDDEN
        if first == 0:
            self._write_from(0)

    def move(self, origins: Sequence[int], rows: Sequence[int]) -> None:
        """The sentences of some rows go to others, whose own are done."""
        there, here = torch.tensor(origins, device=self.device), torch.tensor(rows, device=self.device)
        for kept in (*self.written, *self.sources):
            if kept is not None:
                kept.move(there, here)
        for table in (self.positions, self.numbers, self.mask, self.source_mask):
            table[here] = table[there]
        for origin, row in zip(origins, rows, strict=True):
            self.began[row], self.source_sizes[row] = self.began[origin], self.source_sizes[origin]


class Kept:
    """The keys and values of one attention, [rows, G, places, d] each."""

    def __init__(self, cache: Cache, places: int, of_source: bool = False) -> None:
        self.cache, self.places, self.of_source = cache, places, of_source
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def move(self, origins: Tensor, rows: Tensor) -> None:
        for table in (self.keys, self.values):
            if table is not None:
                table[rows] = table[origins]

    def rearrange(self, index: Tensor, first: int, last: int) -> None:
        assert self.keys is not None and self.values is not None
        if self.cache.kernels is not None:
            self.cache.kernels.rearrange(self.keys, self.values, index, first)
            return
        for table in (self.keys[: len(index)], self.values[: len(index)]):
            deep = index[:, None, :, None].expand(-1, table.shape[1], -1, table.shape[3])
            table[:, :, first:last] = table.gather(2, deep)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool, taps: Taps
    ) -> Tensor:
        now = self.cache.now
        if isinstance(now, Window):
            if self.cache.kernels is not None and not taps.listening:
                return self._look(q, (k, v), now)
            self._write(k, v, now)
            return self.recall(q, queries, taps)
        assert now is not None
        self._fill(k, v, now)
        if taps.listening:
            return attend_openly(q, k, v, queries, keys, causal, taps=taps)
        return attend(q, k, v, queries, keys, causal)

    def _fill(self, k: Tensor, v: Tensor, now: Filling) -> None:
        if self.keys is None or self.values is None:
            shape = (self.cache.rows, k.shape[1], self.places, k.shape[2])
            # Zeros, for what a mask hides is multiplied by 0, and 0 · NaN is not 0.
            self.keys, self.values = k.new_zeros(shape), v.new_zeros(shape)
        rows, places = (now.source_rows, now.source_places) if self.of_source else (now.rows, now.places)
        self.keys[rows, :, places] = k
        self.values[rows, :, places] = v

    def _write(self, k: Tensor, v: Tensor, now: Window) -> None:
        assert self.keys is not None and self.values is not None
        for table, new in ((self.keys, k), (self.values, v)):
            new = new.view(now.size, self.cache.beam, *new.shape[1:]).transpose(1, 2)  # [S, G, k, d]
            if self.cache.static:  # a captured step writes wherever the device says
                table[: now.size].index_copy_(2, self.cache.place, new)
            else:
                table[: now.size].narrow(2, self.cache.next, self.cache.beam).copy_(new)

    def recall(self, q: Tensor, queries: Layout, taps: Taps) -> Tensor:
        """q is [S · k, H, d], and so is what the heads find."""
        now = self.cache.now
        assert isinstance(now, Window) and self.keys is not None and self.values is not None
        if taps.listening:
            return self._recall_openly(q, queries, taps)
        if self.cache.kernels is not None:
            return self._look(q, None, now)
        places, mask = (now.source, now.source_mask) if self.of_source else (now.places, now.mask)
        k, v = self.keys[: now.size, :, :places], self.values[: now.size, :, :places]  # [S, G, places, d]
        size, beam, group = now.size, self.cache.beam, self.cache.group
        if group == 1:
            q = q.view(size, beam, *q.shape[1:]).transpose(1, 2)  # [S, H, k, d]
            if beam == 1 and size >= MANY and q.device.type == "cpu" and q.dtype == torch.float32:
                scores = (q @ k.mT).mul_(q.shape[-1] ** -0.5)
                heads = (scores if mask is None else scores.add_(mask)).softmax(-1) @ v
            else:
                heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return heads.transpose(1, 2).flatten(0, 1)
        # Heads that share keys and values are so many more queries.
        q = q.view(size, beam, k.shape[1], group, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [S, G, group · k, d]
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return heads.unflatten(2, (group, beam)).permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)

    def _look(self, q: Tensor, new: tuple[Tensor, Tensor] | None, now: Window) -> Tensor:
        cache = self.cache
        assert cache.kernels is not None and self.keys is not None and self.values is not None
        places, mask = (now.source, cache.source_mask[:, None]) if self.of_source else (now.places, cache.mask)
        return cache.kernels.look(q, new, self.keys, self.values, mask[: now.size], cache.place, places)

    def _recall_openly(self, q: Tensor, queries: Layout, taps: Taps) -> Tensor:
        """Every hypothesis a sequence by itself, its keys in their order: then the open attention is the textbook's."""
        assert isinstance(self.cache.now, Window) and self.keys is not None and self.values is not None
        size, beam = self.cache.now.size, self.cache.beam
        if self.of_source:
            seen = (self.cache.source_mask[:size] == 0).repeat_interleave(beam, dim=0)
        else:
            seen = (self.cache.mask[:size] == 0).flatten(0, 1)  # [S · k, places]
        rows, places = seen.nonzero(as_tuple=True)
        k, v = self.keys[rows // beam, :, places], self.values[rows // beam, :, places]  # [U, G, d]
        keys = replace(Layout.of(seen.sum(1)), numbers=queries.numbers)
        return attend_openly(q, k, v, queries, keys, not self.of_source, taps=taps.at("", keys=keys))


def kernels_for(model: Transformer) -> ModuleType | None:
    """Those of our own, where they can work with this model's heads."""
    weight, width = model.embedding.weight, model.config.width_of_head
    if not has_kernels(weight) or width < 16 or width & (width - 1):
        return None
    from seq2see.decode import kernels

    return kernels


@lru_cache(maxsize=64)
def ones(count: int, device: torch.device) -> Layout:
    """The layout of so many sequences of one token."""
    return Layout.of([1] * count).to(device)


def packed(sequences: Sequence[Sequence[int]], numbers: Sequence[int], device: torch.device) -> Packed:
    """Sequences whose layout knows which of the caller's sentences they are."""
    made = Packed.of(sequences)
    layout = replace(made.layout, numbers=torch.tensor(numbers))
    return Packed(made.tokens, layout).to(device)
