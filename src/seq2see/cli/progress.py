"""Progress bars on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2see.text.check.statistics import ProgressFactory


@contextmanager
def progress(enabled: bool = True) -> Iterator["ProgressFactory"]:
    """Yields a function that starts a progress bar; bars disappear when done, and are off if stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as bars:

        def start(description: str, total: int | None) -> Callable[[int], None]:
            for task in bars.task_ids:
                bars.remove_task(task)
            task = bars.add_task(description, total=total)
            return lambda count: bars.advance(task, count)

        yield start
