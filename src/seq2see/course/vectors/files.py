"""Vector files: .safetensors, without pickle, or word2vec's text format, which most tools read.

The text format has a line with the number of words and the width, then one line per word: the word and its numbers. GloVe
files, which lack the first line, are read as well. Text files may be compressed with gzip or xz.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seq2see.data.lines import read_lines
from seq2see.data.readers import strip_compression_suffix
from seq2see.errors import UserError
from seq2see.tensors.files import atomic_write
from seq2see.tensors.tensor_file import read_tensors, write_tensors

if TYPE_CHECKING:
    from seq2see.course.vectors.word_vectors import WordVectors

FORMAT = "seq2see-vectors-1"
TEXT_SUFFIXES = (".txt", ".vec", ".tsv")
SUFFIXES = (".safetensors", *TEXT_SUFFIXES)
MAX_DENSE_SIZE = 2**29  # numbers of a sparse matrix written as text

LoadedVectors = tuple[tuple[str, ...], Tensor, str, bool, Tensor | None]


def save(vectors: "WordVectors", path: Path) -> None:
    if path.suffix in TEXT_SUFFIXES:
        _save_text(vectors, path)
        return
    matrix = vectors.matrix
    tensors = {"words": torch.tensor(list("\n".join(vectors.words).encode()), dtype=torch.uint8)}
    if matrix.is_sparse:
        tensors |= {"places": matrix.indices().contiguous(), "values": matrix.values().contiguous()}
    else:
        tensors["matrix"] = matrix.contiguous()
    if vectors.counts is not None:
        tensors["counts"] = vectors.counts
    lower, shape = json.dumps(vectors.lowercase), json.dumps(list(matrix.shape))
    write_tensors(path, tensors, {"format": FORMAT, "method": vectors.method, "lower": lower, "shape": shape})


def load(path: Path) -> LoadedVectors:
    if not path.exists() and path.with_name(path.name + ".safetensors").exists():
        path = path.with_name(path.name + ".safetensors")
    if Path(strip_compression_suffix(path)).suffix in TEXT_SUFFIXES:
        return _load_text(path)
    if not path.exists():
        raise UserError(f'{path}: file not found; create it with "seq2see vectors fit"')
    hint = "; files in word2vec's text format must end in .txt or .vec"
    tensors, metadata = read_tensors(path, FORMAT, "vectors", hint)
    try:
        return _from_tensors(tensors, metadata)
    except (KeyError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is damaged ({' '.join(str(error).split())}): fit the vectors again") from error


def _from_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> LoadedVectors:
    words = tuple(tensors["words"].numpy().tobytes().decode().split("\n"))
    if "matrix" in tensors:
        matrix = tensors["matrix"]
    else:
        matrix = sparse_matrix(tensors["places"], tensors["values"], json.loads(metadata["shape"]))
    counts = tensors.get("counts")
    if matrix.dim() != 2 or len(matrix) != len(words) or (counts is not None and counts.shape != (len(words),)):
        raise ValueError(f"{len(words):,} words, but a matrix of shape {tuple(matrix.shape)}")
    return words, matrix, metadata["method"], json.loads(metadata["lower"]), counts


def sparse_matrix(places: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Builds a sparse matrix from values and their places, [2, values], in order."""
    with torch.sparse.check_sparse_tensor_invariants():  # torch 2.11 warns if it is an argument instead
        return torch.sparse_coo_tensor(places, values, tuple(shape), is_coalesced=True)


def _save_text(vectors: "WordVectors", path: Path) -> None:
    size = len(vectors) * vectors.width
    if vectors.matrix.is_sparse and size > MAX_DENSE_SIZE:
        raise UserError(
            f"{path}: {len(vectors):,} words × {vectors.width:,} numbers, nearly all 0, are too many for a text file; "
            f"save as .safetensors"
        )
    with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(vectors)} {vectors.width}\n")
        for i, word in enumerate(vectors.words):
            row = vectors.matrix[i].to_dense() if vectors.matrix.is_sparse else vectors.matrix[i]
            file.write(f"{word} {' '.join(row.numpy().astype(str))}\n")  # shortest exact representation


def _load_text(path: Path) -> LoadedVectors:
    words: list[str] = []
    rows: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []
    count, width = -1, 0  # by the first line, if it is a header
    for number, line in enumerate(read_lines(path), 1):
        fields = (line or "").split()
        if number == 1 and len(fields) == 2 and all(re.fullmatch("[0-9]{1,12}", field) for field in fields):
            count, width = int(fields[0]), int(fields[1])
            continue
        if not fields:
            continue
        width = width if count >= 0 or rows else len(fields) - 1
        try:
            row = np.array(fields[-width:], dtype=np.float32)
        except ValueError:
            row = np.empty(0, dtype=np.float32)
        if width < 1 or len(row) != width or len(fields) <= width:
            expected = f"expected a word and {width:,} numbers, found {len(fields)} fields"
            raise UserError(f"{path}, line {number:,}: {expected}")
        words.append(" ".join(fields[:-width]))
        rows.append(row)
    if not rows or (count >= 0 and count != len(rows)):
        expected = f"expected {count if count >= 0 else 1:,} by its first line: is it truncated?"
        raise UserError(f"{path} has {len(rows):,} words, {expected}")
    lowercase = all(word == word.lower() for word in words)
    return tuple(words), torch.from_numpy(np.stack(rows)), "", lowercase, None
