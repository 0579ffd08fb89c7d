"""`order`: the same translator trained with and without positions, on sentences and their mirror images.

Attention is a sum over words, and a sum does not depend on order. Without positions the encoder computes the same vectors for
"Nithish killed lion" and "lion killed Nithish", and no decoder can tell them apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch

from seq2see.config import Positions
from seq2see.course.lessons import kit
from seq2see.course.lessons.document import Line, Lines
from seq2see.course.lessons.figures import BLUE, ORANGE, draw_lines, label_axes, save_figure, subplots
from seq2see.course.lessons.toy_language import EXAMPLE, Sentence, toy_corpus
from seq2see.data.layout import Packed
from seq2see.model.transformer import Transformer


@dataclass(frozen=True)
class TrainingRun:
    curve: kit.LossCurve
    accuracy: float  # share of test sentences translated correctly
    distinguished: float  # share of mirror images with different translations
    vectors: tuple[kit.Matrix, kit.Matrix]  # encoder output of `EXAMPLE` and its mirror
    translations: tuple[str, str]  # of the two
    change: tuple[float, ...]  # relative change of each word's vector from the one to the other


@dataclass(frozen=True)
class Result:
    with_positions: TrainingRun
    without_positions: TrainingRun
    words: tuple[str, ...]  # of `EXAMPLE`, and <end>
    floor: float  # loss of a model that knows everything but who is subject and who is object
    test_size: int


def compute(seed: kit.Seed = 1, steps: Annotated[int, kit.Bounds(10, 200)] = 150) -> Result:
    """Trains two translators that differ only in positions, and compares their vectors of `EXAMPLE` and its mirror."""
    corpus = toy_corpus(seed)
    train_pairs, test_pairs = ([(s.english, s.hindi) for s in part] for part in (corpus.train, corpus.test))
    with kit.prepare_dataset(train_pairs, test_pairs, seed) as dataset:
        with_positions, without_positions = (
            _train(dataset, positions, corpus.test, steps, seed) for positions in ("sinusoidal", "none")
        )
        tokens = sum(len(dataset.tokenizer.encode(s.hindi)) + 1 for s in corpus.test)  # with <end>
    floor = math.log(2) * len(corpus.test) / tokens
    words = (*EXAMPLE.english.split(), "<end>")
    return Result(with_positions, without_positions, words, floor, len(corpus.test))


def _train(dataset: kit.Dataset, positions: Positions, test: Sequence[Sentence], steps: int, seed: int) -> TrainingRun:
    model = kit.build_model(replace(dataset.model_config, positions=positions), seed)
    curve = kit.train(model, dataset, steps, seed)
    outputs = kit.translate(model, dataset.tokenizer, [s.english for s in test])
    accuracy = sum(text == s.hindi for text, s in zip(outputs, test, strict=True)) / len(test)
    mirrors = list(zip(outputs[::2], outputs[1::2], strict=True))
    vectors, change = _encode_example(model, dataset)
    distinguished = sum(one != other for one, other in mirrors) / len(mirrors)
    return TrainingRun(curve, accuracy, distinguished, vectors, mirrors[0], change)


@torch.no_grad()
def _encode_example(
    model: Transformer, dataset: kit.Dataset
) -> tuple[tuple[kit.Matrix, kit.Matrix], tuple[float, ...]]:
    """Returns the encoder output of `EXAMPLE` and of its mirror, and the relative change of each word's vector."""
    tokenizer = dataset.tokenizer
    tokens = [[*tokenizer.encode(s.english), tokenizer.end] for s in (EXAMPLE, EXAMPLE.mirror)]
    one, other = (model.encode(Packed.from_sequences([ids])) for ids in tokens)  # [4, width] each
    reordered = other[[tokens[1].index(token) for token in tokens[0]]]
    return (kit.to_matrix(one), kit.to_matrix(other)), kit.relative_change(one, reordered)


def values(result: Result) -> kit.Values:
    one, other = result.with_positions, result.without_positions
    changes = zip(result.words, one.change, other.change, strict=True)
    return {
        "example": EXAMPLE,
        "changes": [(word, *(f"{x:.1e}" if x < 0.01 else f"{x:.2f}" for x in pair)) for word, *pair in changes],
        "translations": [
            row
            for text, a, b in zip((EXAMPLE, EXAMPLE.mirror), one.translations, other.translations, strict=True)
            for row in ((text.english, "with positions", a), ("", "without", b))
        ],
        "guesses": other.distinguished == 0,
    }


def answers() -> kit.Values:
    return {"coin": math.log(2)}


def draw(result: Result, path: Path | str) -> None:
    figure, (losses, left, right) = subplots(3)
    runs = ((result.with_positions, BLUE, "with positions"), (result.without_positions, ORANGE, "without"))
    curves = tuple(
        Line(f"{name}: {run.accuracy:.0%} correct", tuple(zip(run.curve.steps, run.curve.test, strict=True)))
        for run, _, name in runs
    )
    level = (result.floor, "cost of a coin toss")
    draw_lines(losses, Lines("Loss on test sentences", "step", "loss per token", curves, "y", level))
    mirrored_words = (*EXAMPLE.mirror.english.split(), "<end>")
    for axes, (run, colour, name) in zip((left, right), runs, strict=True):
        vectors = torch.tensor([*run.vectors[0], *run.vectors[1]])
        centred = vectors - vectors.mean(0)
        points = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T  # [8, 2]: two principal axes
        first, second = points[: len(result.words)], points[len(result.words) :]
        axes.scatter(first[:, 0], first[:, 1], s=110, facecolors="none", edgecolors=colour, label=EXAMPLE.english)
        axes.scatter(second[:, 0], second[:, 1], s=30, marker="x", color="black", label=EXAMPLE.mirror.english)
        for group, words, offset, side in (
            (first, result.words, (-6, 6), "right"),
            (second, mirrored_words, (6, -11), "left"),
        ):
            for point, word in zip(group.tolist(), words, strict=True):
                axes.annotate(word, point, offset, textcoords="offset points", fontsize=7, ha=side)
        axes.margins(0.25)
        label_axes(axes, f"Encoder output, {name}", "principal axis 1", "principal axis 2")
    save_figure(figure, path)
