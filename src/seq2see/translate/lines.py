"""Lines in, as many lines out: a stream read as it comes, in chunks that are translated together.

A chunk is what there is to read, up to a limit, so that a person at the other end of a pipe gets each line at once and a
file goes through in large batches. Only a line feed ends a line. Bytes that are not UTF-8 become U+FFFD and are told.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seq2see.text.formats.lines import decompressed, without_mark
from seq2see.translate.notices import Notes
from seq2see.translate.translator import Translator, one_line

Render = Callable[[Sequence["Line"], Translator], str]

_CHUNK = 1 << 16  # bytes


class Stream(Protocol):
    def read1(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Line:
    text: str
    end: str  # \n, \r\n, or nothing at the end of the file
    place: str
    size: int  # bytes


def read(stream: Stream, name: str, notes: Notes) -> Iterator[list[Line]]:
    """The lines of a stream, in chunks of those that are there."""
    number = 0
    waiting: list[bytes] = []  # the beginning of a line whose end has not come
    path = Path(name)
    with decompressed(path, lambda: number):
        while data := stream.read1(_CHUNK):
            if number == 0 and not waiting:
                data = without_mark(path, data)
            head, feed, tail = data.rpartition(b"\n")
            if not feed:
                waiting.append(data)
                continue
            lines = b"".join([*waiting, head]).split(b"\n")
            waiting = [tail] if tail else []
            yield [_line(line, "\n", f"{name}, line {number + i:,}", notes) for i, line in enumerate(lines, 1)]
            number += len(lines)
    if waiting:
        yield [_line(b"".join(waiting), "", f"{name}, line {number + 1:,}", notes)]
    elif not number:
        notes.say(f"{name} is empty")


def _line(content: bytes, end: str, place: str, notes: Notes) -> Line:
    size = len(content) + len(end)
    if end and content.endswith(b"\r"):
        content, end = content[:-1], "\r\n"
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        text = content.decode(errors="replace")
        what = f"byte {error.start + 1:,} (0x{content[error.start]:02x}) is not UTF-8: replaced by U+FFFD"
        notes.add("lines were not UTF-8", place, what)
    return Line(text, end, place, size)


def ended(chunks: Iterable[list[Line]]) -> Iterator[list[Line]]:
    """The same, the last line ended too: another file comes behind it, or a person reads it."""
    for chunk in chunks:
        *before, last = chunk
        yield [*before, Line(last.text, last.end or "\n", last.place, last.size)]


def translated(lines: Sequence[Line], translator: Translator) -> str:
    """The lines of a chunk in the other language."""
    texts = translator.translate([line.text for line in lines], [line.place for line in lines])
    return "".join(text + line.end for text, line in zip(texts, lines, strict=True))


def as_json(lines: Sequence[Line], translator: Translator, nbest: int) -> str:
    """A JSON object for each line: its translation, and for each sentence the best few, with scores and alignments."""
    from seq2see.inspect.alignment import align

    model = translator.model
    splits = [translator.split(line.text, line.place) for line in lines]
    sentences = [sentence for split in splits for sentence in split.sentences]
    found = model.hypotheses(sentences, beam=translator.beam, nbest=nbest) if sentences else []
    texts = [[one_line(model.tokenizers[1].decode(best.tokens)) for best in hypotheses] for hypotheses in found]
    pairs = [(sentence, text) for sentence, several in zip(sentences, texts, strict=True) for text in several]
    alignments = iter(align(model, pairs) if pairs else [])
    told = iter(
        {
            "source": sentence,
            "translations": [
                {"translation": text, "score": best.score, "alignment": next(alignments)}
                for text, best in zip(several, hypotheses, strict=True)
            ],
        }
        for sentence, several, hypotheses in zip(sentences, texts, found, strict=True)
    )
    bests = iter(several[0] for several in texts)
    written = []
    for line, split in zip(lines, splits, strict=True):
        whole = split.join([next(bests) for _ in split.sentences])
        parts = [next(told) for _ in split.sentences]
        written.append(json.dumps({"source": line.text, "translation": whole, "sentences": parts}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in written)
