"""Shards of text, JSON lines and Parquet files: a part of a file that one worker reads, and the part of the output it writes.

A shard of a text is a range of bytes, and has the lines that begin there; nobody needs to read the file to find them. A shard
of a Parquet file is a row group. A compressed file is one shard.
"""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seq2see.cli.lines import Line, read_chunks
from seq2see.data.lines import LINE_TOO_LONG, MAX_LINE_BYTES, open_bytes, parse_json
from seq2see.data.readers import COMPRESSION_SUFFIXES, strip_compression_suffix
from seq2see.errors import UserError, did_you_mean
from seq2see.formats.tabular import text_field
from seq2see.tensors.files import atomic_write, require_regular_file
from seq2see.translate.warning_log import WarningLog

SHARD_BYTES = 1 << 20  # of text: some 10,000 sentences
JSON_LINES, PARQUET = (".jsonl", ".ndjson"), ".parquet"


@dataclass(frozen=True)
class Shard:
    """The lines that begin in a range of bytes, or a row group of a Parquet file."""

    source: Path
    start: int
    stop: int
    part: Path  # of the output


@dataclass(frozen=True)
class Values:
    """What a task makes of texts, one value for each."""

    name: str  # of the field or column
    kind: Literal["text", "vector"]
    compute: Callable[[Sequence[str], Sequence[str]], list[Any]]  # of texts and their locations

    def of(self, texts: Sequence[str | None], locations: Sequence[str]) -> list[Any]:
        """Returns a value for each text, and None where there is none."""
        given = [(text, location) for text, location in zip(texts, locations, strict=True) if text is not None]
        found = iter(self.compute([text for text, _ in given], [location for _, location in given]))
        return [None if text is None else next(found) for text in texts]


def plan_shards(source: Path, folder: Path, size: int = SHARD_BYTES) -> list[Shard]:
    """Divides a file; `folder` is for the parts of the output."""
    if source.suffix == PARQUET:
        ranges = [(i, i + 1) for i in range(_open_parquet(source).metadata.num_row_groups)]
        if not ranges:
            raise UserError(f"{source} has no rows")
    else:
        total = require_regular_file(source).stat().st_size
        step = total if source.suffix in COMPRESSION_SUFFIXES else size
        ranges = [(start, min(start + step, total)) for start in range(0, total, max(step, 1))]
    return [Shard(source, *range, folder / f"{i:06}") for i, range in enumerate(ranges)]


def is_json_lines(path: Path) -> bool:
    return strip_compression_suffix(path).endswith(JSON_LINES)


def read_shard_lines(shard: Shard, warnings: WarningLog) -> list[Line]:
    name = f"{shard.source}, from byte {shard.start:,}" if shard.start else str(shard.source)
    content = _read_bytes(shard)
    return [line for lines in read_chunks(io.BytesIO(content), name, warnings) for line in lines] if content else []


def _read_bytes(shard: Shard) -> bytes:
    """Returns the lines that begin in the shard's range."""
    if shard.source.suffix in COMPRESSION_SUFFIXES:
        with open_bytes(shard.source) as file:
            return file.read()
    with shard.source.open("rb") as file:
        if shard.start:  # the line that began before
            file.seek(shard.start - 1)
            _skip_line(file, shard)
        first = file.tell()
        if first >= shard.stop:
            return b""
        content = file.read(shard.stop - first)
        return content if content.endswith(b"\n") else content + _skip_line(file, shard)


def _skip_line(file: io.BufferedReader, shard: Shard) -> bytes:
    line = file.readline(MAX_LINE_BYTES)
    if len(line) == MAX_LINE_BYTES:
        raise UserError(f"{shard.source}, a line at byte {shard.start:,}: {LINE_TOO_LONG}")
    return line


def add_to_json_lines(lines: Sequence[Line], field: str, values: Values) -> str:
    """Returns each row with a value for its text; a blank line stays blank."""
    rows = [_parse_row(line, field) if line.text.strip() else None for line in lines]
    texts = [None if row is None else text_field(row, field) for row in rows]
    found = values.of(texts, [line.location for line in lines])
    return "".join(
        (line.text if row is None else json.dumps({**row, values.name: value}, ensure_ascii=False)) + line.ending
        for line, row, value in zip(lines, rows, found, strict=True)
    )


def _parse_row(line: Line, field: str) -> dict[str, Any]:
    try:
        row: dict[str, Any] = parse_json(line.text)
        text_field(row, field)
    except ValueError as error:
        raise UserError(f"{line.location}: {error}; --field names the text") from error
    return row


def add_to_parquet(shard: Shard, field: str, values: Values) -> Any:
    """Returns the row group with a column of values; a null stays null."""
    import pyarrow

    table = _open_parquet(shard.source).read_row_group(shard.start)
    if field not in table.column_names:
        raise UserError(f'{shard.source} has no column "{field}" (--field): {did_you_mean(field, table.column_names)}')
    texts = table.column(field).to_pylist()
    if wrong := [text for text in texts if not isinstance(text, str | None)]:
        raise UserError(f'{shard.source}: "{field}" is {wrong[0]!r:.40}, not text')
    where = f"{shard.source}, row group {shard.start + 1}"
    found = values.of(texts, [f"{where}, row {i:,}" for i in range(1, len(texts) + 1)])
    if values.name in table.column_names:
        table = table.drop_columns([values.name])
    kind = pyarrow.string() if values.kind == "text" else pyarrow.list_(pyarrow.float32())
    return table.append_column(values.name, pyarrow.array(found, type=kind))


def write_part(shard: Shard, content: Any) -> None:
    """Writes the output of a shard, a text or a table, which appears only when it is complete."""
    with atomic_write(shard.part) as part:
        if isinstance(content, str):
            part.write_bytes(content.encode(errors="surrogateescape"))
        else:
            import pyarrow.parquet

            pyarrow.parquet.write_table(content, part)


def join_parts(parts: Sequence[Path], out: Path) -> None:
    """Joins the output of all shards of a file, in order, and removes them."""
    with atomic_write(out) as whole:
        if out.suffix == PARQUET:
            _join_parquet(parts, whole)
        else:
            with whole.open("wb") as file:
                for part in parts:
                    file.write(part.read_bytes())
    for part in parts:
        part.unlink()


def _join_parquet(parts: Sequence[Path], out: Path) -> None:
    import pyarrow.parquet

    tables: Iterator[Any] = (pyarrow.parquet.read_table(part) for part in parts)
    first = next(tables)
    with pyarrow.parquet.ParquetWriter(out, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table.cast(first.schema))


def _open_parquet(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(require_regular_file(path))
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"cannot read {path} as Parquet: {error}") from error
