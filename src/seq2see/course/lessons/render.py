"""The form that every lesson is told in: a claim, parts that are sentences or tables, where the notes slip, what to look at.

A lesson's `story(result)` puts its numbers into this form; `tell` prints one in a terminal, and `plain` turns a result or a
story into what JSON can hold, for a page. So no lesson knows how it is shown.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | float | None
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Grid:
    """A table. Numbers are kept as they are and rounded only when shown."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    decimals: int = 2
    shaded: bool = False  # weights: the larger the brighter
    strong: tuple[int, ...] = ()  # rows that matter most


@dataclass(frozen=True)
class Story:
    claim: str  # what is done, and what the notes say of it
    parts: tuple[str | Grid, ...]
    look: str  # what to look at
    slips: tuple[str, ...] = ()  # what the notes wrote, and what is right


def matrix(
    numbers: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], caption: str = "",
    decimals: int = 2, corner: str = "", shaded: bool = False,
) -> Grid:  # fmt: skip
    """A grid of numbers with names on both sides."""
    body: list[Row] = [(name, *line) for name, line in zip(rows, numbers, strict=True)]
    return Grid((corner, *columns), tuple(body), caption, decimals, shaded)


def tell(name: str, story: Story, console: Console) -> None:
    console.print(Text.assemble((name, "bold"), f": {story.claim}"))
    for part in story.parts:
        console.print()
        if isinstance(part, str):
            console.print(Text(part))
            continue
        if part.caption:
            console.print(Text(part.caption, "italic"))
        console.print(_table(part))
    for i, slip in enumerate(story.slips):
        console.print(Text.assemble("\n" if i == 0 else "", ("The notes slip: ", "yellow"), slip))
    console.print(Text.assemble(("\nWhat to look at: ", "bold"), story.look))


def _table(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False, show_header=any(grid.columns))
    for i, heading in enumerate(grid.columns):
        cells = [row[i] for row in grid.rows if row[i] is not None]
        wordy = any(isinstance(cell, str) and cell.strip()[:1].isalpha() for cell in cells)
        table.add_column(Text(heading), justify="left" if wordy else "right", overflow="fold")
    for i, row in enumerate(grid.rows):
        style = "bold" if i in grid.strong else ""
        table.add_row(*(_cell(cell, grid) for cell in row), style=style)
    return table


def _cell(cell: Cell, grid: Grid) -> Text:
    text = shown(cell, grid)
    if not isinstance(cell, float):
        return Text(text)
    if math.isinf(cell):
        return Text(text, "dim")
    return Text(text, "" if not grid.shaded else "bold cyan" if cell >= 0.5 else "cyan" if cell >= 0.15 else "dim")


def shown(cell: Cell, grid: Grid) -> str:
    """A cell as a person reads it, wherever the grid is shown."""
    if cell is None or isinstance(cell, str):
        return cell or ""
    if isinstance(cell, int):
        return f"{cell:,}"
    if math.isinf(cell):
        return "−∞" if cell < 0 else "∞"
    return f"{cell:.{grid.decimals}f}".replace("-", "−")


def brief(number: float) -> str:
    """Three digits after the point, or the order of magnitude of what is smaller than that can show."""
    return f"{number:.3f}" if abs(number) >= 0.01 else f"{number:.0e}" if number else "0"


def quoted(words: Sequence[str], limit: int = 0) -> str:
    """“this”, “that” and “those”."""
    shown = [f'"{word}"' for word in (words[:limit] if limit else words)]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def plain(value: Any) -> Any:
    """What JSON can hold: dataclasses become objects, and what is not finite (a masked score) null."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
