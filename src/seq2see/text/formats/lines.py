"""Lines out of files: plain, gzip or xz, UTF-8 to the letter, in constant memory.

A line ends at `\\n` or `\\r\\n` and nowhere else: U+2028, U+0085 and form feeds belong to the sentence they stand in,
for two files would fall out of step if only one of them were cut there. What is wrong with a line is told to a
`Listener`, which by default makes it a `UserError`; the data check listens on and counts.
"""

import gzip
import io
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from seq2see.errors import UserError

FaultKind = Literal["encoding", "malformed", "unequal"]

# No UTF-8 text can begin with either, so the bytes decide and a misleading file name does no harm.
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_ZSTD, _UTF16 = b"\x28\xb5\x2f\xfd", (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
_BUFFER = 1 << 18


@dataclass(frozen=True)
class Fault:
    """What makes a line unusable, and where it stands."""

    kind: FaultKind
    path: Path
    line: int
    reason: str

    @property
    def message(self) -> str:
        return f"{self.path}, line {self.line:,}: {self.reason}"


def refuse(fault: Fault) -> None:
    raise UserError(fault.message)


def ignore(count: int) -> None:
    pass


@dataclass(frozen=True)
class Listener:
    """Whom a reader tells of faulty lines, which it then leaves out, and of the bytes it has taken from the disk."""

    fault: Callable[[Fault], None] = refuse
    progress: Callable[[int], None] = ignore


STRICT = Listener()


class _Watched(io.FileIO):
    """A file that tells how many bytes were taken from it, also through a decompressor."""

    def __init__(self, path: Path, progress: Callable[[int], None]) -> None:
        super().__init__(path)
        self._progress = progress

    def readinto(self, buffer: "memoryview | bytearray") -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)
        self._progress(count or 0)
        return count


def regular(path: Path) -> Path:
    """The path, if a file stands there that can be read more than once."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise UserError(f"{path} is a directory where a file is wanted")
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is a pipe or a device, which can be read only once: write it to a file first")
    return path


def open_bytes(path: Path, listener: Listener = STRICT) -> BinaryIO:
    """The bytes of a file, decompressed."""
    try:
        start = io.BufferedReader(_Watched(regular(path), listener.progress), _BUFFER)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    head = start.peek(len(_XZ))[: len(_XZ)]
    if head.startswith(_GZIP):
        return _Owner(gzip.GzipFile(fileobj=start), start)
    if head.startswith(_XZ):
        return _Owner(lzma.LZMAFile(start), start)
    if head.startswith(_ZSTD):
        start.close()
        raise UserError(f"{path} is compressed by zstd, which seq2see does not read: use gzip or xz")
    return start


class _Owner(io.BufferedReader):
    """A buffer over a decompressor that closes the file below as well; lines come from it at the speed of C."""

    def __init__(self, decompressor: gzip.GzipFile | lzma.LZMAFile, below: BinaryIO) -> None:
        super().__init__(decompressor, _BUFFER)
        self._below = below

    def close(self) -> None:
        super().close()
        self._below.close()


@contextmanager
def decompressed(path: Path, line: Callable[[], int]) -> Iterator[None]:
    """Makes what a decompressor or a disk may complain of a `UserError` that says how far the reading came."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{path} breaks off after line {line():,}: cut short or damaged; get it again") from error
    except OSError as error:
        raise UserError(f"cannot read {path} past line {line():,}: {error.strerror}") from error


def byte_lines(path: Path, listener: Listener = STRICT) -> Iterator[bytes]:
    """The lines of a file as they are, without a byte-order mark and without their ends."""
    number = 0
    with open_bytes(path, listener) as file, decompressed(path, lambda: number):
        for number, line in enumerate(file, 1):
            if number == 1:
                line = without_mark(path, line)
            if line.endswith(b"\r\n"):
                yield line[:-2]
            else:
                yield line[:-1] if line.endswith(b"\n") else line
    if number == 0:
        raise UserError(f"{path} is empty")


def without_mark(path: Path, line: bytes) -> bytes:
    """The first line of a file without its byte-order mark."""
    if line.startswith(_UTF16):
        raise UserError(f"{path} is UTF-16: convert it with iconv -f UTF-16 -t UTF-8")
    return line.removeprefix(_BOM)


def lines(path: Path, listener: Listener = STRICT) -> Iterator[str | None]:
    """The lines of a file as text; None for one that is not UTF-8, after the listener was told."""
    for number, line in enumerate(byte_lines(path, listener), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            listener.fault(_encoding_fault(path, number, error))
            yield None


def _encoding_fault(path: Path, number: int, error: UnicodeDecodeError) -> Fault:
    byte = error.object[error.start]
    reason = f"byte {error.start + 1:,} (0x{byte:02x}) is not UTF-8: convert the file, or delete the line"
    return Fault("encoding", path, number, reason)
