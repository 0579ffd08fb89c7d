"""The text of a lesson, independent of where it is shown.

Every lesson has the same shape: a question (in `LESSONS`), what to look at, a picture, the few numbers that make the point and
the takeaway; further sections, which are folded away; things to try; how the library does it; and an aside for readers of the
lecture notes. A lesson's `describe(result)` returns a `LessonText`. `print_lesson` prints it in a terminal; `to_json` converts
results and texts for the page.
"""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from seq2see.course.lessons import Lesson

Cell = str | float | None
Row = tuple[Cell, ...]

# The five documents, as the asides name them.
EMBEDDINGS = "Embeddings"  # S0
ATTENTION = "Attention and the encoder-decoder"  # S1
SLIDES = "Self-attention (slides)"  # S2
LECTURE = "Lecture 10: Transformer"  # S3
LANGUAGE_MODELS = "April 19, Transformers"  # S4

SHADES = " ░▒▓█"
BAR_WIDTH = 30  # characters


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
    source: str  # relative to src/seq2see/
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

    @property
    def parts(self) -> tuple[Part, ...]:
        """The body and all sections."""
        return (*self.body, *(part for section in self.more for part in section.parts))


def matrix_table(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], caption: str = "",
    decimals: int = 2, shaded: bool = False,
) -> Table:  # fmt: skip
    """Returns a table of numbers with a label for each row and column."""
    body: list[Row] = [(label, *row) for label, row in zip(rows, values, strict=True)]
    return Table(("", *columns), tuple(body), caption, decimals, shaded)


def print_lesson(lesson: "Lesson", text: LessonText, console: Console, full: bool = False) -> None:
    """Prints a lesson; without `full`, the further sections and the notes are only named."""
    console.print(Text.assemble((lesson.title, "bold"), (f"  ({lesson.name})", "dim")))
    console.print(Text(lesson.question))
    console.print(Text.assemble("\n", ("Look at: ", "bold"), text.look))
    for part in (*text.picture, *text.body):
        _print_part(part, console)
    console.print(Text.assemble(("\nTakeaway: ", "bold"), text.takeaway))
    if full:
        for section in text.more:
            console.print(Text(f"\n{section.title}", "bold underline"))
            for part in section.parts:
                _print_part(part, console)
    for i, each in enumerate(text.tries):
        if i == 0:
            console.print(Text("\nTry this", "bold"))
        console.print(Text(each.text))
        console.print(Text(f"  {_command(lesson.name, each)}", "cyan"), soft_wrap=True)
    console.print(Text("\nIn the library", "bold"))
    for line in text.library.code.splitlines():
        console.print(Text(f"  {line}", "cyan"), soft_wrap=True)
    console.print(Text(f"  src/seq2see/{text.library.source}", "dim"))
    for link in text.library.links:
        console.print(Text(f"  {link.label}, in seq2see explore: {link.fragment}", "dim"), soft_wrap=True)
    if full:
        for i, note in enumerate(text.notes):
            console.print(
                Text.assemble("\n" if i == 0 else "", (f"In the notes ({note.document}): ", "yellow"), note.text)
            )
    elif text.more or text.notes:
        folded = [section.title for section in text.more] + ["In the notes"] * bool(text.notes)
        console.print(Text.assemble(("\nMore, with --full: ", "bold"), "; ".join(folded) + "."))


def _command(name: str, each: Try) -> str:
    settings = [
        f"--set {key}={shlex.quote(value if isinstance(value, str) else json.dumps(to_json(value), ensure_ascii=False))}"
        for key, value in each.settings.items()
    ]
    return " ".join(["seq2see lesson", name, *settings, *([each.options] if each.options else [])])


def _print_part(part: Part, console: Console) -> None:
    console.print()
    if isinstance(part, str):
        console.print(Text(part))
        return
    caption = part.caption if isinstance(part, Table) else part.title
    if caption:
        console.print(Text(caption, "italic"))
    if isinstance(part, Table):
        console.print(rich_table(part))
    else:
        for line in (bar_lines if isinstance(part, Bars) else shade_lines)(part, console.width):  # type: ignore[arg-type]
            console.print(Text(line), soft_wrap=True)


def bar_lines(bars: Bars, width: int = 80) -> list[str]:
    """Draws bars with block characters, to an eighth of a character."""
    largest = bars.maximum or max((abs(value) for _, group in bars.groups for _, value in group), default=1) or 1
    names = max((cell_len(name) for _, group in bars.groups for name, _ in group), default=0)
    space = max(8, min(BAR_WIDTH, width - names - 12))
    lines = []
    for title, group in bars.groups:
        if title:
            lines.append(title)
        for name, value in group:
            eighths = round(8 * space * min(1.0, abs(value) / largest))
            bar = "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
            padded = name + " " * (names - cell_len(name))
            lines.append(f"  {padded} {bar:<{space}} {format_number(value)}".rstrip())
    return lines


def shade_lines(heatmap: HeatMap, width: int = 80) -> list[str]:
    """Draws a matrix with one or two characters per cell, and only as many columns as fit."""
    names = max((cell_len(name) for name in heatmap.rows), default=0)
    largest = max((abs(value) for row in heatmap.values for value in row if math.isfinite(value)), default=1) or 1
    count = len(heatmap.values[0]) if heatmap.values else 0
    cell = 2 if names + 1 + 2 * count <= width else 1
    shown = min(count, (width - names - 1) // cell)
    lines = []
    for name, row in zip(heatmap.rows, heatmap.values, strict=True):
        shades = ""
        for value in row[:shown]:
            share = (value / largest + 1) / 2 if heatmap.signed else value / largest
            index = min(len(SHADES) - 1, max(0, round(share * (len(SHADES) - 1)))) if math.isfinite(value) else 0
            shades += ("·" if not math.isfinite(value) else SHADES[index]) * cell
        lines.append(f"{name}{' ' * (names - cell_len(name))} {shades}".rstrip())
    return lines


def rich_table(table: Table) -> RichTable:
    rendered = RichTable(box=None, pad_edge=False, show_header=any(table.columns))
    for i, heading in enumerate(table.columns):
        cells = [row[i] for row in table.rows]
        is_text = any(isinstance(cell, str) and cell.strip()[:1].isalpha() for cell in cells)
        rendered.add_column(Text(heading), justify="left" if is_text else "right", overflow="fold")
    for i, row in enumerate(table.rows):
        rendered.add_row(*(_styled_cell(cell, table) for cell in row), style="bold" if i in table.bold_rows else "")
    return rendered


def _styled_cell(cell: Cell, table: Table) -> Text:
    text = format_cell(cell, table)
    if not isinstance(cell, float):
        return Text(text)
    if math.isinf(cell):
        return Text(text, "dim")
    return Text(text, "" if not table.shaded else "bold cyan" if cell >= 0.5 else "cyan" if cell >= 0.15 else "dim")


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


def to_json(value: Any) -> Any:
    """Converts to what JSON can hold: dataclasses become objects, infinities (masked scores) and NaN become null."""
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
