"""Markdown: headings, paragraphs, list items and table cells are translated; everything else stays unchanged.

Blocks are recognised line by line, following CommonMark and GitHub's tables. Inline markup (emphasis, links) is
found by `placeholders.MARKDOWN_PLACEHOLDER` and carried by `markup.py`; code is a placeholder.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from seq2see.formats.parts import Document, DocumentFormat, Part, PartsBuilder, TranslationUnit, split_lines
from seq2see.formats.placeholders import MARKDOWN_PLACEHOLDER

_QUOTE = re.compile(r"[ \t]{0,3}>[ \t]?")
_MARKER = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)")
_RULE = re.compile(r"[ \t]*(?:([-*_])(?:[ \t]*\1){2,}|=+|-+)[ \t]*$")  # thematic breaks and setext heading underlines
_FENCE = re.compile(r"[ \t]*(?:(`{3,})[^`]*$|(~{3,})|(\$\$)[ \t]*$)")
_HEADING = re.compile(r"[ \t]*#{1,6}(?:[ \t]+|$)")
_HASHES = re.compile(r"(?:^|[ \t])#+[ \t]*$")
_FOOTNOTE = re.compile(r"[ \t]*\[\^[^\]]+\]:[ \t]*")
_DEFINITION = re.compile(r"[ \t]*(?:\[[^\]]+\]:|:::)")
_DELIMITERS = re.compile(r"[ \t]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*$")
_PIPE = re.compile(r"(?<!\\)\|")
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*$")
_HARD_BREAK = re.compile(r"(?:  |\\)$")
_RAW = re.compile(r"[ \t]*<(script|pre|style|textarea)(?=[\s>]|$)", re.IGNORECASE)
_HTML = re.compile(
    r"[ \t]*<(?:/?(?:address|article|aside|blockquote|body|center|col|colgroup|dd|details|dialog|div|dl|dt|fieldset|figcaption"
    r"|figure|footer|form|frame|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|nav|ol|option|p|param|picture"
    r"|section|source|summary|table|tbody|td|tfoot|th|thead|title|tr|track|ul|video)(?=[\s/>]|$)|[?!]"
    r"|/?[A-Za-z][^<>]*>[ \t]*$)",
    re.IGNORECASE,
)
# What would make a line of a paragraph start another block.
_BLOCK = re.compile("|".join(p.pattern for p in (_QUOTE, _MARKER, _RULE, _FENCE, _HEADING, _DEFINITION)))


def read(document: Document) -> list[Part]:
    return _Reader(split_lines(document.text)).read()


@dataclass
class _Reader:
    lines: list[str]
    builder: PartsBuilder = field(default_factory=lambda: PartsBuilder(MARKDOWN_PLACEHOLDER, _BLOCK))
    until: re.Pattern[str] | None = None  # what ends the current verbatim block
    content_indent: int = 0  # columns by which the text of the current list item is indented
    in_table: bool = False

    def read(self) -> list[Part]:
        first = self._after_front_matter()
        for line in self.lines[:first]:
            self.builder.keep(line)
        for number in range(first, len(self.lines)):
            self._line(self.lines[number], number)
        self.builder.end()
        return self.builder.parts

    def _after_front_matter(self) -> int:
        opening = _FRONT_MATTER.match(self.lines[0].rstrip("\r\n")) if self.lines else None
        if not opening:
            return 0
        ends = (opening[1], "..." if opening[1] == "---" else opening[1])
        return next((n + 1 for n, line in enumerate(self.lines[1:], 1) if line.rstrip() in ends), 0)

    def _line(self, line: str, number: int) -> None:
        bare = line.rstrip("\r\n")
        start = 0
        while quote := _QUOTE.match(bare, start):
            start = quote.end()
        if self.until is not None:
            self.builder.keep(line)
            if self.until.search(bare[start:]):
                self.until = None
        elif not bare[start:].strip():
            self.builder.keep(line)
            self.in_table = False
        elif self.in_table and _PIPE.search(bare, start):
            self._row(line, number)
        else:
            self._block(line, bare, start, number)

    def _block(self, line: str, bare: str, start: int, number: int) -> None:
        self.in_table = False
        indent = len(bare[start:].expandtabs(4)) - len(bare[start:].expandtabs(4).lstrip())
        if not self.builder.last:
            if indent == 0 and not _MARKER.match(bare, start):
                self.content_indent = 0
            if indent >= self.content_indent + 4:
                self.builder.keep(line)  # indented code
                return
        if _RULE.match(bare, start):
            self.builder.keep(line)
            return
        before = start
        while marker := _MARKER.match(bare, start):
            start = marker.end()
        if start > before:
            self.builder.end()
            self.content_indent = len(bare[:start].expandtabs(4))
        if not (self._keep_verbatim(line, bare, start) or self._start_table(line, bare, start, number)):
            self._text(line, bare, start, number)

    def _keep_verbatim(self, line: str, bare: str, start: int) -> bool:
        """Keeps a line of code, HTML or a link definition, with the lines that belong to it; returns False for other lines."""
        if fence := _FENCE.match(bare, start):
            marks = fence[1] or fence[2] or fence[3]
            self.until = re.compile(rf"^[\s>]*{re.escape(marks)}{re.escape(marks[0])}*\s*$")
        elif raw := _RAW.match(bare, start):
            end = re.compile(f"</{raw[1]}", re.IGNORECASE)
            self.until = None if end.search(bare) else end
        elif bare.startswith("<!--", start + len(bare[start:]) - len(bare[start:].lstrip())):
            self.until = None if "-->" in bare else re.compile("-->")
        elif _HTML.match(bare, start) and not self.builder.last:
            self.until = re.compile(r"^[\s>]*$")
        elif not _DEFINITION.match(bare, start) or _FOOTNOTE.match(bare, start):
            return False
        self.builder.keep(line)
        return True

    def _start_table(self, line: str, bare: str, start: int, number: int) -> bool:
        following = self.lines[number + 1].rstrip("\r\n") if number + 1 < len(self.lines) else ""
        if not (_PIPE.search(bare, start) and "|" in following and _DELIMITERS.match(following.lstrip("> \t"))):
            return False
        self.builder.end()
        self.in_table = True
        self._row(line, number)
        return True

    def _row(self, line: str, number: int) -> None:
        if _DELIMITERS.match(line.lstrip("> \t").rstrip("\r\n")):
            self.builder.keep(line)
            return
        edges = [0, *(edge for pipe in _PIPE.finditer(line) for edge in pipe.span()), len(line)]
        for i, (start, end) in enumerate(pairwise(edges)):
            cell = line[start:end]
            if i % 2 or not cell.strip("> \t\r\n").strip():
                self.builder.keep(cell)
                continue
            body = cell.strip()
            before, after = cell.split(body, 1)
            self.builder.keep(before)
            self.builder.parts += [TranslationUnit(body, number + 1, lambda text: _PIPE.sub(r"\\|", text)), after]

    def _text(self, line: str, bare: str, start: int, number: int) -> None:
        if heading := _HEADING.match(bare, start):
            self.builder.end()
            hashes = _HASHES.search(bare, heading.end())
            self.builder.add(line, number + 1, heading.end(), hashes.start() if hashes else len(bare))
            self.builder.end()
            return
        if footnote := _FOOTNOTE.match(bare, start):
            self.builder.end()
            start = footnote.end()
        hard = _HARD_BREAK.search(bare)
        self.builder.add(line, number + 1, start, hard.start() if hard else len(bare))
        if hard:
            self.builder.end()


DOCUMENT = DocumentFormat(read, MARKDOWN_PLACEHOLDER)
