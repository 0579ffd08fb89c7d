"""A document as what stays and what is translated: fixed text, and slots that translations go into.

Every format reads a file into such parts. Put together again with the slots' own text they are the file, byte for byte.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest

from seq2see.translate.segmentation import fold


@dataclass(frozen=True)
class Slot:
    """A place for a translation: of what, in which line, and how it is written there."""

    source: str
    line: int
    write: Callable[[str], str]


Part = str | Slot


def lines_of(text: str) -> list[str]:
    """The lines with their ends. Only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def rebuild(parts: Sequence[Part], translations: Sequence[str]) -> str:
    """The document with the translations in its slots."""
    waiting = iter(translations)
    return "".join(part if isinstance(part, str) else part.write(next(waiting)) for part in parts)


@dataclass
class Writer:
    """Collects the parts of a document whose sentences run on over several lines.

    Lines that belong together become one slot; its translation is folded over them again. No line but the first begins
    with what `never_first` matches: there it would mean something else.
    """

    never_first: re.Pattern[str] | None = None
    parts: list[Part] = field(default_factory=list)
    _line: int = 0
    _bodies: list[str] = field(default_factory=list)
    _gaps: list[str] = field(default_factory=list)  # what stands behind each body, and before the next

    @property
    def last(self) -> str:
        """The line that the next one may go on from."""
        return self._bodies[-1] if self._bodies else ""

    def keep(self, text: str) -> None:
        """Text that stays as it is."""
        self.end()
        self.parts.append(text)

    def add(self, text: str, line: int, start: int = 0, stop: int | None = None) -> None:
        """A line of which text[start:stop] is translated, together with the open lines before."""
        body = text[start:stop].strip()
        start = text.index(body, start)
        before, after = text[:start], text[start + len(body) :]
        if self._bodies:
            self._gaps[-1] += before
        else:
            self._line = line
            self.parts.append(before)
        if not body:  # nothing to translate
            self.keep(after)
            return
        self._bodies.append(body)
        self._gaps.append(after)

    def take_back(self) -> str:
        """The last open line, which turned out to be something else."""
        return self._bodies.pop() + self._gaps.pop()

    def end(self) -> None:
        if not self._bodies:
            return
        bodies, gaps = self._bodies, self._gaps
        self._bodies, self._gaps = [], []
        last = gaps.pop()
        self.parts += [Slot(" ".join(bodies), self._line, partial(_laid, bodies, gaps, self.never_first)), last]


def _laid(bodies: Sequence[str], gaps: Sequence[str], never_first: re.Pattern[str] | None, translation: str) -> str:
    lines: list[str] = []
    for line in fold(translation, bodies):
        if lines and never_first and never_first.match(line):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "".join(line + gap for line, gap in zip_longest(lines, gaps[: len(lines) - 1], fillvalue=""))
