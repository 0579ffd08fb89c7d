"""`scaling`: why scores are divided by √d. The variance of a dot product grows with the number of dimensions.

Measured on random vectors and on a model's own queries and keys, cut to their first d numbers, with what softmax makes of the
scores. What that does to a model in training is the lesson `saturation`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.models import bundled, read, reader
from seq2see.course.lessons.pictures import WITH, WITHOUT, label, panels, save
from seq2see.course.lessons.render import Grid, Story
from seq2see.errors import UserError
from seq2see.presets import preset

DIMENSIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
KEYS = 10  # that a query chooses between
SENTENCES = ("I like eating ice-cream.", "The man saw the astronomer with a telescope.", "We are friends.")


@dataclass(frozen=True)
class Spread:
    """Dot products in so many dimensions."""

    dimensions: int
    variance: float  # of q · k
    scaled: float  # of q · k / √d
    largest: float  # the weight of the key looked at most, of ten, by softmax of q · k
    largest_scaled: float


@dataclass(frozen=True)
class Scaling:
    samples: int
    product: float  # Var(X): the variance of the product of two random numbers
    random: tuple[Spread, ...]
    multiples: tuple[tuple[float, float], ...]  # c and Var(c · X) / Var(X)
    real: tuple[Spread, ...]  # by a model's own queries and keys
    real_product: float  # the mean variance of one product q_i · k_i


def scaling(
    dimensions: Sequence[int] = DIMENSIONS, samples: int = 2000, sentences: Sequence[str] = SENTENCES, seed: int = 1,
    model: Model | None = None,
) -> Scaling:  # fmt: skip
    """Random vectors of each width, and real ones."""
    if samples < 2 or not dimensions or min(dimensions) < 1:
        raise UserError(f"{samples} samples of dimensions {list(dimensions)}: at least 2, and widths from 1 up")
    random = torch.Generator().manual_seed(seed)
    widest = max(dimensions)
    q = torch.randn(samples, widest, generator=random, dtype=torch.float64)
    k = torch.randn(samples, KEYS, widest, generator=random, dtype=torch.float64)
    x = q[:, 0] * k[:, 0, 0]
    multiples = tuple((c, float((c * x).var() / x.var())) for c in (2.0, 0.5, 1 / 2**0.5))
    pairs = [_heads(bundled(model), sentence) for sentence in sentences]
    width = pairs[0][0].shape[-1]
    real = tuple(_real(pairs, d) for d in (2**n for n in range(width.bit_length())) if d <= width)
    products = torch.cat([(a[:, :, None] * b[:, None]).flatten(0, -2) for a, b in pairs])  # [pairs, d]
    spreads = tuple(_spread(torch.einsum("sd,smd->sm", q[:, :d], k[..., :d]), d) for d in dimensions)
    return Scaling(samples, float((q[:, :1] * k[:, 0]).var()), spreads, multiples, real, float(products.var(0).mean()))


def _spread(scores: Tensor, d: int) -> Spread:
    scaled = scores / d**0.5
    largest = [float(table.softmax(-1).amax(-1).mean()) for table in (scores, scaled)]
    return Spread(d, float(scores.var()), float(scaled.var()), largest[0], largest[1])


def _heads(model: Model, sentence: str) -> tuple[Tensor, Tensor]:
    """Queries and keys of every head of every layer, [layers · heads, n, d] each."""
    e = read(model, sentence)
    made = [
        torch.cat([e.trace[f"{place}.{name}"].transpose(0, 1).double() for place in reader(e).places])
        for name in ("queries", "keys")
    ]
    return made[0], made[1].repeat_interleave(len(made[0]) // len(made[1]), 0)


def _real(pairs: Sequence[tuple[Tensor, Tensor]], d: int) -> Spread:
    """Of unlike lengths, so sentence by sentence; a mean over all rows."""
    spreads = [_spread((q[..., :d] @ k[..., :d].mT).flatten(0, 1), d) for q, k in pairs]
    numbers = [
        sum(getattr(s, name) for s in spreads) / len(spreads)
        for name in ("variance", "scaled", "largest", "largest_scaled")
    ]
    return Spread(d, *numbers)


def story(result: Scaling) -> Story:
    columns = ("d", "Var(q·k)", "Var(q·k) / d", "Var(q·k/√d)", "largest weight", "after /√d")

    def rows(spreads: Sequence[Spread]) -> tuple[tuple[float, ...], ...]:
        return tuple(
            (s.dimensions, s.variance, s.variance / s.dimensions, s.scaled, s.largest, s.largest_scaled)
            for s in spreads
        )

    times = ", ".join(f"c = {c:.3g}: {ratio:.3g}" for c, ratio in result.multiples)
    first, last, real = result.random[0], result.random[-1], result.real[-1]
    paper = preset("paper-base")
    return Story(
        'why √d_k. The notes: "1 dim → Var(X), 2 dim → 2·Var(X) … d dim → d·Var(X)", X the product of one number of q '
        "and one of k; Y = cX has c²·Var(X); so dividing by √d keeps the variance what it was.",
        (
            Grid(
                columns, rows(result.random),
                f"{result.samples:,} random queries of variance 1, each with {KEYS} keys (Var(X) = {result.product:.2f}):",
            ),
            f"Var(cX) / Var(X): {times}.",
            Grid(
                columns, rows(result.real),
                "A trained model's own queries and keys, cut to their first d numbers (mean Var(qᵢkᵢ) = "
                f"{result.real_product:.2f}):",
            ),
        ),
        f"undivided, softmax of {last.dimensions} dimensions gives {last.largest:.0%} to one of {KEYS} keys, by chance "
        f"alone; divided, {last.largest_scaled:.0%}, near the {first.largest_scaled:.0%} of one dimension. d · Var(X) "
        "holds where the products do not depend on each other. A trained model's do, for its queries and keys agree on "
        f"purpose: its Var(q·k) grows faster, to {real.variance / real.dimensions:.2f} a dimension.",
        (
            'd_k is called the "dimension of context embeddings" and, in the pizza example, the "encoded word dimension '
            f'size". It is the width of a key: with the paper\'s {paper.heads} heads {paper.width_of_head}, not '
            f"{paper.width}.",
        ),
    )  # fmt: skip


def draw(result: Scaling, path: Path | str) -> None:
    figure, (variance, weight) = panels(2)
    d = [s.dimensions for s in result.random]
    for name, colour, text in (("variance", WITHOUT, "q · k"), ("scaled", WITH, "q · k / √d")):
        variance.plot(d, [getattr(s, name) for s in result.random], "o-", color=colour, label=f"{text}, random")
        variance.plot(
            [s.dimensions for s in result.real], [getattr(s, name) for s in result.real], "x:", color=colour,
            label=f"{text}, a model's own",
        )  # fmt: skip
    variance.set_yscale("log", base=2)
    for name, colour, text in (("largest", WITHOUT, "q · k"), ("largest_scaled", WITH, "q · k / √d")):
        weight.plot(d, [getattr(s, name) for s in result.random], "o-", color=colour, label=f"softmax of {text}")
    for axes in (variance, weight):
        axes.set_xscale("log", base=2)
    label(variance, "Variance of a dot product", "dimensions d", "variance")
    label(weight, f"Weight of the largest of {KEYS} keys", "dimensions d", "mean weight")
    save(figure, path)
