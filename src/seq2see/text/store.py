"""A corpus as tokens on disk, made once and mapped into memory.

A corpus larger than memory is tokenized portion by portion into two files a side: the tokens of all sentences end to
end, each sentence closed by `<end>`, and the offsets where sentences begin. The folder's name is a hash of what went
in, so a changed file or tokenizer makes another folder. It is built beside and renamed when complete: who finds it,
finds it whole. A process that asks while another one builds waits for it, so eight of them tokenize once.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.text.bpe_dropout import Dropout
from seq2see.text.tokenizer import Ragged, Tokenizer, cut

if sys.platform != "win32":
    import fcntl

FORMAT = 1

_PORTION = 1 << 18  # characters that are tokenized at a time
_PART = 1 << 14  # characters in a part of a long document, so that one document keeps all cores busy
_AHEAD = 3  # portions that are read but not yet written

A = TypeVar("A")
B = TypeVar("B")
Tokens = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class Side:
    """One side of a corpus: sentence i is tokens[offsets[i] : offsets[i + 1]], its last token `<end>`."""

    tokens: Tokens  # mapped from disk
    offsets: NDArray[np.int64]  # mapped from disk, [sentences + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int32]:
        return np.diff(self.offsets).astype(np.int32)

    def __getitem__(self, sentence: int) -> Tokens:
        return self.tokens[self.offsets[sentence] : self.offsets[sentence + 1]]


@dataclass(frozen=True)
class Store:
    """A tokenized corpus: two sides for pairs, one for text."""

    path: Path
    sides: tuple[Side, ...]

    def __len__(self) -> int:
        return len(self.sides[0])


def store_pairs(
    directory: Path | str, pairs: Iterable[tuple[str, str]], content: str, tokenizers: tuple[Tokenizer, Tokenizer],
    dropout: Dropout | None = None, total: int | None = None,
) -> Store:  # fmt: skip
    """The tokens of a parallel corpus, from `directory` or made there.

    `content` is anything that changes with the corpus, such as a hash of its files; `pairs` is read only if the store
    has to be made. With `dropout`, the pieces are drawn for that epoch, and the next epoch's take their place.
    """
    rows = ((pair, True) for pair in pairs)
    return _Recipe(Path(directory), ("source", "target"), content, tokenizers, dropout).open_or_make(rows, total)


def store_texts(
    directory: Path | str, passages: Iterable[tuple[str, bool]], content: str, tokenizer: Tokenizer,
    dropout: Dropout | None = None, total: int | None = None,
) -> Store:  # fmt: skip
    """The tokens of documents; a passage is a text, and whether its document ends with it. The rest is as for pairs."""
    return _Recipe(Path(directory), ("text",), content, (tokenizer,), dropout).open_or_make(_parts(passages), total)


Row = tuple[tuple[str, ...], bool]  # a text for each side, and whether the sentence ends with it


def _parts(passages: Iterable[tuple[str, bool]]) -> Iterator[Row]:
    for passage, ends in passages:
        *parts, last = cut(passage, _PART)
        for part in parts:
            yield (part,), False
        yield (last,), ends


@dataclass(frozen=True)
class _Contents:
    """What store.json says of one side."""

    name: str
    dtype: str
    sentences: int
    tokens: int


@dataclass(frozen=True)
class _Recipe:
    """All that a store is made of."""

    directory: Path
    names: tuple[str, ...]
    content: str
    tokenizers: Sequence[Tokenizer]
    dropout: Dropout | None

    @property
    def path(self) -> Path:
        draw = (self.dropout.probability, self.dropout.seed) if self.dropout else None
        key = [FORMAT, self.names, self.content, [t.fingerprint for t in self.tokenizers], draw]
        return self.directory / f"tokens-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"

    @property
    def epoch(self) -> int | None:
        return self.dropout.epoch if self.dropout else None

    def open_or_make(self, rows: Iterator[Row], total: int | None) -> Store:
        with _writing_to(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        with _locked(self.directory):
            store = self.open()
            if store is not None:
                return store
            self.make(rows, total)
            store = self.open()
        assert store is not None
        return store

    def open(self) -> Store | None:
        """The store, unless it is not there, not whole, or of another epoch."""
        try:
            manifest = json.loads((self.path / "store.json").read_text(encoding="utf-8"))
            if manifest["epoch"] != self.epoch:
                return None
            return Store(self.path, tuple(_map(self.path, _Contents(**side)) for side in manifest["sides"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def make(self, rows: Iterator[Row], total: int | None) -> None:
        # Nobody else builds here while we hold the lock, so what is half made was left by a process that is no more.
        for abandoned in self.directory.glob("*.building"):
            shutil.rmtree(abandoned, ignore_errors=True)
        building = self.path.with_suffix(".building")
        try:
            with _writing_to(self.directory):
                building.mkdir()
            sides = self._write(building, rows, total)
            with _writing_to(self.directory):
                manifest = {"epoch": self.epoch, "sides": [asdict(side) for side in sides]}
                with written_whole(building / "store.json") as part:
                    part.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
                shutil.rmtree(self.path, ignore_errors=True)
                building.rename(self.path)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise

    def _write(self, folder: Path, rows: Iterator[Row], total: int | None) -> list[_Contents]:
        with contextlib.ExitStack() as stack:
            writers = [
                stack.enter_context(_Writer.open(folder, name, tokenizer))
                for name, tokenizer in zip(self.names, self.tokenizers, strict=True)
            ]
            advance = stack.enter_context(_progress(total))
            for encoded, ends in _overlapped(self._encode, _portions(rows)):
                with _writing_to(self.directory):
                    for writer, ragged in zip(writers, encoded, strict=True):
                        writer.append(ragged, ends)
                advance(int(ends.sum()))
            if not writers[0].sentences:
                raise UserError("the corpus is empty: there is nothing to tokenize")
            with _writing_to(self.directory):
                return [writer.close() for writer in writers]

    def _encode(self, portion: "_Portion") -> tuple[list[Ragged], NDArray[np.bool_]]:
        encoded = []
        for side, (texts, tokenizer) in enumerate(zip(portion.texts, self.tokenizers, strict=True)):
            if self.dropout is None:
                encoded.append(tokenizer.encode_batch(texts))
            else:
                encoded.append(tokenizer.encode_sampled(texts, replace(self.dropout, side=side), portion.first))
        return encoded, portion.ends


@dataclass(frozen=True)
class _Portion:
    first: int  # number of its first row
    texts: list[tuple[str, ...]]  # [sides][rows]
    ends: NDArray[np.bool_]  # [rows] a sentence ends here


def _portions(rows: Iterable[Row]) -> Iterator[_Portion]:
    held: list[Row] = []
    first = size = 0
    for row in rows:
        held.append(row)
        size += sum(map(len, row[0])) + 1
        if size >= _PORTION:
            yield _portion(first, held)
            first, held, size = first + len(held), [], 0
    if held:
        yield _portion(first, held)


def _portion(first: int, rows: list[Row]) -> _Portion:
    return _Portion(first, list(zip(*(texts for texts, _ in rows), strict=True)), np.array([end for _, end in rows]))


def _overlapped(work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """map() that reads and writes while the library, which needs no Python for it, tokenizes."""
    waiting: deque[Future[B]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@dataclass
class _Writer:
    """Appends to the two files of a side."""

    name: str
    end: int
    dtype: np.dtype[np.unsignedinteger]
    tokens_file: IO[bytes]
    offsets_file: IO[bytes]
    sentences: int = 0
    tokens: int = 0

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, name: str, tokenizer: Tokenizer) -> Iterator[Self]:
        dtype = np.dtype("<u2" if len(tokenizer) <= 1 << 16 else "<u4")
        with _writing_to(folder.parent):
            tokens, offsets = ((folder / f"{name}{suffix}").open("wb") for suffix in (".tokens", ".offsets"))
            offsets.write(np.zeros(1, dtype="<i8").tobytes())
        try:
            yield cls(name, tokenizer.end, dtype, tokens, offsets)
        finally:
            for file in (tokens, offsets):
                # On a full disk closing fails again, after the write that told the user; what counts was synced before.
                with contextlib.suppress(OSError):
                    file.close()

    def append(self, ragged: Ragged, ends: NDArray[np.bool_]) -> None:
        after = ragged.offsets[1:][ends]
        closed = np.insert(ragged.tokens, after, self.end)
        offsets = self.tokens + after + np.arange(1, len(after) + 1)
        self.tokens_file.write(closed.astype(self.dtype).tobytes())
        self.offsets_file.write(offsets.astype("<i8").tobytes())
        self.sentences += len(after)
        self.tokens += len(closed)

    def close(self) -> _Contents:
        for file in (self.tokens_file, self.offsets_file):
            file.flush()
            os.fsync(file.fileno())
        return _Contents(self.name, self.dtype.str, self.sentences, self.tokens)


def _map(folder: Path, contents: _Contents) -> Side:
    """Map the files of a side; one that is shorter or longer than store.json says is damaged."""
    expected = ((".tokens", contents.dtype, contents.tokens), (".offsets", "<i8", contents.sentences + 1))
    arrays = []
    for suffix, dtype, count in expected:
        path = folder / (contents.name + suffix)
        if path.stat().st_size != count * np.dtype(dtype).itemsize:
            raise ValueError(f"{path} is damaged")
        arrays.append(np.memmap(path, dtype=dtype, mode="r", shape=(count,)))
    tokens, offsets = arrays
    if offsets[0] != 0 or offsets[-1] != contents.tokens:
        raise ValueError(f"{folder / contents.name}.offsets is damaged")
    return Side(np.asarray(tokens), np.asarray(offsets))


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One process at a time. The lock is on the folder itself, leaves no file and dies with its process."""
    if sys.platform == "win32":  # no such lock there: two builds at once would do the work twice
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _writing_to(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write tokens to {directory}: {error.strerror}; free some space, or choose another folder"
        ) from error


@contextlib.contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal; quiet elsewhere."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("tokenizing"), progress.BarColumn(), progress.TextColumn("{task.completed:,} sentences"),
        progress.TimeElapsedColumn(), progress.TimeRemainingColumn(),
    )  # fmt: skip
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)
