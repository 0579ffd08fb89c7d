"""`leak`: the same translator trained with and without the decoder's mask.

Each sentence has two or four correct translations, of which the corpus shows one, chosen at random. A decoder that sees only
the previous words cannot know which one follows, so its loss stays above the cost of guessing. One that sees all words reads
the next word from its own input: it learns to copy, and when it generates there is nothing to copy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated

import torch
from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.course.lessons.toy_language import EXAMPLE, Sentence, toy_corpus
from seq2see.data.layout import Packed
from seq2see.inspect.trace import trace
from seq2see.model.transformer import Transformer

EXAMPLES = 3  # sentences whose translations are shown; every second one is a mirror image


@dataclass(frozen=True)
class TrainingRun:
    curve: kit.LossCurve
    accuracy: float  # share of test sentences with a correct translation, generated token by token
    next_word_weight: float  # weight on the next word, the answer, of the head that attends to it most
    weights: kit.Matrix  # of that head on `EXAMPLE`: [queries, keys]
    translations: tuple[str, ...]  # of the examples


@dataclass(frozen=True)
class Result:
    masked: TrainingRun
    unmasked: TrainingRun
    remasked_accuracy: float  # of the unmasked model, decoding with the mask
    floor: float  # loss of a model that knows everything but which of the correct translations follows
    examples: tuple[Sentence, ...]
    test_size: int


def compute(seed: kit.Seed = 1, steps: Annotated[int, kit.Bounds(10, 250)] = 200) -> Result:
    """Trains two translators that differ only in the mask, and compares their translations."""
    corpus, random = toy_corpus(seed), Random(seed)
    train_pairs, test_pairs = (
        [(s.english, random.choice(s.references)) for s in part] for part in (corpus.train, corpus.test)
    )
    with kit.prepare_dataset(train_pairs, test_pairs, seed) as dataset:
        models = [kit.build_model(dataset.model_config, seed) for _ in range(2)]
        kit.set_causal(models[1], False)
        masked, unmasked = (_train(model, dataset, corpus.test, steps, seed) for model in models)
        kit.set_causal(models[1], True)
        remasked_accuracy = _accuracy(models[1], dataset, corpus.test)
        tokens = sum(len(dataset.tokenizer.encode(hindi)) + 1 for _, hindi in test_pairs)  # with <end>
    floor = sum(math.log(len(s.references)) for s in corpus.test) / tokens
    return Result(masked, unmasked, remasked_accuracy, floor, tuple(corpus.test[: 2 * EXAMPLES : 2]), len(corpus.test))


def _train(model: Transformer, dataset: kit.Dataset, test: Sequence[Sentence], steps: int, seed: int) -> TrainingRun:
    curve = kit.train(model, dataset, steps, seed)
    next_word_weight, weights = _attention_ahead(model, dataset)
    translations = kit.translate(model, dataset.tokenizer, [s.english for s in test[: 2 * EXAMPLES : 2]])
    return TrainingRun(curve, _accuracy(model, dataset, test), next_word_weight, weights, tuple(translations))


def _accuracy(model: Transformer, dataset: kit.Dataset, test: Sequence[Sentence]) -> float:
    translations = kit.translate(model, dataset.tokenizer, [s.english for s in test])
    return sum(text in s.references for text, s in zip(translations, test, strict=True)) / len(test)


@torch.no_grad()
def _attention_ahead(model: Transformer, dataset: kit.Dataset) -> tuple[float, kit.Matrix]:
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
    return float(ahead.max()), kit.to_matrix(heads[int(ahead.argmax())])


def values(result: Result) -> kit.Values:
    masked, unmasked = result.masked, result.unmasked
    steps, last = masked.curve.steps, len(masked.curve.steps) - 1
    return {
        "translations": [
            row
            for text, a, b in zip(result.examples, masked.translations, unmasked.translations, strict=True)
            for row in ((text.english, "with the mask", a or "(empty)"), ("", "without", b or "(empty)"))
        ],
        "losses": [
            (steps[i], masked.curve.train[i], unmasked.curve.train[i])
            for i in sorted({0, (last + 1) // 4, (last + 1) // 2, last})
        ],
        "cheats": unmasked.curve.test[-1] < masked.curve.test[-1] and unmasked.accuracy < masked.accuracy,
        "stays_useless": result.remasked_accuracy < 0.5 * masked.accuracy,
        "seen": [[math.nan if j > i else w for j, w in enumerate(row)] for i, row in enumerate(masked.weights)],
    }


def answers() -> kit.Values:
    example = EXAMPLE.at("yesterday")
    return {"english": example.english, "count": len(example.references), "loss": math.log(len(example.references))}
