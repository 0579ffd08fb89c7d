"""Markup inside a sentence: taken out before the translation, and put back around the words that it belonged to.

The model sees plain text only. Its cross-attention says which words of the translation come from the words inside an element,
and the element goes around the run of words for which this is most certain. Elements stay nested as they were; two beside each
other may change places, as their words do.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seq2see.data.token_spans import Span
from seq2see.data.word_spans import wordpunct_spans
from seq2see.formats.placeholders import is_markup
from seq2see.inspect.alignment import WordWeights, best_run

_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][\w:-]*).*?(?P<empty>/?)>", re.DOTALL)
_VOID = {"br", "hr", "img", "wbr", "input", "col", "source", "track", "embed", "area"}


@dataclass
class Element:
    """Two marks around the characters start to stop of the plain sentence, or one mark, which stands at `start`."""

    start: int
    opening: str
    stop: int = -1
    closing: str = ""
    children: list["Element"] = field(default_factory=list)


@dataclass(frozen=True)
class MarkedSentence:
    text: str  # without markup
    elements: list[Element] = field(default_factory=list)


class _Placed(NamedTuple):
    """An element in the translation."""

    start: int
    stop: int
    element: Element


def take_out(sentence: str, pattern: re.Pattern[str]) -> MarkedSentence:
    """Separates a sentence from its markup, which is among the placeholders that the pattern matches."""
    text, end = "", 0
    open_lists: list[list[Element]] = [[]]  # of the sentence, and of each open element
    open_elements: list[Element] = []
    for match in pattern.finditer(sentence):
        kind, name = _kind(sentence, match, [_name(element.opening) for element in open_elements])
        if kind == "text":
            continue
        text = _append(text, sentence[end : match.start()])
        end = match.end()
        if kind == "opening":
            open_elements.append(Element(len(text), match[0]))
            open_lists.append([])
            continue
        if kind == "closing":
            while _name(open_elements[-1].opening) != name:
                _leave_open(open_elements, open_lists)
            element = open_elements.pop()
            element.stop, element.closing, element.children = len(text), match[0], open_lists.pop()
        else:
            element = Element(len(text), match[0])
        open_lists[-1].append(element)
    while open_elements:
        _leave_open(open_elements, open_lists)
    return MarkedSentence(_append(text, sentence[end:]).rstrip(), open_lists[0])


def _leave_open(open_elements: list[Element], open_lists: list[list[Element]]) -> None:
    """Makes the last open element, which ends in another sentence or never, a single mark."""
    children = open_lists.pop()
    open_lists[-1] += [open_elements.pop(), *children]


def _append(text: str, part: str) -> str:
    """Appends a part; where markup had spaces on both sides, only one of them is kept."""
    return text + (part.lstrip() if not text or text[-1].isspace() else part)


def _name(opening: str) -> str:
    tag = _TAG.fullmatch(opening)
    return tag["name"].lower() if tag else opening.removeprefix("!")


def _kind(sentence: str, match: re.Match[str], open_names: Sequence[str]) -> tuple[str, str]:
    """Returns whether a mark opens or closes an element, stands alone, or is text, and the element's name."""
    mark = match[0]
    if not is_markup(mark):
        return "text", ""
    if tag := _TAG.fullmatch(mark):
        name = tag["name"].lower()
        if tag["end"]:
            return ("closing" if name in open_names else "single"), name
        return ("single" if tag["empty"] or name in _VOID else "opening"), name
    if mark in ("[", "!["):
        return "opening", "["
    if mark.startswith("]"):
        return ("closing" if "[" in open_names else "single"), "["
    if mark[0] in "*_~":  # emphasis begins before a word and ends after one
        if mark in open_names and not sentence[match.start() - 1].isspace():
            return "closing", mark
        follows = sentence[match.end() :]
        return ("opening" if follows and not follows[0].isspace() and mark in follows else "text"), mark
    return "single", mark


def put_back(marked: MarkedSentence, translation: str, weights: WordWeights) -> str:
    """Returns the translation with the markup of its source; `weights` are the attention between their words."""
    return _Placing(marked.text, translation, weights).render(marked.elements, 0, len(marked.text), 0, len(translation))


class _Placing:
    def __init__(self, source: str, target: str, weights: WordWeights) -> None:
        self.source, self.target, self.weights = source, target, weights
        self.source_words, self.target_words = wordpunct_spans(source), wordpunct_spans(target)

    def render(self, elements: Sequence[Element], begin: int, end: int, first: int, last: int) -> str:
        """Returns target[first:last], which has the source characters begin:end, with these elements in it."""
        placed: list[_Placed] = []
        for element in sorted(elements, key=lambda each: not each.closing):  # those around words first
            placed.append(self._place(element, begin, end, first, last, placed))
        order = {id(element): i for i, element in enumerate(elements)}
        text, at = "", first
        for start, stop, element in sorted(placed, key=lambda p: (p.start, p.stop, order[id(p.element)])):
            text += self.target[at:start] + element.opening
            if element.closing:
                text += self.render(element.children, element.start, element.stop, start, stop) + element.closing
            at = stop
        return text + self.target[at:last]

    def _place(
        self, element: Element, begin: int, end: int, first: int, last: int, placed: Sequence[_Placed]
    ) -> _Placed:
        if not element.closing or not self.source[element.start : element.stop].strip():
            return self._place_single(element, begin, end, first, last, placed)
        if not (self.source[begin : element.start] + self.source[element.stop : end]).strip():
            return _Placed(first, last, element)  # around everything
        copied = self._copied(element, first, last)
        if copied and not any(copied[0] < p.stop and p.start < copied[1] for p in placed):
            return _Placed(*copied, element)
        runs = self._free_runs(first, last, placed)
        inside = self._words(element.start, element.stop)
        if not runs or not inside:
            return self._place_single(element, begin, end, first, last, placed)
        start, stop = best_run(self.weights, runs, inside)
        return _Placed(self.target_words[start][0], self.target_words[stop][1], element)

    def _free_runs(self, first: int, last: int, placed: Sequence[_Placed]) -> list[list[int]]:
        """Returns the runs of words in target[first:last] that an element can go around without crossing another one."""
        runs: list[list[int]] = []
        end = -1  # of the last run
        for j, (start, stop) in enumerate(self.target_words):
            if start < first or stop > last or any(start < p.stop and p.start < stop for p in placed):
                continue
            if runs and runs[-1][-1] == j - 1 and not any(end <= p.start <= start for p in placed):
                runs[-1].append(j)
            else:
                runs.append([j])
            end = stop
        return runs

    def _words(self, start: int, stop: int) -> list[int]:
        """Returns the source words that overlap a range."""
        return [i for i, (a, b) in enumerate(self.source_words) if a < stop and start < b]

    def _copied(self, element: Element, first: int, last: int) -> Span | None:
        """Returns where the words of an element, whole or in part, stand unchanged in the translation, if only once."""
        words = self._words(element.start, element.stop)
        if not words:
            return None
        begin, end = self.source_words[words[0]][0], self.source_words[words[-1]][1]
        text = self.source[begin:end]
        if not any(map(str.isalnum, text)) or self.target.count(text, first, last) != 1:
            return None
        at = self.target.index(text, first, last) - begin
        return at + max(element.start, begin), at + min(element.stop, end)

    def _place_single(
        self, element: Element, begin: int, end: int, first: int, last: int, placed: Sequence[_Placed]
    ) -> _Placed:
        """Places a mark before the word that follows it, or after the word before it, outside of what is placed already."""
        if not self.source[begin : element.start].strip():
            at, is_before = first, True
        elif not self.source[element.start : end].strip():
            at, is_before = last, False
        else:
            at, is_before = self._beside_word(element.start, first, last)
        for start, stop, _ in placed:
            if start < at < stop:
                at = start if is_before else stop
        return _Placed(at, at, element)

    def _beside_word(self, position: int, first: int, last: int) -> tuple[int, bool]:
        """Returns where a position of the source is in the translation, and whether it is before a word or after one."""
        targets = [j for j, (start, stop) in enumerate(self.target_words) if first <= start and stop <= last]
        is_before = self.source[position - 1].isspace() or not self.source[position].isspace()
        sources = [i for i, (_, stop) in enumerate(self.source_words) if (stop > position) == is_before]
        if not targets or not sources:
            return last, False
        word = sources[0] if is_before else sources[-1]
        best = max(targets, key=lambda j: float(self.weights[j, word]))
        return self.target_words[best][0 if is_before else 1], is_before
