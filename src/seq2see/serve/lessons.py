"""The lessons for whoever asks by HTTP: what can be set, how large it may be, and the lesson told.

What can be set is what the lesson's function takes, and must be built as its default is: texts where texts are, numbers where
numbers are. So a table stays a table, and no text is ever taken for a file: what has no default of its own (`vectors`, `wic`)
cannot be set at all.
"""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from seq2see.api import Model
from seq2see.course.lessons import LESSONS, Lesson
from seq2see.course.lessons.render import Grid, Story, plain, shown
from seq2see.course.lessons.training import before_each_step
from seq2see.errors import nearest
from seq2see.serve import responses
from seq2see.serve.workers import Clock, Refusal, near

CHARACTERS, ITEMS = 200, 16  # of a text; of a list, of a table's rows and of its columns, at most
PATIENCE = 3.0  # seconds that a training waits for another one, which may be about to end


@dataclass(frozen=True)
class Bounds:
    least: float
    most: float
    whole: bool = True
    items: int = ITEMS


SEED = Bounds(0, (1 << 31) - 1)
# Of numbers that decide how much there is to do, or that can be too small to divide by. Others are numbers of a table.
BOUNDS: Mapping[tuple[str, str], Bounds] = {
    ("words", "shares"): Bounds(0.01, 0.99, False, items=5), ("words", "sentences"): Bounds(20, 2000), ("words", "seed"): SEED,
    ("lookup", "temperatures"): Bounds(0.01, 1000, False),
    ("scaling", "dimensions"): Bounds(1, 512), ("scaling", "samples"): Bounds(2, 4000), ("scaling", "seed"): SEED,
    ("saturation", "seed"): SEED, ("saturation", "steps"): Bounds(10, 200),
    ("positions", "width"): Bounds(2, 16), ("positions", "length"): Bounds(1, 200), ("positions", "wide"): Bounds(2, 256),
    ("positions", "shift"): Bounds(1, 100),
    ("order", "seed"): SEED, ("order", "steps"): Bounds(10, 200),
    ("norms", "padding"): Bounds(0, 1000),
    ("mask", "layer"): Bounds(0, 1000), ("mask", "head"): Bounds(0, 1000),
    ("leak", "seed"): SEED, ("leak", "steps"): Bounds(10, 250),
    ("cross", "seed"): SEED, ("cross", "steps"): Bounds(10, 200),
    ("next", "printed"): Bounds(1e-9, 1, False), ("next", "temperatures"): Bounds(0.01, 1000, False),
    ("directions", "sentences"): Bounds(1000, 10_000), ("directions", "seed"): SEED,
}  # fmt: skip
TABLE = Bounds(-10_000, 10_000, False)
MAY_BE_EMPTY = {("mask", "target")}  # a text, or nothing at all


class Learn:
    def __init__(self) -> None:
        self._training = threading.Lock()  # torch's random numbers are one stream for all threads

    def all(self) -> responses.Lessons:
        return responses.Lessons(lessons=[_card(lesson) for lesson in LESSONS.values()])

    def tell(self, lesson: Lesson, given: Mapping[str, Any], model: Model | None, clock: Clock) -> dict[str, Any]:
        """The settings that were used, the story and the numbers."""
        defaults = settable(lesson)
        for name in given:
            if name not in defaults:
                what = f'the lesson "{lesson.name}" lets nobody set "{name[:80]}" here'
                raise Refusal(422, what, nearest(name, defaults), "given")
        used = {name: checked(lesson.name, name, value, defaults[name]) for name, value in given.items()}
        arguments = {name: value for name, value in used.items() if value or (lesson.name, name) not in MAY_BE_EMPTY}
        if model is not None and "model" in lesson.defaults():
            arguments["model"] = model
        with self._alone(clock) if lesson.seconds else nullcontext():
            result = lesson.compute(arguments)
        return {"given": plain(defaults | used), "story": told(lesson.story(result)), "result": plain(result)}

    @contextmanager
    def _alone(self, clock: Clock) -> Iterator[None]:
        if not self._training.acquire(timeout=PATIENCE):
            raise Refusal(503, "another lesson is training a model", "wait for it, or stop it", retry=5)
        token = before_each_step.set(clock.check)
        try:
            yield
        finally:
            before_each_step.reset(token)
            self._training.release()


def named(name: str) -> Lesson:
    if name not in LESSONS:
        raise Refusal(404, f'there is no lesson "{name[:80]}"', near(name, LESSONS, "/api/lessons"), "lesson")
    return LESSONS[name]


def settable(lesson: Lesson) -> dict[str, Any]:
    """What can be set, with its defaults."""
    found = {name: "" if (lesson.name, name) in MAY_BE_EMPTY else value for name, value in lesson.defaults().items()}
    return {name: value for name, value in found.items() if value is not None}


def _card(lesson: Lesson) -> responses.LessonCard:
    settings = [_setting(lesson, name, default) for name, default in settable(lesson).items()]
    looks = "model" in lesson.defaults()
    return responses.LessonCard(
        name=lesson.name, title=lesson.title, claim=lesson.claim, settings=settings, model=looks, seconds=lesson.seconds
    )


def _setting(lesson: Lesson, name: str, default: Any) -> responses.Setting:
    bounds = BOUNDS.get((lesson.name, name), TABLE)
    return responses.Setting(
        name=name, kind=kind(default), default=plain(default), least=bounds.least, most=bounds.most, whole=bounds.whole
    )


NAMED: Mapping[responses.Kind, responses.Kind] = {
    "number": "values", "numbers": "table", "texts": "groups", "matrix": "matrices"
}  # fmt: skip
LISTED: Mapping[responses.Kind, responses.Kind] = {
    "number": "numbers", "text": "texts", "numbers": "matrix", "texts": "rows"
}  # fmt: skip


def kind(example: Any) -> responses.Kind:
    """How a setting is built, in a word."""
    if isinstance(example, str):
        return "text"
    if isinstance(example, Mapping):
        value = next(iter(example.values()))
        return "questions" if _is_mixed(value) else NAMED[kind(value)]
    return LISTED[kind(example[0])] if isinstance(example, Sequence) else "number"


def checked(lesson: str, name: str, value: Any, default: Any) -> Any:
    """A value that is built as the default is, and no larger than is good for the server."""
    if (lesson, name) in MAY_BE_EMPTY and value == "":
        return value
    return _like(value, default, BOUNDS.get((lesson, name), TABLE), f"given.{name}")


def _like(value: Any, example: Any, bounds: Bounds, where: str) -> Any:
    if isinstance(example, str):
        return _text(value, where)
    if isinstance(example, Mapping):
        return _mapping(value, next(iter(example.values())), bounds, where)
    if not isinstance(example, Sequence):
        return _number(value, bounds, where)
    items = _items(value, where, bounds.items)
    if _is_mixed(example):
        _count(items, example, where)
        pairs = enumerate(zip(items, example, strict=True))
        return tuple(_like(item, part, bounds, f"{where}.{i}") for i, (item, part) in pairs)
    found = tuple(_like(item, example[0], bounds, f"{where}.{i}") for i, item in enumerate(items))
    if kind(example) == "rows":
        for i, row in enumerate(found):
            _count(row, example[0], f"{where}.{i}")
    return found


def _is_mixed(example: Any) -> bool:
    """Such as ("it", ("pizza", "oven"))."""
    return (
        isinstance(example, Sequence)
        and not isinstance(example, str)
        and len({isinstance(x, str) for x in example}) > 1
    )


def _mapping(value: Any, example: Any, bounds: Bounds, where: str) -> dict[str, Any]:
    """From an object, or from pairs: an object of JavaScript's does not keep the order of keys such as "12"."""
    pairs = _items(list(value.items()) if isinstance(value, dict) else value, where)
    found: dict[str, Any] = {}
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise _refused(f"{_brief(pair)} where a name and what belongs to it are expected", f"{where}.{i}")
        name = _text(pair[0], f"{where}.{i}")
        if name in found:
            raise _refused(f'two rows are called "{name}"', f"{where}.{i}", "give every row a name of its own")
        found[name] = _like(pair[1], example, bounds, f"{where}.{i}")
    return found


def _items(value: Any, where: str, most: int = ITEMS) -> list[Any]:
    if not isinstance(value, list):
        raise _refused(f"{_brief(value)} where a list is expected", where)
    if not 1 <= len(value) <= most:
        raise _refused(f"{len(value):,} of them, where 1 to {most} are taken", where)
    return value


def _count(row: Sequence[Any], example: Sequence[Any], where: str) -> None:
    if len(row) != len(example):
        raise _refused(f"{len(row)} where {len(example)} are expected, as in {plain(example)}", where)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _refused(f"{_brief(value)} where a text is expected", where)
    if len(value) > CHARACTERS:
        raise _refused(f"a text of {len(value):,} characters, where {CHARACTERS} are the most", where, "shorten it")
    if not value.strip():
        raise _refused("nothing is written here", where, "write something, or set it back to the notes'")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _refused("a text with half a character in it", where) from error
    return value


def _number(value: Any, bounds: Bounds, where: str) -> int | float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise _refused(f"{_brief(value)} where a number is expected", where)
    if bounds.whole and value != int(value):
        raise _refused(f"{value:g} where a whole number is expected", where)
    if not bounds.least <= value <= bounds.most:
        raise _refused(f"{value:.10g} where {bounds.least:.10g} to {bounds.most:.10g} are taken", where)
    return int(value) if bounds.whole else value


def _brief(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):  # perhaps a thousand deep
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return "".join(letter if letter.isprintable() else "�" for letter in (text if len(text) <= 40 else f"{text[:39]}…"))


def _refused(what: str, where: str, remedy: str = "/api/lessons tells what each lesson takes") -> Refusal:
    return Refusal(422, what, remedy, where[:200])


def told(story: Story) -> dict[str, Any]:
    """A story as plain values, every cell as it is shown too: how figures are rounded is said once, by `telling`."""
    parts = [part if isinstance(part, str) else _table(part) for part in story.parts]
    return {"claim": story.claim, "parts": parts, "look": story.look, "slips": list(story.slips)}


def _table(grid: Grid) -> dict[str, Any]:
    return {**plain(grid), "shown": [[shown(cell, grid) for cell in row] for row in grid.rows]}
