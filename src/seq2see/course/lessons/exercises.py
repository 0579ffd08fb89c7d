"""Exercises of a lesson. The answer is computed by the library when the exercise is asked, and grading compares with it.

A lesson.md has two or three of them, on small examples that differ from the printed ones.
"""

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Exercise:
    """A question with a number as answer or, with `choices`, one of them."""

    question: str
    answer: float | str
    explanation: str  # shown after the answer
    choices: tuple[str, ...] = ()
    tolerance: float = 0.01  # of a number

    def grade(self, given: str) -> bool:
        """Whether the answer is right: a number within the tolerance, or a choice by its letter or its text."""
        if self.choices:
            letters = [chr(ord("a") + i) for i in range(len(self.choices))]
            chosen = given.strip().rstrip(".)").casefold()
            named = self.choices[letters.index(chosen)] if chosen in letters else chosen
            return named.casefold() == str(self.answer).casefold()
        value = parse_number(given)
        return value is not None and abs(value - float(self.answer)) <= self.tolerance

    @property
    def shown_answer(self) -> str:
        if isinstance(self.answer, str):
            return self.answer
        decimals = max(0, math.ceil(-math.log10(self.tolerance))) if self.tolerance < 1 else 0
        text = f"{round(self.answer, decimals) + 0.0:,.{decimals}f}"  # + 0.0: no −0
        return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")


def parse_number(text: str) -> float | None:
    """Reads 0.5, −1, 1,024, 50% and 1/2; None if it is not a number."""
    text = text.strip().replace("−", "-")
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text).replace(",", ".")
    match = re.fullmatch(r"([-+]?[\d.]+(?:e[-+]?\d+)?)\s*(?:(%)|/\s*([-+]?[\d.]+))?", text, re.IGNORECASE)
    try:
        if match is None:
            return None
        value = float(match[1])
        return value / 100 if match[2] else value / float(match[3]) if match[3] else value
    except (ValueError, ZeroDivisionError):
        return None
