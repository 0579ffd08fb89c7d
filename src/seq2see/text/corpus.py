"""What a model is trained on, named by its files: sentence pairs, or documents of plain text.

A corpus is a small frozen value. Iterating over it reads its files anew, in constant memory; its `key` is a hash of
their bytes and of the way they are read, so that whatever was computed from a corpus can be found again, and is not
when a file has changed.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, get_args

from seq2see.config import Boundaries, DataConfig
from seq2see.errors import UserError, nearest
from seq2see.text.formats.lines import STRICT, Listener, lines, regular
from seq2see.text.formats.po import Po
from seq2see.text.formats.tabular import JsonLines, Part, Table, TwoFiles, bare
from seq2see.text.formats.tmx import Tmx

# Characters of a long document that are handed on at a time.
_PASSAGE = 1 << 20


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations; iterating reads them anew."""

    parts: tuple[Part, ...]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        empty = True
        for part in self.parts:
            for source, target, _ in part.read(STRICT):
                empty = False
                yield source, target
        if empty:
            raise UserError(f"{named(self.files)}: no sentence pair in it")

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for part in self.parts for file in part.files)

    @property
    def size(self) -> int:
        """Bytes on disk, for a progress bar."""
        return sum(regular(file).stat().st_size for file in self.files)

    @cached_property
    def key(self) -> str:
        return _content_key((part.manner, part.files) for part in self.parts)


class Passage(NamedTuple):
    """A document, or so much of a long one as is handed on at a time, and the line where it begins."""

    text: str
    line: int
    ends: bool


@dataclass(frozen=True)
class Documents:
    """Plain text; a document ends at a blank line or at the end of its file. Iterating reads it anew."""

    files: tuple[Path, ...]
    boundaries: Boundaries = "blank-line"

    def __iter__(self) -> Iterator[str]:
        """Whole documents, their lines joined by `\\n`. Where one may not fit in memory, take `passages`."""
        begun: list[str] = []
        for passage in self.passages():
            begun.append(passage.text)
            if passage.ends:
                yield "".join(begun)
                begun.clear()

    def passages(self) -> Iterator[Passage]:
        """The documents in order, those of more than a megabyte in several passages, cut where a line ends."""
        empty = True
        for file in self.files:
            for passage in self.read(file, STRICT):
                empty = False
                yield passage
        if empty:
            raise UserError(f"{named(self.files)}: no text in it, only blank lines")

    def read(self, file: Path, listener: Listener) -> Iterator[Passage]:
        """The passages of one file; a line that is not UTF-8 is told to the listener and left out."""
        held: list[str] = []
        start, size, begun = 1, 0, False
        for number, line in enumerate(lines(file, listener), 1):
            if line is None:
                continue
            if self.boundaries == "blank-line" and not line.strip():
                if held:
                    yield Passage("\n".join(held), start, True)
                held, size, begun = [], 0, False
                continue
            if size >= _PASSAGE and held[-1] and not held[-1][-1].isspace():
                yield Passage("\n".join(held), start, False)
                held, size, begun = [""], 0, True  # the next one begins with the line's end: there a new word begins
                start = number
            if not held:
                start = number
            held.append(line)
            size += len(line) + 1
        if begun or any(line and not line.isspace() for line in held):
            yield Passage("\n".join(held), start, True)

    @property
    def size(self) -> int:
        """Bytes on disk, for a progress bar."""
        return sum(regular(file).stat().st_size for file in self.files)

    @cached_property
    def key(self) -> str:
        return _content_key((self.boundaries, (file,)) for file in self.files)


def parallel(source: Sequence[Path], target: Sequence[Path]) -> Pairs:
    """Files in step, the first of one side with the first of the other, or directories whose files pair by name."""
    if len(source) != len(target):
        raise UserError(
            f"{len(source)} source files but {len(target)} target files: {named(source)} against {named(target)}"
        )
    parts: list[Part] = []
    for left, right in zip(source, target, strict=True):
        if left.is_dir() and right.is_dir():
            parts += [TwoFiles(*shard) for shard in _paired(_by_shard(left), _by_shard(right), left, right)]
        else:
            parts.append(TwoFiles(regular(left), regular(right)))
    return Pairs(tuple(parts))


def table(paths: Iterable[Path], source_column: int | str = 1, target_column: int | str = 2) -> Pairs:
    """Tab-separated columns, counted from 1, or named by the first line."""
    return Pairs(tuple(Table(regular(path), source_column, target_column) for path in paths))


def jsonl(paths: Iterable[Path], source_field: str, target_field: str) -> Pairs:
    """One JSON object a line; `translation.en` is field `en` of the object in field `translation`."""
    return Pairs(tuple(JsonLines(regular(path), source_field, target_field) for path in paths))


def tmx(paths: Iterable[Path], source_language: str, target_language: str) -> Pairs:
    """Translation memories; `en` also takes `en-GB`."""
    return Pairs(tuple(Tmx(regular(path), source_language, target_language) for path in paths))


def po(paths: Iterable[Path]) -> Pairs:
    """Gettext's message files: the finished entries."""
    return Pairs(tuple(Po(regular(path)) for path in paths))


def plain(paths: Iterable[Path], boundaries: Boundaries = "blank-line") -> Documents:
    """Text files, and all the .txt files inside directories."""
    if boundaries not in get_args(Boundaries):
        raise UserError(f'boundaries "{boundaries}": {nearest(boundaries, get_args(Boundaries))}')
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += _inside(path, lambda file: bare(file).endswith(".txt"), "no .txt file", deep=True)
        else:
            files.append(regular(path))
    return Documents(tuple(files), boundaries)


@dataclass(frozen=True)
class PairOptions:
    """The command line's way of naming sentence pairs: `--src` with `--tgt`, or `--pairs` with how to read them."""

    src: Sequence[Path] = ()
    tgt: Sequence[Path] = ()
    pairs: Sequence[Path] = ()
    columns: str | None = None
    fields: str | None = None
    languages: str | None = None
    role: str = ""  # "valid-" where the options are --valid-src and so on

    @property
    def given(self) -> bool:
        return bool(self.src or self.tgt or self.pairs)


def open_pairs(options: PairOptions) -> Pairs:
    """The pairs that the options name, each file read by its suffix."""
    role = options.role
    if options.pairs and (options.src or options.tgt):
        raise UserError(f"give either --{role}pairs, or --{role}src and --{role}tgt, not both")
    if options.pairs:
        parts = [part for path in options.pairs for part in _parts(path, options)]
        return Pairs(tuple(parts))
    if not (options.src and options.tgt):
        raise UserError(f"name the text: --{role}src FILE and --{role}tgt FILE, or --{role}pairs FILE")
    return parallel(options.src, options.tgt)


def _parts(path: Path, options: PairOptions) -> tuple[Part, ...]:
    if path.is_dir():
        return _directory(path, options)
    match Path(bare(path)).suffix.lower():
        case ".tsv" | ".tab":
            columns = _two(options.columns or "1,2", "--columns", "1,2")
            source, target = (int(name) if name.isdigit() else name for name in columns)
            return table([path], source, target).parts
        case ".jsonl" | ".ndjson":
            return jsonl([path], *_two(options.fields or options.languages, "--fields", "en,hi")).parts
        case ".tmx":
            return tmx([path], *_two(options.languages, "--languages", "en,hi")).parts
        case ".po":
            return po([path]).parts
        case suffix:
            raise UserError(
                f'{path}: no reader for "{suffix}"; --{options.role}pairs takes .tsv, .jsonl, .tmx and .po, each also '
                f".gz or .xz; two plain files go with --{options.role}src and --{options.role}tgt"
            )


def _directory(path: Path, options: PairOptions) -> tuple[Part, ...]:
    """A directory of files that --pairs takes, or of plain ones that end in the two --languages."""
    if options.languages:
        source, target = _two(options.languages, "--languages", "en,hi")
        sides = [{k[0]: file for k, file in _shards(path) if k[1] == f".{side}"} for side in (source, target)]
        if sides[0] and sides[1]:
            return tuple(TwoFiles(*shard) for shard in _paired(sides[0], sides[1], path, path))
    known = (".tsv", ".tab", ".jsonl", ".ndjson", ".tmx", ".po")
    files = _inside(path, lambda file: bare(file).lower().endswith(known), "no file that --pairs takes")
    return tuple(part for file in files for part in _parts(file, options))


def _two(text: str | None, option: str, example: str) -> tuple[str, str]:
    names = [name.strip() for name in (text or "").split(",")]
    if len(names) != 2 or not all(names):
        given = f"not {text!r}" if text else "but it is missing"
        raise UserError(f"{option} names the source and the target, such as {option} {example}, {given}")
    return names[0], names[1]


def _inside(path: Path, wanted: Callable[[Path], bool], complaint: str, deep: bool = False) -> list[Path]:
    """The files of a directory that are wanted, by name; hidden ones never are."""
    found = sorted(path.rglob("*") if deep else path.iterdir())
    files = [file for file in found if file.is_file() and not _hidden(file.relative_to(path)) and wanted(file)]
    if not files:
        raise UserError(f"{path} has {complaint} in it" if found else f"{path} is an empty directory")
    return files


def _hidden(path: Path) -> bool:
    return any(name.startswith(".") for name in path.parts)


def _shards(path: Path) -> list[tuple[tuple[str, str], Path]]:
    """The files of a directory under (stem, suffix): ("part-01", ".en") for part-01.en.gz."""
    files = _inside(path, lambda file: True, "no file")
    return [((Path(bare(file)).stem, Path(bare(file)).suffix), file) for file in files]


def _by_shard(path: Path) -> dict[str, Path]:
    """The files of one side's directory by what they share with their partners: the name, without .en or .hi."""
    shards = _shards(path)
    several = Counter(stem for (stem, _), _ in shards)
    return {stem + suffix if several[stem] > 1 else stem: file for (stem, suffix), file in shards}


def _paired(left: dict[str, Path], right: dict[str, Path], *where: Path) -> list[tuple[Path, Path]]:
    for name in sorted(left.keys() ^ right.keys()):
        have, lacks = (left[name], where[1]) if name in left else (right[name], where[0])
        raise UserError(f"{have} has no partner of that name in {lacks}: {len(left)} files against {len(right)}")
    return [(left[name], right[name]) for name in sorted(left)]


def named(files: Sequence[Path]) -> str:
    """`a.en, b.en and 4 more`."""
    shown = ", ".join(str(file) for file in files[:2])
    return f"{shown} and {len(files) - 2} more" if len(files) > 2 else shown


def _content_key(sources: Iterable[tuple[str, Sequence[Path]]]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for manner, files in sources:
        whole.update(f"{manner}\0{len(files)}\0".encode())
        for file in files:
            with regular(file).open("rb") as bytes_of:
                whole.update(hashlib.file_digest(bytes_of, "blake2b").digest())
    return whole.hexdigest()


def is_translation(data: DataConfig) -> bool:
    return bool(data.src or data.tgt or data.pairs)


def training_pairs(data: DataConfig) -> Pairs:
    return open_pairs(_options(data, ""))


def validation_pairs(data: DataConfig) -> Pairs | None:
    options = _options(data, "valid_")
    return open_pairs(options) if options.given else None


def _options(data: DataConfig, role: str) -> PairOptions:
    src, tgt, pairs = ([Path(path) for path in getattr(data, role + name)] for name in ("src", "tgt", "pairs"))
    manner = data.columns or None, data.fields or None, data.languages or None
    return PairOptions(src, tgt, pairs, *manner, role=role.replace("_", "-"))
