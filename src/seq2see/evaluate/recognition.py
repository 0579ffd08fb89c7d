"""Scores of recognised text, as in speech and handwriting recognition: exact match, character and word error rate."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RecognitionScores:
    """Shares from 0 to 1; an error rate can exceed 1."""

    exact_match: float
    character_error_rate: float  # insertions, deletions and substitutions per character of the references
    word_error_rate: float

    def __str__(self) -> str:
        return f"exact {self.exact_match:.1%}  CER {self.character_error_rate:.1%}  WER {self.word_error_rate:.1%}"


def recognition_scores(texts: Sequence[str], references: Sequence[str]) -> RecognitionScores:
    """Compares texts with their references; spaces count as one, and none at the ends."""
    rows = [[reference] for reference in references]
    exact = sum(text.split() == reference.split() for text, reference in zip(texts, references, strict=True))
    return RecognitionScores(exact / max(len(rows), 1), character_error_rate(texts, rows), word_error_rate(texts, rows))


def word_error_rate(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Returns the edits per word of the first reference of each text."""
    pairs = [(text.split(), row[0].split()) for text, row in zip(texts, references, strict=True)]
    return _error_rate(pairs)


def character_error_rate(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    pairs = [(" ".join(text.split()), " ".join(row[0].split())) for text, row in zip(texts, references, strict=True)]
    return _error_rate(pairs)


def _error_rate(pairs: Sequence[tuple[Sequence[Hashable], Sequence[Hashable]]]) -> float:
    edits = sum(edit_distance(text, reference) for text, reference in pairs)
    return edits / max(sum(len(reference) for _, reference in pairs), 1)


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Returns the smallest number of insertions, deletions and substitutions that turn one sequence into the other."""
    distances = list(range(len(b) + 1))  # from the first i items of a to the first j of b
    for i, x in enumerate(a, 1):
        diagonal, distances[0] = distances[0], i
        for j, y in enumerate(b, 1):
            best = min(diagonal + (x != y), distances[j] + 1, distances[j - 1] + 1)
            diagonal, distances[j] = distances[j], best
    return distances[-1]
