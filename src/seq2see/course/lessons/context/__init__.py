"""`context`: self-attention without parameters. Each word becomes a weighted sum of the words of its sentence.

The weights are computed from the similarity of the words and normalised in two ways, by their sum and by softmax. "apple"
moves towards fruit next to an orange and towards technology next to a phone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2see.course.lessons.attention import Features, Matrix, attention, look_up, to_matrix, to_tensor
from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.render import (
    ATTENTION,
    EMBEDDINGS,
    Bars,
    LessonText,
    Library,
    Note,
    Part,
    Row,
    Section,
    Table,
    Try,
    format_vector,
    matrix_table,
)
from seq2see.course.lessons.similarity import DOCUMENT
from seq2see.errors import UserError

NAMES = ("tech", "fruit", "other")
SENTENCES = ("apple and an orange", "an apple phone")
# The notes give weights for the two banks but no vectors. The weights are theirs, the vectors ours.
BANK_SENTENCES = ("money bank grows", "river bank flows", "HDFC bank grows")
BANK: Features = {
    "money": (4, 0, 1), "HDFC": (4, 0, 0), "river": (0, 4, 1), "bank": (2, 2, 0), "grows": (2, 0, 2), "flows": (0, 2, 2),
}  # fmt: skip
BANK_NAMES = ("finance", "water", "verb")
BANK_WEIGHTS: Mapping[str, Sequence[Sequence[float]]] = {
    "money bank grows": ((0.7, 0.2, 0.1), (0.25, 0.7, 0.05), (0.1, 0.2, 0.7)),
    "river bank flows": ((0.8, 0.15, 0.05), (0.2, 0.78, 0.02), (0.4, 0.01, 0.59)),
}


@dataclass(frozen=True)
class SentenceAttention:
    """One sentence. Rows are queries, columns are keys."""

    words: tuple[str, ...]
    vectors: Matrix
    scaled: Matrix  # scores, divided by √d
    normalized: Matrix  # scores divided by their sum; NaN where it is 0
    weights: Matrix  # softmax over all words of the sentence
    related_weights: Matrix  # softmax over the words with a nonzero score only, as in the notes
    normalized_output: Matrix  # new vectors by `normalized`
    softmax_output: Matrix  # new vectors by `weights`


@dataclass(frozen=True)
class Bank:
    words: tuple[str, ...]
    given_weights: Matrix  # from the notes
    given_output: Matrix
    weights: Matrix  # by similarity
    output: Matrix


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
    table: Features = DOCUMENT, names: Sequence[str] = NAMES, sentences: Sequence[str] = SENTENCES,
    bank: Features = BANK, bank_weights: Mapping[str, Sequence[Sequence[float]]] = BANK_WEIGHTS,
    bank_sentences: Sequence[str] = BANK_SENTENCES,
) -> Result:  # fmt: skip
    """Computes every word of every sentence as a mixture of the words of its sentence."""
    banks = tuple(_bank(sentence, bank, to_tensor(rows, sentence)) for sentence, rows in bank_weights.items())
    attended = tuple(_attend(sentence, table) for sentence in sentences)
    opposites, near_opposites = (_attend("x y", {"x": (1, 0), "y": (y, 0)}) for y in (-1, -0.5))
    return Result(
        attended, _feature_names(names, table), banks, _feature_names(BANK_NAMES, bank),
        tuple(_attend(sentence, bank) for sentence in bank_sentences), opposites, near_opposites,
    )  # fmt: skip


def _feature_names(names: Sequence[str], table: Features) -> tuple[str, ...]:
    """Returns one name per feature, numbering those without one."""
    width = len(next(iter(table.values()), ()))
    return (*names[:width], *(str(i + 1) for i in range(len(names), width)))


def _attend(sentence: str, table: Features) -> SentenceAttention:
    words, x = look_up(sentence, table)
    steps = attention(x, x, x)
    scaled = to_tensor(steps.scaled)
    total = scaled.sum(-1, keepdim=True)
    normalized = scaled / total.where(total.abs() > 1e-12, math.nan)
    return SentenceAttention(
        words, to_matrix(x), steps.scaled, to_matrix(normalized), steps.weights, to_matrix(_related_weights(x, scaled)),
        to_matrix(normalized @ x), steps.output,
    )  # fmt: skip


def _related_weights(x: Tensor, scaled: Tensor) -> Tensor:
    """Computes the softmax over nonzero scores only."""
    weights = x.new_zeros(len(x), len(x))
    for i, row in enumerate(scaled):
        nonzero = row.nonzero().flatten()
        if len(nonzero):
            weights[i, nonzero] = to_tensor(attention(x[i : i + 1], x[nonzero], x[nonzero]).weights)[0]
    return weights


def _bank(sentence: str, features: Features, given_weights: Tensor) -> Bank:
    words, x = look_up(sentence, features)
    if given_weights.shape != (len(x), len(x)):
        raise UserError(
            f'the weights of "{sentence}" are {len(given_weights)} × {given_weights.shape[1]}, but it has {len(x)} words: '
            "each word needs a row and a column"
        )
    steps = attention(x, x, x)
    return Bank(words, to_matrix(given_weights), to_matrix(given_weights @ x), steps.weights, steps.output)


def describe(result: Result) -> LessonText:
    word = _shared_word(result.sentences)
    groups, moves = [], []
    for each in result.sentences:
        i = each.words.index(word) if word in each.words else 0
        groups.append(
            (f'{each.words[i]} in "{" ".join(each.words)}"', tuple(zip(each.words, each.weights[i], strict=True)))
        )
        moves.append(
            (" ".join(each.words), each.words[i], format_vector(each.vectors[i]), format_vector(each.softmax_output[i]))
        )
    return LessonText(
        "the weights of the same word in each sentence. It becomes a mixture of the words of its sentence, and the "
        "more similar a neighbour is, the larger its share.",
        (Bars("Weights: softmax of the similarities", tuple(groups), 1.0),),
        (
            Table(
                ("sentence", "word", "before", "after"),
                tuple(moves),
                f"The vector ({', '.join(result.names)}) before and after mixing",
            ),
        ),
        f'Nothing is learned here, yet "{word}" has a vector of its own in every sentence. What is missing: the same words '
        "always get the same weights, whatever the task (lesson: qkv).",
        Library(
            "from seq2see.course.lessons.attention import attention\n"
            "attention(x, x, x).output                      # softmax(x xᵀ / √d) x",
            "model/attention.py",
        ),
        (
            *(_weights_section(each, result.names) for each in result.sentences),
            _positive_section(result.opposites, result.near_opposites),
            _bank_section(result),
        ),
        (
            Try("Give apple less fruit, (4, 1, 0): where does it go?", {"table": {**DOCUMENT, "apple": (4, 1, 0)}}),
            Try("Your own sentence from the words of the table.", {"sentences": "phone and orange"}),
        ),
        _notes(),
    )


def _shared_word(sentences: Sequence[SentenceAttention]) -> str:
    """The word that occurs in most sentences; of several, the one that moves most."""
    words = list(dict.fromkeys(word for each in sentences for word in each.words))

    def movement(word: str) -> tuple[int, float]:
        found = [(each, each.words.index(word)) for each in sentences if word in each.words]
        return len(found), sum(
            sum((a - b) ** 2 for a, b in zip(each.vectors[i], each.softmax_output[i], strict=True)) for each, i in found
        )

    return max(words, key=movement)


def _weights_section(each: SentenceAttention, names: Sequence[str]) -> Section:
    rows: list[Row] = []
    kinds = (
        ("score", each.scaled),
        ("sum", each.normalized),
        ("related", each.related_weights),
        ("softmax", each.weights),
    )
    for i, word in enumerate(each.words):
        rows += [(word if n == 0 else "", name, *matrix[i]) for n, (name, matrix) in enumerate(kinds)]
    vectors = tuple(
        (
            word,
            format_vector(each.vectors[i]),
            _mixture(each.normalized_output[i]),
            format_vector(each.softmax_output[i]),
        )
        for i, word in enumerate(each.words)
    )
    parts: list[Part] = [
        Table(
            ("", "", *each.words), tuple(rows), "score: x · y / √d. The others make the scores of a row add to 1:", 3
        ),
        "sum: scores divided by their sum. related: softmax over the words with a nonzero score only. softmax: over all words, "
        "as in a Transformer, where a score of 0 still counts e⁰ = 1.",
        Table(("", "before", "sum", "softmax"), vectors, f"Vectors ({', '.join(names)}), mixed by sum or by softmax"),
    ]
    undefined = [word for word, row in zip(each.words, each.normalized, strict=True) if math.isnan(row[0])]
    if undefined:
        parts.append(
            f"The scores of {', '.join(undefined)} add to 0, so dividing by their sum is impossible (–); the softmax exists."
        )
    elif any(weight < 0 for row in each.normalized for weight in row):
        parts.append("Some weights by sum are negative: they add to 1, but a negative share is no mixture.")
    return Section(f'All weights of "{" ".join(each.words)}"', tuple(parts))


def _mixture(numbers: Sequence[float]) -> str:
    return "–" if any(math.isnan(number) for number in numbers) else format_vector(numbers)


def _positive_section(opposites: SentenceAttention, near: SentenceAttention) -> Section:
    rows: list[Row] = []
    for each in (opposites, near):
        for name, row in (("score", each.scaled[0]), ("sum", each.normalized[0]), ("softmax", each.weights[0])):
            label = f"x {format_vector(each.vectors[0])}, y {format_vector(each.vectors[1])}" if name == "score" else ""
            rows.append((label, name, *row))
    return Section(
        "Why the coefficients must be positive",
        (
            Table(("", "", "x", "y"), tuple(rows), "The weights of x, for two words that point apart:", 3),
            "The scores of x may be negative. If they cancel, their sum is 0 and (1x − 1y) / (1 − 1) does not exist. If they "
            f"nearly cancel, the shares become {near.normalized[0][0]:.0f} and {near.normalized[0][1]:.0f}".replace(
                "-", "−"
            )
            + ": they add to 1, but are no shares. e^score is always positive and never adds to 0, and it keeps the order of "
            "the scores. That is why attention uses it.",
        ),
    )


def _bank_section(result: Result) -> Section:
    parts: list[Part] = []
    for bank in result.banks:
        i = bank.words.index("bank") if "bank" in bank.words else 0
        parts += [
            matrix_table(
                bank.given_weights, bank.words, bank.words, f'"{" ".join(bank.words)}": weights given by hand'
            ),
            f'"{bank.words[i]}" becomes ({", ".join(result.bank_names)}) {format_vector(bank.given_output[i])} with these '
            f"weights, and {format_vector(bank.output[i])} with weights by similarity.",
        ]
    rows = []
    for each in result.bank_sentences:
        i = each.words.index("bank") if "bank" in each.words else 0
        rows.append((" ".join(each.words), format_vector(each.vectors[i]), format_vector(each.softmax_output[i])))
    parts.append(
        Table(
            ("", "bank alone", "bank in the sentence"), tuple(rows),
            "Weights by similarity. A bank's name does for bank what money does:",
        )
    )  # fmt: skip
    return Section("Money bank, river bank, HDFC bank", tuple(parts))


def _notes() -> tuple[Note, ...]:
    fruit, phone = (_attend(sentence, DOCUMENT) for sentence in SENTENCES)

    def shares(sentence: SentenceAttention, word: str, first: str, second: str) -> str:
        row = sentence.related_weights[sentence.words.index(word)]
        return f"{row[sentence.words.index(first)]:.3f} and {row[sentence.words.index(second)]:.3f}"

    apple = fruit.normalized[0]
    return (
        Note(
            EMBEDDINGS,
            f'"Orange ⇒ 0.57 apple + 0.43 orange" is the line of apple ({apple[0]:.2f} and {apple[3]:.2f}), not of orange.',
        ),
        Note(
            EMBEDDINGS,
            f'With the exponential, apple is given as "0.55 Apple + 0.45 Orange", but e^4.62 and e^3.46 give '
            f'{shares(fruit, "apple", "apple", "orange")}; orange, given as "0.44 apple + 0.56 Orange", is '
            f"{shares(fruit, 'orange', 'apple', 'orange')}.",
        ),
        Note(
            EMBEDDINGS,
            f'In "an apple phone", apple has the same score for apple and phone: {shares(phone, "apple", "apple", "phone")}, '
            f'not "0.43 phone + 0.57 Apple"; phone is {shares(phone, "phone", "apple", "phone")} of apple and phone, not 0.43 '
            "and 0.57.",
        ),
        Note(
            ATTENTION,
            'bank is first "0.2 Money + 0.7 Bank + 0.1 grows" and "0.5 river + 0.4 bank + 0.1 flows", then, in the full '
            f"tables, {format_vector(BANK_WEIGHTS['money bank grows'][1])} and "
            f"{format_vector(BANK_WEIGHTS['river bank flows'][1])}. Both are examples, not computed; no vectors are "
            "given, so those above are ours.",
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    both = _attend("phone and orange", DOCUMENT)
    table: Features = {"tea": (3, 0), "milk": (1, 0)}
    tea = _attend("tea milk", table)
    return (
        Exercise(
            "tea scores tea and milk with 3 and 1. Divided by their sum, what is the weight of tea?",
            tea.normalized[0][0],
            "3 / (3 + 1). (Dividing both scores by √d first changes nothing here.)",
        ),
        choose(
            'In "phone and orange" no two words have a feature in common. Which word has the largest weight for phone?',
            both.words,
            lambda word: both.weights[0][both.words.index(word)],
            "Its own score is 16 / √3, all others are 0: phone stays almost itself.",
        ),
        Exercise(
            "Two words score 0 and 0. What weight does the softmax give each?",
            float(attention(to_tensor([[0.0]]), to_tensor([[1.0], [2.0]]), to_tensor([[1.0], [2.0]])).weights[0][0]),
            "e⁰ = 1 for both: 1 / 2. A score of 0 is not a weight of 0.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    """Plots the first two features, with an arrow from the old to the new vector of each word."""
    if len(result.names) < 2:
        raise UserError("the figure shows two features, but the table has 1: add a second number to every word")
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
