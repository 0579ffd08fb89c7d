"""The one exception that is meant for a person.

Anything a user can put right (a wrong option, a broken file, a full disk) is raised as a `UserError`; the command line
prints its single line and exits. Every other exception is a fault of ours and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """One line: what is wrong, where, and what to do about it."""

    exit_code = 1


class UsageError(UserError):
    """The command was called in a way that cannot be meant."""

    exit_code = 2


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message that names the known word nearest to a wrong one, or else lists them all."""
    known = list(known)
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"known: {', '.join(known)}"
