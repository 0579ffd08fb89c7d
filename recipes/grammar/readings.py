"""Choices that English leaves to the translator, made at random or enumerated.

The Hindi grammar consults a `Reading` whenever English does not say: who "you" is (तू, तुम, आप), whether "I" is a man or a
woman, which uncle. A choice has a name and is made once, so a sentence stays consistent. To enumerate all correct
translations, the grammar runs again for each combination of choices.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Reading:
    def __init__(self, choices: Sequence[int] = (), rng: Random | None = None) -> None:
        self.choices = list(choices)  # the index of the option taken, in the order of the choices
        self.option_counts: list[int] = []
        self._made: dict[str, int] = {}
        self._rng = rng

    def choose(self, name: str, options: Sequence[T], weights: Sequence[float] = ()) -> T:
        """Returns one of the options, sampled by their weights (which sum to 1); without weights, the first and usual one."""
        if name not in self._made:
            number = len(self.option_counts)
            if number == len(self.choices):
                self.choices.append(self._sample(weights))
            self.option_counts.append(len(options))
            self._made[name] = self.choices[number]
        return options[self._made[name]]

    def _sample(self, weights: Sequence[float]) -> int:
        if self._rng is None or not weights:
            return 0
        remaining = self._rng.random()
        for option, weight in enumerate(weights):
            remaining -= weight
            if remaining < 0:
                return option
        return 0


def all_readings(realize: Callable[[Reading], T]) -> list[T]:
    """Returns the results of `realize` under every combination of the choices it makes, the usual ones first."""
    results: list[T] = []
    pending: list[list[int]] = [[]]
    while pending:
        choices = pending.pop(0)
        reading = Reading(choices)
        results.append(realize(reading))
        for number in range(len(choices), len(reading.option_counts)):
            pending.extend([*reading.choices[:number], option] for option in range(1, reading.option_counts[number]))
    return results
