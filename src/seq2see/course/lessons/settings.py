"""The settings of a lesson, as the command line and the page accept them: the parameters of its `compute`, checked by pydantic.

The annotations say what a value looks like: texts, numbers, lists, tables. `Annotated[int, Bounds(10, 200)]` bounds the
numbers, so that a lesson ends soon. Python code that calls `compute` itself may use any values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field, Strict, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from seq2see.course.lessons import Lesson
from seq2see.errors import UsageError

MAX_CHARACTERS = 200  # of a text
MAY_BE_EMPTY = "may be empty"  # of a text: Annotated[str, MAY_BE_EMPTY]

SettingKind = Literal[
    "text", "texts", "rows", "number", "numbers", "matrix", "values", "table", "matrices", "groups", "questions",
]  # fmt: skip
LISTS: Mapping[str, SettingKind] = {"text": "texts", "texts": "rows", "number": "numbers", "numbers": "matrix"}
MAPPINGS: Mapping[str, SettingKind] = {
    "number": "values",
    "numbers": "table",
    "matrix": "matrices",
    "texts": "groups",
    "rows": "questions",
}


@dataclass(frozen=True)
class Bounds:
    """Of the numbers of a setting, and of the number of items in each of its lists."""

    minimum: float = -10_000
    maximum: float = 10_000
    max_items: int = 16


Seed = Annotated[int, Bounds(0, (1 << 31) - 1)]


@dataclass(frozen=True)
class Setting:
    name: str
    default: Any
    kind: SettingKind
    bounds: Bounds
    is_integer: bool
    adapter: TypeAdapter[Any]

    def validate(self, value: Any) -> Any:
        """Returns the value if it has the structure of the annotation and is within bounds."""
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            raise _explain(self, error) from error


class SettingError(UsageError):
    """A value that does not fit its setting. `location` is a path such as settings.sentences.2."""

    def __init__(self, message: str, location: str, hint: str = "") -> None:
        super().__init__(f"{location}: {message}" + (f"; {hint}" if hint else ""))
        self.message, self.location, self.hint = message, location, hint


@cache
def settings_of(lesson: Lesson) -> Mapping[str, Setting]:
    """Returns the settings by name. A parameter whose default is None is none of them: it takes a model or a file."""
    hints = get_type_hints(lesson.module.compute, include_extras=True)
    return {name: _setting(name, hints[name], value) for name, value in lesson.defaults().items() if value is not None}


def _setting(name: str, hint: Any, default: Any) -> Setting:
    annotation, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    bounds = next((extra for extra in extras if isinstance(extra, Bounds)), Bounds())
    checked, kind, is_integer = _checked(annotation, bounds, MAY_BE_EMPTY in extras)
    return Setting(name, default, kind, bounds, is_integer, TypeAdapter(checked))


def _checked(annotation: Any, bounds: Bounds, may_be_empty: bool = False) -> tuple[Any, SettingKind, bool]:
    """Returns the annotation with its checks, the kind of setting, and whether its numbers are integers."""
    origin = get_origin(annotation)
    if annotation is str:
        pattern = None if may_be_empty else r"\S"
        return Annotated[str, Strict(), StringConstraints(max_length=MAX_CHARACTERS, pattern=pattern)], "text", False
    if origin is None:
        limits = Field(ge=bounds.minimum, le=bounds.maximum, allow_inf_nan=None if annotation is int else False)
        return Annotated[annotation, Strict(), limits], "number", annotation is int
    parts = [_checked(part, bounds) for part in get_args(annotation) if part is not Ellipsis]
    types, (_, kind, is_integer) = tuple(part for part, _, _ in parts), parts[-1]
    if origin is tuple:
        checked: Any = Annotated[tuple[types], BeforeValidator(_Length(len(types)))]  # type: ignore[valid-type]
        return checked, "texts" if kind == "text" else "rows", is_integer
    length = Field(min_length=1, max_length=bounds.max_items)
    if origin is Mapping:
        return Annotated[dict[types[0], types[1]], length, BeforeValidator(_by_name)], MAPPINGS[kind], is_integer  # type: ignore[valid-type]
    return Annotated[tuple[types[0], ...], length], LISTS[kind], is_integer  # type: ignore[valid-type]


@dataclass(frozen=True)
class _Length:
    """Of a row with a fixed number of parts, such as a role and a message."""

    count: int

    def __call__(self, row: Any) -> Any:
        if isinstance(row, (list, tuple)) and len(row) != self.count:
            raise _invalid(f"expected {self.count} items, got {len(row)}")
        return row


def _by_name(value: Any) -> Any:
    """Accepts an object or a list of pairs, since JavaScript objects do not keep the order of keys such as "12"."""
    if not isinstance(value, (list, tuple)):
        return value
    for pair in value:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise _invalid(f"expected a pair of name and value, got {_brief(pair)}")
    names = [name for name, _ in value]
    for name in names:
        if names.count(name) > 1:
            raise _invalid(f"duplicate name {_brief(name)}", "give every row its own name")
    return dict(value)


def _invalid(message: str, hint: str = "") -> PydanticCustomError:
    return PydanticCustomError("setting", "{message}", {"message": message, "hint": hint})


def _explain(setting: Setting, error: ValidationError) -> SettingError:
    """Puts the first error into the words of the lessons."""
    found, bounds = error.errors(include_url=False)[0], setting.bounds
    given, context = found["input"], found.get("ctx", {})
    location = _printable(".".join(str(part) for part in ("settings", setting.name, *found["loc"]) if part != "[key]"))
    hint = context.get("hint", "")
    match found["type"]:
        case "setting":
            message = context["message"]
        case "too_short" | "too_long":
            message = f"expected 1 to {bounds.max_items} items, got {len(given):,}"
        case "tuple_type" | "dict_type":
            message = f"expected a list, got {_brief(given)}"
        case "string_type":
            message = f"expected a text, got {_brief(given)}"
        case "string_too_long":
            message, hint = f"{len(given):,} characters exceed the maximum of {MAX_CHARACTERS}", "shorten the text"
        case "string_pattern_mismatch":
            message, hint = "the text is empty", "enter a text, or reset the setting"
        case "string_unicode":
            message = "the text contains an unpaired surrogate"
        case "greater_than_equal" | "less_than_equal":
            message = f"{_brief(given)} is not between {bounds.minimum:.10g} and {bounds.maximum:.10g}"
        case _:
            is_number = isinstance(given, (int, float)) and not isinstance(given, bool) and abs(given) < float("inf")
            message = f"expected {'an integer' if is_number else 'a number'}, got {_brief(given)}"
    return SettingError(message, location[:200], hint)


def _brief(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):  # may be nested a thousand deep
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return "a number of many digits"  # Python refuses to print the largest
    text = f'"{value}"' if isinstance(value, str) else f"{value:.10g}" if isinstance(value, float) else repr(value)
    return _printable(text if len(text) <= 40 else f"{text[:39]}…")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "�" for letter in text)
