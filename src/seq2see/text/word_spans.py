"""Where the words of a text stand: what word alignments count.

Two ways of counting are in use: commas and final marks as words of their own, as in the built-in corpus, and whatever
stands between spaces, as in gold alignments of text that was tokenized beforehand.
"""

import re
from collections.abc import Callable

from seq2see.text.token_spans import Span

MARKS = ".,?!।"
_APART = re.compile(rf"[^\s{MARKS}]+|[{MARKS}]")
_SPACED = re.compile(r"\S+")

Split = Callable[[str], list[Span]]


def marks_apart(text: str) -> list[Span]:
    """Words between spaces, with commas and final marks as words of their own."""
    return [match.span() for match in _APART.finditer(text)]


def spaced(text: str) -> list[Span]:
    """Whatever stands between spaces."""
    return [match.span() for match in _SPACED.finditer(text)]


def words(text: str) -> list[str]:
    """The words of `marks_apart`."""
    return _APART.findall(text)
