"""`words`: one-hot, TF-IDF and Word2Vec, and why a learned vector is an average over the data.

"apple" is a fruit in some sentences and a phone maker in others. Word2Vec has one vector for both; how close it lies to
fruit depends only on the share of sentences about fruit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random

import torch

from seq2see.course.lessons.attention import Features, Matrix, to_matrix
from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.render import ATTENTION, Bars, LessonText, Library, Note, Section, Table, Try, matrix_table
from seq2see.course.lessons.training import single_thread
from seq2see.course.vectors import Word2VecConfig, WordVectors, fit_one_hot, fit_tf_idf, fit_word2vec
from seq2see.course.vectors.corpus import split_words
from seq2see.errors import UserError

WORDS = ("mat", "cat", "rat")
DOCUMENTS = (
    "An apple a day keeps the doctor away", "Apple is healthy", "Apple is better than orange", "Apple makes great phones",
)  # fmt: skip
SHARES = (0.9, 0.5, 0.1)
EMBEDDINGS: Features = {"king": (0.6, 0.1, 1.0, 0.9), "queen": (0.3, 0.2, 0.9, 1.0)}
# Two topics that share only the word in question. For each: its nouns, and the words around them.
TOPICS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "fruit": (("orange", "banana", "mango"), ("sweet", "ripe", "juice", "eat", "peel", "tree", "basket", "healthy")),
    "phone": (("phone", "laptop", "tablet"), ("screen", "battery", "camera", "call", "charge", "app", "store", "chip")),
}
AMBIGUOUS = "apple"


@dataclass(frozen=True)
class Mixture:
    """The Word2Vec vector of "apple" after training on a mixture of sentences about fruit and about phones."""

    fruit_sentences: int
    phone_sentences: int
    to_fruit: float  # mean cosine with the other fruits
    to_phones: float
    fruit_share: float  # a / (a + b) of the least-squares fit a · fruit + b · phone


@dataclass(frozen=True)
class Result:
    words: tuple[str, ...]
    one_hot: Matrix
    documents: tuple[str, ...]
    terms: tuple[str, ...]
    tf_idf: Matrix  # [terms, documents]
    most_similar: tuple[tuple[str, str, float], ...]  # pairs of words with their cosine by TF-IDF
    king_queen_cosine: float  # of the vectors in the notes
    mixtures: tuple[Mixture, ...]


def compute(
    words: Sequence[str] = WORDS, documents: Sequence[str] = DOCUMENTS, shares: Sequence[float] = SHARES,
    sentences: int = 1000, seed: int = 1,
) -> Result:  # fmt: skip
    """Fits one-hot and TF-IDF vectors on the given texts, and Word2Vec on generated sentences."""
    if not all(0 < share < 1 for share in shares) or sentences < 20:
        raise UserError(
            f"shares {list(shares)} of {sentences} sentences: shares must be between 0 and 1, sentences at least 20"
        )
    for word in words:
        if len(parts := split_words(word)) != 1:
            raise UserError(f'"{word}" is {len(parts)} words ({", ".join(parts) or "none"}): give single words')
    tf_idf = fit_tf_idf(documents)
    terms = list(tf_idf.words)
    cosines = tf_idf.similarity(terms)
    pairs = sorted(
        ((terms[i], terms[j], float(cosines[i, j])) for i, j in combinations(range(len(terms)), 2)), key=lambda p: -p[2]
    )
    return Result(
        tuple(words), to_matrix(fit_one_hot([" ".join(words)]).lookup(words)), tuple(documents), tuple(terms),
        to_matrix(tf_idf.lookup(terms)), tuple(pairs[:3]),
        float(WordVectors.from_dict(EMBEDDINGS).similarity(list(EMBEDDINGS))[0, 1]),
        tuple(_train_mixture(round(share * sentences), sentences, seed) for share in shares),
    )  # fmt: skip


def _train_mixture(fruit: int, sentences: int, seed: int) -> Mixture:
    """Trains Word2Vec on sentences in which "apple" occurs `fruit` times as a fruit, otherwise as a phone maker."""
    random, texts = Random(seed), []
    for topic, count in (("fruit", fruit), ("phone", sentences - fruit)):
        texts += [_sentence(topic, AMBIGUOUS, random) for _ in range(count)]
    for topic, (nouns, _) in TOPICS.items():  # as many about the other nouns, so they have vectors for any share
        texts += [_sentence(topic, random.choice(nouns), random) for _ in range(sentences)]
    random.shuffle(texts)
    config = Word2VecConfig(width=16, window=4, epochs=2, min_count=1, sample=0, lr=0.05, seed=seed)
    with single_thread():
        vectors = fit_word2vec(texts, config)
    cosines = [float(vectors.similarity([AMBIGUOUS], nouns).mean()) for nouns, _ in TOPICS.values()]
    axes = torch.stack([vectors.lookup(nouns).mean(0) for nouns, _ in TOPICS.values()])  # [2, width]
    a, b = torch.linalg.lstsq(axes.T, vectors[AMBIGUOUS][:, None]).solution.flatten().tolist()
    return Mixture(fruit, sentences - fruit, cosines[0], cosines[1], a / (a + b))


def _sentence(topic: str, noun: str, random: Random) -> str:
    around = random.sample(TOPICS[topic][1], 4)
    return " ".join((*around[:2], noun, *around[2:]))


def describe(result: Result) -> LessonText:
    numbers = [str(i + 1) for i in range(len(result.documents))]
    (one, other, cosine), *_ = result.most_similar
    first, last = result.mixtures[0], result.mixtures[-1]
    return LessonText(
        f'the vector of "{AMBIGUOUS}" after training on different mixtures of sentences. In some it is a fruit, in others a '
        "phone maker, but it has only one vector.",
        (
            Bars(
                f'Word2Vec: mean cosine of "{AMBIGUOUS}" to the other fruits and to the other phones',
                tuple(
                    (
                        f"{m.fruit_sentences} sentences about fruit, {m.phone_sentences} about phones",
                        (("to fruits", m.to_fruit), ("to phones", m.to_phones)),
                    )
                    for m in result.mixtures
                ),
                1.0,
            ),
        ),
        (
            f"With {first.fruit_sentences} of {first.fruit_sentences + first.phone_sentences} sentences about fruit the cosine "
            f"to the fruits is {first.to_fruit:.2f}, to the phones {first.to_phones:.2f}. With {last.fruit_sentences} it is "
            f"{last.to_fruit:.2f} and {last.to_phones:.2f}.",
        ),
        "A learned vector is an average over the data: it leans towards what most sentences are about. It is the same in every "
        "sentence. Only the sentence can tell which meaning is intended (lessons: context, senses).",
        Library(
            'from seq2see.course.vectors import fit_word2vec\nvectors = fit_word2vec(open("corpus.txt"))\n'
            'vectors.nearest("apple")                       # or: seq2see vectors nearest',
            "course/vectors/word2vec.py",
        ),
        (
            Section(
                "One-hot vectors",
                (
                    matrix_table(
                        result.one_hot, result.words, result.words, "One number per word of the vocabulary:", 0
                    ),
                    "Simple, but all words are equally far apart, and a vector is as long as the vocabulary.",
                ),
            ),
            Section(
                "TF-IDF vectors",
                (
                    Table(("", ""), tuple(zip(numbers, result.documents, strict=True)), "Documents:"),
                    matrix_table(
                        result.tf_idf,
                        result.terms,
                        numbers,
                        "TF-IDF: count in the document · ln(documents / documents with the word)",
                    ),
                    f'Words of the same documents are similar: "{one}" and "{other}" have cosine {cosine:.2f}. A word that '
                    "occurs in every document carries no information: its TF-IDF is 0.",
                ),
            ),
            Section(
                "How much of the vector is fruit",
                (
                    Table(
                        ("fruit : phone", "to fruits", "to phones", "fruit share"),
                        tuple(
                            (f"{m.fruit_sentences} : {m.phone_sentences}", m.to_fruit, m.to_phones, m.fruit_share)
                            for m in result.mixtures
                        ),
                    ),
                    "fruit share: a / (a + b), where a · fruit + b · phone is the closest fit to the vector. It moves with the "
                    "share of sentences, but is not equal to it.",
                ),
            ),
            Section(
                "King and queen",
                (
                    "Two learned vectors, (0.6, 0.1, 1, 0.9) for king and (0.3, 0.2, 0.9, 1) for queen, have cosine "
                    f"{result.king_queen_cosine:.2f}: similar words have similar vectors (lessons: similarity, directions).",
                ),
            ),
        ),
        (Try("Only one sentence in a hundred is about the fruit. Is anything of it left?", {"shares": [0.01, 0.99]}),),
        (
            Note(
                ATTENTION,
                "One-hot, TF-IDF and Word2Vec are listed; Word2Vec captures the “Average Meaning”. With 9K of 10K sentences "
                "about the fruit, apple is given as roughly [0.9, 0.1], shortly before as [0.8, 0.1]. A Word2Vec vector is not "
                "a pair of shares; it leans towards the more frequent topic by more or less than the share (above).",
            ),
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    tf_idf, one_hot = fit_tf_idf(DOCUMENTS), fit_one_hot([" ".join(WORDS)])
    mixture = _train_mixture(10, 100, seed=1)
    return (
        Exercise(
            f'Of {len(DOCUMENTS)} documents only the first contains "doctor", once. What is its TF-IDF there, '
            "1 · ln(documents / documents with the word)?",
            float(tf_idf["doctor"][0]),
            "ln(4 / 1): the rarer a word, the more its occurrence says.",
        ),
        Exercise(
            'What is the dot product of the one-hot vectors of "cat" and "rat"?',
            float(one_hot["cat"] @ one_hot["rat"]),
            "The 1s are in different places, so every product is 0: one-hot vectors know no similarity.",
        ),
        choose(
            f"{AMBIGUOUS.capitalize()} is a fruit in 10 of 100 sentences and a phone maker in 90. Is its vector nearer to "
            "orange or to laptop?",
            ("orange", "laptop"),
            {"orange": mixture.to_fruit, "laptop": mixture.to_phones}.__getitem__,
            f"Trained just now: cosine {mixture.to_phones:.2f} with the phones, {mixture.to_fruit:.2f} with the fruits.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1)
    x = range(len(result.mixtures))
    axes.bar([i - 0.2 for i in x], [m.to_fruit for m in result.mixtures], 0.4, color=ORANGE, label="to fruits")
    axes.bar([i + 0.2 for i in x], [m.to_phones for m in result.mixtures], 0.4, color=BLUE, label="to phones")
    axes.set_ylim(0, 1.25)
    axes.set_xticks(x, [f"{m.fruit_sentences} : {m.phone_sentences}" for m in result.mixtures])
    label_axes(axes, f'Word2Vec similarity of "{AMBIGUOUS}"', "sentences, fruit : phone", "mean cosine")
    save_figure(figure, path)
