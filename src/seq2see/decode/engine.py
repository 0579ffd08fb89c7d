"""Many sequences through one model: which rows they take, when they leave, and what runs at each step.

Sentences are sorted by length and let in until a budget of tokens is full. A sentence that is done leaves at once; the
last row takes its place, and new sentences are let in at the end, so that the rows are always full of work. Results come
back in the order of the requests.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from seq2see.decode.cache import Cache, packed
from seq2see.decode.sampling import uniforms
from seq2see.decode.search import Beam, Chooser, Hypothesis, Picker, Search
from seq2see.errors import UsageError, UserError
from seq2see.model.layout import Packed
from seq2see.model.taps import Taps
from seq2see.model.transformer import Transformer
from seq2see.text.tokenizer import Tokenizer

LONGER, MORE = 1.5, 10  # a translation is given so many times the tokens of its source, and some more
CONTINUATION = 200
SPARE = 256
GREEDY = Search()
BUDGET = 4096  # tokens, of source and output, that are worked on at a time
ROWS = {"cpu": 64, "cuda": 512}  # hypotheses at a time: more would bring nothing
LOOK = {"cpu": 1, "cuda": 8}  # steps after which the host looks who is done

Enough = Callable[[Sequence[int]], bool]  # whether these tokens are all that is wanted


@dataclass(frozen=True)
class Request:
    number: int
    source: Sequence[int]  # empty for a language model
    prompt: Sequence[int]  # <start> and what the output must begin with
    limit: int  # new tokens
    seed: int = 0

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


class Session:
    """One batch that sentences join and leave."""

    def __init__(
        self, model: Transformer, requests: Sequence[Request], search: Search, words: Vocabulary, rows: int, taps: Taps
    ) -> None:
        self.model, self.search, self.taps = model, search, taps
        self.window = model.config.longest if model.encoder is None else 0
        device = model.embedding.weight.device
        longest = max(request.limit for request in requests)
        self.prompt = max(len(request.prompt) for request in requests)
        slots = self.prompt + (2 * longest if len(requests) > rows else longest)
        if self.window:  # then no row is longer than that, and now and then all move to the front
            slots = min(slots, self.prompt + self.window + SPARE)
        source = max(len(request.source) for request in requests)
        self.cache = Cache(model, rows, search.beam, slots, source)
        chooser = Beam if search.beam > 1 else Picker
        banned = torch.tensor(words.banned, dtype=torch.int64, device=device)
        self.chooser: Chooser = chooser(search, rows, longest, words.end, banned)
        self.tokens = torch.zeros(rows, search.beam, dtype=torch.int64, device=device)  # that are to be fed next
        self.requests: list[Request] = []  # of each row
        self.cache.slot = self.prompt
        self.cache.place += self.prompt * search.beam

    def admit(self, requests: Sequence[Request]) -> None:
        """New sentences, in the rows after the others: their prompts pass through the model as a whole."""
        rows = slice(self.cache.size, self.cache.size + len(requests))
        limits = torch.tensor([request.limit for request in requests], device=self.tokens.device)
        drawn = None
        if self.search.temperature > 0:
            drawn = uniforms([request.seed for request in requests], max(request.limit for request in requests))
        self.chooser.admit(rows, limits, drawn)
        self.requests += requests
        logits = self._fill(range(rows.start, rows.stop), requests, [request.prompt for request in requests])
        self.cache.size = rows.stop
        chosen, _ = self.chooser.choose(logits, rows)
        self.tokens[rows] = chosen.view(-1, self.search.beam)

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
        ends = replace(
            target.layout, starts=torch.arange(len(last) + 1, device=device, dtype=torch.int32), longest=1,
            positions=target.layout.positions[last], slots=torch.arange(len(last), device=device),
            real=torch.ones(len(last), 1, dtype=torch.bool, device=device),
        )  # fmt: skip
        return self.model.logits(vectors[last], ends, self.taps)

    def step(self) -> None:
        """Every hypothesis is one token longer."""
        cache, size = self.cache, self.cache.size
        if self.window and cache.slot - min(cache.began[:size]) >= self.window:
            self._slide([row for row in range(size) if cache.slot - cache.began[row] >= self.window])
        if cache.slot == cache.slots:
            cache.shift(min(min(cache.began[:size]), cache.slot - self.prompt))
        layout = cache.step()
        tokens = self.tokens[:size].view(-1)
        vectors = self.model.decode(Packed(tokens, layout), None, None, self.taps, cache.pasts)
        logits = self.model.logits(vectors, layout, self.taps)
        chosen, parents = self.chooser.choose(logits, slice(0, size))
        cache.advance(parents)
        self.tokens[:size] = chosen.view(size, -1)
        cache.slot += 1

    def _slide(self, rows: Sequence[int]) -> None:
        """The window of these rows is full: they go on from its newer half, read afresh as if it were the beginning."""
        kept = max(self.window // 2, 2)
        tails = []
        for row in rows:
            tails.append(
                [*self.requests[row].prompt, *self.chooser.written(row)][-kept:-1]
            )  # the last is yet to be fed
        self._fill(rows, [self.requests[row] for row in rows], tails)

    def leave(self, row: int) -> None:
        """This row is done: the last one takes its place."""
        last = self.cache.size - 1
        if row != last:
            self.cache.move(last, row)
            self.chooser.move(last, row)
            self.tokens[row] = self.tokens[last]
            self.requests[row] = self.requests[last]
        self.requests.pop()
        self.cache.size -= 1


@torch.inference_mode()
def search(
    model: Transformer, requests: Sequence[Request], options: Search, words: Vocabulary, enough: Enough | None = None,
    budget: int = BUDGET,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The hypotheses of each request, best first, in the order of the requests."""
    if options.beam * 2 > model.config.vocabulary:
        raise UsageError(
            f"a beam of {options.beam} looks at {2 * options.beam} tokens a step, and the vocabulary has only "
            f"{model.config.vocabulary}"
        )
    found: list[list[Hypothesis]] = [[] for _ in requests]
    device = model.embedding.weight.device.type
    order = sorted(range(len(requests)), key=lambda i: -requests[i].size)
    while order:
        size = requests[order[0]].size
        # What is much shorter than the longest is better off in a batch of its own, of more rows.
        near = [i for i in order if requests[i].size * 2 > size]
        order = order[len(near) :]
        most = max(1, ROWS.get(device, 64) // options.beam)
        rows = max(1, min(budget // (size * options.beam), most, len(near)))
        session = Session(model, [requests[i] for i in near], options, words, rows, model.taps())
        for i, hypotheses in _run(session, near, requests, rows, enough, LOOK.get(device, 1)):
            found[i] = hypotheses
    return found


def _run(
    session: Session, waiting: list[int], requests: Sequence[Request], rows: int, enough: Enough | None, look: int
) -> Iterator[tuple[int, list[Hypothesis]]]:
    running: list[int] = []  # the request of each row
    while waiting or running:
        free = rows - len(running)
        if waiting and (free * 4 >= rows or not running):  # a few at a time encode better than one by one
            running += waiting[:free]
            session.admit([requests[i] for i in waiting[:free]])
            waiting = waiting[free:]
        else:
            for _ in range(look):
                session.step()
        done = session.chooser.done[: len(running)].tolist()
        for row in reversed(range(len(running))):  # from the end, since the last row takes the place of one that leaves
            hypotheses = session.chooser.hypotheses(row) if done[row] or enough is not None else []
            if enough is not None and hypotheses:
                short = shortest(hypotheses[0].tokens, enough)
                if short is not None:
                    done[row], hypotheses = True, [_cut(hypotheses[0], short)]
            if done[row]:
                yield running[row], hypotheses
                session.leave(row)
                running[row] = running[-1]
                running.pop()


def shortest(tokens: Sequence[int], enough: Enough) -> int | None:
    """How many of these tokens are enough already."""
    if not enough(tokens):
        return None
    return next(count for count in range(1, len(tokens) + 1) if enough(tokens[:count]))


def _cut(hypothesis: Hypothesis, count: int) -> Hypothesis:
    logprobs = hypothesis.logprobs[:count]
    others = hypothesis.alternatives[:count]
    return Hypothesis(hypothesis.tokens[:count], logprobs, sum(logprobs) / count, True, others)


def stream(model: Transformer, request: Request, options: Search, words: Vocabulary) -> Iterator[int]:
    """The tokens of one request as they are chosen."""
    if options.beam > 1:
        raise UsageError(
            f"a beam of {options.beam} cannot be streamed: what it will have said is settled only at its end"
        )
    return _stream(model, request, options, words, model.taps())


@torch.inference_mode()
def _stream(model: Transformer, request: Request, options: Search, words: Vocabulary, taps: Taps) -> Iterator[int]:
    session = Session(model, [request], options, words, 1, taps)
    session.admit([request])
    while True:
        token = int(session.tokens[0, 0])
        if token != words.end:
            yield token
        if bool(session.chooser.done[0]):
            return
        session.step()


def translations(
    model: Transformer, sources: Sequence[Sequence[int]], words: Vocabulary, options: Search = GREEDY,
    prefixes: Sequence[Sequence[int]] = (), budget: int = BUDGET,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The translations of each source, best first; of each prefix, what comes after it."""
    requests = [
        request
        for i, source in enumerate(sources)
        for request in requests_for(model, i, source, [words.start, *(prefixes[i] if prefixes else ())], options)
    ]
    return _joined(search(model, requests, options, words, budget=budget), options)


def continuations(
    model: Transformer, prompts: Sequence[Sequence[int]], words: Vocabulary, options: Search = GREEDY,
    enough: Enough | None = None, budget: int = BUDGET,
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
    model: Transformer, number: int, source: Sequence[int], prompt: Sequence[int], options: Search
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
