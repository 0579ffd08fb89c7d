"""Where the text of a command comes from and goes to: arguments, files and pipes."""

import errno
import io
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.translate.lines import Stream

_LIKE_A_PATH = re.compile(r"\S*/\S*|\S+\.[A-Za-z]\w{0,7}")


@dataclass(frozen=True)
class Source:
    """A file; or else a text in the command itself; or else standard input."""

    path: Path | None = None
    text: str | None = None

    @property
    def name(self) -> str:
        return str(self.path or ("standard input" if self.text is None else "the text"))

    @property
    def size(self) -> int | None:
        """How many bytes there are to read, if that can be known beforehand."""
        from seq2see.text.formats.tabular import PACKED

        if self.path and self.path.suffix in PACKED:
            return None
        with suppress(OSError, AttributeError):  # no such thing, or no standard input at all
            status = self.path.stat() if self.path else os.fstat(sys.stdin.fileno())
            return status.st_size if self.text is None and stat.S_ISREG(status.st_mode) else None
        return None

    @contextmanager
    def open(self) -> Iterator["Stream"]:
        """The bytes, decompressed."""
        from seq2see.text.formats.lines import open_bytes

        if self.text is not None:
            yield io.BytesIO(self.text.encode(errors="surrogateescape") + b"\n")
        elif self.path:
            with open_bytes(self.path) if self.path.is_file() else self.path.open("rb") as stream:
                yield cast("Stream", stream)
        elif sys.stdin is None:
            raise UserError("standard input is closed: name a file")
        else:
            yield cast("Stream", sys.stdin.buffer)


def sources(arguments: Sequence[str]) -> list[Source]:
    """The files that the arguments name, or the text that they are, or standard input where there are none."""
    present = [name == "-" or os.path.exists(name) for name in arguments]
    missing = [name for name, there in zip(arguments, present, strict=True) if not there]
    if any(present) and missing:
        raise UserError(f"{missing[0]}: no such file")
    if missing and all(map(_LIKE_A_PATH.fullmatch, missing)):
        raise UserError(f'{missing[0]}: no such file; if it is text, echo "{missing[0]}" | seq2see translate')
    if missing:
        return [Source(text=" ".join(missing))]
    for name in arguments:
        if os.path.isdir(name):
            raise UserError(f"{name} is a directory where a file is wanted: name the files in it")
    return [Source(None if name == "-" else Path(name)) for name in arguments or ["-"]]


@contextmanager
def writing(out: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there only when it is whole."""
    from seq2see.files import written_whole

    try:
        if out is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        with written_whole(out) as part, part.open("wb") as output:
            yield output
    except OSError as error:
        if out is None:
            if error.errno == errno.EPIPE:
                raise  # who reads has enough; the command ends without a word
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what still waits to be written
        raise UserError(f"cannot write {out or 'standard output'}: {error.strerror}") from error
