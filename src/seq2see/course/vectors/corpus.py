"""A text as word ids: its vocabulary, the frequency of each word, and the sequence of words.

A word is a run of letters, digits and combining marks (Devanagari vowel signs stay inside), with apostrophes between
letters. The whole text is held in memory as one 32-bit id per word.
"""

import re
import unicodedata
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from seq2see.errors import UserError


@dataclass(frozen=True)
class Corpus:
    """The words that occur at least `min_count` times, most frequent first, and the text without all others."""

    words: tuple[str, ...]
    counts: Tensor  # [words]
    ids: Tensor  # [tokens]
    document_ids: Tensor  # [tokens]: index of the document of each token
    document_count: int
    lowercase: bool


@cache
def _pattern() -> re.Pattern[str]:
    marks = [chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)).startswith("M")]
    letter = f"(?:[^\\W_]|[{''.join(marks)}\u200c\u200d])"
    return re.compile(f"{letter}+(?:['’]{letter}+)*")


def split_words(text: str, lowercase: bool = True) -> list[str]:
    """Splits a text into words; replaces `’` by `'`."""
    words: list[str] = _pattern().findall((text.lower() if lowercase else text).replace("’", "'"))
    return words


class _WordIds(dict[str, int]):
    """Assigns the next id to every new word."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return len(self) - 1


def read_corpus(documents: Iterable[str], min_count: int = 1, lowercase: bool = True) -> Corpus:
    """Reads each document once."""
    word_ids, ids, lengths = _WordIds(), array("i"), array("q")
    for document in documents:
        start = len(ids)
        ids.extend(map(word_ids.__getitem__, split_words(document, lowercase)))
        lengths.append(len(ids) - start)
    if not ids:
        raise UserError(f"the text has no words: {len(lengths):,} documents, none with a letter or a digit")
    text = np.frombuffer(ids, dtype=np.int32)
    counts = np.bincount(text, minlength=len(word_ids))
    order = np.argsort(-counts, kind="stable")  # ties in order of first occurrence
    order = order[counts[order] >= min_count]
    if len(order) < 2:
        raise UserError(
            f"too few words: {len(order)} of the {len(word_ids):,} different ones occur at least {min_count} times; "
            f"give more text{', or a lower --min-count' * (min_count > 1)}"
        )
    rank = np.full(len(word_ids), -1, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    ranked = rank[text]
    document_ids = np.repeat(np.arange(len(lengths), dtype=np.int32), np.frombuffer(lengths, dtype=np.int64))
    words = list(word_ids)
    return Corpus(
        tuple(words[i] for i in order),
        torch.from_numpy(counts[order].astype(np.int64)),
        torch.from_numpy(ranked[ranked >= 0]),
        torch.from_numpy(document_ids[ranked >= 0]),
        len(lengths),
        lowercase,
    )
