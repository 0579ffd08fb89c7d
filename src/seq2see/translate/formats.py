"""The formats of files, by extension: each file is read into the units to translate and the text between them.

Must not import torch: the front process of a server reads files too.
"""

from pathlib import Path
from typing import Final

from seq2see.translate import html, markdown, po, subtitles
from seq2see.translate.parts import Part, TranslationUnit, split_lines

TEXT_SUFFIX: Final = ".txt"
DOCUMENT_SUFFIXES: Final = (".po", ".pot", ".srt", ".vtt", ".md", ".markdown", ".html", ".htm")  # with markup


def is_document(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENT_SUFFIXES


def read_parts(path: Path, text: str, retranslate: bool = False) -> list[Part]:
    if text.startswith("\ufeff"):
        return ["\ufeff", *read_parts(path, text[1:], retranslate)]
    suffix = path.suffix.lower()
    if suffix == TEXT_SUFFIX:
        return _read_lines(text)
    if suffix in (".po", ".pot"):
        return po.read(text, path, retranslate)
    if suffix in (".html", ".htm"):
        return html.read(text)
    return subtitles.read(text) if suffix in (".srt", ".vtt") else markdown.read(text)


def source_text(path: Path, text: str) -> str:
    """Returns what would be translated of a file's text, without its markup."""
    return "\n".join(part.source for part in read_parts(path, text) if isinstance(part, TranslationUnit))


def _read_lines(text: str) -> list[Part]:
    """Every line is a unit, so that the lines and the blank lines between them stay where they are."""
    parts: list[Part] = []
    for number, line in enumerate(split_lines(text), 1):
        body = line.rstrip("\r\n")
        parts += [TranslationUnit(body, number, str), line[len(body) :]] if body.strip() else [line]
    return parts
