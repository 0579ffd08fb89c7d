"""`decoder`: the decoder in training and in use, with the same probabilities.

In training the decoder reads the correct words and predicts at all positions in one pass (teacher forcing); in use it reads
its own output, one token at a time. Both compute the same numbers, thanks to the mask.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.models import block_steps, explain_sentence, resolve_translator
from seq2see.course.lessons.render import (
    ATTENTION,
    Bars,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
    ViewLink,
    format_small,
)
from seq2see.data.layout import Packed
from seq2see.decode.engine import translate_tokens
from seq2see.decode.request import SpecialTokens
from seq2see.decode.search import Search
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_lens import alternatives


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


FORCED_TARGETS = ("मैं बढ़िया हूँ", "Je vais bien")  # of "I am good", in the languages of the bundled models
TIMING_RUNS, TIMING_TOKENS = 3, 128


@dataclass(frozen=True)
class Timing:
    """The same tokens through the decoder, all at once and one after another."""

    tokens: int
    parallel_seconds: float
    sequential_seconds: float


@dataclass(frozen=True)
class Result:
    steps: Table
    vocab_size: int
    generated: Pass  # the model's own translation
    search_probabilities: tuple[float, ...]  # of the same tokens, from the search, one token at a time
    forced: Pass  # a given translation
    timing: Timing
    prefix_error: float  # largest difference in log-probability between `forced` and a separate pass over each prefix


def compute(
    sentence: str = "We are friends", forced_sentence: str = "I am good", forced_target: str = FORCED_TARGETS[0],
    model: Model | None = None,
) -> Result:  # fmt: skip
    """Explains one sentence with the model's own translation, and one with a given translation."""
    model = resolve_translator(model)
    generated, forced = explain_sentence(model, sentence), explain_sentence(model, forced_sentence, forced_target)
    if forced_target == FORCED_TARGETS[0]:  # in the language of the model
        others = [explain_sentence(model, forced_sentence, target) for target in FORCED_TARGETS[1:]]
        forced = max((forced, *others), key=lambda e: float(e.target_logprobs.mean()))
    assert generated.hypothesis is not None
    return Result(
        block_steps(generated, "decoder.0"), model.config.model.vocab_size, _pass(generated),
        tuple(torch.tensor(generated.hypothesis.logprobs).exp().tolist()), _pass(forced), _time(generated),
        _prefix_error(forced),
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


@torch.no_grad()
def _time(e: Explanation) -> Timing:
    """Times one pass over tokens against decoding them one by one with a cache."""
    network, tokenizer = e.require_transformer("the timing"), e.model.tokenizers[1]
    tokens = min(TIMING_TOKENS, network.config.max_positions - 1)
    source, target = Packed.from_sequences([e.source_ids]), Packed.from_sequences([[tokenizer.start] * tokens])
    special = SpecialTokens.from_tokenizer(tokenizer)
    special = replace(special, banned=(*special.banned, special.end))  # so that both handle as many tokens
    search = Search(max_new_tokens=tokens)

    def best(run: Callable[[], object]) -> float:
        seconds = []
        for _ in range(TIMING_RUNS):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    return Timing(
        tokens,
        best(lambda: network(source, target)),
        best(lambda: translate_tokens(network, [list(e.source_ids)], special, search)),
    )


def describe(result: Result) -> LessonText:
    generated, forced = result.generated, result.forced
    difference = max(
        abs(a - p.probability) for a, p in zip(result.search_probabilities, generated.positions, strict=True)
    )
    timing = result.timing
    return LessonText(
        f'"{generated.sentence}" → {generated.output}. Each bar is the probability of one word, given the words before it. The '
        "decoder reads its own output, shifted right behind <start>, and stops at <end>.",
        (
            Bars(
                "Probability of each word",
                (("", tuple((f"{p.input} → {p.target}", p.probability) for p in generated.positions)),),
                1.0,
            ),
        ),
        (
            Table(
                ("input", "output", "p, one pass", "p, step by step", "runner-up"),
                tuple(
                    (p.input, p.target, p.probability, probability, f"{p.top[1][0]} {p.top[1][1]:.4f}")
                    for p, probability in zip(generated.positions, result.search_probabilities, strict=True)
                ),
                "One pass over the finished output, as in training; and one step at a time, as in use:",
                4,
            ),
        ),
        f"The two columns of p are the same numbers, up to {format_small(difference)}. The mask makes it possible: what a "
        "position computes does not depend on later ones. So training computes all positions at once, and use goes one by one.",
        Library(
            'model.explain("We are friends", target="…")    # one pass over a given answer\n'
            'model.stream("We are friends")                 # one token at a time',
            "decode/engine.py",
            (ViewLink("this sentence, step by step", "translate", {"text": generated.sentence}),),
        ),
        (
            Section(
                "Teacher forcing",
                (
                    Table(
                        ("input", "target", "p", "most probable"),
                        tuple(
                            (p.input, p.target, p.probability, f"{p.top[0][0]} {p.top[0][1]:.2f}")
                            for p in forced.positions
                        ),
                        f'"{forced.sentence}" → {forced.output}: reads the correct word, whatever it predicts',
                        4,
                    ),
                    f"The loss of the given answer is the mean of −ln p: {forced.loss:.3f}. All {len(forced.positions)} "
                    "positions were computed in one pass. A separate pass over each prefix gives the same "
                    f"log-probabilities: they differ by at most {result.prefix_error:.0e}.",
                ),
            ),
            Section(
                "All words at once, or one after another: timed",
                (
                    f"A text of {timing.tokens} tokens through the decoder, best of {TIMING_RUNS}: one pass "
                    f"{1000 * timing.parallel_seconds:.1f} ms; one token after another, keeping what is already computed, "
                    f"{1000 * timing.sequential_seconds:.1f} ms"
                    + (
                        f", {timing.sequential_seconds / timing.parallel_seconds:.0f} times as long."
                        if timing.sequential_seconds > timing.parallel_seconds
                        else "."
                    )
                    + " In training the answer is known, so nothing has to wait. (Times vary with the machine.)",
                ),
            ),
            Section(
                "Every step of the first block",
                (
                    result.steps,
                    f"The last vectors are multiplied with the vectors of all {result.vocab_size:,} tokens of the vocabulary: "
                    "one number, a logit, for each word that could come next.",
                ),
            ),
        ),
        (
            Try(
                "The translation of the other sentence, forced: where does the probability break down?",
                {"forced_target": generated.output or FORCED_TARGETS[0]},
            ),
        ),
        (
            Note(
                ATTENTION,
                '"Right shift by append <start> token", masked attention, cross-attention, feed-forward, then a '
                "linear layer with "
                'one neuron per word ("10K") and softmax; "auto regressive at inference time & non auto regressive at training '
                'time". All as computed above.',
            ),
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    probabilities = torch.tensor([0.5, 0.25, 0.5, 1.0], dtype=torch.float64)
    return (
        Exercise(
            "Four words have the probabilities 0.5, 0.25, 0.5 and 1. What is the loss, the mean of −ln p?",
            float(-probabilities.log().mean()),
            "(0.693 + 1.386 + 0.693 + 0) / 4.",
        ),
        Exercise(
            "What is the probability of the whole translation?",
            float(probabilities.prod()),
            "The product, since each is given the words before it.",
            tolerance=0.001,
        ),
        Exercise(
            "A translation has 7 tokens and <end>. How many passes does the decoder need to train on it?",
            1.0,
            "One: all positions at once. Generating it takes 8 steps.",
        ),
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
