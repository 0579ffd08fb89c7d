"""`words`: one-hot, TF-IDF and Word2Vec, and why a learned vector is an average over the data.

"apple" is a fruit in some sentences and a maker of phones in others. Word2Vec has one vector for both: how much of it is
fruit follows from how many sentences were about fruit, and from nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random

import torch

from seq2see.course.lessons.pictures import WITH, WITHOUT, label, panels, save
from seq2see.course.lessons.render import Grid, Story, matrix
from seq2see.course.lessons.worked_attention import Features, Table, as_table
from seq2see.course.vectors import Vectors, Word2Vec, fit_one_hot, fit_tf_idf, fit_word2vec
from seq2see.course.vectors.word_counts import split
from seq2see.errors import UserError

WORDS = ("mat", "cat", "rat")
DOCUMENTS = (
    "An apple a day keeps the doctor away", "Apple is healthy", "Apple is better than orange", "Apple makes great phones",
)  # fmt: skip
SHARES = (0.9, 0.5, 0.1)
EMBEDDINGS: Features = {"king": (0.6, 0.1, 1.0, 0.9), "queen": (0.3, 0.2, 0.9, 1.0)}
# Two little worlds that share nothing but the word in question.
WORLDS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {  # things, and what is said of them
    "fruit": (("orange", "banana", "mango"), ("sweet", "ripe", "juice", "eat", "peel", "tree", "basket", "healthy")),
    "phone": (("phone", "laptop", "tablet"), ("screen", "battery", "camera", "call", "charge", "app", "store", "chip")),
}
ASKED = "apple"


@dataclass(frozen=True)
class Mixture:
    """What Word2Vec makes of the word after so many sentences of either kind."""

    fruit_sentences: int
    phone_sentences: int
    to_fruit: float  # mean cosine with the fruits
    to_phones: float
    share: float  # of fruit, if its vector is taken for a sum of fruit and phone: a / (a + b)


@dataclass(frozen=True)
class Words:
    words: tuple[str, ...]
    one_hot: Table
    documents: tuple[str, ...]
    terms: tuple[str, ...]
    tf_idf: Table  # [terms, documents]
    alike: tuple[tuple[str, str, float], ...]  # pairs of words, and their cosine by TF-IDF
    notes_cosine: float  # of the notes' king and queen
    mixtures: tuple[Mixture, ...]


def words(
    words: Sequence[str] = WORDS, documents: Sequence[str] = DOCUMENTS, shares: Sequence[float] = SHARES,
    sentences: int = 1000, seed: int = 1,
) -> Words:  # fmt: skip
    """Counted vectors of a few words and documents, and learned ones of sentences made for the purpose."""
    if not all(0 < share < 1 for share in shares) or sentences < 20:
        raise UserError(f"shares {list(shares)} of {sentences} sentences: between 0 and 1, of 20 at least")
    for each in words:
        if len(found := split(each)) != 1:
            raise UserError(f'"{each}" is {len(found)} words, {" and ".join(found) or "none"}: give one at a time')
    counted = fit_tf_idf(documents)
    terms = list(counted.words[:8])  # the most frequent
    cosines = counted.similarity(terms)
    pairs = sorted(
        ((terms[i], terms[j], float(cosines[i, j])) for i, j in combinations(range(len(terms)), 2)), key=lambda p: -p[2]
    )
    return Words(
        tuple(words), as_table(fit_one_hot([" ".join(words)]).rows(words)), tuple(documents), tuple(terms),
        as_table(counted.rows(terms)), tuple(pairs[:3]),
        float(Vectors.of(EMBEDDINGS).similarity(list(EMBEDDINGS))[0, 1]),
        tuple(_mixture(round(share * sentences), sentences, seed) for share in shares),
    )  # fmt: skip


def _mixture(fruit: int, sentences: int, seed: int) -> Mixture:
    """Word2Vec of sentences of which so many have apple among the fruits."""
    random, made = Random(seed), []
    for kind, count in (("fruit", fruit), ("phone", sentences - fruit)):
        made += [_sentence(kind, ASKED, random) for _ in range(count)]
    for kind, (things, _) in WORLDS.items():  # and as many about the others, so that they have vectors in any case
        made += [_sentence(kind, random.choice(things), random) for _ in range(sentences)]
    random.shuffle(made)
    vectors = fit_word2vec(made, Word2Vec(width=16, window=4, epochs=2, min_count=1, sample=0, lr=0.05, seed=seed))
    near = [float(vectors.similarity([ASKED], things).mean()) for things, _ in WORLDS.values()]
    axes = torch.stack([vectors.rows(things).mean(0) for things, _ in WORLDS.values()])  # [2, width]
    a, b = torch.linalg.lstsq(axes.T, vectors[ASKED][:, None]).solution.flatten().tolist()
    return Mixture(fruit, sentences - fruit, near[0], near[1], a / (a + b))


def _sentence(kind: str, thing: str, random: Random) -> str:
    said = random.sample(WORLDS[kind][1], 4)
    return " ".join((*said[:2], thing, *said[2:]))


def story(result: Words) -> Story:
    numbers = [str(i + 1) for i in range(len(result.documents))]
    (one, other, near), *_ = result.alike
    mixtures = Grid(
        ("fruit : phone", "to fruits", "to phones", "share of fruit"),
        tuple(
            (f"{m.fruit_sentences} : {m.phone_sentences}", m.to_fruit, m.to_phones, m.share) for m in result.mixtures
        ),
        f'Word2Vec of sentences about fruit and about phones, both with "{ASKED}": its mean cosine to each',
    )
    return Story(
        'words to numbers. The notes: one-hot, TF-IDF, Word2Vec; the last captures the "Average Meaning" of a word, '
        '"depending on the Data set": with 9K sentences of 10K about the fruit, apple is something like [0.9, 0.1].',
        (
            matrix(result.one_hot, result.words, result.words, "One-hot: a word is a place, all are as far apart", 0),
            Grid(("", ""), tuple(zip(numbers, result.documents, strict=True)), "Documents:"),
            matrix(
                result.tf_idf, result.terms, numbers, "TF-IDF: times in the document · ln(documents / those that have it)"
            ),
            f'Words are alike that occur in the same documents: "{one}" and "{other}", cosine {near:.2f}. A word that is in '
            "all of them tells nothing and is 0.",
            mixtures,
            "share of fruit: a / (a + b), where the vector is nearest to a · fruit + b · phone. The notes' king and queen, "
            f"[0.6, 0.1, 1.0, 0.9] and [0.3, 0.2, 0.9, 1.0], have the cosine {result.notes_cosine:.2f}.",
        ),
        "the vector leans to what most sentences are about, and lies between the two where they are as many. It is the "
        "same vector in every sentence: what a sentence means by it, only the sentence can tell (lessons: context, senses).",
        (
            'the sentences are said to make [0.8, 0.1], then [0.9, 0.1], "tilted towards food". Word2Vec\'s vector is no pair '
            "of shares: it leans, by more or less than the share of sentences (above).",
        ),
    )  # fmt: skip


def draw(result: Words, path: Path | str) -> None:
    figure, (axes,) = panels(1)
    at = range(len(result.mixtures))
    axes.bar([i - 0.2 for i in at], [m.to_fruit for m in result.mixtures], 0.4, color=WITHOUT, label="to the fruits")
    axes.bar([i + 0.2 for i in at], [m.to_phones for m in result.mixtures], 0.4, color=WITH, label="to the phones")
    axes.set_ylim(0, 1.25)
    axes.set_xticks(at, [f"{m.fruit_sentences} : {m.phone_sentences}" for m in result.mixtures])
    label(axes, f'Where "{ASKED}" lies, by Word2Vec', "sentences, fruit : phone", "mean cosine")
    save(figure, path)
