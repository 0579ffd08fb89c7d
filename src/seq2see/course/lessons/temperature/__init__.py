"""`temperature`: from scores to probabilities, and how daring the choice is.

softmax(x / T): a small T always takes the best token, a large T any. The name comes from thermodynamics, where the same formula
says which states a warm body is found in. A story told at several temperatures shows the difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from seq2see.course.lessons import kit
from seq2see.decode.sampling import filter_logits
from seq2see.decode.search import Search

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
    probabilities: kit.Matrix  # one row per temperature
    entropies: tuple[float, ...]  # of each row, relative to the uniform distribution
    mean_energies: tuple[float, ...]  # of each row, with the energy −x
    fitted_temperature: float  # best fit to the printed probabilities
    remainder: float  # probability that the printed ones leave for other tokens
    is_story: bool  # a language model tells the story; otherwise a translator translates the sentence
    prompt: str
    tellings: tuple[Telling, ...]


def compute(
    logits: Sequence[float] = LOGITS,
    printed: Annotated[Sequence[float], kit.Bounds(1e-9, 1)] = PRINTED,
    temperatures: Annotated[Sequence[float], kit.Bounds(0.01, 1000)] = TEMPERATURES,
    story: str = STORY,
    sentence: str = SENTENCE,
    story_temperatures: Annotated[Sequence[float], kit.Bounds(0, 1000, max_items=6)] = STORY_TEMPERATURES,
    seed: kit.Seed = 1,
    model: kit.Model | None = None,
) -> Result:
    """Applies temperatures to logits, and lets a model write at several temperatures."""
    if len(logits) != len(printed) or len(logits) < 2:
        raise kit.UserError(
            f"{len(logits)} logits and {len(printed)} printed probabilities: needs equal numbers, at least 2 each"
        )
    if min(*temperatures, *printed) <= 0:
        raise kit.UserError(f"temperatures {list(temperatures)} and probabilities {list(printed)}: all must be above 0")
    rows = tuple(softmax(logits, t) for t in temperatures)
    model = kit.resolve_decoder(model)
    teller = kit.find_language_model(model)
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


def _continue(model: kit.Model, story: str, temperature: float, seed: int) -> str:
    return model.generate(story, max_new_tokens=STORY_TOKENS, temperature=temperature, seed=seed)[0]


def _translate(model: kit.Model, sentence: str, temperature: float, seed: int) -> tuple[str, ...]:
    count = SAMPLES if temperature else 1
    found = [
        model.translate_sentences([sentence], temperature=temperature, seed=seed + i, max_new_tokens=STORY_TOKENS)[0]
        for i in range(count)
    ]
    return tuple(found)


def values(result: Result) -> kit.Values:
    names = [f"{x:g}".replace("-", "−") for x in result.logits]
    best = max(range(len(names)), key=result.logits.__getitem__)
    headings = [f"T = {t:g}" for t in result.temperatures]
    total, fitted = sum(PRINTED), fit_temperature(LOGITS, PRINTED)
    return {
        "bars_by_temperature": [
            (heading, list(zip(names, row, strict=True)))
            for heading, row in zip(headings, result.probabilities, strict=True)
        ],
        "headings": headings,
        "coldest_best": result.probabilities[0][best],
        "hottest_best": result.probabilities[-1][best],
        "rows": [(name, *(row[i] for row in result.probabilities)) for i, name in enumerate(names)],
        "physics": [
            (f"{t:g}", *row)
            for t, *row in zip(result.temperatures, result.entropies, result.mean_energies, strict=True)
        ],
        "samples": [
            (f"{each.temperature:g}", len(set(each.texts)), len(each.texts), each.texts[0]) for each in result.tellings
        ],
        "notes_best": softmax(LOGITS, 1.0)[4],
        "notes_total": total,
        "notes_fitted": fitted,
        "notes_reconstructed": [total * p for p in softmax(LOGITS, fitted)],
    }


def answers() -> kit.Values:
    return {"warm": softmax([2, 0], 1.0)[0], "warmer": softmax([2, 0], 2.0)[0], "hot": softmax([2, 0], 1e6)[0]}
