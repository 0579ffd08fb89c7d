"""`similarity`: how alike two words are, by dot product, cosine and scaled dot product.

First the notes' three words of two features, then the token-by-token table of a document, then the same table from a
model's own vectors: as they are looked up, and after the encoder has put them into context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.models import bundled, read, reader
from seq2see.course.lessons.pictures import heat, panels, save
from seq2see.course.lessons.render import Grid, Story, matrix
from seq2see.course.lessons.worked_attention import Features, Table, as_table, as_tensor
from seq2see.similarity import MEASURES, similarities

WORDS: Features = {"cherry": (1, 4), "orange": (0, 3), "phone": (3, 0)}
DOCUMENT: Features = {"orange": (0, 3, 0), "phone": (4, 0, 0), "apple": (2, 2, 0), "and": (0, 0, 2), "an": (0, 0, 3)}


@dataclass(frozen=True)
class Alike:
    """Every word against every word, by the three measures."""

    words: tuple[str, ...]
    width: int
    dot: Table
    cosine: Table
    scaled: Table  # dot / √width


@dataclass(frozen=True)
class Similarity:
    words: Alike
    document: Alike
    sentence: str
    static: Alike  # the model's own vectors, as they are looked up
    contextual: Alike  # and as the encoder leaves them


def similarity(
    words: Features = WORDS, document: Features = DOCUMENT, sentence: str = "an apple phone", model: Model | None = None
) -> Similarity:
    """The tables of the notes, and of a sentence in a model."""
    e = read(bundled(model), sentence)
    own = reader(e)
    static, contextual = (alike(own.words, e.trace[f"{own.stack}.{name}"]) for name in ("embedded", "vectors"))
    return Similarity(
        alike(tuple(words), as_tensor(list(words.values()), "words")),
        alike(tuple(document), as_tensor(list(document.values()), "document")),
        sentence,
        static,
        contextual,
    )


def alike(words: Sequence[str], vectors: Tensor) -> Alike:
    dot, cosine, scaled = (as_table(similarities(vectors, vectors, measure)) for measure in MEASURES)
    return Alike(tuple(words), vectors.shape[-1], dot, cosine, scaled)


def story(result: Similarity) -> Story:
    few, many = result.words, result.document
    pairs = Grid(
        ("", "dot", "cosine", f"dot / √{few.width}"),
        tuple(
            (f"{few.words[i]} · {few.words[j]}", few.dot[i][j], few.cosine[i][j], few.scaled[i][j])
            for i, j in combinations(range(len(few.words)), 2)
        ),
        decimals=3,
    )
    root = many.width**0.5
    static, contextual = result.static, result.contextual
    one, other = max(
        combinations(range(len(static.words)), 2),
        key=lambda pair: abs(static.cosine[pair[0]][pair[1]] - contextual.cosine[pair[0]][pair[1]]),
    )
    before, after = (f"{table.cosine[one][other]:.2f}".replace("-", "−") for table in (static, contextual))
    return Story(
        "two words are alike if their vectors are. The notes compare them by the dot product, by the cosine (the dot "
        "product of vectors made of length 1) and by the dot product divided by √d, d the number of features.",
        (
            pairs,
            matrix(many.dot, many.words, many.words, "Dot products of every word of a document with every word:", 0),
            matrix(many.scaled, many.words, many.words, f"Divided by √{many.width} = {root:.3f}:"),
            matrix(many.cosine, many.words, many.words, "Cosines:"),
            matrix(
                static.cosine, static.words, static.words,
                f'Cosines of a model\'s own vectors, "{result.sentence}", as they are looked up:',
            ),
            matrix(
                contextual.cosine, static.words, static.words,
                "And at the end, when the words have looked at each other:",
            ),
        ),
        "the dot product grows with the length of the vectors, the cosine does not: a long vector is like everything. "
        "The scaled one only changes the unit, which matters when an exponential follows (lesson: scaling). In the "
        f'model, the sentence has moved its words: "{static.words[one]}" and "{static.words[other]}" most, from '
        f"{before} to {after}.",
        _slips(),
    )  # fmt: skip


def _slips() -> tuple[str, ...]:
    few, many = (alike(tuple(each), as_tensor(list(each.values()))) for each in (WORDS, DOCUMENT))
    figures = ", ".join(f"{many.scaled[i][j]:.2f}" for i, j in ((0, 0), (0, 2), (1, 1), (1, 2), (3, 3)))
    return (
        f'the table of scaled products is written with √5, but there are {many.width} features, and "5.2, 3.4, 9.2, 4.6, '
        f'2.3" come from "1.7313", near √{many.width} = {many.width**0.5:.4f}: {figures}; 3.4 is cut, not rounded.',
        "the cosine of cherry and phone has its lengths mixed up, √(1+9) · √(16+0), and that of orange and phone divides "
        f"by √(0+0). With the words' own lengths they are {few.cosine[0][2]:.3f} and {few.cosine[1][2]:.0f}.",
    )


def draw(result: Similarity, path: Path | str) -> None:
    figure, axes = panels(3)
    heat(axes[0], result.document.scaled, result.document.words, result.document.words, "Scaled dot products")
    for each, name, side in ((result.static, "looked up", axes[1]), (result.contextual, "in context", axes[2])):
        heat(side, each.cosine, each.words, each.words, f"Cosines in a model: {name}", signed=True)
    save(figure, path)
