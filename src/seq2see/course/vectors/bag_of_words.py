"""The two ways to vectors that need no learning: one-hot, where every word is as far from every other, and TF-IDF, where
words are alike that occur in the same documents. Both are sparse: nearly all numbers are zero, and only the others are kept.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from seq2see.course.vectors.table import Vectors
from seq2see.course.vectors.word_counts import read


def fit_one_hot(
    documents: Iterable[str], min_count: int = 1, lower: bool = True, progress: Callable[[int], object] = lambda _: None
) -> Vectors:
    """Word i is 1 at place i and 0 elsewhere."""
    text = read(documents, min_count, lower, progress)
    size = len(text.words)
    place = torch.arange(size)
    matrix = _sparse(place, place, torch.ones(size), (size, size))
    return Vectors(text.words, matrix, "one-hot", lower, text.counts)


def fit_tf_idf(
    documents: Iterable[str], min_count: int = 1, lower: bool = True, progress: Callable[[int], object] = lambda _: None
) -> Vectors:
    """A row a word, a column a document: how often the word is in it × ln(documents / documents that have the word)."""
    text = read(documents, min_count, lower, progress)
    size = len(text.words), text.document_count
    cells, times = (text.ids.long() * size[1] + text.documents).unique(return_counts=True)  # sorted, row by row
    rows, columns = cells // size[1], cells % size[1]
    rarity = (size[1] / rows.bincount().double()).log()  # [words]
    values = (times * rarity[rows]).float()
    matrix = _sparse(rows, columns, values, size)
    return Vectors(text.words, matrix, "tf-idf", lower, text.counts)


def _sparse(rows: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, size, is_coalesced=True, check_invariants=True)
