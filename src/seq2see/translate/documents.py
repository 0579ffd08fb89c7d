"""Files: read into translation units by their extension, translated, and put together again."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seq2see.data.formats.lines import convert_read_errors, open_bytes, strip_bom
from seq2see.errors import UserError
from seq2see.translate.formats import TEXT_SUFFIX, read_parts
from seq2see.translate.parts import TranslationUnit, rebuild
from seq2see.translate.placeholders import MARKDOWN_PLACEHOLDER, PLACEHOLDER
from seq2see.translate.translator import Translator

if TYPE_CHECKING:
    from seq2see.errors import ProgressFactory

MAX_DOCUMENT_BYTES = 1 << 26  # a document is translated in memory
# What the translation must keep: nothing in plain text, as everywhere else.
_PLACEHOLDERS = {TEXT_SUFFIX: None, ".md": MARKDOWN_PLACEHOLDER, ".markdown": MARKDOWN_PLACEHOLDER}
_BATCH_UNITS = 200  # translated together
_INVALID_UTF8 = re.compile("[\udc80-\udcff]+")  # as `surrogateescape` decodes it


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
    translator = replace(translator, placeholders=_PLACEHOLDERS.get(path.suffix.lower(), PLACEHOLDER))
    advance = progress(path.name, len(units))
    translations: list[str] = []
    for first in range(0, len(units), _BATCH_UNITS):
        batch = units[first : first + _BATCH_UNITS]
        locations = [f"{path}, line {unit.line:,}" for unit in batch]
        texts = [_INVALID_UTF8.sub("\ufffd", unit.source) for unit in batch]
        for unit, text, location in zip(batch, texts, locations, strict=True):
            if text != unit.source:
                translator.warnings.add("passages were not UTF-8", location, "invalid UTF-8 replaced by U+FFFD")
        translations += translator.translate(texts, locations)
        advance(len(batch))
    return rebuild(parts, translations).encode(errors="surrogateescape")
