"""Warnings about a text while it is translated: the first few of each kind are printed, the rest counted."""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from seq2see.errors import Notice

MAX_SHOWN = 5  # per kind


def _emit(text: str) -> None:
    # Unlike `warn`, it also warns when the same text is translated again.
    warnings.warn_explicit(text, Notice, "seq2see", 1)


@dataclass(frozen=True)
class WarningLog:
    emit: Callable[[str], None] = _emit
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, location: str, message: str) -> None:
        """Adds a warning; `kind` is the plural phrase used in the summary."""
        self.counts[kind] += 1
        if self.counts[kind] <= MAX_SHOWN:
            self.emit(f"{location}: {message}")

    def summarize(self) -> None:
        for kind, count in self.counts.items():
            if count > 1:
                self.emit(f"{count:,} {kind}" + (f" (first {MAX_SHOWN} shown)" * (count > MAX_SHOWN)))
