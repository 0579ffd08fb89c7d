"""`order`: the same translator trained with and without positions, on sentences that come with their mirror images.

Attention is a sum over words, and a sum does not know in which order it was added up. Without positions the encoder
makes the same vectors of "Nithish killed lion" and "lion killed Nithish", and no decoder can tell which it was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2see.config import Positions
from seq2see.course.lessons.pictures import WITH, WITHOUT, label, level, panels, save
from seq2see.course.lessons.render import Grid, Story
from seq2see.course.lessons.toy_language import NOTES, Sentence, language
from seq2see.course.lessons.training import Curve, Material, few_steps, material, train, translations, untrained
from seq2see.layout import Packed
from seq2see.model.transformer import Transformer

CLAIM = (
    'two translators, alike but for the positions. The notes: self-attention has "no mechanism to understand the '
    f'order of words", so "{NOTES.english}" and "{NOTES.mirror.english}" are "hard to differentiate".'
)
Vectors = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Reader:
    """What came of one training."""

    curve: Curve
    exact: float  # share of test sentences translated rightly
    told_apart: float  # share of mirror images that are translated unlike each other
    vectors: tuple[Vectors, Vectors]  # the encoder's, of the notes' two sentences
    translations: tuple[str, str]  # of the two
    apart: tuple[float, ...]  # of each word: how far its vectors in the two sentences are, in parts of their length


@dataclass(frozen=True)
class Order:
    positions: Reader
    none: Reader
    words: tuple[str, ...]  # of the notes' first sentence, and <end>
    floor: float  # the loss of knowing everything but who is who
    tested: int


def order(seed: int = 1, steps: int = 150) -> Order:
    """Trains two translators that differ only in positions, and reads the notes' two sentences with both."""
    split = language(seed)
    pairs = [[(said.english, said.hindi) for said in part] for part in (split.train, split.test)]
    with material(pairs[0], pairs[1], seed) as given:
        with_them, without = (
            _taught(given, positions, split.test, steps, seed) for positions in ("sinusoidal", "none")
        )
        tokens = sum(len(given.tokenizer.encode(said.hindi)) + 1 for said in split.test)  # and <end>
    floor = math.log(2) * len(split.test) / tokens
    words = (*NOTES.english.split(), "<end>")
    return Order(with_them, without, words, floor, len(split.test))


def _taught(given: Material, positions: Positions, tested: Sequence[Sentence], steps: int, seed: int) -> Reader:
    model = untrained(replace(given.model, positions=positions), seed)
    curve = train(model, given, steps, seed)
    found = translations(model, given.tokenizer, [said.english for said in tested])
    exact = sum(text == said.hindi for text, said in zip(found, tested, strict=True)) / len(tested)
    mirrors = list(zip(found[::2], found[1::2], strict=True))
    vectors, apart = _read(model, given)
    told_apart = sum(one != other for one, other in mirrors) / len(mirrors)
    return Reader(curve, exact, told_apart, vectors, mirrors[0], apart)


@torch.no_grad()
def _read(model: Transformer, given: Material) -> tuple[tuple[Vectors, Vectors], tuple[float, ...]]:
    """The encoder's vectors of the notes' sentence and of its mirror, and how far each word's two are apart."""
    tokenizer = given.tokenizer
    tokens = [[*tokenizer.encode(said.english), tokenizer.end] for said in (NOTES, NOTES.mirror)]
    one, other = (model.encode(Packed.of([ids])) for ids in tokens)  # [4, width] each
    same_words = other[[tokens[1].index(token) for token in tokens[0]]]
    apart = (one - same_words).norm(dim=-1) / one.norm(dim=-1)
    return (_plain(one), _plain(other)), tuple(apart.tolist())


def _plain(vectors: torch.Tensor) -> Vectors:
    return tuple(tuple(row) for row in vectors.tolist())


def story(result: Order) -> Story:
    readers = (result.positions, result.none)
    apart = [
        (
            f'how far "{word}" is from itself in the mirror image' if i == 0 else f'  "{word}"',
            *(f"{reader.apart[i]:.1e}" if reader.apart[i] < 0.01 else f"{reader.apart[i]:.2f}" for reader in readers),
        )
        for i, word in enumerate(result.words)
    ]
    outcome = (
        ("loss on unseen sentences", *(f"{reader.curve.test[-1]:.3f}" for reader in readers)),
        ("mirror images translated unlike each other", *(f"{reader.told_apart:.0%}" for reader in readers)),
        (f"right translations of {result.tested}", *(f"{reader.exact:.0%}" for reader in readers)),
    )
    said = tuple(
        (sentence.english if i == 0 else "", name, reader.translations[number])
        for number, sentence in enumerate((NOTES, NOTES.mirror))
        for i, (name, reader) in enumerate(zip(("with positions", "without"), readers, strict=True))
    )
    return Story(
        CLAIM,
        (
            Grid(("", "with positions", "without"), (*apart, *outcome), strong=(len(apart) + len(outcome) - 1,)),
            Grid(("", "", ""), said),
        ),
        f"{few_steps(result.positions.exact)}without positions every word has the same vector in both sentences, to the last "
        "digits, so both get one translation, and one of two is wrong. All else is learned: the loss stays near the price of "
        f"tossing a coin for who did it, ln 2 a sentence or {result.floor:.3f} a token.",
    )


def draw(result: Order, path: Path | str) -> None:
    figure, (losses, left, right) = panels(3)
    named = ((result.positions, WITH, "with positions"), (result.none, WITHOUT, "without"))
    for reader, colour, name in named:
        losses.plot(reader.curve.steps, reader.curve.test, color=colour, label=f"{name}: {reader.exact:.0%} right")
    level(losses, result.floor, "cost of a coin toss")
    label(losses, "Loss on unseen sentences", "step", "−ln p a token")
    mirrored = (*NOTES.mirror.english.split(), "<end>")
    for axes, (reader, colour, name) in zip((left, right), named, strict=True):
        both = torch.tensor([*reader.vectors[0], *reader.vectors[1]])
        flat = both - both.mean(0)
        flat = flat @ torch.linalg.svd(flat, full_matrices=False).Vh[:2].T  # [8, 2]: the plane that shows most
        first, second = flat[: len(result.words)], flat[len(result.words) :]
        axes.scatter(first[:, 0], first[:, 1], s=110, facecolors="none", edgecolors=colour, label=NOTES.english)
        axes.scatter(second[:, 0], second[:, 1], s=30, marker="x", color="black", label=NOTES.mirror.english)
        for points, words, offset, side in (
            (first, result.words, (-6, 6), "right"),
            (second, mirrored, (6, -11), "left"),
        ):
            for point, word in zip(points.tolist(), words, strict=True):
                axes.annotate(word, point, offset, textcoords="offset points", fontsize=7, ha=side)
        axes.margins(0.25)
        label(axes, f"The encoder's vectors, {name}", "first direction", "second direction")
    save(figure, path)
