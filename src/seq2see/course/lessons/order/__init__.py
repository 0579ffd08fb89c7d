"""`order`: the same translator trained with and without positions, on sentences and their mirror images.

Attention is a sum over words, and a sum does not depend on order. Without positions the encoder computes the same vectors for
"Nithish killed lion" and "lion killed Nithish", and no decoder can tell them apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2see.config import Positions
from seq2see.course.lessons.attention import Matrix, to_matrix
from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, reference_line, save_figure, subplots
from seq2see.course.lessons.models import relative_change
from seq2see.course.lessons.render import ATTENTION, Bars, LessonText, Library, Note, Section, Table, Try
from seq2see.course.lessons.toy_language import EXAMPLE, Sentence, generate_corpus
from seq2see.course.lessons.training import (
    Dataset,
    LossCurve,
    build_model,
    prepare_dataset,
    train,
    translate,
    undertrained_warning,
)
from seq2see.data.layout import Packed
from seq2see.model.transformer import Transformer


@dataclass(frozen=True)
class TrainingRun:
    curve: LossCurve
    accuracy: float  # share of test sentences translated correctly
    distinguished: float  # share of mirror images with different translations
    vectors: tuple[Matrix, Matrix]  # encoder output of `EXAMPLE` and its mirror
    translations: tuple[str, str]  # of the two
    change: tuple[float, ...]  # relative change of each word's vector from the one to the other


@dataclass(frozen=True)
class Result:
    with_positions: TrainingRun
    without_positions: TrainingRun
    words: tuple[str, ...]  # of `EXAMPLE`, and <end>
    floor: float  # loss of a model that knows everything but who is subject and who is object
    test_size: int


def compute(seed: int = 1, steps: int = 150) -> Result:
    """Trains two translators that differ only in positions, and compares their vectors of `EXAMPLE` and its mirror."""
    corpus = generate_corpus(seed)
    train_pairs, test_pairs = ([(s.english, s.hindi) for s in part] for part in (corpus.train, corpus.test))
    with prepare_dataset(train_pairs, test_pairs, seed) as dataset:
        with_positions, without_positions = (
            _train(dataset, positions, corpus.test, steps, seed) for positions in ("sinusoidal", "none")
        )
        tokens = sum(len(dataset.tokenizer.encode(s.hindi)) + 1 for s in corpus.test)  # with <end>
    floor = math.log(2) * len(corpus.test) / tokens
    words = (*EXAMPLE.english.split(), "<end>")
    return Result(with_positions, without_positions, words, floor, len(corpus.test))


def _train(dataset: Dataset, positions: Positions, test: Sequence[Sentence], steps: int, seed: int) -> TrainingRun:
    model = build_model(replace(dataset.model_config, positions=positions), seed)
    curve = train(model, dataset, steps, seed)
    outputs = translate(model, dataset.tokenizer, [s.english for s in test])
    accuracy = sum(text == s.hindi for text, s in zip(outputs, test, strict=True)) / len(test)
    mirrors = list(zip(outputs[::2], outputs[1::2], strict=True))
    vectors, change = _encode_example(model, dataset)
    distinguished = sum(one != other for one, other in mirrors) / len(mirrors)
    return TrainingRun(curve, accuracy, distinguished, vectors, mirrors[0], change)


@torch.no_grad()
def _encode_example(model: Transformer, dataset: Dataset) -> tuple[tuple[Matrix, Matrix], tuple[float, ...]]:
    """Returns the encoder output of `EXAMPLE` and of its mirror, and the relative change of each word's vector."""
    tokenizer = dataset.tokenizer
    tokens = [[*tokenizer.encode(s.english), tokenizer.end] for s in (EXAMPLE, EXAMPLE.mirror)]
    one, other = (model.encode(Packed.from_sequences([ids])) for ids in tokens)  # [4, width] each
    reordered = other[[tokens[1].index(token) for token in tokens[0]]]
    return (to_matrix(one), to_matrix(other)), relative_change(one, reordered)


def describe(result: Result) -> LessonText:
    runs = (result.with_positions, result.without_positions)
    changes = [
        (
            f'relative change of "{word}" in the mirror image' if i == 0 else f'  "{word}"',
            *(f"{run.change[i]:.1e}" if run.change[i] < 0.01 else f"{run.change[i]:.2f}" for run in runs),
        )
        for i, word in enumerate(result.words)
    ]
    metrics = (
        ("loss on test sentences", *(f"{run.curve.test[-1]:.3f}" for run in runs)),
        ("mirror images with different translations", *(f"{run.distinguished:.0%}" for run in runs)),
        (f"correct translations of {result.test_size}", *(f"{run.accuracy:.0%}" for run in runs)),
    )
    translations = tuple(
        (sentence.english if i == 0 else "", name, run.translations[number])
        for number, sentence in enumerate((EXAMPLE, EXAMPLE.mirror))
        for i, (name, run) in enumerate(zip(("with positions", "without"), runs, strict=True))
    )
    without = result.without_positions
    guessed = without.distinguished == 0
    return LessonText(
        f'"{EXAMPLE.english}" and "{EXAMPLE.mirror.english}": the same words, the opposite event. Both translators have read '
        "thousands of such pairs.",
        (
            Bars(
                f"Of {result.test_size} sentences",
                (
                    ("translated correctly", (("with positions", runs[0].accuracy), ("without", runs[1].accuracy))),
                    (
                        "mirror images told apart",
                        (("with positions", runs[0].distinguished), ("without", runs[1].distinguished)),
                    ),
                ),
                1.0,
            ),
        ),
        (Table(("", "", ""), translations),),
        f"{undertrained_warning(result.with_positions.accuracy)}Attention is a sum over words, and a sum does not "
        "know an order. "
        + (
            "Without positions every word has the same vector in both sentences, up to rounding; both get the same "
            "translation, and one of the two is wrong."
            if guessed
            else "Without positions the vectors are the same in both sentences, up to rounding."
        ),
        Library(
            "seq2see train --src a.en --tgt a.hi --out run --set model.positions=none\n"
            'ModelConfig(positions="none")                   # or "sinusoidal", "learned"',
            "model/positions.py",
        ),
        (
            Section(
                "Who changes, and what it costs",
                (
                    Table(
                        ("", "with positions", "without"),
                        (*changes, *metrics),
                        bold_rows=(len(changes) + len(metrics) - 1,),
                    ),
                    "Everything but the order is learned: the loss without positions can come down to the cost of "
                    f"tossing a coin for who did it, ln 2 per sentence or {result.floor:.3f} per token; here it is "
                    f"{without.curve.test[-1]:.3f}.",
                ),
            ),
        ),
        (Try("Stop early: what is learned first?", {"steps": 50}),),
        (
            Note(
                ATTENTION,
                'Self-attention has "no mechanism to understand the order of words", so the two sentences are "hard to '
                'differentiate". More than hard: without positions it is impossible. A recurrent network reads one word after '
                "another and needs none (lesson: recurrent).",
            ),
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    sentences = 100
    return (
        Exercise(
            "A model cannot tell who did it and tosses a coin. What is the loss −ln p for that one choice?",
            math.log(2),
            "−ln 0.5 = ln 2.",
        ),
        Exercise(
            f"{sentences} sentences come in mirror pairs, and both of a pair get the same translation. How many can be "
            "right at most?",
            sentences / 2,
            "One of each pair.",
        ),
        choose(
            "Without positions, which of these does the encoder see alike: a sentence with two words exchanged, or "
            "with one word replaced?",
            ("two words exchanged", "one word replaced"),
            lambda choice: float(sorted(["a", "b"]) == sorted(["b", "a"] if "exchanged" in choice else ["a", "c"])),
            "A sum over the same words is the same sum.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (losses, left, right) = subplots(3)
    runs = ((result.with_positions, BLUE, "with positions"), (result.without_positions, ORANGE, "without"))
    for run, colour, name in runs:
        losses.plot(run.curve.steps, run.curve.test, color=colour, label=f"{name}: {run.accuracy:.0%} correct")
    reference_line(losses, result.floor, "cost of a coin toss")
    label_axes(losses, "Loss on test sentences", "step", "loss per token")
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
