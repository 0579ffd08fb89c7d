"""Markup inside a text: taken out before the translation, and put back around the words that it belonged to.

The model sees plain text only, which is split into sentences without regard to markup. Cross-attention says which words of a
translation come from the words inside an element, and the element goes around the run of words for which this is most certain.
Elements stay nested as they were; two beside each other may change places, as their words do.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from seq2see.data.token_spans import Span
from seq2see.data.word_spans import wordpunct_spans
from seq2see.formats.placeholders import is_markup
from seq2see.inspect.alignment import WordWeights, best_run
from seq2see.translate.translator import Sentence

_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][\w:-]*).*?(?P<empty>/?)>", re.DOTALL)
_VOID = {"br", "hr", "img", "wbr", "input", "col", "source", "track", "embed", "area"}


@dataclass
class Mark:
    """A piece of markup, such as a tag."""

    span: Span  # in the text
    at: int  # in the text without markup
    is_end: bool  # of an element
    partner: int = -1  # the index of the mark at the other end, if that is in the text


@dataclass
class Element:
    """Two marks around the characters start to stop of the plain sentence, or marks without words, which stand at `start`."""

    start: int
    opening: str
    stop: int = -1
    closing: str = ""
    children: list["Element"] = field(default_factory=list)
    keeps_order: bool = False  # one end of an element: its other end is elsewhere, and such elements must not cross


@dataclass(frozen=True)
class MarkedSentence(Sentence):
    """A sentence with the marks between its words, and those around some of its words."""

    raw: str
    elements: Sequence[Element] = ()
    before: str = ""  # whitespace between its first mark and its words
    after: str = ""


@dataclass
class MarkedText:
    """A text, and the same without its markup."""

    raw: str
    text: str = ""
    marks: list[Mark] = field(default_factory=list)
    protected: list[Span] = field(default_factory=list)  # the other placeholders, in `text`
    pieces: list[Span] = field(default_factory=list)  # where each piece between marks begins in `text` and in `raw`

    def sentence(self, start: int, stop: int) -> MarkedSentence:
        """Returns the sentence text[start:stop]. Marks at its edges that belong to all of its words, or none, stay outside."""
        first, last = self._marks_of(start, stop)
        begin, end = self._position(start), self._position(stop - 1) + 1
        if first == last:
            return MarkedSentence((begin, end), self.text[start:stop], self.raw[begin:end])
        begin, end = min(begin, self.marks[first].span[0]), max(end, self.marks[last - 1].span[1])
        return MarkedSentence(
            (begin, end),
            self.text[start:stop],
            self.raw[begin:end],
            self._elements(first, last, start, stop),
            self.text[self.marks[first].at : start],
            self.text[stop : self.marks[last - 1].at],
        )

    def _position(self, index: int) -> int:
        """Returns where a character of the plain text is in the text."""
        at, position = self.pieces[bisect_right(self.pieces, index, key=lambda piece: piece[0]) - 1]
        return position + index - at

    def _marks_of(self, start: int, stop: int) -> Span:
        """Returns the first of the marks that belong to a sentence, and the one after the last."""
        left, right = start, stop  # with the whitespace around it
        while left and self.text[left - 1].isspace():
            left -= 1
        while right < len(self.text) and self.text[right].isspace():
            right += 1
        first, last = bisect_left(self.marks, left, key=_at), bisect_right(self.marks, right, key=_at)
        needed = [
            i
            for i, mark in enumerate(self.marks[first:last], first)
            if start < mark.at < stop or (mark.partner >= 0 and start < self.marks[mark.partner].at < stop)
        ]
        return (needed[0], needed[-1] + 1) if needed else (first, first)

    def _elements(self, first: int, last: int, start: int, stop: int) -> list[Element]:
        """Builds the elements of the marks first:last. Marks with nothing between them are one, where the nesting allows it."""
        lists: list[list[Element]] = [[]]  # of the sentence, and of each open element
        open_elements: list[tuple[Element, int, int]] = []  # with the range of their closing marks
        i = first
        while i < last:
            end, at = i + 1, min(max(self.marks[i].at, start), stop) - start
            if open_elements and i == open_elements[-1][1]:
                element, _, end = open_elements.pop()
                element.stop, element.closing, element.children = at, self._source(i, end), lists.pop()
                lists[-1].append(element)
            elif self._opens(i, last):
                while end < last and self._opens(end, last) and self._is_around(end - 1, end):
                    end += 1
                element = Element(at, self._source(i, end))
                open_elements.append((element, self.marks[end - 1].partner, self.marks[i].partner + 1))
                lists.append([])
            else:
                closing = open_elements[-1][1] if open_elements else last
                while end < closing and self.marks[end].at == self.marks[i].at and not self._opens(end, last):
                    end += 1
                is_cut = any(each.is_end and not first <= each.partner < last for each in self.marks[i:end])
                lists[-1].append(Element(at, self._source(i, end), keeps_order=is_cut))
            i = end
        return lists[0]

    def _opens(self, i: int, last: int) -> bool:
        """Returns whether a mark opens an element that has text and ends in the same sentence."""
        partner = self.marks[i].partner
        return i < partner < last and self.marks[partner].at > self.marks[i].at

    def _is_around(self, i: int, j: int) -> bool:
        """Returns whether nothing is between two elements, of which the second is in the first."""
        outer, inner = self.marks[i], self.marks[j]
        ends = self.marks[outer.partner], self.marks[inner.partner]
        return outer.at == inner.at and ends[0].at == ends[1].at and outer.partner == inner.partner + 1

    def _source(self, i: int, end: int) -> str:
        return self.raw[self.marks[i].span[0] : self.marks[end - 1].span[1]]


def _at(mark: Mark) -> int:
    return mark.at


def take_out(text: str, pattern: re.Pattern[str], is_taken: bool = True) -> MarkedText:
    """Separates a text from its markup, which is among the placeholders that the pattern matches."""
    matches = list(pattern.finditer(text))
    following = Counter(match[0] for match in matches)
    found = MarkedText(text)
    parts: list[str] = []
    length = end = 0
    open_marks: list[tuple[str, int]] = []  # the names of open elements, and the indices of their marks
    open_names: Counter[str] = Counter()

    def add(start: int, stop: int) -> None:
        """Adds a part; where markup had spaces on both sides, only one of them is kept."""
        nonlocal length
        part = text[start:stop]
        if not parts or parts[-1][-1].isspace():
            part = part.lstrip()
        if part:
            found.pieces.append((length, stop - len(part)))
            parts.append(part)
            length += len(part)

    for match in matches:
        following[match[0]] -= 1
        kind, name = _kind(match, open_names, following[match[0]] > 0) if is_taken else ("text", "")
        add(end, match.start())
        end = match.end()
        if kind == "text":
            found.protected.append((length, length + len(match[0])))
            add(match.start(), end)
            continue
        index = len(found.marks)
        found.marks.append(Mark(match.span(), length, kind != "single"))
        if kind == "opening":
            open_marks.append((name, index))
            open_names[name] += 1
        while (
            kind == "closing" and open_names[name]
        ):  # an element within, which ends in another text or never, leaves a single mark
            inner, opening = open_marks.pop()
            open_names[inner] -= 1
            if inner == name:
                found.marks[opening].partner, found.marks[index].partner = index, opening
                break
    add(end, len(text))
    found.text = "".join(parts)
    return found


def _kind(match: re.Match[str], open_names: Counter[str], comes_again: bool) -> tuple[str, str]:
    """Returns whether a mark opens or closes an element, stands alone, or is text, and the element's name."""
    mark = match[0]
    if not is_markup(mark):
        return "text", ""
    if tag := _TAG.fullmatch(mark):
        name = tag["name"].lower()
        if tag["end"]:
            return "closing", name
        return ("single" if tag["empty"] or name in _VOID else "opening"), name
    if mark in ("[", "!["):
        return "opening", "["
    if mark.startswith("]"):
        return "closing", "["
    if mark[0] in "*_~":  # emphasis begins before a word and ends after one
        if open_names[mark] and not match.string[match.start() - 1].isspace():
            return "closing", mark
        is_before_word = match.end() < len(match.string) and not match.string[match.end()].isspace()
        return ("opening" if is_before_word and comes_again else "text"), mark
    return "single", mark


def put_back(sentence: MarkedSentence, translation: str, weights: WordWeights) -> str:
    """Returns the translation with the markup of its source; `weights` are the attention between their words."""
    return sentence.before + _Placing(sentence.text, translation, weights).render(sentence.elements) + sentence.after


_Placed = tuple[int, int, int]  # where an element starts and stops in the translation, and its index


class _Placing:
    def __init__(self, source: str, target: str, weights: WordWeights) -> None:
        self.source, self.target, self.weights = source, target, weights
        words = wordpunct_spans(source), wordpunct_spans(target)
        self.source_starts, self.target_starts = ([start for start, _ in each] for each in words)
        self.source_stops, self.target_stops = ([stop for _, stop in each] for each in words)

    def render(self, elements: Sequence[Element]) -> str:
        """Returns the translation with the elements in it."""
        text: list[str] = []
        at = 0
        root = Element(0, "", len(self.source), "", list(elements))
        levels = [(root, len(self.target), self._place_all(root, 0, len(self.target)))]
        while levels:  # a loop, since elements may be nested deeper than functions
            parent, end, placed = levels[-1]
            if not placed:
                text += self.target[at:end], parent.closing
                at = end
                levels.pop()
                continue
            start, stop, index = placed.pop()
            element = parent.children[index]
            text += self.target[at:start], element.opening
            at = start
            if element.closing:
                levels.append((element, stop, self._place_all(element, start, stop)))
        return "".join(text)

    def _place_all(self, parent: Element, first: int, last: int) -> list[_Placed]:
        """Places the elements in target[first:last], the translation of their parent; returns them last to first."""
        placed: list[_Placed] = []
        words = range(bisect_left(self.target_starts, first), bisect_right(self.target_stops, last))
        runs = [words] if words else []
        order = sorted(range(len(parent.children)), key=lambda i: not parent.children[i].closing)  # with words first
        earliest = first  # for marks that keep their order
        for i in order:
            element = parent.children[i]
            span = self._span(element, parent, first, last, placed, runs) if element.closing else None
            if span is None:
                at = self._beside_word(element, parent, first, last, placed)
                if element.keeps_order:
                    at = earliest = max(at, earliest)
                span = at, at
            insort(placed, (*span, i))
            before, after = bisect_right(self.target_stops, span[0]), bisect_left(self.target_starts, span[1])
            cut = [(run.start, min(run.stop, before), max(run.start, after), run.stop) for run in runs]
            runs = [part for a, b, c, d in cut for part in (range(a, b), range(c, d)) if part]
        return placed[::-1]

    def _span(
        self, element: Element, parent: Element, first: int, last: int, placed: Sequence[_Placed], runs: list[range]
    ) -> Span | None:
        """Returns where an element goes around words of the translation, as free words as possible; None without any."""
        inside = range(bisect_right(self.source_stops, element.start), bisect_left(self.source_starts, element.stop))
        if not inside or not self.source[element.start : element.stop].strip():
            return None
        if not (self.source[parent.start : element.start] + self.source[element.stop : parent.stop]).strip():
            return first, last  # around everything
        copied = self._copied(element, inside, first, last)
        if copied:
            index = bisect_left(placed, (copied[1],))
            if not index or placed[index - 1][1] <= copied[0]:
                return copied
        if not runs:
            return None
        start, stop = best_run(self.weights, runs, inside)
        return self.target_starts[start], self.target_stops[stop]

    def _copied(self, element: Element, words: range, first: int, last: int) -> Span | None:
        """Returns where the words of an element, whole or in part, stand unchanged in the translation, if only once."""
        begin, end = self.source_starts[words[0]], self.source_stops[words[-1]]
        text = self.source[begin:end]
        if not any(map(str.isalnum, text)) or self.target.count(text, first, last) != 1:
            return None
        at = self.target.index(text, first, last) - begin
        return at + max(element.start, begin), at + min(element.stop, end)

    def _beside_word(self, element: Element, parent: Element, first: int, last: int, placed: Sequence[_Placed]) -> int:
        """Places a mark before the word that follows it, or after the word before it, outside of what is placed already."""
        at, is_before = last, False
        if not self.source[parent.start : element.start].strip():
            at, is_before = first, True
        elif self.source[element.start : parent.stop].strip():
            is_before = self.source[element.start - 1].isspace() or not self.source[element.start].isspace()
            source = bisect_right(self.source_stops, element.start) - (not is_before)
            # Words that are wholly within the parent's translation.
            words = slice(bisect_left(self.target_starts, first), bisect_right(self.target_stops, last))
            if words.start < words.stop and 0 <= source < len(self.source_starts):
                best = words.start + int(self.weights[words, source].argmax())
                at = self.target_starts[best] if is_before else self.target_stops[best]
            else:
                is_before = False
        index = bisect_left(placed, (at,))
        if index and placed[index - 1][1] > at:
            return placed[index - 1][0 if is_before else 1]
        return at
