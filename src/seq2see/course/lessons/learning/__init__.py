"""`learning`: what training changes in attention, on the example of "it".

A toy language about food and kitchens: "the pizza came out of the oven and it tasted good". The translation must name what "it"
is, the food or the place; only the last words tell which. A translator is trained on thousands of such sentences, and before,
during and after we look at where "it" attends and how similar its vector is to those of the two candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Annotated

import torch
from torch.nn import functional as F

from seq2see.course.lessons import kit
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
    curve: kit.LossCurve


def compute(steps: Annotated[int, kit.Bounds(10, 200)] = 120, seed: kit.Seed = 1) -> Result:
    """Trains a translator and looks at "it" before, during and after."""
    food = [_pair(*each) for each in product(FOODS, PLACES, VERBS, FOOD_ENDINGS)]
    place = [_pair(*each) for each in product(FOODS, PLACES, VERBS, PLACE_ENDINGS)]
    examples = [_pair(*each) for each in EXAMPLES]
    pairs = [pair for pair in (*food, *place) if pair not in examples]
    Random(seed).shuffle(pairs)
    test, training = [*examples, *pairs[:98]], pairs[98:]
    with kit.prepare_dataset(training, test, seed) as dataset:
        model = kit.build_model(dataset.model_config, seed)
        moments = [_look(model, dataset, test, 0)]
        wanted = {round(steps * share / 10) * 10 for share in (0.1, 0.25, 0.5)} | {steps}

        def watch(step: int) -> None:
            if step in wanted:
                moments.append(_look(model, dataset, test, step))

        curve = kit.train(model, dataset, steps, seed, watch)
        translations = kit.translate(model, dataset.tokenizer, [english for english, _ in examples])
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
def _look(model: Transformer, dataset: kit.Dataset, test: Sequence[tuple[str, str]], step: int) -> Moment:
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
    outputs = kit.translate(model, tokenizer, [english for english, _ in test])
    right = sum(_pronoun(output) == _pronoun(french) for output, (_, french) in zip(outputs, test, strict=True))
    to_food, to_place, food_cosine, place_cosine = zip(*rows, strict=True)
    return Moment(step, to_food, to_place, food_cosine, place_cosine, right / len(test))


def _pronoun(french: str) -> str:
    return next((word for word in french.split() if word in ("il", "elle")), "")


def values(result: Result) -> kit.Values:
    first, last = result.moments[0], result.moments[-1]
    learned = last.accuracy >= 0.9
    return {
        "pairs": list(zip(result.sentences, result.translations, strict=True)),
        "learned": learned,
        "follows": learned and last.to_food[0] > 1.5 * first.to_food[0] and last.to_food[0] > last.to_place[0],
    }


def answers() -> kit.Values:
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    loss = (w - 5) ** 2
    loss.backward()
    assert w.grad is not None
    pronoun = _pronoun(_pair("soup", "bowl", "fell", "was empty")[1])
    return {"gradient": float(w.grad), "moved": float(w.detach() - 0.1 * w.grad), "pronoun": pronoun}
