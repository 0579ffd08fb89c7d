"""`learning`: what training changes in attention, on the example of "it".

A toy language about food and kitchens: "the pizza came out of the oven and it tasted good". The translation must name what "it"
is, the food or the place; only the last words tell which. A translator is trained on thousands of such sentences, and before,
during and after we look at where "it" attends and how similar its vector is to those of the two candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import torch
from torch.nn import functional as F

from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.render import (
    ATTENTION,
    SLIDES,
    Bars,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
)
from seq2see.course.lessons.training import Dataset, LossCurve, build_model, prepare_dataset, train, translate
from seq2see.data.layout import Packed
from seq2see.inspect.trace import trace
from seq2see.model.transformer import Transformer

# French: the food is feminine (elle), the place masculine (il), so the pronoun gives the answer away.
FOODS = {
    "pizza": "pizza", "tart": "tarte", "soup": "soupe", "potato": "pomme", "meat": "viande", "cake": "galette",
    "bread": "baguette", "fish": "sardine",
}  # fmt: skip
PLACES = {
    "oven": "four", "grill": "gril", "kettle": "chaudron", "basket": "panier", "freezer": "congélateur", "bag": "sac",
    "bowl": "bol", "fridge": "frigo",
}  # fmt: skip
VERBS = {"came": "sortit", "fell": "tomba", "slipped": "glissa"}
FOOD_ENDINGS = {"tasted good": "était bonne", "tasted bad": "était mauvaise", "was eaten": "fut mangée"}
PLACE_ENDINGS = {"was closed": "fut fermé", "was repaired": "fut réparé", "was empty": "était vide"}
EXAMPLES = (("pizza", "oven", "came", "tasted good"), ("pizza", "oven", "came", "was closed"))


@dataclass(frozen=True)
class Moment:
    """The model at one step: the sentence about the food and the one about the place."""

    step: int
    to_food: tuple[float, float]  # attention from "it" to the food, largest over heads and layers, in the two sentences
    to_place: tuple[float, float]
    food_cosine: tuple[float, float]  # of the encoder's vectors of "it" and the food
    place_cosine: tuple[float, float]
    accuracy: float  # of the pronoun, on test sentences


@dataclass(frozen=True)
class Result:
    sentences: tuple[str, str]
    translations: tuple[str, str]  # after training
    references: tuple[str, str]
    examples: int  # training sentences
    moments: tuple[Moment, ...]
    curve: LossCurve


def compute(steps: int = 120, seed: int = 1) -> Result:
    """Trains a translator and looks at "it" before, during and after."""
    food = [_pair(*each) for each in product(FOODS, PLACES, VERBS, FOOD_ENDINGS)]
    place = [_pair(*each) for each in product(FOODS, PLACES, VERBS, PLACE_ENDINGS)]
    examples = [_pair(*each) for each in EXAMPLES]
    pairs = [pair for pair in (*food, *place) if pair not in examples]
    Random(seed).shuffle(pairs)
    test, training = [*examples, *pairs[:98]], pairs[98:]
    with prepare_dataset(training, test, seed) as dataset:
        model = build_model(dataset.model_config, seed)
        moments = [_look(model, dataset, test, 0)]
        wanted = {round(steps * share / 10) * 10 for share in (0.1, 0.25, 0.5)} | {steps}

        def watch(step: int) -> None:
            if step in wanted:
                moments.append(_look(model, dataset, test, step))

        curve = train(model, dataset, steps, seed, watch)
        translations = translate(model, dataset.tokenizer, [english for english, _ in examples])
    (one, first), (other, second) = examples
    return Result(
        (one, other), (translations[0], translations[1]), (first, second), len(training), tuple(moments), curve
    )


def _pair(food: str, place: str, verb: str, ending: str) -> tuple[str, str]:
    about_food = ending in FOOD_ENDINGS
    pronoun, french = ("elle", FOOD_ENDINGS[ending]) if about_food else ("il", PLACE_ENDINGS[ending])
    return (
        f"the {food} {verb} out of the {place} and it {ending}",
        f"la {FOODS[food]} {VERBS[verb]} du {PLACES[place]} et {pronoun} {french}",
    )


@torch.no_grad()
def _look(model: Transformer, dataset: Dataset, test: Sequence[tuple[str, str]], step: int) -> Moment:
    tokenizer = dataset.tokenizer
    rows = []
    for english, _ in test[:2]:
        words = english.split()
        it, food, place = words.index("it"), words.index(EXAMPLES[0][0]), words.index(EXAMPLES[0][1])
        packed = Packed.from_sequences([[*tokenizer.encode(english), tokenizer.end]])
        with trace(model) as t:
            vectors = model.encode(packed, model.taps())
        weights = torch.cat([t[name, 0] for name in t.names("encoder.*.self.weights")])  # [layers · heads, n, n]
        cosines = [float(F.cosine_similarity(vectors[it], vectors[i], dim=0)) for i in (food, place)]
        rows.append((float(weights[:, it, food].max()), float(weights[:, it, place].max()), *cosines))
    outputs = translate(model, tokenizer, [english for english, _ in test])
    right = sum(_pronoun(output) == _pronoun(french) for output, (_, french) in zip(outputs, test, strict=True))
    to_food, to_place, food_cosine, place_cosine = zip(*rows, strict=True)
    return Moment(step, to_food, to_place, food_cosine, place_cosine, right / len(test))


def _pronoun(french: str) -> str:
    return next((word for word in french.split() if word in ("il", "elle")), "")


def describe(result: Result) -> LessonText:
    first, last = result.moments[0], result.moments[-1]
    learned = last.accuracy >= 0.9
    follows = learned and last.to_food[0] > 1.5 * first.to_food[0] and last.to_food[0] > last.to_place[0]
    return LessonText(
        f"where “it” attends in “{result.sentences[0]}”: to the pizza or to the oven, before training and while the model sees "
        f"{result.examples:,} other sentences again and again.",
        (
            Bars(
                "Largest weight of any head from “it”",
                tuple(
                    (
                        f"step {m.step}: pronoun right in {m.accuracy:.0%} of the test sentences",
                        (("pizza", m.to_food[0]), ("oven", m.to_place[0])),
                    )
                    for m in result.moments
                ),
            ),
        ),
        (
            Table(
                ("", "the model's translation"),
                tuple(zip(result.sentences, result.translations, strict=True)),
                "“it” is elle, the pizza, or il, the oven:",
            ),
        ),
        (
            f"Before training “it” attends to pizza and oven alike, {first.to_food[0]:.2f} and {first.to_place[0]:.2f}; "
            f"afterwards {last.to_food[0]:.2f} and {last.to_place[0]:.2f}. Many examples have made the query of “it” "
            "and the key of “pizza” more similar. Nobody told the model so; the loss did."
            if follows
            else f"After {last.step} steps the pronoun is right in {last.accuracy:.0%} of the test sentences. "
            + (
                "The model has learned what “it” is, but in this run no head shows it by attending from “it” to the "
                "pizza: what a model learns, it need not learn in the way we expect."
                if learned
                else "It has not yet learned what “it” is: train longer."
            )
        ),
        Library(
            "loss = -logprobs[targets].mean()\nloss.backward(); optimizer.step()              # TrainStep.run",
            "train/step.py",
        ),
        (
            Section(
                "In both sentences",
                (
                    Table(
                        ("step", "pizza", "oven", "pizza ", "oven ", "right"),
                        tuple(
                            (
                                m.step,
                                m.food_cosine[0],
                                m.place_cosine[0],
                                m.food_cosine[1],
                                m.place_cosine[1],
                                f"{m.accuracy:.0%}",
                            )
                            for m in result.moments
                        ),
                        f"Cosine of “it” with each, in “… it {EXAMPLES[0][3]}” (first two) and “… it {EXAMPLES[1][3]}”:",
                    ),
                    Table(
                        ("step", "pizza", "oven", "pizza ", "oven "),
                        tuple(
                            (m.step, m.to_food[0], m.to_place[0], m.to_food[1], m.to_place[1]) for m in result.moments
                        ),
                        "Largest attention of any head from “it” to each:",
                    ),
                    f"Where “it” is the oven, it attends to pizza and oven with {last.to_food[1]:.2f} and "
                    f"{last.to_place[1]:.2f}: "
                    + (
                        "the weight says that pizzas are often meant, not that this one is; the decision falls elsewhere."
                        if last.to_food[1] > last.to_place[1]
                        else "here the weights follow the meaning."
                    ),
                    "The cosine of the vectors and the attention need not agree: attention compares the query of one "
                    "word with the key of the other, the cosine compares the vectors themselves.",
                    f"Loss on test sentences: {result.curve.test[0]:.2f} after {result.curve.steps[0]} steps, "
                    f"{result.curve.test[-1]:.3f} after {result.curve.steps[-1]}.",
                ),
            ),
            Section(
                "How a model is trained",
                (
                    "It reads a pair of sentences, predicts every word of the answer from the words before it, and is "
                    "told the right ones. The loss is the mean of −ln p of those. Backpropagation says for every "
                    "weight in which direction the loss falls; each moves a little that way. Then the next pairs come.",
                    "The same with your own two files: seq2see train.",
                ),
            ),
        ),
        (Try("Stop after 20 steps.", {"steps": 20}), Try("Other data and other weights.", options="--seed 2")),
        (
            Note(
                SLIDES,
                "“If you have a lot of examples where the word pizza is related to it and taste, then the similarity "
                "score between pizza, it and taste will be more”: trained above, and measured.",
            ),
            Note(
                ATTENTION,
                "True label, prediction, “calculate the loss & backprop”, and weights that start at random: the "
                "training above. The Hindi pairs there (How are you → आप कैसे हैं, Congratulations → बधाई हो, Thank "
                "you → धन्यवाद) can be tried in the lessons decoder and cross.",
            ),
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    loss = (w - 5) ** 2
    loss.backward()
    assert w.grad is not None
    return (
        Exercise(
            "The loss is (w − 5)² and w = 2. What is its gradient?", float(w.grad), "2 · (2 − 5).", tolerance=0.001
        ),
        Exercise(
            "w moves by −0.1 · gradient. What is w then?", float(w.detach() - 0.1 * w.grad), "2 + 0.6: towards 5.",
        ),
        choose(
            "“the soup fell out of the bowl and it was empty”: which pronoun is right, elle (soup) or il (bowl)?",
            ("elle", "il"),
            lambda choice: float(choice == _pronoun(_pair("soup", "bowl", "fell", "was empty")[1])),
            "In this language only places are empty.",
        ),
    )  # fmt: skip


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(2)
    steps = [m.step for m in result.moments]
    for ax, index in zip(axes, (0, 1), strict=True):
        ax.plot(steps, [m.to_food[index] for m in result.moments], "o-", color=BLUE, label="pizza")
        ax.plot(steps, [m.to_place[index] for m in result.moments], "o--", color=ORANGE, label="oven")
        label_axes(ax, f"… it {EXAMPLES[index][3]}", "step", "largest weight from “it”")
    save_figure(figure, path)
