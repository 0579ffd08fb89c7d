"""`Vectors`: words and their vectors, and the questions that such a table answers.

What is near a word; king − man + woman; how far a word lies in a direction such as that from singular to plural. The table
is dense, as learned ones are, or sparse, as counted ones are; words are looked up in the case in which the text was read.
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
from seq2see.similarity import Measure, similarities


class Near(NamedTuple):
    word: str
    score: float


@dataclass(frozen=True)
class Analogy:
    """The words nearest to a − b + c, of which a, b and c are none, and where the expected answer stands."""

    best: list[Near]
    given: dict[str, int]  # the rank, from 1, that a, b and c would have if they could be answers
    answer: str = ""
    rank: int = 0  # of the answer among all other words; 0 where none was expected
    score: float = 0.0


@dataclass(frozen=True)
class Direction:
    """The mean of first − second over pairs of words, such as cats − cat, and how well it foretells."""

    vector: Tensor  # [width]
    right: int  # pairs whose first word lies further along the mean of the other pairs than their second
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Vectors:
    words: tuple[str, ...]
    matrix: Tensor  # [words, width], also sparse
    method: str = ""
    lower: bool = False
    counts: Tensor | None = None  # [words], in the text

    def __post_init__(self) -> None:
        if len(self.words) != len(self.matrix):
            raise UserError(f"{len(self.words):,} words but {len(self.matrix):,} vectors: they must be as many")

    @classmethod
    def of(cls, rows: Mapping[str, Sequence[float]]) -> Self:
        """From a table written by hand: `Vectors.of({"cherry": (1, 4), "orange": (0, 3)})`."""
        return cls(tuple(rows), torch.tensor([list(row) for row in rows.values()], dtype=torch.float32))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """A file of ours, or one in word2vec's text format."""
        from seq2see.course.vectors.files import load

        return cls(*load(Path(path)))

    def save(self, path: Path | str) -> None:
        """As .safetensors, or in word2vec's text format where the name ends in .txt or .vec."""
        from seq2see.course.vectors.files import save

        save(self, Path(path))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self._spelled(word) in self._places

    def __getitem__(self, word: str) -> Tensor:
        return self.rows([word])[0]

    @property
    def width(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def _lengths(self) -> Tensor:
        if not self.matrix.is_sparse:
            return self.matrix.norm(dim=1)
        squares = self.matrix.values().square()
        return torch.zeros(len(self)).index_add_(0, self.matrix.indices()[0], squares).sqrt()

    def _spelled(self, word: str) -> str:
        return word.lower() if self.lower else word

    def place(self, word: str) -> int:
        """The row of a word; an error names the known words that are spelled most like it."""
        found = self._places.get(self._spelled(word))
        if found is not None:
            return found
        alike = get_close_matches(self._spelled(word), self.words, n=3)
        hint = f"did you mean {' or '.join(alike)}?" if alike else "and none is spelled like it"
        raise UserError(f'"{word}" is not among the {len(self):,} words that have a vector: {hint}')

    def rows(self, words: Iterable[str]) -> Tensor:
        """[n, width], dense."""
        rows = self.matrix.index_select(0, torch.tensor([self.place(word) for word in words]))
        return rows.to_dense() if rows.is_sparse else rows

    def similarity(
        self, rows: Sequence[str], columns: Sequence[str] | None = None, measure: Measure = "cosine"
    ) -> Tensor:
        """The table of all rows against all columns, or against themselves."""
        left = self.rows(rows)
        return similarities(left, left if columns is None else self.rows(columns), measure)

    def cosines(self, vector: Tensor) -> Tensor:
        """Of a vector [width] with every word: [words]."""
        lengths = self._lengths * vector.norm()
        return torch.where(lengths > 0, self.matrix @ vector / lengths, 0.0)

    def near(self, word: str | Tensor, count: int = 10) -> list[Near]:
        """The words most like a word, which itself is none of them, or like a vector; by cosine."""
        if isinstance(word, Tensor):
            return self._best(self.cosines(word), count)
        scores = self.cosines(self[word])
        scores[self.place(word)] = -torch.inf
        return self._best(scores, count)

    def _best(self, scores: Tensor, count: int) -> list[Near]:
        scores, places = scores.topk(min(count, int(scores.isfinite().sum())))
        return [Near(self.words[i], score) for i, score in zip(places.tolist(), scores.tolist(), strict=True)]

    def analogy(self, a: str, b: str, c: str, answer: str = "", count: int = 10) -> Analogy:
        """king − man + woman, in vectors of length 1: where is queen?"""
        rows = self.rows([a, b, c])
        one, minus, plus = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
        scores = self.cosines(one - minus + plus)
        given = {word: 1 + int((scores > scores[self.place(word)]).sum()) for word in (a, b, c)}
        scores[[self.place(word) for word in (a, b, c)]] = -torch.inf
        best = self._best(scores, count)
        if not answer:
            return Analogy(best, given)
        score = scores[self.place(answer)]
        if not score.isfinite():
            raise UserError(f'"{answer}" is one of the three words given, which no answer may be')
        return Analogy(best, given, answer, 1 + int((scores > score).sum()), float(score))

    def direction(self, pairs: Sequence[tuple[str, str]]) -> Direction:
        """From singular to plural, say: the pairs are (cats, cat), (dogs, dog) …"""
        if not pairs:
            raise UserError("a direction needs at least one pair of words, such as cats:cat")
        steps = self.rows(first for first, _ in pairs) - self.rows(second for _, second in pairs)  # [pairs, width]
        others = steps.sum(0) - steps  # [pairs, width]: without the pair itself
        right = int(((steps * others).sum(1) > 0).sum())
        return Direction(steps.mean(0), right, tuple(pairs))

    def along(self, words: Sequence[str], direction: Tensor) -> Tensor:
        """How far each word lies in a direction [width]: the dot product with the direction made 1 long. [words]"""
        return self.rows(words) @ (direction / direction.norm().clamp(min=1e-12))

    def principal(self, words: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The words on the two axes along which they differ most, [n, 2], and the share of their spread on each, [2]."""
        rows = self.rows(words)
        centred = rows - rows.mean(0)
        axes, spread, _ = torch.linalg.svd(centred, full_matrices=False)
        if len(spread) < 2:
            raise UserError(f"two axes want at least two words and two dimensions, not {tuple(rows.shape)}")
        shares = spread.square() / spread.square().sum().clamp(min=1e-12)
        return axes[:, :2] * spread[:2], shares[:2]
