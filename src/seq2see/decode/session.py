"""One batch that sentences join and leave, and what happens in it at each step.

A prompt passes through the model as a whole and fills its row of the cache; from then on every step feeds one token of
each hypothesis. How that is done best differs by device, and `Manner` says how: on a CPU shapes follow the need, on CUDA
they are rounded to a few, and a step of each shape is captured as a graph that the host only has to start.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from seq2see.decode.cache import BUCKET, Cache, ones, packed
from seq2see.decode.recurrent_cache import States
from seq2see.decode.sampling import uniforms
from seq2see.decode.search import Beam, Chooser, Picker, Search
from seq2see.layout import Packed
from seq2see.model.network import Network
from seq2see.model.recurrent import Recurrent
from seq2see.model.taps import NO_TAPS
from seq2see.model.transformer import Transformer
from seq2see.text.tokenizer import Tokenizer

IDLE = 4  # sessions of a model that are kept with their graphs
SPARE = 64  # places beyond the need, so that they need not be closed up at every step


@dataclass(frozen=True)
class Manner:
    """How steps are run on a device."""

    static: bool  # few shapes, so that a step can be captured
    captured: bool  # as a CUDA graph, which the host only starts
    rows: int  # hypotheses at a time: more would bring nothing
    tokens: int  # of source and output that are worked on at a time, unless the caller says otherwise
    look: int  # steps after which the host looks who is done: on a GPU that means waiting


ON_CPU = Manner(static=False, captured=False, rows=128, tokens=8192, look=1)
ON_CUDA = Manner(static=True, captured=True, rows=512, tokens=1 << 17, look=8)


def manner_on(device: torch.device) -> Manner:
    if device.type != "cuda":
        return ON_CPU
    # Under autocast a graph would remember cast weights that are freed when the block is left.
    return replace(ON_CUDA, captured=not torch.is_autocast_enabled("cuda"))


@dataclass(frozen=True)
class Request:
    number: int
    source: Sequence[int]  # empty for a language model
    prompt: Sequence[int]  # <start> and what the output must begin with
    limit: int  # new tokens
    seed: int = 0

    @property
    def given(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.source, self.prompt

    @property
    def size(self) -> int:
        return len(self.source) + len(self.prompt) + self.limit


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that a search must know."""

    start: int
    end: int
    banned: tuple[int, ...] = ()  # never written

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        roles = tuple(tokenizer.roles.values())
        return cls(tokenizer.start, tokenizer.end, (tokenizer.pad, tokenizer.start, *roles))


@dataclass(frozen=True)
class Room:
    """What a session has place for."""

    rows: int
    longest: int  # new tokens
    reach: int  # positions that a row may have
    source: int  # tokens of a source

    @classmethod
    def of(cls, model: Network, requests: Sequence[Request], rows: int, static: bool) -> Self:
        longest = max(request.limit for request in requests)
        reach = longest + max(len(request.prompt) for request in requests)
        source = max(len(request.source) for request in requests)
        if model.encoder is None:
            reach = min(reach, model.config.longest)
        if not static:
            return cls(rows, longest, reach, source)
        # A few sizes serve for all, so that what was captured for one call serves the next.
        return cls(_power_of_two(rows), *(-(-size // BUCKET) * BUCKET for size in (longest, reach, source)))


class Session:
    """One batch that sentences join and leave."""

    def __init__(self, model: Network, search: Search, words: Vocabulary, room: Room, manner: Manner) -> None:
        self._model = ref(model)  # an idle session does not keep its model alive
        self.search, self.taps, self.manner = search, NO_TAPS, manner
        self.window = model.config.longest if model.encoder is None else 0
        device = model.embedding.weight.device
        self.cache = _cache(model, room, search.beam, manner.static)
        chooser = Beam if search.beam > 1 else Picker
        banned = torch.tensor(words.banned, dtype=torch.int64, device=device)
        self.chooser: Chooser = chooser(search, room.rows, room.longest, words.end, banned)
        self.tokens = torch.zeros(room.rows, search.beam, dtype=torch.int64, device=device)  # that are to be fed next
        self.requests: list[Request] = []  # of each row
        self.born = [0] * room.rows  # the step at which each came
        self.graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}

    @property
    def model(self) -> Network:
        model = self._model()
        assert model is not None
        return model

    def admit(self, requests: Sequence[Request]) -> None:
        """New sentences, in the rows after the others: their prompts pass through the model as a whole."""
        with self._here():
            self._admit(requests)

    def _here(self) -> torch.cuda.device_of:
        """Kernels and graphs start on the current GPU, which need not be the model's. On a CPU this does nothing."""
        return torch.cuda.device_of(self.tokens)

    def _admit(self, requests: Sequence[Request]) -> None:
        rows = slice(len(self.requests), len(self.requests) + len(requests))
        limits = torch.tensor([request.limit for request in requests], device=self.tokens.device)
        drawn = None
        if self.search.temperature > 0:
            drawn = uniforms([request.seed for request in requests], max(request.limit for request in requests))
        self.chooser.admit(rows, limits, drawn)
        self.born[rows] = [self.cache.steps] * len(requests)
        self.requests += requests
        # The samples of one prompt come one after the other: it passes once.
        first = [i for i, one in enumerate(requests) if i == 0 or one.given != requests[i - 1].given]
        some = [requests[i] for i in first]
        logits = self._fill([rows.start + i for i in first], some, [one.prompt for one in some])
        if len(first) < len(requests):
            which = [bisect(first, i) - 1 for i in range(len(requests))]
            others = [i for i, one in enumerate(which) if first[one] != i]
            self.cache.move([rows.start + first[which[i]] for i in others], [rows.start + i for i in others])
            logits = logits[torch.tensor(which, device=logits.device)]
        self._resize()
        chosen, _ = self.chooser.choose(logits, rows)
        self.tokens[rows] = chosen.view(-1, self.search.beam)

    def _resize(self) -> None:
        alive = len(self.requests)
        # A captured graph is for one number of rows; those beyond the living compute idly.
        self.cache.size = min(_power_of_two(alive), self.cache.rows) if self.manner.static else alive

    def _fill(self, rows: Sequence[int], requests: Sequence[Request], prompts: Sequence[Sequence[int]]) -> Tensor:
        """The logits after each prompt, [prompts, V]."""
        numbers, device = [request.number for request in requests], self.tokens.device
        target = packed(prompts, numbers, device)
        memory, layout = None, None
        if self.model.encoder is not None:
            source = packed([request.source for request in requests], numbers, device)
            memory, layout = self.model.encode(source, self.taps), source.layout
        self.cache.fill(rows, numbers, target.layout, layout)
        vectors = self.model.decode(target, memory, layout, self.taps, self.cache.pasts)
        last = target.layout.starts[1:].long() - 1  # the last token of each
        ends = replace(ones(len(last), device), positions=target.layout.positions[last], numbers=target.layout.numbers)
        return self.model.logits(vectors[last], ends, self.taps)

    def run(self) -> None:
        """Steps until it is time to look who is done."""
        left = min(
            one.limit - 1 - (self.cache.steps - born) for one, born in zip(self.requests, self.born, strict=False)
        )
        for _ in range(max(1, min(self.manner.look, left))):
            self.step()

    def step(self) -> None:
        """Every hypothesis is one token longer."""
        with self._here():
            self._step()

    def _step(self) -> None:
        cache = self.cache
        if self.window and isinstance(cache, Cache):  # only Transformers are language models
            full = [row for row in range(len(self.requests)) if cache.length(row) >= self.window]
            if full:
                self._slide(full)
        cache.make_room()
        if self.manner.captured and not self.taps.listening:
            self._replay()
        else:
            self._pass()
        cache.count()

    def _pass(self) -> None:
        """What happens on the device in one step: nothing here asks it for an answer."""
        size = self.cache.size
        layout = self.cache.step()
        tokens = Packed(self.tokens[:size].view(-1), layout)
        logits = self.model.logits(
            self.model.decode(tokens, None, None, self.taps, self.cache.pasts), layout, self.taps
        )
        chosen, parents = self.chooser.choose(logits, slice(0, size))
        self.cache.advance(parents, ~self.chooser.done[:size])
        self.tokens[:size] = chosen.view(size, -1)

    def _replay(self) -> None:
        """A step of the same shape is run once as it is, captured the second time, and from then on replayed."""
        key = (self.cache.size, self.cache.window)
        if key not in self.graphs:
            self.graphs[key] = None
            self._pass()
            return
        graph = self.graphs[key]
        if graph is None:
            self.graphs[key] = graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._pass()
        graph.replay()

    def _slide(self, rows: Sequence[int]) -> None:
        """The window of these rows is full: they go on from its newer half, read afresh as if it were the beginning."""
        assert self.search.beam == 1  # the hypotheses of a beam have one prompt; requests_for gives them no more room
        kept = max(self.window // 2, 2)
        whole = [[*self.requests[row].prompt, *self.chooser.written(row)] for row in rows]
        # The last token is yet to be fed.
        self._fill(rows, [self.requests[row] for row in rows], [tokens[-kept:-1] for tokens in whole])

    def leave(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """These rows are done: the last ones take their places. Who went from where to where."""
        left = len(self.requests) - len(rows)
        gone = set(rows)
        origins = [row for row in range(left, len(self.requests)) if row not in gone]
        places = [row for row in rows if row < left]
        moves = list(zip(origins, places, strict=True))
        if moves:
            there, here = (torch.tensor(side, device=self.tokens.device) for side in (origins, places))
            self.cache.move(origins, places)
            self.chooser.move(there, here)
            self.tokens[here] = self.tokens[there]
            for origin, row in moves:
                self.requests[row], self.born[row] = self.requests[origin], self.born[origin]
        self.cache.vacate(left)
        self.chooser.done[left : len(self.requests)] = True
        del self.requests[left:]
        self._resize()
        return moves


def _cache(model: Network, room: Room, beam: int, static: bool) -> Cache | States:
    """What the model's kind of decoder keeps of the tokens before."""
    if isinstance(model, Recurrent):
        return States(model, room.rows, beam, room.source, static)
    assert isinstance(model, Transformer) and model.decoder is not None
    model.decoder.reach(room.reach)
    return Cache(model, room.rows, beam, (room.reach + SPARE) * beam, room.source, static)


_IDLE: WeakKeyDictionary[Network, dict[object, Session]] = WeakKeyDictionary()


@contextmanager
def session(
    model: Network, requests: Sequence[Request], search: Search, words: Vocabulary, rows: int
) -> Iterator[Session]:
    """A session with room for these requests; those with graphs are kept for later calls."""
    manner = manner_on(model.embedding.weight.device)
    if isinstance(model, Recurrent):
        manner = replace(manner, captured=False)
    room = Room.of(model, requests, rows, manner.static)
    # Graphs remember where the weights lie.
    where = tuple(weight.data_ptr() for weight in model.parameters()) if manner.captured else ()
    key = (room, search, words, manner, where)
    idle = _IDLE.setdefault(model, {})
    found = idle.pop(key, None) or Session(model, search, words, room, manner)  # two threads never get the same one
    found.taps = model.taps()
    try:
        yield found
    finally:
        if where and not found.requests:
            idle[key] = found
            for oldest in list(idle)[:-IDLE]:
                idle.pop(oldest, None)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
