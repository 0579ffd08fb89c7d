"""`context`: self-attention without parameters. Each word becomes a weighted sum of the words of its sentence.

The weights are computed from the similarity of the words and normalised in two ways, by their sum and by softmax. "apple"
moves towards fruit next to an orange and towards technology next to a phone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.similarity import DOCUMENT

NAMES = ("tech", "fruit", "other")
SENTENCES = ("apple and an orange", "an apple phone")
# The notes give weights for the two banks but no vectors. The weights are theirs, the vectors ours.
BANK_SENTENCES = ("money bank grows", "river bank flows", "HDFC bank grows")
BANK: kit.Features = {
    "money": (4, 0, 1),
    "HDFC": (4, 0, 0),
    "river": (0, 4, 1),
    "bank": (2, 2, 0),
    "grows": (2, 0, 2),
    "flows": (0, 2, 2),
}
BANK_NAMES = ("finance", "water", "verb")
BANK_WEIGHTS: Mapping[str, Sequence[Sequence[float]]] = {
    "money bank grows": ((0.7, 0.2, 0.1), (0.25, 0.7, 0.05), (0.1, 0.2, 0.7)),
    "river bank flows": ((0.8, 0.15, 0.05), (0.2, 0.78, 0.02), (0.4, 0.01, 0.59)),
}


@dataclass(frozen=True)
class SentenceAttention:
    """One sentence. Rows are queries, columns are keys."""

    words: tuple[str, ...]
    vectors: kit.Matrix
    scaled: kit.Matrix  # scores, divided by √d
    normalized: kit.Matrix  # scores divided by their sum; NaN where it is 0
    weights: kit.Matrix  # softmax over all words of the sentence
    related_weights: kit.Matrix  # softmax over the words with a nonzero score only, as in the notes
    normalized_output: kit.Matrix  # new vectors by `normalized`
    softmax_output: kit.Matrix  # new vectors by `weights`


@dataclass(frozen=True)
class Bank:
    words: tuple[str, ...]
    given_weights: kit.Matrix  # from the notes
    given_output: kit.Matrix
    weights: kit.Matrix  # by similarity
    output: kit.Matrix


@dataclass(frozen=True)
class Result:
    sentences: tuple[SentenceAttention, ...]
    names: tuple[str, ...]  # of the features
    banks: tuple[Bank, ...]
    bank_names: tuple[str, ...]
    bank_sentences: tuple[SentenceAttention, ...]  # with weights by similarity
    opposites: SentenceAttention  # two words whose scores add to 0
    near_opposites: SentenceAttention  # and two whose scores nearly do


def compute(
    table: kit.Features = DOCUMENT,
    names: Sequence[str] = NAMES,
    sentences: Sequence[str] = SENTENCES,
    bank: kit.Features = BANK,
    bank_weights: Mapping[str, Sequence[Sequence[float]]] = BANK_WEIGHTS,
    bank_sentences: Sequence[str] = BANK_SENTENCES,
) -> Result:
    """Computes every word of every sentence as a mixture of the words of its sentence."""
    banks = tuple(_bank(sentence, bank, kit.to_tensor(rows, sentence)) for sentence, rows in bank_weights.items())
    attended = tuple(_attend(sentence, table) for sentence in sentences)
    opposites, near_opposites = (_attend("x y", {"x": (1, 0), "y": (y, 0)}) for y in (-1, -0.5))
    return Result(
        attended,
        _feature_names(names, table),
        banks,
        _feature_names(BANK_NAMES, bank),
        tuple(_attend(sentence, bank) for sentence in bank_sentences),
        opposites,
        near_opposites,
    )


def _feature_names(names: Sequence[str], table: kit.Features) -> tuple[str, ...]:
    """Returns one name per feature, numbering those without one."""
    width = len(next(iter(table.values()), ()))
    return (*names[:width], *(str(i + 1) for i in range(len(names), width)))


def _attend(sentence: str, table: kit.Features) -> SentenceAttention:
    words, x = kit.look_up(sentence, table)
    steps = kit.attention(x, x, x)
    scaled = kit.to_tensor(steps.scaled)
    total = scaled.sum(-1, keepdim=True)
    normalized = scaled / total.where(total.abs() > 1e-12, math.nan)
    return SentenceAttention(
        words, kit.to_matrix(x), steps.scaled, kit.to_matrix(normalized), steps.weights,
        kit.to_matrix(_related_weights(x, scaled)), kit.to_matrix(normalized @ x), steps.output,
    )  # fmt: skip


def _related_weights(x: Tensor, scaled: Tensor) -> Tensor:
    """Computes the softmax over nonzero scores only."""
    weights = x.new_zeros(len(x), len(x))
    for i, row in enumerate(scaled):
        nonzero = row.nonzero().flatten()
        if len(nonzero):
            weights[i, nonzero] = kit.to_tensor(kit.attention(x[i : i + 1], x[nonzero], x[nonzero]).weights)[0]
    return weights


def _bank(sentence: str, features: kit.Features, given_weights: Tensor) -> Bank:
    words, x = kit.look_up(sentence, features)
    if given_weights.shape != (len(x), len(x)):
        raise kit.UserError(
            f'the weights of "{sentence}" are {len(given_weights)} × {given_weights.shape[1]}, but it has {len(x)} words: '
            "each word needs a row and a column"
        )
    steps = kit.attention(x, x, x)
    return Bank(words, kit.to_matrix(given_weights), kit.to_matrix(given_weights @ x), steps.weights, steps.output)


def values(result: Result) -> kit.Values:
    word = _shared_word(result.sentences)
    shown = [(each, _index(word, each.words)) for each in result.sentences]
    return {
        "word": word,
        "weights": [
            (f'{each.words[i]} in "{" ".join(each.words)}"', list(zip(each.words, each.weights[i], strict=True)))
            for each, i in shown
        ],
        "moves": [
            (
                " ".join(each.words),
                each.words[i],
                kit.format_vector(each.vectors[i]),
                kit.format_vector(each.softmax_output[i]),
            )
            for each, i in shown
        ],
        "sections": [_section(each) for each in result.sentences],
        "positive_rows": [
            (label, name, *row)
            for each in (result.opposites, result.near_opposites)
            for label, name, row in (
                (
                    f"x {kit.format_vector(each.vectors[0])}, y {kit.format_vector(each.vectors[1])}",
                    "score",
                    each.scaled[0],
                ),
                ("", "sum", each.normalized[0]),
                ("", "softmax", each.weights[0]),
            )
        ],
        "bank_index": [_index("bank", each.words) for each in result.banks],
        "bank_rows": [
            (" ".join(each.words), kit.format_vector(each.vectors[i]), kit.format_vector(each.softmax_output[i]))
            for each in result.bank_sentences
            for i in [_index("bank", each.words)]
        ],
        **_notes(),
    }


def _shared_word(sentences: Sequence[SentenceAttention]) -> str:
    """The word that occurs in most sentences; of several, the one that moves most."""
    words = list(dict.fromkeys(word for each in sentences for word in each.words))

    def movement(word: str) -> tuple[int, float]:
        found = [(each, each.words.index(word)) for each in sentences if word in each.words]
        return len(found), sum(
            sum((a - b) ** 2 for a, b in zip(each.vectors[i], each.softmax_output[i], strict=True)) for each, i in found
        )

    return max(words, key=movement)


def _index(word: str, words: Sequence[str]) -> int:
    """Where the word stands, or else the first."""
    return words.index(word) if word in words else 0


def _section(each: SentenceAttention) -> kit.Values:
    """All weights of one sentence, and the vectors that they make."""
    kinds = {"score": each.scaled, "sum": each.normalized, "related": each.related_weights, "softmax": each.weights}
    outputs = zip(each.words, each.vectors, each.normalized_output, each.softmax_output, strict=True)
    return {
        "words": each.words,
        "weights": [
            (word if name == "score" else "", name, *matrix[i])
            for i, word in enumerate(each.words)
            for name, matrix in kinds.items()
        ],
        "vectors": [
            (word, *("–" if math.isnan(sum(vector)) else kit.format_vector(vector) for vector in vectors))
            for word, *vectors in outputs
        ],
        "undefined": [word for word, row in zip(each.words, each.normalized, strict=True) if math.isnan(row[0])],
        "has_negative": any(weight < 0 for row in each.normalized for weight in row),
    }


def _notes() -> kit.Values:
    fruit, phone = (_attend(sentence, DOCUMENT) for sentence in SENTENCES)

    def shares(sentence: SentenceAttention, word: str, first: str, second: str) -> str:
        row = sentence.related_weights[sentence.words.index(word)]
        return f"{row[sentence.words.index(first)]:.3f} and {row[sentence.words.index(second)]:.3f}"

    return {
        "notes_sum": fruit.normalized[0],
        "notes_apple": shares(fruit, "apple", "apple", "orange"),
        "notes_orange": shares(fruit, "orange", "apple", "orange"),
        "notes_apple_phone": shares(phone, "apple", "apple", "phone"),
        "notes_phone": shares(phone, "phone", "apple", "phone"),
    }


def answers() -> kit.Values:
    both, tea = _attend("phone and orange", DOCUMENT), _attend("tea milk", {"tea": (3, 0), "milk": (1, 0)})
    zero = kit.attention(kit.to_tensor([[0.0]]), kit.to_tensor([[1.0], [2.0]]), kit.to_tensor([[1.0], [2.0]]))
    return {
        "tea": tea.normalized[0][0],
        "words": both.words,
        "largest": both.words[max(range(len(both.words)), key=both.weights[0].__getitem__)],
        "zero": float(zero.weights[0][0]),
    }


def draw(result: Result, path: Path | str) -> None:
    """Plots the first two features, with an arrow from the old to the new vector of each word."""
    if len(result.names) < 2:
        raise kit.UserError("the figure shows two features, but the table has 1: add a second number to every word")
    figure, axes = subplots(len(result.sentences))
    for ax, each in zip(axes, result.sentences, strict=True):
        for i in range(len(each.words)):
            old, normalized, new = (
                (matrix[i][0], matrix[i][1]) for matrix in (each.vectors, each.normalized_output, each.softmax_output)
            )
            for end, colour, style in ((normalized, ORANGE, ":"), (new, BLUE, "-")):
                if math.isnan(end[0]):
                    continue
                arrow = {"arrowstyle": "->", "color": colour, "linestyle": style, "linewidth": 1.6}
                ax.annotate("", end, old, arrowprops=arrow)
            ax.plot(*old, "o", color="black", markersize=4)
        for point in dict.fromkeys((x, y) for x, y, *_ in each.vectors):
            here = dict.fromkeys(w for w, (x, y, *_) in zip(each.words, each.vectors, strict=True) if (x, y) == point)
            ax.annotate(", ".join(here), point, (5, 5), textcoords="offset points", fontsize=9)
        ax.plot([], [], ":", color=ORANGE, label="divided by the sum")
        ax.plot([], [], "-", color=BLUE, label="softmax")
        ax.margins(0.2)
        label_axes(ax, " ".join(each.words), result.names[0], result.names[1])
    save_figure(figure, path)
