"""Line-by-line translation of a stream: one line out per line in, read as it arrives and translated in chunks.

A chunk is whatever is available, up to a limit: a person at the other end of a pipe gets each line immediately, and a
file goes through in large batches. Only a line feed ends a line. Invalid UTF-8 becomes U+FFFD, with a warning.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from seq2see.data.lines import LINE_TOO_LONG, MAX_LINE_BYTES, convert_read_errors, strip_bom
from seq2see.errors import UserError
from seq2see.translate.translator import Translator, one_line
from seq2see.translate.warning_log import WarningLog

_CHUNK_BYTES = 1 << 16


class Stream(Protocol):
    def read1(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Line:
    text: str
    ending: str  # \n, \r\n, or empty at the end of the file
    location: str
    size: int  # bytes


def read_chunks(stream: Stream, name: str, warnings: WarningLog) -> Iterator[list[Line]]:
    """Yields the lines of a stream in chunks of those that are available."""
    number = 0
    incomplete: list[bytes] = []  # the start of a line whose end has not arrived
    path = Path(name)
    with convert_read_errors(path, lambda: number):
        while data := stream.read1(_CHUNK_BYTES):
            if number == 0 and not incomplete:
                data = strip_bom(path, data)
            head, newline, tail = data.rpartition(b"\n")
            if not newline:
                incomplete.append(data)
                if sum(map(len, incomplete)) > MAX_LINE_BYTES:
                    raise UserError(f"{name}, line {number + 1:,}: {LINE_TOO_LONG}")
                continue
            lines = b"".join([*incomplete, head]).split(b"\n")
            incomplete = [tail] if tail else []
            yield [_decode(line, "\n", f"{name}, line {number + i:,}", warnings) for i, line in enumerate(lines, 1)]
            number += len(lines)
    if incomplete:
        yield [_decode(b"".join(incomplete), "", f"{name}, line {number + 1:,}", warnings)]
    elif not number:
        warnings.emit(f"{name} is empty")


def _decode(content: bytes, ending: str, location: str, warnings: WarningLog) -> Line:
    size = len(content) + len(ending)
    if ending and content.endswith(b"\r"):
        content, ending = content[:-1], "\r\n"
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        text = content.decode(errors="replace")
        message = f"byte {error.start + 1:,} (0x{content[error.start]:02x}) is not UTF-8: replaced by U+FFFD"
        warnings.add("lines were not UTF-8", location, message)
    return Line(text, ending, location, size)


def with_final_newline(chunks: Iterable[list[Line]]) -> Iterator[list[Line]]:
    """Adds a line feed to a last line without one, so that another file can follow."""
    for chunk in chunks:
        *before, last = chunk
        yield [*before, Line(last.text, last.ending or "\n", last.location, last.size)]


def translate_lines(lines: Sequence[Line], translator: Translator) -> str:
    """Translates the lines of a chunk."""
    texts = translator.translate([line.text for line in lines], [line.location for line in lines])
    return "".join(text + line.ending for text, line in zip(texts, lines, strict=True))


def translate_lines_as_json(lines: Sequence[Line], translator: Translator) -> str:
    """Returns one JSON object per line: its translation, and the n best of each sentence with scores and alignments."""
    from seq2see.inspect.alignment import align

    found = translator.translate_by_sentence([line.text for line in lines], [line.location for line in lines])
    candidates = [
        (sentence.source, one_line(translator.model.text(hypothesis)), hypothesis.score)
        for text in found
        for sentence in text.sentences
        for hypothesis in sentence.nbest
    ]
    pairs = [(sentence, translation) for sentence, translation, _ in candidates]
    links = align(translator.model, pairs) if pairs else []
    rows = iter(
        {"translation": translation, "score": score, "alignment": alignment}
        for (_, translation, score), alignment in zip(candidates, links, strict=True)
    )
    objects = []
    for line, text in zip(lines, found, strict=True):
        sentences = [
            {"source": each.source, **each.assessment.to_dict(), "translations": list(islice(rows, len(each.nbest)))}
            for each in text.sentences
        ]
        whole = {"source": line.text, "translation": text.text, **text.assessment.to_dict()}
        objects.append({**whole, "sentences": sentences})
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)
