"""Markdown: headings, paragraphs, list items and table cells are translated; whatever else there is stays.

The blocks are told apart line by line, as CommonMark and GitHub's tables have them. Marks inside a line (emphasis, code,
links) are placeholders, which `placeholders.MARKDOWN` knows.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from seq2see.translate.slots import Part, Slot, Writer, lines_of

_QUOTE = re.compile(r"[ \t]{0,3}>[ \t]?")
_MARKER = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)")
_RULE = re.compile(r"[ \t]*(?:([-*_])(?:[ \t]*\1){2,}|=+|-+)[ \t]*$")  # a line across, or one under a heading
_FENCE = re.compile(r"[ \t]*(?:(`{3,})[^`]*$|(~{3,})|(\$\$)[ \t]*$)")
_HEADING = re.compile(r"[ \t]*#{1,6}(?:[ \t]+|$)")
_HASHES = re.compile(r"(?:^|[ \t])#+[ \t]*$")
_FOOTNOTE = re.compile(r"[ \t]*\[\^[^\]]+\]:[ \t]*")
_DEFINITION = re.compile(r"[ \t]*(?:\[[^\]]+\]:|:::)")
_DELIMITERS = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_PIPE = re.compile(r"(?<!\\)\|")
_FRONT = re.compile(r"(---|\+\+\+)[ \t]*$")
_HARD_BREAK = re.compile(r"(?:  |\\)$")
_RAW = re.compile(r"[ \t]*<(script|pre|style|textarea)(?=[\s>]|$)", re.IGNORECASE)
_HTML = re.compile(
    r"[ \t]*<(?:/?(?:address|article|aside|blockquote|body|center|col|colgroup|dd|details|dialog|div|dl|dt|fieldset|figcaption"
    r"|figure|footer|form|frame|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|nav|ol|option|p|param|picture"
    r"|section|source|summary|table|tbody|td|tfoot|th|thead|title|tr|track|ul|video)(?=[\s/>]|$)|[?!]"
    r"|/?[A-Za-z][^<>]*>[ \t]*$)",
    re.IGNORECASE,
)
# What a line of a paragraph must not begin with, or it is none.
_BLOCK = re.compile("|".join(p.pattern for p in (_QUOTE, _MARKER, _RULE, _FENCE, _HEADING, _DEFINITION)))


def read(text: str) -> list[Part]:
    return _Reader(lines_of(text)).read()


@dataclass
class _Reader:
    lines: list[str]
    writer: Writer = field(default_factory=lambda: Writer(_BLOCK))
    until: re.Pattern[str] | None = None  # what ends the lines that stay
    content: int = 0  # columns by which the text of the list item is indented
    in_table: bool = False

    def read(self) -> list[Part]:
        first = self._after_front_matter()
        for line in self.lines[:first]:
            self.writer.keep(line)
        for number in range(first, len(self.lines)):
            self._line(self.lines[number], number)
        self.writer.end()
        return self.writer.parts

    def _after_front_matter(self) -> int:
        opened = _FRONT.match(self.lines[0].rstrip("\r\n")) if self.lines else None
        if not opened:
            return 0
        ends = (opened[1], "..." if opened[1] == "---" else opened[1])
        return next((n + 1 for n, line in enumerate(self.lines[1:], 1) if line.rstrip() in ends), 0)

    def _line(self, line: str, number: int) -> None:
        bare = line.rstrip("\r\n")
        start = 0
        while quote := _QUOTE.match(bare, start):
            start = quote.end()
        if self.until is not None:
            self.writer.keep(line)
            if self.until.search(bare, start):
                self.until = None
        elif not bare[start:].strip():
            self.writer.keep(line)
            self.in_table = False
        elif self.in_table and _PIPE.search(bare, start):
            self._row(line, number)
        else:
            self._block(line, bare, start, number)

    def _block(self, line: str, bare: str, start: int, number: int) -> None:
        self.in_table = False
        indent = len(bare[start:].expandtabs(4)) - len(bare[start:].expandtabs(4).lstrip())
        if not self.writer.last:
            if indent == 0 and not _MARKER.match(bare, start):
                self.content = 0
            if indent >= self.content + 4:
                self.writer.keep(line)  # indented code
                return
        if _RULE.match(bare, start):
            self.writer.keep(line)
            return
        while marker := _MARKER.match(bare, start):
            self.writer.end()
            start = marker.end()
            self.content = len(bare[:start].expandtabs(4))
        if not (self._stays(line, bare, start) or self._table(line, bare, start, number)):
            self._text(line, bare, start, number)

    def _stays(self, line: str, bare: str, start: int) -> bool:
        """Whether the line is code, HTML or a definition, which stay, with the lines that belong to it."""
        if fence := _FENCE.match(bare, start):
            marks = fence[1] or fence[2] or fence[3]
            self.until = re.compile(rf"^[\s>]*{re.escape(marks)}{re.escape(marks[0])}*\s*$")
        elif raw := _RAW.match(bare, start):
            self.until = None if f"</{raw[1]}" in bare else re.compile(f"</{raw[1]}", re.IGNORECASE)
        elif bare.startswith("<!--", start + len(bare[start:]) - len(bare[start:].lstrip())):
            self.until = None if "-->" in bare else re.compile("-->")
        elif _HTML.match(bare, start) and not self.writer.last:
            self.until = re.compile(r"^[\s>]*$")
        elif not _DEFINITION.match(bare, start) or _FOOTNOTE.match(bare, start):
            return False
        self.writer.keep(line)
        return True

    def _table(self, line: str, bare: str, start: int, number: int) -> bool:
        following = self.lines[number + 1].rstrip("\r\n") if number + 1 < len(self.lines) else ""
        if not (_PIPE.search(bare, start) and "|" in following and _DELIMITERS.match(following.lstrip("> \t"))):
            return False
        self.writer.end()
        self.in_table = True
        self._row(line, number)
        return True

    def _row(self, line: str, number: int) -> None:
        if _DELIMITERS.match(line.lstrip("> \t").rstrip("\r\n")):
            self.writer.keep(line)
            return
        edges = [0, *(place for pipe in _PIPE.finditer(line) for place in pipe.span()), len(line)]
        for i, (start, end) in enumerate(pairwise(edges)):
            cell = line[start:end]
            if i % 2 or not cell.strip("> \t\r\n"):
                self.writer.keep(cell)
                continue
            body = cell.strip()
            before, after = cell.split(body, 1)
            self.writer.keep(before)
            self.writer.parts += [Slot(body, number + 1, lambda text: _PIPE.sub(r"\\|", text)), after]

    def _text(self, line: str, bare: str, start: int, number: int) -> None:
        if heading := _HEADING.match(bare, start):
            self.writer.end()
            hashes = _HASHES.search(bare, heading.end())
            self.writer.add(line, number + 1, heading.end(), hashes.start() if hashes else len(bare))
            self.writer.end()
            return
        if footnote := _FOOTNOTE.match(bare, start):
            self.writer.end()
            start = footnote.end()
        hard = _HARD_BREAK.search(bare)
        self.writer.add(line, number + 1, start, hard.start() if hard else len(bare))
        if hard:
            self.writer.end()
