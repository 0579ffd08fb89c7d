"""Gettext PO, the translated messages of programs: pairs of `msgid` and `msgstr`.

Untranslated, fuzzy (unchecked) and obsolete entries are passed over, and the header is not text. Of an entry with
plurals, the singular goes with the form for one thing and the plural with each of the others.
"""

import gettext
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from seq2see.text.formats.lines import Fault, Listener, lines
from seq2see.text.formats.tables import Part, Row, side_names

_LINE = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)?\s*"((?:[^"\\]|\\.)*)"\s*')
_ESCAPE = re.compile(r"((?:\\(?:[0-7]{1,3}|x[0-9A-Fa-f]{2}))+)|\\(.)")
_BYTE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{2}))")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"', "'": "'"}
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
        for entry in self._entries(listener):
            if entry.is_header:
                singular = _form_for_one(entry.text("msgstr"))
            elif not entry.fuzzy:
                yield from entry.rows(singular)

    def _entries(self, listener: Listener) -> Iterator["_Entry"]:
        entry = _Entry()
        for number, line in enumerate(lines(self.path, listener), 1):
            if entry.finished_by(line):
                yield from self._sound(entry, listener)
                entry = _Entry()
            if line is None:
                entry.broken = True
                continue
            try:
                entry.add(line.strip(), number)
            except ValueError as error:
                entry.broken = True
                listener.fault(Fault("malformed", self.path, number, str(error)))
        yield from self._sound(entry, listener)

    def _sound(self, entry: "_Entry", listener: Listener) -> Iterator["_Entry"]:
        if entry.broken or not entry.strings:
            return
        if "msgid" not in entry.strings or not entry.translated:
            listener.fault(Fault("malformed", self.path, entry.line, "an entry needs both a msgid and a msgstr"))
            return
        yield entry


@dataclass
class _Entry:
    """The strings of one entry by their keyword, as far as they have been read."""

    line: int = 0
    fuzzy: bool = False
    broken: bool = False
    translated: bool = False
    strings: dict[str, list[str]] = field(default_factory=dict)
    _open: list[str] | None = None

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
            self._open = self.strings[keyword] = []
            self.translated |= keyword.startswith("msgstr")
            if keyword in ("msgctxt", "msgid"):
                self.line = number
        if self._open is None:
            raise ValueError("text before any keyword")
        self._open.append(unescape(text))

    def rows(self, singular: int) -> Iterator[Row]:
        if "msgid_plural" not in self.strings:
            if translation := self.text("msgstr"):
                yield Row(self.text("msgid"), translation, self.line)
            return
        forms = [keyword for keyword in self.strings if keyword.startswith("msgstr[")]
        one = f"msgstr[{singular}]"
        for form in forms:
            if not (translation := self.text(form)):
                continue
            if form == one:
                yield Row(self.text("msgid"), translation, self.line)
            if form != one or len(forms) == 1:
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


def _form_for_one(header: str) -> int:
    match = _PLURAL.search(header)
    try:
        return gettext.c2py(match[1])(1) if match else 0
    except (ValueError, RecursionError, ArithmeticError):
        return 0
