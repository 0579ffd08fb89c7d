"""Corpora for training and evaluation: sentence pairs, or documents of plain text.

A corpus is a small frozen value that refers to its files. Each iteration reads the files again, in constant memory. Its
`fingerprint` is a hash of their bytes and of the reading options, so that results computed from a corpus can be cached
until a file changes.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from seq2see.config import Boundaries, DataConfig
from seq2see.config.extensions import extension_names, has_extension, load_extension
from seq2see.data.lines import ReadCallbacks, ignore_progress
from seq2see.data.readers import (
    DocumentReader,
    PairReader,
    ParallelFilesReader,
    Reader,
    TextChunk,
    strip_compression_suffix,
)
from seq2see.errors import UserError, did_you_mean
from seq2see.tensors.files import require_regular_file

MediaKind = Literal["pictures", "sounds"]


class Corpus:
    """The items of some files; each iteration reads the files again."""

    readers: Sequence[Reader]
    missing: ClassVar[str]  # what files without items do not have

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for reader in self.readers for file in reader.files)

    @property
    def size(self) -> int:
        """Bytes on disk, for a progress bar."""
        return sum(require_regular_file(file).stat().st_size for file in self.files)

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for reader in self.readers:
            contents = reader.contents
            digest.update(f"{reader.format_key}\0{len(contents)}\0".encode())
            for path in contents:
                with require_regular_file(path).open("rb") as file:
                    digest.update(hashlib.file_digest(file, "blake2b").digest())
        return digest.hexdigest()

    def _items(self, on_progress: Callable[[int], None]) -> Iterator[Any]:
        empty = True
        for reader in self.readers:
            for item in reader.read(ReadCallbacks(on_progress=on_progress)):
                empty = False
                yield item
        if empty:
            raise UserError(f"{format_paths(self.files)}: {self.missing}")


@dataclass(frozen=True)
class ParallelCorpus(Corpus):
    """Sentences and their translations."""

    missing = "no sentence pairs"

    readers: tuple[PairReader, ...]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self.read()

    def read(self, on_progress: Callable[[int], None] = ignore_progress) -> Iterator[tuple[str, str]]:
        """Yields the pairs in order; `on_progress` receives the number of bytes read, as they are read."""
        return ((source, target) for source, target, _ in self._items(on_progress))


@dataclass(frozen=True)
class TextCorpus(Corpus):
    """Plain text; a document ends at a blank line or at the end of its file."""

    missing = "no text, only blank lines"

    readers: tuple[DocumentReader, ...]

    def __iter__(self) -> Iterator[str]:
        """Yields whole documents, their lines joined by `\\n`. Use `chunks` if a document may not fit in memory."""
        parts: list[str] = []
        for chunk in self.chunks():
            parts.append(chunk.text)
            if chunk.ends_document:
                yield "".join(parts)
                parts.clear()

    def chunks(self, on_progress: Callable[[int], None] = ignore_progress) -> Iterator[TextChunk]:
        """Yields the documents in order; those longer than about a million characters are split at line ends.

        `on_progress` receives the number of bytes read, as they are read.
        """
        return self._items(on_progress)


def parallel_files(source: Sequence[Path], target: Sequence[Path]) -> ParallelCorpus:
    """Pairs the lines of source and target files, in order; files in directories are matched by name."""
    if len(source) != len(target):
        raise UserError(
            f"{len(source)} source files but {len(target)} target files: {format_paths(source)} and {format_paths(target)}"
        )
    readers: list[PairReader] = []
    for left, right in zip(source, target, strict=True):
        if left.is_dir() and right.is_dir():
            shards = _match_by_name(_files_by_stem(left), _files_by_stem(right), left, right)
            readers += [ParallelFilesReader(*shard) for shard in shards]
        else:
            readers.append(ParallelFilesReader(require_regular_file(left), require_regular_file(right)))
    return ParallelCorpus(tuple(readers))


def plain_text(paths: Iterable[Path], boundaries: Boundaries = "blank-line") -> TextCorpus:
    """Reads text files, and all .txt files inside directories."""
    if boundaries not in get_args(Boundaries):
        raise UserError(f'unknown boundaries "{boundaries}": {did_you_mean(boundaries, get_args(Boundaries))}')
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += _list_files(
                path, lambda file: strip_compression_suffix(file).endswith(".txt"), ".txt files", recursive=True
            )
        else:
            files.append(require_regular_file(path))
    return TextCorpus(tuple(DocumentReader(file, boundaries) for file in files))


def open_pairs(data: DataConfig, prefix: str = "") -> ParallelCorpus:
    """Opens the pairs of one set of the data, of training or, with a prefix such as `valid_`, another.

    The suffix of each file decides how it is read.
    """
    if kind := media_kind(data):
        return open_media(map(Path, getattr(data, prefix + kind)), kind, data.columns, data.fields)
    src, tgt, pairs = ([Path(path) for path in getattr(data, prefix + name)] for name in ("src", "tgt", "pairs"))
    option = f"--{prefix.replace('_', '-')}"
    if pairs and (src or tgt):
        raise UserError(f"use either {option}pairs, or {option}src and {option}tgt, not both")
    if pairs:
        return ParallelCorpus(tuple(reader for path in pairs for reader in _open_path(path, data, option)))
    if not (src and tgt):
        raise UserError(f"missing text: use {option}src FILE and {option}tgt FILE, or {option}pairs FILE")
    return parallel_files(src, tgt)


def holds_pairs(file: Path) -> bool:
    """Whether --pairs reads files of this name."""
    return has_extension("corpora", _suffix(file))


def _open_path(path: Path, data: DataConfig, option: str) -> tuple[PairReader, ...]:
    if path.is_dir():
        return _open_directory(path, data, option)
    suffix = _suffix(path)
    if not has_extension("corpora", suffix):
        *others, last = extension_names("corpora")
        raise UserError(
            f'{path}: unsupported format "{suffix}"; {option}pairs reads {", ".join(others)} and {last}, plain or '
            f"compressed (.gz, .xz); for two plain files use {option}src and {option}tgt"
        )
    opened: ParallelCorpus = load_extension("corpora", suffix)(path, data)
    return opened.readers


def _suffix(path: Path) -> str:
    return Path(strip_compression_suffix(path)).suffix.lower()


def _open_directory(path: Path, data: DataConfig, option: str) -> tuple[PairReader, ...]:
    """Opens a directory of files that --pairs reads, or of plain files with the two --languages as suffixes."""
    if data.languages:
        source, target = split_option(data.languages, "--languages", "en,hi")
        sides = [{key[0]: file for key, file in _shards(path) if key[1] == f".{side}"} for side in (source, target)]
        if sides[0] and sides[1]:
            return tuple(ParallelFilesReader(*shard) for shard in _match_by_name(sides[0], sides[1], path, path))
    files = _list_files(path, holds_pairs, "files that --pairs reads")
    return tuple(reader for file in files for reader in _open_path(file, data, option))


def parse_columns(text: str) -> tuple[int | str, int | str]:
    names = split_option(text, "--columns", "1,2")
    source, target = (int(name) if re.fullmatch("[0-9]{1,9}", name) else name for name in names)
    return source, target


def split_option(text: str, option: str, example: str) -> tuple[str, str]:
    """Splits the value of an option into the names of source and target."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names):
        problem = f"{option} {text} must name" if text else f"missing {option}: name"
        raise UserError(f"{problem} the source and the target, as in {option} {example}")
    return names[0], names[1]


def _list_files(path: Path, matches: Callable[[Path], bool], kind: str, recursive: bool = False) -> list[Path]:
    """Lists the matching files of a directory by name, without hidden ones."""
    found = sorted(path.rglob("*") if recursive else path.iterdir())
    shown = (file for file in found if not any(name.startswith(".") for name in file.relative_to(path).parts))
    files = [file for file in shown if file.is_file() and matches(file)]
    if not files:
        raise UserError(f"{path} has no {kind}" if found else f"{path} is an empty directory")
    return files


def _shards(path: Path) -> list[tuple[tuple[str, str], Path]]:
    """Returns the files of a directory by (stem, suffix): ("part-01", ".en") for part-01.en.gz."""
    files = _list_files(path, lambda file: True, "files")
    names = (Path(strip_compression_suffix(file)) for file in files)
    return [((name.stem, name.suffix), file) for name, file in zip(names, files, strict=True)]


def _files_by_stem(path: Path) -> dict[str, Path]:
    """Returns the files of a directory by stem, without .en or .hi; files with the same stem keep their suffix."""
    shards = _shards(path)
    count = Counter(stem for (stem, _), _ in shards)
    return {stem + suffix if count[stem] > 1 else stem: file for (stem, suffix), file in shards}


def _match_by_name(
    left: dict[str, Path], right: dict[str, Path], left_directory: Path, right_directory: Path
) -> list[tuple[Path, Path]]:
    for name in sorted(left.keys() ^ right.keys()):
        file, other = (left[name], right_directory) if name in left else (right[name], left_directory)
        raise UserError(f"{file} has no counterpart in {other}: {len(left)} source and {len(right)} target files")
    return [(left[name], right[name]) for name in sorted(left)]


def format_paths(files: Sequence[Path | str]) -> str:
    """Formats a list of files for a message: `a.en, b.en and 4 more`."""
    shown = ", ".join(str(file) for file in files[:2])
    return f"{shown} and {len(files) - 2} more" if len(files) > 2 else shown


def open_media(paths: Iterable[Path], kind: MediaKind, columns: str = "", fields: str = "") -> ParallelCorpus:
    """Opens lists or directories of pictures or sounds; the source of each pair is the path of its file."""
    open_reader = load_extension("media", "pairs")
    return ParallelCorpus(tuple(open_reader(path, kind, columns, fields) for path in paths))


def open_documents(data: DataConfig, prefix: str = "") -> TextCorpus:
    return plain_text([Path(path) for path in getattr(data, f"{prefix}text")], data.boundaries)


def media_kind(data: DataConfig) -> MediaKind | None:
    """Returns what the sources of the data are, if they are not text."""
    if data.pictures and data.sounds:
        raise UserError("use either --pictures or --sounds: one run trains one kind of model")
    return "pictures" if data.pictures else "sounds" if data.sounds else None


def is_translation(data: DataConfig, prefix: str = "") -> bool:
    """Whether a set of the data has pairs: of sentences, or of a picture or sound and its text."""
    return any(getattr(data, prefix + name, ()) for name in ("src", "tgt", "pairs", "pictures", "sounds"))


def validation_pairs(data: DataConfig) -> ParallelCorpus | None:
    return open_pairs(data, "valid_") if is_translation(data, "valid_") else None


def open_data(data: DataConfig, prefix: str = "") -> Corpus | None:
    """Opens one set of the data, as `open_pairs` does, or text; None if it has no files."""
    if getattr(data, f"{prefix}text"):
        return open_documents(data, prefix)
    return open_pairs(data, prefix) if is_translation(data, prefix) else None
