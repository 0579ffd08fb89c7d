"""A decoding session on the engine: requests join and leave it as they do a session on torch.

Where the engine's own search has all the rules that are needed, it runs whole steps; otherwise it computes the logits, and the
same selector as on torch chooses the tokens.

Shapes: S sentences, k hypotheses of each.
"""

from collections.abc import Sequence
from concurrent.futures import CancelledError
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from seq2see.config.search import PenaltyForm
from seq2see.data.framing import Framing
from seq2see.decode.cache import CacheSize
from seq2see.decode.engine_model import engine_of
from seq2see.decode.request import R, Request, Row
from seq2see.decode.sampling import RowOptions
from seq2see.decode.search import BeamSearch, Hypothesis, Search, TokenSampler, hypothesis_of
from seq2see.decode.session import Session, cache_size, copy_rows
from seq2see.engine.model import MAX_BEAM, STEPS_BETWEEN_CHECKS, EngineBatch, EngineModel, Floats, Found, Rules
from seq2see.model.network import Network
from seq2see.model.taps import NO_TAPS, Taps


def engine_for(model: Network, requests: Sequence[Request], taps: Taps = NO_TAPS) -> EngineModel | None:
    """Returns the engine of a model, if nothing is looked at, it has positions enough, and no context window slides."""
    if taps.active or (engine := engine_of(model)) is None:
        return None
    config = engine.config
    longest = engine.decoder.length if config.has_encoder else min(engine.decoder.length, config.max_positions)
    for each in requests:
        if len(each.prompt) + each.max_new_tokens - 1 > longest:
            return None
        if config.has_encoder and not 0 < len(each.source) <= engine.encoder.length:
            return None
    return engine


def engine_session(
    engine: EngineModel, model: Network, requests: Sequence[Request], search: Search, special_tokens: Framing, rows: int
) -> "EngineSession[Request]":
    """Returns a session large enough for these requests."""
    size = cache_size(model, requests, rows, static_shapes=False)
    plain = is_plain(search, special_tokens, [request.options for request in requests])
    return EngineSession(engine, model, search, special_tokens, size, plain)


def is_plain(search: Search, special_tokens: Framing, options: Sequence[RowOptions | None]) -> bool:
    """Whether the engine's own search has all the rules."""
    sampled = search.temperature > 0 or any(each and (each.temperature > 0 or each.constraints) for each in options)
    others = search.alternatives or special_tokens.other_ends or special_tokens.times
    return search.beam <= MAX_BEAM and not sampled and not others


class EngineSession(Session[R]):
    """A batch of requests that the engine decodes together."""

    def __init__(
        self,
        engine: EngineModel,
        model: Network,
        search: Search,
        special_tokens: Framing,
        size: CacheSize,
        plain: bool,
        max_steps: int = STEPS_BETWEEN_CHECKS,
    ) -> None:
        """With `plain`, the engine searches; it then runs at most `max_steps` between checks for finished requests."""
        self.model, self.search, self.taps, self.capacity = model, search, NO_TAPS, size.rows
        self.special_tokens, self.plain, self.max_steps = special_tokens, plain, max_steps
        self.options = RowOptions.of(search)
        self.rows = []
        self.is_cancelled = False  # by another thread
        self.batch = EngineBatch(engine, _rules(search, special_tokens, size.max_new_tokens, plain), size.rows)
        if plain:
            return
        device = torch.device("cpu")
        selector = BeamSearch if search.beam > 1 else TokenSampler
        self.selector = selector(search, size.rows, size.max_new_tokens, special_tokens, device)
        self.banned_first = torch.tensor(special_tokens.banned_first, dtype=torch.int64)
        self.tokens, self.parents = torch.zeros(2, size.rows, search.beam, dtype=torch.int32)

    def add(self, requests: Sequence[R]) -> None:
        first, limits = len(self.rows), [request.max_new_tokens for request in requests]
        sources = [list(request.source) for request in requests]
        self.batch.join(sources, [request.prompt for request in requests], limits)
        self.rows += [Row(each, each.options or self.options, 0, 0) for each in requests]
        if self.plain:
            return
        rows = slice(first, len(self.rows))
        self.selector.reset(rows, torch.tensor(limits))
        if any(row.options.temperature > 0 for row in self.rows[rows]):
            assert isinstance(self.selector, TokenSampler)  # a beam samples nothing
            self.selector.seed(rows, [request.seed for request in requests], max(limits))
        logits = torch.from_numpy(self.batch.logits(len(requests)))
        if len(self.banned_first):
            logits.index_fill_(1, self.banned_first, -torch.inf)
        self._select(logits, rows)

    def _select(self, logits: Tensor, rows: slice) -> None:
        tokens, parents = self.selector.select(logits, rows, [row.options for row in self.rows[rows]])
        self.tokens[rows] = tokens.view(-1, self.search.beam).int()
        if parents is not None:
            self.parents[rows] = parents.int()

    def run(self) -> None:
        if self.is_cancelled:
            raise CancelledError
        if self.plain and not any(row.request.should_stop for row in self.rows):
            self.batch.run(self.max_steps)
        else:
            self.step()

    def step(self) -> None:
        if self.plain:
            self.batch.run(1)
            return
        rows = slice(0, len(self.rows))
        self.batch.advance(*(np.ascontiguousarray(table[rows].numpy()) for table in (self.tokens, self.parents)))
        self._select(torch.from_numpy(self.batch.logits(len(self.rows) * self.search.beam)), rows)

    def done(self) -> list[bool]:
        if not self.plain:
            return self.selector.done[: len(self.rows)].tolist()
        return [self.batch.is_done(row) for row in range(len(self.rows))]

    def outputs(self, rows: Sequence[int]) -> list[list[Hypothesis]]:
        if not self.plain:
            return self.selector.hypotheses(torch.tensor(rows))
        return [[self._hypothesis(each) for each in self.batch.hypotheses(row, self.search.nbest)] for row in rows]

    def _hypothesis(self, found: Found) -> Hypothesis:
        score = found.score
        if self.search.beam == 1:
            length = torch.tensor(float(len(found.tokens) + self.special_tokens.forced))
            score = float(self.search.normalize(torch.tensor(sum(found.logprobs)), length))
        return hypothesis_of(found.tokens, found.logprobs, score, self.special_tokens.end)

    def remove(self, rows: Sequence[int]) -> None:
        for row in sorted(rows, reverse=True):
            last = len(self.rows) - 1
            if not self.plain and row != last:
                copy_rows([*self.selector.tables(), self.tokens, self.parents], [last], [row])
            if not self.plain:
                self.selector.done[last] = True
            self.batch.leave(row)
            self.rows[row] = self.rows[last]
            self.rows.pop()


@lru_cache(maxsize=256)
def _divisors(penalty: PenaltyForm, length_penalty: float, forced: int, limit: int) -> Floats:
    """The divisor of a score by the number of generated tokens, [limit + 1]."""
    search = Search(penalty=penalty, length_penalty=length_penalty)
    return search.divisor(torch.arange(limit + 1.0) + forced).numpy()


def _rules(search: Search, special_tokens: Framing, limit: int, plain: bool) -> Rules:
    if not plain:
        return Rules(search.beam)
    at_limit = search.early_stopping == "never" and search.length_penalty > 0
    return Rules(
        search.beam,
        special_tokens.end,
        stop_early=search.early_stopping is True,
        score_at_limit=at_limit,
        divisors=_divisors(search.penalty, search.length_penalty, special_tokens.forced, limit),
        banned=special_tokens.banned,
        banned_first=special_tokens.banned_first,
    )
