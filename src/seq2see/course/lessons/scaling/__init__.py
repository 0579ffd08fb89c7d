"""`scaling`: why scores are divided by √d. The variance of a dot product grows with the number of dimensions.

Measured on random vectors and on a model's own queries and keys, truncated to their first d numbers, together with the
softmax of the scores. The lesson `saturation` shows the effect on training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, resolve_model
from seq2see.course.lessons.render import ATTENTION, Bars, LessonText, Library, Note, Section, Table, Try, ViewLink
from seq2see.errors import UserError
from seq2see.train.presets import preset

DIMENSIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
KEYS = 10  # per random query
SENTENCES = ("I like eating ice-cream.", "The man saw the astronomer with a telescope.", "We are friends.")


@dataclass(frozen=True)
class Spread:
    """Statistics of dot products in a number of dimensions."""

    dimensions: int
    variance: float  # of q · k
    scaled: float  # of q · k / √d
    largest: float  # mean largest attention weight, by softmax of q · k
    largest_scaled: float  # by softmax of q · k / √d


@dataclass(frozen=True)
class Result:
    samples: int
    product_variance: float  # Var(X), X the product of two random numbers
    random: tuple[Spread, ...]
    multiples: tuple[tuple[float, float], ...]  # (c, Var(c · X) / Var(X))
    real: tuple[Spread, ...]  # a model's own queries and keys
    real_product_variance: float  # mean variance of one product q_i · k_i
    sentences: tuple[str, ...]  # that the model read


def compute(
    dimensions: Sequence[int] = DIMENSIONS, samples: int = 2000, sentences: Sequence[str] = SENTENCES, seed: int = 1,
    model: Model | None = None,
) -> Result:  # fmt: skip
    """Measures dot products of random vectors of several widths, and of a model's queries and keys."""
    if samples < 2 or not dimensions or min(dimensions) < 1:
        raise UserError(
            f"{samples} samples of dimensions {list(dimensions)}: needs at least 2 samples, and dimensions of at least 1"
        )
    random = torch.Generator().manual_seed(seed)
    widest = max(dimensions)
    q = torch.randn(samples, widest, generator=random, dtype=torch.float64)
    k = torch.randn(samples, KEYS, widest, generator=random, dtype=torch.float64)
    x = q[:, 0] * k[:, 0, 0]
    multiples = tuple((c, float((c * x).var() / x.var())) for c in (2.0, 0.5, 1 / 2**0.5))
    pairs = [_queries_and_keys(resolve_model(model), sentence) for sentence in sentences]
    width = pairs[0][0].shape[-1]
    real = tuple(_mean_spread(pairs, d) for d in (2**n for n in range(width.bit_length())) if d <= width)
    products = torch.cat([(a[:, :, None] * b[:, None]).flatten(0, -2) for a, b in pairs])  # [pairs, d]
    spreads = tuple(_spread(torch.einsum("sd,smd->sm", q[:, :d], k[..., :d]), d) for d in dimensions)
    return Result(
        samples, float((q[:, :1] * k[:, 0]).var()), spreads, multiples, real, float(products.var(0).mean()), tuple(sentences)
    )  # fmt: skip


def _spread(scores: Tensor, d: int) -> Spread:
    scaled = scores / d**0.5
    largest = [float(table.softmax(-1).amax(-1).mean()) for table in (scores, scaled)]
    return Spread(d, float(scores.var()), float(scaled.var()), largest[0], largest[1])


def _queries_and_keys(model: Model, sentence: str) -> tuple[Tensor, Tensor]:
    """Returns the queries and keys of all heads of all layers, [layers · heads, n, d] each."""
    e = explain_sentence(model, sentence)
    queries, keys = (
        torch.cat([e.trace[f"{name}.{part}"].transpose(0, 1).double() for name in input_stack(e).attention_names])
        for part in ("queries", "keys")
    )
    return queries, keys.repeat_interleave(len(queries) // len(keys), 0)


def _mean_spread(pairs: Sequence[tuple[Tensor, Tensor]], d: int) -> Spread:
    """Averages over sentences, which differ in length."""
    spreads = [_spread((q[..., :d] @ k[..., :d].mT).flatten(0, 1), d) for q, k in pairs]
    means = [
        sum(getattr(s, name) for s in spreads) / len(spreads)
        for name in ("variance", "scaled", "largest", "largest_scaled")
    ]
    return Spread(d, *means)


def describe(result: Result) -> LessonText:
    columns = ("d", "Var(q·k)", "Var(q·k) / d", "Var(q·k/√d)", "largest weight", "after /√d")

    def rows(spreads: Sequence[Spread]) -> tuple[tuple[float, ...], ...]:
        return tuple(
            (s.dimensions, s.variance, s.variance / s.dimensions, s.scaled, s.largest, s.largest_scaled)
            for s in spreads
        )

    ratios = ", ".join(f"c = {c:.3g}: {ratio:.3g}" for c, ratio in result.multiples)
    first, last, real = result.random[0], result.random[-1], result.real[-1]
    shown = result.random[:: max(1, len(result.random) // 4)]
    per_dimension, single = real.variance / real.dimensions, result.real_product_variance
    return LessonText(
        f"the largest of {KEYS} softmax weights. The keys are random, so none deserves more than the others. Without the "
        "division one of them still takes nearly everything once the vectors are long.",
        (
            Bars(
                f"Mean largest weight of {KEYS} random keys",
                (
                    ("softmax(q · k)", tuple((f"d = {s.dimensions}", s.largest) for s in shown)),
                    ("softmax(q · k / √d)", tuple((f"d = {s.dimensions}", s.largest_scaled) for s in shown)),
                ),
                1.0,
            ),
        ),
        (
            f"The variance of q · k is {first.variance:.2f} in {first.dimensions} dimension and {last.variance:.0f} in "
            f"{last.dimensions}. Divided by √d it is {first.scaled:.2f} and {last.scaled:.2f}.",
        ),
        "Each dimension adds its own variance, so that of a dot product grows like d. Dividing by c divides a variance by c²: "
        "√d undoes exactly this growth, and the softmax works alike at any width.",
        Library(
            'scores = q @ k.T\nscaled = scores / sqrt(d_k)                     # the tap "scaled"',
            "model/attention.py",
            (ViewLink("scores before and after", "microscope", {"text": result.sentences[0], "step": "scaled"}),),
        ),
        (
            Section(
                "Random vectors, dimension by dimension",
                (
                    Table(
                        columns,
                        rows(result.random),
                        f"{result.samples:,} random queries of variance 1, each with {KEYS} keys "
                        f"(Var(X) = {result.product_variance:.2f}, X one product qᵢkᵢ):",
                    ),
                    f"Var(cX) / Var(X): {ratios}.",
                ),
            ),
            Section(
                "The queries and keys of a trained model",
                (
                    Table(
                        columns,
                        rows(result.real),
                        f"All heads, truncated to their first d numbers (mean Var(qᵢkᵢ) = {single:.2f}):",
                    ),
                    f"d · Var(X) assumes independent products. Here Var(q·k) is {per_dimension:.2f} per dimension at d = "
                    f"{real.dimensions}, {'more' if per_dimension > single else 'not more'} than the {single:.2f} of a single "
                    "product" + (": queries and keys were learned to match." if per_dimension > single else "."),
                ),
            ),
        ),
        (Try("Only a few dimensions: when does it begin to matter?", {"dimensions": [1, 2, 3, 4, 6, 8]}),),
        _notes(),
    )


def _notes() -> tuple[Note, ...]:
    paper = preset("paper-base")
    return (
        Note(
            ATTENTION,
            "“1 dim → Var(X), 2 dim → 2·Var(X) … d dim → d·Var(X)” and Var(cX) = c²·Var(X), as measured above. d_k is called "
            "the “dimension of context embeddings”, and in the slides the “encoded word dimension size”. It is the width of a "
            f"key: {paper.actual_head_width} with the {paper.heads} heads of the paper, not {paper.width}.",
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    random = torch.Generator().manual_seed(5)
    q, k = (torch.randn(200_000, 16, generator=random, dtype=torch.float64) for _ in range(2))
    measured = float((q * k).sum(-1).var())
    x = torch.tensor([8.0, 0.0], dtype=torch.float64)
    return (
        Exercise(
            "One product qᵢkᵢ has variance 1. What variance has a dot product in 16 dimensions?",
            16.0,
            f"16 · Var(X). Measured just now on random vectors: {measured:.2f}.",
            tolerance=0.5,
        ),
        Exercise(
            "By what must it be divided to have variance 1 again?",
            16**0.5,
            "√16: dividing by c divides a variance by c².",
        ),
        Exercise(
            "Two scores are 8 and 0, with d = 64. What is the larger weight after dividing by √d?",
            float((x / 64**0.5).softmax(-1)[0]),
            f"8 / 8 = 1, and e / (e + 1). Without the division it would be {float(x.softmax(-1)[0]):.4f}.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (variance, weight) = subplots(2)
    d = [s.dimensions for s in result.random]
    for name, colour, text in (("variance", ORANGE, "q · k"), ("scaled", BLUE, "q · k / √d")):
        variance.plot(d, [getattr(s, name) for s in result.random], "o-", color=colour, label=f"{text}, random")
        variance.plot(
            [s.dimensions for s in result.real], [getattr(s, name) for s in result.real], "x:", color=colour,
            label=f"{text}, trained model",
        )  # fmt: skip
    variance.set_yscale("log", base=2)
    for name, colour, text in (("largest", ORANGE, "q · k"), ("largest_scaled", BLUE, "q · k / √d")):
        weight.plot(d, [getattr(s, name) for s in result.random], "o-", color=colour, label=f"softmax of {text}")
    for axes in (variance, weight):
        axes.set_xscale("log", base=2)
    label_axes(variance, "Variance of a dot product", "dimensions d", "variance")
    label_axes(weight, f"Weight of the largest of {KEYS} keys", "dimensions d", "mean weight")
    save_figure(figure, path)
