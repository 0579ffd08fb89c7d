"""HTML: the text between block-level tags is translated; tags, comments, scripts, styles and code stay unchanged.

Inline tags within a sentence go around the words of the translation that correspond to theirs (`markup.py`).
"""

import re
from html import unescape

from seq2see.translate.parts import Part, TranslationUnit

_INLINE = (
    "a|abbr|b|bdi|bdo|big|cite|data|del|dfn|em|font|i|img|ins|label|mark|q|rp|rt|ruby|s|small|span|strike|strong|sub|sup|time"
    "|tt|u|wbr"
)
_VERBATIM = "script|style|pre|code|kbd|samp|var|textarea|svg|math|template|noscript"
# What separates the texts: verbatim elements, comments, declarations, and every tag that is not inline.
_SEPARATOR = re.compile(
    rf"<(?P<name>{_VERBATIM})(?=[\s/>])[^>]*>.*?(?:</(?P=name)\s*>|\Z)|<!--.*?(?:-->|\Z)|<[!?][^>]*>"
    rf"|</?(?!(?:{_INLINE})(?=[\s/>]))[A-Za-z][^<>]*>",
    re.IGNORECASE | re.DOTALL,
)
_ENTITY = re.compile(r"&(?:[A-Za-z]\w*+|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_SPACE = re.compile(r"\s+")


def read(text: str) -> list[Part]:
    parts: list[Part] = []
    end = 0
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
    source = _SPACE.sub(" ", _ENTITY.sub(_letter, body))
    line = text.count("\n", 0, start) + 1
    return [before, TranslationUnit(source, line, lambda translation: translation), after]


def _letter(entity: re.Match[str]) -> str:
    """Returns the character if it is a letter, which the model knows; other entities are placeholders."""
    character = unescape(entity[0])
    return character if character.isalpha() else entity[0]
