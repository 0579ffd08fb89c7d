"""A decoding session: a batch that requests join and leave, and the decoding step.

A prompt passes through the model as a whole and fills its row of the cache; from then on every step feeds one token per
hypothesis. Finished requests leave, the last rows take their places, and new ones join at the end. `DeviceProfile` says how
steps run on a device: on a CPU shapes are exact; on CUDA they are rounded up to a few sizes, and the passes of each shape are
captured as CUDA graphs. `EngineSession` does the same on the engine, in C. Lists of requests and the scheduler of a server both
decode through here.
"""

from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from seq2see.config.extensions import load_extension
from seq2see.data.framing import Framing
from seq2see.data.layout import Packed, Tokens
from seq2see.decode.cache import BUCKET, CacheSize, DecodingCache, next_token_layout
from seq2see.decode.prompts import MAX_VALUES, PromptShape, power_of_two
from seq2see.decode.request import R, Request, Row, StopCondition
from seq2see.decode.sampling import RowOptions
from seq2see.decode.search import BeamSearch, Hypothesis, Search, TokenSampler, TokenSelector
from seq2see.model.layers import Memory
from seq2see.model.network import Network
from seq2see.model.taps import NO_TAPS, Taps, with_attached
from seq2see.tensors.cuda_graphs import CudaGraphs

T = TypeVar("T")
MAX_IDLE_SESSIONS = 4  # per model, cached with their CUDA graphs


@dataclass(frozen=True)
class DeviceProfile:
    """How decoding runs on a kind of device."""

    static_shapes: bool  # few shapes, so that passes can be captured
    cuda_graphs: bool  # capture passes as CUDA graphs
    max_hypotheses: int  # in a batch; more would not be faster
    token_budget: int  # source and output tokens in a batch, unless the caller sets it
    check_interval: int  # steps between checks for finished rows; on a GPU each check synchronises


CPU_PROFILE = DeviceProfile(
    static_shapes=False, cuda_graphs=False, max_hypotheses=128, token_budget=8192, check_interval=1
)
CUDA_PROFILE = DeviceProfile(
    static_shapes=True, cuda_graphs=True, max_hypotheses=512, token_budget=1 << 17, check_interval=8
)


def device_profile(model: Network) -> DeviceProfile:
    if not model.embedding.weight.is_cuda:
        return CPU_PROFILE
    # Under autocast a graph would refer to cast weights that are freed when the block ends.
    captured = load_extension("caches", model.config.kind).CAN_BE_CAPTURED and not torch.is_autocast_enabled("cuda")
    return replace(CUDA_PROFILE, cuda_graphs=captured)


def cache_size(model: Network, requests: Sequence[Request], rows: int, static_shapes: bool) -> CacheSize:
    """Returns the capacity that these requests need."""
    max_new_tokens = max(request.max_new_tokens for request in requests)
    max_positions = max_new_tokens + max(len(request.prompt) for request in requests)
    source_slots = max(len(request.source) for request in requests)
    if model.encoder is None:
        max_positions = min(max_positions, model.config.max_positions)
    if not static_shapes:
        return CacheSize(rows, max_new_tokens, max_positions, source_slots)
    # Few sizes, so that later calls can reuse captured graphs.
    sizes = (-(-size // BUCKET) * BUCKET for size in (max_new_tokens, max_positions, source_slots))
    return CacheSize(power_of_two(rows), *sizes)


class Session(ABC, Generic[R]):
    """A batch of requests that are decoded together: they join it and leave it between steps."""

    model: Network
    search: Search
    taps: Taps
    options: RowOptions  # of requests without their own
    rows: list[Row[R]]
    capacity: int

    @abstractmethod
    def add(self, requests: Sequence[R]) -> None:
        """Adds requests in the rows after the others and selects their first tokens."""

    @abstractmethod
    def run(self) -> None:
        """Runs steps until the next check for finished rows."""

    @abstractmethod
    def step(self) -> None:
        """Adds one token to every hypothesis."""

    @abstractmethod
    def done(self) -> list[bool]:
        """Tells for each row whether its output is complete."""

    @abstractmethod
    def outputs(self, rows: Sequence[int]) -> list[list[Hypothesis]]:
        """Returns the outputs so far of these rows, best first, without those that have probability 0."""

    @abstractmethod
    def remove(self, rows: Sequence[int]) -> None:
        """Removes the requests of these rows, finished or not; the last rows take their places."""

    @property
    def free(self) -> int:
        return self.capacity - len(self.rows)

    @property
    def should_fill(self) -> bool:
        """Whether waiting requests should join now: encoding a few sources together is faster than one by one."""
        return self.free * 4 >= self.capacity

    @torch.inference_mode()
    def decode(self, waiting: Iterator[R]) -> dict[R, list[Hypothesis]]:
        """Decodes requests until none are waiting; sessions in several threads may share the iterator: its steps are atomic."""
        found: dict[R, list[Hypothesis]] = {}
        joining = list(islice(waiting, self.capacity))
        while joining or self.rows:
            if joining:
                self.add(joining)
            else:
                self.run()
            found |= self.take_finished()
            joining = list(islice(waiting, self.free)) if self.should_fill else []
        return found

    def take_finished(self) -> list[tuple[R, list[Hypothesis]]]:
        """Removes the requests that have finished and returns them with their hypotheses, which are empty if none exists."""
        done = self.done()
        candidates = [i for i, row in enumerate(self.rows) if done[i] or row.request.should_stop is not None]
        if not candidates:
            return []
        finished: dict[int, list[Hypothesis]] = {}
        for i, hypotheses in zip(candidates, self.outputs(candidates), strict=True):
            should_stop = self.rows[i].request.should_stop
            stop = first_stop(hypotheses[0].tokens, should_stop) if should_stop is not None and hypotheses else None
            if stop is not None:
                finished[i] = [_truncate(hypotheses[0], stop)]
            elif done[i]:
                finished[i] = hypotheses
        result = [(self.rows[i].request, hypotheses) for i, hypotheses in finished.items()]
        self.remove(list(finished))
        return result


class TorchSession(Session[R]):
    """A session on the torch model: prompts fill rows of the cache, and a step feeds each hypothesis its last token."""

    def __init__(
        self, model: Network, search: Search, special_tokens: Framing, size: CacheSize, profile: DeviceProfile
    ) -> None:
        self.model, self.search, self.taps, self.profile, self.capacity = model, search, NO_TAPS, profile, size.rows
        self.options = RowOptions.of(search)
        self.context_window = model.config.max_positions if model.encoder is None else 0
        device = model.embedding.weight.device
        cache_class: type[DecodingCache] = load_extension("caches", model.config.kind)
        self.cache = cache_class(model, size, search.beam, profile.static_shapes)
        selector = BeamSearch if search.beam > 1 else TokenSampler
        self.selector: TokenSelector = selector(search, size.rows, size.max_new_tokens, special_tokens, device)
        self.banned_first = torch.tensor(special_tokens.banned_first, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(size.rows, search.beam, dtype=torch.int64, device=device)  # inputs of the next step
        self.rows: list[Row[R]] = []
        self.inputs = self.tokens.new_zeros(MAX_VALUES if self.cache.prompt_limits else 0)  # of a pass over prompts
        self.graphs = CudaGraphs() if profile.cuda_graphs else None
        self.buffers = list(model.buffers())  # graphs read them by address, even when the model has replaced them

    def add(self, requests: Sequence[R]) -> None:
        first, step = len(self.rows), self.cache.steps
        rows = slice(first, first + len(requests))
        self.rows += [Row(each, each.options or self.options, step, step - len(each.prompt)) for each in requests]
        options, limits = [row.options for row in self.rows[rows]], [request.max_new_tokens for request in requests]
        with torch.cuda.device_of(self.tokens):  # kernels and graphs are launched on the current GPU
            self.selector.reset(rows, torch.tensor(limits, device=self.tokens.device))
            if any(each.temperature > 0 for each in options):
                assert isinstance(self.selector, TokenSampler)  # a beam samples nothing
                self.selector.seed(rows, [request.seed for request in requests], max(limits))
            # Samples of one prompt are consecutive: it passes through the model once, and its row is copied.
            distinct = [i for i in range(len(requests)) if i == 0 or not requests[i].same_inputs(requests[i - 1])]
            logits = self._prefill([first + i for i in distinct], [requests[i].prompt for i in distinct])
            if len(distinct) < len(requests):
                logits = logits[self._copy_samples(first, distinct, len(requests))]
            self._set_active_rows()
            if len(self.banned_first):
                logits = logits.index_fill(1, self.banned_first, -torch.inf)
            selected, _ = self.selector.select(logits, rows, options)
            self.tokens[rows] = selected.view(-1, self.search.beam)

    def _set_active_rows(self) -> None:
        running = len(self.rows)
        # A captured graph has a fixed number of rows; the surplus rows compute unused results.
        static = self.profile.static_shapes
        self.cache.active = min(power_of_two(running), len(self.tokens)) if static else running

    def _copy_samples(self, first: int, distinct: Sequence[int], count: int) -> Tensor:
        """Copies the rows of distinct prompts to those of their other samples; returns which prompt each row has, [count]."""
        prompt_of = [bisect(distinct, i) - 1 for i in range(count)]
        copies = [i for i, prompt in enumerate(prompt_of) if distinct[prompt] != i]
        origins = [first + distinct[prompt_of[i]] for i in copies]
        copy_rows(self.cache.tables(), origins, [first + i for i in copies])
        return torch.tensor(prompt_of, device=self.tokens.device)

    def _prefill(self, rows: Sequence[int], prompts: Sequence[Sequence[int]]) -> Tensor:
        """Passes whole prompts through the model; returns the logits after each, [prompts, V]."""
        requests = [self.rows[row].request for row in rows]
        sides: list[Sequence[Tokens]] = [prompts]
        if self.model.encoder is not None:
            sides.append([request.source for request in requests])
        limits = () if self.taps.active else self.cache.prompt_limits
        shape = PromptShape.of(sides, limits) if limits else None
        if shape is None:
            device, ids = self.tokens.device, [request.sequence_id for request in requests]
            packed = (Packed.from_sequences(side, device, ids) for side in sides)
            logits = self._logits_after(torch.tensor(rows, device=device), packed)
        else:
            values = shape.pack(rows, len(self.tokens), sides)
            inputs = self.inputs[: len(values)]
            inputs.copy_(values, non_blocking=True)
            logits = self._launch(shape, lambda: self._logits_after(*shape.unpack(inputs))[: shape.sequences])
        self.cache.reserve(max(map(len, prompts)))
        return logits[: len(rows)]

    def _logits_after(self, rows: Tensor, sides: Iterable[Packed]) -> Tensor:
        """Passes prompts, and their sources, through the model and stores their keys and values in these rows."""
        target, source, *_ = [*sides, None]
        assert target is not None
        memory = Memory(self.model.encode(source, self.taps), source.layout) if source is not None else None
        stores = self.cache.prompt_stores(rows, target.layout, None if source is None else source.layout)
        vectors = self.model.decode(target, memory, self.taps, stores)
        last = target.layout.starts[1:].long() - 1  # the last token of each prompt
        layout = next_token_layout(target.layout.positions[last], target.layout.resolved_sequence_ids)
        return self.model.logits(vectors[last], layout, self.taps)

    def _launch(self, key: Hashable, function: Callable[[], T]) -> T:
        """Runs work on the device, which is the same for equal keys, as a CUDA graph if the session captures them."""
        return function() if self.graphs is None or self.taps.active else self.graphs.run(key, function)

    def run(self) -> None:
        steps = self.cache.steps
        remaining = min(row.request.max_new_tokens - 1 - (steps - row.joined) for row in self.rows)
        for _ in range(max(1, min(self.profile.check_interval, remaining))):
            self.step()

    def step(self) -> None:
        with torch.cuda.device_of(self.tokens):
            if self.context_window:
                self._slide_full_windows()
            self.cache.compact_if_needed(self.rows)
            self._launch((self.cache.active, self.cache.visible_slots), self._step_on_device)
            self.cache.count_step()

    def _step_on_device(self) -> None:
        """The part of a step that runs on the device, without synchronising; a CUDA graph repeats exactly this."""
        size = self.cache.active
        layout, stores = self.cache.next_pass(self.rows)
        tokens = Packed(self.tokens[:size].view(-1), layout)
        vectors = self.model.decode(tokens, None, self.taps, stores)
        logits = self.model.logits(vectors, layout, self.taps)
        selected, parents = self.selector.select(logits, slice(0, size), [row.options for row in self.rows])
        self.cache.advance(parents, ~self.selector.done[:size])
        self.tokens[:size] = selected.view(size, -1)

    def _slide_full_windows(self) -> None:
        """Restarts rows with a full context window from its newer half, as if that were the beginning."""
        steps = self.cache.steps
        full = [i for i, row in enumerate(self.rows) if steps - row.start >= self.context_window]
        if not full:
            return
        assert self.search.beam == 1  # hypotheses of a beam share one prompt; build_requests limits their length
        length = max(self.context_window // 2, 2)
        tokens = [[*self.rows[i].request.prompt, *self.selector.generated(i)] for i in full]
        prompts = [ids[-length:-1] for ids in tokens]  # the last token is the input of the next step
        self._prefill(full, prompts)
        for i, prompt in zip(full, prompts, strict=True):
            self.rows[i].start = steps - len(prompt)

    def done(self) -> list[bool]:
        done: list[bool] = self.selector.done[: len(self.rows)].tolist()
        return done

    def outputs(self, rows: Sequence[int]) -> list[list[Hypothesis]]:
        return self.selector.hypotheses(torch.tensor(rows, device=self.tokens.device))

    def remove(self, rows: Sequence[int]) -> None:
        if not rows:
            return
        count, removed = len(self.rows), set(rows)
        remaining = count - len(removed)
        origins = [row for row in range(remaining, count) if row not in removed]
        free = sorted(row for row in removed if row < remaining)
        if origins:
            copy_rows([*self.cache.tables(), *self.selector.tables(), self.tokens], origins, free)
            for origin, row in zip(origins, free, strict=True):
                self.rows[row] = self.rows[origin]
        self.cache.clear_rows(remaining)
        self.selector.done[remaining:count] = True
        del self.rows[remaining:]
        self._set_active_rows()


def copy_rows(tables: Sequence[Tensor], origins: Sequence[int], rows: Sequence[int]) -> None:
    origin_index, row_index = (torch.tensor(side, device=tables[0].device) for side in (origins, rows))
    for table in tables:
        table[row_index] = table[origin_index]


def first_stop(tokens: Sequence[int], should_stop: StopCondition) -> int | None:
    """Returns the length of the shortest prefix that meets the stop condition, or None."""
    if not should_stop(tokens):
        return None
    return next(count for count in range(1, len(tokens) + 1) if should_stop(tokens[:count]))


def _truncate(hypothesis: Hypothesis, count: int) -> Hypothesis:
    logprobs = hypothesis.logprobs[:count]
    alternatives = hypothesis.alternatives[:count]
    return Hypothesis(hypothesis.tokens[:count], logprobs, sum(logprobs) / count, True, alternatives)


_IDLE_SESSIONS: WeakKeyDictionary[Network, dict[object, TorchSession[Request]]] = WeakKeyDictionary()


@contextmanager
def open_session(
    model: Network,
    requests: Sequence[Request],
    search: Search,
    special_tokens: Framing,
    rows: int,
    profile: DeviceProfile,
) -> Iterator[TorchSession[Request]]:
    """Yields a session large enough for these requests; sessions with CUDA graphs are reused by later calls."""
    if any(request.options is not None and request.options.constraints for request in requests):
        profile = replace(profile, cuda_graphs=False)  # constraints are met on the host
    size = cache_size(model, requests, rows, profile.static_shapes)
    # Graphs refer to the addresses of the weights.
    addresses = tuple(weight.data_ptr() for weight in model.parameters()) if profile.cuda_graphs else ()
    key = (size, search, special_tokens, profile, addresses)
    idle = _IDLE_SESSIONS.setdefault(model, {})
    # pop, so that two threads never get the same session
    session = idle.pop(key, None) or TorchSession(model, search, special_tokens, size, profile)
    session.model, session.taps, session.capacity = model, with_attached(model), rows
    try:
        yield session
    finally:
        if addresses and not session.rows:
            idle[key] = session
            del session.model  # which an idle session must not keep alive
            for oldest in list(idle)[:-MAX_IDLE_SESSIONS]:
                idle.pop(oldest, None)
