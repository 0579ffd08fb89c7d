"""`temperature`: from scores to probabilities, and how daring the choice is.

softmax(x / T): a small T always takes the best token, a large T any. The name comes from thermodynamics, where the same formula
says which states a warm body is found in. A story told at several temperatures shows the difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import label_axes, save_figure, subplots
from seq2see.course.lessons.models import find_language_model, resolve_decoder
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
from seq2see.decode.sampling import filter_logits
from seq2see.decode.search import Search
from seq2see.errors import UserError

LOGITS, PRINTED = (6.0, -5.0, 4.0, 1.5, 9.9), (0.19, 0.04, 0.14, 0.10, 0.35)
TEMPERATURES = (0.1, 0.5, 1.0, 2.0, 7.0)
STORY_TEMPERATURES = (0.0, 0.8, 1.5, 5.0)
STORY, SENTENCE = "Once upon a time, there was a", "The pizza came out of the oven and it tasted good."
STORY_TOKENS, SAMPLES = 24, 6


@dataclass(frozen=True)
class Telling:
    """What a model writes at one temperature."""

    temperature: float
    texts: tuple[str, ...]  # one of a language model; several translations


@dataclass(frozen=True)
class Result:
    logits: tuple[float, ...]
    printed: tuple[float, ...]
    temperatures: tuple[float, ...]
    probabilities: Matrix  # one row per temperature
    entropies: tuple[float, ...]  # of each row, relative to the uniform distribution
    mean_energies: tuple[float, ...]  # of each row, with the energy −x
    fitted_temperature: float  # best fit to the printed probabilities
    remainder: float  # probability that the printed ones leave for other tokens
    is_story: bool  # a language model tells the story; otherwise a translator translates the sentence
    prompt: str
    tellings: tuple[Telling, ...]


def compute(
    logits: Sequence[float] = LOGITS, printed: Sequence[float] = PRINTED, temperatures: Sequence[float] = TEMPERATURES,
    story: str = STORY, sentence: str = SENTENCE, story_temperatures: Sequence[float] = STORY_TEMPERATURES, seed: int = 1,
    model: Model | None = None,
) -> Result:  # fmt: skip
    """Applies temperatures to logits, and lets a model write at several temperatures."""
    if len(logits) != len(printed) or len(logits) < 2:
        raise UserError(
            f"{len(logits)} logits and {len(printed)} printed probabilities: needs equal numbers, at least 2 each"
        )
    if min(*temperatures, *printed) <= 0:
        raise UserError(f"temperatures {list(temperatures)} and probabilities {list(printed)}: all must be above 0")
    rows = tuple(softmax(logits, t) for t in temperatures)
    model = resolve_decoder(model)
    teller = find_language_model(model)
    if teller is not None:
        tellings = tuple(Telling(t, (_continue(teller, story, t, seed),)) for t in story_temperatures)
    else:
        tellings = tuple(Telling(t, _translate(model, sentence, t, seed)) for t in story_temperatures)
    return Result(
        tuple(logits), tuple(printed), tuple(temperatures), rows, tuple(map(_entropy, rows)),
        tuple(-sum(p * x for p, x in zip(row, logits, strict=True)) for row in rows), fit_temperature(logits, printed),
        1 - sum(printed), teller is not None, story if teller is not None else sentence, tellings,
    )  # fmt: skip


def softmax(logits: Sequence[float], temperature: float) -> tuple[float, ...]:
    """Computes the probabilities with the sampler's own function."""
    scaled = filter_logits(torch.tensor([list(logits)], dtype=torch.float64), Search(temperature=temperature))
    return tuple(scaled.softmax(-1)[0].tolist())


def _entropy(probabilities: Sequence[float]) -> float:
    return -sum(p * math.log(p) for p in probabilities if p > 0) / math.log(len(probabilities))


def fit_temperature(logits: Sequence[float], printed: Sequence[float]) -> float:
    """Fits ln p = x / T + constant by least squares."""
    x = torch.tensor(list(logits), dtype=torch.float64)
    y = torch.tensor([math.log(p) for p in printed], dtype=torch.float64)
    x, y = x - x.mean(), y - y.mean()
    return float(x.square().sum() / (x @ y))


def _continue(model: Model, story: str, temperature: float, seed: int) -> str:
    return model.generate(story, max_new_tokens=STORY_TOKENS, temperature=temperature, seed=seed)[0]


def _translate(model: Model, sentence: str, temperature: float, seed: int) -> tuple[str, ...]:
    count = SAMPLES if temperature else 1
    found = [
        model.translate_sentences([sentence], temperature=temperature, seed=seed + i, max_new_tokens=STORY_TOKENS)[0]
        for i in range(count)
    ]
    return tuple(found)


def describe(result: Result) -> LessonText:
    best = max(range(len(result.logits)), key=result.logits.__getitem__)
    names = [f"{x:g}".replace("-", "−") for x in result.logits]
    coldest, hottest = result.temperatures[0], result.temperatures[-1]
    return LessonText(
        "the same five scores at several temperatures. T divides the scores before the softmax.",
        (
            Bars(
                "softmax(x / T)",
                tuple(
                    (f"T = {t:g}", tuple(zip(names, row, strict=True)))
                    for t, row in zip(result.temperatures, result.probabilities, strict=True)
                ),
                1.0,
            ),
        ),
        (
            f"The best token has probability {result.probabilities[0][best]:.2f} at T = {coldest:g} and "
            f"{result.probabilities[-1][best]:.2f} at T = {hottest:g}.",
        ),
        "A smaller T is sharper, a larger T flatter. T → 0 always takes the best token; T → ∞ takes any. The order of "
        "the tokens never changes.",
        Library(
            'model.generate("Once upon a time", temperature=0.8)\n# or: seq2see generate MODEL "Once upon a time" '
            "--temperature 0.8",
            "decode/sampling.py",
            (ViewLink("sample with a slider", "translate", {"text": SENTENCE, "search": "sample", "temperature": 2}),),
        ),
        (
            _story_section(result),
            _physics_section(result),
            Section(
                "All probabilities",
                (
                    Table(
                        ("logit", *(f"T = {t:g}" for t in result.temperatures)),
                        tuple((name, *(row[i] for row in result.probabilities)) for i, name in enumerate(names)),
                        decimals=3,
                    ),
                ),
            ),
        ),
        (
            Try("Colder and hotter than anybody would.", {"temperatures": [0.01, 100]}),
            Try(
                "Let a language model of your own tell it.",
                {"story": "The little girl went into the wood"},
                options="--model DIRECTORY",
            ),
        ),
        _notes(),
    )


def _story_section(result: Result) -> Section:
    if result.is_story:
        rows = tuple((f"{each.temperature:g}", each.texts[0]) for each in result.tellings)
        return Section(
            "Goldilocks at several temperatures",
            (
                Table(("T", f"{result.prompt} …"), rows),
                "T = 0 always takes the most probable word: predictable, often repeating itself. A high T takes words "
                "that hardly fit. In between the story is neither dull nor mad.",
            ),
        )
    sampled = tuple(
        (f"{each.temperature:g}", len(set(each.texts)), len(each.texts), each.texts[0]) for each in result.tellings
    )
    return Section(
        "A translation at several temperatures",
        (
            Table(("T", "different", "of", "the first"), sampled, f"“{result.prompt}”, sampled:"),
            "The model in use translates, so it cannot tell a story; but it can be daring. At T = 0 there is one "
            "translation; the hotter, the more different ones, and the less they follow the source. With a language "
            f"model this part continues “{STORY} …”.",
        ),
    )


def _physics_section(result: Result) -> Section:
    return Section(
        "Why it is called temperature",
        (
            Table(
                ("T", "entropy", "mean energy"),
                tuple(
                    zip((f"{t:g}" for t in result.temperatures), result.entropies, result.mean_energies, strict=True)
                ),
                "With the energy −x. Entropy 0: always the same token; 1: all alike",
                3,
            ),
            "In a warm body a state of energy E occurs with a probability proportional to e^(−E/kT). Read the logit as "
            "−E, and it is the softmax. A cold body rests in its lowest state; heat it, and higher states appear, more "
            "of them the hotter it is: energy and entropy rise together, as in the table.",
        ),
    )


def _notes() -> tuple[Note, ...]:
    total, fitted = sum(PRINTED), fit_temperature(LOGITS, PRINTED)
    reconstructed = ", ".join(f"{total * p:.2f}" for p in softmax(LOGITS, fitted))
    return (
        Note(
            LANGUAGE_MODELS,
            "The probabilities printed next to the logits are not their softmax at T = 1 (which gives the best token "
            f"{softmax(LOGITS, 1.0)[4]:.2f}, not 0.35). They add to {total:.2f}, which leaves {1 - total:.2f} for other "
            f"tokens, and fit T = {fitted:.1f}: {total:.2f} · softmax(x/{fitted:.1f}) is {reconstructed}.",
        ),
        Note(
            LANGUAGE_MODELS, 'The exponent is written "x/b" in the numerator and "x/T" in the denominator: T in both.'
        ),
        Note(
            LANGUAGE_MODELS,
            "“True derivative of Goldilocks” stands beside the low temperature: a trite story, the most predictable "
            "words, as in the first line above.",
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    return (
        Exercise(
            "Two tokens have the logits 2 and 0. What is the probability of the first at T = 1?",
            softmax([2, 0], 1.0)[0],
            "e² / (e² + 1).",
        ),
        Exercise("And at T = 2?", softmax([2, 0], 2.0)[0], "e¹ / (e¹ + 1): flatter."),
        Exercise("And for T → ∞?", softmax([2, 0], 1e6)[0], "All tokens alike: 1/2."),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1)
    width = 0.8 / len(result.temperatures)
    for i, (t, row) in enumerate(zip(result.temperatures, result.probabilities, strict=True)):
        axes.bar([j + i * width for j in range(len(row))], row, width, label=f"T = {t:g}")
    axes.set_xticks([j + 0.4 - width / 2 for j in range(len(result.logits))], [f"{x:g}" for x in result.logits])
    label_axes(axes, "softmax(x / T)", "logit x", "probability")
    save_figure(figure, path)
