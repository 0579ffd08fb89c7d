"""Splits running text into sentences, and puts the text back together around their translations.

A translation model learns from sentences, so a paragraph goes through it sentence by sentence. `sentence_spans` handles
English and scripts with a danda; the text between two sentences is kept between their translations.
`split_long_sentence` divides a sentence that exceeds the model's maximum length.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from seq2see.data.token_spans import grapheme_boundaries

Span = tuple[int, int]

_TERMINATORS = "।॥۔。！？؟"  # always end a sentence; not every script puts a space after them
_TRIMMED = re.compile(r"\S(?:.*\S)?", re.DOTALL)  # without the whitespace around it
_CLOSING = "\"'”’»)\\]}*_"
_ENDS = re.compile(rf"[.?!…{_TERMINATORS}]+[{_CLOSING}]*")
_NEXT = re.compile(r"\s*[\"'“‘«(\[{*_¿¡-]*")
_VERSE = re.compile(r"\s*\d+\s*॥")
_WORD = re.compile(r"[^\s\"'“‘«(\[{*_—/-]*$")
_CAPITALIZED = re.compile(r"[A-Z]\w*+(?!\.)")
_INITIALS = re.compile(r"[A-HJ-Z]|[^\W\d_]{1,2}(?:\.[^\W\d_]{1,2})+")  # J, U.S, Ph.D; but "so did I." ends a sentence
_CLAUSE = re.compile(r"[,;:،、—–](?=\s)")
_SPACE = re.compile(r"(?=\s)")
_MAX_WORD = 32  # characters to look back for an abbreviation
_MAX_GRAPHEME = 32  # characters of a grapheme cluster
_CHARACTERS_PER_TOKEN = 8  # upper bound of the average; limits how far ahead a split looks


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations that precede a name or a number and never end a sentence.
_TITLES = _words(
    "mr mrs ms messrs dr prof st gen col lt sgt capt cmdr adm rev fr hon gov sen rep pres supt mt ft "
    "e.g i.e cf vs viz approx ca डॉ डा प्रो श्री श्रीमती पं रु स्व मो "
    "ए बी सी डी ई एफ एच जे के एल एम एन ओ पी क्यू आर एस टी यू वी डब्ल्यू एक्स वाई"  # initials
)
_NUMBERED = _words("no nos fig figs vol vols ch chap sec art eq p pp pt ed para क्र सं पृ")
_STARTERS = _words(
    "A After All Also An And Another As At Because Before But By Each Every For From He Her Here His How However I If In "
    "It Its Later Many My No Now On One Other Our She Since So Some Still That The Their Then There These They This Those "
    "Though Thus To Today Under Until We What When Where Which While Who Why With Yet You Your"
)


@dataclass(frozen=True)
class SplitText:
    """The sentences of a text, and the gaps before, between and after them."""

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]  # one more than sentences

    @classmethod
    def from_spans(cls, text: str, spans: Sequence[Span]) -> Self:
        edges = [0, *(edge for span in spans for edge in span), len(text)]
        gaps = tuple(text[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2))
        return cls(tuple(text[start:end] for start, end in spans), gaps)

    def join(self, translations: Sequence[str]) -> str:
        parts = [self.gaps[0]]
        for translation, gap in zip(translations, self.gaps[1:], strict=True):
            parts += translation, gap
        return "".join(parts)


def sentence_spans(text: str, protected: Sequence[Span] = ()) -> Iterator[Span]:
    """Yields where the sentences of a text are. Each ends at a line feed at the latest, but none inside a protected span."""
    feeds = [feed.start() for feed in re.finditer("\n", text) if not _span_around(feed.start(), protected)]
    for begin, end in pairwise([-1, *feeds, len(text)]):
        if not (line := _TRIMMED.search(text, begin + 1, end)):
            continue
        start, stop = line.span()
        for mark in _ENDS.finditer(text, start, stop):
            if (
                start < mark.end() < stop
                and not _span_around(mark.end(), protected)
                and _is_sentence_end(text, start, mark)
            ):
                yield start, mark.end()
                start, _ = _trim(text, mark.end(), stop)
        yield start, stop


def _span_around(position: int, spans: Sequence[Span]) -> Span | None:
    """Returns which of the spans, which are sorted, a split at this position would divide."""
    before = bisect_right(spans, position - 1, key=lambda span: span[0]) - 1
    return spans[before] if before >= 0 and position < spans[before][1] else None


def _trim(text: str, start: int, stop: int) -> Span:
    """Returns the span without the whitespace around it."""
    while start < stop and text[start].isspace():
        start += 1
    while start < stop and text[stop - 1].isspace():
        stop -= 1
    return start, stop


def _is_sentence_end(text: str, start: int, mark: re.Match[str]) -> bool:
    marks = mark[0]
    if any(character in _TERMINATORS for character in marks):
        return not _VERSE.match(text, mark.end())
    if not text[mark.end()].isspace():
        return False
    ahead = _NEXT.match(text, mark.end())
    after = ahead.end() if ahead else mark.end()
    if text[after : after + 1].islower():
        return False
    return marks[0] != "." or marks[:2] == ".." or _is_full_stop(text, start, mark.start(), after)


def _is_full_stop(text: str, start: int, stop: int, after: int) -> bool:
    """Returns whether the full stop at `stop` ends a sentence rather than an abbreviation."""
    found = _WORD.search(text[max(start, stop - _MAX_WORD) : stop])
    word = found[0] if found else ""
    if stop - start < _MAX_WORD and text[start:stop].strip("([").isdecimal():  # "1." of a list
        return False
    if word.lower() in _TITLES:
        return False
    if word.lower() in _NUMBERED:
        return not text[after : after + 1].isdecimal()
    if _INITIALS.fullmatch(word):
        # "J. Smith", "U.S. Army"; but "made in the U.S. The rest is not" is two sentences.
        following = _CAPITALIZED.match(text, after)
        return following is not None and following[0] in _STARTERS
    return True


def split_long_sentence(
    text: str, count_tokens: Callable[[str], int], max_tokens: int, protected: Sequence[Span] = ()
) -> list[Span]:
    """Splits a sentence into spans of at most `max_tokens`: after a clause, else at a space, else between graphemes.

    A protected span that is longer becomes a span of its own. Each step looks at no more text than a span may have, so the time
    is linear in the length of the text.
    """
    spans = []
    start, stop = _trim(text, 0, len(text))
    while start < stop:
        end = start + max_tokens * _CHARACTERS_PER_TOKEN
        end = _split_point(text, start, end, protected) if end < stop else stop
        while end - start > 1 and (tokens := count_tokens(text[start:end])) > max_tokens:
            shorter = max(1, min(end - start - 1, (end - start) * max_tokens // tokens))
            point = _split_point(text, start, start + shorter, protected)
            if point >= end:  # one protected span
                break
            end = point
        _, trimmed = _trim(text, start, end)
        spans.append((start, trimmed))
        start, _ = _trim(text, end, stop)
    return spans


def _split_point(text: str, start: int, end: int, protected: Sequence[Span]) -> int:
    """Returns the best split at or before `end`: a clause in the second half, else any space, else between graphemes.

    If all of this is in one protected span, the split is after it.
    """
    window = text[start : end + 1]  # includes a space right after `end`
    for pattern, minimum in ((_CLAUSE, (end - start) // 2), (_SPACE, 0)):
        points = [start + match.end() for match in pattern.finditer(window) if match.end() > minimum]
        points = [point for point in points if point <= end and not _span_around(point, protected)]
        if points:
            return points[-1]
    tail = max(start, end - _MAX_GRAPHEME)
    boundaries = (point for point in grapheme_boundaries(text[tail : end + 1]) if 0 < point <= end - tail)
    point = tail + max(boundaries, default=end - tail)
    first, last = _span_around(point, protected) or (point, point)
    return first if first > start else last
