"""Choosing the next token: greedy decoding, sampling, or beam search.

A selector holds the tokens generated so far. It receives the logits of all hypotheses and returns their next tokens; it
works on the device without synchronising with the host. Rows come and go as sentences finish, and no row depends on
another.

Shapes: S sentences, k hypotheses of each, V tokens in the vocabulary, N maximum number of new tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from seq2see.config.search import Search as Search
from seq2see.data.framing import Framing
from seq2see.decode.optimize import has_kernels
from seq2see.decode.sampling import RowOptions, draw_uniforms, filter_logits, sample_tokens
from seq2see.errors import UsageError

MIN_SCORE = -1e9  # of a hypothesis that must not be selected; finite, so that sums stay finite
CHUNK = 128  # of `fast_topk`
MAX_KERNEL_BEAM = 32  # widest beam that one program of the GPU kernel handles


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search."""

    tokens: tuple[int, ...]  # without <start> and <end>
    logprobs: tuple[float, ...]  # of each token, and of <end> if it was generated, before temperature and filtering
    score: float  # sum of logprobs under the length penalty; beams are ranked by it
    finished: bool  # ended with <end> or a stop string, not at the length limit
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = ()  # most likely tokens at each step, if requested

    @property
    def confidence(self) -> float:
        """The mean log-probability per token."""
        return sum(self.logprobs) / len(self.logprobs)


class TokenSelector(ABC):
    """What has been generated in each row, and the choice of the next tokens."""

    def __init__(
        self, search: Search, rows: int, max_new_tokens: int, special_tokens: Framing, device: torch.device
    ) -> None:
        self.search, self.end, self.forced = search, special_tokens.end, special_tokens.forced
        self.banned, self.other_ends = (
            torch.tensor(ids, dtype=torch.int64, device=device)
            for ids in (special_tokens.banned, special_tokens.other_ends)
        )
        self.size = max_new_tokens + 1  # a finished row keeps writing into the last column until the host removes it
        self.count, self.limit = torch.zeros(2, rows, dtype=torch.int64, device=device)
        self.done = torch.ones(rows, dtype=torch.bool, device=device)

    def reset(self, rows: slice, max_new_tokens: Tensor) -> None:
        """Starts new sequences in these rows."""
        self.count[rows], self.limit[rows], self.done[rows] = 0, max_new_tokens, False

    @abstractmethod
    def tables(self) -> list[Tensor]:
        """Returns all that is kept on the device, one row per sequence."""

    @abstractmethod
    def select(self, logits: Tensor, rows: slice, options: Sequence[RowOptions] = ()) -> tuple[Tensor, Tensor | None]:
        """Returns the next token of each hypothesis, [rows · k], and the hypothesis it continues, [rows, k].

        The logits have one row per hypothesis or, at the first step, one row per sentence. `options` are those
        of each row, if not the search's.
        """

    @abstractmethod
    def generated(self, row: int) -> list[int]:
        """Returns the tokens generated so far by a row's best running hypothesis."""

    @abstractmethod
    def hypotheses(self, rows: Tensor) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each of these rows, best first. Synchronises with the device once for all rows."""

    def _logprobs(self, logits: Tensor) -> Tensor:
        """Returns the log-probabilities of all tokens, −∞ for those that are never generated."""
        logprobs = logits.log_softmax(-1, torch.float32)
        return logprobs.index_fill_(1, self.banned, -torch.inf) if len(self.banned) else logprobs

    def _unify_ends(self, tokens: Tensor) -> Tensor:
        """Replaces every token that ends an output by the one that the search looks for."""
        return tokens.masked_fill(torch.isin(tokens, self.other_ends), self.end) if len(self.other_ends) else tokens

    def _count_step(self, rows: slice, ended: Tensor) -> None:
        """Counts a token of the rows that are not done; then those are that have ended or reach their limit."""
        count, done = self.count[rows], self.done[rows]
        count += ~done
        done |= ended | (count >= self.limit[rows])


class TokenSampler(TokenSelector):
    """One sequence per row: the most likely token at each step, or a sampled one."""

    def __init__(
        self, search: Search, rows: int, max_new_tokens: int, special_tokens: Framing, device: torch.device
    ) -> None:
        super().__init__(search, rows, max_new_tokens, special_tokens, device)
        self.timestamps = special_tokens.timestamps if special_tokens.times else 0
        size, count = self.size, search.alternatives
        self.tokens = self.banned.new_zeros(rows, size)
        self.logprobs = torch.zeros(rows, size, device=device)
        self.uniforms = torch.zeros(rows, size, dtype=torch.float64, device=device)
        self.alternatives = self.banned.new_zeros(rows, size, count)
        self.alternative_logprobs = torch.zeros(rows, size, count, device=device)
        self.greedy_kernel = None
        plain = not (search.temperature or count or len(self.other_ends) or self.timestamps)
        if plain and has_kernels(self.banned):
            from seq2see.decode.kernels.select import greedy_step

            self.greedy_kernel = greedy_step

    def tables(self) -> list[Tensor]:
        alternatives = [self.alternatives, self.alternative_logprobs]
        return [self.tokens, self.logprobs, self.count, self.limit, self.done, self.uniforms, *alternatives]

    def seed(self, rows: slice, seeds: Sequence[int], steps: int) -> None:
        """Draws the random numbers of these rows."""
        self.uniforms[rows, :steps] = draw_uniforms(seeds, steps)

    def select(self, logits: Tensor, rows: slice, options: Sequence[RowOptions] = ()) -> tuple[Tensor, Tensor | None]:
        if self.greedy_kernel is not None:
            selected = self.greedy_kernel(
                logits, self.banned, self.tokens[rows], self.logprobs[rows], self.count[rows], self.limit[rows],
                self.done[rows], self.end,
            )  # fmt: skip
            return selected, None
        logprobs = self._logprobs(logits)  # [S, V]
        if self.timestamps:
            from seq2see.decode.timestamps import limit_timestamps

            logprobs = limit_timestamps(logprobs, self.tokens[rows], self.count[rows], self.timestamps, self.end)
        step = self.count[rows, None]  # [S, 1]
        tokens = _sample_rows(logprobs, options or [RowOptions.of(self.search)], self.uniforms[rows].gather(1, step))
        self.logprobs[rows].scatter_(1, step, logprobs.gather(1, tokens))
        tokens = self._unify_ends(tokens)
        self.tokens[rows].scatter_(1, step, tokens)
        if self.search.alternatives:
            best, ids = logprobs.topk(self.search.alternatives)
            index = step[:, :, None].expand(-1, -1, self.search.alternatives)
            self.alternatives[rows].scatter_(1, index, ids[:, None])
            self.alternative_logprobs[rows].scatter_(1, index, best[:, None])
        self._count_step(rows, tokens[:, 0] == self.end)
        return tokens[:, 0], None

    def generated(self, row: int) -> list[int]:
        return self.tokens[row, : int(self.count[row])].tolist()

    def hypotheses(self, rows: Tensor) -> list[list[Hypothesis]]:
        counts = self.count[rows].tolist()
        tokens = [ids[:n] for ids, n in zip(self.tokens[rows].tolist(), counts, strict=True)]
        logprobs = [values[:n] for values, n in zip(self.logprobs[rows].tolist(), counts, strict=True)]
        lengths = torch.tensor([float(max(n, 1) + self.forced) for n in counts])
        scores = self.search.normalize(torch.tensor([sum(values) for values in logprobs]), lengths).tolist()
        alternatives: list[tuple[tuple[tuple[int, float], ...], ...]] = [()] * len(counts)
        if self.search.alternatives:
            tables = self.alternatives[rows].tolist(), self.alternative_logprobs[rows].tolist()
            alternatives = [
                tuple(tuple(zip(*step, strict=True)) for step in zip(ids[:n], values[:n], strict=True))
                for ids, values, n in zip(*tables, counts, strict=True)
            ]
        return [
            [hypothesis_of(ids, values, score, self.end, steps)]
            for ids, values, score, steps in zip(tokens, logprobs, scores, alternatives, strict=True)
        ]


class BeamSearch(TokenSelector):
    """Keeps the k best hypotheses of each sentence, with the semantics of Hugging Face's generate.

    Each step considers the 2k best continuations. Those that end, if among the first k, compete for the k best finished
    hypotheses, ranked under the length penalty; the best k of the rest continue. At the length limit the first k all count
    as finished. A sentence with k finished hypotheses ends

        False    as soon as the best running hypothesis, at its current length, would not beat the worst finished one
        True     immediately
        "never"  only when it could not at any length: for α > 0, which favours long outputs, judged at the length limit
    """

    def __init__(
        self, search: Search, rows: int, max_new_tokens: int, special_tokens: Framing, device: torch.device
    ) -> None:
        if special_tokens.times:
            raise UsageError(f"timestamps need a beam of 1, not {search.beam}")
        super().__init__(search, rows, max_new_tokens, special_tokens, device)
        self.k = k = search.beam
        size, banned = self.size, self.banned
        self.tokens, self.done_tokens = (banned.new_zeros(rows, k, size) for _ in range(2))
        self.logprobs, self.done_logprobs = (torch.zeros(rows, k, size, device=device) for _ in range(2))
        self.scores, self.done_scores = (torch.zeros(rows, k, device=device) for _ in range(2))
        self.done_count = banned.new_zeros(rows, k)  # length of each finished hypothesis; 0: none
        self.step_kernel: Callable[..., tuple[Tensor, Tensor]] | None = None
        if has_kernels(banned) and k <= MAX_KERNEL_BEAM and not special_tokens.other_ends:
            from seq2see.decode.kernels.select import beam_step

            divisors = search.divisor(torch.arange(size + 1.0, device=device) + self.forced)  # of each length
            self.step_kernel = partial(
                beam_step,
                divisors=divisors,
                end=self.end,
                stop_early=search.early_stopping is True,
                score_at_limit=self._score_at_limit,
            )

    def tables(self) -> list[Tensor]:
        texts = [self.tokens, self.done_tokens, self.logprobs, self.done_logprobs]
        return [*texts, self.scores, self.done_scores, self.done_count, self.count, self.limit, self.done]

    def reset(self, rows: slice, max_new_tokens: Tensor) -> None:
        super().reset(rows, max_new_tokens)
        self.scores[rows], self.done_scores[rows], self.done_count[rows] = 0.0, MIN_SCORE, 0

    def select(self, logits: Tensor, rows: slice, options: Sequence[RowOptions] = ()) -> tuple[Tensor, Tensor | None]:
        constrained = any(each.constraints for each in options)
        if self.step_kernel is not None and not constrained:
            return self.step_kernel(logits, self.banned, [table[rows] for table in self.tables()])
        k, size = self.k, rows.stop - rows.start
        beams = len(logits) // size  # hypotheses with logits: 1 at the first step, then k
        all_logprobs = self._logprobs(logits)
        best, tokens = fast_topk(all_logprobs, 2 * k)  # [S · beams, 2k]: contains the 2k best of all hypotheses
        logprobs = best.view(size, beams * 2 * k)
        total = logprobs + self.scores[rows, :beams].repeat_interleave(2 * k, dim=1)
        total, index = total.topk(2 * k)  # [S, 2k]
        parents = index // (2 * k)
        tokens, logprobs = tokens.view(size, -1).gather(1, index), logprobs.gather(1, index)
        tokens = self._unify_ends(tokens)
        if constrained:
            self._constrain(all_logprobs.view(size, beams, -1), options, rows, (total, tokens, logprobs, parents))

        step = self.count[rows, None]  # [S, 1]
        limit = self.limit[rows, None]
        ends = (tokens == self.end) | (step + 1 >= limit)
        if logits.is_cuda or bool(ends[:, :k].any()):  # on a GPU the synchronisation costs more than the work
            self._add_finished(total, tokens, logprobs, parents, ends, rows)

        running, chosen = total.masked_fill(ends, MIN_SCORE).topk(k)
        tokens, logprobs, parents = (x.gather(1, chosen) for x in (tokens, logprobs, parents))
        parent_index = parents[:, :, None].expand(-1, -1, self.tokens.shape[2])
        column = step[:, :, None].expand(-1, k, -1)
        for table, new in ((self.tokens, tokens), (self.logprobs, logprobs)):
            table[rows] = table[rows].gather(1, parent_index).scatter_(2, column, new[:, :, None])
        self.scores[rows] = running
        self._count_step(rows, self._is_done(running, rows))
        return tokens.flatten(), parents

    def _constrain(
        self, all_logprobs: Tensor, options: Sequence[RowOptions], rows: slice, candidates: tuple[Tensor, ...]
    ) -> None:
        """Replaces the candidates of rows with constraints: total, tokens, logprobs and parents, [S, 2k] each."""
        from seq2see.decode.constraints import constrained_candidates

        ends = frozenset([self.end, *self.other_ends.tolist()])
        for i, each in enumerate(options):
            row = rows.start + i
            if not each.constraints or bool(self.done[row]):
                continue
            beams, count = all_logprobs.shape[1], int(self.count[row])
            total = all_logprobs[i] + self.scores[row, :beams, None]  # [beams, V]
            outputs = self.tokens[row, :beams, :count].tolist()
            last = count + 1 >= int(self.limit[row])
            chosen = constrained_candidates(total, outputs, each.constraints, self.k, ends, last)
            values, tokens, parents = (
                torch.tensor(column, device=total.device) for column in zip(*chosen, strict=True)
            )
            for table, new in zip(candidates, (values, tokens, all_logprobs[i][parents, tokens], parents), strict=True):
                table[i] = new
            candidates[1][i] = self._unify_ends(tokens)

    def _add_finished(
        self, total: Tensor, tokens: Tensor, logprobs: Tensor, parents: Tensor, ends: Tensor, rows: slice
    ) -> None:
        """Merges hypotheses that have just ended into the k best finished ones."""
        k, step = self.k, self.count[rows, None]
        counts = (step + 1).expand(-1, k)
        total, tokens, logprobs, parents = (x[:, :k] for x in (total, tokens, logprobs, parents))
        counts_as_done = ends[:, :k] & ~self.done[rows, None]
        lengths = (counts + self.forced).float()
        score = self.search.normalize(total, lengths).masked_fill(~counts_as_done, MIN_SCORE)
        best, index = torch.cat([self.done_scores[rows], score], dim=1).topk(k)
        self.done_scores[rows] = best
        merged = torch.cat([self.done_count[rows], counts * counts_as_done], dim=1)
        self.done_count[rows] = merged.gather(1, index)
        parent_index = parents[:, :, None].expand(-1, -1, self.tokens.shape[2])
        column = step[:, :, None].expand(-1, k, -1)
        for table, finished, new in (
            (self.tokens, self.done_tokens, tokens),
            (self.logprobs, self.done_logprobs, logprobs),
        ):
            ended = table[rows].gather(1, parent_index).scatter_(2, column, new[:, :, None])
            both = torch.cat([finished[rows], ended], dim=1)
            finished[rows] = both.gather(1, index[:, :, None].expand(-1, -1, both.shape[2]))

    def _is_done(self, running: Tensor, rows: slice) -> Tensor:
        full = (self.done_count[rows] > 0).all(1)
        if self.search.early_stopping is True:
            return full
        length = (self.limit[rows] if self._score_at_limit else self.count[rows] + 1) + self.forced
        best = self.search.normalize(running[:, 0], length.float())
        return full & (best <= self.done_scores[rows].amin(1))

    @property
    def _score_at_limit(self) -> bool:
        """Whether the best running hypothesis is judged by the score it would have at the length limit."""
        return self.search.early_stopping == "never" and self.search.length_penalty > 0

    def generated(self, row: int) -> list[int]:
        return self.tokens[row, 0, : int(self.count[row])].tolist()

    def hypotheses(self, rows: Tensor) -> list[list[Hypothesis]]:
        best = slice(0, self.search.nbest)
        tables = (self.done_count, self.done_tokens, self.done_logprobs, self.done_scores)
        return [
            [
                hypothesis_of(tokens[:n], logprobs[:n], score, self.end)
                for n, tokens, logprobs, score in zip(*row, strict=True)
                if n
            ]
            for row in zip(*(table[rows, best].tolist() for table in tables), strict=True)
        ]


def _sample_rows(logprobs: Tensor, options: Sequence[RowOptions], uniforms: Tensor) -> Tensor:
    """Returns the next token of each row, [S, 1]. Rows that sample alike are sampled together."""
    distinct = set(options)
    if len(distinct) == 1:
        return _sample(logprobs, options[0], uniforms)
    tokens = torch.zeros(len(logprobs), 1, dtype=torch.int64, device=logprobs.device)  # rows not in use stay 0
    for each in distinct:
        index = torch.tensor([i for i, other in enumerate(options) if other == each], device=logprobs.device)
        tokens[index] = _sample(logprobs[index], each, uniforms[index])
    return tokens


def _sample(logprobs: Tensor, options: RowOptions, uniforms: Tensor) -> Tensor:
    if options.temperature > 0:
        return sample_tokens(filter_logits(logprobs, options), uniforms)
    return fast_topk(logprobs, 1)[1]


def hypothesis_of(
    tokens: list[int],
    logprobs: list[float],
    score: float,
    end: int,
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = (),
) -> Hypothesis:
    finished = bool(tokens) and tokens[-1] == end
    return Hypothesis(tuple(tokens[:-1] if finished else tokens), tuple(logprobs), score, finished, alternatives)


def fast_topk(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Returns x.topk(n), several times as fast for long rows.

    The n largest values lie in the n chunks with the largest maxima. (topk and argmax read one value at a time, amax
    reads sixteen.)
    """
    rows, width = x.shape
    chunk_count = width // CHUNK
    if chunk_count <= 2 * n or (x.is_cuda and n == 1):
        return x.topk(n) if n > 1 else x.max(-1, keepdim=True)
    chunks = x[:, : chunk_count * CHUNK].view(rows, chunk_count, CHUNK)
    best = chunks.amax(-1).topk(n, sorted=False)[1]  # [rows, n]
    values = chunks.gather(1, best[:, :, None].expand(-1, -1, CHUNK)).flatten(1)
    indices = (best[:, :, None] * CHUNK + torch.arange(CHUNK, device=x.device)).flatten(1)
    if width > chunk_count * CHUNK:
        values = torch.cat([values, x[:, chunk_count * CHUNK :]], dim=1)
        rest = torch.arange(chunk_count * CHUNK, width, device=x.device)
        indices = torch.cat([indices, rest.expand(rows, -1)], dim=1)
    top, index = values.topk(n)
    return top, indices.gather(1, index)
