"""A document as a list of parts: fixed text, and units to translate.

Every format reads a file into such parts. Rebuilt with the units' own text, they give the file back byte for byte.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path

from seq2see.formats.placeholders import PLACEHOLDER


@dataclass(frozen=True)
class TranslationUnit:
    """Text to translate, its line in the file, and how its translation is written into the document."""

    source: str
    line: int
    render: Callable[[str], str]


Part = str | TranslationUnit


@dataclass(frozen=True)
class Document:
    """The text of a file; the path says its format and stands in messages."""

    text: str
    path: Path = Path()
    retranslate: bool = False  # whether existing translations are replaced, in a format that holds both sides


@dataclass(frozen=True)
class DocumentFormat:
    """How a document is read, and what its translation must keep unchanged."""

    read: Callable[[Document], list[Part]]
    placeholders: re.Pattern[str] | None = PLACEHOLDER


def split_lines(text: str) -> list[str]:
    """Splits a text into lines with their endings. Only a line feed ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def rebuild(parts: Sequence[Part], translations: Iterable[str]) -> str:
    """Returns the document with the translations in place of its units."""
    remaining = iter(translations)
    return "".join(part if isinstance(part, str) else part.render(next(remaining)) for part in parts)


@dataclass
class PartsBuilder:
    """Collects the parts of a document whose sentences may span several lines.

    Consecutive lines form one unit, and its translation is wrapped over them again. No line except the first begins with
    what `not_at_line_start` matches, because it would have another meaning there.
    """

    placeholders: re.Pattern[str] = PLACEHOLDER  # no line ends inside one
    not_at_line_start: re.Pattern[str] | None = None
    parts: list[Part] = field(default_factory=list)
    _line: int = 0
    _bodies: list[str] = field(default_factory=list)
    _gaps: list[str] = field(default_factory=list)  # the text after each body and before the next one

    @property
    def last(self) -> str:
        """The last line of the open unit, or an empty string."""
        return self._bodies[-1] if self._bodies else ""

    def keep(self, text: str) -> None:
        """Adds text that stays unchanged."""
        self.end()
        self.parts.append(text)

    def add(self, text: str, line: int, start: int = 0, stop: int | None = None) -> None:
        """Adds a line of which text[start:stop] is translated together with the open lines before it."""
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

    def pop_line(self) -> str:
        """Removes and returns the last open line."""
        return self._bodies.pop() + self._gaps.pop()

    def end(self) -> None:
        """Closes the open unit."""
        if not self._bodies:
            return
        bodies, gaps = self._bodies, self._gaps
        self._bodies, self._gaps = [], []
        last = gaps.pop()
        render = partial(_render, bodies, gaps, self.placeholders, self.not_at_line_start)
        self.parts += [TranslationUnit(" ".join(bodies), self._line, render), last]


def _render(
    bodies: Sequence[str],
    gaps: Sequence[str],
    placeholders: re.Pattern[str],
    not_at_line_start: re.Pattern[str] | None,
    translation: str,
) -> str:
    lines = list(bodies)
    if translation != " ".join(bodies):
        lines = wrap_like(translation, bodies, placeholders)
        starts = [i for i, line in enumerate(lines) if not (i and not_at_line_start and not_at_line_start.match(line))]
        lines = [" ".join(lines[i:end]) for i, end in zip_longest(starts, starts[1:])]
    return "".join(line + gap for line, gap in zip_longest(lines, gaps[: len(lines) - 1], fillvalue=""))


def wrap_like(text: str, template: Sequence[str], placeholders: re.Pattern[str] | None = None) -> list[str]:
    """Wraps a text over at most as many lines as the template, each with about the same share of it; none is empty.

    No line ends inside a placeholder.
    """
    text = text.strip()
    masked = placeholders.sub(lambda match: "x" * len(match[0]), text) if placeholders else text
    spaces = [match.start() for match in re.finditer(" ", masked)]
    total = sum(map(len, template)) + len(template) - 1
    lines = []
    start, template_end = 0, -1
    for line in template[:-1]:
        template_end += len(line) + 1
        goal = template_end * len(text) // total
        i = bisect_left(spaces, max(goal, start + 1))
        near = [space for space in spaces[max(0, i - 1) : i + 1] if space > start]
        if not near:
            break
        space = min(near, key=lambda space: abs(space - goal))
        lines.append(text[start:space].rstrip())
        start = space
        while text[start].isspace():
            start += 1
    return [*lines, text[start:]]
