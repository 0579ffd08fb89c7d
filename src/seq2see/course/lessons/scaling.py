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
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, resolve_model
from seq2see.course.lessons.render import LessonText, Table
from seq2see.errors import UserError
from seq2see.presets import preset

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
    return Result(samples, float((q[:, :1] * k[:, 0]).var()), spreads, multiples, real, float(products.var(0).mean()))


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
    paper = preset("paper-base")
    return LessonText(
        'Why √d_k. The notes: "1 dim → Var(X), 2 dim → 2·Var(X) … d dim → d·Var(X)", where X is the product of one number '
        "of q and one of k; Y = cX has c²·Var(X); so dividing by √d keeps the variance constant.",
        (
            Table(
                columns, rows(result.random),
                f"{result.samples:,} random queries of variance 1, each with {KEYS} keys "
                f"(Var(X) = {result.product_variance:.2f}):",
            ),
            f"Var(cX) / Var(X): {ratios}.",
            Table(
                columns, rows(result.real),
                "The queries and keys of a trained model, truncated to their first d numbers (mean Var(qᵢkᵢ) = "
                f"{result.real_product_variance:.2f}):",
            ),
        ),
        f"Without scaling, the softmax in {last.dimensions} dimensions gives {last.largest:.0%} to one of {KEYS} random "
        f"keys; with scaling {last.largest_scaled:.0%}, close to the {first.largest_scaled:.0%} of one dimension. d · Var(X) "
        "assumes that the products are independent. In a trained model they are not, because queries and keys are learned "
        f"to match: its Var(q·k) grows faster, to {real.variance / real.dimensions:.2f} per dimension.",
        (
            'd_k is called the "dimension of context embeddings" and, in the pizza example, the "encoded word dimension '
            f'size". It is the width of a key: {paper.actual_head_width} with the {paper.heads} heads of the paper, not '
            f"{paper.width}.",
        ),
    )  # fmt: skip


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
