"""TMX, the translation memories of translators' tools: two languages out of an XML file of any size.

Expat reads the file a block at a time, so memory stays constant. A file that declares entities is refused: nothing is
fetched from elsewhere, and nothing can unfold into gigabytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from seq2see.errors import UserError
from seq2see.text.formats.lines import Listener, decompressed, open_bytes
from seq2see.text.formats.tabular import Part, Row, side_names

_BLOCK = 1 << 16
# Inline elements whose content is a formatting code of the translated document, not its text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}


@dataclass(frozen=True)
class Tmx(Part):
    """The units that have both languages; `en` also means `en-GB` and `EN_us`."""

    path: Path
    source_language: str
    target_language: str

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def manner(self) -> str:
        return f"tmx {self.source_language!r} {self.target_language!r}"

    @property
    def names(self) -> tuple[str, str]:
        return side_names(self.path, self.source_language, self.target_language)

    def read(self, listener: Listener) -> Iterator[Row]:
        units = _Units(self)
        found = False
        with open_bytes(self.path, listener) as file, decompressed(self.path, lambda: units.line):
            while block := file.read(_BLOCK):
                units.feed(block)
                found = found or bool(units.rows)
                yield from units.rows
                units.rows.clear()
        units.feed(b"", last=True)
        yield from units.rows
        if not found and not units.rows:
            wanted = f"{self.source_language} and {self.target_language}"
            there = ", ".join(sorted(units.languages)) or "none"
            raise UserError(f"{self.path} has no unit with both {wanted}: its languages are {there}")


@dataclass
class _Units:
    """What has been understood of the file so far."""

    part: Tmx
    rows: list[Row] = field(default_factory=list)
    languages: set[str] = field(default_factory=set)
    _segments: dict[str, str] = field(default_factory=dict)
    _unit_line: int = 0
    _language: str = ""
    _text: list[str] | None = None
    _codes: int = 0
    _depth: int = 0

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
            what = expat.ErrorString(error.code)
            where = f"{self.part.path}, line {error.lineno:,}, column {error.offset + 1:,}"
            raise UserError(f"{where}: not well-formed XML ({what})") from error

    def _entity(self, name: str, *_: object) -> None:
        message = "entities other than XML's own five are refused, for safety: write the characters themselves"
        raise UserError(f'{self.part.path}, line {self.line:,}: entity "{name}": {message}')

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and tag != "tmx":
            raise UserError(f"{self.part.path} is not TMX: its outermost element is <{tag}>")
        if tag == "tu":
            self._segments.clear()
            self._unit_line = self.line
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self.languages.add(self._language)
        elif tag == "seg":
            self._text, self._codes = [], 0
        elif tag in _CODES:
            self._codes += 1

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._codes:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag in _CODES:
            self._codes -= 1
        elif tag == "seg" and self._text is not None:
            self._segments.setdefault(_canonical(self._language), "".join(self._text))
            self._text = None
        elif tag == "tu":
            source, target = self._side(self.part.source_language), self._side(self.part.target_language)
            if source is not None and target is not None:
                self.rows.append(Row(source, target, self._unit_line))

    def _side(self, wanted: str) -> str | None:
        wanted = _canonical(wanted)
        for language, text in self._segments.items():
            if language == wanted or language.startswith(f"{wanted}-"):
                return text
        return None


def _canonical(language: str) -> str:
    return language.lower().replace("_", "-")
