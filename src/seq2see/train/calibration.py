"""Calibrates the marks of an output: the known words, from the training text, and a confidence threshold.

The threshold is fitted on the validation set, where each translation has a confidence and a reference: it maximises the
number of sentences on which low confidence and a bad translation (low chrF++) agree. Training stores both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seq2see.data.known_words import collect_words, save_words
from seq2see.data.tokenizer import Tokenizer
from seq2see.storage.directory import WORDS
from seq2see.storage.pipeline import Pipeline

BAD_CHRF = 40.0  # a translation with a lower chrF++ is bad: it has little in common with the reference


@dataclass(frozen=True)
class Calibration:
    """The confidence threshold, and how well it separates the validation set; stored in scores.json."""

    threshold: float
    accuracy: float  # share of sentences with low confidence that are bad, and with high confidence that are not
    low_confidence: float  # share of sentences below the threshold
    bad: float  # share of sentences with a chrF++ below `bad_below`
    bad_below: float
    sentences: int


def fit_threshold(confidences: Sequence[float], chrf: Sequence[float]) -> Calibration:
    """Returns the threshold with the highest accuracy; in a tie the highest threshold, which warns more often."""
    order = np.argsort(confidences)
    ranked, bad = np.asarray(confidences)[order], np.asarray(chrf)[order] < BAD_CHRF
    candidates = np.append(ranked, 0.0)  # at 0, the highest possible log-probability, every confidence is low
    below = np.searchsorted(ranked, candidates)
    bad_below = np.append(0, np.cumsum(bad))[below]
    good_above = (~bad).sum() - (below - bad_below)
    correct = bad_below + good_above
    best = int(np.flatnonzero(correct == correct.max())[-1])
    count = len(ranked)
    return Calibration(
        threshold=float(candidates[best]),
        accuracy=round(float(correct[best]) / count, 4),
        low_confidence=round(float(below[best]) / count, 4),
        bad=round(float(bad.mean()), 4),
        bad_below=BAD_CHRF,
        sentences=count,
    )


def store_known_words(
    folder: Path, texts: Iterable[str], tokenizer: Tokenizer, initial: Pipeline | None = None
) -> None:
    """Writes the words of the training text, together with those of the initial model, if it has a list."""
    (folder / WORDS).unlink(missing_ok=True)
    known = initial.known_words if initial else frozenset()
    if tokenizer.kind != "word" and known is not None:
        save_words(folder / WORDS, collect_words(texts, tokenizer) | known)
