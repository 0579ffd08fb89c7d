"""What the workers do: translate or embed the shards of files."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from warnings import catch_warnings, simplefilter

from seq2see.api import Model, load
from seq2see.cli.lines import Line, translate_lines, translate_lines_as_json
from seq2see.cli.ray.shards import (
    PARQUET,
    Shard,
    Values,
    add_to_json_lines,
    add_to_parquet,
    is_json_lines,
    read_shard_lines,
    write_part,
)
from seq2see.config import InferencePrecision
from seq2see.config.search import Search
from seq2see.errors import Notice
from seq2see.model.pooling import Pooling, PoolingKind
from seq2see.translate.translator import Translator
from seq2see.translate.warning_log import MAX_SHOWN, WarningLog


@dataclass(frozen=True)
class ModelOptions:
    """Which model a worker loads, and how."""

    path: Path | None
    device: str = ""
    precision: InferencePrecision = "float32"
    languages: tuple[str | None, str | None] = (None, None)

    def load(self) -> Model:
        model = load(self.path, self.device, precision=self.precision).for_inference()
        return model.with_languages(*self.languages) if any(self.languages) else model


def _ignore(text: str) -> None:
    pass


@dataclass(frozen=True)
class RecordedWarnings(WarningLog):
    """The warnings of a worker, for the process that shows them."""

    emit: Callable[[str], None] = _ignore
    shown: list[tuple[str, str, str]] = field(default_factory=list)  # the first of each kind: kind, location, message

    def add(self, kind: str, location: str, message: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= MAX_SHOWN:
            self.shown.append((kind, location, message))

    def add_to(self, log: WarningLog) -> None:
        for warning in self.shown:
            log.add(*warning)
        log.counts.update(self.counts - Counter(kind for kind, *_ in self.shown))


@dataclass(frozen=True)
class TranslateShards:
    """Translates a shard: a line per line of text, or a field or column `translation` beside the text."""

    model: ModelOptions
    search: Search
    as_json: bool = False
    field: str = "text"

    def start(self) -> Callable[[Shard], RecordedWarnings]:
        model = self.model.load()
        model.require("encoder-decoder", "translates")

        def run(shard: Shard) -> RecordedWarnings:
            log = RecordedWarnings()
            translator = Translator(model, log, self.search)
            convert = translate_lines_as_json if self.as_json else translate_lines
            values = Values("translation", "text", translator.translate)
            _convert(shard, self.field, values, lambda lines: convert(lines, translator), translator.warnings)
            return log

        return run

    @property
    def text_suffix(self) -> str:
        return ".jsonl" if self.as_json else ""


@dataclass(frozen=True)
class EmbedShards:
    """Makes a vector of every text of a shard: JSON lines, or a field or column `vector` beside the text."""

    model: ModelOptions
    pooling: PoolingKind | None = None
    normalize: bool | None = None
    field: str = "text"

    def start(self) -> Callable[[Shard], RecordedWarnings]:
        model = self.model.load()
        pooling = (model.pooling or Pooling()).with_options(self.pooling, self.normalize)

        def embed(texts: Sequence[str]) -> list[list[float]]:
            return model.embed(texts, pooling).tolist() if texts else []

        def embed_lines(lines: Sequence[Line]) -> str:
            return _vector_lines(lines, embed([line.text for line in lines]))

        def run(shard: Shard) -> RecordedWarnings:
            log, values = RecordedWarnings(), Values("vector", "vector", lambda texts, _: embed(texts))
            with catch_warnings(record=True) as caught:
                simplefilter("always", Notice)
                _convert(shard, self.field, values, embed_lines, log)
            for warning in caught:
                log.add("shards had texts that were cut", str(shard.source), str(warning.message))
            return log

        return run

    @property
    def text_suffix(self) -> str:
        return ".jsonl"


def _convert(
    shard: Shard, field: str, values: Values, convert_lines: Callable[[Sequence[Line]], str], log: WarningLog
) -> None:
    """Reads a shard and writes its part of the output."""
    if shard.source.suffix == PARQUET:
        write_part(shard, add_to_parquet(shard, field, values))
        return
    lines = read_shard_lines(shard, log)
    add = is_json_lines(shard.source)
    write_part(shard, add_to_json_lines(lines, field, values) if add else convert_lines(lines))


def _vector_lines(lines: Sequence[Line], vectors: Sequence[list[float]]) -> str:
    rows = zip(lines, vectors, strict=True)
    return "".join(
        json.dumps({"text": line.text, "vector": vector}, ensure_ascii=False) + "\n" for line, vector in rows
    )
