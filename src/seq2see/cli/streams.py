"""Input and output of commands: arguments, files and pipes."""

import io
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from seq2see.errors import UserError
from seq2see.tensors.files import atomic_write, check_output

if TYPE_CHECKING:
    from seq2see.translate.lines import Stream

PLOTS = (".png", ".svg", ".pdf")
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
        from seq2see.data.formats.tabular import COMPRESSION_SUFFIXES

        if self.path and self.path.suffix in COMPRESSION_SUFFIXES:
            return None
        with suppress(OSError, AttributeError):  # no such file, or standard input is closed
            status = self.path.stat() if self.path else os.fstat(sys.stdin.fileno())
            return status.st_size if self.text is None and stat.S_ISREG(status.st_mode) else None
        return None

    @contextmanager
    def open(self) -> Iterator["Stream"]:
        """Opens the input as bytes, decompressed."""
        from seq2see.data.formats.lines import open_bytes

        if self.text is not None:
            yield io.BytesIO(self.text.encode(errors="surrogateescape") + b"\n")
        elif self.path:
            with open_bytes(self.path) if self.path.is_file() else self.path.open("rb") as stream:
                yield cast("Stream", stream)
        elif sys.stdin is None:
            raise UserError("standard input is closed: give a file")
        else:
            yield cast("Stream", sys.stdin.buffer)


def resolve_inputs(arguments: Sequence[str]) -> list[TextInput]:
    """Returns the files that the arguments name, or the arguments as one text, or standard input without arguments."""
    missing = [name for name in arguments if name != "-" and not os.path.exists(name)]
    if missing and len(missing) < len(arguments):
        raise UserError(f"{missing[0]}: no such file")
    if missing and all(map(_PATH_PATTERN.fullmatch, missing)):
        raise UserError(f'{missing[0]}: no such file; if it is text, use: echo "{missing[0]}" | seq2see translate')
    if missing:
        return [TextInput(text=" ".join(missing))]
    for name in arguments:
        if os.path.isdir(name):
            raise UserError(f"{name} is a directory, not a file: give the files in it")
    return [TextInput(None if name == "-" else Path(name)) for name in arguments or ["-"]]


def check_plot(out: Path | None, *other_suffixes: str) -> None:
    """Raises a UserError if a plot, or a file of another format, could not be written; called before computing it."""
    if out is None:
        return
    check_output(out, (*other_suffixes, *PLOTS))
    if out.suffix.lower() in PLOTS and find_spec("matplotlib") is None:
        raise UserError('plots need matplotlib: pip install "seq2see[plot]"')


@contextmanager
def open_output(out: Path | None) -> Iterator[BinaryIO]:
    """Opens standard output, or a file that appears only when it is complete."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with atomic_write(out) as part, part.open("wb") as output:
        yield output
