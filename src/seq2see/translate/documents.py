"""Files with a form of their own: read into slots by their ending, translated, and put together again."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seq2see.text.formats.lines import open_bytes, without_mark
from seq2see.translate import markdown, po, subtitles
from seq2see.translate.notices import Notes
from seq2see.translate.placeholders import MARKDOWN, PLACEHOLDER
from seq2see.translate.slots import Part, Slot, rebuild
from seq2see.translate.translator import Translator

if TYPE_CHECKING:
    from seq2see.text.check.statistics import Watch

DOCUMENTS: Final = (".po", ".pot", ".srt", ".vtt", ".md", ".markdown")
_AT_ONCE = 200  # slots that are translated together
_WRONG = re.compile("[\udc80-\udcff]+")  # bytes that are no UTF-8, as `surrogateescape` reads them


def is_document(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENTS


def read(path: Path, text: str, everything: bool = False) -> list[Part]:
    if text.startswith("\ufeff"):
        return ["\ufeff", *read(path, text[1:], everything)]
    kind = path.suffix.lower()
    if kind in (".po", ".pot"):
        return po.read(text, path, everything)
    return subtitles.read(text) if kind in (".srt", ".vtt") else markdown.read(text)


def translate(path: Path, translator: Translator, everything: bool, watch: "Watch") -> bytes:
    """The file, translated. Every byte outside the translated text is as it was, were it no UTF-8."""
    with open_bytes(path) as file:
        content = file.read()
    without_mark(path, content)
    parts = read(path, content.decode(errors="surrogateescape"), everything)
    slots = [part for part in parts if isinstance(part, Slot)]
    keep = MARKDOWN if path.suffix.lower() in (".md", ".markdown") else PLACEHOLDER
    keeping = replace(translator, keep=keep)
    advance = watch(path.name, len(slots))
    translations: list[str] = []
    for first in range(0, len(slots), _AT_ONCE):
        some = slots[first : first + _AT_ONCE]
        places = [f"{path}, line {slot.line:,}" for slot in some]
        texts = [_readable(slot.source, place, translator.notes) for slot, place in zip(some, places, strict=True)]
        translations += keeping.translate(texts, places)
        advance(len(some))
    return rebuild(parts, translations).encode(errors="surrogateescape")


def _readable(text: str, place: str, notes: Notes) -> str:
    readable = _WRONG.sub("\ufffd", text)
    if readable != text:
        notes.add("places were not UTF-8", place, "bytes that are not UTF-8, replaced by U+FFFD")
    return readable
