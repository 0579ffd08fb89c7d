"""Constrained beam search: which candidates go on, for scores that are written out."""

import torch

from seq2see.decode.constraints import Candidate, Constraints, constrained_candidates

END = frozenset([0])


def candidates(scores: list[list[float]], constraints: Constraints, k: int, last: bool = False) -> list[Candidate]:
    return constrained_candidates(torch.tensor(scores), [[] for _ in scores], constraints, k, END, last)


def test_the_most_likely_endings_are_kept_the_best_first() -> None:
    scores = [[-3.0, -9.0, -9.0], [-1.0, -9.0, -9.0], [-2.0, -9.0, -9.0]]  # of three hypotheses; token 0 ends each
    ending = candidates(scores, Constraints(()), 2)[:2]
    assert [(each.total, each.token, each.parent) for each in ending] == [(-1.0, 0, 1), (-2.0, 0, 2)]


def test_a_hypothesis_without_its_phrase_does_not_end() -> None:
    found = candidates([[-0.1, -5.0, -1.0, -9.0]], Constraints(((3,),)), 2)
    assert 0 not in [each.token for each in found if each.total > -100]
    assert 3 in [each.token for each in found]  # although two tokens are more likely


def test_at_the_last_step_those_that_miss_least_come_first_then_the_most_likely() -> None:
    found = candidates([[-0.1, -1.0, -2.0, -9.0], [-0.2, -0.5, -2.0, -8.0]], Constraints(((3,),)), 3, last=True)
    assert [(each.token, each.parent) for each in found] == [(3, 1), (3, 0), (1, 1), (1, 0), (2, 0), (2, 1)]
