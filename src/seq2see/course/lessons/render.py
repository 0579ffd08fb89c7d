"""The text of a lesson, independent of where it is shown: an introduction, paragraphs and tables, errata and a takeaway.

A lesson's `describe(result)` returns a `LessonText`. `print_lesson` prints it in a terminal; `to_json` converts results and
texts for the web page.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

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
class LessonText:
    introduction: str  # what the lesson computes, and what the notes say about it
    body: tuple[str | Table, ...]  # paragraphs and tables
    takeaway: str
    errata: tuple[str, ...] = ()  # errors of the notes, with the correct figures


def matrix_table(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], caption: str = "",
    decimals: int = 2, shaded: bool = False,
) -> Table:  # fmt: skip
    """Returns a table of numbers with a label for each row and column."""
    body: list[Row] = [(label, *row) for label, row in zip(rows, values, strict=True)]
    return Table(("", *columns), tuple(body), caption, decimals, shaded)


def print_lesson(name: str, text: LessonText, console: Console) -> None:
    console.print(Text.assemble((name, "bold"), f": {text.introduction}"))
    for part in text.body:
        console.print()
        if isinstance(part, str):
            console.print(Text(part))
            continue
        if part.caption:
            console.print(Text(part.caption, "italic"))
        console.print(rich_table(part))
    for i, erratum in enumerate(text.errata):
        console.print(Text.assemble("\n" if i == 0 else "", ("Error in the notes: ", "yellow"), erratum))
    console.print(Text.assemble(("\nTakeaway: ", "bold"), text.takeaway))


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
    return f"{cell:.{table.decimals}f}".replace("-", "−")


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
