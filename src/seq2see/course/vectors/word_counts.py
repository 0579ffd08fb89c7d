"""A text as numbers: which words it has, how often, and in what order.

A word is a run of letters, digits and the marks that go with them (so that Devanagari's vowel signs stay inside), with
apostrophes between letters; all else parts words. The whole text is held as one number a word, four bytes each.
"""

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from seq2see.errors import UserError


@dataclass(frozen=True)
class Reading:
    """The words that occur often enough, the most frequent first, and the text without all others."""

    words: tuple[str, ...]
    counts: Tensor  # [words]
    ids: Tensor  # [tokens]
    documents: Tensor  # [tokens]: the number of the document that each stands in
    document_count: int
    lower: bool


@cache
def _pattern() -> re.Pattern[str]:
    marks = [chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)).startswith("M")]
    letter = f"(?:[^\\W_]|[{''.join(marks)}\u200c\u200d])"
    return re.compile(f"{letter}+(?:['’]{letter}+)*")


def split(text: str, lower: bool = True) -> list[str]:
    """The words of a text, in order; `’` is taken for `'`."""
    found: list[str] = _pattern().findall((text.lower() if lower else text).replace("’", "'"))
    return found


class _Numbers(dict[str, int]):
    """Gives every new word the next number."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return len(self) - 1


def read(
    documents: Iterable[str], min_count: int = 1, lower: bool = True, progress: Callable[[int], object] = lambda _: None
) -> Reading:
    """Reads each document once; `progress` is told its letters."""
    numbers, ids, lengths = _Numbers(), array("i"), array("q")
    for document in documents:
        before = len(ids)
        ids.extend(map(numbers.__getitem__, split(document, lower)))
        lengths.append(len(ids) - before)
        progress(len(document))
    if not ids:
        raise UserError(f"no word in the text: {len(lengths):,} documents, none with a letter or a digit in it")
    text = np.frombuffer(ids, dtype=np.int32)
    counts = np.bincount(text, minlength=len(numbers))
    order = np.argsort(-counts, kind="stable")  # of equally frequent words, the one that came first
    order = order[counts[order] >= min_count]
    if len(order) < 2:
        raise UserError(
            f"too few words: {len(order)} of the {len(numbers):,} different ones occur at least {min_count} times; "
            f"give more text{', or a lower --min-count' * (min_count > 1)}"
        )
    rank = np.full(len(numbers), -1, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    ranked = rank[text]
    places = np.repeat(np.arange(len(lengths), dtype=np.int32), np.frombuffer(lengths, dtype=np.int64))
    known = list(numbers)
    return Reading(
        tuple(known[i] for i in order),
        torch.from_numpy(counts[order].astype(np.int64)),
        torch.from_numpy(ranked[ranked >= 0]),
        torch.from_numpy(places[ranked >= 0]),
        len(lengths),
        lower,
    )
