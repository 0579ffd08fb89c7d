"""HTML: the text between block-level tags is translated; tags, comments, scripts, styles and code stay unchanged.

Inline tags within a sentence go around the words of the translation that correspond to theirs (`markup.py`). Character
references such as `&rsquo;` are read as their characters.
"""

import re
from html import unescape

from seq2see.formats.parts import Document, DocumentFormat, Part, TranslationUnit
from seq2see.formats.placeholders import ATTRIBUTES, ENTITY

_INLINE = (
    "a|abbr|b|bdi|bdo|big|cite|data|del|dfn|em|font|i|img|ins|label|mark|q|rp|rt|ruby|s|small|span|strike|strong|sub|sup|time"
    "|tt|u|wbr"
)
_VERBATIM = "script|style|pre|code|kbd|samp|var|textarea|svg|math|template|noscript"
# What separates the texts: verbatim elements (those like `<svg/>` have no end tag), comments, declarations, tags not inline.
_SEPARATOR = re.compile(
    rf"<(?P<name>{_VERBATIM})(?=[\s/>]){ATTRIBUTES}>(?:(?<=/>)|.*?(?:</(?P=name)\s*>|\Z))|<!--.*?(?:-->|\Z)|<[!?][^>]*+(?:>|\Z)"
    rf"|</?(?!(?:{_INLINE})(?=[\s/>]))[A-Za-z]{ATTRIBUTES}>",
    re.IGNORECASE | re.DOTALL,
)
_TAG = rf"</?[A-Za-z]{ATTRIBUTES}>"
_TAG_ENTITY_OR_SPACE = re.compile(rf"{_TAG}|{ENTITY}|\s+")
_TAG_OR_SPECIAL = re.compile(rf"{_TAG}|&(?!{ENTITY[1:]})|<")
_ESCAPES = {"&": "&amp;", "<": "&lt;"}


def read(document: Document) -> list[Part]:
    text, end, line = document.text, 0, 1
    parts: list[Part] = []
    for separator in _SEPARATOR.finditer(text):
        between = text[end : separator.start()]
        parts += [*_unit(between, line), separator[0]]
        line += between.count("\n") + separator[0].count("\n")
        end = separator.end()
    return parts + _unit(text[end:], line)


def _unit(text: str, line: int) -> list[Part]:
    body = text.strip()
    if not body:
        return [text]
    before, after = text.split(body, 1)
    source = _TAG_ENTITY_OR_SPACE.sub(_character, body)
    # A page whose author did not escape special characters keeps them so.
    is_escaped = not any(match[0] in _ESCAPES for match in _TAG_OR_SPECIAL.finditer(body))
    return [before, TranslationUnit(source, line + before.count("\n"), _escape if is_escaped else str), after]


def _character(match: re.Match[str]) -> str:
    """Returns the character of an entity, which the model knows, and one space for several characters of whitespace.

    Tags, angle brackets and `&amp;lt;` stay as they are.
    """
    character = unescape(match[0])
    if character.isspace():
        return " "
    if match[0][0] == "<" or character in ("<", ">"):
        return match[0]
    if character == "&" and _TAG_OR_SPECIAL.match("&" + match.string[match.end() : match.end() + 40]) is None:
        return match[0]
    return character


def _escape(text: str) -> str:
    return _TAG_OR_SPECIAL.sub(lambda match: _ESCAPES.get(match[0], match[0]), text)


DOCUMENT = DocumentFormat(read)
