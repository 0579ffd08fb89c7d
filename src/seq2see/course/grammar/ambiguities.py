"""The choices that English leaves to the translator, and how to make them: one at random, or all of them in turn.

The Hindi grammar asks a `Reading` whenever English does not say: who "you" is (तू, तुम, आप), whether "I" is a man or a
woman, which uncle. A question is asked by name and answered once, so a sentence stays consistent. To enumerate every right
translation, the grammar is simply run again for each combination of answers.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Reading:
    def __init__(self, plan: Sequence[int] = (), rng: Random | None = None) -> None:
        self.path = list(plan)  # the option taken, question by question
        self.sizes: list[int] = []
        self._asked: dict[str, int] = {}
        self._rng = rng

    def choose(self, question: str, options: Sequence[T], weights: Sequence[float] = ()) -> T:
        """One of the options, the usual one first. In drawing, each has its weight (they add up to 1); none: the first."""
        if question not in self._asked:
            asked = len(self.sizes)
            if asked == len(self.path):
                self.path.append(self._draw(weights))
            self.sizes.append(len(options))
            self._asked[question] = self.path[asked]
        return options[self._asked[question]]

    def _draw(self, weights: Sequence[float]) -> int:
        if self._rng is None or not weights:
            return 0
        left = self._rng.random()
        for option, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return option
        return 0


def every_reading(make: Callable[[Reading], T]) -> list[T]:
    """What `make` makes under every combination of choices that it comes to ask for, the usual ones first."""
    made: list[T] = []
    plans: list[list[int]] = [[]]
    while plans:
        plan = plans.pop(0)
        reading = Reading(plan)
        made.append(make(reading))
        for asked in range(len(plan), len(reading.sizes)):
            plans.extend([*reading.path[:asked], option] for option in range(1, reading.sizes[asked]))
    return made
