"""Finds the commonest mistake with TSV files: a column of tags, ids or scores that is read as text."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, zip_longest

from seq2see.check.report import TITLES, Example, Finding
from seq2see.data.lines import LENIENT, read_lines
from seq2see.formats.tabular import TsvReader

_MAX_ROWS = 1000  # looked at
_MIN_ROWS = 20
_ROWS_PER_TAG = 20  # a tag occurs in at least this many rows on average
_MAX_TAG_WORDS = 3


def find_tag_columns(readers: Sequence[TsvReader]) -> Finding:
    examples = tuple(example for reader in readers if (example := _tag_column(reader)))
    if len(examples) != 1:
        return Finding("column", TITLES["column"], len(examples), len(readers), examples)
    return Finding("column", examples[0].note, 1, len(readers), (replace(examples[0], note=""),))


def _tag_column(reader: TsvReader) -> Example | None:
    """Returns the first row and what is wrong with its source or target, if that column is not text."""
    lines = (line for line in read_lines(reader.path, LENIENT) if line)
    rows = [line.split("\t") for line in islice(lines, _MAX_ROWS)]
    header = rows.pop(0) if reader.has_header else [str(number) for number in range(1, len(rows[0]) + 1)]
    if len(rows) < _MIN_ROWS:
        return None
    columns = list(zip_longest(*rows, fillvalue=""))[: len(header)]
    reasons = [_not_text(column) for column in columns]
    text = [name for name, reason in zip(header, reasons, strict=True) if not reason]
    remedy = f"--columns {text[0]},{text[1]}" if len(text) > 1 else "choose columns of text with --columns"
    for index in (reader.index(reader.source_column, header), reader.index(reader.target_column, header)):
        if reasons[index]:
            note = f"column {header[index]} of {reader.path.name} {reasons[index]}: {remedy}"
            return Example(str(reader.path), 1 + reader.has_header, columns[index][0], note=note)
    return None


def _not_text(cells: Sequence[str]) -> str:
    """Says why a column does not look like text; an empty string if it does. The first cell may be its title."""
    if not any(letter.isalpha() for cell in cells[1:] for letter in cell):
        return "has no letters"
    values = set(cells[1:])
    if len(values) * _ROWS_PER_TAG <= len(cells) and all(len(value.split()) <= _MAX_TAG_WORDS for value in values):
        return f"has only {len(values)} different value{'s' * (len(values) > 1)} in {len(cells):,} rows"
    return ""
