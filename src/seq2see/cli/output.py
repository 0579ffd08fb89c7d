"""The output of commands: files, tables, JSON, warnings and progress bars."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from seq2see.errors import UsageError, UserError, terminal
from seq2see.tensors.files import atomic_write, check_output, to_json

if TYPE_CHECKING:
    from rich.table import Table

    from seq2see.errors import ProgressFactory
    from seq2see.translate.warning_log import WarningLog

PLOTS = (".png", ".svg", ".pdf")


def printed_warnings() -> "WarningLog":
    """Returns a log that prints its warnings like errors."""
    from seq2see.translate.warning_log import WarningLog

    return WarningLog(lambda text: typer.echo(f"seq2see: {text}", err=True))


def refuse_overwriting(file: Path | None, out: Path | None) -> None:
    """Raises an error if an output would replace an input, also under another path."""
    if file and out and os.path.isfile(file) and out.is_file() and os.path.samefile(file, out):
        raise UsageError(f"--out {out} would overwrite {file}, which is read: choose another name")


def check_plot(out: Path | None, *other_suffixes: str) -> None:
    """Raises a UserError if a plot, or a file of another format, could not be written; called before computing it."""
    if out is None:
        return
    check_output(out, (*other_suffixes, *PLOTS))
    if out.suffix.lower() in PLOTS and find_spec("matplotlib") is None:
        raise UserError('plots need matplotlib: pip install "seq2see[plot]"')


@contextmanager
def open_output(out: Path | None) -> Iterator[BinaryIO]:
    """Opens standard output, or a file that appears only when it is complete."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with atomic_write(out) as part, part.open("wb") as output:
        yield output


_has_printed_json = False


def print_json(value: Any, indent: int | None = None) -> None:
    """Prints the one JSON document of a command; NaN and infinities, which JSON has not, become null."""
    global _has_printed_json
    typer.echo(json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, indent=indent))
    _has_printed_json = True


def print_json_error(message: str) -> None:
    """Prints why there is no JSON document, so that standard output with --json is always one."""
    if "--json" in sys.argv and not _has_printed_json:
        print_json({"error": message})


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]], left: Sequence[str] = (), **style: Any) -> "Table":
    """Returns a table without borders; numbers are on the right, the first column and those of `left` on the left."""
    from rich.table import Table

    result = Table(box=None, pad_edge=False, **style)
    for i, heading in enumerate(headings):
        result.add_column(heading, justify="left" if not i or heading in left else "right", no_wrap=True)
    for row in rows:
        result.add_row(*row)
    return result


def print_facts(facts: Mapping[str, str]) -> None:
    """Prints names and values below each other."""
    from rich.table import Table
    from rich.text import Text

    result = Table.grid(padding=(0, 2))
    for fact, value in facts.items():
        result.add_row(Text(fact, "bold"), value)
    terminal().print(result)


@contextmanager
def progress(enabled: bool = True) -> Iterator["ProgressFactory"]:
    """Yields a function that starts a progress bar; bars disappear when done, and are off if stderr is not a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from seq2see.errors import no_progress

    console = terminal(stderr=True)
    if not (enabled and console.is_terminal):  # a disabled bar of rich 14.0 would print an empty line
        yield no_progress
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:

        def start(description: str, total: int | None) -> Callable[[int], None]:
            for task in bars.task_ids:
                bars.remove_task(task)
            task = bars.add_task(description, total=total)
            return lambda count: bars.advance(task, count)

        yield start
