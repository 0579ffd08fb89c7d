"""Sentence pairs out of one place: two files in step, a TSV table, JSON lines; TMX and PO have files of their own.

Each format is a small frozen `Part` that reads itself anew, row by row, whenever it is asked. A row that cannot be used
is told to the listener (who may raise) and left out.
"""

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from seq2see.errors import UserError, nearest
from seq2see.text.formats.lines import Fault, Listener, lines

PACKED: Final = (".gz", ".xz")


class Row(NamedTuple):
    """A sentence, its translation, and the line where they (or the entry that holds them) stand."""

    source: str
    target: str
    line: int


@dataclass(frozen=True)
class Unequal(Fault):
    """Two files that should be in step and are not."""

    files: "TwoFiles"

    @property
    def message(self) -> str:
        source, target = (shlex.quote(str(file)) for file in self.files.files)
        return f'{self.reason}: run "seq2see data check --src {source} --tgt {target}"'


class Part(ABC):
    """One file of pairs, or two files in step."""

    @property
    @abstractmethod
    def files(self) -> tuple[Path, ...]: ...

    @property
    @abstractmethod
    def manner(self) -> str:
        """The way it is read, in a word or two: part of the content key."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, str]:
        """What the two sides are called when they are written out as plain text."""

    @abstractmethod
    def read(self, listener: Listener) -> Iterator[Row]: ...


def bare(path: Path) -> str:
    """A file's name without the suffix of its compression."""
    return path.name.removesuffix(path.suffix) if path.suffix in PACKED else path.name


@dataclass(frozen=True)
class TwoFiles(Part):
    """Line n of one file is the translation of line n of the other."""

    source: Path
    target: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return self.source, self.target

    @property
    def manner(self) -> str:
        return "lines"

    @property
    def names(self) -> tuple[str, str]:
        source, target = bare(self.source), bare(self.target)
        return (source, target) if source != target else (f"{source}.source", f"{target}.target")

    def read(self, listener: Listener) -> Iterator[Row]:
        sources, targets = lines(self.source, listener), lines(self.target, listener)
        both = 0
        for both, (source, target) in enumerate(zip_longest(sources, targets, fillvalue=_END)):
            if isinstance(source, _End) or isinstance(target, _End):
                break
            if source is not None and target is not None:
                yield Row(source, target, both + 1)
        else:
            return
        left = both + (target is _END) + sum(1 for _ in sources)
        right = both + (source is _END) + sum(1 for _ in targets)
        reason = f"{self.source} has {left:,} lines but {self.target} {right:,}"
        listener.fault(Unequal("unequal", self.source, min(left, right) + 1, reason, self))


class _End:
    """Stands for the lines that the shorter file does not have."""


_END: Final = _End()


@dataclass(frozen=True)
class Table(Part):
    """Tab-separated columns, counted from 1 as `cut` does, or named by a header line; no quoting, no escapes."""

    path: Path
    source_column: int | str
    target_column: int | str

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def manner(self) -> str:
        return f"tsv {self.source_column!r} {self.target_column!r}"

    @property
    def names(self) -> tuple[str, str]:
        return side_names(self.path, self.source_column, self.target_column)

    def read(self, listener: Listener) -> Iterator[Row]:
        rows = enumerate(lines(self.path, listener), 1)
        header: list[str] = []
        if isinstance(self.source_column, str) or isinstance(self.target_column, str):
            header = (next(rows)[1] or "").split("\t")
        source, target = self._place(self.source_column, header), self._place(self.target_column, header)
        wanted = max(source, target)
        for number, line in rows:
            if line is None:
                continue
            cells = line.split("\t")
            if len(cells) > wanted:
                yield Row(cells[source], cells[target], number)
            else:
                columns = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
                reason = f"{columns} where column {wanted + 1} is wanted"
                listener.fault(Fault("malformed", self.path, number, reason))

    def _place(self, column: int | str, header: Sequence[str]) -> int:
        if isinstance(column, int):
            if column < 1:
                raise UserError(f"column {column} of {self.path}: columns are counted from 1")
            return column - 1
        if column not in header:
            raise UserError(f'{self.path} has no column "{column}" in its first line: {nearest(column, header)}')
        return header.index(column)


@dataclass(frozen=True)
class JsonLines(Part):
    """One JSON object a line; a field may be a path such as `translation.en`."""

    path: Path
    source_field: str
    target_field: str

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def manner(self) -> str:
        return f"jsonl {self.source_field!r} {self.target_field!r}"

    @property
    def names(self) -> tuple[str, str]:
        last = [field.rpartition(".")[2] for field in (self.source_field, self.target_field)]
        return side_names(self.path, *last)

    def read(self, listener: Listener) -> Iterator[Row]:
        for number, line in enumerate(lines(self.path, listener), 1):
            if line is None or not line.strip():
                continue
            try:
                value = _parse(line)
                source, target = _field(value, self.source_field), _field(value, self.target_field)
            except ValueError as error:
                listener.fault(Fault("malformed", self.path, number, str(error)))
                continue
            yield Row(source, target, number)


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg[0].lower()}{error.msg[1:]} at column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def _field(value: Any, name: str) -> str:
    """The text in a field; where there is none of that full name, its dots lead into nested objects."""
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is wanted, with a field {name!r}")
    if name not in value:
        outer, dot, rest = name.partition(".")
        if dot and outer in value:
            return _field(value[outer], rest)
        raise ValueError(f'no field "{name}": {nearest(name, value)}')
    text = value[name]
    if not isinstance(text, str):
        raise ValueError(f'field "{name}" holds {json.dumps(text)[:40]}, not text')
    if not text.isascii() and not text.isprintable():
        _refuse_surrogates(text, name)
    return text


def _refuse_surrogates(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise ValueError(f'field "{name}" holds half a character, \\u{code:04x}, which is no text') from error


def side_names(path: Path, source: int | str, target: int | str) -> tuple[str, str]:
    """`train.en` and `train.hi` for the sides of `train.tsv.gz`, where the sides have names of their own."""
    stem = Path(bare(path)).stem
    if isinstance(source, str) and isinstance(target, str) and source != target:
        safe = [name.replace("/", "_") for name in (source, target)]
        return f"{stem}.{safe[0]}", f"{stem}.{safe[1]}"
    return f"{stem}.source", f"{stem}.target"
