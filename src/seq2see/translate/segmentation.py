"""Sentences out of running text, and the text again around their translations.

A translator learns from sentences, so a paragraph goes through it sentence by sentence. `split` finds them, in English
and in scripts with a danda; what stands between two sentences stands between their translations. `cut` makes parts of a
sentence that no model could take whole, and `fold` lays a text over lines as another one lay.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from seq2see.text.token_spans import cut_points

Span = tuple[int, int]

_FULL = "।॥۔。！？؟"  # nothing but the end of a sentence; not every script puts a space behind it
_CLOSING = "\"'”’»)\\]}*_"
_ENDS = re.compile(rf"[.?!…{_FULL}]+[{_CLOSING}]*")
_NEXT = re.compile(r"\s*[\"'“‘«(\[{*_¿¡-]*")
_VERSE = re.compile(r"\s*\d+\s*॥")
_WORD = re.compile(r"[^\s\"'“‘«(\[{*_—/-]*$")
_CAPITALISED = re.compile(r"[A-Z]\w*+(?!\.)")
_INITIALS = re.compile(r"[A-HJ-Z]|[^\W\d_]{1,2}(?:\.[^\W\d_]{1,2})+")  # J, U.S, Ph.D; but "so did I." ends
_CLAUSE = re.compile(r"[,;:،、—–](?=\s)")
_SPACE = re.compile(r"(?=\s)")
_LONGEST_WORD = 32  # characters to look back for an abbreviation
_LETTER = 32  # characters of what a reader takes for one letter, at most
_CHARACTERS = 8  # of a token, at most, on average: so much is looked at to find where a part ends


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name or a number, never last in a sentence.
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
class Split:
    """A text as the sentences in it and what stands before, between and behind them."""

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]  # one more

    @classmethod
    def of(cls, text: str, spans: Sequence[Span]) -> Self:
        edges = [0, *(place for span in spans for place in span), len(text)]
        gaps = tuple(text[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2))
        return cls(tuple(text[start:end] for start, end in spans), gaps)

    def join(self, translations: Sequence[str]) -> str:
        parts = [self.gaps[0]]
        for translation, gap in zip(translations, self.gaps[1:], strict=True):
            parts += translation, gap
        return "".join(parts)


def split(text: str, whole: Sequence[Span] = ()) -> Split:
    """The sentences of a text. None ends inside a span of `whole`; every one ends at a line feed."""
    return Split.of(text, list(sentence_spans(text, whole)))


def sentence_spans(text: str, whole: Sequence[Span] = ()) -> Iterator[Span]:
    for line in re.finditer(r"[^\n]+", text):
        start, stop = _trimmed(text, *line.span())
        for mark in _ENDS.finditer(text, start, stop):
            if start < mark.end() < stop and not _within(mark.end(), whole) and _is_end(text, start, mark):
                yield start, mark.end()
                start, _ = _trimmed(text, mark.end(), stop)
        if start < stop:
            yield start, stop


def _within(place: int, spans: Sequence[Span]) -> bool:
    """Whether a cut there would go through one of the spans, which are in order."""
    before = bisect_right(spans, place - 1, key=lambda span: span[0]) - 1
    return before >= 0 and place < spans[before][1]


def _trimmed(text: str, start: int, stop: int) -> Span:
    """The same span without white space around it."""
    while start < stop and text[start].isspace():
        start += 1
    while start < stop and text[stop - 1].isspace():
        stop -= 1
    return start, stop


def _is_end(text: str, start: int, mark: re.Match[str]) -> bool:
    marks = mark[0]
    if any(character in _FULL for character in marks):
        return not _VERSE.match(text, mark.end())
    if not text[mark.end()].isspace():
        return False
    ahead = _NEXT.match(text, mark.end())
    after = ahead.end() if ahead else mark.end()
    if text[after : after + 1].islower():
        return False
    return marks[0] != "." or marks[:2] == ".." or _is_full_stop(text, start, mark.start(), after)


def _is_full_stop(text: str, start: int, stop: int, after: int) -> bool:
    """Whether the one full stop at `stop` ends its sentence, rather than an abbreviation in it."""
    found = _WORD.search(text[max(start, stop - _LONGEST_WORD) : stop])
    word = found[0] if found else ""
    if stop - start < _LONGEST_WORD and text[start:stop].strip("([").isdecimal():  # "1." of a list
        return False
    if word.lower() in _TITLES:
        return False
    if word.lower() in _NUMBERED:
        return not text[after : after + 1].isdecimal()
    if _INITIALS.fullmatch(word):
        # J. Smith, U.S. Army; but: made in the U.S. The rest is not.
        following = _CAPITALISED.match(text, after)
        return following is not None and following[0] in _STARTERS
    return True


def cut(text: str, count: Callable[[str], int], most: int, whole: Sequence[Span] = ()) -> list[Span]:
    """Spans of a sentence that count at most `most` each: cut after a clause, else at a word, else where it must be.

    No step looks at more of the text than a part may have, so that a million characters are no trouble.
    """
    spans = []
    start, stop = _trimmed(text, 0, len(text))
    while start < stop:
        end = start + most * _CHARACTERS
        end = _boundary(text, start, end, whole) if end < stop else stop
        while end - start > 1 and (counted := count(text[start:end])) > most:
            shorter = min(end - start - 1, (end - start) * most // counted)
            end = _boundary(text, start, start + max(1, shorter), whole)
        _, trimmed = _trimmed(text, start, end)
        spans.append((start, trimmed))
        start, _ = _trimmed(text, end, stop)
    return spans


def _boundary(text: str, start: int, end: int, whole: Sequence[Span]) -> int:
    """The best place to cut at or before `end`: a clause in the second half, else any space, else between letters."""
    window = text[start : end + 1]  # a space right behind is a place to cut, too
    for mark, least in ((_CLAUSE, (end - start) // 2), (_SPACE, 0)):
        places = [start + found.end() for found in mark.finditer(window) if found.end() > least]
        places = [place for place in places if place <= end and not _within(place, whole)]
        if places:
            return places[-1]
    tail = max(start, end - _LETTER)
    return tail + max(
        (place for place in cut_points(text[tail : end + 1]) if 0 < place <= end - tail), default=end - tail
    )


def fold(text: str, like: Sequence[str]) -> list[str]:
    """A text over at most as many lines as `like` has, each with the share of the text that its line had; none empty."""
    text = text.strip()
    whole = sum(map(len, like)) + len(like) - 1
    lines = []
    start, reach = 0, -1
    for line in like[:-1]:
        reach += len(line) + 1
        goal = reach * len(text) // whole
        after, before = text.find(" ", max(goal, start)), text.rfind(" ", start, goal + 1)
        places = [place for place in (before, after) if place > start]
        if not places:
            break
        place = min(places, key=lambda place: abs(place - goal))
        lines.append(text[start:place].rstrip())
        start, _ = _trimmed(text, place, len(text))
    return [*lines, text[start:]]
