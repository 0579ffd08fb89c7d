"""The input of commands: arguments, files and pipes."""

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.cli.lines import Line, Stream
    from seq2see.translate.warning_log import WarningLog

_PATH_PATTERN = re.compile(r"\S*/\S*|\S+\.[A-Za-z]\w{0,7}")


@dataclass(frozen=True)
class TextInput:
    """A file, a text on the command line, or standard input."""

    path: Path | None = None
    text: str | None = None

    @property
    def name(self) -> str:
        return str(self.path or ("standard input" if self.text is None else "the text"))

    @property
    def size(self) -> int | None:
        """The number of bytes to read, if known in advance."""
        from seq2see.data.readers import COMPRESSION_SUFFIXES

        if self.path and self.path.suffix in COMPRESSION_SUFFIXES:
            return None
        with suppress(OSError, AttributeError):  # no such file, or standard input is closed
            status = self.path.stat() if self.path else os.fstat(sys.stdin.fileno())
            return status.st_size if self.text is None and stat.S_ISREG(status.st_mode) else None
        return None

    def read(self, warnings: "WarningLog") -> "Iterator[list[Line]]":
        """Yields the lines in chunks, as they become available."""
        from seq2see.cli.lines import Line, read_chunks
        from seq2see.data.lines import open_bytes

        if self.text is not None:
            lines = self.text.split("\n")
            yield [Line(line, "\n", f"{self.name}, line {i:,}", len(line) + 1) for i, line in enumerate(lines, 1)]
        elif self.path:
            with open_bytes(self.path) if self.path.is_file() else self.path.open("rb") as file:
                yield from read_chunks(cast("Stream", file), self.name, warnings)
        elif sys.stdin is None:
            raise UserError("standard input is closed: give a file")
        else:
            yield from read_chunks(cast("Stream", sys.stdin.buffer), self.name, warnings)


def resolve_inputs(arguments: Sequence[str]) -> list[TextInput]:
    """Returns the files that the arguments name, or the arguments as one text, or standard input without arguments."""
    missing = [name for name in arguments if name != "-" and not os.path.exists(name)]
    if missing and len(missing) < len(arguments):
        raise UserError(f"{missing[0]}: no such file")
    if missing and all(map(_PATH_PATTERN.fullmatch, missing)):
        raise UserError(f'{missing[0]}: no such file; if it is text, use: echo "{missing[0]}" | seq2see translate')
    if missing:
        return [TextInput(text=valid_unicode(" ".join(missing)))]
    for name in arguments:
        if os.path.isdir(name):
            raise UserError(f"{name} is a directory, not a file: give the files in it")
    return [TextInput(None if name == "-" else Path(name)) for name in arguments or ["-"]]


def valid_unicode(text: str) -> str:
    """Replaces the bytes of an argument or a line of a terminal that are not UTF-8."""
    return text.encode(errors="surrogateescape").decode(errors="replace") if not text.isascii() else text
