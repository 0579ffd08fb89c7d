"""Gettext PO, the message catalogues of programs, as a corpus of `msgid` and `msgstr` and as a document to translate.

Of a corpus, the header and untranslated, fuzzy (unreviewed) and obsolete entries are skipped. In an entry with plurals, the
singular is paired with the form for n = 1 and the plural with each of the other forms. In a document, each `msgstr` gets the
translation of its `msgid`; the header, comments, contexts, flags and obsolete entries are never changed.

This parser streams, reports every error with its line number, and records the lines of each string, so that a translated
file differs from the original only in its `msgstr`. polib 1.2 was tried instead and rejected: it loads the whole file
(39 MB for 64,000 entries, here 0.5 MB), silently skips unterminated strings and bad escapes, and reformats on saving.
"""

import gettext
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from seq2see.config import DataConfig
from seq2see.data.corpus import ParallelCorpus
from seq2see.data.lines import STRICT, ReadCallbacks, ReadIssue, read_lines
from seq2see.data.readers import SentencePair, SingleFileReader
from seq2see.formats.parts import Document, DocumentFormat, Part, TranslationUnit, split_lines
from seq2see.tensors.files import require_regular_file

_LINE = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?)?\s*+"((?:[^"\\]++|\\.)*+)"\s*')
_ESCAPE = re.compile(r"((?:\\(?:[0-7]{1,3}|x[0-9A-Fa-f]{2}))+)|\\(.)")
_BYTE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{2}))")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"', "'": "'"}
_TO_ESCAPE = {character: f"\\{name}" for name, character in _ESCAPES.items() if name != "'"}
_NEEDS_ESCAPE = re.compile(f"[{re.escape(''.join(_TO_ESCAPE))}]")
_KEYWORD = re.compile(r"\s*(?:msg\w+(?:\[\d+\])?)?\s*")
_PLURAL = re.compile(r"^Plural-Forms:.*?\bplural\s*=\s*([^;\n]+)", re.MULTILINE | re.IGNORECASE)


def po(paths: Iterable[Path]) -> ParallelCorpus:
    """Reads the translated entries of gettext PO files."""
    return ParallelCorpus(tuple(PoReader(require_regular_file(path)) for path in paths))


def open_po(path: Path, data: DataConfig) -> ParallelCorpus:
    return po([path])


@dataclass(frozen=True)
class PoReader(SingleFileReader):
    """Reads the translated entries of a PO file, in file order."""

    format = "po"

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        singular = 0  # the index of the plural form for n = 1
        for entry in parse_entries(read_lines(self.path, callbacks), self.path, callbacks):
            if entry.is_header:
                singular = singular_form_index(entry)
            elif not entry.fuzzy:
                yield from entry.pairs(singular)


def parse_entries(lines: Iterable[str | None], path: Path, callbacks: ReadCallbacks = STRICT) -> Iterator["PoEntry"]:
    """Parses the entries in the lines of a PO file; malformed ones are reported to the callbacks and skipped."""
    entry = PoEntry()
    for number, line in enumerate(lines, 1):
        if entry.is_complete(line):
            yield from _validated(entry, path, callbacks)
            entry = PoEntry()
        if line is None:
            entry.malformed = True
            continue
        try:
            entry.add(line.strip(), number)
        except ValueError as error:
            entry.malformed = True
            callbacks.on_issue(ReadIssue("malformed", path, number, str(error)))
    yield from _validated(entry, path, callbacks)


def _validated(entry: "PoEntry", path: Path, callbacks: ReadCallbacks) -> Iterator["PoEntry"]:
    if entry.malformed or not entry.strings:
        return
    if "msgid" not in entry.strings or not entry.forms:
        callbacks.on_issue(ReadIssue("malformed", path, entry.line, "an entry needs a msgid and a msgstr"))
        return
    yield entry


@dataclass
class PoEntry:
    """One entry: its strings by keyword, and the line numbers of each. Lines are added as they are read."""

    line: int = 0
    fuzzy: bool = False
    malformed: bool = False
    strings: dict[str, list[str]] = field(default_factory=dict)
    line_numbers: dict[str, list[int]] = field(default_factory=dict)
    _open: str = ""

    @property
    def is_header(self) -> bool:
        return not self.text("msgid") and "msgctxt" not in self.strings

    def text(self, keyword: str) -> str:
        return "".join(self.strings.get(keyword, ()))

    def is_complete(self, next_line: str | None) -> bool:
        """Entries need no blank line between them: the comments or msgid of the next one end this one."""
        if next_line is None or not (self.forms or self.malformed):
            return False
        start = next_line.lstrip()
        return start.startswith(("#", "msgid", "msgctxt")) and not start.startswith("msgid_plural")

    def add(self, line: str, number: int) -> None:
        if line.startswith("#"):
            if line.startswith("#,"):
                self.fuzzy |= "fuzzy" in line
            elif line.startswith("#~"):
                self.fuzzy = False  # the flag belongs to the obsolete entry
            return
        if not line:
            return
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError('not PO: expected a comment, a keyword such as msgid, or "text"')
        keyword, text = match.groups()
        if keyword is not None:
            if keyword in self.strings:
                raise ValueError(f"duplicate {keyword} in one entry")
            self._open = keyword
            self.strings[keyword], self.line_numbers[keyword] = [], []
            if keyword in ("msgctxt", "msgid"):
                self.line = number
        if not self._open:
            raise ValueError("text before any keyword")
        self.strings[self._open].append(_ESCAPE.sub(_unescape, text))
        self.line_numbers[self._open].append(number)

    @property
    def forms(self) -> list[str]:
        """The keywords of the translations: msgstr, or msgstr[0], msgstr[1], …"""
        return [keyword for keyword in self.strings if keyword.startswith("msgstr")]

    def source_of(self, form: str, singular: int) -> str:
        """Returns the keyword of the source text of a form."""
        plural = "msgid_plural" in self.strings and form != f"msgstr[{singular}]"
        return "msgid_plural" if plural else "msgid"

    def pairs(self, singular: int) -> Iterator[SentencePair]:
        for form in self.forms:
            if not (translation := self.text(form)):
                continue
            source = self.source_of(form, singular)
            yield SentencePair(self.text(source), translation, self.line)
            if source == "msgid" and len(self.forms) == 1 and "msgid_plural" in self.strings:
                yield SentencePair(self.text("msgid_plural"), translation, self.line)


def _unescape(match: re.Match[str]) -> str:
    """Replaces a C escape sequence; octal and hexadecimal ones are bytes of UTF-8."""
    run, name = match.groups()
    if run is not None:
        codes = [int(octal, 8) if octal else int(hexadecimal, 16) for octal, hexadecimal in _BYTE.findall(run)]
        try:
            return bytes(codes).decode()
        except ValueError as error:
            raise ValueError(f"{run} is not UTF-8") from error
    if name not in _ESCAPES:
        raise ValueError(f"unknown escape \\{name}")
    return _ESCAPES[name]


def escape(text: str) -> str:
    return _NEEDS_ESCAPE.sub(lambda match: _TO_ESCAPE[match[0]], text)


def singular_form_index(header: PoEntry) -> int:
    """Returns the index of the plural form for n = 1."""
    match = _PLURAL.search(header.text("msgstr"))
    try:
        return gettext.c2py(match[1])(1) if match else 0
    except (ValueError, RecursionError, ArithmeticError):
        return 0


def read(document: Document) -> list[Part]:
    """Reads the parts of a PO file."""
    lines = split_lines(document.text)
    units: dict[int, TranslationUnit] = {}
    replaced: set[int] = set()  # continuation lines that the units replace
    singular = 0
    for entry in parse_entries(lines, document.path):
        if entry.is_header:
            singular = singular_form_index(entry)
            continue
        for form in entry.forms:
            if document.retranslate or not entry.text(form):
                first, *others = entry.line_numbers[form]
                units[first] = _unit(entry, form, entry.source_of(form, singular), lines)
                replaced.update(others)
    return [units.get(number, line) for number, line in enumerate(lines, 1) if number not in replaced]


def _unit(entry: PoEntry, form: str, source: str, lines: list[str]) -> TranslationUnit:
    first, last = (lines[entry.line_numbers[form][i] - 1] for i in (0, -1))
    keyword = _KEYWORD.match(first)
    before = keyword[0] if keyword else ""
    after = last[len(last.rstrip()) :]
    # A translation equal to its source keeps the line breaks of the source.
    unchanged = "".join(lines[number - 1] for number in entry.line_numbers[source])
    unchanged = _KEYWORD.sub("", unchanged, count=1).rstrip() + after
    render = partial(_render, entry.text(source), unchanged, before, after)
    return TranslationUnit(entry.text(source), entry.line_numbers[source][0], render)


def _render(source: str, unchanged: str, before: str, after: str, translation: str) -> str:
    if translation == source:
        return before + unchanged
    lines = [f'"{escape(line)}"' for line in split_lines(translation)] or ['""']
    if len(lines) > 1:
        lines.insert(0, '""')
    newline = "\r\n" if after.endswith("\r\n") else "\n"
    return before + newline.join(lines) + after


DOCUMENT = DocumentFormat(read)
