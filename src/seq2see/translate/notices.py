"""What a person should know of a text while it is translated: told at once, a few of each kind, and counted."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

_SHOWN = 5  # of a kind; the rest are only counted


@dataclass(frozen=True)
class Notes:
    say: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, where: str, what: str) -> None:
        """`kind` names in the plural what `what` is one of."""
        self.counts[kind] += 1
        if self.counts[kind] <= _SHOWN:
            self.say(f"{where}: {what}")

    def sum_up(self) -> None:
        for kind, count in self.counts.items():
            if count > 1:
                self.say(f"{count:,} {kind}" + (f", of which the first {_SHOWN} are told above" * (count > _SHOWN)))
