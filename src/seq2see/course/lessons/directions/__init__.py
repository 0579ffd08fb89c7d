"""`directions`: differences of word vectors that carry meaning: king − man + woman, plurals, leaders and countries.

Uses the given vectors (`vectors=FILE`, ours or word2vec's text format), or trains Word2Vec on the built-in corpus: everyday
sentences that cover families and plurals well, but hardly mention kings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from seq2see.course.lessons import kit
from seq2see.course.vectors import Word2VecConfig, WordVectors, fit_word2vec

ANALOGIES = (
    ("king", "man", "woman", "queen"),
    ("father", "man", "woman", "mother"),
    ("brother", "boy", "girl", "sister"),
    ("cats", "cat", "dog", "dogs"),
    ("uncle", "man", "woman", "aunt"),
    ("german", "germany", "india", "hindi"),
    ("hitler", "germany", "italy", "mussolini"),
)
PLURALS = (
    ("dogs", "dog"), ("books", "book"), ("girls", "girl"), ("friends", "friend"), ("doctors", "doctor"), ("cars", "car"),
    ("apples", "apple"), ("letters", "letter"), ("houses", "house"), ("chairs", "chair"),
)  # fmt: skip
TEST_WORDS = ("cat", "cats", "boy", "boys", "teacher", "teachers", "table", "tables", "one", "two", "many")


@dataclass(frozen=True)
class AnalogyRank:
    """The analogy a − b + c: the nearest words, and the rank of the expected answer."""

    a: str
    b: str
    c: str
    answer: str
    rank: int  # 0 if a word has no vector
    rank_of_a: int  # if the input words were allowed as answers
    best: tuple[tuple[str, float], ...]
    missing: tuple[str, ...]  # words without a vector


@dataclass(frozen=True)
class Result:
    source: str  # of the vectors
    vocab_size: int
    width: int
    analogies: tuple[AnalogyRank, ...]
    pairs: tuple[tuple[str, str], ...]  # their mean difference is the direction
    leave_one_out_correct: int  # pairs that point the right way along the mean of the others
    projections: tuple[tuple[str, float], ...]  # test words, projected on the direction


def compute(
    vectors: WordVectors | str | None = None,
    analogies: Sequence[tuple[str, str, str, str]] = ANALOGIES,
    pairs: Sequence[tuple[str, str]] = PLURALS,
    words: Sequence[str] = TEST_WORDS,
    sentences: Annotated[int, kit.Bounds(1000, 10_000)] = 8000,
    seed: kit.Seed = 1,
) -> Result:
    """Ranks the answers of analogies, and projects words on the mean difference of pairs."""
    source = "the given vectors"
    if vectors is None:
        source, vectors = f"Word2Vec on {sentences:,} sentences of the built-in corpus", _train(sentences, seed)
    elif isinstance(vectors, str):
        source, vectors = vectors, WordVectors.load(vectors)
    known_pairs = [(first, second) for first, second in pairs if first in vectors and second in vectors]
    if not known_pairs:
        raise kit.UserError(f"none of the {len(pairs)} pairs has both words among the {len(vectors):,} vectors")
    direction = vectors.direction(known_pairs)
    known_words = [word for word in words if word in vectors]
    projections = vectors.project(known_words, direction.vector).tolist()
    return Result(
        source,
        len(vectors),
        vectors.width,
        tuple(_rank(vectors, each) for each in analogies),
        tuple(known_pairs),
        direction.leave_one_out_correct,
        tuple(zip(known_words, projections, strict=True)),
    )


def _train(sentences: int, seed: int) -> WordVectors:
    from seq2see.course.sample_corpus import load_corpus

    texts = [pair.source for pair in load_corpus().train[:sentences]]
    check_cancelled = kit.before_each_step.get()
    config = Word2VecConfig(width=50, window=2, epochs=20, min_count=3, seed=seed)
    with kit.single_thread():
        return fit_word2vec(texts, config, progress=lambda _: check_cancelled())


def _rank(vectors: WordVectors, words: Sequence[str]) -> AnalogyRank:
    if len(words) != 4:
        raise kit.UserError(f"an analogy has four words, such as king man woman queen, not {len(words)}")
    a, b, c, answer = words
    missing = tuple(word for word in words if word not in vectors)
    if missing:
        return AnalogyRank(a, b, c, answer, 0, 0, (), missing)
    analogy = vectors.analogy(a, b, c, answer, count=3)
    best = tuple((neighbor.word, neighbor.score) for neighbor in analogy.best)
    return AnalogyRank(a, b, c, answer, analogy.rank, analogy.input_ranks[a], best, ())


def values(result: Result) -> kit.Values:
    answered = [each for each in result.analogies if each.rank]
    projected = dict(result.projections)
    pairs = [(word, f"{word}s") for word in projected if f"{word}s" in projected]
    return {
        "first_pairs": [f"{a} − {b}" for a, b in result.pairs[:3]],
        "more_pairs": max(0, len(result.pairs) - 3),
        "ordered": sorted(result.projections, key=lambda each: -each[1]),
        "rows": [
            (
                f"{each.a} − {each.b} + {each.c}",
                each.answer,
                "–" if each.missing else each.rank,
                f"no vector for {', '.join(each.missing)}"
                if each.missing
                else ", ".join(f"{word} {score:.2f}" for word, score in each.best),
            )
            for each in result.analogies
        ],
        "answered": len(answered),
        "missing": len(result.analogies) - len(answered),
        "first": sum(each.rank == 1 for each in answered),
        "near": sum(each.rank <= 5 for each in answered),
        "input_wins": sum(each.rank_of_a == 1 for each in answered),
        "plurals": len(pairs),
        "beyond": sum(projected[plural] > projected[word] for word, plural in pairs),
        "agree": result.leave_one_out_correct >= 0.8 * len(result.pairs),
    }


def answers() -> kit.Values:
    toy = WordVectors.from_dict({"man": (1, 0), "woman": (1, 2), "king": (4, 0), "queen": (4, 2), "apple": (0, 5)})
    vector, direction = toy["king"] - toy["man"] + toy["woman"], toy["woman"] - toy["man"]
    return {
        "vector": vector.tolist(),
        "best": toy.analogy("king", "man", "woman", count=1).best[0].word,
        "projection": float(toy["queen"] @ direction / direction.norm()),
    }
