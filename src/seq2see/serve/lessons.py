"""Lessons over HTTP: their settings, validation of the values given, and the result.

The settings are the parameters of the lesson's `compute` function. A value must have the structure of its default: text
where the default has text, numbers where it has numbers. A parameter whose default is None (`vectors`, `wic`) cannot be
set, so no text from a request is ever used as a file name.
"""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from seq2see.api import Model
from seq2see.course.lessons import LESSONS, Lesson
from seq2see.course.lessons.render import LessonText, Table, format_cell, to_json
from seq2see.course.lessons.training import before_each_step
from seq2see.errors import did_you_mean
from seq2see.serve import responses
from seq2see.serve.workers import ApiError, Deadline, suggest

MAX_CHARACTERS = 200  # of a text
MAX_ITEMS = 16  # of a list; rows and columns of a table
TRAINING_WAIT = 3.0  # seconds to wait for another training to finish


@dataclass(frozen=True)
class Bounds:
    minimum: float
    maximum: float
    integer: bool = True
    max_items: int = MAX_ITEMS


SEED = Bounds(0, (1 << 31) - 1)
# For numbers that determine the amount of work, or that are divisors. All others are entries of tables.
BOUNDS: Mapping[tuple[str, str], Bounds] = {
    ("words", "shares"): Bounds(0.01, 0.99, False, max_items=5), ("words", "sentences"): Bounds(20, 2000),
    ("words", "seed"): SEED,
    ("lookup", "temperatures"): Bounds(0.01, 1000, False),
    ("scaling", "dimensions"): Bounds(1, 512), ("scaling", "samples"): Bounds(2, 4000), ("scaling", "seed"): SEED,
    ("saturation", "seed"): SEED, ("saturation", "steps"): Bounds(10, 200),
    ("positions", "width"): Bounds(2, 16), ("positions", "length"): Bounds(1, 200), ("positions", "map_width"): Bounds(2, 256),
    ("positions", "shift"): Bounds(1, 100),
    ("order", "seed"): SEED, ("order", "steps"): Bounds(10, 200),
    ("norms", "padding"): Bounds(0, 1000),
    ("mask", "layer"): Bounds(0, 1000), ("mask", "head"): Bounds(0, 1000),
    ("leak", "seed"): SEED, ("leak", "steps"): Bounds(10, 250),
    ("cross", "seed"): SEED, ("cross", "steps"): Bounds(10, 200),
    ("next", "printed"): Bounds(1e-9, 1, False), ("next", "temperatures"): Bounds(0.01, 1000, False),
    ("directions", "sentences"): Bounds(1000, 10_000), ("directions", "seed"): SEED,
}  # fmt: skip
TABLE_BOUNDS = Bounds(-10_000, 10_000, False)
OPTIONAL = {("mask", "target")}  # texts that may be empty


class LessonRunner:
    def __init__(self) -> None:
        self._training = threading.Lock()  # torch has one random generator for all threads

    def run(
        self, lesson: Lesson, given: Mapping[str, Any], model_name: str | None, model: Model | None, deadline: Deadline
    ) -> responses.LessonResult:
        """Computes a lesson; `model` is for lessons that use one."""
        defaults = default_settings(lesson)
        for name in given:
            if name not in defaults:
                message = f'the lesson "{lesson.name}" has no setting "{name[:80]}"'
                raise ApiError(422, message, did_you_mean(name, defaults), "settings")
        settings = {name: validate(lesson.name, name, value, defaults[name]) for name, value in given.items()}
        arguments = {name: value for name, value in settings.items() if value or (lesson.name, name) not in OPTIONAL}
        if model is not None:
            arguments["model"] = model
        with self._exclusive_training(deadline) if lesson.training_seconds else nullcontext():
            result = lesson.compute(arguments)
        return responses.LessonResult(
            name=lesson.name, title=lesson.title, model=model_name, settings=to_json(defaults | settings),
            text=text_response(lesson.describe(result)), result=to_json(result),
        )  # fmt: skip

    @contextmanager
    def _exclusive_training(self, deadline: Deadline) -> Iterator[None]:
        if not self._training.acquire(timeout=TRAINING_WAIT):
            raise ApiError(503, "another lesson is training a model", "wait for it, or stop it", retry_after=5)
        token = before_each_step.set(deadline.check)
        try:
            yield
        finally:
            before_each_step.reset(token)
            self._training.release()


def list_lessons() -> responses.LessonList:
    return responses.LessonList(lessons=[_lesson_info(lesson) for lesson in LESSONS.values()])


def find_lesson(name: str) -> Lesson:
    if name not in LESSONS:
        raise ApiError(404, f'unknown lesson "{name[:80]}"', suggest(name, LESSONS, "/api/lessons"), "lesson")
    return LESSONS[name]


def default_settings(lesson: Lesson) -> dict[str, Any]:
    """Returns the parameters that can be set over HTTP, with their defaults."""
    defaults = {name: "" if (lesson.name, name) in OPTIONAL else value for name, value in lesson.defaults().items()}
    return {name: value for name, value in defaults.items() if value is not None}


def _lesson_info(lesson: Lesson) -> responses.LessonInfo:
    return responses.LessonInfo(
        name=lesson.name, title=lesson.title, introduction=lesson.introduction,
        settings=[_setting(lesson, name, default) for name, default in default_settings(lesson).items()],
        uses_model="model" in lesson.defaults(), training_seconds=lesson.training_seconds,
    )  # fmt: skip


def _setting(lesson: Lesson, name: str, default: Any) -> responses.LessonSetting:
    bounds = BOUNDS.get((lesson.name, name), TABLE_BOUNDS)
    return responses.LessonSetting(
        name=name, kind=setting_kind(default), default=to_json(default), minimum=bounds.minimum, maximum=bounds.maximum,
        integer=bounds.integer,
    )  # fmt: skip


KIND_OF_MAPPING: Mapping[responses.SettingKind, responses.SettingKind] = {
    "number": "values", "numbers": "table", "texts": "groups", "matrix": "matrices",
}  # fmt: skip
KIND_OF_LIST: Mapping[responses.SettingKind, responses.SettingKind] = {
    "number": "numbers", "text": "texts", "numbers": "matrix", "texts": "rows"
}  # fmt: skip


def setting_kind(example: Any) -> responses.SettingKind:
    if isinstance(example, str):
        return "text"
    if isinstance(example, Mapping):
        value = next(iter(example.values()))
        return "questions" if _is_mixed(value) else KIND_OF_MAPPING[setting_kind(value)]
    return KIND_OF_LIST[setting_kind(example[0])] if isinstance(example, Sequence) else "number"


def validate(lesson: str, name: str, value: Any, default: Any) -> Any:
    """Returns the value if it has the structure of the default and is within bounds."""
    if (lesson, name) in OPTIONAL and value == "":
        return value
    return _validate(value, default, BOUNDS.get((lesson, name), TABLE_BOUNDS), f"settings.{name}")


def _validate(value: Any, example: Any, bounds: Bounds, location: str) -> Any:
    if isinstance(example, str):
        return _text(value, location)
    if isinstance(example, Mapping):
        return _mapping(value, next(iter(example.values())), bounds, location)
    if not isinstance(example, Sequence):
        return _number(value, bounds, location)
    items = _items(value, location, bounds.max_items)
    if _is_mixed(example):
        _require_length(items, example, location)
        pairs = enumerate(zip(items, example, strict=True))
        return tuple(_validate(item, part, bounds, f"{location}.{i}") for i, (item, part) in pairs)
    result = tuple(_validate(item, example[0], bounds, f"{location}.{i}") for i, item in enumerate(items))
    if setting_kind(example) == "rows":
        for i, row in enumerate(result):
            _require_length(row, example[0], f"{location}.{i}")
    return result


def _is_mixed(example: Any) -> bool:
    """Whether a sequence holds both texts and sequences, such as ("it", ("pizza", "oven"))."""
    return (
        isinstance(example, Sequence)
        and not isinstance(example, str)
        and len({isinstance(x, str) for x in example}) > 1
    )


def _mapping(value: Any, example: Any, bounds: Bounds, location: str) -> dict[str, Any]:
    """Accepts an object or a list of pairs, since JavaScript objects do not keep the order of keys such as "12"."""
    pairs = _items(list(value.items()) if isinstance(value, dict) else value, location)
    result: dict[str, Any] = {}
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise _invalid(f"expected a pair of name and value, got {_brief(pair)}", f"{location}.{i}")
        name = _text(pair[0], f"{location}.{i}")
        if name in result:
            raise _invalid(f'duplicate name "{name}"', f"{location}.{i}", "give every row its own name")
        result[name] = _validate(pair[1], example, bounds, f"{location}.{i}")
    return result


def _items(value: Any, location: str, max_items: int = MAX_ITEMS) -> list[Any]:
    if not isinstance(value, list):
        raise _invalid(f"expected a list, got {_brief(value)}", location)
    if not 1 <= len(value) <= max_items:
        raise _invalid(f"expected 1 to {max_items} items, got {len(value):,}", location)
    return value


def _require_length(row: Sequence[Any], example: Sequence[Any], location: str) -> None:
    if len(row) != len(example):
        raise _invalid(f"expected {len(example)} items, as in {to_json(example)}, got {len(row)}", location)


def _text(value: Any, location: str) -> str:
    if not isinstance(value, str):
        raise _invalid(f"expected a text, got {_brief(value)}", location)
    if len(value) > MAX_CHARACTERS:
        message = f"{len(value):,} characters exceed the maximum of {MAX_CHARACTERS}"
        raise _invalid(message, location, "shorten the text")
    if not value.strip():
        raise _invalid("the text is empty", location, "enter a text, or reset the setting")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _invalid("the text contains an unpaired surrogate", location) from error
    return value


def _number(value: Any, bounds: Bounds, location: str) -> int | float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise _invalid(f"expected a number, got {_brief(value)}", location)
    if bounds.integer and value != int(value):
        raise _invalid(f"expected an integer, got {value:g}", location)
    if not bounds.minimum <= value <= bounds.maximum:
        raise _invalid(f"{value:.10g} is not between {bounds.minimum:.10g} and {bounds.maximum:.10g}", location)
    return int(value) if bounds.integer else value


def _brief(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):  # may be nested a thousand deep
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return "".join(letter if letter.isprintable() else "�" for letter in (text if len(text) <= 40 else f"{text[:39]}…"))


def _invalid(message: str, location: str, hint: str = "see /api/lessons for the settings of each lesson") -> ApiError:
    return ApiError(422, message, hint, location[:200])


def text_response(text: LessonText) -> responses.LessonText:
    body = [part if isinstance(part, str) else _table_response(part) for part in text.body]
    return responses.LessonText(
        introduction=text.introduction, body=body, takeaway=text.takeaway, errata=list(text.errata)
    )  # fmt: skip


def _table_response(table: Table) -> responses.Table:
    """Includes every cell as displayed, so that the page rounds numbers as the terminal does."""
    formatted = [[format_cell(cell, table) for cell in row] for row in table.rows]
    return responses.Table(**to_json(table), formatted=formatted)
