"""Gettext PO: each `msgstr` gets the translation of its `msgid`; everything else in the file stays unchanged.

Uses the parser that reads PO corpora. Existing translations are kept unless `retranslate` is set; the header, comments,
contexts, flags and obsolete entries are never changed.
"""

import re
from functools import partial
from pathlib import Path

from seq2see.data.formats.po import PoEntry, escape, parse_entries, singular_form_index
from seq2see.translate.parts import Part, TranslationUnit, split_lines

_KEYWORD = re.compile(r"\s*(?:msg\w+(?:\[\d+\])?)?\s*")


def read(text: str, path: Path, retranslate: bool) -> list[Part]:
    """Reads the parts of a PO file; `retranslate` replaces existing translations."""
    lines = split_lines(text)
    units: dict[int, TranslationUnit] = {}
    replaced: set[int] = set()  # continuation lines that the units replace
    singular = 0
    for entry in parse_entries(lines, path):
        if entry.is_header:
            singular = singular_form_index(entry)
            continue
        for form in entry.forms:
            if retranslate or not entry.text(form):
                first, *others = entry.line_numbers[form]
                units[first] = _unit(entry, form, entry.source_of(form, singular), lines)
                replaced.update(others)
    return [units.get(number, line) for number, line in enumerate(lines, 1) if number not in replaced]


def _unit(entry: PoEntry, form: str, source: str, lines: list[str]) -> TranslationUnit:
    first, last = (lines[entry.line_numbers[form][i] - 1] for i in (0, -1))
    keyword = _KEYWORD.match(first)
    before = keyword[0] if keyword else ""
    after = last[len(last.rstrip()) :]
    # A translation equal to its source keeps the line breaks of the source.
    unchanged = "".join(lines[number - 1] for number in entry.line_numbers[source])
    unchanged = _KEYWORD.sub("", unchanged, count=1).rstrip() + after
    render = partial(_render, entry.text(source), unchanged, before, after)
    return TranslationUnit(entry.text(source), entry.line_numbers[source][0], render)


def _render(source: str, unchanged: str, before: str, after: str, translation: str) -> str:
    if translation == source:
        return before + unchanged
    lines = [f'"{escape(line)}"' for line in split_lines(translation)] or ['""']
    if len(lines) > 1:
        lines.insert(0, '""')
    newline = "\r\n" if after.endswith("\r\n") else "\n"
    return before + newline.join(lines) + after
