"""`leak`: the same translator trained with and without the decoder's mask.

Each sentence has two or four correct translations, of which the corpus shows one, chosen at random. A decoder that sees only
the previous words cannot know which one follows, so its loss stays above the cost of guessing. One that sees all words reads
the next word from its own input: it learns to copy, and when it generates there is nothing to copy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from seq2see.course.lessons.attention import Matrix, to_matrix
from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, reference_line, save_figure, subplots
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
from seq2see.inspect.trace import trace
from seq2see.model.layers import Block
from seq2see.model.transformer import Transformer


@dataclass(frozen=True)
class TrainingRun:
    curve: LossCurve
    accuracy: float  # share of test sentences with a correct translation, generated token by token
    next_word_weight: float  # weight on the next word, the answer, of the head that attends to it most
    weights: Matrix  # of that head on `EXAMPLE`: [queries, keys]
    translations: tuple[str, ...]  # of the examples


@dataclass(frozen=True)
class Result:
    masked: TrainingRun
    unmasked: TrainingRun
    remasked_accuracy: float  # of the unmasked model, decoding with the mask
    floor: float  # loss of a model that knows everything but which of the correct translations follows
    examples: tuple[Sentence, ...]
    test_size: int


def compute(seed: int = 1, steps: int = 200) -> Result:
    """Trains two translators that differ only in the mask, and compares their translations."""
    corpus, random = generate_corpus(seed), Random(seed)
    train_pairs, test_pairs = (
        [(s.english, random.choice(s.references)) for s in part] for part in (corpus.train, corpus.test)
    )
    examples = (corpus.test[0], corpus.test[2], corpus.test[4])
    with prepare_dataset(train_pairs, test_pairs, seed) as dataset:
        models = [build_model(dataset.model_config, seed) for _ in range(2)]
        _set_causal(models[1], False)
        masked, unmasked = (_train(model, dataset, corpus.test, examples, steps, seed) for model in models)
        _set_causal(models[1], True)
        remasked_accuracy = _accuracy(models[1], dataset, corpus.test)
        tokens = sum(len(dataset.tokenizer.encode(hindi)) + 1 for _, hindi in test_pairs)  # with <end>
    floor = sum(math.log(len(s.references)) for s in corpus.test) / tokens
    return Result(masked, unmasked, remasked_accuracy, floor, examples, len(corpus.test))


def _set_causal(model: Transformer, causal: bool) -> None:
    assert model.decoder is not None
    for block in model.decoder.blocks:
        assert isinstance(block, Block)
        block.attention.causal = causal


def _train(
    model: Transformer, dataset: Dataset, test: Sequence[Sentence], examples: Sequence[Sentence], steps: int, seed: int
) -> TrainingRun:
    curve = train(model, dataset, steps, seed)
    next_word_weight, weights = _attention_ahead(model, dataset)
    translations = translate(model, dataset.tokenizer, [s.english for s in examples])
    return TrainingRun(curve, _accuracy(model, dataset, test), next_word_weight, weights, tuple(translations))


def _accuracy(model: Transformer, dataset: Dataset, test: Sequence[Sentence]) -> float:
    translations = translate(model, dataset.tokenizer, [s.english for s in test])
    return sum(text in s.references for text, s in zip(translations, test, strict=True)) / len(test)


@torch.no_grad()
def _attention_ahead(model: Transformer, dataset: Dataset) -> tuple[float, Matrix]:
    """Finds the head with the largest mean weight on the next position.

    The decoder's input is shifted right, so the next position holds the word to be predicted.
    """
    tokenizer = dataset.tokenizer
    source = Packed.from_sequences([[*tokenizer.encode(EXAMPLE.english), tokenizer.end]])
    target = Packed.from_sequences([[tokenizer.start, *tokenizer.encode(EXAMPLE.hindi)]])
    with trace(model, only="decoder.*.masked.weights") as t:
        model(source, target)
    heads = torch.cat([t[name, 0] for name in t.names("*.weights")])  # [layers · heads, queries, keys]
    ahead: Tensor = heads.diagonal(offset=1, dim1=-2, dim2=-1).mean(-1)  # [layers · heads]
    return float(ahead.max()), to_matrix(heads[int(ahead.argmax())])


def describe(result: Result) -> LessonText:
    runs = masked, unmasked = result.masked, result.unmasked
    steps = masked.curve.steps
    shown = sorted({0, len(steps) // 4, len(steps) // 2, len(steps) - 1})
    rows = [(f"training loss, step {steps[i]}", *(f"{run.curve.train[i]:.4f}" for run in runs)) for i in shown]
    rows += [
        ("loss on test sentences, teacher forcing", *(f"{run.curve.test[-1]:.4f}" for run in runs)),
        ("largest weight of a head on the next word", *(f"{run.next_word_weight:.2f}" for run in runs)),
        (f"correct translations of {result.test_size}, generated", *(f"{run.accuracy:.0%}" for run in runs)),
        ("  generated with the mask restored", "", f"{result.remasked_accuracy:.0%}"),
    ]
    translations = tuple(
        (sentence.english if i == 0 else "", name, run.translations[number] or "(empty)")
        for number, sentence in enumerate(result.examples)
        for i, (name, run) in enumerate((("with the mask", masked), ("without", unmasked)))
    )
    cheats = unmasked.curve.test[-1] < masked.curve.test[-1] and unmasked.accuracy < masked.accuracy
    return LessonText(
        "two numbers that disagree. The loss in training says how well the next word was predicted; the share of correct "
        "translations says what the model can do on its own.",
        (
            Bars(
                "Loss on test sentences, the answer being shown (lower is better)",
                (("", (("with the mask", masked.curve.test[-1]), ("without", unmasked.curve.test[-1]))),),
            ),
            Bars(
                f"Correct translations of {result.test_size}, generated",
                (("", (("with the mask", masked.accuracy), ("without", unmasked.accuracy))),),
                1.0,
            ),
        ),
        (Table(("", "", ""), translations),),
        undertrained_warning(masked.accuracy)
        + (
            "Without the mask the loss is lower and the model is useless: it copies the next word from its own input. When it "
            "generates, the next word does not exist yet, and it has not learned to predict it."
            if cheats
            else "Without the mask a decoder can copy the next word from its own input; in this run it does not show yet."
        ),
        Library(
            "block.attention.causal = False                 # all that this lesson changes",
            "model/layers.py",
        ),
        (
            Section(
                "Step by step",
                (
                    Table(("", "with the mask", "without"), tuple(rows), bold_rows=(len(rows) - 2,)),
                    "Hindi has two past forms here, and two places for the time. Guessing which one follows costs "
                    f"{result.floor:.3f} per token, and on test sentences no honest loss can be lower. With the mask "
                    f"restored afterwards, the second model translates {result.remasked_accuracy:.0%} correctly"
                    + (
                        ": what was never learned is not there."
                        if result.remasked_accuracy < 0.5 * masked.accuracy
                        else "."
                    ),
                ),
            ),
        ),
        (Try("Fewer steps: when does the copying begin?", {"steps": 60}),),
        (
            Note(
                ATTENTION,
                "To represent a word all words of the sentence are needed, “which is available at Train Time but not on "
                "Inference time”: a “data leak”.",
            ),
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    example = EXAMPLE.at("yesterday")
    return (
        Exercise(
            f'"{example.english}" has {len(example.references)} correct translations, one chosen at random. What loss does '
            "guessing cost, for the whole sentence (ln of their number)?",
            math.log(len(example.references)),
            "−ln(1/4) = ln 4: two pasts, two places for the time.",
        ),
        choose(
            "A decoder without the mask predicts word 3. Which word of its own input tells it the answer?",
            ("position 2", "position 3", "position 4"),
            lambda choice: float(choice == "position 4"),
            "The input is shifted right behind <start>, so the word to be predicted stands one position further on.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (losses, left, right) = subplots(3)
    for run, colour, name in ((result.masked, BLUE, "with the mask"), (result.unmasked, ORANGE, "without")):
        losses.plot(run.curve.steps, run.curve.train, color=colour, label=f"{name}: {run.accuracy:.0%} correct")
        losses.plot(run.curve.steps, run.curve.test, color=colour, linestyle=":")
    reference_line(losses, result.floor, "cost of guessing the translation")
    label_axes(losses, "Loss (dotted: test sentences)", "step", "loss per token")
    for axes, run, name in ((left, result.masked, "with the mask"), (right, result.unmasked, "without")):
        axes.imshow(run.weights, cmap="Blues", vmin=0, vmax=1)
        title = f"A head {name}: {run.next_word_weight:.2f} on the next word"
        label_axes(axes, title, "key", "query", legend=False)
    hidden = [[float("nan") if j <= i else 1.0 for j in range(len(row))] for i, row in enumerate(result.masked.weights)]
    left.imshow(hidden, cmap="Greys", vmin=0, vmax=4)  # grey: masked, which differs from a weight of 0
    save_figure(figure, path)
