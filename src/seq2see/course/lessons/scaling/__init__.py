"""`scaling`: why scores are divided by √d. The variance of a dot product grows with the number of dimensions.

Measured on random vectors and on a model's own queries and keys, truncated to their first d numbers, together with the
softmax of the scores. The lesson `saturation` shows the effect on training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from seq2see.course.lessons import kit
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
    dimensions: Annotated[Sequence[int], kit.Bounds(1, 512)] = DIMENSIONS,
    samples: Annotated[int, kit.Bounds(2, 4000)] = 2000,
    sentences: Sequence[str] = SENTENCES,
    seed: kit.Seed = 1,
    model: kit.Model | None = None,
) -> Result:
    """Measures dot products of random vectors of several widths, and of a model's queries and keys."""
    if samples < 2 or not dimensions or min(dimensions) < 1:
        raise kit.UserError(
            f"{samples} samples of dimensions {list(dimensions)}: needs at least 2 samples, and dimensions of at least 1"
        )
    random = torch.Generator().manual_seed(seed)
    widest = max(dimensions)
    q = torch.randn(samples, widest, generator=random, dtype=torch.float64)
    k = torch.randn(samples, KEYS, widest, generator=random, dtype=torch.float64)
    x = q[:, 0] * k[:, 0, 0]
    multiples = tuple((c, float((c * x).var() / x.var())) for c in (2.0, 0.5, 1 / 2**0.5))
    pairs = [_queries_and_keys(kit.resolve_model(model), sentence) for sentence in sentences]
    width = pairs[0][0].shape[-1]
    real = tuple(_mean_spread(pairs, d) for d in (2**n for n in range(width.bit_length())) if d <= width)
    products = torch.cat([(a[:, :, None] * b[:, None]).flatten(0, -2) for a, b in pairs])  # [pairs, d]
    spreads = tuple(_spread(torch.einsum("sd,smd->sm", q[:, :d], k[..., :d]), d) for d in dimensions)
    return Result(
        samples,
        float((q[:, :1] * k[:, 0]).var()),
        spreads,
        multiples,
        real,
        float(products.var(0).mean()),
        tuple(sentences),
    )


def _spread(scores: Tensor, d: int) -> Spread:
    scaled = scores / d**0.5
    largest = [float(table.softmax(-1).amax(-1).mean()) for table in (scores, scaled)]
    return Spread(d, float(scores.var()), float(scaled.var()), largest[0], largest[1])


def _queries_and_keys(model: kit.Model, sentence: str) -> tuple[Tensor, Tensor]:
    """Returns the queries and keys of all heads of all layers, [layers · heads, n, d] each."""
    e = kit.explain_sentence(model, sentence)
    queries, keys = (
        torch.cat(
            [e.trace[f"{name}.{part}", 0].transpose(0, 1).double() for name in kit.input_stack(e).attention_names]
        )
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


def values(result: Result) -> kit.Values:
    def rows(spreads: Sequence[Spread]) -> list[tuple[float, ...]]:
        return [
            (s.dimensions, s.variance, s.variance / s.dimensions, s.scaled, s.largest, s.largest_scaled)
            for s in spreads
        ]

    real, shown = result.real[-1], result.random[:: max(1, len(result.random) // 4)]
    return {
        "largest": [(f"d = {s.dimensions}", s.largest) for s in shown],
        "largest_scaled": [(f"d = {s.dimensions}", s.largest_scaled) for s in shown],
        "random_rows": rows(result.random),
        "real_rows": rows(result.real),
        "per_dimension": real.variance / real.dimensions,
        "is_learned": real.variance / real.dimensions > result.real_product_variance,
        "paper": preset("paper-base"),
    }


def answers() -> kit.Values:
    random = torch.Generator().manual_seed(5)
    q, k = (torch.randn(200_000, 16, generator=random, dtype=torch.float64) for _ in range(2))
    x = torch.tensor([8.0, 0.0], dtype=torch.float64)
    weights = [float(scores.softmax(-1)[0]) for scores in (x / 64**0.5, x)]
    return {"measured": float((q * k).sum(-1).var()), "divided": weights[0], "undivided": weights[1]}
