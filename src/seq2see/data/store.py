"""A tokenized corpus on disk, built once and memory-mapped. Pictures and sounds are decoded into it, too.

A corpus larger than memory is tokenized in chunks into two files per side: the concatenated tokens of all sentences,
each ending with `<end>`, and the offsets where sentences begin. The directory name is a hash of the inputs, so a changed
file or tokenizer gets another directory. It is built under a temporary name and renamed when complete: readers never
see a partially written store. A lock makes concurrent processes wait for the one that builds, so eight of them tokenize
once.
"""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from seq2see.data.bpe_dropout import BpeDropout
from seq2see.data.tokenizer import RaggedTokens, Tokenizer
from seq2see.data.tokenizer_training import group, split_text
from seq2see.errors import ProgressFactory, UserError, no_progress
from seq2see.tensors.files import atomic_write, file_lock

FORMAT_VERSION = 1

CHUNK_CHARACTERS = 1 << 18  # tokenized at a time
_CHUNK_PATH_CHARACTERS = 1 << 11  # of the paths of pictures or sounds, some dozens of which are decoded at a time
PART_CHARACTERS = 1 << 14  # long documents are split into parts of this size, so that one document uses all cores
_THREADS = min(8, os.cpu_count() or 1)

A = TypeVar("A")
B = TypeVar("B")
TokenArray = NDArray[Any]  # [T] uint16 or uint32 ids; of pictures and sounds, [T, F] numbers


class MediaReader(Protocol):
    """Reads pictures or sounds as the rows that a model takes: what a tokenizer is for text."""

    @property
    def dtype(self) -> str: ...

    @property
    def row_size(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def windows(self, path: Path | str) -> list[TokenArray]:
        """Returns the rows of a file, [U, row_size]; of a sound in windows, one array each."""

    def read(self, path: Path | str) -> TokenArray:
        """Returns the rows of a file that fits the model."""

    def encode_batch(self, paths: Sequence[str]) -> RaggedTokens: ...


Encoder = Tokenizer | MediaReader


@dataclass(frozen=True)
class TokenizedSide:
    """One side of a corpus: sentence i is tokens[offsets[i] : offsets[i + 1]]; if it is text, it ends with `<end>`."""

    tokens: TokenArray  # memory-mapped
    offsets: NDArray[np.int64]  # memory-mapped, [sentences + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int32]:
        return np.diff(self.offsets).astype(np.int32)

    def __getitem__(self, sentence: int) -> TokenArray:
        return self.tokens[self.offsets[sentence] : self.offsets[sentence + 1]]


@dataclass(frozen=True)
class TokenStore:
    """A tokenized corpus: two sides for pairs, one for text."""

    path: Path
    sides: tuple[TokenizedSide, ...]

    def __len__(self) -> int:
        return len(self.sides[0])


def store_pairs(
    directory: Path | str,
    pairs: Iterable[tuple[str, str]],
    fingerprint: str,
    tokenizers: tuple[Encoder, Tokenizer],
    bpe_dropout: BpeDropout | None = None,
    total: int | None = None,
    progress: ProgressFactory = no_progress,
) -> TokenStore:
    """Opens the tokens of a parallel corpus in `directory`, building them if needed.

    `fingerprint` is any string that changes with the corpus, such as a hash of its files; `pairs` is read only if the
    store has to be built. With `bpe_dropout`, the store holds the segmentation of one epoch, and the next epoch's
    replaces it. `total` is the number of pairs, to show the progress.
    """
    rows = ((pair, True) for pair in pairs)
    spec = _StoreSpec(Path(directory), ("source", "target"), fingerprint, tokenizers, bpe_dropout)
    return spec.open_or_build(rows, total, progress)


def store_documents(
    directory: Path | str,
    chunks: Iterable[tuple[str, bool]],
    fingerprint: str,
    tokenizer: Tokenizer,
    bpe_dropout: BpeDropout | None = None,
) -> TokenStore:
    """Opens or builds the tokens of documents, given as chunks (text, ends_document); see `store_pairs`."""
    spec = _StoreSpec(Path(directory), ("text",), fingerprint, (tokenizer,), bpe_dropout)
    rows = _split_long_texts(chunks) if tokenizer.can_split else (((text,), ends) for text, ends in chunks)
    return spec.open_or_build(rows, None, no_progress)


_Row = tuple[tuple[str, ...], bool]  # one text per side, and whether the sentence ends with it


def _split_long_texts(chunks: Iterable[tuple[str, bool]]) -> Iterator[_Row]:
    for text, ends in chunks:
        *parts, last = split_text(text, PART_CHARACTERS)
        for part in parts:
            yield (part,), False
        yield (last,), ends


@dataclass(frozen=True)
class _StoreSpec:
    """Everything that determines the contents of a store."""

    directory: Path
    names: tuple[str, ...]
    fingerprint: str
    encoders: Sequence[Encoder]
    bpe_dropout: BpeDropout | None

    @property
    def path(self) -> Path:
        dropout = (self.bpe_dropout.probability, self.bpe_dropout.seed) if self.bpe_dropout else None
        encoders = [encoder.fingerprint for encoder in self.encoders]
        key = [FORMAT_VERSION, self.names, self.fingerprint, encoders, dropout]
        return self.directory / f"tokens-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"

    @property
    def epoch(self) -> int | None:
        return self.bpe_dropout.epoch if self.bpe_dropout else None

    def open_or_build(self, rows: Iterator[_Row], total: int | None, progress: ProgressFactory) -> TokenStore:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with file_lock(self.directory):  # the directory itself: the lock leaves no file behind
                store = self.open()
                if store is None:
                    self.build(rows, progress("tokenizing" if self._is_text else "decoding files", total))
                    store = self.open()
        except OSError as error:
            raise UserError(
                f"cannot write tokens to {self.directory}: {error.strerror}; free some space or choose another directory"
            ) from error
        assert store is not None
        return store

    def open(self) -> TokenStore | None:
        """Returns the store, or None if it is missing, damaged, or of another epoch and must be built.

        A store that exists but cannot be read is an error: building over it would not help.
        """
        try:
            manifest = json.loads((self.path / "store.json").read_text(encoding="utf-8"))
            if manifest["epoch"] != self.epoch:
                return None
            sides = zip(self.names, self.encoders, strict=True)
            return TokenStore(self.path, tuple(_map_side(self.path, name, encoder) for name, encoder in sides))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        except OSError as error:
            raise UserError(
                f"cannot read the tokens in {self.path}: {error.strerror}; make them readable, or delete this directory"
            ) from error

    def build(self, rows: Iterator[_Row], advance: Callable[[int], None]) -> None:
        # We hold the lock, so an unfinished build was left behind by a process that died.
        for abandoned in self.directory.glob("*.building"):
            shutil.rmtree(abandoned, ignore_errors=True)
        building = self.path.with_suffix(".building")
        try:
            building.mkdir()
            self._write(building, rows, advance)
            with atomic_write(building / "store.json") as temporary:
                temporary.write_text(json.dumps({"epoch": self.epoch}), encoding="utf-8")
            shutil.rmtree(self.path, ignore_errors=True)
            building.rename(self.path)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise

    def _write(self, folder: Path, rows: Iterator[_Row], advance: Callable[[int], None]) -> None:
        with ExitStack() as stack:
            sides = zip(self.names, self.encoders, strict=True)
            writers = [_Writer(folder, name, encoder, stack) for name, encoder in sides]
            size = CHUNK_CHARACTERS if self._is_text else _CHUNK_PATH_CHARACTERS
            sentences = 0
            chunks = group(enumerate(rows), lambda row: sum(map(len, row[1][0])) + 1, size)
            for encoded, ends in _map_in_threads(self._encode, chunks):
                for writer, ragged in zip(writers, encoded, strict=True):
                    writer.append(ragged, ends)
                advance(int(ends.sum()))
                sentences += ends.sum()
            if not sentences:
                raise UserError("the corpus is empty")
            for writer in writers:
                writer.sync()

    def _encode(self, chunk: list[tuple[int, _Row]]) -> tuple[list[RaggedTokens], NDArray[np.bool_]]:
        """Returns the tokens of each side of numbered rows, and of each row whether a sentence ends with it."""
        first = chunk[0][0]
        encoded = []
        for side, encoder in enumerate(self.encoders):
            texts = [texts[side] for _, (texts, _) in chunk]
            if self.bpe_dropout is None or not isinstance(encoder, Tokenizer):
                encoded.append(encoder.encode_batch(texts))
            else:
                encoded.append(encoder.encode_with_dropout(texts, replace(self.bpe_dropout, side=side), first))
        return encoded, np.array([end for _, (_, end) in chunk])

    @property
    def _is_text(self) -> bool:
        return isinstance(self.encoders[0], Tokenizer)


def _map_in_threads(work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """An ordered map() that overlaps reading and writing with tokenizing, which releases the GIL."""
    pending: deque[Future[B]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > _THREADS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _files(folder: Path, name: str, encoder: Encoder) -> tuple[tuple[Path, str], tuple[Path, str]]:
    """Returns the two files of a side with their dtypes: the tokens, and the offsets of the sentences."""
    if isinstance(encoder, Tokenizer):
        dtype = "<u2" if len(encoder) <= 1 << 16 else "<u4"
    else:
        dtype = encoder.dtype
    return (folder / f"{name}.tokens", dtype), (folder / f"{name}.offsets", "<i8")


class _Writer:
    """Appends to the two files of one side, which the stack closes."""

    def __init__(self, folder: Path, name: str, encoder: Encoder, stack: ExitStack) -> None:
        self._files = [(stack.enter_context(path.open("wb")), dtype) for path, dtype in _files(folder, name, encoder)]
        self._end = encoder.end if isinstance(encoder, Tokenizer) else None  # appended to each sentence
        self._size = 0  # tokens written
        self._write(np.zeros(0), np.zeros(1))

    def append(self, ragged: RaggedTokens, ends: NDArray[np.bool_]) -> None:
        tokens, sentence_ends = ragged.tokens, ragged.offsets[1:][ends]
        if self._end is not None:
            tokens = np.insert(tokens, sentence_ends, self._end)
            sentence_ends = sentence_ends + np.arange(1, len(sentence_ends) + 1)
        self._write(tokens, self._size + sentence_ends)
        self._size += len(tokens)

    def _write(self, *arrays: NDArray[Any]) -> None:
        for (file, dtype), array in zip(self._files, arrays, strict=True):
            file.write(array.astype(dtype).tobytes())

    def sync(self) -> None:
        for file, _ in self._files:
            file.flush()
            os.fsync(file.fileno())


def _map_side(folder: Path, name: str, encoder: Encoder) -> TokenizedSide:
    """Memory-maps the files of a side; raises ValueError if they are damaged."""
    files = _files(folder, name, encoder)
    tokens, offsets = (np.asarray(np.memmap(path, dtype=dtype, mode="r")) for path, dtype in files)
    if not isinstance(encoder, Tokenizer):
        tokens = tokens.reshape(-1, encoder.row_size)
    if offsets[0] != 0 or offsets[-1] != len(tokens):
        raise ValueError(f"{folder / name}.offsets is damaged")
    return TokenizedSide(tokens, offsets)
