"""The settings of a lesson, as the command line and the page accept them.

They are the parameters of the lesson's `compute` function. A value must have the structure of its default (text where the
default has text, numbers where it has numbers) and keep within bounds, so that a lesson ends soon. Python code that calls
`compute` itself may use any values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from seq2see.course.lessons import Lesson
from seq2see.course.lessons.document import to_json
from seq2see.errors import UsageError

MAX_CHARACTERS = 200  # of a text
MAX_ITEMS = 16  # of a list; rows and columns of a table


SettingKind = Literal[
    "text", "texts", "rows", "number", "numbers", "matrix", "values", "table", "matrices", "groups", "questions",
]  # fmt: skip


class SettingError(UsageError):
    """A value that does not fit its setting. `location` is a path such as settings.sentences.2."""

    def __init__(self, message: str, location: str, hint: str = "") -> None:
        super().__init__(f"{location}: {message}" + (f"; {hint}" if hint else ""))
        self.message, self.location, self.hint = message, location, hint


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
    ("recurrent", "lengths"): Bounds(2, 100, max_items=8), ("recurrent", "seed"): SEED,
    ("patches", "seed"): SEED, ("patches", "steps"): Bounds(10, 300),
    ("learning", "seed"): SEED, ("learning", "steps"): Bounds(10, 200),
    ("temperature", "printed"): Bounds(1e-9, 1, False), ("temperature", "temperatures"): Bounds(0.01, 1000, False),
    ("temperature", "story_temperatures"): Bounds(0, 1000, False, max_items=6), ("temperature", "seed"): SEED,
    ("window", "window"): Bounds(1, 1000), ("mask", "weights"): Bounds(1e-9, 1000, False),
    ("directions", "sentences"): Bounds(1000, 10_000), ("directions", "seed"): SEED,
}  # fmt: skip
TABLE_BOUNDS = Bounds(-10_000, 10_000, False)
OPTIONAL = {("mask", "target")}  # texts that may be empty


def default_settings(lesson: Lesson) -> dict[str, Any]:
    """Returns the parameters that have a default, which is an example of their structure."""
    defaults = {name: "" if (lesson.name, name) in OPTIONAL else value for name, value in lesson.defaults().items()}
    return {name: value for name, value in defaults.items() if value is not None}


KIND_OF_MAPPING: Mapping[SettingKind, SettingKind] = {
    "number": "values", "numbers": "table", "texts": "groups", "matrix": "matrices",
}  # fmt: skip
KIND_OF_LIST: Mapping[SettingKind, SettingKind] = {
    "number": "numbers", "text": "texts", "numbers": "matrix", "texts": "rows"
}  # fmt: skip


def setting_kind(example: Any) -> SettingKind:
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
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or value != value or value in (math.inf, -math.inf):
        raise _invalid(f"expected a number, got {_brief(value)}", location)
    if abs(value) >= 1 << 63:  # Python's integers may be too large to format as a float
        raise _invalid(f"{_brief(value)} is not between {bounds.minimum:.10g} and {bounds.maximum:.10g}", location)
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


def _invalid(message: str, location: str, hint: str = "") -> SettingError:
    return SettingError(message, location[:200], hint)
