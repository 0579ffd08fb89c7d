"""Reads lines from files: plain, gzip or xz, strict UTF-8, in constant memory.

A line ends at `\\n` or `\\r\\n` and nowhere else: U+2028, U+0085 and form feeds belong to the sentence around them,
because two parallel files would become misaligned if only one of them were split there. Problems with a line are
reported through `ReadCallbacks`, which by default raise a `UserError`; the data check counts them instead.
"""

import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from seq2see.errors import UserError
from seq2see.tensors.files import require_regular_file

IssueKind = Literal["encoding", "malformed", "line-count", "missing"]

# The first bytes decide, so a misleading file name does no harm: no UTF-8 text begins with any of these.
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_ZSTD, _UTF16 = b"\x28\xb5\x2f\xfd", (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
_BUFFER_SIZE = 1 << 18
MAX_LINE_BYTES = 1 << 24  # bounds the memory that reading takes
LINE_TOO_LONG = f"longer than {MAX_LINE_BYTES:,} bytes: break it into shorter lines, for example with fold -s"


@dataclass(frozen=True)
class ReadIssue:
    """Why a line cannot be used, and where it is."""

    kind: IssueKind
    path: Path
    line: int
    reason: str

    @property
    def message(self) -> str:
        return f"{self.path}, line {self.line:,}: {self.reason}"


def raise_issue(issue: ReadIssue) -> None:
    raise UserError(issue.message)


def ignore_issue(issue: ReadIssue) -> None:
    pass


def ignore_progress(count: int) -> None:
    pass


@dataclass(frozen=True)
class ReadCallbacks:
    """Called by readers: `on_issue` for each unusable line, which is then skipped; `on_progress` with bytes read."""

    on_issue: Callable[[ReadIssue], None] = raise_issue
    on_progress: Callable[[int], None] = ignore_progress


STRICT = ReadCallbacks()
LENIENT = ReadCallbacks(ignore_issue)


class _ProgressFile(io.FileIO):
    """A file that reports how many bytes are read from disk, also when a decompressor reads them."""

    def __init__(self, path: Path, on_progress: Callable[[int], None]) -> None:
        super().__init__(path)
        self._on_progress = on_progress

    def readinto(self, buffer: "memoryview | bytearray") -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)
        self._on_progress(count or 0)
        return count


def open_bytes(path: Path, callbacks: ReadCallbacks = STRICT) -> BinaryIO:
    """Opens a file for reading its decompressed bytes."""
    try:
        file = io.BufferedReader(_ProgressFile(require_regular_file(path), callbacks.on_progress), _BUFFER_SIZE)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    magic = file.peek(len(_XZ))[: len(_XZ)]
    if magic.startswith(_GZIP):
        return _DecompressedFile(gzip.GzipFile(fileobj=file), file)
    if magic.startswith(_XZ):
        return _DecompressedFile(lzma.LZMAFile(file), file)
    if magic.startswith(_ZSTD):
        file.close()
        raise UserError(f"{path} is compressed with zstd, which is not supported: use gzip or xz")
    return file


class _DecompressedFile(io.BufferedReader):
    """Buffers a decompressor, which makes iterating over lines fast, and closes the underlying file as well."""

    def __init__(self, decompressor: gzip.GzipFile | lzma.LZMAFile, underlying: BinaryIO) -> None:
        super().__init__(decompressor, _BUFFER_SIZE)
        self._underlying = underlying

    def close(self) -> None:
        super().close()
        self._underlying.close()


@contextmanager
def convert_read_errors(path: Path, line: Callable[[], int]) -> Iterator[None]:
    """Converts errors of decompression or disk access to a `UserError` with the last line read."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is truncated or damaged after line {line():,}: get it again") from error
    except OSError as error:
        raise UserError(f"cannot read {path} past line {line():,}: {error.strerror}") from error


def strip_bom(path: Path, line: bytes) -> bytes:
    """Returns the first line of a file without its byte-order mark."""
    if line.startswith(_UTF16):
        raise UserError(f"{path} is UTF-16: convert it with iconv -f UTF-16 -t UTF-8")
    return line.removeprefix(_BOM)


def read_lines(path: Path, callbacks: ReadCallbacks = STRICT) -> Iterator[str | None]:
    """Yields the lines of a file as text; None for a line too long or not UTF-8, after calling `on_issue`."""
    number = 0
    with open_bytes(path, callbacks) as file, convert_read_errors(path, lambda: number):
        read_line = partial(file.readline, MAX_LINE_BYTES)
        for number, line in enumerate(iter(read_line, b""), 1):
            too_long = len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")
            if number == 1:
                line = strip_bom(path, line)
            if too_long:
                callbacks.on_issue(ReadIssue("malformed", path, number, LINE_TOO_LONG))
                while (rest := read_line()) and not rest.endswith(b"\n"):
                    pass
                yield None
                continue
            end = -2 if line.endswith(b"\r\n") else -1 if line.endswith(b"\n") else None
            try:
                text = line[:end].decode()
            except UnicodeDecodeError as error:
                byte = f"byte {error.start + 1:,} (0x{line[error.start]:02x})"
                reason = f"{byte} is not UTF-8: convert the file, or delete the line"
                callbacks.on_issue(ReadIssue("encoding", path, number, reason))
                text = None
            yield text
    if number == 0:
        raise UserError(f"{path} is empty")


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
