"""Decoding of many requests: translations and continuations, with continuous batching.

Requests are sorted by length and admitted until a token budget is full. A finished sequence leaves the batch immediately,
the last row takes its place, and new sequences join at the end, so the batch stays full. Results are in request order.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat

import torch

from seq2see.data.framing import Framing
from seq2see.data.layout import Tokens
from seq2see.decode.constraints import Constraints
from seq2see.decode.engine_session import EngineSession, engine_for, engine_session
from seq2see.decode.request import Request, StopCondition
from seq2see.decode.sampling import RowOptions
from seq2see.decode.search import Hypothesis, Search
from seq2see.decode.session import Session, device_profile, open_session
from seq2see.engine.model import EngineModel
from seq2see.errors import UsageError, UserError
from seq2see.model.network import Network
from seq2see.model.taps import Taps, with_attached

# Default maximum length: a translation may have 1.5 times the tokens of its source plus 10, the text of a picture or sound
# half as many as there are patches or frames plus 10, a continuation 200.
LENGTH_RATIO, MEDIA_LENGTH_RATIO, LENGTH_MARGIN = 1.5, 0.5, 10
CONTINUATION_LENGTH = 200
GREEDY = Search()
Results = dict[Request, list[Hypothesis]]


@torch.inference_mode()
def decode_requests(
    model: Network, requests: Sequence[Request], search: Search, special_tokens: Framing, token_budget: int = 0
) -> list[list[Hypothesis]]:
    """Returns the hypotheses of each request, best first."""
    if search.beam > 1:
        check_beam(model, search.beam)
    results: Results = {}
    taps, profile = with_attached(model), device_profile(model)
    tokens = {request: len(request.source) + len(request.prompt) + request.max_new_tokens for request in requests}
    ordered = sorted(requests, key=tokens.__getitem__, reverse=True)
    while ordered:
        max_tokens = tokens[ordered[0]]
        # Requests less than half as long go into a later batch, which then has more rows.
        waiting = [request for request in ordered if tokens[request] * 2 > max_tokens]
        ordered = ordered[len(waiting) :]
        max_rows = max(1, profile.max_hypotheses // search.beam)
        budget_rows = (token_budget or profile.token_budget) // (max_tokens * search.beam)
        rows = max(1, min(budget_rows, max_rows, len(waiting)))
        engine = engine_for(model, waiting, taps) if model.use_engine else None
        if engine is not None:
            results |= _decode_on_engine(engine, model, waiting, search, special_tokens, rows)
            continue
        with open_session(model, waiting, search, special_tokens, rows, profile) as session:
            results |= session.decode(iter(waiting))
    for request in requests:
        require_output(request, results[request])
    return [results[request] for request in requests]


def _decode_on_engine(
    engine: EngineModel, model: Network, requests: Sequence[Request], search: Search, special_tokens: Framing, rows: int
) -> Results:
    threads, results, waiting = min(torch.get_num_threads(), rows), Results(), iter(requests)
    sizes = [-(-rows // threads)] * threads  # the engine runs in one thread for each session
    sessions = [engine_session(engine, model, requests, search, special_tokens, size) for size in sizes]
    if threads == 1:
        return sessions[0].decode(waiting)
    with ThreadPoolExecutor(threads) as pool:
        try:
            for found in pool.map(EngineSession.decode, sessions, repeat(waiting)):
                results |= found
        finally:
            for session in sessions:  # after an error or an interrupt; otherwise they are done
                session.is_cancelled = True
    return results


def check_beam(model: Network, beam: int) -> None:
    """Raises a UsageError if the vocabulary is too small for a beam."""
    if beam * 2 > model.config.vocab_size:
        raise UsageError(
            f"a beam of {beam} needs {2 * beam} candidate tokens per step, but the vocabulary has only "
            f"{model.config.vocab_size}: use a narrower beam"
        )


def require_output(request: Request, hypotheses: Sequence[Hypothesis]) -> None:
    if not hypotheses:
        raise UserError(
            f"no output for sentence {request.sequence_id + 1}: every token has probability 0 or NaN; the model's "
            "activations may have overflowed"
        )


def stream_tokens(model: Network, request: Request, search: Search, special_tokens: Framing) -> Iterator[int]:
    """Yields the tokens of one request as they are generated, under the interventions active at the call."""
    if search.beam > 1:
        raise UsageError(
            f"a beam of {search.beam} cannot be streamed: its output is known only at the end; use beam = 1"
        )
    return _stream_tokens(model, request, search, special_tokens, with_attached(model))


@torch.inference_mode()
def _stream_tokens(
    model: Network, request: Request, search: Search, special_tokens: Framing, taps: Taps
) -> Iterator[int]:
    engine = engine_for(model, [request], taps)
    opened: AbstractContextManager[Session[Request]] = (
        open_session(model, [request], search, special_tokens, 1, device_profile(model))
        if engine is None
        else nullcontext(engine_session(engine, model, [request], search, special_tokens, 1))
    )
    with opened as session:
        session.taps = taps
        session.add([request])
        shown = 0
        while True:
            (outputs,) = session.outputs([0])
            require_output(request, outputs)
            yield from outputs[0].tokens[shown:]
            shown = len(outputs[0].tokens)
            if session.done()[0]:
                break
            session.step()
        session.remove([0])


def translate_tokens(
    model: Network, sources: Sequence[Tokens], special_tokens: Framing, search: Search = GREEDY,
    prefixes: Sequence[Sequence[int]] = (), token_budget: int = 0, constraints: Sequence[Constraints | None] = (),
) -> list[list[Hypothesis]]:  # fmt: skip
    """Returns the translations of each source, best first; after a prefix, only the tokens that follow it."""
    if model.config.classifier:
        if any(prefixes) or any(constraints):
            raise UsageError("a classifier writes one token: it takes no prefix and no constraints")
        from seq2see.decode.classify import classify

        return classify(model, sources, special_tokens, search)
    prompts = [[*special_tokens.prompt, *(prefixes[i] if prefixes else ())] for i in range(len(sources))]
    requests = [
        request
        for i, (source, prompt) in enumerate(zip(sources, prompts, strict=True))
        for request in build_requests(model, i, source, prompt, search)
    ]
    if constraints:
        rows = [RowOptions.of(search, each) for each in constraints]
        for request in requests:
            request.options = rows[request.sequence_id]
    return _group_samples(decode_requests(model, requests, search, special_tokens, token_budget), search)


def generate_tokens(
    model: Network,
    prompts: Sequence[Sequence[int]],
    special_tokens: Framing,
    search: Search = GREEDY,
    should_stop: StopCondition | None = None,
    token_budget: int = 0,
) -> list[list[Hypothesis]]:
    """Returns the continuations of each prompt by a language model: the samples, or the n best."""
    requests = [
        request
        for i, prompt in enumerate(prompts)
        for request in build_requests(model, i, (), special_tokens.prompt_with(prompt), search)
    ]
    for request in requests:
        request.should_stop = should_stop
    return _group_samples(decode_requests(model, requests, search, special_tokens, token_budget), search)


def _group_samples(results: list[list[Hypothesis]], search: Search) -> list[list[Hypothesis]]:
    """Joins the results of consecutive requests that are samples of one prompt."""
    n = search.samples
    return [[hypothesis for sample in results[i : i + n] for hypothesis in sample] for i in range(0, len(results), n)]


def build_requests(
    model: Network, sequence_id: int, source: Tokens, prompt: Sequence[int], search: Search
) -> list[Request]:
    """Builds one request per sample, with the prompt and the number of new tokens limited to the model's positions."""
    config = model.config
    ratio = LENGTH_RATIO if config.source == "tokens" else MEDIA_LENGTH_RATIO
    default = int(len(source) * ratio) + LENGTH_MARGIN if len(source) else CONTINUATION_LENGTH
    max_new_tokens = search.max_new_tokens or default
    if model.encoder is None:
        if len(prompt) >= config.max_positions and search.window == "stop":
            raise UserError(
                f"the prompt has {len(prompt):,} tokens, but the model's context window is {config.max_positions:,} "
                '(model.max_positions): shorten the prompt, or use window = "slide"'
            )
        if len(prompt) >= config.max_positions:
            prompt = prompt[-max(config.max_positions // 2, 2) :]
    slides = model.encoder is None and search.window == "slide" and search.beam == 1
    if not slides and (model.encoder is None or config.positions == "learned"):
        max_new_tokens = min(max_new_tokens, config.max_positions - len(prompt) + 1)
        if max_new_tokens < 1:
            raise UserError(
                f"the prefix has {len(prompt):,} tokens, but the model has only {config.max_positions:,} positions "
                "(model.max_positions): shorten the prefix"
            )
    seeds = [search.seed + sequence_id * search.samples + sample for sample in range(search.samples)]
    return [Request(sequence_id, source, prompt, max_new_tokens, seed) for seed in seeds]
