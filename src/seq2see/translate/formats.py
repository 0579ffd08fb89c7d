"""The formats of files, by extension: each file is read into the units to translate and the text between them.

Each reader is imported on use. Must not import torch: the front process of a server reads files too.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from seq2see.translate.parts import Part

TEXT_SUFFIX: Final = ".txt"
_READERS: Final = {  # modules of this package
    ".po": "po",
    ".pot": "po",
    ".srt": "subtitles",
    ".vtt": "subtitles",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
}
DOCUMENT_SUFFIXES: Final = tuple(_READERS)  # with markup


def is_document(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENT_SUFFIXES


def read_parts(path: Path, text: str, retranslate: bool = False) -> list["Part"]:
    if text.startswith("\ufeff"):
        return ["\ufeff", *read_parts(path, text[1:], retranslate)]
    suffix = path.suffix.lower()
    if suffix == TEXT_SUFFIX:
        return _read_lines(text)
    reader = import_module(f"seq2see.translate.{_READERS[suffix]}")
    return reader.read(text, path, retranslate) if _READERS[suffix] == "po" else reader.read(text)


def source_text(path: Path, text: str) -> str:
    """Returns what would be translated of a file's text, without its markup."""
    return "\n".join(part.source for part in read_parts(path, text) if not isinstance(part, str))


def _read_lines(text: str) -> list["Part"]:
    """Every line is a unit, so that the lines and the blank lines between them stay where they are."""
    from seq2see.translate.parts import TranslationUnit, split_lines

    parts: list[Part] = []
    for number, line in enumerate(split_lines(text), 1):
        body = line.rstrip("\r\n")
        parts += [TranslationUnit(body, number, str), line[len(body) :]] if body.strip() else [line]
    return parts
