"""`words`: one-hot, TF-IDF and Word2Vec, and why a learned vector is an average over the data.

"apple" is a fruit in some sentences and a phone maker in others. Word2Vec has one vector for both; how close it lies to
fruit depends only on the share of sentences about fruit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Annotated

import torch

from seq2see.course.lessons import kit
from seq2see.course.vectors import Word2VecConfig, WordVectors, fit_one_hot, fit_tf_idf, fit_word2vec
from seq2see.course.vectors.corpus import split_words

WORDS = ("mat", "cat", "rat")
DOCUMENTS = (
    "An apple a day keeps the doctor away",
    "Apple is healthy",
    "Apple is better than orange",
    "Apple makes great phones",
)
SHARES = (0.9, 0.5, 0.1)
EMBEDDINGS: kit.Features = {"king": (0.6, 0.1, 1.0, 0.9), "queen": (0.3, 0.2, 0.9, 1.0)}
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
    one_hot: kit.Matrix
    documents: tuple[str, ...]
    terms: tuple[str, ...]
    tf_idf: kit.Matrix  # [terms, documents]
    most_similar: tuple[tuple[str, str, float], ...]  # pairs of words with their cosine by TF-IDF
    king_queen_cosine: float  # of the vectors in the notes
    mixtures: tuple[Mixture, ...]


def compute(
    words: Sequence[str] = WORDS,
    documents: Sequence[str] = DOCUMENTS,
    shares: Annotated[Sequence[float], kit.Bounds(0.01, 0.99, max_items=5)] = SHARES,
    sentences: Annotated[int, kit.Bounds(20, 2000)] = 1000,
    seed: kit.Seed = 1,
) -> Result:
    """Fits one-hot and TF-IDF vectors on the given texts, and Word2Vec on generated sentences."""
    if not all(0 < share < 1 for share in shares) or sentences < 20:
        raise kit.UserError(
            f"shares {list(shares)} of {sentences} sentences: shares must be between 0 and 1, sentences at least 20"
        )
    for word in words:
        if len(parts := split_words(word)) != 1:
            raise kit.UserError(f'"{word}" is {len(parts)} words ({", ".join(parts) or "none"}): give single words')
    tf_idf = fit_tf_idf(documents)
    terms = list(tf_idf.words)
    cosines = tf_idf.similarity(terms)
    pairs = sorted(
        ((terms[i], terms[j], float(cosines[i, j])) for i, j in combinations(range(len(terms)), 2)), key=lambda p: -p[2]
    )
    return Result(
        tuple(words),
        kit.to_matrix(fit_one_hot([" ".join(words)]).lookup(words)),
        tuple(documents),
        tuple(terms),
        kit.to_matrix(tf_idf.lookup(terms)),
        tuple(pairs[:3]),
        float(WordVectors.from_dict(EMBEDDINGS).similarity(list(EMBEDDINGS))[0, 1]),
        tuple(_train_mixture(round(share * sentences), sentences, seed) for share in shares),
    )


def _train_mixture(fruit: int, sentences: int, seed: int) -> Mixture:
    """Trains Word2Vec on sentences in which "apple" occurs `fruit` times as a fruit, otherwise as a phone maker."""
    random, texts = Random(seed), []
    for topic, count in (("fruit", fruit), ("phone", sentences - fruit)):
        texts += [_sentence(topic, AMBIGUOUS, random) for _ in range(count)]
    for topic, (nouns, _) in TOPICS.items():  # as many about the other nouns, so they have vectors for any share
        texts += [_sentence(topic, random.choice(nouns), random) for _ in range(sentences)]
    random.shuffle(texts)
    config = Word2VecConfig(width=16, window=4, epochs=2, min_count=1, sample=0, lr=0.05, seed=seed)
    with kit.single_thread():
        vectors = fit_word2vec(texts, config)
    cosines = [float(vectors.similarity([AMBIGUOUS], nouns).mean()) for nouns, _ in TOPICS.values()]
    axes = torch.stack([vectors.lookup(nouns).mean(0) for nouns, _ in TOPICS.values()])  # [2, width]
    a, b = torch.linalg.lstsq(axes.T, vectors[AMBIGUOUS][:, None]).solution.flatten().tolist()
    return Mixture(fruit, sentences - fruit, cosines[0], cosines[1], a / (a + b))


def _sentence(topic: str, noun: str, random: Random) -> str:
    around = random.sample(TOPICS[topic][1], 4)
    return " ".join((*around[:2], noun, *around[2:]))


def values(result: Result) -> kit.Values:
    (one, other, cosine), *_ = result.most_similar
    return {
        "numbers": [str(i + 1) for i in range(len(result.documents))],
        "one": one,
        "other": other,
        "cosine": cosine,
    }


def answers() -> kit.Values:
    tf_idf, one_hot, mixture = fit_tf_idf(DOCUMENTS), fit_one_hot([" ".join(WORDS)]), _train_mixture(10, 100, seed=1)
    return {
        "doctor": float(tf_idf["doctor"][0]),
        "cat_rat": float(one_hot["cat"] @ one_hot["rat"]),
        "mixture": mixture,
        "nearer": "orange" if mixture.to_fruit > mixture.to_phones else "laptop",
    }
