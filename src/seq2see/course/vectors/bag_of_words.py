"""Word vectors by counting: one-hot, where all words are equally far apart, and TF-IDF, where words that occur in the same
documents are similar. Both are sparse tensors.
"""

from collections.abc import Iterable

import torch

from seq2see.course.vectors.corpus import read_corpus
from seq2see.course.vectors.files import sparse_matrix
from seq2see.course.vectors.word_vectors import WordVectors


def fit_one_hot(documents: Iterable[str], min_count: int = 1, lowercase: bool = True) -> WordVectors:
    """Gives word i a 1 at index i and 0 elsewhere."""
    corpus = read_corpus(documents, min_count, lowercase)
    size = len(corpus.words)
    index = torch.arange(size)
    matrix = sparse_matrix(torch.stack([index, index]), torch.ones(size), (size, size))
    return WordVectors(corpus.words, matrix, "one-hot", lowercase, corpus.counts)


def fit_tf_idf(documents: Iterable[str], min_count: int = 1, lowercase: bool = True) -> WordVectors:
    """Gives each word one number per document: its count there × ln(documents / documents that contain it)."""
    corpus = read_corpus(documents, min_count, lowercase)
    size = len(corpus.words), corpus.document_count
    cells, counts = (corpus.ids.long() * size[1] + corpus.document_ids).unique(return_counts=True)  # sorted by row
    rows, columns = cells // size[1], cells % size[1]
    idf = (size[1] / rows.bincount().double()).log()  # [words]
    values = (counts * idf[rows]).float()
    matrix = sparse_matrix(torch.stack([rows, columns]), values, size)
    return WordVectors(corpus.words, matrix, "tf-idf", lowercase, corpus.counts)
