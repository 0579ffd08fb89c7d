"""The reader of plain text: a document ends at a blank line or at the end of its file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seq2see.config import Boundaries
from seq2see.data.formats.lines import ReadCallbacks, read_lines
from seq2see.data.formats.tabular import Reader

# Documents longer than this many characters are read in several chunks.
_CHUNK_CHARACTERS = 1 << 20


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
