"""Dataclasses of options from TOML and back, through one set of checks.

An unknown key or a wrong type is a one-line error that names the key, the value and the remedy.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from seq2see.errors import UserError, did_you_mean

T = TypeVar("T")
MAX_DOTS = 1000  # in a key


def option(default: T, help: str, **shown: Any) -> T:
    """A dataclass field with a default, a help text, its limits (min, above, below), and what else the command line shows."""
    return field(default=default, metadata={"help": help, **shown})


def check_limits(options: Any, prefix: str = "", error: type[UserError] = UserError) -> None:
    """Raises an error for an option outside of the limits that it declares: min ≤ value, above < value < below."""
    for f in fields(options):
        value, low, above, below = getattr(options, f.name), *(f.metadata.get(key) for key in ("min", "above", "below"))
        holds = (low is None or value >= low) and (above is None or value > above) and (below is None or value < below)
        at_least = "not be negative" if low == 0 and below is None else f"be at least {low}"
        parts = [at_least] * (low is not None) + [f"be greater than {above}"] * (above is not None)
        parts += [f"less than {below}"] * (below is not None)
        if not holds:
            raise error(f"{prefix}{f.name} = {value} must {' and '.join(parts)}")


def build(
    cls: type[T], table: Mapping[str, Any], base: T | None = None, prefix: str = "", root: type | None = None
) -> T:
    """Builds a dataclass from a table of checked values; missing keys come from `base` or from the defaults."""
    hints = get_type_hints(cls)
    known = {f.name: hints[f.name] for f in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise UserError(f'unknown key "{prefix}{key}": {_suggest(key, known, prefix, root or cls)}')
        if is_dataclass(known[key]):
            if not isinstance(value, Mapping):
                raise UserError(f'"{prefix}{key}" is a section: set its keys, not {to_toml(value)}')
            inner = getattr(base, key) if base is not None else None
            values[key] = build(known[key], value, base=inner, prefix=f"{prefix}{key}.", root=root or cls)
        else:
            values[key] = _check_type(known[key], value, prefix + key)
    return cls(**values) if base is None else replace(base, **values)  # type: ignore[type-var]


def _suggest(key: str, known: Iterable[str], prefix: str, root: type) -> str:
    """Suggests the key of this name in another section, as model.width for width, or else the closest known key."""
    sections = [section for section in fields(root) if is_dataclass(section.default)]
    paths = [f'"{section.name}.{key}"' for section in sections if key in vars(section.default)]
    return (
        f"did you mean {' or '.join(paths)}?"
        if paths
        else did_you_mean(prefix + key, [prefix + each for each in known])
    )


def _check_type(expected: Any, value: Any, key: str) -> Any:
    if type(value) is int and expected is float and abs(value) < 1 << 1023:  # a float can hold it
        return float(value)
    if type(value) is int and abs(value) >= 1 << 63:
        raise UserError(f"{key} has {value.bit_length():,} bits: an integer must fit in 64")
    if get_origin(expected) is Literal:
        if value not in get_args(expected):
            raise UserError(
                f"{key} = {to_toml(value)} is not a valid choice: {did_you_mean(str(value), get_args(expected))}"
            )
        return value
    if get_origin(expected) is tuple:
        values = value if isinstance(value, list) else [value]  # a single file needs no brackets
        return tuple(_check_type(get_args(expected)[0], item, key) for item in values)
    if type(value) is not expected:
        raise UserError(f"{key} = {to_toml(value)} must be {_TYPE_NAMES[expected]}")
    return value


_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


def parse_toml(text: str) -> dict[str, Any]:
    """Parses a file; a ValueError says what is wrong with it."""
    if any(
        line.partition("=")[0].count(".") > MAX_DOTS for line in text.splitlines()
    ):  # tomllib takes quadratic memory
        raise ValueError(f"a key has more than {MAX_DOTS:,} parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:  # thousands of nested brackets
        raise ValueError("too many nested brackets") from error


def parse_value(text: str) -> Any:
    """Parses a TOML value, or else takes the bare text, so that strings need no second pair of quotes in a shell."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def toml_lines(section: Any, path: str) -> Iterator[str]:
    if path:
        yield ""
        yield f"[{path}]"
    subsections = []
    for f in fields(section):
        value = getattr(section, f.name)
        if is_dataclass(value):
            subsections.append((f.name, value))
        else:
            yield f"{f.name} = {to_toml(value)}".ljust(34) + f"  # {f.metadata['help']}"
    for name, value in subsections:
        yield from toml_lines(value, f"{path}.{name}" if path else name)


def to_toml(value: Any) -> str:
    """Formats a value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in value)
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(to_toml, value))}]"
    return str(value)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
