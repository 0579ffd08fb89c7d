"""How the next token is chosen: the likeliest, one drawn at random, or the best of several hypotheses (a beam).

A chooser holds what has been written so far and decides on the device, without waiting for the host: it is handed the
logits of all hypotheses and answers with their next tokens. Rows come and go: a sentence that is done makes room for
another, and what one row computes never depends on the others.

Shapes: S sentences, k hypotheses of each, V tokens in the vocabulary, N new tokens at most.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypedDict

import torch
from torch import Tensor

from seq2see.decode.optimize import has_kernels
from seq2see.decode.sampling import candidates, draw
from seq2see.errors import UsageError

Stopping = bool | Literal["never"]
Penalty = Literal["length", "gnmt"]

IMPOSSIBLE = -1e9
CHUNK = 128
FEW_BEAMS = 32  # that one program on a GPU can follow


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search."""

    tokens: tuple[int, ...]  # without <start> and <end>
    logprobs: tuple[float, ...]  # of each token, and of <end> where it was reached, under the model alone
    score: float  # sum of logprobs under the length penalty: what beams are ranked by
    finished: bool  # it ended with <end>, not at the length limit
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = ()  # at each step the likeliest tokens, where asked for


@dataclass(frozen=True, kw_only=True)
class Search:
    """What can be chosen about a search. By default the likeliest token is taken at every step."""

    beam: int = 1  # hypotheses that are followed side by side
    nbest: int = 1  # of them, so many are returned
    length_penalty: float = 1.0  # α; a beam's score is the sum of its log-probabilities over length^α; 0: none
    penalty: Penalty = "length"  # length^α as Hugging Face has it, 1 is the plain mean; or gnmt: ((5 + length) / 6)^α
    early_stopping: Stopping = False  # when a beam with k finished hypotheses ends: see `Beam`
    longest: int = 0  # new tokens at most; 0: 1.5 times the source's and 10 more, or 200 without a source
    temperature: float = 0.0  # of sampling; 0: the likeliest token
    top_k: int = 0  # sample among so many of the likeliest; 0: all
    top_p: float = 1.0  # among the fewest that have this probability together
    min_p: float = 0.0  # among those with this share of the likeliest's probability
    seed: int = 0  # of the first sequence; the others have the next ones
    samples: int = 1  # for each prompt
    alternatives: int = 0  # report so many of the likeliest tokens at each step
    window: Literal["slide", "stop"] = "slide"  # what a language model does where its context window ends

    def __post_init__(self) -> None:
        for name in ("beam", "nbest", "samples"):
            self._require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("longest", "top_k", "alternatives", "temperature"):
            self._require(getattr(self, name) >= 0, name, "must not be negative")
        self._require(0 < self.top_p <= 1, "top_p", "must be more than 0 and at most 1")
        self._require(0 <= self.min_p <= 1, "min_p", "must be from 0 to 1")
        self._require(self.nbest <= self.beam, "nbest", f"is more than beam = {self.beam}: take a beam as wide")
        sampled = self.temperature > 0
        self._require(self.beam == 1 or not sampled, "temperature", f"is for sampling, not for beam = {self.beam}")
        self._require(self.samples == 1 or sampled, "samples", "would all be the same: set a temperature above 0")
        self._require(self.beam == 1 or not self.alternatives, "alternatives", f"are not kept by a beam of {self.beam}")

    def _require(self, holds: bool, name: str, complaint: str) -> None:
        if not holds:
            raise UsageError(f"{name} = {getattr(self, name)} {complaint}")

    def penalised(self, score: Tensor, length: Tensor) -> Tensor:
        """A sum of log-probabilities under the length penalty; the length counts `<end>`."""
        return score / self.divisor(length)

    def divisor(self, length: Tensor) -> Tensor:
        if self.penalty == "gnmt":
            length = (5 + length) / 6
        return length**self.length_penalty


class SearchOptions(TypedDict, total=False):
    """The fields of `Search`, for functions that take them one by one."""

    beam: int
    nbest: int
    length_penalty: float
    penalty: Penalty
    early_stopping: Stopping
    longest: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    samples: int
    alternatives: int
    window: Literal["slide", "stop"]


class Chooser(Protocol):
    done: Tensor  # [rows]

    def admit(self, rows: slice, limits: Tensor, uniforms: Tensor | None) -> None:
        """These rows start anew, with so many tokens at most."""

    def choose(self, logits: Tensor, rows: slice) -> tuple[Tensor, Tensor | None]:
        """The next token of each hypothesis, [rows · k], and whom it goes on from, [rows, k].

        The logits are one row a hypothesis or, at the start, one row a sentence.
        """

    def move(self, origins: Tensor, rows: Tensor) -> None:
        """The sentences of some rows go to others."""

    def written(self, row: int) -> list[int]:
        """The new tokens of a row's best hypothesis that goes on."""

    def hypotheses(self, rows: Tensor) -> list[list[Hypothesis]]:
        """What each of these rows has found, best first. The device is asked once for all of them."""


class Picker:
    """One token at a time: the likeliest, or drawn at random."""

    def __init__(self, search: Search, rows: int, longest: int, end: int, banned: Tensor) -> None:
        self.search, self.end, self.banned = search, end, banned
        longest += 1  # a row that is done writes idly into the last place until the host looks
        self.tokens = banned.new_zeros(rows, longest)
        self.logprobs = torch.zeros(rows, longest, device=banned.device)
        self.count, self.limit = banned.new_zeros(rows), banned.new_zeros(rows)
        self.done = torch.ones(rows, dtype=torch.bool, device=banned.device)
        sampled = search.temperature > 0
        self.uniforms = torch.zeros(rows, longest if sampled else 0, dtype=torch.float64, device=banned.device)
        self.others = banned.new_zeros(rows, longest, search.alternatives)
        self.other_logprobs = torch.zeros(rows, longest, search.alternatives, device=banned.device)
        self.pick = None
        if has_kernels(banned) and not sampled and not search.alternatives:
            from seq2see.decode.select_kernels import pick

            self.pick = pick

    def _tables(self) -> tuple[Tensor, ...]:
        return (
            self.tokens, self.logprobs, self.count, self.limit, self.done, self.uniforms, self.others, self.other_logprobs
        )  # fmt: skip

    def admit(self, rows: slice, limits: Tensor, uniforms: Tensor | None) -> None:
        self.count[rows], self.limit[rows], self.done[rows] = 0, limits, False
        if uniforms is not None:
            self.uniforms[rows, : uniforms.shape[1]] = uniforms

    def choose(self, logits: Tensor, rows: slice) -> tuple[Tensor, Tensor | None]:
        if self.pick is not None:
            chosen = self.pick(
                logits, self.banned, self.tokens[rows], self.logprobs[rows], self.count[rows], self.limit[rows],
                self.done[rows], self.end,
            )  # fmt: skip
            return chosen, None
        logprobs = logits.log_softmax(-1, torch.float32)  # [S, V]
        if len(self.banned):
            logprobs.index_fill_(1, self.banned, -torch.inf)
        at = self.count[rows, None]  # [S, 1]
        if self.search.temperature > 0:
            tokens = draw(candidates(logprobs, self.search), self.uniforms[rows].gather(1, at))  # [S, 1]
        else:
            tokens = largest(logprobs, 1)[1]
        self.tokens[rows].scatter_(1, at, tokens)
        self.logprobs[rows].scatter_(1, at, logprobs.gather(1, tokens))
        if self.search.alternatives:
            best, others = logprobs.topk(self.search.alternatives)
            deep = at[:, :, None].expand(-1, -1, self.search.alternatives)
            self.others[rows].scatter_(1, deep, others[:, None])
            self.other_logprobs[rows].scatter_(1, deep, best[:, None])
        count, done = self.count[rows], self.done[rows]
        count += ~done
        done |= (tokens[:, 0] == self.end) | (count >= self.limit[rows])
        return tokens[:, 0], None

    def move(self, origins: Tensor, rows: Tensor) -> None:
        for table in self._tables():
            table[rows] = table[origins]

    def written(self, row: int) -> list[int]:
        return self.tokens[row, : int(self.count[row])].tolist()

    def hypotheses(self, rows: Tensor) -> list[list[Hypothesis]]:
        counts = self.count[rows].tolist()
        written = [ids[:n] for ids, n in zip(self.tokens[rows].tolist(), counts, strict=True)]
        logprobs = [values[:n] for values, n in zip(self.logprobs[rows].tolist(), counts, strict=True)]
        lengths = torch.tensor([float(max(n, 1)) for n in counts])
        scores = self.search.penalised(torch.tensor([sum(values) for values in logprobs]), lengths).tolist()
        others: list[tuple[tuple[tuple[int, float], ...], ...]] = [()] * len(counts)
        if self.search.alternatives:
            tables = self.others[rows].tolist(), self.other_logprobs[rows].tolist()
            others = [
                tuple(tuple(zip(*step, strict=True)) for step in zip(ids[:n], values[:n], strict=True))
                for ids, values, n in zip(*tables, counts, strict=True)
            ]
        return [
            [_hypothesis(tokens, values, score, self.end, more)]
            for tokens, values, score, more in zip(written, logprobs, scores, others, strict=True)
        ]


class Beam:
    """The k best hypotheses of each sentence, followed side by side, as Hugging Face's generate does it.

    Each step looks at the 2k best continuations. Those that end, if among the first k, join the k best finished ones,
    ranked under the length penalty; the best k of the others go on. At the length limit all of the first k count as ended.
    A sentence with k finished hypotheses ends

        False    as soon as the best that goes on, at its present length, would not beat the worst finished one
        True     at once
        "never"  only when it could not at any length: at the limit where a long output is favoured (α > 0)
    """

    def __init__(self, search: Search, rows: int, longest: int, end: int, banned: Tensor) -> None:
        k, device = search.beam, banned.device
        self.search, self.k, self.end, self.banned = search, k, end, banned
        longest += 1  # as in Picker
        self.tokens, self.done_tokens = (banned.new_zeros(rows, k, longest) for _ in range(2))
        self.logprobs, self.done_logprobs = (torch.zeros(rows, k, longest, device=device) for _ in range(2))
        self.scores, self.done_scores = (torch.zeros(rows, k, device=device) for _ in range(2))
        self.done_count = banned.new_zeros(rows, k)  # 0: there is none
        self.count, self.limit = banned.new_zeros(rows), banned.new_zeros(rows)
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        self.branch: Callable[..., tuple[Tensor, Tensor]] | None = None
        if has_kernels(banned) and k <= FEW_BEAMS:
            from seq2see.decode.select_kernels import branch

            divisors = search.divisor(torch.arange(longest + 1.0, device=device))  # of each length
            early = search.early_stopping is True
            self.branch = partial(branch, divisors=divisors, end=end, early=early, hopeful=self._hopeful)

    def _tables(self) -> tuple[Tensor, ...]:
        return (
            self.tokens, self.done_tokens, self.logprobs, self.done_logprobs, self.scores, self.done_scores,
            self.done_count, self.count, self.limit, self.done,
        )  # fmt: skip

    def admit(self, rows: slice, limits: Tensor, uniforms: Tensor | None) -> None:
        self.count[rows], self.limit[rows], self.done[rows] = 0, limits, False
        self.scores[rows], self.done_scores[rows], self.done_count[rows] = 0.0, IMPOSSIBLE, 0

    def choose(self, logits: Tensor, rows: slice) -> tuple[Tensor, Tensor | None]:
        if self.branch is not None:
            return self.branch(logits, self.banned, [table[rows] for table in self._tables()])
        k, size = self.k, rows.stop - rows.start
        each = len(logits) // size  # hypotheses that the logits are of: 1 at the start, then k
        all_of_them = logits.log_softmax(-1, torch.float32)
        if len(self.banned):
            all_of_them.index_fill_(1, self.banned, -torch.inf)
        best, tokens = largest(all_of_them, 2 * k)  # [S · each, 2k]: of all 2k that are wanted, none can be missing
        logprobs = best.view(size, each * 2 * k)
        total = logprobs + self.scores[rows, :each].repeat_interleave(2 * k, dim=1)
        total, index = total.topk(2 * k)  # [S, 2k]
        parents = index // (2 * k)
        tokens, logprobs = tokens.view(size, -1).gather(1, index), logprobs.gather(1, index)

        at = self.count[rows, None]  # [S, 1]
        limit = self.limit[rows, None]
        ends = (tokens == self.end) | (at + 1 >= limit)
        if logits.is_cuda or bool(ends[:, :k].any()):  # on a GPU, asking costs more than doing
            self._finish(total, tokens, logprobs, parents, ends, rows)

        running, chosen = total.masked_fill(ends, IMPOSSIBLE).topk(k)
        tokens, logprobs, parents = (x.gather(1, chosen) for x in (tokens, logprobs, parents))
        deep = parents[:, :, None].expand(-1, -1, self.tokens.shape[2])
        for table, new in ((self.tokens, tokens), (self.logprobs, logprobs)):
            table[rows] = table[rows].gather(1, deep).scatter_(2, at[:, :, None].expand(-1, k, -1), new[:, :, None])
        self.scores[rows] = running
        count, done = self.count[rows], self.done[rows]
        count += ~done
        done |= self._over(running, rows)
        return tokens.flatten(), parents

    def _finish(
        self, total: Tensor, tokens: Tensor, logprobs: Tensor, parents: Tensor, ends: Tensor, rows: slice
    ) -> None:
        """Hypotheses that just ended join the finished ones, if they are better."""
        k, at = self.k, self.count[rows, None]
        counts = (at + 1).expand(-1, k)
        total, tokens, logprobs, parents = (x[:, :k] for x in (total, tokens, logprobs, parents))
        counts_as_done = ends[:, :k] & ~self.done[rows, None]
        score = self.search.penalised(total, counts.float()).masked_fill(~counts_as_done, IMPOSSIBLE)
        best, index = torch.cat([self.done_scores[rows], score], dim=1).topk(k)
        self.done_scores[rows] = best
        merged = torch.cat([self.done_count[rows], counts * counts_as_done], dim=1)
        self.done_count[rows] = merged.gather(1, index)
        deep = parents[:, :, None].expand(-1, -1, self.tokens.shape[2])
        here = at[:, :, None].expand(-1, k, -1)
        for table, finished, new in (
            (self.tokens, self.done_tokens, tokens), (self.logprobs, self.done_logprobs, logprobs),
        ):  # fmt: skip
            fresh = table[rows].gather(1, deep).scatter_(2, here, new[:, :, None])
            both = torch.cat([finished[rows], fresh], dim=1)
            finished[rows] = both.gather(1, index[:, :, None].expand(-1, -1, both.shape[2]))

    def _over(self, running: Tensor, rows: slice) -> Tensor:
        count, limit = self.count[rows], self.limit[rows]
        full = (self.done_count[rows] > 0).all(1)
        if self.search.early_stopping is True:
            return full | (count >= limit)
        best = self.search.penalised(running[:, 0], (limit if self._hopeful else count).float())
        return (full & (best <= self.done_scores[rows].amin(1))) | (count >= limit)

    @property
    def _hopeful(self) -> bool:
        """Whether a longer hypothesis could still be the best."""
        return self.search.early_stopping == "never" and self.search.length_penalty > 0

    def move(self, origins: Tensor, rows: Tensor) -> None:
        for table in self._tables():
            table[rows] = table[origins]

    def written(self, row: int) -> list[int]:
        return self.tokens[row, 0, : int(self.count[row])].tolist()

    def hypotheses(self, rows: Tensor) -> list[list[Hypothesis]]:
        best = slice(0, self.search.nbest)
        tables = (self.done_count, self.done_tokens, self.done_logprobs, self.done_scores)
        return [
            [
                _hypothesis(tokens[:n], logprobs[:n], score, self.end)
                for n, tokens, logprobs, score in zip(*row, strict=True)
                if n
            ]
            for row in zip(*(table[rows, best].tolist() for table in tables), strict=True)
        ]


def _hypothesis(
    tokens: list[int], logprobs: list[float], score: float, end: int,
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = (),
) -> Hypothesis:  # fmt: skip
    finished = bool(tokens) and tokens[-1] == end
    return Hypothesis(tuple(tokens[:-1] if finished else tokens), tuple(logprobs), score, finished, alternatives)


def largest(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n largest of each row, and where they are: x.topk(n), several times as fast for long rows.

    No row has more of them than n chunks, and those are the n chunks with the largest maxima. (topk and argmax look at
    one number at a time, amax at sixteen.)
    """
    rows, width = x.shape
    whole = width // CHUNK
    if whole <= 2 * n or (x.is_cuda and n == 1):
        return x.topk(n) if n > 1 else x.max(-1, keepdim=True)
    chunks = x[:, : whole * CHUNK].view(rows, whole, CHUNK)
    which = chunks.amax(-1).topk(n, sorted=False)[1]  # [rows, n]
    some = chunks.gather(1, which[:, :, None].expand(-1, -1, CHUNK)).flatten(1)
    places = (which[:, :, None] * CHUNK + torch.arange(CHUNK, device=x.device)).flatten(1)
    if width > whole * CHUNK:
        some = torch.cat([some, x[:, whole * CHUNK :]], dim=1)
        rest = torch.arange(whole * CHUNK, width, device=x.device)
        places = torch.cat([places, rest.expand(rows, -1)], dim=1)
    values, index = some.topk(n)
    return values, places.gather(1, index)
