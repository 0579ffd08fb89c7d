"""Readers of corpora: parallel files of sentences, and plain text. Tables and other programs' files are in `formats/`.

Each format is a small frozen `Reader` whose `read` streams the file from the start on every call. A row that cannot
be used is reported to the callbacks (which may raise) and skipped.
"""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from seq2see.config import Boundaries
from seq2see.data.lines import ReadCallbacks, ReadIssue, read_lines

COMPRESSION_SUFFIXES: Final = (".gz", ".xz")
# Documents longer than this many characters are read in several chunks.
_CHUNK_CHARACTERS = 1 << 20


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


class TextChunk(NamedTuple):
    """A document, or a part of a long one, and the line number where it begins."""

    text: str
    line: int
    ends_document: bool


@dataclass(frozen=True)
class DocumentReader(Reader):
    """Reads the documents of one file."""

    path: Path
    boundaries: Boundaries

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def format_key(self) -> str:
        return self.boundaries

    def read(self, callbacks: ReadCallbacks) -> Iterator[TextChunk]:
        """Yields the documents in order; a line that is not UTF-8 is reported to the callbacks and skipped."""
        lines: list[str] = []
        start, size, in_document = 1, 0, False
        for number, line in enumerate(read_lines(self.path, callbacks), 1):
            if line is None:
                continue
            if self.boundaries == "blank-line" and not line.strip():
                if lines:
                    yield TextChunk("\n".join(lines), start, True)
                lines, size, in_document = [], 0, False
                continue
            if size >= _CHUNK_CHARACTERS and lines[-1] and not lines[-1][-1].isspace():
                yield TextChunk("\n".join(lines), start, False)
                lines, size, in_document = [""], 0, True  # the next chunk begins with the line end: a word boundary
                start = number
            if not lines:
                start = number
            lines.append(line)
            size += len(line) + 1
        if in_document or any(line and not line.isspace() for line in lines):
            yield TextChunk("\n".join(lines), start, True)
