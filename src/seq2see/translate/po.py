"""Gettext PO: each `msgstr` gets the translation of its `msgid`, everything else in the file stays.

The reader is that of corpora. Entries that have a translation keep it unless all are asked for; the header, comments,
contexts, flags and obsolete entries are never touched.
"""

import re
from functools import partial
from pathlib import Path

from seq2see.text.formats.po import Entry, entries, escape, form_for_one
from seq2see.translate.slots import Part, Slot, lines_of

_KEYWORD = re.compile(r"\s*(?:msg\w+(?:\[\d+\])?)?\s*")


def read(text: str, path: Path, everything: bool) -> list[Part]:
    """The parts of a PO file; `everything` replaces the translations that are there."""
    lines = lines_of(text)
    slots: dict[int, Slot] = {}
    replaced: set[int] = set()  # lines that the slots stand for
    singular = 0
    for entry in entries(lines, path):
        if entry.is_header:
            singular = form_for_one(entry)
            continue
        for form in entry.forms:
            if everything or not entry.text(form):
                first, *others = entry.places[form]
                slots[first] = _slot(entry, form, entry.source_of(form, singular), lines)
                replaced.update(others)
    return [slots.get(number, line) for number, line in enumerate(lines, 1) if number not in replaced]


def _slot(entry: Entry, form: str, source: str, lines: list[str]) -> Slot:
    first, last = (lines[entry.places[form][i] - 1] for i in (0, -1))
    keyword = _KEYWORD.match(first)
    before = keyword[0] if keyword else ""
    after = last[len(last.rstrip()) :]
    # A text that stays as it is is laid out as its source.
    same = "".join(lines[number - 1] for number in entry.places[source])
    same = _KEYWORD.sub("", same, count=1).rstrip() + after
    write = partial(_written, entry.text(source), same, before, after)
    return Slot(entry.text(source), entry.places[source][0], write)


def _written(source: str, same: str, before: str, after: str, translation: str) -> str:
    if translation == source:
        return before + same
    lines = [f'"{escape(line)}"' for line in lines_of(translation)] or ['""']
    if len(lines) > 1:
        lines.insert(0, '""')
    end = "\r\n" if after.endswith("\r\n") else "\n"
    return before + end.join(lines) + after
