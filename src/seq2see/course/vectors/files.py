"""Vectors in files: one .safetensors with the words inside, no pickle; or word2vec's text format, which most tools read.

The text format is a line with the number of words and the width, then a line a word: the word and its numbers. GloVe's
files, which lack the first line, are read as well; everything may be compressed by gzip or xz.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.text.formats.lines import lines
from seq2see.text.formats.tabular import bare

if TYPE_CHECKING:
    from seq2see.course.vectors.table import Vectors

FORMAT = "seq2see-vectors-1"
TEXT = (".txt", ".vec", ".tsv")
MOST = 2**29  # numbers of a sparse table that is written out in full

Parts = tuple[tuple[str, ...], Tensor, str, bool, Tensor | None]


def save(vectors: "Vectors", path: Path) -> None:
    if path.suffix in TEXT:
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
    about = {
        "format": FORMAT,
        "method": vectors.method,
        "lower": json.dumps(vectors.lower),
        "shape": json.dumps(list(matrix.shape)),
    }
    with written_whole(path) as part:
        part.write_bytes(to_bytes(tensors, about))


def load(path: Path) -> Parts:
    if not path.exists() and path.with_name(path.name + ".safetensors").exists():
        path = path.with_name(path.name + ".safetensors")
    if Path(bare(path)).suffix in TEXT:
        return _load_text(path)
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, str] = file.metadata() or {}
            if about.get("format") != FORMAT:
                raise UserError(f"{path} has no vectors of words in it (its format is {about.get('format')})")
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    except FileNotFoundError:
        raise UserError(f'{path}: no such file; "seq2see vectors fit" makes one') from None
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"cannot read the vectors {path}: {error}; a file in word2vec's text format is named .txt or .vec"
        ) from error
    words = tuple(held["words"].numpy().tobytes().decode().split("\n"))
    matrix = held["matrix"] if "matrix" in held else _sparse(held["places"], held["values"], json.loads(about["shape"]))
    return words, matrix, about["method"], json.loads(about["lower"]), held.get("counts")


def _sparse(places: Tensor, values: Tensor, shape: list[int]) -> Tensor:
    return torch.sparse_coo_tensor(places, values, shape, is_coalesced=True, check_invariants=True)


def _save_text(vectors: "Vectors", path: Path) -> None:
    size = len(vectors) * vectors.width
    if vectors.matrix.is_sparse and size > MOST:
        raise UserError(
            f"{path}: {len(vectors):,} words × {vectors.width:,} numbers are too many to write out, nearly all of them 0; "
            f"save as .safetensors"
        )
    with written_whole(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(vectors)} {vectors.width}\n")
        for i, word in enumerate(vectors.words):
            row = vectors.matrix[i].to_dense() if vectors.matrix.is_sparse else vectors.matrix[i]
            file.write(f"{word} {' '.join(row.numpy().astype(str))}\n")  # the fewest digits that mean the same number


def _load_text(path: Path) -> Parts:
    words: list[str] = []
    rows: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []
    told: tuple[int, int] | None = None
    for number, line in enumerate(lines(path), 1):
        fields = (line or "").split()
        if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
            told = int(fields[0]), int(fields[1])
            continue
        if not fields:
            continue
        width = told[1] if told else len(rows[0]) if rows else len(fields) - 1
        try:
            row = np.array(fields[-width:], dtype=np.float32)
        except ValueError:
            row = np.empty(0, dtype=np.float32)
        if width < 1 or len(row) != width or len(fields) <= width:
            raise UserError(
                f"{path}, line {number:,}: a word and {width:,} numbers are wanted, not {len(fields)} fields"
            )
        words.append(" ".join(fields[:-width]))
        rows.append(row)
    if not rows or (told and told[0] != len(rows)):
        raise UserError(
            f"{path} has {len(rows):,} words where its first line tells {told[0] if told else 1:,}: cut short?"
        )
    lower = all(word == word.lower() for word in words)
    return tuple(words), torch.from_numpy(np.stack(rows)), "", lower, None
