"""Progress bars on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2see.errors import ProgressFactory


@contextmanager
def progress(enabled: bool = True) -> Iterator["ProgressFactory"]:
    """Yields a function that starts a progress bar; bars disappear when done, and are off if stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from seq2see.errors import no_progress

    console = Console(stderr=True)
    if not (enabled and console.is_terminal):  # a disabled bar of rich 14.0 would print an empty line
        yield no_progress
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:

        def start(description: str, total: int | None) -> Callable[[int], None]:
            for task in bars.task_ids:
                bars.remove_task(task)
            task = bars.add_task(description, total=total)
            return lambda count: bars.advance(task, count)

        yield start
