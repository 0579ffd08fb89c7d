"""`decoder`: shifted right, masked, crossed, fed forward, unembedded; and taught and used alike.

In training the decoder reads the right words and predicts at all places in one pass (teacher forcing); in use it reads its own,
one after the other. The lesson shows that both compute the same numbers, which is what the mask is for.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.models import read, steps_of, translator
from seq2see.course.lessons.pictures import WITH, WITHOUT, label, panels, save
from seq2see.course.lessons.render import Grid, Story, brief
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_lens import alternatives
from seq2see.layout import Packed


@dataclass(frozen=True)
class Place:
    """One place of the decoder: what it has read last, what it is to say, and how likely it finds that."""

    reads: str
    writes: str
    probability: float
    others: tuple[tuple[str, float], ...]  # the likeliest tokens


@dataclass(frozen=True)
class Pass:
    sentence: str
    output: str
    places: tuple[Place, ...]
    loss: float  # the mean of −ln p


@dataclass(frozen=True)
class Decoder:
    steps: Grid
    vocabulary: int
    written: Pass  # its own translation
    step_by_step: tuple[float, ...]  # the same probabilities, as the search met them one token at a time
    taught: Pass  # a translation that was given
    prefixes_apart: (
        float  # the taught pass against one pass for each beginning: largest difference of a log-probability
    )


def decoder(
    sentence: str = "We are friends", taught: str = "I am good", target: str = "मैं बढ़िया हूँ", model: Model | None = None
) -> Decoder:
    """One sentence as the model writes it, and one with the answer given."""
    chosen = translator(model)
    own, given = read(chosen, sentence), read(chosen, taught, target)
    assert own.hypothesis is not None
    return Decoder(
        steps_of(own, "decoder.0"), chosen.config.model.vocabulary, _pass(own),
        tuple(torch.tensor(own.hypothesis.logprobs).exp().tolist()), _pass(given), _prefixes_apart(given),
    )  # fmt: skip


def _pass(e: Explanation) -> Pass:
    places = tuple(
        Place(
            reads, writes, float(p.exp()), tuple((each.token, each.probability) for each in alternatives(e, row, top=2))
        )
        for row, (reads, writes, p) in enumerate(zip(e.reads, e.writes, e.chosen, strict=True))
    )
    return Pass(e.source, e.output, places, float(-e.chosen.mean()))


@torch.no_grad()
def _prefixes_apart(e: Explanation) -> float:
    """Each beginning by itself through the model: its last row against that row of the one pass over everything."""
    source = Packed.of([e.source_ids])
    rows = [e.model.network(source, Packed.of([e.read_ids[: n + 1]]))[-1].log_softmax(-1) for n in range(len(e.reads))]
    return float((torch.stack(rows) - e.logprobs).abs().max())


def story(result: Decoder) -> Story:
    own, taught = result.written, result.taught
    step = max(abs(a - p.probability) for a, p in zip(result.step_by_step, own.places, strict=True))
    written = Grid(
        ("reads", "writes", "p, one pass", "p, step by step", "and then"),
        tuple(
            (p.reads, p.writes, p.probability, each, _runner_up(p))
            for p, each in zip(own.places, result.step_by_step, strict=True)
        ),
        f'"{own.sentence}" → {own.output}: the output, shifted right by <start>, is its input',
        4,
    )
    forced = Grid(
        ("reads", "should write", "p", "likeliest"),
        tuple((p.reads, p.writes, p.probability, f"{p.others[0][0]} {p.others[0][1]:.2f}") for p in taught.places),
        f'Teacher forcing, "{taught.sentence}" → {taught.output}: it reads the right word whatever it would have said',
        4,
    )
    return Story(
        'the decoder. The notes: "right shift by append <start> token", masked attention, cross-attention, feed-forward, '
        'then a linear layer with a neuron for each word ("10K") and softmax; it is "auto regressive at inference time & '
        'non auto regressive at training time".',
        (
            result.steps,
            f"Its last vectors meet {result.vocabulary:,} tokens' vectors: as many neurons as the target language has words.",
            written,
            forced,
            f"The loss of that answer is the mean of −ln p: {taught.loss:.3f}. All {len(taught.places)} places came out of one "
            "pass. Each beginning of it alone, as in decoding, gives the same log-probabilities: they differ by "
            f"{result.prefixes_apart:.0e} at most.",
        ),
        "the two columns of p are the same numbers, once from a single pass over the finished output and once from the "
        f"search that wrote it, one token at a time with a cache (they differ by {brief(step)}). The mask makes it so: what a "
        "place computes does not depend on what comes after it.",
    )  # fmt: skip


def _runner_up(place: Place) -> str:
    token, p = place.others[1]
    return f"{token} {p:.4f}"


def draw(result: Decoder, path: Path | str) -> None:
    figure, axes = panels(2, any_script=True)
    for side, each, colour in zip(axes, (result.written, result.taught), (WITH, WITHOUT), strict=True):
        at = range(len(each.places))
        side.bar(at, [p.probability for p in each.places], color=colour)
        side.set_xticks(at, [f"{p.reads} →\n{p.writes}" for p in each.places], fontsize=8)
        side.set_ylim(0, 1.05)
        label(side, f"{each.sentence} → {each.output}", "reads → writes", "probability", legend=False)
    save(figure, path)
