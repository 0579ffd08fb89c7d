"""TMX, the translation memory format: reads two languages from an XML file of any size.

Expat parses the file block by block, so memory stays constant. A file that declares entities is rejected: nothing is
fetched from elsewhere, and no entity can expand into gigabytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from seq2see.config import DataConfig
from seq2see.data.corpus import ParallelCorpus, split_option
from seq2see.data.lines import MAX_LINE_BYTES, ReadCallbacks, convert_read_errors, open_bytes
from seq2see.data.readers import SentencePair, SingleFileReader
from seq2see.errors import UserError
from seq2see.tensors.files import require_regular_file

_BLOCK_SIZE = 1 << 16
_MAX_TAG_BYTES = MAX_LINE_BYTES // 4  # of a tag or a comment, for which Expat takes up to four times its size
_TOO_LONG = "longer than {:,} bytes: is the file damaged?"
# Inline elements that contain formatting codes of the translated document, not text.
_CODE_TAGS = {"bpt", "ept", "it", "ph", "ut"}


def tmx(paths: Iterable[Path], source_language: str, target_language: str) -> ParallelCorpus:
    """Reads translation memories; `en` also matches `en-GB`."""
    return ParallelCorpus(
        tuple(TmxReader(require_regular_file(path), source_language, target_language) for path in paths)
    )


def open_tmx(path: Path, data: DataConfig) -> ParallelCorpus:
    return tmx([path], *split_option(data.languages, "--languages", "en,hi"))


@dataclass(frozen=True)
class TmxReader(SingleFileReader):
    """Reads the units that have both languages; `en` also matches `en-GB` and `EN_us`."""

    format = "tmx"

    source_language: str
    target_language: str

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        parser = _TmxParser(self)
        any_pairs = False
        with open_bytes(self.path, callbacks) as file, convert_read_errors(self.path, lambda: parser.line):
            while block := file.read(_BLOCK_SIZE):
                parser.feed(block)
                any_pairs = any_pairs or bool(parser.pairs)
                yield from parser.pairs
                parser.pairs.clear()
        parser.feed(b"", last=True)
        yield from parser.pairs
        if not any_pairs and not parser.pairs:
            requested = f"{self.source_language} and {self.target_language}"
            found = ", ".join(sorted(parser.languages)) or "none"
            raise UserError(f"{self.path} has no unit with both {requested}: its languages are {found}")


@dataclass
class _TmxParser:
    """Parses blocks of the file and collects the sentence pairs."""

    reader: TmxReader
    pairs: list[SentencePair] = field(default_factory=list)
    languages: set[str] = field(default_factory=set)
    _segments: dict[str, str] = field(default_factory=dict)
    _unit_line: int = 0
    _language: str = ""
    _text: list[str] | None = None
    _text_size: int = 0
    _code_depth: int = 0
    _depth: int = 0
    _size: int = 0  # bytes fed

    def __post_init__(self) -> None:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._entity
        self._parser = parser

    @property
    def line(self) -> int:
        return self._parser.CurrentLineNumber

    def feed(self, block: bytes, last: bool = False) -> None:
        try:
            self._parser.Parse(block, last)
        except expat.ExpatError as error:
            problem = expat.ErrorString(error.code)
            position = f"{self.reader.path}, line {error.lineno:,}, column {error.offset + 1:,}"
            raise UserError(f"{position}: not well-formed XML ({problem})") from error
        except (LookupError, ValueError) as error:  # what Python's codecs say about the declared encoding
            raise UserError(f"{self.reader.path}: {error}; convert it to UTF-8 and declare that") from error
        self._size += len(block)
        if self._size - self._parser.CurrentByteIndex > _MAX_TAG_BYTES:
            raise UserError(
                f"{self.reader.path}, line {self.line:,}: a tag or a comment {_TOO_LONG.format(_MAX_TAG_BYTES)}"
            )

    def _entity(self, name: str, *_: object) -> None:
        message = "only the five predefined XML entities are allowed, for safety: write the characters themselves"
        raise UserError(f'{self.reader.path}, line {self.line:,}: entity "{name}": {message}')

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and tag != "tmx":
            raise UserError(f"{self.reader.path} is not TMX: its root element is <{tag}>")
        if tag == "tu":
            self._segments.clear()
            self._unit_line = self.line
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self.languages.add(self._language)
        elif tag == "seg":
            self._text, self._text_size, self._code_depth = [], 0, 0
        elif tag in _CODE_TAGS:
            self._code_depth += 1

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._code_depth:
            self._text.append(text)
            self._text_size += len(text)
            if self._text_size > MAX_LINE_BYTES:
                raise UserError(f"{self.reader.path}, line {self.line:,}: a segment {_TOO_LONG.format(MAX_LINE_BYTES)}")

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag in _CODE_TAGS:
            self._code_depth -= 1
        elif tag == "seg" and self._text is not None:
            self._segments.setdefault(_canonical(self._language), "".join(self._text))
            self._text = None
        elif tag == "tu":
            source, target = self._segment(self.reader.source_language), self._segment(self.reader.target_language)
            if source is not None and target is not None:
                self.pairs.append(SentencePair(source, target, self._unit_line))

    def _segment(self, requested: str) -> str | None:
        requested = _canonical(requested)
        for language, text in self._segments.items():
            if language == requested or language.startswith(f"{requested}-"):
                return text
        return None


def _canonical(language: str) -> str:
    return language.lower().replace("_", "-")
