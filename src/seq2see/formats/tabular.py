"""Tables of sentence pairs: tab-separated columns, and JSON lines."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2see.config import DataConfig
from seq2see.data.corpus import ParallelCorpus, parse_columns, split_option
from seq2see.data.lines import ReadCallbacks, ReadIssue, parse_json, read_lines
from seq2see.data.readers import SentencePair, SingleFileReader
from seq2see.errors import UserError, did_you_mean
from seq2see.tensors.files import require_regular_file

_SURROGATE = re.compile("[\ud800-\udfff]")


def tsv(paths: Iterable[Path], source_column: int | str = 1, target_column: int | str = 2) -> ParallelCorpus:
    """Reads tab-separated columns, numbered from 1 or named in the first line."""
    return ParallelCorpus(tuple(TsvReader(require_regular_file(path), source_column, target_column) for path in paths))


def jsonl(paths: Iterable[Path], source_field: str, target_field: str) -> ParallelCorpus:
    """Reads one JSON object per line; `translation.en` is field `en` of the object in field `translation`."""
    return ParallelCorpus(tuple(JsonlReader(require_regular_file(path), source_field, target_field) for path in paths))


def open_tsv(path: Path, data: DataConfig) -> ParallelCorpus:
    return tsv([path], *parse_columns(data.columns or "1,2"))


def open_jsonl(path: Path, data: DataConfig) -> ParallelCorpus:
    return jsonl([path], *split_option(data.fields or data.languages, "--fields", "en,hi"))


@dataclass(frozen=True)
class TsvReader(SingleFileReader):
    """Tab-separated columns, numbered from 1 as in `cut`, or named in a header line; no quoting, no escapes."""

    format = "tsv"

    source_column: int | str
    target_column: int | str

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        rows = enumerate(read_lines(self.path, callbacks), 1)
        header = (next(rows)[1] or "").split("\t") if self.has_header else []
        source, target = self.index(self.source_column, header), self.index(self.target_column, header)
        required = max(source, target)
        for number, line in rows:
            if line is None:
                continue
            cells = line.split("\t")
            if len(cells) > required:
                yield SentencePair(cells[source], cells[target], number)
            else:
                columns = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
                reason = f"found {columns}, but column {required + 1} is needed"
                callbacks.on_issue(ReadIssue("malformed", self.path, number, reason))

    @property
    def has_header(self) -> bool:
        return isinstance(self.source_column, str) or isinstance(self.target_column, str)

    def index(self, column: int | str, header: Sequence[str]) -> int:
        if isinstance(column, int):
            if column < 1:
                raise UserError(f"column {column} of {self.path}: columns are numbered from 1")
            return column - 1
        if column not in header:
            raise UserError(f'{self.path} has no column "{column}" in its first line: {did_you_mean(column, header)}')
        return header.index(column)


@dataclass(frozen=True)
class JsonlReader(SingleFileReader):
    """One JSON object per line; a field may be a path such as `translation.en`."""

    format = "jsonl"

    source_field: str
    target_field: str

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        for number, line in enumerate(read_lines(self.path, callbacks), 1):
            if line is None or not line.strip():
                continue
            try:
                value = parse_json(line)
                source, target = text_field(value, self.source_field), text_field(value, self.target_field)
            except ValueError as error:
                callbacks.on_issue(ReadIssue("malformed", self.path, number, str(error)))
                continue
            yield SentencePair(source, target, number)


def text_field(value: Any, name: str) -> str:
    """Returns the text of a field; if no field has the full name, its dots lead into nested objects."""
    if not isinstance(value, dict):
        raise ValueError(f'expected a JSON object with a field "{name}"')
    if name not in value:
        outer, dot, rest = name.partition(".")
        if dot and outer in value:
            return text_field(value[outer], rest)
        known = [field if field.isprintable() else json.dumps(field)[1:-1] for field in value]
        raise ValueError(f'no field "{name}": {did_you_mean(name, known)}')
    text = value[name]
    if not isinstance(text, str):
        raise ValueError(f'field "{name}" is {json.dumps(text)[:40]}, not a string')
    if not text.isprintable() and (found := _SURROGATE.search(text)):
        raise ValueError(f'field "{name}" has an unpaired surrogate, \\u{ord(found[0]):04x}')
    return text
