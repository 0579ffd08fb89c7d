"""Documents: read into translation units by the extension of the file, translated, and put together again.

Each format is imported on use. Must not import torch: the front process of a server reads documents too.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seq2see.config.extensions import load_extension
from seq2see.data.lines import convert_read_errors, open_bytes, strip_bom
from seq2see.errors import UserError
from seq2see.formats.parts import Document, DocumentFormat, Part, TranslationUnit, rebuild, split_lines

if TYPE_CHECKING:
    from seq2see.errors import ProgressFactory
    from seq2see.translate.translator import Translator

TEXT_SUFFIX: Final = ".txt"
MAX_DOCUMENT_BYTES = 1 << 26  # a document is translated in memory
_BATCH_UNITS = 200  # translated together
_INVALID_UTF8 = re.compile("[\udc80-\udcff]+")  # as `surrogateescape` decodes it


def read_parts(document: Document) -> list[Part]:
    if document.text.startswith("\ufeff"):
        return ["\ufeff", *read_parts(replace(document, text=document.text[1:]))]
    return _format(document.path).read(document)


def source_text(path: Path, text: str) -> str:
    """Returns what would be translated of a file's text, without its markup."""
    return "\n".join(part.source for part in read_parts(Document(text, path)) if not isinstance(part, str))


def translate_document(path: Path, translator: "Translator", retranslate: bool, progress: "ProgressFactory") -> bytes:
    """Translates a file. Every byte outside the translated text stays unchanged, even if it is not UTF-8."""
    with open_bytes(path) as file, convert_read_errors(path, lambda: 0):
        content = file.read(MAX_DOCUMENT_BYTES + 1)
    return translate_content(path, content, translator, retranslate, progress)


def translate_content(
    path: Path, content: bytes, translator: "Translator", retranslate: bool, progress: "ProgressFactory"
) -> bytes:
    """Translates the content of a file; the path says its format and stands in messages."""
    from seq2see.formats.protected import protect

    if len(content) > MAX_DOCUMENT_BYTES:
        raise UserError(f"{path} is longer than {MAX_DOCUMENT_BYTES:,} bytes: split it into several documents")
    strip_bom(path, content)
    parts = read_parts(Document(content.decode(errors="surrogateescape"), path, retranslate))
    units = [part for part in parts if isinstance(part, TranslationUnit)]
    translator = protect(translator, _format(path).placeholders)
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


def _read_lines(document: Document) -> list[Part]:
    """Every line is a unit, so that the lines and the blank lines between them stay where they are."""
    parts: list[Part] = []
    for number, line in enumerate(split_lines(document.text), 1):
        body = line.rstrip("\r\n")
        parts += [TranslationUnit(body, number, str), line[len(body) :]] if body.strip() else [line]
    return parts


_PLAIN_TEXT: Final = DocumentFormat(_read_lines, None)  # keeps nothing in particular, as everywhere else


def _format(path: Path) -> DocumentFormat:
    suffix = path.suffix.lower()
    found: DocumentFormat = _PLAIN_TEXT if suffix == TEXT_SUFFIX else load_extension("documents", suffix)
    return found
