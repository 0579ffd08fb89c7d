"""`layers`: the prediction of every layer at every position (the logit lens).

The output projection is applied not only to the last layer but to the vectors between the layers, as if the model had to answer
there. It shows where in the model an answer forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix
from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_next, resolve_decoder
from seq2see.course.lessons.render import (
    LANGUAGE_MODELS,
    Bars,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
    ViewLink,
)
from seq2see.inspect.logit_lens import logit_lens

TokenProbability = tuple[str, float]


@dataclass(frozen=True)
class Layer:
    name: str
    top: tuple[TokenProbability, ...]  # the most probable token at each position
    target_probabilities: tuple[float, ...]
    target_ranks: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    source: str
    output: str
    is_language_model: bool
    inputs: tuple[str, ...]
    targets: tuple[str, ...]  # the last is the model's own choice
    vocab_size: int
    layers: tuple[Layer, ...]
    settled: tuple[
        int, ...
    ]  # per position, the first layer from which on the target ranks first; the number of layers if none

    @property
    def probabilities(self) -> Matrix:
        return tuple(layer.target_probabilities for layer in self.layers)


def compute(sentence: str = "The man saw the lion.", model: Model | None = None) -> Result:
    """Reads out the decoder's vectors before and after every block."""
    model = resolve_decoder(model)
    e = explain_next(model, sentence)
    lens = logit_lens(e, top=1)
    layers = tuple(
        Layer(
            _layer_name(name), tuple(each.top[0] for each in row), tuple(each.probability for each in row),
            tuple(each.rank for each in row),
        )
        for name, row in zip(lens.layers, lens.readings, strict=True)
    )  # fmt: skip
    settled = tuple(_settled([layer.target_ranks[i] for layer in layers]) for i in range(len(e.target_tokens)))
    config = model.config.model
    return Result(
        sentence, e.output, config.shape == "decoder", e.decoder_input_tokens, e.target_tokens, config.vocab_size, layers,
        settled,
    )  # fmt: skip


def _settled(ranks: list[int]) -> int:
    """The first layer from which on the rank is 1."""
    first = len(ranks)
    while first and ranks[first - 1] == 1:
        first -= 1
    return first


def _layer_name(name: str) -> str:
    return "embedding" if name.endswith(("input", "decoder.norm.output")) else f"block {name.split('.')[1]}"


def describe(result: Result) -> LessonText:
    names = [layer.name for layer in result.layers]
    before_last = result.layers[-2].target_ranks if len(names) > 1 else (1,) * len(result.targets)
    shown = max(range(len(result.targets)), key=before_last.__getitem__)  # decided latest
    early = [t for t, settled in zip(result.targets, result.settled, strict=True) if settled < len(names) - 1]
    late = [t for t, settled in zip(result.targets, result.settled, strict=True) if settled == len(names) - 1]
    never = [t for t, settled in zip(result.targets, result.settled, strict=True) if settled == len(names)]
    what = "the next token of the text" if result.is_language_model else "the next word of the translation"
    return LessonText(
        f"the probability of “{result.targets[shown]}”, {what}, if the model had to answer after each layer.",
        (
            Bars(
                f"After “{result.inputs[shown]}”",
                (("", tuple((layer.name, layer.target_probabilities[shown]) for layer in result.layers)),),
                1.0,
            ),
        ),
        (
            Table(
                ("target", *names),
                tuple(
                    (target, *(layer.target_ranks[i] for layer in result.layers))
                    for i, target in enumerate(result.targets)
                ),
                f"Rank of each target among {result.vocab_size:,} tokens:",
            ),
        ),
        "The same output matrix reads every layer. "
        + (
            f"Settled before the last layer: {_list(early)}. "
            if early
            else "No word is settled before the last layer. "
        )
        + (f"Only in the last: {_list(late)}. " if late else "")
        + (f"Never first: {_list(never)}. " if never else "")
        + "A layer was not trained to be read this way, so early readings are hints, not beliefs.",
        Library(
            'from seq2see.inspect.logit_lens import logit_lens\nlogit_lens(model.explain("The man saw the lion.")).readings',
            "inspect/logit_lens.py",
            (ViewLink("the lens for this sentence", "walk", {"text": result.source}),),
        ),
        (
            Section(
                "The best token after each layer",
                (
                    Table(
                        ("target", *names),
                        tuple(
                            (target, *(f"{layer.top[i][0]} {layer.top[i][1]:.2f}" for layer in result.layers))
                            for i, target in enumerate(result.targets)
                        ),
                        f"{result.source}" + (f" → {result.output}" if not result.is_language_model else ""),
                    ),
                ),
            ),
        ),
        (Try("Another sentence.", {"sentence": "We are friends"}),),
        (
            Note(
                LANGUAGE_MODELS,
                "Asked there: why do the other vectors just sit there? They too predict, each what goes right after it, and so "
                "does every layer; the notes leave the layers open.",
            ),
        ),
    )


def _list(tokens: Sequence[str]) -> str:
    different = list(dict.fromkeys(tokens))
    return ", ".join(different[:8]) + " …" * (len(different) > 8)


def exercises() -> tuple[Exercise, ...]:
    table = torch.tensor([[2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)  # two tokens
    early, late = torch.tensor([1.0, 0.2], dtype=torch.float64), torch.tensor([1.0, 1.5], dtype=torch.float64)
    tokens = ("lion", "tiger")
    return (
        choose(
            "The tokens lion (2, 0) and tiger (0, 3); after the first layer the vector is (1, 0.2). Which would be chosen?",
            tokens,
            lambda token: float(table[tokens.index(token)] @ early),
            "Logits 2 and 0.6.",
        ),
        choose(
            "After the second layer it is (1, 1.5). And now?",
            tokens,
            lambda token: float(table[tokens.index(token)] @ late),
            "Logits 2 and 4.5: the second layer changed the answer.",
        ),
        Exercise("With which probability, then?", float((table @ late).softmax(-1)[1]), "e^4.5 / (e² + e^4.5)."),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1, any_script=True)
    heatmap(
        axes, result.probabilities, [layer.name for layer in result.layers], result.targets, "p of the target, by layer"
    )
    save_figure(figure, path)
