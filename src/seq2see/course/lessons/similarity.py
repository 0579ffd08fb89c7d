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
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, resolve_model
from seq2see.course.lessons.render import LessonText, Table, matrix_table
from seq2see.similarity import MEASURES, similarities

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
    pairs = Table(
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
    before, after = (f"{tables.cosine[one][other]:.2f}".replace("-", "−") for tables in (static, contextual))
    return LessonText(
        "Two words are similar if their vectors are. The notes compare them by the dot product, by the cosine (the dot "
        "product of vectors normalised to length 1) and by the dot product divided by √d, where d is the number of features.",
        (
            pairs,
            matrix_table(many.dot, many.words, many.words, "Dot products of all pairs of words of a document:", 0),
            matrix_table(many.scaled, many.words, many.words, f"Divided by √{many.width} = {root:.3f}:"),
            matrix_table(many.cosine, many.words, many.words, "Cosines:"),
            matrix_table(
                static.cosine, static.words, static.words,
                f'Cosines of a model\'s static embeddings, "{result.sentence}":',
            ),
            matrix_table(
                contextual.cosine, static.words, static.words,
                "Cosines of its contextual vectors, after attention:",
            ),
        ),
        "The dot product grows with the length of the vectors, the cosine does not: a long vector has a large dot product "
        "with many words. Scaling only changes the unit, which matters when an exponential follows (lesson: scaling). In the "
        f'model, context changes the cosine of "{static.words[one]}" and "{static.words[other]}" most, from {before} to '
        f"{after}.",
        _errata(),
    )  # fmt: skip


def _errata() -> tuple[str, ...]:
    few, many = (similarity_tables(tuple(each), to_tensor(list(each.values()))) for each in (WORDS, DOCUMENT))
    figures = ", ".join(f"{many.scaled[i][j]:.2f}" for i, j in ((0, 0), (0, 2), (1, 1), (1, 2), (3, 3)))
    return (
        f'The table of scaled products is labelled √5, but there are {many.width} features, and the printed "5.2, 3.4, 9.2, '
        f'4.6, 2.3" come from "1.7313", close to √{many.width} = {many.width**0.5:.4f}: {figures}; 3.4 is truncated.',
        "The cosine of cherry and phone uses the wrong lengths, √(1+9) · √(16+0), and that of orange and phone divides by "
        f"√(0+0). The correct cosines are {few.cosine[0][2]:.3f} and {few.cosine[1][2]:.0f}.",
    )


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(3)
    heatmap(axes[0], result.document.scaled, result.document.words, result.document.words, "Scaled dot products")
    for tables, name, ax in ((result.static, "static", axes[1]), (result.contextual, "contextual", axes[2])):
        heatmap(ax, tables.cosine, tables.words, tables.words, f"Cosines in a model: {name}", signed=True)
    save_figure(figure, path)
