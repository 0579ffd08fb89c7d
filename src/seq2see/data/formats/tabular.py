"""Readers of sentence pairs: two parallel files, TSV and JSON lines. TMX and PO have their own modules.

Each format is a small frozen `Reader` whose `read` streams the file from the start on every call. A row that cannot
be used is reported to the callbacks (which may raise) and skipped.
"""

import json
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from seq2see.data.formats.lines import ReadCallbacks, ReadIssue, read_lines
from seq2see.errors import UserError, did_you_mean

COMPRESSION_SUFFIXES: Final = (".gz", ".xz")
_SURROGATE = re.compile("[\ud800-\udfff]")


class SentencePair(NamedTuple):
    """A sentence, its translation, and the line number of the pair or of the entry that contains it."""

    source: str
    target: str
    line: int


@dataclass(frozen=True)
class LineCountMismatch(ReadIssue):
    """Two parallel files with different numbers of lines."""

    reader: "ParallelFilesReader"

    @property
    def message(self) -> str:
        source, target = (shlex.quote(str(file)) for file in self.reader.files)
        return f'{self.reason}: run "seq2see data check --src {source} --tgt {target}"'


class Reader(ABC):
    """Reads one file, or two parallel files, from the start on every call."""

    @property
    @abstractmethod
    def files(self) -> tuple[Path, ...]: ...

    @property
    def contents(self) -> tuple[Path, ...]:
        """All files whose bytes the items depend on, for the corpus fingerprint."""
        return self.files

    @property
    @abstractmethod
    def format_key(self) -> str:
        """The format and its options, which are part of the corpus fingerprint."""

    @abstractmethod
    def read(self, callbacks: ReadCallbacks) -> Iterator[Any]: ...


class PairReader(Reader):
    """Reads sentence pairs."""

    @abstractmethod
    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]: ...


@dataclass(frozen=True)
class SingleFileReader(PairReader):
    """Reads both sides from one file; the fields after the path are the options of its format."""

    format: ClassVar[str]

    path: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def options(self) -> tuple[int | str, ...]:
        return tuple(getattr(self, each.name) for each in fields(self)[1:])

    @property
    def format_key(self) -> str:
        return " ".join((self.format, *map(repr, self.options)))


def strip_compression_suffix(path: Path) -> str:
    """Returns a file name without the suffix of its compression."""
    return path.name.removesuffix(path.suffix) if path.suffix in COMPRESSION_SUFFIXES else path.name


@dataclass(frozen=True)
class ParallelFilesReader(PairReader):
    """Two parallel files: line n of the target is the translation of line n of the source."""

    source: Path
    target: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return self.source, self.target

    @property
    def format_key(self) -> str:
        return "lines"

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        sources, targets = read_lines(self.source, callbacks), read_lines(self.target, callbacks)
        shared = 0
        for shared, (source, target) in enumerate(zip_longest(sources, targets, fillvalue=_END)):
            if source is _END or target is _END:
                break
            if source is not None and target is not None:
                yield SentencePair(source, target, shared + 1)
        else:
            return
        left = shared + (target is _END) + sum(1 for _ in sources)
        right = shared + (source is _END) + sum(1 for _ in targets)
        reason = f"{self.source} has {left:,} lines but {self.target} has {right:,}"
        callbacks.on_issue(LineCountMismatch("line-count", self.source, min(left, right) + 1, reason, self))


_END: Final = "\n"  # in place of the missing lines of the shorter file; no line contains it


@dataclass(frozen=True)
class TsvReader(SingleFileReader):
    """Tab-separated columns, numbered from 1 as in `cut`, or named in a header line; no quoting, no escapes."""

    format = "tsv"

    source_column: int | str
    target_column: int | str

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        rows = enumerate(read_lines(self.path, callbacks), 1)
        header = (next(rows)[1] or "").split("\t") if self.has_header else []
        source, target = self.index(self.source_column, header), self.index(self.target_column, header)
        required = max(source, target)
        for number, line in rows:
            if line is None:
                continue
            cells = line.split("\t")
            if len(cells) > required:
                yield SentencePair(cells[source], cells[target], number)
            else:
                columns = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
                reason = f"found {columns}, but column {required + 1} is needed"
                callbacks.on_issue(ReadIssue("malformed", self.path, number, reason))

    @property
    def has_header(self) -> bool:
        return isinstance(self.source_column, str) or isinstance(self.target_column, str)

    def index(self, column: int | str, header: Sequence[str]) -> int:
        if isinstance(column, int):
            if column < 1:
                raise UserError(f"column {column} of {self.path}: columns are numbered from 1")
            return column - 1
        if column not in header:
            raise UserError(f'{self.path} has no column "{column}" in its first line: {did_you_mean(column, header)}')
        return header.index(column)


@dataclass(frozen=True)
class JsonlReader(SingleFileReader):
    """One JSON object per line; a field may be a path such as `translation.en`."""

    format = "jsonl"

    source_field: str
    target_field: str

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        for number, line in enumerate(read_lines(self.path, callbacks), 1):
            if line is None or not line.strip():
                continue
            try:
                value = parse_json(line)
                source, target = text_field(value, self.source_field), text_field(value, self.target_field)
            except ValueError as error:
                callbacks.on_issue(ReadIssue("malformed", self.path, number, str(error)))
                continue
            yield SentencePair(source, target, number)


def parse_json(line: str) -> Any:
    """Parses JSON; raises a ValueError that says in a few words what is wrong."""
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg[0].lower()}{error.msg[1:]} at column {error.colno}") from error
    except ValueError as error:
        raise ValueError("a number has thousands of digits") from error
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def text_field(value: Any, name: str) -> str:
    """Returns the text of a field; if no field has the full name, its dots lead into nested objects."""
    if not isinstance(value, dict):
        raise ValueError(f'expected a JSON object with a field "{name}"')
    if name not in value:
        outer, dot, rest = name.partition(".")
        if dot and outer in value:
            return text_field(value[outer], rest)
        raise ValueError(f'no field "{name}": {did_you_mean(name, value)}')
    text = value[name]
    if not isinstance(text, str):
        raise ValueError(f'field "{name}" is {json.dumps(text)[:40]}, not a string')
    if not text.isprintable() and (found := _SURROGATE.search(text)):
        raise ValueError(f'field "{name}" has an unpaired surrogate, \\u{ord(found[0]):04x}')
    return text
