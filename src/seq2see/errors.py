"""What the user is told: errors, notices and progress.

Anything the user can fix (a wrong option, a broken file, a full disk) is raised as a `UserError`; the command line prints
its message and exits. Any other exception is a bug and keeps its traceback.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

MAX_LENGTH = 1000  # characters of an error


class UserError(Exception):
    """One line: what is wrong, where, and how to fix it."""

    exit_code = 1

    def __str__(self) -> str:
        text = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", super().__str__())  # which may quote what a file contains
        return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 300]} … {text[-200:]}"


class UsageError(UserError):
    """Invalid command-line usage."""

    exit_code = 2


class Notice(UserWarning):
    """A one-line warning for the user; the command line prints it to stderr."""


@contextmanager
def foreign(failure: str) -> Iterator[None]:
    """The boundary around files and libraries of others: whatever goes wrong in the block is a UserError of one line.

    Also a panic of a library in Rust, whose exception is no `Exception`. Interruptions and a lack of memory pass.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{failure}: {type(error).__name__}: {' '.join(str(error).split())[:200]}") from error


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: the closest known word, or a list of all of them."""
    known = list(known)
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"known: {', '.join(known)}"


def terminal(**options: Any) -> "Console":
    """Returns a console on which text is what it says: brackets in it are never markup, and colons never emoji."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, **options)


# Starts a progress bar for a task and its size in bytes, if known; the result advances the bar.
ProgressFactory = Callable[[str, int | None], Callable[[int], None]]


def no_progress(task: str, size: int | None) -> Callable[[int], None]:
    """A `ProgressFactory` that shows nothing."""
    return lambda count: None
