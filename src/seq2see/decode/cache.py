"""What a decoder keeps of the tokens that it has written: their keys and values, and those of the source.

Time runs along slots, and all sentences write into the same slot at the same moment, whenever they began:

    slot            0   1   2   3   4   5   ← all write here next
    sentence 0     <s>  A   big dog ran         began at slot 0
    sentence 1              <s> Two cats        took the place of a finished one, at slot 2

The k hypotheses of a sentence write side by side, so a slot has k places. Which places a hypothesis may look at, its own
and its ancestors', is a mask: when hypotheses part and merge, only its rows move, never a key or a value.

Shapes: S sentences, k hypotheses of each, N slots, M source tokens, H heads, G heads that keys and values have, d the
width of a head.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.model.attention import attend, attend_openly
from seq2see.model.layers import Pasts
from seq2see.model.layout import Layout, Packed
from seq2see.model.taps import Taps
from seq2see.model.transformer import Transformer

HIDDEN = float("-inf")
BUCKET = 64  # on CUDA the window grows by so many slots at a time, so that few graphs are made


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
    first: int  # the first place that any of them may look at
    last: int  # and the one after the last
    mask: Tensor | None  # [S, 1, k or H / G · k, places], added to the scores; None: all is visible
    source: int  # M, now
    source_mask: Tensor | None  # [S, 1, 1, M]


class Cache:
    def __init__(self, model: Transformer, rows: int, beam: int, slots: int, source: int) -> None:
        assert model.decoder is not None
        model.decoder.reach(slots)
        self.device = model.embedding.weight.device
        self.beam, self.slots, self.source = beam, slots, source
        self.group = model.config.heads // model.config.groups
        self.written = [Kept(self, slots * beam) for _ in model.decoder.blocks]
        self.sources = [Kept(self, source, of_source=True) if source else None for _ in model.decoder.blocks]
        self.pasts: list[Pasts] = list(zip(self.written, self.sources, strict=True))
        self.now: Filling | Window | None = None

        self.rows, self.size, self.slot = rows, 0, 0  # room; sentences; where all write next
        self.began = [0] * rows  # the slot of each sentence's first token
        self.source_sizes = [0] * rows
        self.place = torch.arange(beam, device=self.device)  # where the hypotheses write next
        self.positions = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)  # of the token that comes next
        self.numbers = torch.zeros(rows, beam, dtype=torch.int64, device=self.device)
        self.mask = torch.full((rows, beam, slots * beam), HIDDEN, device=self.device)
        self.source_mask = torch.full((rows, source), HIDDEN, device=self.device)
        own = torch.full((beam, beam), HIDDEN, device=self.device).fill_diagonal_(0.0)
        self.own = own.expand(rows, beam, beam)

    @property
    def dtype(self) -> torch.dtype:
        kept = self.written[0].keys
        return torch.float32 if kept is None else kept.dtype

    def fill(self, rows: Sequence[int], numbers: Sequence[int], prompts: Layout, sources: Layout | None) -> None:
        """The next pass takes these rows' prompts, which will end just before the slot where all write."""
        lengths = prompts.lengths.tolist()
        for row, length in zip(rows, lengths, strict=True):
            self.began[row] = self.slot - length
            assert self.began[row] >= 0
        at = torch.tensor(rows, device=self.device)
        began = torch.tensor([self.began[row] for row in rows], device=self.device)
        which = prompts.slots // prompts.longest  # [T]
        filling = Filling(at[which], (began[which] + prompts.positions) * self.beam, None, None)
        self.positions[at] = (self.slot - began)[:, None]
        self.numbers[at] = torch.tensor(numbers, device=self.device)[:, None]
        self.mask[at] = HIDDEN
        self.mask[filling.rows, :, filling.places] = 0.0
        if sources is not None:
            filling = replace(
                filling, source_rows=at[sources.slots // sources.longest], source_places=sources.positions
            )
            for row, length in zip(rows, sources.lengths.tolist(), strict=True):
                self.source_sizes[row] = length
            self.source_mask[at] = HIDDEN
            self.source_mask[filling.source_rows, filling.source_places] = 0.0
        self.now = filling

    def step(self) -> Layout:
        """The next pass takes one token of each hypothesis: their layout, every hypothesis a sequence by itself."""
        size, k = self.size, self.beam
        self.mask[:size].index_copy_(2, self.place, self.own[:size])
        first, last = min(self.began[:size]), self.slot + 1
        if self.device.type == "cuda":
            first, last = 0, min(-(-last // BUCKET) * BUCKET, self.slots)
        even = k == 1 and last == self.slot + 1 and max(self.began[:size]) == first
        mask = None if even else self.mask[:size, None, :, first * k : last * k].to(self.dtype)
        if mask is not None and k > 1 and self.group > 1:
            mask = mask.repeat(1, 1, self.group, 1)
        source = self.source if self.device.type == "cuda" else max(self.source_sizes[:size])
        same = min(self.source_sizes[:size]) == source
        source_mask = None if same else self.source_mask[:size, None, None, :source].to(self.dtype)
        self.now = Window(size, first * k, last * k, mask, source, source_mask)
        return self.layout

    @property
    def layout(self) -> Layout:
        ones = _ones(self.size * self.beam, self.device)
        return replace(ones, positions=self.positions[: self.size].view(-1), numbers=self.numbers[: self.size].view(-1))

    def advance(self, parents: Tensor | None) -> None:
        """A token of each hypothesis is chosen. Hypothesis j of a sentence goes on from its hypothesis parents[s, j].

        `slot` is left to the caller: a captured graph can repeat what is done here on the device, but not that.
        """
        assert isinstance(self.now, Window)
        self.place += self.beam
        self.positions[: self.size] += 1
        if parents is not None:
            mask = self.mask[: self.size, :, : self.now.last]
            mask.copy_(mask.gather(1, parents[:, :, None].expand_as(mask)))

    def move(self, origin: int, row: int) -> None:
        """The sentence of one row goes to another, whose own is done."""
        for kept in (*self.written, *self.sources):
            if kept is not None:
                kept.move(origin, row)
        for table in (self.positions, self.numbers, self.mask, self.source_mask):
            table[row] = table[origin]
        self.began[row], self.source_sizes[row] = self.began[origin], self.source_sizes[origin]

    def shift(self, slots: int) -> None:
        """Drops the first slots, which nobody looks at any more, so that there is room at the end."""
        places = slots * self.beam
        for table in (*(t for kept in self.written for t in (kept.keys, kept.values)), self.mask):
            assert table is not None
            table.copy_(table.roll(-places, dims=2))
        self.slot -= slots
        self.place -= places
        self.began = [began - slots for began in self.began]


class Kept:
    """The keys and values of one attention, [rows, G, places, d] each."""

    def __init__(self, cache: Cache, places: int, of_source: bool = False) -> None:
        self.cache, self.places, self.of_source = cache, places, of_source
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def move(self, origin: int, row: int) -> None:
        for table in (self.keys, self.values):
            if table is not None:
                table[row] = table[origin]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, causal: bool, taps: Taps
    ) -> Tensor:
        now = self.cache.now
        if isinstance(now, Window):
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
            table[: now.size].index_copy_(2, self.cache.place, new)

    def recall(self, q: Tensor, queries: Layout, taps: Taps) -> Tensor:
        """q is [S · k, H, d], and so is what the heads find."""
        now = self.cache.now
        assert isinstance(now, Window) and self.keys is not None and self.values is not None
        if taps.listening:
            return self._recall_openly(q, queries, taps)
        first, last, mask = (0, now.source, now.source_mask) if self.of_source else (now.first, now.last, now.mask)
        k, v = self.keys[: now.size, :, first:last], self.values[: now.size, :, first:last]  # [S, G, places, d]
        size, beam, group = now.size, self.cache.beam, self.cache.group
        if group == 1:
            q = q.view(size, beam, *q.shape[1:]).transpose(1, 2)  # [S, H, k, d]
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return heads.transpose(1, 2).flatten(0, 1)
        # Heads that share keys and values are so many more queries.
        q = q.view(size, beam, k.shape[1], group, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [S, G, group · k, d]
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return heads.unflatten(2, (group, beam)).permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)

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


@lru_cache(maxsize=64)
def _ones(count: int, device: torch.device) -> Layout:
    """The layout of so many sequences of one token."""
    return Layout.of([1] * count).to(device)


def packed(sequences: Sequence[Sequence[int]], numbers: Sequence[int], device: torch.device) -> Packed:
    """Sequences whose layout knows which of the caller's sentences they are."""
    made = Packed.of(sequences)
    layout = replace(made.layout, numbers=torch.tensor(numbers))
    return Packed(made.tokens, layout).to(device)
