"""`similarity`: how similar two words are, by dot product, cosine and scaled dot product.

First the three words with two features of the notes, then the token-by-token table of a document, then the same table from a
model's own vectors: the static embeddings, and the encoder's output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.attention import Features, Matrix, to_matrix, to_tensor
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, resolve_model
from seq2see.course.lessons.render import (
    EMBEDDINGS,
    Bars,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
    ViewLink,
    matrix_table,
)
from seq2see.inspect.similarity import MEASURES, similarities

WORDS: Features = {"cherry": (1, 4), "orange": (0, 3), "phone": (3, 0)}
DOCUMENT: Features = {"orange": (0, 3, 0), "phone": (4, 0, 0), "apple": (2, 2, 0), "and": (0, 0, 2), "an": (0, 0, 3)}


@dataclass(frozen=True)
class SimilarityTables:
    """All pairs of words, by the three measures."""

    words: tuple[str, ...]
    width: int
    dot: Matrix
    cosine: Matrix
    scaled: Matrix  # dot / √width


@dataclass(frozen=True)
class Result:
    words: SimilarityTables
    document: SimilarityTables
    sentence: str
    static: SimilarityTables  # the model's embeddings
    contextual: SimilarityTables  # the encoder's output


def compute(
    words: Features = WORDS, document: Features = DOCUMENT, sentence: str = "an apple phone", model: Model | None = None
) -> Result:
    """Compares the words of the notes, and the tokens of a sentence in a model."""
    e = explain_sentence(resolve_model(model), sentence)
    stack = input_stack(e)
    static, contextual = (
        similarity_tables(stack.tokens, e.trace[f"{stack.name}.{name}"]) for name in ("embedded", "vectors")
    )
    return Result(
        similarity_tables(tuple(words), to_tensor(list(words.values()), "words")),
        similarity_tables(tuple(document), to_tensor(list(document.values()), "document")),
        sentence,
        static,
        contextual,
    )


def similarity_tables(words: Sequence[str], vectors: Tensor) -> SimilarityTables:
    dot, cosine, scaled = (to_matrix(similarities(vectors, vectors, measure)) for measure in MEASURES)
    return SimilarityTables(tuple(words), vectors.shape[-1], dot, cosine, scaled)


def describe(result: Result) -> LessonText:
    few, many = result.words, result.document
    pairs = tuple(combinations(range(len(few.words)), 2))
    root = many.width**0.5
    static, contextual = result.static, result.contextual
    one, other = max(
        combinations(range(len(static.words)), 2),
        key=lambda pair: abs(static.cosine[pair[0]][pair[1]] - contextual.cosine[pair[0]][pair[1]]),
    )
    before, after = (f"{tables.cosine[one][other]:.2f}".replace("-", "−") for tables in (static, contextual))
    return LessonText(
        "each pair of words, measured in two ways. The dot product grows with the length of the vectors; the cosine only asks "
        "whether they point the same way.",
        (
            Bars(
                "Similarity of each pair",
                (
                    ("cosine", tuple((_pair(few, i, j), few.cosine[i][j]) for i, j in pairs)),
                    (
                        "dot product / largest",
                        tuple((_pair(few, i, j), few.dot[i][j] / _largest(few.dot)) for i, j in pairs),
                    ),
                ),
                1.0,
            ),
        ),
        (
            Table(
                ("", "dot", "cosine", f"dot / √{few.width}"),
                tuple((_pair(few, i, j), few.dot[i][j], few.cosine[i][j], few.scaled[i][j]) for i, j in pairs),
                "dot: multiply number by number and add. cosine: divided by both lengths. scaled: divided by √d",
                3,
            ),
        ),
        "The dot product is large for similar words, and for long vectors. The cosine is 1 for the same direction and 0 for "
        "nothing in common. Dividing by √d only changes the unit, which matters once an exponential follows (lesson: scaling).",
        Library(
            'from seq2see.inspect.similarity import similarities\nsimilarities(vectors, vectors, "cosine")   # "dot", "scaled"',
            "inspect/similarity.py",
            (ViewLink("the vectors of this sentence", "walk", {"text": result.sentence}),),
        ),
        (
            Section(
                "Every word of a document against every other",
                (
                    matrix_table(many.dot, many.words, many.words, "Dot products:", 0),
                    matrix_table(many.scaled, many.words, many.words, f"Divided by √{many.width} = {root:.3f}:"),
                    matrix_table(many.cosine, many.words, many.words, "Cosines:"),
                ),
            ),
            Section(
                "The same table from a model's vectors",
                (
                    matrix_table(
                        static.cosine,
                        static.words,
                        static.words,
                        f'"{result.sentence}": cosines of the static embeddings, before attention',
                    ),
                    matrix_table(contextual.cosine, static.words, static.words, "and of the vectors after all layers:"),
                    f'The sentence changes the cosine of "{static.words[one]}" and "{static.words[other]}" most, from {before} '
                    f"to {after}.",
                ),
            ),
        ),
        (
            Try("Make cherry twice as long: which measure changes?", {"words": {**WORDS, "cherry": (2, 8)}}),
            Try("Compare the words of a sentence of your own.", {"sentence": "We are friends"}),
        ),
        _notes(),
    )


def _pair(tables: SimilarityTables, i: int, j: int) -> str:
    return f"{tables.words[i]} · {tables.words[j]}"


def _largest(matrix: Matrix) -> float:
    return max((abs(x) for i, row in enumerate(matrix) for j, x in enumerate(row) if i != j), default=1.0) or 1.0


def _notes() -> tuple[Note, ...]:
    few, many = (similarity_tables(tuple(each), to_tensor(list(each.values()))) for each in (WORDS, DOCUMENT))
    figures = ", ".join(f"{many.scaled[i][j]:.2f}" for i, j in ((0, 0), (0, 2), (1, 1), (1, 2), (3, 3)))
    return (
        Note(
            EMBEDDINGS,
            f'The table of scaled products is labelled √5, but there are {many.width} features, and the printed "5.2, 3.4, '
            f'9.2, 4.6, 2.3" come from "1.7313", close to √{many.width} = {many.width**0.5:.4f}: {figures}; 3.4 is truncated.',
        ),
        Note(
            EMBEDDINGS,
            "The cosine of cherry and phone uses the wrong lengths, √(1+9) · √(16+0), and that of orange and phone divides by "
            f"√(0+0). The correct cosines are {few.cosine[0][2]:.3f} and {few.cosine[1][2]:.0f}.",
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    vectors: Features = {"kiwi": (1, 2), "lemon": (2, 4), "tablet": (4, 1)}
    found = similarity_tables(tuple(vectors), to_tensor(list(vectors.values())))
    return (
        Exercise(
            "kiwi is (1, 2) and tablet (4, 1). What is their dot product?",
            found.dot[0][2],
            "1 · 4 + 2 · 1.",
            tolerance=0.001,
        ),
        Exercise(
            "lemon is (2, 4), twice kiwi. What is the cosine of kiwi and lemon?",
            found.cosine[0][1],
            "They point the same way; the cosine ignores the length.",
        ),
        Exercise(
            "Two vectors of 64 numbers have the dot product 24. What is their scaled dot product, divided by √d?",
            24 / 64**0.5,
            "√64 is 8.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(3)
    heatmap(axes[0], result.document.scaled, result.document.words, result.document.words, "Scaled dot products")
    for tables, name, ax in ((result.static, "static", axes[1]), (result.contextual, "contextual", axes[2])):
        heatmap(ax, tables.cosine, tables.words, tables.words, f"Cosines in a model: {name}", signed=True)
    save_figure(figure, path)
