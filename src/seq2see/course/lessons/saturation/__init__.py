"""`saturation`: the same translator trained with and without dividing the scores by √d.

First the cause, before any training: the variance of the dot product of a model's queries and keys grows with the head
width. Then the effect: the softmax of large scores is nearly one-hot and passes hardly any gradient to queries and keys, so
the model learns slowly where to attend.

Shapes: S sequences, H heads, L queries and M keys in the longest.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.course.lessons.toy_language import toy_corpus
from seq2see.inspect.interventions import intervene, scale
from seq2see.inspect.trace import trace
from seq2see.model.attention import attention_mask
from seq2see.model.taps import ActiveTaps, HookPoint
from seq2see.model.transformer import Transformer
from seq2see.train.loss import cross_entropy

WIDTH = 128
HEAD_WIDTHS = (8, 16, 32, 64, 128)  # the last is trained
COLUMNS = ("entropy", "passed", "query\ngradient", "test\nloss")


@dataclass(frozen=True)
class Spread:
    """Statistics of dot products in the first encoder attention of an untrained model."""

    head_width: int
    product: float  # variance of one q_i · k_i
    score: float  # variance of q · k
    scaled: float  # variance of q · k / √d
    largest: float  # mean largest attention weight, by softmax of the unscaled scores
    largest_scaled: float  # by softmax of the scaled scores


@dataclass(frozen=True)
class Probe:
    """Statistics of all attentions of a model during training, on the test sentences."""

    step: int
    entropy: float  # of the weights, relative to the uniform distribution; 0 is one-hot
    passed: float  # norm of the gradient before the softmax relative to that after it: median over rows
    query: float  # norm of the gradient of the loss at a query: median
    key: float
    queries: float  # norm over all queries
    keys: float
    top_tenth: float  # share of the squared norm in the tenth of the queries with the largest gradients


@dataclass(frozen=True)
class TrainingRun:
    curve: kit.LossCurve
    probes: tuple[Probe, ...]


@dataclass(frozen=True)
class Result:
    spreads: tuple[Spread, ...]
    scaled: TrainingRun
    unscaled: TrainingRun  # not divided by √d


def compute(seed: kit.Seed = 1, steps: Annotated[int, kit.Bounds(10, 200)] = 150) -> Result:
    """Measures dot products before training, then trains two translators that differ only in the division by √d."""
    corpus = toy_corpus(seed)
    train_pairs, test_pairs = ([(s.english, s.hindi) for s in part] for part in (corpus.train, corpus.test))
    with kit.prepare_dataset(train_pairs, test_pairs, seed) as dataset:
        spreads = tuple(_spread(dataset, head_width, seed) for head_width in HEAD_WIDTHS)
        scaled, unscaled = (_train(dataset, is_scaled, steps, seed) for is_scaled in (True, False))
    return Result(spreads, scaled, unscaled)


def _build(dataset: kit.Dataset, head_width: int, seed: int) -> Transformer:
    config = replace(dataset.model_config, width=WIDTH, heads=WIDTH // head_width, feed_forward=2 * WIDTH)
    return kit.build_model(config, seed)


@torch.no_grad()
def _spread(dataset: kit.Dataset, head_width: int, seed: int) -> Spread:
    model, batch = _build(dataset, head_width, seed), dataset.test.batch(0, 0).to("cpu")
    with trace(model) as t:
        model(batch.source, batch.inputs)
    attention, sentences = "encoder.0.self", range(len(batch.inputs.layout))
    pairs = ((t[f"{attention}.queries", s], t[f"{attention}.keys", s]) for s in sentences)  # [n, H, d] each
    products = torch.cat([(q[:, None] * k[None]).flatten() for q, k in pairs])  # of all pairs of words
    scores, scaled = ([t[f"{attention}.{name}", s] for s in sentences] for name in ("scores", "scaled"))  # [H, n, n]
    variances = [float(torch.cat([matrix.flatten() for matrix in matrices]).var()) for matrices in (scores, scaled)]
    largest = [
        float(torch.cat([matrix.softmax(-1).amax(-1).flatten() for matrix in matrices]).mean())
        for matrices in (scores, scaled)
    ]
    return Spread(head_width, float(products.var()), variances[0], variances[1], largest[0], largest[1])


def _train(dataset: kit.Dataset, is_scaled: bool, steps: int, seed: int) -> TrainingRun:
    model = _build(dataset, HEAD_WIDTHS[-1], seed)
    # Interventions also work in training: this one multiplies the scaled scores by √d again.
    undo_scaling = scale("*.scaled", math.sqrt(model.config.actual_head_width))
    with nullcontext() if is_scaled else intervene(model, undo_scaling):
        probes = [_probe(model, dataset, 0)]
        curve = kit.train(model, dataset, steps, seed, lambda step: probes.append(_probe(model, dataset, step)))
    return TrainingRun(curve, tuple(probes))


class _GradientRecorder:
    """Records values with their autograd graph, so gradients can be computed. (A `Trace` detaches them.)"""

    records = True

    def __init__(self) -> None:
        self.recorded: dict[str, list[Tensor]] = {"queries": [], "keys": [], "masked": [], "weights": []}
        self.entropies: list[Tensor] = []  # of all rows with at least two keys, relative to the maximum
        self.has_choice: list[Tensor] = []  # which rows have at least two keys, [S, H, L]

    def on_value(self, point: HookPoint, value: Tensor) -> Tensor:
        kind = point.name.rpartition(".")[2]
        if kind in self.recorded:
            self.recorded[kind].append(value)
        if kind == "weights":
            assert point.rows is not None and point.keys is not None
            mask = attention_mask(point.rows, point.keys, causal=".masked." in point.name)  # [S, 1, L or 1, M]
            choices = (mask & point.rows.mask[:, None, :, None]).sum(-1).expand(value.shape[:-1])  # [S, H, L]
            weights = value.detach()
            entropy = -torch.special.xlogy(weights, weights).sum(-1)
            self.entropies.append((entropy / choices.log())[choices > 1])
            self.has_choice.append(choices > 1)
        return value


def _probe(model: Transformer, dataset: kit.Dataset, step: int) -> Probe:
    batch, recorder = dataset.test.batch(0, 0).to("cpu"), _GradientRecorder()
    logits = model(batch.source, batch.inputs, taps=ActiveTaps(recorder))
    objective = cross_entropy(logits, batch.targets, smoothing=0.0).objective / batch.num_targets
    recorded = recorder.recorded
    gradients = torch.autograd.grad(objective, [tensor for tensors in recorded.values() for tensor in tensors])
    count = len(recorded["weights"])
    norms = [gradient.norm(dim=-1) for gradient in gradients]  # [T, H] of queries, [U, H] of keys, [S, H, L]
    queries, keys = (torch.cat([x.flatten() for x in norms[i * count : (i + 1) * count]]) for i in (0, 1))
    before, after = (  # the softmax
        torch.cat([x[rows] for x, rows in zip(norms[i * count : (i + 1) * count], recorder.has_choice, strict=True)])
        for i in (2, 3)
    )
    top_tenth = queries.square().sort(descending=True).values[: len(queries) // 10]
    return Probe(
        step,
        float(torch.cat(recorder.entropies).mean()),
        float((before / after)[after > 0].median()),
        float(queries.median()),
        float(keys.median()),
        float(queries.norm()),
        float(keys.norm()),
        float(top_tenth.sum() / queries.square().sum()),
    )


def values(result: Result) -> kit.Values:
    runs = (result.scaled, result.unscaled)
    probes = list(zip(*(run.probes for run in runs), strict=True))
    curves = [list(zip(run.curve.steps, run.curve.test, strict=True)) for run in runs]
    return {
        "loss_by_step": [
            (f"step {one[0]}", {"divided by √d": one[1], "not divided": other[1]})
            for i, (one, other) in enumerate(zip(*curves, strict=True))
            if i in {0, len(curves[0]) // 3, len(curves[0]) - 1}
        ],
        "probe_rows": [
            (
                pair[0].step,
                *(f"{p.entropy:.2f}" for p in pair),
                *(kit.format_small(number) for number in (*(p.passed for p in pair), *(p.query for p in pair))),
                *(f"{curve[i - 1][1]:.3f}" if i else "" for curve in curves),
            )
            for i, pair in enumerate(probes)
            if i in {0, 1, 3, len(probes) // 3, len(probes) - 1}
        ],
        "headings": [f"{column}\n{how}" for column in COLUMNS for how in ("/√d", "not")],
        "curves": curves,
        "is_slower": curves[1][-1][1] > curves[0][-1][1],
    }


def answers() -> kit.Values:
    def passed(scores: list[float]) -> float:
        """The derivative of the largest weight by its own score: p (1 − p)."""
        weights = torch.tensor(scores, dtype=torch.float64).softmax(-1)
        return float(weights[0] * (1 - weights[0]))

    return {"even": passed([0.0, 0.0]), "sharp": passed([8.0, 0.0])}
