"""A decoding session: one batch that sentences join and leave, and the decoding step.

A prompt passes through the model as a whole and fills its row of the cache (prefill); from then on every step feeds one
token per hypothesis. `DeviceProfile` says how steps run on a device: on a CPU shapes are exact; on CUDA they are rounded up
to a few sizes, and the step of each shape is captured as a CUDA graph.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from seq2see.config.extensions import load_extension
from seq2see.data.layout import Packed, Tokens
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.cache import BUCKET, CacheSize, DecodingCache, pack, single_token_layout
from seq2see.decode.sampling import RowOptions, draw_uniforms
from seq2see.decode.search import BeamSearch, Search, TokenSampler, TokenSelector
from seq2see.model.network import Network
from seq2see.model.taps import NO_TAPS

MAX_IDLE_SESSIONS = 4  # per model, cached with their CUDA graphs


@dataclass(frozen=True)
class DeviceProfile:
    """How decoding runs on a kind of device."""

    static_shapes: bool  # few shapes, so that steps can be captured
    cuda_graphs: bool  # capture steps as CUDA graphs
    max_hypotheses: int  # in a batch; more would not be faster
    token_budget: int  # source and output tokens in a batch, unless the caller sets it
    check_interval: int  # steps between checks for finished rows; on a GPU each check synchronises


CPU_PROFILE = DeviceProfile(
    static_shapes=False, cuda_graphs=False, max_hypotheses=128, token_budget=8192, check_interval=1
)
CUDA_PROFILE = DeviceProfile(
    static_shapes=True, cuda_graphs=True, max_hypotheses=512, token_budget=1 << 17, check_interval=8
)


def device_profile(device: torch.device) -> DeviceProfile:
    if device.type != "cuda":
        return CPU_PROFILE
    # Under autocast a graph would refer to cast weights that are freed when the block ends.
    return replace(CUDA_PROFILE, cuda_graphs=not torch.is_autocast_enabled("cuda"))


def session_profile(model: Network) -> DeviceProfile:
    profile = device_profile(model.embedding.weight.device)
    captured = profile.cuda_graphs and load_extension("caches", model.config.kind).CAN_BE_CAPTURED
    return replace(profile, cuda_graphs=captured)


@dataclass(frozen=True)
class Request:
    sequence_id: int
    source: Tokens  # empty for a language model
    prompt: Sequence[int]  # <start> and the prefix of the output
    max_new_tokens: int
    seed: int = 0
    options: RowOptions | None = None  # None: the session's search

    @property
    def total_tokens(self) -> int:
        return len(self.source) + len(self.prompt) + self.max_new_tokens


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens that a search needs to know."""

    start: int
    end: int
    banned: tuple[int, ...] = ()  # never generated
    other_ends: tuple[int, ...] = ()  # also end an output; they are recorded as `end`
    prompt: tuple[int, ...] | None = None  # what every output starts with; None: `start`
    forced: int = 0  # how many tokens of the prompt count for the length penalty
    banned_first: tuple[int, ...] = ()  # never generated as the first token
    timestamps: int = 0  # the first of the tokens that are times; 0: none are generated

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, timestamps: bool = False) -> Self:
        f = tokenizer.framing
        prompt, first = (f.prompt[:-1], f.timestamps) if timestamps and f.timestamps else (f.prompt, 0)
        return cls(f.start, f.end, f.banned, f.other_ends, prompt, f.forced, f.banned_first, first)

    def prompt_with(self, tokens: Iterable[int]) -> list[int]:
        """Returns what the decoder reads before it generates: the start and a prefix or prompt."""
        return [*((self.start,) if self.prompt is None else self.prompt), *tokens] or [self.start]


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
    return CacheSize(_next_power_of_two(rows), *sizes)


class Session:
    """One batch that sentences join and leave."""

    def __init__(
        self, model: Network, search: Search, special_tokens: SpecialTokens, size: CacheSize, profile: DeviceProfile
    ) -> None:
        self._model = ref(model)  # an idle session must not keep its model alive
        self.search, self.taps, self.profile = search, NO_TAPS, profile
        self.context_window = model.config.max_positions if model.encoder is None else 0
        device = model.embedding.weight.device
        cache_class: type[DecodingCache] = load_extension("caches", model.config.kind)
        self.cache = cache_class.for_session(model, size, search.beam, profile.static_shapes)
        selector = BeamSearch if search.beam > 1 else TokenSampler
        banned, others, self.banned_first = (
            torch.tensor(ids, dtype=torch.int64, device=device)
            for ids in (special_tokens.banned, special_tokens.other_ends, special_tokens.banned_first)
        )
        other_ends = others if len(others) else None
        self.selector: TokenSelector = selector(
            search, size.rows, size.max_new_tokens, special_tokens.end, banned, other_ends, special_tokens.forced,
            special_tokens.timestamps,
        )  # fmt: skip
        self.tokens = torch.zeros(size.rows, search.beam, dtype=torch.int64, device=device)  # inputs of the next step
        self.requests: list[Request] = []  # of each row
        self.join_steps = [0] * size.rows  # the step at which each row joined
        self.graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}

    @property
    def model(self) -> Network:
        model = self._model()
        assert model is not None
        return model

    def add(self, requests: Sequence[Request]) -> None:
        """Adds sentences in the rows after the others and selects their first tokens."""
        with self._on_device():
            self._add(requests)

    def _on_device(self) -> torch.cuda.device_of:
        """Makes the model's GPU the current one, where kernels and graphs are launched. Does nothing on a CPU."""
        return torch.cuda.device_of(self.tokens)

    def _add(self, requests: Sequence[Request]) -> None:
        rows = slice(len(self.requests), len(self.requests) + len(requests))
        limits = torch.tensor([request.max_new_tokens for request in requests], device=self.tokens.device)
        uniforms, options = None, self._row_options(requests)
        if any(each.temperature > 0 for each in options):
            steps = max(request.max_new_tokens for request in requests)
            uniforms = draw_uniforms([request.seed for request in requests], steps)
        self.selector.reset(rows, limits, uniforms)
        self.join_steps[rows] = [self.cache.steps] * len(requests)
        self.requests += requests
        # Samples of one prompt are consecutive: the prompt passes through the model once and its row is copied.
        first = [i for i in range(len(requests)) if i == 0 or not _same_inputs(requests[i - 1], requests[i])]
        distinct = [requests[i] for i in first]
        logits = self._prefill([rows.start + i for i in first], distinct, [request.prompt for request in distinct])
        if len(first) < len(requests):
            prompt_of = [bisect(first, i) - 1 for i in range(len(requests))]
            copies = [i for i, prompt in enumerate(prompt_of) if first[prompt] != i]
            origins = [rows.start + first[prompt_of[i]] for i in copies]
            self.cache.move_rows(origins, [rows.start + i for i in copies])
            logits = logits[torch.tensor(prompt_of, device=logits.device)]
        self._set_active_rows()
        if len(self.banned_first):
            logits = logits.index_fill(1, self.banned_first, -torch.inf)
        selected, _ = self.selector.select(logits, rows, options)
        self.tokens[rows] = selected.view(-1, self.search.beam)

    def _row_options(self, requests: Sequence[Request]) -> list[RowOptions]:
        default = RowOptions.of(self.search)
        return [request.options or default for request in requests]

    def _set_active_rows(self) -> None:
        running = len(self.requests)
        # A captured graph has a fixed number of rows; the surplus rows compute unused results.
        static = self.profile.static_shapes
        self.cache.active = min(_next_power_of_two(running), self.cache.rows) if static else running

    def _prefill(self, rows: Sequence[int], requests: Sequence[Request], prompts: Sequence[Sequence[int]]) -> Tensor:
        """Passes whole prompts through the model; returns the logits after each, [prompts, V]."""
        sequence_ids, device = [request.sequence_id for request in requests], self.tokens.device
        target = pack(prompts, sequence_ids, device)
        memory, source_layout = None, None
        if self.model.encoder is not None:
            source = pack([request.source for request in requests], sequence_ids, device)
            memory, source_layout = self.model.encode(source, self.taps), source.layout
        caches = self.cache.prefill(rows, sequence_ids, target.layout, source_layout)
        vectors = self.model.decode(target, memory, source_layout, self.taps, caches)
        last = target.layout.starts[1:].long() - 1  # the last token of each prompt
        layout = replace(
            single_token_layout(len(last), device), positions=target.layout.positions[last],
            sequence_ids=target.layout.sequence_ids,
        )  # fmt: skip
        return self.model.logits(vectors[last], layout, self.taps)

    def run(self) -> None:
        """Runs steps until the next check for finished rows."""
        remaining = min(
            request.max_new_tokens - 1 - (self.cache.steps - joined)
            for request, joined in zip(self.requests, self.join_steps, strict=False)
        )
        for _ in range(max(1, min(self.profile.check_interval, remaining))):
            self.step()

    def step(self) -> None:
        """Adds one token to every hypothesis."""
        with self._on_device():
            self._step()

    def _step(self) -> None:
        cache = self.cache
        if self.context_window:
            full = [row for row in range(len(self.requests)) if cache.length(row) >= self.context_window]
            if full:
                self._slide_window(full)
        cache.compact_if_needed()
        if self.profile.cuda_graphs and not self.taps.active:
            self._step_by_graph()
        else:
            self._step_on_device()
        cache.count_step()

    def _step_on_device(self) -> None:
        """The part of a step that runs on the device, without synchronising; a CUDA graph repeats exactly this."""
        size = self.cache.active
        layout, caches = self.cache.step()
        tokens = Packed(self.tokens[:size].view(-1), layout)
        vectors = self.model.decode(tokens, None, None, self.taps, caches)
        logits = self.model.logits(vectors, layout, self.taps)
        selected, parents = self.selector.select(logits, slice(0, size), self._row_options(self.requests))
        self.cache.advance(parents, ~self.selector.done[:size])
        self.tokens[:size] = selected.view(size, -1)

    def _step_by_graph(self) -> None:
        """Runs the first step of a shape eagerly, captures the second, and replays the graph from then on."""
        shape = (self.cache.active, self.cache.window)
        if shape not in self.graphs:
            self.graphs[shape] = None
            self._step_on_device()
            return
        graph = self.graphs[shape]
        if graph is None:
            self.graphs[shape] = graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step_on_device()
        graph.replay()

    def _slide_window(self, rows: Sequence[int]) -> None:
        """Restarts rows with a full context window from its newer half, as if that were the beginning."""
        assert self.search.beam == 1  # hypotheses of a beam share one prompt; build_requests limits their length
        length = max(self.context_window // 2, 2)
        tokens = [[*self.requests[row].prompt, *self.selector.generated(row)] for row in rows]
        # The last token is the input of the next step.
        self._prefill(rows, [self.requests[row] for row in rows], [ids[-length:-1] for ids in tokens])

    def remove(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Removes finished rows; the last rows take their places. Returns the moves as (from, to)."""
        remaining = len(self.requests) - len(rows)
        removed = set(rows)
        origins = [row for row in range(remaining, len(self.requests)) if row not in removed]
        free = [row for row in rows if row < remaining]
        moves = list(zip(origins, free, strict=True))
        if moves:
            origin_index, row_index = (torch.tensor(side, device=self.tokens.device) for side in (origins, free))
            self.cache.move_rows(origins, free)
            self.selector.move_rows(origin_index, row_index)
            self.tokens[row_index] = self.tokens[origin_index]
            for origin, row in moves:
                self.requests[row], self.join_steps[row] = self.requests[origin], self.join_steps[origin]
        self.cache.clear_rows(remaining)
        self.selector.done[remaining : len(self.requests)] = True
        del self.requests[remaining:]
        self._set_active_rows()
        return moves


def _same_inputs(a: Request, b: Request) -> bool:
    """Whether two requests are samples of one prompt."""
    return a.sequence_id == b.sequence_id and a.source is b.source and a.prompt is b.prompt


_IDLE_SESSIONS: WeakKeyDictionary[Network, dict[object, Session]] = WeakKeyDictionary()


@contextmanager
def open_session(
    model: Network, requests: Sequence[Request], search: Search, special_tokens: SpecialTokens, rows: int
) -> Iterator[Session]:
    """Yields a session large enough for these requests; sessions with CUDA graphs are reused by later calls."""
    profile = session_profile(model)
    if any(request.options is not None and request.options.constraints for request in requests):
        profile = replace(profile, cuda_graphs=False)  # constraints are met on the host
    size = cache_size(model, requests, rows, profile.static_shapes)
    # Graphs refer to the addresses of the weights.
    addresses = tuple(weight.data_ptr() for weight in model.parameters()) if profile.cuda_graphs else ()
    key = (size, search, special_tokens, profile, addresses)
    idle = _IDLE_SESSIONS.setdefault(model, {})
    # pop, so that two threads never get the same session
    session = idle.pop(key, None) or Session(model, search, special_tokens, size, profile)
    session.taps = model.taps()
    try:
        yield session
    finally:
        if addresses and not session.requests:
            idle[key] = session
            for oldest in list(idle)[:-MAX_IDLE_SESSIONS]:
                idle.pop(oldest, None)


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
