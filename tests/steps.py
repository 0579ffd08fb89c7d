"""Steps of a computation, counted instead of timed: lines of the package that run, and moves of a regular expression.

A count is the same on every machine, so a test can say that twice the input takes at most about twice the steps.
"""

import re
import re._parser as _parser  # type: ignore[import-not-found]
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from types import FrameType
from typing import Any


def count_lines(function: Callable[[], object]) -> int:
    """Returns how many lines of the package a call runs."""
    lines = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if "seq2see" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines


class RegexSteps:
    """Matches a regular expression by backtracking as `re` does, but in Python, and counts its moves."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.steps = pattern, 0
        self._tree = list(_parser.parse(pattern.pattern, pattern.flags))
        self._ignore_case = bool(pattern.flags & re.IGNORECASE)
        self._text = ""
        self._groups: dict[int, tuple[int, int]] = {}

    def match(self, text: str) -> int | None:
        """Returns where a match at the beginning of a text ends."""
        self._text, self._groups = text, {}
        return next(self._match(self._tree, 0, 0), None)

    def find_all(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans that `finditer` finds."""
        self._text, found, position = text, [], 0
        while position <= len(text):
            self._groups = {}
            stop = next(self._match(self._tree, 0, position), None)
            if stop is None:
                position += 1
                continue
            found.append((position, stop))
            position = stop + (stop == position)
        return found

    def _match(self, nodes: Sequence[Any], index: int, position: int) -> Iterator[int]:
        """Yields where a match of the nodes from an index on may end, in the order in which `re` tries them."""
        if index == len(nodes):
            yield position
            return
        self.steps += 1
        for after in self._match_node(nodes[index], position):
            yield from self._match(nodes, index + 1, after)

    def _match_node(self, node: tuple[Any, Any], position: int) -> Iterator[int]:
        name, value = str(node[0]), node[1]
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            if self._is_character(name, value, position):
                yield position + 1
        elif name == "BRANCH":
            for branch in value[1]:
                yield from self._match(list(branch), 0, position)
        elif name == "SUBPATTERN":
            group, *_, inner = value
            for after in self._match(list(inner), 0, position):
                self._groups[group] = (position, after)
                yield after
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            yield from self._repeat(value, position, name == "MAX_REPEAT")
        elif name == "POSSESSIVE_REPEAT":
            yield from islice(self._repeat(value, position), 1)
        elif name == "ATOMIC_GROUP":
            yield from islice(self._match(list(value), 0, position), 1)
        elif name in ("ASSERT", "ASSERT_NOT"):
            direction, inner = value
            start = position if direction > 0 else position - inner.getwidth()[0]
            if (start >= 0 and next(self._match(list(inner), 0, start), None) is not None) == (name == "ASSERT"):
                yield position
        elif name == "GROUPREF":
            first, last = self._groups[value]
            if self._text.startswith(self._text[first:last], position):
                self.steps += last - first
                yield position + last - first
        elif self._is_at(str(value), position):
            assert name == "AT", name
            yield position

    def _repeat(self, value: tuple[int, int, Any], position: int, is_greedy: bool = True) -> Iterator[int]:
        """Yields the ends of repetitions; a stack of iterators, since a repetition may be longer than a call can be deep."""
        least, most, inner = value
        nodes, stack, ends = list(inner), [iter([position])], [position]
        while stack:
            after = next(stack[-1], None)
            depth = len(stack) - 1
            if after is None or (depth and after == ends[depth - 1]):
                stack.pop()
                if is_greedy and depth and least <= depth - 1 < most:
                    yield ends[depth - 1]
                continue
            ends[depth:] = [after]
            if not is_greedy and least <= depth:
                yield after
            if depth < most:
                stack.append(self._match(nodes, 0, after))
            elif is_greedy:
                yield after

    def _is_character(self, name: str, value: Any, position: int) -> bool:
        self.steps += 1
        if position >= len(self._text):
            return False
        character = self._text[position]
        if name == "ANY":
            return character != "\n" or bool(self.pattern.flags & re.DOTALL)
        if name == "IN":
            return self._is_in(value, character)
        variants = {character, character.lower(), character.upper()} if self._ignore_case else {character}
        return (chr(value) in variants) == (name == "LITERAL")

    def _is_in(self, items: Sequence[Any], character: str) -> bool:
        variants = {character, character.lower(), character.upper()} if self._ignore_case else {character}
        for kind, value in items:
            match str(kind):
                case "NEGATE":
                    return not self._is_in(items[1:], character)
                case "LITERAL":
                    found = chr(value) in variants
                case "RANGE":
                    found = any(value[0] <= ord(each) <= value[1] for each in variants if len(each) == 1)
                case _:
                    found = bool(_CATEGORIES[str(value)].match(character))
            if found:
                return True
        return False

    def _is_at(self, kind: str, position: int) -> bool:
        text, is_multiline = self._text, bool(self.pattern.flags & re.MULTILINE)
        before, after = text[position - 1 : position] if position else "", text[position : position + 1]
        match kind:
            case "AT_BEGINNING":
                return position == 0 or (is_multiline and before == "\n")
            case "AT_END":
                return position == len(text) or (after == "\n" and (is_multiline or position == len(text) - 1))
            case "AT_END_STRING":
                return position == len(text)
            case "AT_BOUNDARY":
                return bool(re.match(r"\w", before)) != bool(re.match(r"\w", after))
        raise NotImplementedError(kind)


_CATEGORIES = {
    "CATEGORY_SPACE": re.compile(r"\s"),
    "CATEGORY_NOT_SPACE": re.compile(r"\S"),
    "CATEGORY_WORD": re.compile(r"\w"),
    "CATEGORY_NOT_WORD": re.compile(r"\W"),
    "CATEGORY_DIGIT": re.compile(r"\d"),
    "CATEGORY_NOT_DIGIT": re.compile(r"\D"),
}
