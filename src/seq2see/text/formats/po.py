"""Gettext PO, the translated messages of programs: pairs of `msgid` and `msgstr`.

Untranslated, fuzzy (unchecked) and obsolete entries are passed over, and the header is not text. Of an entry with
plurals, the singular goes with the form for one thing and the plural with each of the others.
"""

import gettext
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from seq2see.text.formats.lines import STRICT, Fault, Listener, lines
from seq2see.text.formats.tabular import Part, Row, side_names

_LINE = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)?\s*"((?:[^"\\]|\\.)*)"\s*')
_ESCAPE = re.compile(r"((?:\\(?:[0-7]{1,3}|x[0-9A-Fa-f]{2}))+)|\\(.)")
_BYTE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{2}))")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"', "'": "'"}
_WRITTEN = {character: f"\\{name}" for name, character in _NAMED.items() if name != "'"}
_ESCAPED = re.compile(f"[{re.escape(''.join(_WRITTEN))}]")
_PLURAL = re.compile(r"^Plural-Forms:.*?\bplural\s*=\s*([^;\n]+)", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class Po(Part):
    """The finished entries of a PO file, in the file's order."""

    path: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def manner(self) -> str:
        return "po"

    @property
    def names(self) -> tuple[str, str]:
        return side_names(self.path, 1, 2)

    def read(self, listener: Listener) -> Iterator[Row]:
        singular = 0  # the index of the form for one thing
        for entry in entries(lines(self.path, listener), self.path, listener):
            if entry.is_header:
                singular = form_for_one(entry)
            elif not entry.fuzzy:
                yield from entry.rows(singular)


def entries(lines: Iterable[str | None], path: Path, listener: Listener = STRICT) -> Iterator["Entry"]:
    """The entries in the lines of a PO file; those that the listener was told of are left out."""
    entry = Entry()
    for number, line in enumerate(lines, 1):
        if entry.finished_by(line):
            yield from _sound(entry, path, listener)
            entry = Entry()
        if line is None:
            entry.broken = True
            continue
        try:
            entry.add(line.strip(), number)
        except ValueError as error:
            entry.broken = True
            listener.fault(Fault("malformed", path, number, str(error)))
    yield from _sound(entry, path, listener)


def _sound(entry: "Entry", path: Path, listener: Listener) -> Iterator["Entry"]:
    if entry.broken or not entry.strings:
        return
    if "msgid" not in entry.strings or not entry.translated:
        listener.fault(Fault("malformed", path, entry.line, "an entry needs both a msgid and a msgstr"))
        return
    yield entry


@dataclass
class Entry:
    """The strings of one entry by their keyword, and the lines they stand in, as far as they have been read."""

    line: int = 0
    fuzzy: bool = False
    broken: bool = False
    translated: bool = False
    strings: dict[str, list[str]] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)
    _open: str = ""

    @property
    def is_header(self) -> bool:
        return not self.text("msgid") and "msgctxt" not in self.strings

    def text(self, keyword: str) -> str:
        return "".join(self.strings.get(keyword, ()))

    def finished_by(self, line: str | None) -> bool:
        """Entries need no blank line between them: the next one's comments or msgid end this one."""
        if line is None or not (self.translated or self.broken):
            return False
        start = line.lstrip()
        return start.startswith(("#", "msgid", "msgctxt")) and not start.startswith("msgid_plural")

    def add(self, line: str, number: int) -> None:
        if line.startswith("#"):
            if line.startswith("#,"):
                self.fuzzy |= "fuzzy" in line
            elif line.startswith("#~"):
                self.fuzzy = False  # the flag stood for the obsolete entry
            return
        if not line:
            return
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError('not PO: wanted a comment, a keyword such as msgid, or "text"')
        keyword, text = match.groups()
        if keyword is not None:
            if keyword in self.strings:
                raise ValueError(f"a second {keyword} in one entry")
            self._open = keyword
            self.strings[keyword], self.places[keyword] = [], []
            self.translated |= keyword.startswith("msgstr")
            if keyword in ("msgctxt", "msgid"):
                self.line = number
        if not self._open:
            raise ValueError("text before any keyword")
        self.strings[self._open].append(unescape(text))
        self.places[self._open].append(number)

    @property
    def forms(self) -> list[str]:
        """The keywords of the translation: msgstr, or one for each plural form."""
        return [keyword for keyword in self.strings if keyword.startswith("msgstr")]

    def source_of(self, form: str, singular: int) -> str:
        """The keyword of the text that a form translates."""
        plural = "msgid_plural" in self.strings and form != f"msgstr[{singular}]"
        return "msgid_plural" if plural else "msgid"

    def rows(self, singular: int) -> Iterator[Row]:
        for form in self.forms:
            if not (translation := self.text(form)):
                continue
            source = self.source_of(form, singular)
            yield Row(self.text(source), translation, self.line)
            if source == "msgid" and len(self.forms) == 1 and "msgid_plural" in self.strings:
                yield Row(self.text("msgid_plural"), translation, self.line)


def unescape(text: str) -> str:
    """The text that C's escapes stand for; octal and hexadecimal ones are bytes of UTF-8."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_unescape_one, text)


def _unescape_one(match: re.Match[str]) -> str:
    run, name = match.groups()
    if run is not None:
        codes = [int(octal, 8) if octal else int(hexadecimal, 16) for octal, hexadecimal in _BYTE.findall(run)]
        try:
            return bytes(codes).decode()
        except ValueError as error:
            raise ValueError(f"{run} is not UTF-8") from error
    if name not in _NAMED:
        raise ValueError(f"unknown escape \\{name}")
    return _NAMED[name]


def escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: _WRITTEN[match[0]], text)


def form_for_one(header: Entry) -> int:
    """The index of the plural form for one thing."""
    match = _PLURAL.search(header.text("msgstr"))
    try:
        return gettext.c2py(match[1])(1) if match else 0
    except (ValueError, RecursionError, ArithmeticError):
        return 0
