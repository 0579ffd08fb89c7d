"""`WordVectors`: words and their vectors, with nearest neighbours, analogies and directions.

The matrix is dense for learned vectors and sparse for counted ones. Lookups ignore case if the text was lowercased.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import Tensor

from seq2see.errors import UserError
from seq2see.inspect.similarity import Measure, principal_axes, similarities


class Neighbor(NamedTuple):
    word: str
    score: float


@dataclass(frozen=True)
class Analogy:
    """The words nearest to a − b + c, excluding a, b and c, and the rank of the expected answer."""

    best: list[Neighbor]
    input_ranks: dict[str, int]  # of a, b and c if they were not excluded; 1 is the nearest
    answer: str = ""
    rank: int = 0  # of the answer among all words but a, b and c; 0 without an expected answer
    score: float = 0.0


@dataclass(frozen=True)
class Direction:
    """The mean of first − second over pairs of words, such as cats − cat, with a leave-one-out check."""

    vector: Tensor  # [width]
    leave_one_out_correct: int  # pairs whose first word projects further than the second on the mean of the other pairs
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class WordVectors:
    words: tuple[str, ...]
    matrix: Tensor  # [words, width], dense or sparse
    method: str = ""
    lowercase: bool = False
    counts: Tensor | None = None  # [words]: frequencies in the text

    def __post_init__(self) -> None:
        if len(self.words) != len(self.matrix):
            raise UserError(f"{len(self.words):,} words but {len(self.matrix):,} vectors: the numbers must be equal")

    @classmethod
    def from_dict(cls, vectors: Mapping[str, Sequence[float]]) -> Self:
        """Creates vectors from literals: `WordVectors.from_dict({"cherry": (1, 4), "orange": (0, 3)})`."""
        return cls(tuple(vectors), torch.tensor([list(vector) for vector in vectors.values()], dtype=torch.float32))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Loads a .safetensors file written by `save`, or a file in word2vec's text format."""
        from seq2see.course.vectors.files import load

        return cls(*load(Path(path)))

    def save(self, path: Path | str) -> None:
        """Saves as .safetensors, or in word2vec's text format if the name ends in .txt or .vec."""
        from seq2see.course.vectors.files import save

        save(self, Path(path))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self._normalize(word) in self._indices

    def __getitem__(self, word: str) -> Tensor:
        return self.lookup([word])[0]

    @property
    def width(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def _norms(self) -> Tensor:
        if not self.matrix.is_sparse:
            return self.matrix.norm(dim=1)
        squares = self.matrix.values().square()
        return torch.zeros(len(self)).index_add_(0, self.matrix.indices()[0], squares).sqrt()

    def _normalize(self, word: str) -> str:
        return word.lower() if self.lowercase else word

    def index(self, word: str) -> int:
        """Returns the row of a word; an error suggests known words with a similar spelling."""
        index = self._indices.get(self._normalize(word))
        if index is not None:
            return index
        similar = get_close_matches(self._normalize(word), self.words, n=3)
        hint = f"did you mean {' or '.join(similar)}?" if similar else "no known word has a similar spelling"
        raise UserError(f'"{word}" is not among the {len(self):,} words with a vector: {hint}')

    def lookup(self, words: Iterable[str]) -> Tensor:
        """Returns the vectors of words, [n, width], dense."""
        rows = self.matrix.index_select(0, torch.tensor([self.index(word) for word in words], dtype=torch.int64))
        return rows.to_dense() if rows.is_sparse else rows

    def similarity(
        self, rows: Sequence[str], columns: Sequence[str] | None = None, measure: Measure = "cosine"
    ) -> Tensor:
        """Compares all row words with all column words, or with each other if no columns are given."""
        left = self.lookup(rows)
        return similarities(left, left if columns is None else self.lookup(columns), measure)

    def cosines(self, vector: Tensor) -> Tensor:
        """Computes the cosine of a vector [width] with every word, [words]."""
        norms = self._norms * vector.norm()
        return torch.where(norms > 0, self.matrix @ vector / norms, 0.0)

    def nearest(self, word: str | Tensor, count: int = 10) -> list[Neighbor]:
        """Returns the words most similar to a word, excluding itself, or to a vector; by cosine."""
        if isinstance(word, Tensor):
            return self._top(self.cosines(word), count)
        scores = self.cosines(self[word])
        scores[self.index(word)] = -torch.inf
        return self._top(scores, count)

    def _top(self, scores: Tensor, count: int) -> list[Neighbor]:
        scores, indices = scores.topk(min(count, int(scores.isfinite().sum())))
        return [Neighbor(self.words[i], score) for i, score in zip(indices.tolist(), scores.tolist(), strict=True)]

    def analogy(self, a: str, b: str, c: str, answer: str = "", count: int = 10) -> Analogy:
        """Ranks words by their cosine to a − b + c, with vectors normalised to length 1."""
        vectors = self.lookup([a, b, c])
        unit_a, unit_b, unit_c = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)
        scores = self.cosines(unit_a - unit_b + unit_c)
        input_ranks = {word: 1 + int((scores > scores[self.index(word)]).sum()) for word in (a, b, c)}
        scores[[self.index(word) for word in (a, b, c)]] = -torch.inf
        best = self._top(scores, count)
        if not answer:
            return Analogy(best, input_ranks)
        score = scores[self.index(answer)]
        if not score.isfinite():
            raise UserError(f'"{answer}" is one of the three input words, which are excluded as answers')
        return Analogy(best, input_ranks, answer, 1 + int((scores > score).sum()), float(score))

    def direction(self, pairs: Sequence[tuple[str, str]]) -> Direction:
        """Averages first − second over pairs such as (cats, cat), (dogs, dog)."""
        if not pairs:
            raise UserError("a direction needs at least one pair of words, such as cats:cat")
        differences = self.lookup(first for first, _ in pairs) - self.lookup(second for _, second in pairs)
        others = differences.sum(0) - differences  # [pairs, width]: sum of all other pairs
        correct = int(((differences * others).sum(1) > 0).sum())
        return Direction(differences.mean(0), correct, tuple(pairs))

    def project(self, words: Sequence[str], direction: Tensor) -> Tensor:
        """Projects words on a direction [width]: dot products with its unit vector, [words]."""
        return self.lookup(words) @ (direction / direction.norm().clamp(min=1e-12))

    def pca(self, words: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Projects words on their two principal axes, [n, 2]; also returns the explained variance ratios, [2]."""
        vectors = self.lookup(words)
        if min(vectors.shape) < 2:
            raise UserError(f"two axes need at least two words and two dimensions, not {tuple(vectors.shape)}")
        axes = principal_axes(vectors, 2)
        return axes.project(vectors), axes.variance_ratios
