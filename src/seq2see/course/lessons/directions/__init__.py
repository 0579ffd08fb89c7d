"""`directions`: differences of word vectors that carry meaning: king − man + woman, plurals, leaders and countries.

Uses the given vectors (`vectors=FILE`, ours or word2vec's text format), or trains Word2Vec on the built-in corpus: everyday
sentences that cover families and plurals well, but hardly mention kings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.render import (
    LANGUAGE_MODELS,
    Bars,
    LessonText,
    Library,
    Note,
    Row,
    Section,
    Table,
    Try,
    format_vector,
)
from seq2see.course.lessons.training import before_each_step, single_thread
from seq2see.course.vectors import Word2VecConfig, WordVectors, fit_word2vec
from seq2see.errors import UserError

ANALOGIES = (
    ("king", "man", "woman", "queen"), ("father", "man", "woman", "mother"), ("brother", "boy", "girl", "sister"),
    ("cats", "cat", "dog", "dogs"), ("uncle", "man", "woman", "aunt"), ("german", "germany", "india", "hindi"),
    ("hitler", "germany", "italy", "mussolini"),
)  # fmt: skip
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
    vectors: WordVectors | str | None = None, analogies: Sequence[Sequence[str]] = ANALOGIES,
    pairs: Sequence[Sequence[str]] = PLURALS, words: Sequence[str] = TEST_WORDS, sentences: int = 8000, seed: int = 1,
) -> Result:  # fmt: skip
    """Ranks the answers of analogies, and projects words on the mean difference of pairs."""
    source = "the given vectors"
    if vectors is None:
        source, vectors = f"Word2Vec on {sentences:,} sentences of the built-in corpus", _train(sentences, seed)
    elif isinstance(vectors, str):
        source, vectors = vectors, WordVectors.load(vectors)
    known_pairs = [(first, second) for first, second in pairs if first in vectors and second in vectors]
    if not known_pairs:
        raise UserError(f"none of the {len(pairs)} pairs has both words among the {len(vectors):,} vectors")
    direction = vectors.direction(known_pairs)
    known_words = [word for word in words if word in vectors]
    projections = vectors.project(known_words, direction.vector).tolist()
    return Result(
        source, len(vectors), vectors.width, tuple(_rank(vectors, each) for each in analogies), tuple(known_pairs),
        direction.leave_one_out_correct, tuple(zip(known_words, projections, strict=True)),
    )  # fmt: skip


def _train(sentences: int, seed: int) -> WordVectors:
    from seq2see.course.sample_corpus import load_corpus

    texts = [pair.source for pair in load_corpus().train[:sentences]]
    check_cancelled = before_each_step.get()
    config = Word2VecConfig(width=50, window=2, epochs=20, min_count=3, seed=seed)
    with single_thread():
        return fit_word2vec(texts, config, progress=lambda _: check_cancelled())


def _rank(vectors: WordVectors, words: Sequence[str]) -> AnalogyRank:
    if len(words) != 4:
        raise UserError(f"an analogy has four words, such as king man woman queen, not {len(words)}")
    a, b, c, answer = words
    missing = tuple(word for word in words if word not in vectors)
    if missing:
        return AnalogyRank(a, b, c, answer, 0, 0, (), missing)
    analogy = vectors.analogy(a, b, c, answer, count=3)
    best = tuple((neighbor.word, neighbor.score) for neighbor in analogy.best)
    return AnalogyRank(a, b, c, answer, analogy.rank, analogy.input_ranks[a], best, ())


def describe(result: Result) -> LessonText:
    rows: list[Row] = []
    for each in result.analogies:
        formula = f"{each.a} − {each.b} + {each.c}"
        if each.missing:
            rows.append((formula, each.answer, "–", f"no vector for {', '.join(each.missing)}"))
        else:
            nearest = ", ".join(f"{word} {score:.2f}" for word, score in each.best)
            rows.append((formula, each.answer, each.rank, nearest))
    answered = [each for each in result.analogies if each.rank]
    missing = [each for each in result.analogies if each.missing]
    first = sum(each.rank == 1 for each in answered)
    near = sum(each.rank <= 5 for each in answered)
    projections = sorted(result.projections, key=lambda each: -each[1])
    return LessonText(
        "words on one direction, from singular to plural. It is the mean difference of "
        f"{', '.join(f'{a} − {b}' for a, b in result.pairs[:3])} and {max(0, len(result.pairs) - 3)} more pairs; the "
        "words below took no part in it.",
        (Bars("How plural is a word? Dot product with the direction", (("", tuple(projections)),)),),
        (
            Table(
                ("", "expected", "rank", "nearest words, with cosines"),
                tuple(rows),
                f"Analogies, ranked among {result.vocab_size:,} words:",
            ),
        ),
        f"Of {len(answered)} expected words, {first} in first place and {near} among the first five. "
        + _verdict(result)
        + (f" {len(missing)} could not be asked: the text does not contain all of their words." if missing else ""),
        Library(
            'vectors.analogy("king", "man", "woman", "queen").rank\n'
            'vectors.project(["cats"], vectors.direction([("dogs", "dog")]).vector)\n'
            "# or: seq2see vectors analogy vectors king man woman",
            "course/vectors/word_vectors.py",
        ),
        (
            Section(
                "Do the pairs agree?",
                (
                    f"{result.leave_one_out_correct} of {len(result.pairs)} pairs point the right way along the mean of the "
                    "others"
                    + (
                        ": the direction is not one pair's accident."
                        if result.leave_one_out_correct >= 0.8 * len(result.pairs)
                        else ": these pairs do not share one direction."
                    ),
                    f"Vectors: {result.source}, {result.vocab_size:,} words of {result.width} numbers.",
                ),
            ),
            Section(
                "What ≈ hides",
                (
                    "The nearest word to king − man + woman is usually king itself. The three words of the question "
                    "are therefore excluded. Otherwise the first of them would win "
                    f"{sum(each.rank_of_a == 1 for each in answered)} of these {len(answered)} questions.",
                ),
            ),
        ),
        (
            Try(
                "Ask your own: a − b + c, and the word you expect.",
                {"analogies": [["sons", "son", "daughter", "daughters"]]},
            ),
            Try("Use vectors of a larger text, where kings are not rare.", options="--data FILE"),
        ),
        (
            Note(
                LANGUAGE_MODELS,
                "E(queen) ≈ E(king) + E(woman) − E(man), the same for leaders and countries (Hitler, Germany, Italy, "
                "Mussolini), and “you can find how plural a word is” by a dot product. The built-in text names neither leader, "
                "and kings only a few times; what it holds is ranked above, also where it fails.",
            ),
        ),
    )


def _verdict(result: Result) -> str:
    """Says whether the projections separate the plurals from the singulars of the test words."""
    values = dict(result.projections)
    pairs = [(word, f"{word}s") for word in values if f"{word}s" in values]
    right = sum(values[plural] > values[word] for word, plural in pairs)
    if not pairs:
        return "A direction is only as good as the text behind it."
    return (
        f"Along the plural direction {right} of {len(pairs)} plurals lie beyond their singulars. A word must be frequent to "
        "get a good vector."
    )


def exercises() -> tuple[Exercise, ...]:
    toy = WordVectors.from_dict({"man": (1, 0), "woman": (1, 2), "king": (4, 0), "queen": (4, 2), "apple": (0, 5)})
    answer = toy["king"] - toy["man"] + toy["woman"]
    best = toy.analogy("king", "man", "woman", count=1).best[0].word
    direction = toy["woman"] - toy["man"]
    return (
        Exercise(
            "man is (1, 0), woman (1, 2), king (4, 0). What is the second number of king − man + woman?",
            float(answer[1]),
            f"0 − 0 + 2. The result is {format_vector(answer.tolist())}.",
        ),
        choose(
            "queen is (4, 2) and apple (0, 5). Which is nearest to the result, by cosine?",
            ("queen", "apple"),
            lambda word: float(word == best),
            f"queen is (4, 2), the very same vector. The library's analogy answers {best}.",
        ),
        Exercise(
            "How far does queen (4, 2) reach along the direction woman − man = (0, 2), scaled to length 1?",
            float(toy["queen"] @ direction / direction.norm()),
            "The unit direction is (0, 1): the projection is the second number.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1)
    ordered = sorted(result.projections, key=lambda each: each[1])
    y, values = range(len(ordered)), [value for _, value in ordered]
    axes.barh(y, values, color=[BLUE if value > 0 else ORANGE for value in values])
    axes.set_yticks(y, [word for word, _ in ordered], fontsize=8)
    label_axes(axes, "Words on the plural direction", "projection", "", legend=False)
    save_figure(figure, path)
