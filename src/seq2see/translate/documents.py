"""Documents with markup: read into translation units by file extension, translated, and put together again."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seq2see.errors import UserError
from seq2see.text.formats.lines import convert_read_errors, open_bytes, strip_bom
from seq2see.translate import html, markdown, po, subtitles
from seq2see.translate.parts import Part, TranslationUnit, rebuild
from seq2see.translate.placeholders import MARKDOWN_PLACEHOLDER, PLACEHOLDER
from seq2see.translate.suffixes import DOCUMENT_SUFFIXES
from seq2see.translate.translator import Translator
from seq2see.translate.warning_log import WarningLog

if TYPE_CHECKING:
    from seq2see.text.check.statistics import ProgressFactory

MAX_DOCUMENT_BYTES = 1 << 26  # a document is translated in memory
_BATCH_UNITS = 200  # translated together
_INVALID_UTF8 = re.compile("[\udc80-\udcff]+")  # as `surrogateescape` decodes it


def is_document(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENT_SUFFIXES


def read_parts(path: Path, text: str, retranslate: bool = False) -> list[Part]:
    if text.startswith("\ufeff"):
        return ["\ufeff", *read_parts(path, text[1:], retranslate)]
    suffix = path.suffix.lower()
    if suffix in (".po", ".pot"):
        return po.read(text, path, retranslate)
    if suffix in (".html", ".htm"):
        return html.read(text)
    return subtitles.read(text) if suffix in (".srt", ".vtt") else markdown.read(text)


def translate_document(path: Path, translator: Translator, retranslate: bool, progress: "ProgressFactory") -> bytes:
    """Translates a file. Every byte outside the translated text stays unchanged, even if it is not UTF-8."""
    with open_bytes(path) as file, convert_read_errors(path, lambda: 0):
        content = file.read(MAX_DOCUMENT_BYTES + 1)
    return translate_content(path, content, translator, retranslate, progress)


def translate_content(
    path: Path, content: bytes, translator: Translator, retranslate: bool, progress: "ProgressFactory"
) -> bytes:
    """Translates the content of a file; the path says its format and stands in messages."""
    if len(content) > MAX_DOCUMENT_BYTES:
        raise UserError(f"{path} is longer than {MAX_DOCUMENT_BYTES:,} bytes: split it into several documents")
    strip_bom(path, content)
    parts = read_parts(path, content.decode(errors="surrogateescape"), retranslate)
    units = [part for part in parts if isinstance(part, TranslationUnit)]
    placeholders = MARKDOWN_PLACEHOLDER if path.suffix.lower() in (".md", ".markdown") else PLACEHOLDER
    translator = replace(translator, placeholders=placeholders)
    advance = progress(path.name, len(units))
    translations: list[str] = []
    for first in range(0, len(units), _BATCH_UNITS):
        batch = units[first : first + _BATCH_UNITS]
        locations = [f"{path}, line {unit.line:,}" for unit in batch]
        texts = [
            _valid_utf8(unit.source, where, translator.warnings) for unit, where in zip(batch, locations, strict=True)
        ]
        translations += translator.translate(texts, locations)
        advance(len(batch))
    return rebuild(parts, translations).encode(errors="surrogateescape")


def _valid_utf8(text: str, location: str, warnings: WarningLog) -> str:
    valid = _INVALID_UTF8.sub("\ufffd", text)
    if valid != text:
        warnings.add("passages were not UTF-8", location, "invalid UTF-8 replaced by U+FFFD")
    return valid
