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
# What separates the texts: verbatim elements, comments, declarations, and every tag that is not inline.
_SEPARATOR = re.compile(
    rf"<(?P<name>{_VERBATIM})(?=[\s/>]){ATTRIBUTES}>.*?(?:</(?P=name)\s*>|\Z)|<!--.*?(?:-->|\Z)|<[!?][^>]*>"
    rf"|</?(?!(?:{_INLINE})(?=[\s/>]))[A-Za-z]{ATTRIBUTES}>",
    re.IGNORECASE | re.DOTALL,
)
_TAG = rf"</?[A-Za-z]{ATTRIBUTES}>"
_TAG_OR_ENTITY, _TAG_OR_AMPERSAND = re.compile(f"{_TAG}|{ENTITY}"), re.compile(rf"{_TAG}|&(?!{ENTITY[1:]})")
_SPACE = re.compile(r"\s+")


def read(document: Document) -> list[Part]:
    text, end = document.text, 0
    parts: list[Part] = []
    for separator in _SEPARATOR.finditer(text):
        parts += _unit(text, end, separator.start())
        parts.append(separator[0])
        end = separator.end()
    return parts + _unit(text, end, len(text))


def _unit(text: str, start: int, end: int) -> list[Part]:
    body = text[start:end].strip()
    if not body:
        return [text[start:end]]
    before, after = text[start:end].split(body, 1)
    source = _SPACE.sub(" ", _TAG_OR_ENTITY.sub(_character, body))
    line = text.count("\n", 0, start) + 1
    # A page whose author did not escape ampersands keeps them so.
    has_ampersand = any(match[0] == "&" for match in _TAG_OR_AMPERSAND.finditer(body))
    return [before, TranslationUnit(source, line, str if has_ampersand else _escape_ampersands), after]


def _character(match: re.Match[str]) -> str:
    """Returns the character of an entity, which the model knows. Tags, angle brackets and `&amp;lt;` stay as they are."""
    character = unescape(match[0])
    if match[0][0] == "<" or character in ("<", ">"):
        return match[0]
    if character == "&" and _TAG_OR_AMPERSAND.match("&" + match.string[match.end() : match.end() + 40]) is None:
        return match[0]
    return character


def _escape_ampersands(text: str) -> str:
    return _TAG_OR_AMPERSAND.sub(lambda match: "&amp;" if match[0] == "&" else match[0], text)


DOCUMENT = DocumentFormat(read)
