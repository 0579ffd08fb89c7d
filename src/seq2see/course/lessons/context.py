"""`context`: self-attention without parameters. Each word becomes a weighted sum of the words of its sentence.

The weights are computed from the similarity of the words and normalised in two ways, by their sum and by softmax. "apple"
moves towards fruit next to an orange and towards technology next to a phone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2see.course.lessons.attention import Features, Matrix, attention, look_up, to_matrix, to_tensor
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.render import LessonText, Row, Table, matrix_table
from seq2see.course.lessons.similarity import DOCUMENT
from seq2see.errors import UserError

NAMES = ("tech", "fruit", "other")
SENTENCES = ("apple and an orange", "an apple phone")
# The notes give weights for the two banks but no vectors. The weights are theirs, the vectors ours.
BANK: Features = {"money": (4, 0, 1), "river": (0, 4, 1), "bank": (2, 2, 0), "grows": (2, 0, 2), "flows": (0, 2, 2)}
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
    normalized: Matrix  # scores divided by their sum
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


def compute(
    table: Features = DOCUMENT, names: Sequence[str] = NAMES, sentences: Sequence[str] = SENTENCES,
    bank: Features = BANK, bank_weights: Mapping[str, Sequence[Sequence[float]]] = BANK_WEIGHTS,
) -> Result:  # fmt: skip
    """Computes every word of every sentence as a mixture of the words of its sentence."""
    banks = tuple(_bank(sentence, bank, to_tensor(rows, sentence)) for sentence, rows in bank_weights.items())
    attended = tuple(_attend(sentence, table) for sentence in sentences)
    return Result(attended, _feature_names(names, table), banks, _feature_names(BANK_NAMES, bank))


def _feature_names(names: Sequence[str], table: Features) -> tuple[str, ...]:
    """Returns one name per feature, numbering those without one."""
    width = len(next(iter(table.values()), ()))
    return (*names[:width], *(str(i + 1) for i in range(len(names), width)))


def _attend(sentence: str, table: Features) -> SentenceAttention:
    words, x = look_up(sentence, table)
    steps = attention(x, x, x)
    scaled = to_tensor(steps.scaled)
    total = scaled.sum(-1, keepdim=True)
    normalized = scaled / total.where(total != 0, 1)
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
    body: list[str | Table] = []
    for each in result.sentences:
        rows: list[Row] = []
        for i, word in enumerate(each.words):
            kinds = (
                ("score", each.scaled),
                ("sum", each.normalized),
                ("related", each.related_weights),
                ("softmax", each.weights),
            )
            rows += [(word if n == 0 else "", name, *matrix[i]) for n, (name, matrix) in enumerate(kinds)]
        body.append(Table(("", "", *each.words), tuple(rows), f'"{" ".join(each.words)}": weights of the words', 3))
        vectors = tuple(
            (word, _vector(each.vectors[i]), _vector(each.normalized_output[i]), _vector(each.softmax_output[i]))
            for i, word in enumerate(each.words)
        )
        caption = f"Vectors ({', '.join(result.names)}) before, and after weighting by sum or softmax"
        body.append(Table(("", "before", "sum", "softmax"), vectors, caption))
    for bank in result.banks:
        body.append(matrix_table(bank.given_weights, bank.words, bank.words, "Weights given in the notes:"))
        i = bank.words.index("bank") if "bank" in bank.words else 0
        body.append(
            f'"{bank.words[i]}" in "{" ".join(bank.words)}" becomes ({", ".join(result.bank_names)}) '
            f"{_vector(bank.given_output[i])} with these weights, and {_vector(bank.output[i])} with weights by similarity. "
            "The notes give no vectors; these are ours (change them with --set bank=…)."
        )
    return LessonText(
        'Each word becomes a sum of the words of its sentence, weighted by similarity. The notes: "I want coefficients to '
        'add 1". sum: scores divided by their sum. related: softmax over the words with a nonzero score, as in the notes. '
        "softmax: over all words, as in a Transformer, where a score of 0 still contributes e⁰.",
        tuple(body),
        'Nothing is learned here: the same words always get the same weights. "apple" moves towards the word next to it, '
        "and softmax favours the larger score far more than dividing by the sum does.",
        _errata(),
    )


def _errata() -> tuple[str, ...]:
    fruit, phone = (_attend(sentence, DOCUMENT) for sentence in SENTENCES)

    def shares(sentence: SentenceAttention, word: str, first: str, second: str) -> str:
        row = sentence.related_weights[sentence.words.index(word)]
        return f"{row[sentence.words.index(first)]:.3f} and {row[sentence.words.index(second)]:.3f}"

    apple = fruit.normalized[0]
    return (
        f'"Orange ⇒ 0.57 apple + 0.43 orange" is the line of apple ({apple[0]:.2f} and {apple[3]:.2f}), not of orange.',
        f'With the exponential, apple is given as "0.55 Apple + 0.45 Orange", but e^4.62 and e^3.46 give '
        f'{shares(fruit, "apple", "apple", "orange")}; orange, given as "0.44 apple + 0.56 Orange", is '
        f"{shares(fruit, 'orange', 'apple', 'orange')}.",
        f'In "an apple phone", apple has the same score for apple and phone: {shares(phone, "apple", "apple", "phone")}, not '
        f'"0.43 phone + 0.57 Apple"; phone is {shares(phone, "phone", "apple", "phone")} of apple and phone, not 0.43 and '
        "0.57.",
        'bank is first "0.2 Money + 0.7 Bank + 0.1 grows" and "0.5 river + 0.4 bank + 0.1 flows", then, in the full '
        f"tables, {_vector(BANK_WEIGHTS['money bank grows'][1])} and {_vector(BANK_WEIGHTS['river bank flows'][1])}. Both are "
        "examples; neither is computed.",
    )


def _vector(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(f"{number:.2f}".rstrip("0").rstrip(".") for number in numbers) + ")"


def draw(result: Result, path: Path | str) -> None:
    """Plots the first two features, with an arrow from the old to the new vector of each word."""
    if len(result.names) < 2:
        raise UserError("the figure shows two features, but the table has 1: add a second number to every word")
    figure, axes = subplots(len(result.sentences))
    for ax, each in zip(axes, result.sentences, strict=True):
        for i, word in enumerate(each.words):
            old, normalized, new = (
                (matrix[i][0], matrix[i][1]) for matrix in (each.vectors, each.normalized_output, each.softmax_output)
            )
            for end, colour, style in ((normalized, ORANGE, ":"), (new, BLUE, "-")):
                arrow = {"arrowstyle": "->", "color": colour, "linestyle": style, "linewidth": 1.6}
                ax.annotate("", end, old, arrowprops=arrow)
            ax.plot(*old, "o", color="black", markersize=4)
            ax.annotate(word, old, (5, 5), textcoords="offset points", fontsize=9)
        ax.plot([], [], ":", color=ORANGE, label="divided by the sum")
        ax.plot([], [], "-", color=BLUE, label="softmax")
        ax.margins(0.2)
        label_axes(ax, " ".join(each.words), result.names[0], result.names[1])
    save_figure(figure, path)
