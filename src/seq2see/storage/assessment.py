"""How far a translation can be trusted: words that the model does not know, and its confidence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

_MAX_NAMED = 8  # words in a note


@dataclass(frozen=True)
class Assessment:
    unknown: tuple[str, ...] | None = ()  # source words not seen in training; None if the model has no list of words
    confidence: float = 0.0  # mean log-probability per token of the output
    threshold: float | None = None  # fitted on the validation set; None if the model has none

    @property
    def low_confidence(self) -> bool | None:
        """Whether the confidence is below the threshold; None without a threshold."""
        return None if self.threshold is None else self.confidence < self.threshold

    @property
    def note(self) -> str:
        """One line for the user; empty if neither applies."""
        notes = [unknown_note(self.unknown)] if self.unknown else []
        if self.threshold is not None and self.low_confidence:
            notes.append(f"low confidence: {self.confidence:.2f} per token, threshold {self.threshold:.2f}")
        return "; ".join(notes)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields of JSON outputs; a confidence of −∞ is null."""
        confidence = self.confidence if math.isfinite(self.confidence) else None
        return {"unknown": self.unknown, "confidence": confidence, "low_confidence": self.low_confidence}

    @classmethod
    def of_text(cls, sentences: Sequence[Self]) -> Self:
        """Assesses a text by its sentences: all unknown words, and the lowest confidence."""
        if not sentences:
            return cls()
        word_lists = [sentence.unknown for sentence in sentences if sentence.unknown is not None]
        unknown = tuple(dict.fromkeys(word for words in word_lists for word in words))
        lowest = min(sentences, key=lambda sentence: sentence.confidence)
        return cls(unknown if word_lists else None, lowest.confidence, lowest.threshold)


def unknown_note(words: tuple[str, ...]) -> str:
    more = f" and {len(words) - _MAX_NAMED:,} more" if len(words) > _MAX_NAMED else ""
    named = (word if word.isprintable() else repr(word)[1:-1] for word in words[:_MAX_NAMED])
    return f"unknown word{'s' * (len(words) > 1)}: {', '.join(named)}{more}"
