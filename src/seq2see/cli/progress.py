"""A bar on stderr for whatever takes long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2see.text.check.statistics import Watch


@contextmanager
def progress(wanted: bool = True) -> Iterator["Watch"]:
    """A bar for each piece of work, gone when it is done; nothing where stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal)) as bars:

        def watch(what: str, size: int | None) -> Callable[[int], None]:
            for task in bars.task_ids:
                bars.remove_task(task)
            task = bars.add_task(what, total=size)
            return lambda count: bars.advance(task, count)

        yield watch
