"""`similarity`: how similar two words are, by dot product, cosine and scaled dot product.

First the three words with two features of the notes, then the token-by-token table of a document, then the same table from a
model's own vectors: the static embeddings, and the encoder's output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.inspect.similarity import MEASURES, similarities

WORDS: kit.Features = {"cherry": (1, 4), "orange": (0, 3), "phone": (3, 0)}
DOCUMENT: kit.Features = {
    "orange": (0, 3, 0),
    "phone": (4, 0, 0),
    "apple": (2, 2, 0),
    "and": (0, 0, 2),
    "an": (0, 0, 3),
}


@dataclass(frozen=True)
class SimilarityTables:
    """All pairs of words, by the three measures."""

    words: tuple[str, ...]
    width: int
    dot: kit.Matrix
    cosine: kit.Matrix
    scaled: kit.Matrix  # dot / √width


@dataclass(frozen=True)
class Result:
    words: SimilarityTables
    document: SimilarityTables
    sentence: str
    static: SimilarityTables  # the model's embeddings
    contextual: SimilarityTables  # the encoder's output


def compute(
    words: kit.Features = WORDS,
    document: kit.Features = DOCUMENT,
    sentence: str = "an apple phone",
    model: kit.Model | None = None,
) -> Result:
    """Compares the words of the notes, and the tokens of a sentence in a model."""
    e = kit.explain_sentence(kit.resolve_model(model), sentence)
    stack = kit.input_stack(e)
    static, contextual = (
        similarity_tables(stack.tokens, e.trace[f"{stack.name}.{name}", 0]) for name in ("embedded", "vectors")
    )
    return Result(
        similarity_tables(tuple(words), kit.to_tensor(list(words.values()), "words")),
        similarity_tables(tuple(document), kit.to_tensor(list(document.values()), "document")),
        sentence,
        static,
        contextual,
    )


def similarity_tables(words: Sequence[str], vectors: Tensor) -> SimilarityTables:
    dot, cosine, scaled = (kit.to_matrix(similarities(vectors, vectors, measure)) for measure in MEASURES)
    return SimilarityTables(tuple(words), vectors.shape[-1], dot, cosine, scaled)


def values(result: Result) -> kit.Values:
    few, static, contextual = result.words, result.static, result.contextual
    pairs = tuple(combinations(range(len(few.words)), 2))
    largest = max((abs(few.dot[i][j]) for i, j in pairs), default=1.0) or 1.0
    one, other = max(
        combinations(range(len(static.words)), 2),
        key=lambda pair: abs(static.cosine[pair[0]][pair[1]] - contextual.cosine[pair[0]][pair[1]]),
    )
    notes, table = (similarity_tables(tuple(each), kit.to_tensor(list(each.values()))) for each in (WORDS, DOCUMENT))
    return {
        "pairs": [
            (
                f"{few.words[i]} · {few.words[j]}",
                few.dot[i][j],
                few.cosine[i][j],
                few.scaled[i][j],
                few.dot[i][j] / largest,
            )
            for i, j in pairs
        ],
        "changed": (static.words[one], static.words[other]),
        "before": static.cosine[one][other],
        "after": contextual.cosine[one][other],
        "notes_cosines": (notes.cosine[0][2], notes.cosine[1][2]),
        "notes_scaled": [table.scaled[i][j] for i, j in ((0, 0), (0, 2), (1, 1), (1, 2), (3, 3))],
    }


def answers() -> kit.Values:
    vectors: kit.Features = {"kiwi": (1, 2), "lemon": (2, 4), "tablet": (4, 1)}
    found = similarity_tables(tuple(vectors), kit.to_tensor(list(vectors.values())))
    return {"dot": found.dot[0][2], "cosine": found.cosine[0][1], "scaled": 24 / 64**0.5}
