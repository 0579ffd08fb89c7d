"""`decoder`: the decoder in training and in use, with the same probabilities.

In training the decoder reads the correct words and predicts at all positions in one pass (teacher forcing); in use it reads
its own output, one token at a time. Both compute the same numbers, thanks to the mask.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.models import block_steps, explain_sentence, resolve_translator
from seq2see.course.lessons.render import LessonText, Table, format_small
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_lens import alternatives
from seq2see.layout import Packed


@dataclass(frozen=True)
class Position:
    """One position of the decoder, and the probability it gives to its target."""

    input: str
    target: str
    probability: float
    top: tuple[tuple[str, float], ...]  # the most probable tokens


@dataclass(frozen=True)
class Pass:
    sentence: str
    output: str
    positions: tuple[Position, ...]
    loss: float  # mean of −ln p


@dataclass(frozen=True)
class Result:
    steps: Table
    vocab_size: int
    generated: Pass  # the model's own translation
    search_probabilities: tuple[float, ...]  # of the same tokens, from the search, one token at a time
    forced: Pass  # a given translation
    prefix_error: float  # largest difference in log-probability between `forced` and a separate pass over each prefix


def compute(
    sentence: str = "We are friends", forced_sentence: str = "I am good", forced_target: str = "मैं बढ़िया हूँ",
    model: Model | None = None,
) -> Result:  # fmt: skip
    """Explains one sentence with the model's own translation, and one with a given translation."""
    model = resolve_translator(model)
    generated, forced = explain_sentence(model, sentence), explain_sentence(model, forced_sentence, forced_target)
    assert generated.hypothesis is not None
    return Result(
        block_steps(generated, "decoder.0"), model.config.model.vocab_size, _pass(generated),
        tuple(torch.tensor(generated.hypothesis.logprobs).exp().tolist()), _pass(forced), _prefix_error(forced),
    )  # fmt: skip


def _pass(e: Explanation) -> Pass:
    positions = tuple(
        Position(token, target, float(p.exp()), tuple((each.token, each.probability) for each in alternatives(e, i, top=2)))
        for i, (token, target, p) in enumerate(
            zip(e.decoder_input_tokens, e.target_tokens, e.target_logprobs, strict=True)
        )
    )  # fmt: skip
    return Pass(e.source, e.output, positions, float(-e.target_logprobs.mean()))


@torch.no_grad()
def _prefix_error(e: Explanation) -> float:
    """Compares the last row of a pass over each prefix with the same row of the pass over everything."""
    source = Packed.from_sequences([e.source_ids])
    prefixes = [Packed.from_sequences([e.decoder_input_ids[: n + 1]]) for n in range(len(e.decoder_input_ids))]
    rows = [e.model.network(source, prefix)[-1].log_softmax(-1) for prefix in prefixes]
    return float((torch.stack(rows) - e.logprobs).abs().max())


def describe(result: Result) -> LessonText:
    generated, forced = result.generated, result.forced
    difference = max(
        abs(a - p.probability) for a, p in zip(result.search_probabilities, generated.positions, strict=True)
    )
    generated_table = Table(
        ("input", "output", "p, one pass", "p, search", "runner-up"),
        tuple(
            (p.input, p.target, p.probability, probability, f"{p.top[1][0]} {p.top[1][1]:.4f}")
            for p, probability in zip(generated.positions, result.search_probabilities, strict=True)
        ),
        f'"{generated.sentence}" → {generated.output}: the input is the output shifted right, after <start>',
        4,
    )
    forced_table = Table(
        ("input", "target", "p", "most probable"),
        tuple((p.input, p.target, p.probability, f"{p.top[0][0]} {p.top[0][1]:.2f}") for p in forced.positions),
        f'Teacher forcing, "{forced.sentence}" → {forced.output}: reads the correct word, whatever it predicts',
        4,
    )
    return LessonText(
        'The decoder. The notes: "right shift by append <start> token", masked attention, cross-attention, feed-forward, '
        'then a linear layer with one neuron per word ("10K") and softmax; it is "auto regressive at inference time & non '
        'auto regressive at training time".',
        (
            result.steps,
            f"The last vectors are multiplied with the vectors of all {result.vocab_size:,} tokens of the vocabulary.",
            generated_table,
            forced_table,
            f"The loss of the given translation is the mean of −ln p: {forced.loss:.3f}. All {len(forced.positions)} positions "
            "were computed in one pass. A separate pass over each prefix, as in decoding, gives the same log-probabilities: "
            f"they differ by at most {result.prefix_error:.0e}.",
        ),
        "The two columns of p are the same numbers: one from a single pass over the finished output, one from the search that "
        f"generated it, one token at a time with a cache (difference at most {format_small(difference)}). The mask makes this "
        "possible: what a position computes does not depend on later positions.",
    )


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(2, any_script=True)
    for ax, each, colour in zip(axes, (result.generated, result.forced), (BLUE, ORANGE), strict=True):
        x = range(len(each.positions))
        ax.bar(x, [p.probability for p in each.positions], color=colour)
        ax.set_xticks(x, [f"{p.input} →\n{p.target}" for p in each.positions], fontsize=8)
        ax.set_ylim(0, 1.05)
        label_axes(ax, f"{each.sentence} → {each.output}", "input → target", "probability", legend=False)
    save_figure(figure, path)
