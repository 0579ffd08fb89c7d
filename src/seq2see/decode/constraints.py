"""Constrained beam search: phrases that must be in the output (Post and Vilar, 2018: dynamic beam allocation).

Besides the most likely continuations, the next tokens of phrases that are still missing are candidates. The beam is divided
among hypotheses by how many tokens of the phrases they have, so that those on the way to a phrase are not lost to others
that are more likely. A hypothesis may end only when it has all phrases.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from seq2see.decode.sampling import Phrase

IMPOSSIBLE = -2e9  # score of a candidate that fills a table only


class Candidate(NamedTuple):
    total: float  # score of the hypothesis with this token
    token: int
    parent: int


class Progress(NamedTuple):
    """How far an output has met its constraints."""

    missing: tuple[Phrase, ...]  # in the order given
    begun: int = 0  # tokens of the first missing phrase at the end of the output

    def after(self, token: int) -> "Progress":
        if self.begun and token == self.missing[0][self.begun]:
            return self._advance(0, self.begun + 1)
        for i, phrase in enumerate(self.missing):  # a phrase that was begun and not continued starts anew
            if token == phrase[0]:
                return self._advance(i, 1)
        return Progress(self.missing)

    def _advance(self, i: int, begun: int) -> "Progress":
        phrase, others = self.missing[i], self.missing[:i] + self.missing[i + 1 :]
        return Progress(others) if begun == len(phrase) else Progress((phrase, *others), begun)

    @property
    def next_tokens(self) -> list[int]:
        """The token that continues the phrase, or those that begin one."""
        return [self.missing[0][self.begun]] if self.begun else [phrase[0] for phrase in self.missing]

    @property
    def tokens_missing(self) -> int:
        return sum(map(len, self.missing)) - self.begun


def progress_of(output: Sequence[int], phrases: tuple[Phrase, ...]) -> Progress:
    progress = Progress(phrases)
    for token in output:
        progress = progress.after(token)
    return progress


def constrained_candidates(
    total: Tensor,
    outputs: Sequence[Sequence[int]],
    phrases: tuple[Phrase, ...],
    k: int,
    ends: frozenset[int],
    last: bool,
) -> list[Candidate]:
    """Returns 2k candidates for one sentence: up to k that end, then k that continue; at the last step, the best first.

    `total` is the score of each hypothesis with each token, [beams, V].
    """
    progress = [progress_of(output, phrases) for output in outputs]
    found: dict[tuple[int, int], tuple[Candidate, int]] = {}  # with the number of tokens still missing
    values, tokens = total.topk(min(2 * k, total.shape[1]))  # [beams, 2k]
    for parent, (row_values, row_tokens) in enumerate(zip(values.tolist(), tokens.tolist(), strict=True)):
        required = progress[parent].next_tokens
        pairs = [*zip(row_values, row_tokens, strict=True), *((float(total[parent, t]), t) for t in required)]
        for value, token in pairs:
            after = progress[parent].after(token)
            if (token in ends and after.missing) or value == float("-inf"):
                continue
            found[parent, token] = Candidate(value, token, parent), after.tokens_missing
    ending = sorted((each for each, _ in found.values() if each.token in ends), reverse=True)[:k]
    running = {key: each for key, each in found.items() if each[0].token not in ends}
    if last:  # the output is cut here: those that miss least, then the most likely
        ordered = sorted(found.values(), key=lambda each: (each[1], -each[0].total))
        chosen = [each for each, _ in ordered]
        return _fill(chosen, 2 * k)
    return _fill(_fill(ending, k) + _divide(list(running.values()), k), 2 * k)


def _divide(candidates: list[tuple[Candidate, int]], k: int) -> list[Candidate]:
    """Chooses k candidates, as many as possible equally from every number of missing tokens."""
    banks: dict[int, list[Candidate]] = {}
    for candidate, missing in sorted(candidates, key=lambda each: -each[0].total):
        banks.setdefault(missing, []).append(candidate)
    chosen: list[Candidate] = []
    while len(chosen) < k and any(banks.values()):
        for missing in sorted(banks):  # those that miss least first
            if banks[missing] and len(chosen) < k:
                chosen.append(banks[missing].pop(0))
    return chosen


def _fill(candidates: list[Candidate], count: int) -> list[Candidate]:
    return (candidates + [Candidate(IMPOSSIBLE, 0, 0)] * count)[:count]
