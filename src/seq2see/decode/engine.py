"""Many requests through one model, in the order that suits the machine; results in the order of the requests.

Sentences are sorted by length and let in until a budget of tokens is full. One that is done leaves at once, the last row
takes its place, and new ones join at the end, so that the rows are always full of work.
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from seq2see.decode.search import Hypothesis, Search
from seq2see.decode.session import Request, Session, Vocabulary, manner_on, session
from seq2see.errors import UsageError, UserError
from seq2see.model.network import Network
from seq2see.model.taps import Taps

LONGER, MORE = 1.5, 10  # a translation is given so many times the tokens of its source, and some more
CONTINUATION = 200
GREEDY = Search()

Enough = Callable[[Sequence[int]], bool]  # whether these tokens are all that is wanted


@torch.inference_mode()
def search(
    model: Network, requests: Sequence[Request], options: Search, words: Vocabulary, enough: Enough | None = None,
    budget: int = 0,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The hypotheses of each request, best first, in the order of the requests."""
    if options.beam * 2 > model.config.vocabulary:
        raise UsageError(
            f"a beam of {options.beam} looks at {2 * options.beam} tokens a step, and the vocabulary has only "
            f"{model.config.vocabulary}"
        )
    found: list[list[Hypothesis]] = [[] for _ in requests]
    manner = manner_on(model.embedding.weight.device)
    order = sorted(range(len(requests)), key=lambda i: -requests[i].size)
    while order:
        size = requests[order[0]].size
        # What is much shorter than the longest is better off in a batch of its own, of more rows.
        near = [i for i in order if requests[i].size * 2 > size]
        order = order[len(near) :]
        most = max(1, manner.rows // options.beam)
        rows = max(1, min((budget or manner.tokens) // (size * options.beam), most, len(near)))
        with session(model, [requests[i] for i in near], options, words, rows) as one:
            for i, hypotheses in _run(one, near, requests, rows, enough):
                found[i] = hypotheses
    return found


def _run(
    session: Session, waiting: list[int], requests: Sequence[Request], rows: int, enough: Enough | None
) -> Iterator[tuple[int, list[Hypothesis]]]:
    running: list[int] = []  # the request of each row
    while waiting or running:
        free = rows - len(running)
        if waiting and (free * 4 >= rows or not running):  # a few at a time encode better than one by one
            running += waiting[:free]
            session.admit([requests[i] for i in waiting[:free]])
            waiting = waiting[free:]
        else:
            session.run()
        done = session.chooser.done[: len(running)].tolist()
        looked_at = [row for row in range(len(running)) if done[row] or enough is not None]
        if not looked_at:
            continue
        leaving = []
        found = session.chooser.hypotheses(torch.tensor(looked_at, device=session.tokens.device))
        for row, hypotheses in zip(looked_at, found, strict=True):
            short = shortest(hypotheses[0].tokens, enough) if enough is not None and hypotheses else None
            if short is not None:
                hypotheses = [_cut(hypotheses[0], short)]
            if done[row] or short is not None:
                if not hypotheses:
                    raise UserError(
                        f"nothing can be written for sentence {requests[running[row]].number + 1}: no token has a "
                        "probability, as where numbers in the model have overflowed"
                    )
                yield running[row], hypotheses
                leaving.append(row)
        for origin, row in session.leave(leaving) if leaving else []:
            running[row] = running[origin]
        del running[len(running) - len(leaving) :]


def shortest(tokens: Sequence[int], enough: Enough) -> int | None:
    """How many of these tokens are enough already."""
    if not enough(tokens):
        return None
    return next(count for count in range(1, len(tokens) + 1) if enough(tokens[:count]))


def _cut(hypothesis: Hypothesis, count: int) -> Hypothesis:
    logprobs = hypothesis.logprobs[:count]
    others = hypothesis.alternatives[:count]
    return Hypothesis(hypothesis.tokens[:count], logprobs, sum(logprobs) / count, True, others)


def stream(model: Network, request: Request, options: Search, words: Vocabulary) -> Iterator[int]:
    """The tokens of one request as they are chosen, under the interventions that hold now."""
    if options.beam > 1:
        raise UsageError(
            f"a beam of {options.beam} cannot be streamed: what it will have said is settled only at its end"
        )
    return _stream(model, request, options, words, model.taps())


@torch.inference_mode()
def _stream(model: Network, request: Request, options: Search, words: Vocabulary, taps: Taps) -> Iterator[int]:
    with session(model, [request], options, words, 1) as one:
        one.taps = taps
        one.admit([request])
        while True:
            token = int(one.tokens[0, 0])
            if token != words.end:
                yield token
            if bool(one.chooser.done[0]):
                break
            one.step()
        one.leave([0])


def translations(
    model: Network, sources: Sequence[Sequence[int]], words: Vocabulary, options: Search = GREEDY,
    prefixes: Sequence[Sequence[int]] = (), budget: int = 0,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The translations of each source, best first; of each prefix, what comes after it."""
    requests = [
        request
        for i, source in enumerate(sources)
        for request in requests_for(model, i, source, [words.start, *(prefixes[i] if prefixes else ())], options)
    ]
    return _joined(search(model, requests, options, words, budget=budget), options)


def continuations(
    model: Network, prompts: Sequence[Sequence[int]], words: Vocabulary, options: Search = GREEDY,
    enough: Enough | None = None, budget: int = 0,
) -> list[list[Hypothesis]]:  # fmt: skip
    """What a language model writes after each prompt: the samples, or the n best."""
    requests = [
        request
        for i, prompt in enumerate(prompts)
        for request in requests_for(model, i, (), [words.start, *prompt], options)
    ]
    return _joined(search(model, requests, options, words, enough, budget), options)


def _joined(found: list[list[Hypothesis]], options: Search) -> list[list[Hypothesis]]:
    """The samples of one prompt together."""
    n = options.samples
    return [[one for sample in found[i : i + n] for one in sample] for i in range(0, len(found), n)]


def requests_for(
    model: Network, number: int, source: Sequence[int], prompt: Sequence[int], options: Search
) -> list[Request]:
    """One for each sample, with the tokens that there is room for."""
    config = model.config
    limit = options.longest or (int(len(source) * LONGER) + MORE if source else CONTINUATION)
    if model.encoder is None:
        if len(prompt) >= config.longest and options.window == "stop":
            raise UserError(
                f"a prompt of {len(prompt):,} tokens, but the model's window is {config.longest:,} (model.longest): "
                'shorten it, or let the window slide (window = "slide")'
            )
        if len(prompt) >= config.longest:
            prompt = prompt[-max(config.longest // 2, 2) :]
    slides = model.encoder is None and options.window == "slide" and options.beam == 1
    if not slides and (model.encoder is None or config.positions == "learned"):
        limit = min(limit, config.longest - len(prompt) + 1)
        if limit < 1:
            raise UserError(
                f"the output must begin with {len(prompt):,} tokens, but the model has {config.longest:,} positions"
            )
    seeds = [options.seed + number * options.samples + sample for sample in range(options.samples)]
    return [Request(number, source, prompt, limit, seed) for seed in seeds]
