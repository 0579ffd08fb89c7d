"""The spans of the words in a text, as counted by word alignments.

Two conventions are in use: punctuation marks as separate words, as in the built-in corpus, and whitespace-separated
words, as in gold alignments of text that was tokenized beforehand.
"""

import re
from collections.abc import Callable

from seq2see.data.token_spans import Span

PUNCTUATION = ".,?!।"
_WORDPUNCT = re.compile(rf"[^\s{PUNCTUATION}]+|[{PUNCTUATION}]")
_NON_WHITESPACE = re.compile(r"\S+")

WordSplitter = Callable[[str], list[Span]]


def wordpunct_spans(text: str) -> list[Span]:
    """Returns the spans of whitespace-separated words, with commas and final marks as separate words."""
    return [match.span() for match in _WORDPUNCT.finditer(text)]


def whitespace_spans(text: str) -> list[Span]:
    """Returns the spans of whitespace-separated words."""
    return [match.span() for match in _NON_WHITESPACE.finditer(text)]


def split_words(text: str) -> list[str]:
    """Returns the words at `wordpunct_spans`."""
    return _WORDPUNCT.findall(text)
