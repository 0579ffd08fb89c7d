"""A lesson as a document, independent of where it is shown.

Every lesson has the same shape: a question, what to look at, a picture, the few numbers that make the point and the takeaway;
further sections, which are folded away; things to try; how the library does it; and an aside for readers of the lecture notes.
`template` makes it from lesson.md and numbers; `terminal` prints it, also in notebooks; for the page it becomes JSON.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

Cell = str | float | None
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table of unrounded values; `format_cell` rounds them for display."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    decimals: int = 2
    shaded: bool = False  # attention weights: larger values are brighter
    bold_rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Bars:
    """Groups of named bars; negative values are drawn from the same edge, marked by their sign."""

    title: str
    groups: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]  # (name, ((bar, value), …))
    maximum: float | None = None  # of the scale; None: the largest value


@dataclass(frozen=True)
class HeatMap:
    """A matrix in shades: for tables that are too large to print as numbers."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]  # may be empty
    values: tuple[tuple[float, ...], ...]
    signed: bool = False  # −largest … largest instead of 0 … largest


Part = str | Table | Bars | HeatMap


@dataclass(frozen=True)
class Line:
    """A named curve. `style` holds a colour and a dash, such as "orange dotted"; without one the colours take turns."""

    name: str
    points: tuple[tuple[float, float], ...]
    style: str = ""


@dataclass(frozen=True)
class Lines:
    """Curves over common axes; for figures only."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log: str = ""  # the axes with a logarithmic scale, such as "xy"
    level: tuple[float, str] | None = None  # a horizontal line, and its name
    ticks: tuple[str, ...] = ()  # names of x = 0, 1, …


Panel = Table | Bars | HeatMap | Lines  # of a figure


@dataclass(frozen=True)
class Section:
    """A further part of a lesson, folded away until it is opened."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Try:
    """Something to try: other settings, and what to watch."""

    text: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: str = ""  # further options of the command, such as --model DIRECTORY


@dataclass(frozen=True)
class ViewLink:
    """A link into a view of the page, with its state."""

    label: str
    view: str
    state: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def fragment(self) -> str:
        return f"#/{self.view}" + (f"?{urlencode(self.state)}" if self.state else "")


@dataclass(frozen=True)
class Library:
    """How the library does it: lines of Python or a command, the file to read, and views of the page."""

    code: str
    source: str = field(metadata={"description": "The file, relative to the package."})
    links: tuple[ViewLink, ...] = ()


@dataclass(frozen=True)
class Note:
    """What one of the documents says, and where a figure there slips."""

    document: str
    text: str


@dataclass(frozen=True)
class LessonText:
    look: str  # what to look at in the picture and the numbers
    picture: tuple[Part, ...]  # in the terminal, and in the page where it has no figure of its own
    body: tuple[Part, ...]  # the fewest numbers that make the point
    takeaway: str
    library: Library
    more: tuple[Section, ...] = ()
    tries: tuple[Try, ...] = ()
    notes: tuple[Note, ...] = ()
    figure: tuple[Panel, ...] = ()  # of a file; empty: the picture

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Of the figure."""
        return self.figure or tuple(part for part in self.picture if not isinstance(part, str))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The body and all sections."""
        return (*self.body, *(part for section in self.more for part in section.parts))


def format_cell(cell: Cell, table: Table) -> str:
    """Formats a cell for display, in the terminal and in the page alike."""
    if cell is None or isinstance(cell, str):
        return cell or ""
    if isinstance(cell, int):
        return f"{cell:,}"
    if math.isinf(cell):
        return "−∞" if cell < 0 else "∞"
    if math.isnan(cell):
        return "–"
    return f"{cell:.{table.decimals}f}".replace("-", "−")


def format_number(number: float) -> str:
    return f"{number:.2f}".replace("-", "−") if abs(number) < 1000 else f"{number:,.0f}"


def format_vector(numbers: Sequence[float]) -> str:
    """(2, 0.5, −1): up to two decimals, without trailing zeros."""
    return "(" + ", ".join(_trim(f"{number:.2f}").replace("-", "−") for number in numbers) + ")"


def _trim(text: str) -> str:
    trimmed = text.rstrip("0").rstrip(".")
    return "0" if trimmed == "-0" else trimmed


def format_small(number: float) -> str:
    """Formats a number with three decimals, or in scientific notation where those would show too little of it."""
    return f"{number:.3f}" if abs(number) >= 0.01 else f"{number:.0e}" if number else "0"
