"""`directions`: differences of vectors that mean something. king − man + woman, how plural a word is, leaders and countries.

On vectors that somebody brings (`vectors=FILE`, ours or word2vec's text format) or, without any, on Word2Vec of the built-in
corpus, trained now: a small text of everyday sentences, whose vectors know families and plurals, and hardly a king.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2see.course.lessons.pictures import WITH, WITHOUT, label, panels, save
from seq2see.course.lessons.render import Grid, Row, Story
from seq2see.course.lessons.training import before_each_step
from seq2see.course.vectors import Vectors, Word2Vec, fit_word2vec
from seq2see.errors import UserError

CLAIM = (
    'directions carry meaning. The notes: E(queen) ≈ E(king) + E(woman) − E(man), leaders and countries likewise, and "you '
    'can find how plural a word is" by a dot product with the direction from singular to plural.'
)
ANALOGIES = (
    ("king", "man", "woman", "queen"), ("father", "man", "woman", "mother"), ("brother", "boy", "girl", "sister"),
    ("cats", "cat", "dog", "dogs"), ("hitler", "germany", "italy", "mussolini"), ("delhi", "india", "france", "paris"),
)  # fmt: skip
PLURALS = (
    ("dogs", "dog"), ("books", "book"), ("girls", "girl"), ("friends", "friend"), ("doctors", "doctor"), ("cars", "car"),
    ("apples", "apple"), ("letters", "letter"), ("houses", "house"), ("chairs", "chair"),
)  # fmt: skip
MEASURED = ("cat", "cats", "boy", "boys", "teacher", "teachers", "table", "tables", "one", "two", "many")


@dataclass(frozen=True)
class Question:
    """a − b + c: which word is nearest, and at which rank the expected answer stands."""

    a: str
    b: str
    c: str
    answer: str
    rank: int  # 0 where a word has no vector
    rank_of_a: int  # which is the rank that a itself would have, if it could be the answer
    best: tuple[tuple[str, float], ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Directions:
    about: str  # the vectors
    size: int
    width: int
    questions: tuple[Question, ...]
    pairs: tuple[tuple[str, str], ...]  # whose mean difference is the direction
    right: int  # of them lie the right way along the mean of the others
    measured: tuple[tuple[str, float], ...]  # other words, and how far they lie along it


def directions(
    vectors: Vectors | str | None = None, analogies: Sequence[Sequence[str]] = ANALOGIES,
    pairs: Sequence[Sequence[str]] = PLURALS, measured: Sequence[str] = MEASURED, sentences: int = 8000, seed: int = 1,
) -> Directions:  # fmt: skip
    """Analogies with the true rank, also where it is not 1, and words on a direction made of pairs."""
    about = "your vectors"
    if vectors is None:
        about, vectors = f"Word2Vec of {sentences:,} sentences of the built-in corpus", _trained(sentences, seed)
    elif isinstance(vectors, str):
        about, vectors = vectors, Vectors.load(vectors)
    known = [(first, second) for first, second in pairs if first in vectors and second in vectors]
    if not known:
        raise UserError(f"none of the {len(pairs)} pairs has both its words among the {len(vectors):,} vectors")
    direction = vectors.direction(known)
    shown = [word for word in measured if word in vectors]
    along = vectors.along(shown, direction.vector).tolist()
    return Directions(
        about, len(vectors), vectors.width, tuple(_question(vectors, each) for each in analogies), tuple(known),
        direction.right, tuple(zip(shown, along, strict=True)),
    )  # fmt: skip


def _trained(sentences: int, seed: int) -> Vectors:
    from seq2see.course.grammar import sample

    texts = [pair.source for pair in sample(pairs=sentences, seed=seed).train]
    may_go_on = before_each_step.get()
    settings = Word2Vec(width=50, window=2, epochs=20, min_count=3, seed=seed)
    return fit_word2vec(texts, settings, progress=lambda _: may_go_on())


def _question(vectors: Vectors, words: Sequence[str]) -> Question:
    if len(words) != 4:
        raise UserError(f"an analogy of {len(words)} words: four are wanted, king man woman queen")
    a, b, c, answer = words
    missing = tuple(word for word in words if word not in vectors)
    if missing:
        return Question(a, b, c, answer, 0, 0, (), missing)
    found = vectors.analogy(a, b, c, answer, count=3)
    best = tuple((near.word, near.score) for near in found.best)
    return Question(a, b, c, answer, found.rank, found.given[a], best, ())


def story(result: Directions) -> Story:
    rows: list[Row] = []
    for q in result.questions:
        sum_of = f"{q.a} − {q.b} + {q.c}"
        if q.missing:
            rows.append((sum_of, q.answer, "–", f"no vector of {', '.join(q.missing)}"))
        else:
            rows.append((sum_of, q.answer, q.rank, ", ".join(f"{word} {score:.2f}" for word, score in q.best)))
    plural = sorted(result.measured, key=lambda each: -each[1])
    first = [q for q in result.questions if q.rank == 1]
    asked = [q for q in result.questions if q.rank]
    return Story(
        CLAIM,
        (
            f"{result.about}: {result.size:,} words of {result.width} numbers.",
            Grid(("", "expected", "rank", "nearest, with their cosines"), tuple(rows)),
            f"The plural direction: the mean of {', '.join(f'{a} − {b}' for a, b in result.pairs[:3])} … "
            f"({len(result.pairs)} pairs). {result.right} of them lie the right way along the mean of the others. Other words:",
            Grid(("", "how plural"), tuple(plural)),
        ),
        f"{len(first)} of {len(asked)} answers come first; the rank tells how far off the others are, out of {result.size:,}. "
        "A word has to be frequent for its vector to know what it is, as king and queen are in a larger text. "
        "(seq2see vectors fit makes such vectors, --set vectors=FILE takes them.)",
        (
            "≈ does not say that the sum lands on queen: the three words given are not counted as answers. If they were, the "
            f"first of the three would be the nearest word in {sum(q.rank_of_a == 1 for q in asked)} of these {len(asked)}.",
        ),
    )  # fmt: skip


def draw(result: Directions, path: Path | str) -> None:
    figure, (axes,) = panels(1)
    ordered = sorted(result.measured, key=lambda each: each[1])
    at, heights = range(len(ordered)), [height for _, height in ordered]
    axes.barh(at, heights, color=[WITH if height > 0 else WITHOUT for height in heights])
    axes.set_yticks(at, [word for word, _ in ordered], fontsize=8)
    label(axes, "How plural a word is", "along the plural direction", "", legend=False)
    save(figure, path)
