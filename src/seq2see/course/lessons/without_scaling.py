"""`saturation`: the same translator trained with and without dividing the scores by √d.

First the cause, before any training: the variance of a dot product of the model's own queries and keys grows with the
width of a head. Then the effect: softmax of large scores is nearly one-hot, lets hardly any gradient through to queries
and keys, and the model learns slowly where to look.

Shapes: S sequences, H heads, L queries and M keys in the longest.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from seq2see.course.lessons.pictures import WITH, WITHOUT, label, panels, save
from seq2see.course.lessons.render import Grid, Story, brief
from seq2see.course.lessons.toy_language import language
from seq2see.course.lessons.training import Curve, Material, material, train, untrained
from seq2see.inspect.interventions import intervene, scaling
from seq2see.inspect.trace import trace
from seq2see.model.attention import visible
from seq2see.model.taps import OpenTaps, Site
from seq2see.model.transformer import Transformer
from seq2see.train.loss import loss

CLAIM = (
    "two translators, alike but for the division of the scores q · k by √d. The notes: in d dimensions a dot product has "
    '"d · Var(X)", and dividing Y by √d retains Var(X).'
)
WIDTH = 128
MEASURED = ("entropy", "let\nthrough", "at a\nquery", "test\nloss")
HEAD_WIDTHS = (8, 16, 32, 64, 128)  # the last is trained


@dataclass(frozen=True)
class Spread:
    """Dot products in an untrained model, first attention of the encoder."""

    head_width: int
    product: float  # variance of one q_i · k_i
    score: float  # variance of q · k
    scaled: float  # variance of q · k / √d
    largest: float  # weight of the key looked at most, on average, by softmax of the scores as they are
    largest_scaled: float  # and of the scaled ones


@dataclass(frozen=True)
class Probe:
    """One look at all attentions of a model in training, on the unseen sentences."""

    step: int
    entropy: float  # of the weights, as a share of looking everywhere alike; 0 is one-hot
    through: float  # length of the gradient that leaves softmax, as a share of that which enters: the median row's
    query: float  # length of the loss's gradient at a query: the median
    key: float
    queries: float  # and at all of them
    keys: float
    tenth: float  # the share of its square that a tenth of the queries get


@dataclass(frozen=True)
class Learner:
    """What came of one training."""

    curve: Curve
    probes: tuple[Probe, ...]


@dataclass(frozen=True)
class Saturation:
    spreads: tuple[Spread, ...]
    divided: Learner
    plain: Learner  # not divided by √d


def saturation(seed: int = 1, steps: int = 150) -> Saturation:
    """Measures dot products before training, then trains two translators that differ only in the division."""
    split = language(seed)
    pairs = [[(said.english, said.hindi) for said in part] for part in (split.train, split.test)]
    with material(pairs[0], pairs[1], seed) as given:
        spreads = tuple(_spread(given, head_width, seed) for head_width in HEAD_WIDTHS)
        divided, plain = (_taught(given, divides, steps, seed) for divides in (True, False))
    return Saturation(spreads, divided, plain)


def _model(given: Material, head_width: int, seed: int) -> Transformer:
    return untrained(replace(given.model, width=WIDTH, heads=WIDTH // head_width, feed_forward=2 * WIDTH), seed)


@torch.no_grad()
def _spread(given: Material, head_width: int, seed: int) -> Spread:
    model, batch = _model(given, head_width, seed), given.test.batch(0, 0).to("cpu")
    with trace(model) as t:
        model(batch.source, batch.inputs)
    place, sentences = "encoder.0.self", range(len(batch.inputs.layout))
    one_sentence = ((t[f"{place}.queries", s], t[f"{place}.keys", s]) for s in sentences)  # [n, H, d] each
    products = torch.cat([(q[:, None] * k[None]).flatten() for q, k in one_sentence])  # of all pairs of words
    scores, scaled = ([t[f"{place}.{name}", s] for s in sentences] for name in ("scores", "scaled"))  # [H, n, n] each
    variances = [float(torch.cat([table.flatten() for table in tables]).var()) for tables in (scores, scaled)]
    largest = [
        float(torch.cat([table.softmax(-1).amax(-1).flatten() for table in tables]).mean())
        for tables in (scores, scaled)
    ]
    return Spread(head_width, float(products.var()), variances[0], variances[1], largest[0], largest[1])


def _taught(given: Material, divides: bool, steps: int, seed: int) -> Learner:
    model = _model(given, HEAD_WIDTHS[-1], seed)
    # What follows the division is multiplied by √d again: in training too, intervening is all it takes.
    undo = scaling("*.scaled", math.sqrt(model.config.width_of_head))
    with nullcontext() if divides else intervene(model, undo):
        probes = [_probe(model, given, 0)]
        curve = train(model, given, steps, seed, lambda step: probes.append(_probe(model, given, step)))
    return Learner(curve, tuple(probes))


class _Watch:
    """Keeps what passes, with its place in the graph, so that gradients can be asked for. (A trace keeps numbers only.)"""

    records = True

    def __init__(self) -> None:
        self.kept: dict[str, list[Tensor]] = {"queries": [], "keys": [], "masked": [], "weights": []}
        self.entropies: list[Tensor] = []  # of every row that has a choice, as a share of the highest
        self.chosen: list[Tensor] = []  # which rows have one, [S, H, L]

    def hear(self, site: Site, value: Tensor) -> Tensor:
        what = site.name.rpartition(".")[2]
        if what in self.kept:
            self.kept[what].append(value)
        if what == "weights":
            assert site.rows is not None and site.keys is not None
            sees = visible(site.rows, site.keys, causal=".masked." in site.name)  # [S, 1, L or 1, M]
            choices = (sees & site.rows.real[:, None, :, None]).sum(-1).expand(value.shape[:-1])  # [S, H, L]
            weights = value.detach()
            entropy = -torch.special.xlogy(weights, weights).sum(-1)
            self.entropies.append((entropy / choices.log())[choices > 1])
            self.chosen.append(choices > 1)
        return value


def _probe(model: Transformer, given: Material, step: int) -> Probe:
    batch, watch = given.test.batch(0, 0).to("cpu"), _Watch()
    logits = model(batch.source, batch.inputs, taps=OpenTaps(watch))
    objective = loss(logits, batch.targets, smoothing=0.0).objective / batch.count
    kept = watch.kept
    gradients = torch.autograd.grad(objective, [tensor for tensors in kept.values() for tensor in tensors])
    count = len(kept["weights"])
    lengths = [gradient.norm(dim=-1) for gradient in gradients]  # [T, H] of queries, [U, H] of keys, [S, H, L]
    queries, keys = (torch.cat([x.flatten() for x in lengths[i * count : (i + 1) * count]]) for i in (0, 1))
    left, entered = (
        torch.cat([x[rows] for x, rows in zip(lengths[i * count : (i + 1) * count], watch.chosen, strict=True)])
        for i in (2, 3)
    )
    most = queries.square().sort(descending=True).values[: len(queries) // 10]
    return Probe(
        step, float(torch.cat(watch.entropies).mean()), float((left / entered)[entered > 0].median()),
        float(queries.median()), float(keys.median()), float(queries.norm()), float(keys.norm()),
        float(most.sum() / queries.square().sum()),
    )  # fmt: skip


def story(result: Saturation) -> Story:
    spreads = Grid(
        ("width d", "Var(qᵢkᵢ)", "Var(q·k)", "Var(q·k/√d)", "largest weight", "after /√d"),
        tuple((s.head_width, s.product, s.score, s.scaled, s.largest, s.largest_scaled) for s in result.spreads),
        "Untrained models with heads of several widths, on their own queries and keys:",
    )
    probes = list(zip(result.divided.probes, result.plain.probes, strict=True))
    trained = Grid(
        ("step", *(f"{what}\n{how}" for what in MEASURED for how in ("/√d", "not"))),
        tuple(
            (
                pair[0].step, *(f"{p.entropy:.2f}" for p in pair), *(brief(p.through) for p in pair),
                *(brief(p.query) for p in pair),
                *(f"{learner.curve.test[i - 1]:.3f}" if i else "" for learner in (result.divided, result.plain)),
            )
            for i, pair in enumerate(probes)
            if i in {0, 1, 3, len(probes) // 3, len(probes) - 1}
        ),
        f"Two trainings with heads of width {result.spreads[-1].head_width}, alike but for the division:",
    )  # fmt: skip
    first = probes[0]
    return Story(
        CLAIM,
        (
            spreads, trained,
            "entropy: of the weights, 1 looks everywhere alike, 0 at one word. let through: the gradient that leaves "
            "softmax as a share of what enters. at a query: the loss's gradient there. Both are the median query's.",
        ),
        "before training, the model that divides looks about and the other already stares at single words, chosen by "
        "chance. Softmax lets hardly any gradient through to most queries, and where to look is learned late. Later the "
        "first is sharp too, but because it has learned what to look at. Not all gradient dies: over all queries its "
        f"length is {first[1].queries:.3f} at first, against {first[0].queries:.3f}, for nothing divides it by √d either; "
        f"but a tenth of the queries get {first[1].tenth:.0%} of its square ({first[0].tenth:.0%} with the division), "
        "those on the brink between two words.",
    )  # fmt: skip


def draw(result: Saturation, path: Path | str) -> None:
    figure, (variance, entropy, gradient, losses) = panels(2, 2)
    widths = [s.head_width for s in result.spreads]
    variance.plot(widths, [s.score for s in result.spreads], "o-", color=WITHOUT, label="q · k")
    variance.plot(widths, [s.scaled for s in result.spreads], "o-", color=WITH, label="q · k / √d")
    variance.set_xscale("log", base=2)
    variance.set_yscale("log", base=2)
    label(variance, "Variance of scores, untrained", "width of a head, d", "variance")
    for learner, colour, name in ((result.divided, WITH, "divided by √d"), (result.plain, WITHOUT, "not divided")):
        steps = [probe.step for probe in learner.probes]
        entropy.plot(steps, [probe.entropy for probe in learner.probes], color=colour, label=name)
        gradient.plot(steps, [probe.through for probe in learner.probes], color=colour, label=name)
        losses.plot(learner.curve.steps, learner.curve.test, color=colour, label=name)
    for axes in (gradient, losses):
        axes.set_yscale("log")
    label(entropy, "Entropy of the weights (1: looks everywhere)", "step", "share of the highest")
    label(gradient, "Gradient that softmax lets through (median)", "step", "length out / length in")
    label(losses, "Loss on unseen sentences", "step", "−ln p a token")
    save(figure, path)
