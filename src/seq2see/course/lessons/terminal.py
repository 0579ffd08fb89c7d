"""Prints a lesson in a terminal or a notebook."""

import json
import math
import shlex
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from seq2see.course.lessons.document import (
    Bars,
    Cell,
    HeatMap,
    LessonText,
    Part,
    Table,
    Try,
    format_cell,
    format_number,
)
from seq2see.tensors.files import to_json

if TYPE_CHECKING:
    from seq2see.course.lessons import Lesson

SHADES = " ░▒▓█"
BAR_WIDTH = 30  # characters


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
