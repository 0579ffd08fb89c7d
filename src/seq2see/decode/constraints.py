"""Constrained beam search: how an output must begin, and phrases that must be in it (Post and Vilar, 2018: dynamic beam
allocation).

Besides the most likely continuations, the next tokens of phrases that are still missing are candidates. The beam is divided
among hypotheses by how many tokens of the phrases they have, so that those on the way to a phrase are not lost to others
that are more likely. A hypothesis may end only when it has all phrases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

IMPOSSIBLE = -2e9  # score of a candidate that fills a table only
Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Constraints:
    """What an output must be like."""

    phrases: tuple[Phrase, ...]  # it contains them, in any order
    prefix: Phrase = ()  # it begins so
    within: int | None = None  # after the prefix come 1 to so many tokens, if not 0, and then a phrase; None: anywhere
    continuations: frozenset[int] = frozenset()  # tokens that continue a word, which follow neither prefix nor phrase


class Candidate(NamedTuple):
    total: float  # score of the hypothesis with this token
    token: int
    parent: int


class Progress(NamedTuple):
    """How far an output has met its constraints."""

    missing: tuple[Phrase, ...]  # in the order given
    begun: int = 0  # tokens of the first missing phrase at the end of the output
    completed: bool = False  # whether the last token completed a phrase

    def after(self, token: int) -> "Progress":
        if self.begun and token == self.missing[0][self.begun]:
            return self._advance(0, self.begun + 1)
        for i, phrase in enumerate(self.missing):  # a phrase that was begun and not continued starts anew
            if token == phrase[0]:
                return self._advance(i, 1)
        return Progress(self.missing)

    def _advance(self, i: int, begun: int) -> "Progress":
        phrase, others = self.missing[i], self.missing[:i] + self.missing[i + 1 :]
        return Progress(others, completed=True) if begun == len(phrase) else Progress((phrase, *others), begun)

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
    constraints: Constraints,
    k: int,
    ends: frozenset[int],
    last: bool,
) -> list[Candidate]:
    """Returns 2k candidates for one sentence: up to k that end, then k that continue; at the last step, the best first.

    `total` is the score of each hypothesis with each token, [beams, V].
    """
    found: dict[tuple[int, int], tuple[Candidate, int]] = {}  # with the number of tokens still missing
    for parent, output in enumerate(outputs):
        progress = progress_of(output[len(constraints.prefix) :], constraints.phrases)
        tokens = _next_tokens(total[parent], output, progress, constraints, 2 * k)
        for token, value in zip(tokens, total[parent, tokens].tolist(), strict=True):
            after = progress.after(token) if len(output) >= len(constraints.prefix) else progress
            if (token in ends and after.missing) or value < IMPOSSIBLE / 2:
                continue
            found[parent, token] = Candidate(value, token, parent), after.tokens_missing
    ending = sorted((each for each, _ in found.values() if each.token in ends), reverse=True)[:k]
    running = {key: each for key, each in found.items() if each[0].token not in ends}
    if last:  # the output is cut here: those that miss least, then the most likely
        ordered = sorted(found.values(), key=lambda each: (each[1], -each[0].total))
        chosen = [each for each, _ in ordered]
        return _fill(chosen, 2 * k)
    return _fill(_fill(ending, k) + _divide(list(running.values()), k), 2 * k)


def _next_tokens(
    total: Tensor, output: Sequence[int], progress: Progress, constraints: Constraints, count: int
) -> list[int]:
    """Returns the tokens that may follow an output: the most likely ones, and those that begin or continue a phrase."""
    after_prefix = len(output) - len(constraints.prefix)
    if after_prefix < 0:
        return [constraints.prefix[len(output)]]
    required = progress.next_tokens
    none_begun = progress.begun == 0 and progress.missing == constraints.phrases
    if constraints.within is not None and none_begun and after_prefix >= constraints.within:
        return required
    if constraints.continuations and (progress.completed or (constraints.prefix and after_prefix == 0)):
        index = torch.tensor(sorted(constraints.continuations), device=total.device)
        total = total.index_fill(0, index, -torch.inf)
    likely = total.topk(min(count, len(total))).indices.tolist()
    if constraints.within and after_prefix == 0:
        return [token for token in likely if token not in required]
    return list(dict.fromkeys([*likely, *required]))


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
