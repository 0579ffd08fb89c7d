"""`context`: self-attention with no parameters. Each word becomes a weighted sum of the words of its sentence.

The weights come from the words' own likeness and are made to add to 1 in two ways, by plain normalising and by the
exponential. So "apple" moves towards fruit beside an orange and towards technology beside a phone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2see.course.lessons.measures import DOCUMENT
from seq2see.course.lessons.pictures import WITH, WITHOUT, label, panels, save
from seq2see.course.lessons.render import Grid, Row, Story, matrix
from seq2see.course.lessons.worked_attention import Features, Table, as_table, as_tensor, attention, vectors_of
from seq2see.errors import UserError

NAMES = ("tech", "fruit", "other")
SENTENCES = ("apple and an orange", "an apple phone")
# The notes give the weights of the two banks and no vectors. The vectors are ours; the weights, the notes' full tables.
BANK: Features = {"money": (4, 0, 1), "river": (0, 4, 1), "bank": (2, 2, 0), "grows": (2, 0, 2), "flows": (0, 2, 2)}
BANK_NAMES = ("finance", "water", "verb")
BANK_WEIGHTS: Mapping[str, Sequence[Sequence[float]]] = {
    "money bank grows": ((0.7, 0.2, 0.1), (0.25, 0.7, 0.05), (0.1, 0.2, 0.7)),
    "river bank flows": ((0.8, 0.15, 0.05), (0.2, 0.78, 0.02), (0.4, 0.01, 0.59)),
}


@dataclass(frozen=True)
class Context:
    """One sentence: a row looks, a column is looked at."""

    words: tuple[str, ...]
    vectors: Table
    scaled: Table  # the scores, divided by √d
    normalised: Table  # scores over their sum
    weights: Table  # softmax over all words of the sentence
    related: Table  # softmax over those alone that the word has something in common with, as the notes have it
    plain: Table  # new vectors by plain normalising
    moved: Table  # new vectors by softmax


@dataclass(frozen=True)
class Bank:
    words: tuple[str, ...]
    given: Table  # the notes' weights
    moved_as_given: Table
    weights: Table  # what likeness makes of the vectors
    moved: Table


@dataclass(frozen=True)
class Contexts:
    sentences: tuple[Context, ...]
    names: tuple[str, ...]  # of the features
    banks: tuple[Bank, ...]
    bank_names: tuple[str, ...]


def context(
    table: Features = DOCUMENT, names: Sequence[str] = NAMES, sentences: Sequence[str] = SENTENCES,
    bank: Features = BANK, bank_weights: Mapping[str, Sequence[Sequence[float]]] = BANK_WEIGHTS,
) -> Contexts:  # fmt: skip
    """Every word of every sentence as a mixture of its words."""
    banks = tuple(_bank(sentence, bank, as_tensor(rows, sentence)) for sentence, rows in bank_weights.items())
    found = tuple(_context(each, table) for each in sentences)
    return Contexts(found, _names(names, table), banks, _names(BANK_NAMES, bank))


def _names(names: Sequence[str], table: Features) -> tuple[str, ...]:
    """One for each feature: a number where no name is left."""
    width = len(next(iter(table.values()), ()))
    return (*names[:width], *(str(i + 1) for i in range(len(names), width)))


def _context(sentence: str, table: Features) -> Context:
    words, x = vectors_of(sentence, table)
    steps = attention(x, x, x)
    scaled = as_tensor(steps.scaled)
    total = scaled.sum(-1, keepdim=True)
    normalised = scaled / total.where(total != 0, 1)
    return Context(
        words, as_table(x), steps.scaled, as_table(normalised), steps.weights, as_table(_related(x, scaled)),
        as_table(normalised @ x), steps.output,
    )  # fmt: skip


def _related(x: Tensor, scaled: Tensor) -> Tensor:
    """Softmax that leaves out what scores 0."""
    weights = x.new_zeros(len(x), len(x))
    for i, row in enumerate(scaled):
        chosen = row.nonzero().flatten()
        if len(chosen):
            weights[i, chosen] = as_tensor(attention(x[i : i + 1], x[chosen], x[chosen]).weights)[0]
    return weights


def _bank(sentence: str, features: Features, given: Tensor) -> Bank:
    words, x = vectors_of(sentence, features)
    if given.shape != (len(x), len(x)):
        raise UserError(
            f'the weights of "{sentence}" are {len(given)} × {given.shape[1]}, but it has {len(x)} words: each needs a row '
            "and a column"
        )
    steps = attention(x, x, x)
    return Bank(words, as_table(given), as_table(given @ x), steps.weights, steps.output)


def story(result: Contexts) -> Story:
    parts: list[str | Grid] = []
    for each in result.sentences:
        rows: list[Row] = []
        for i, word in enumerate(each.words):
            ways = (("", each.scaled), ("plain", each.normalised), ("softmax", each.related), ("of all", each.weights))
            rows += [(word if not name else "", name or "score", *numbers[i]) for name, numbers in ways]
        parts.append(Grid(("", "", *each.words), tuple(rows), f'"{" ".join(each.words)}": how much of each word', 3))
        vectors = tuple(
            (word, _vector(each.vectors[i]), _vector(each.plain[i]), _vector(each.moved[i]))
            for i, word in enumerate(each.words)
        )
        parts.append(
            Grid(("", "vector", "plain", "softmax"), vectors, f"So the vectors ({', '.join(result.names)}) become")
        )
    for bank in result.banks:
        parts.append(matrix(bank.given, bank.words, bank.words, "Weights that are given, not computed:"))
        i = bank.words.index("bank") if "bank" in bank.words else 0
        parts.append(
            f'"{bank.words[i]}" of "{" ".join(bank.words)}" becomes ({", ".join(result.bank_names)}) '
            f"{_vector(bank.moved_as_given[i])} by these weights and {_vector(bank.moved[i])} by its likeness, with "
            "vectors of our own (--set bank=…)."
        )
    return Story(
        'each word becomes a sum of the words of its sentence, weighted by likeness; the notes: "I want coefficients to '
        'add 1". plain: scores over their sum. softmax: exponentials over theirs, for the words that have something in '
        "common, as in the notes; of all: for all words, as in a Transformer, where a score of 0 still weighs e⁰.",
        tuple(parts),
        'there is nothing to learn here: the same words always get the same weights. "apple" leans towards what stands '
        "beside it, and the exponential makes the larger score far larger than plain normalising does.",
        _slips(),
    )


def _slips() -> tuple[str, ...]:
    fruit, phone = (_context(sentence, DOCUMENT) for sentence in SENTENCES)

    def share(of: Context, word: str, first: str, second: str) -> str:
        row = of.related[of.words.index(word)]
        return f"{row[of.words.index(first)]:.3f} and {row[of.words.index(second)]:.3f}"

    apple = fruit.normalised[0]
    return (
        f"\"Orange ⇒ 0.57 apple + 0.43 orange\" is apple's line ({apple[0]:.2f} and {apple[3]:.2f}), not orange's.",
        f'by the exponential apple is "0.55 Apple + 0.45 Orange", but e^4.62 and e^3.46 make it '
        f'{share(fruit, "apple", "apple", "orange")}; orange "0.44 apple + 0.56 Orange" is '
        f"{share(fruit, 'orange', 'apple', 'orange')}.",
        f'in "an apple phone", apple scores apple and phone alike: {share(phone, "apple", "apple", "phone")}, not "0.43 '
        f'phone + 0.57 Apple"; phone is {share(phone, "phone", "apple", "phone")} of apple and of phone, not 0.43 and 0.57.',
        'bank is first "0.2 Money + 0.7 Bank + 0.1 grows" and "0.5 river + 0.4 bank + 0.1 flows", then, in the full '
        f"tables, {_vector(BANK_WEIGHTS['money bank grows'][1])} and {_vector(BANK_WEIGHTS['river bank flows'][1])}: "
        "both are meant as examples, neither is computed.",
    )


def _vector(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(f"{number:.2f}".rstrip("0").rstrip(".") for number in numbers) + ")"


def draw(result: Contexts, path: Path | str) -> None:
    """The first two features, each word an arrow from where it was to where its sentence moves it."""
    if len(result.names) < 2:
        raise UserError("the picture shows two features, and the table has 1: give every word a second number")
    figure, axes = panels(len(result.sentences))
    for side, each in zip(axes, result.sentences, strict=True):
        for i, word in enumerate(each.words):
            old, plain, new = ((table[i][0], table[i][1]) for table in (each.vectors, each.plain, each.moved))
            for end, colour, style in ((plain, WITHOUT, ":"), (new, WITH, "-")):
                arrow = {"arrowstyle": "->", "color": colour, "linestyle": style, "linewidth": 1.6}
                side.annotate("", end, old, arrowprops=arrow)
            side.plot(*old, "o", color="black", markersize=4)
            side.annotate(word, old, (5, 5), textcoords="offset points", fontsize=9)
        side.plot([], [], ":", color=WITHOUT, label="by plain normalising")
        side.plot([], [], "-", color=WITH, label="by softmax")
        side.margins(0.2)
        label(side, " ".join(each.words), result.names[0], result.names[1])
    save(figure, path)
