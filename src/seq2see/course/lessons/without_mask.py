"""`leak`: the same translator trained with and without the decoder's mask.

Each sentence has two or four right translations, of which the corpus shows one, drawn at random. A decoder that sees only
the words so far cannot know which is coming, and its loss stays above what that guess costs; one that sees all
words reads the next one off its own input. It learns to copy, and has nothing to copy when it must write.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from seq2see.course.lessons.pictures import WITH, WITHOUT, label, level, panels, save
from seq2see.course.lessons.render import Grid, Story
from seq2see.course.lessons.toy_language import NOTES, Sentence, language
from seq2see.course.lessons.training import Curve, Material, few_steps, material, train, translations, untrained
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.model.layers import Block
from seq2see.model.transformer import Transformer

CLAIM = (
    "two translators, alike but for the decoder's mask. The notes: a word's context embedding needs all words of the "
    'sentence, which are there "at Train Time but not on Inference time": a "data leak".'
)


@dataclass(frozen=True)
class Decoder:
    """What came of one training."""

    curve: Curve
    exact: float  # share of test sentences whose translation, written word by word, is one of the right ones
    peek: float  # weight that the head which looks ahead most puts on the next word, the answer
    weights: tuple[tuple[float, ...], ...]  # that head's, for the notes' sentence: queries down, keys across
    translations: tuple[str, ...]  # of the sentences shown


@dataclass(frozen=True)
class Leak:
    masked: Decoder
    open: Decoder
    exact_masked_later: float  # of the open one, if the mask is put back for decoding
    floor: float  # the loss of knowing everything but which of the right translations comes
    shown: tuple[Sentence, ...]
    tested: int


def leak(seed: int = 1, steps: int = 200) -> Leak:
    """Trains two translators that differ only in the mask, and lets both translate."""
    split, random = language(seed), Random(seed)
    pairs = [[(said.english, random.choice(said.ways)) for said in part] for part in (split.train, split.test)]
    shown = (split.test[0], split.test[2], split.test[4])
    with material(pairs[0], pairs[1], seed) as given:
        models = [untrained(given.model, seed) for _ in range(2)]
        _mask(models[1], False)
        masked, unmasked = (_taught(model, given, split.test, shown, steps, seed) for model in models)
        _mask(models[1], True)
        later = _exact(models[1], given, split.test)
        tokens = sum(len(given.tokenizer.encode(hindi)) + 1 for _, hindi in pairs[1])  # and <end>
    floor = sum(math.log(len(said.ways)) for said in split.test) / tokens
    return Leak(masked, unmasked, later, floor, shown, len(split.test))


def _mask(model: Transformer, causal: bool) -> None:
    """Lets the decoder's self-attention see the words so far, or all of them."""
    assert model.decoder is not None
    for block in model.decoder.blocks:
        assert isinstance(block, Block)
        block.attention.causal = causal


def _taught(
    model: Transformer, given: Material, tested: Sequence[Sentence], shown: Sequence[Sentence], steps: int, seed: int
) -> Decoder:
    curve = train(model, given, steps, seed)
    peek, weights = _looking_ahead(model, given)
    exact = _exact(model, given, tested)
    found = translations(model, given.tokenizer, [said.english for said in shown])
    return Decoder(curve, exact, peek, weights, tuple(found))


def _exact(model: Transformer, given: Material, tested: Sequence[Sentence]) -> float:
    found = translations(model, given.tokenizer, [said.english for said in tested])
    return sum(text in said.ways for text, said in zip(found, tested, strict=True)) / len(tested)


@torch.no_grad()
def _looking_ahead(model: Transformer, given: Material) -> tuple[float, tuple[tuple[float, ...], ...]]:
    """The head that puts most weight on the next place. The decoder reads one place behind, so what stands there is the
    very word it is to say.
    """
    tokenizer = given.tokenizer
    source = Packed.of([[*tokenizer.encode(NOTES.english), tokenizer.end]])
    target = Packed.of([[tokenizer.start, *tokenizer.encode(NOTES.hindi)]])
    with trace(model, only="decoder.*.masked.weights") as t:
        model(source, target)
    heads = torch.cat([t[name, 0] for name in t.names("*.weights")])  # [layers · heads, queries, keys]
    ahead: Tensor = heads.diagonal(offset=1, dim1=-2, dim2=-1).mean(-1)  # [layers · heads]
    best = heads[int(ahead.argmax())]
    return float(ahead.max()), tuple(tuple(row) for row in best.tolist())


def story(result: Leak) -> Story:
    both = masked, unmasked = result.masked, result.open
    steps = masked.curve.steps
    shown = sorted({0, len(steps) // 4, len(steps) // 2, len(steps) - 1})
    rows = [(f"training loss, step {steps[i]}", *(f"{d.curve.train[i]:.4f}" for d in both)) for i in shown]
    rows += [
        ("loss on unseen sentences, given the right words", *(f"{d.curve.test[-1]:.4f}" for d in both)),
        ("most weight of a head on the next word", *(f"{d.peek:.2f}" for d in both)),
        (f"right translations of {result.tested}, written word by word", *(f"{d.exact:.0%}" for d in both)),
        ("  with the mask put back for writing", "", f"{result.exact_masked_later:.0%}"),
    ]
    said = tuple(
        (sentence.english if i == 0 else "", name, decoder.translations[number] or "(nothing)")
        for number, sentence in enumerate(result.shown)
        for i, (name, decoder) in enumerate((("with the mask", masked), ("without", unmasked)))
    )
    return Story(
        CLAIM,
        (Grid(("", "with the mask", "without"), tuple(rows), strong=(len(rows) - 2,)), Grid(("", "", ""), said)),
        f"{few_steps(masked.exact)}Hindi has two pasts, and two places for the time; guessing which comes costs "
        f"{result.floor:.3f} a token, and on unseen sentences an honest loss cannot do better. The loss without the mask "
        "does, by copying the next word from the decoder's own input; in writing there is no next word yet, and nothing "
        "was learned to find it.",
    )


def draw(result: Leak, path: Path | str) -> None:
    figure, (losses, left, right) = panels(3)
    for decoder, colour, name in ((result.masked, WITH, "with the mask"), (result.open, WITHOUT, "without")):
        curve = decoder.curve
        losses.plot(curve.steps, curve.train, color=colour, label=f"{name}: {decoder.exact:.0%} right")
        losses.plot(curve.steps, curve.test, color=colour, linestyle=":")
    level(losses, result.floor, "cost of guessing which comes")
    label(losses, "Loss (dotted: unseen sentences)", "step", "−ln p a token")
    for axes, decoder, name in ((left, result.masked, "with the mask"), (right, result.open, "without")):
        axes.imshow(decoder.weights, cmap="Blues", vmin=0, vmax=1)
        label(axes, f"A head, {name}: {decoder.peek:.2f} on the next word", "place looked at", "place", legend=False)
    hidden = [[float("nan") if j <= i else 1.0 for j in range(len(row))] for i, row in enumerate(result.masked.weights)]
    left.imshow(hidden, cmap="Greys", vmin=0, vmax=4)  # masked is not the same as 0
    save(figure, path)
