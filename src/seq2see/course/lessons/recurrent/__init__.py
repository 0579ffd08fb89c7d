"""`recurrent`: the models before the Transformer, untrained, to show what their construction does.

The encoder-decoder of 2014 reads one word after another into a state of fixed size, from which the decoder starts. That of 2015
lets the decoder attend to the state of every word. Both know the order of the words without positions, and both must wait for
each word before they can read the next.

How much is left of the word read first is measured by exchanging it: the relative change of what the decoder gets to read. The
model of 2014 reads from the end of the sentence, so that word is the last.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2see.config import ModelConfig
from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.models import relative_change
from seq2see.course.lessons.render import (
    ATTENTION,
    SLIDES,
    Bars,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
    format_small,
)
from seq2see.course.lessons.training import single_thread
from seq2see.course.recurrent.network import Recurrent
from seq2see.data.layout import Packed
from seq2see.errors import UserError
from seq2see.model.transformer import Transformer

LENGTHS = (3, 5, 10, 20, 30, 50)
WIDTH, VOCABULARY = 64, 100
DRAWS = 20  # pairs of sentences per length
TIMED, RUNS = (16, 64, 256), 3


@dataclass(frozen=True)
class Remembered:
    """What an exchanged last word changes, by the length of the sentence. (2014 reads it first.)"""

    length: int
    state: float  # 2014: relative change of the state that the decoder starts from
    attended: float  # 2015: largest relative change of the states that the decoder attends to
    transformer: float  # largest relative change of the Transformer's vectors


@dataclass(frozen=True)
class Timed:
    length: int
    recurrent_seconds: float
    transformer_seconds: float


@dataclass(frozen=True)
class Result:
    remembered: tuple[Remembered, ...]
    state_size: int  # numbers that the decoder of 2014 gets, whatever the length
    order_change: float  # relative change of the final state when two words are exchanged
    order_change_transformer: float  # of the Transformer's vectors without positions, word by word
    timed: tuple[Timed, ...]


def compute(lengths: Sequence[int] = LENGTHS, seed: int = 1) -> Result:
    """Builds three small untrained encoders and measures what an exchanged word changes, and the time they take."""
    if not lengths or min(lengths) < 2:
        raise UserError(f"lengths {list(lengths)}: sentences need at least 2 words")
    with torch.random.fork_rng(devices=[]), single_thread(), torch.no_grad():
        torch.manual_seed(seed)
        base = ModelConfig(
            kind="rnn", vocab_size=VOCABULARY, width=WIDTH, heads=1, encoder_layers=1, decoder_layers=1, dropout=0.0
        )
        attention = replace(base, kind="transformer", heads=4, feed_forward=2 * WIDTH)
        rnn, attending = (Recurrent(each).eval() for each in (base, replace(base, kind="rnn-attention")))
        transformer = Transformer(attention).eval()
        unordered = Transformer(replace(attention, positions="none")).eval()
        random = torch.Generator().manual_seed(seed)
        remembered = tuple(_remember(rnn, attending, transformer, length, random) for length in lengths)
        one, other = [1, 2, 3], [3, 2, 1]
        a, b = (rnn.encode(Packed.from_sequences([ids])).flatten(1) for ids in (one, other))
        x, y = (unordered.encode(Packed.from_sequences([ids])) for ids in (one, other))
        timed = tuple(_time(rnn, transformer, length) for length in TIMED)
    return Result(remembered, a.numel(), relative_change(a, b)[0], max(relative_change(x, y.flip(0))), timed)


def _remember(
    rnn: Recurrent, attending: Recurrent, transformer: Transformer, length: int, random: torch.Generator
) -> Remembered:
    changes = []
    for _ in range(DRAWS):
        ids = torch.randint(0, VOCABULARY, (length + 1,), generator=random).tolist()
        pair = [ids[:length], [*ids[: length - 1], ids[length]]]
        row = []
        for model in (rnn, attending, transformer):
            before, after = (model.encode(Packed.from_sequences([each])).flatten(1) for each in pair)
            row.append(max(relative_change(before, after)))
        changes.append(row)
    means = [sum(column) / DRAWS for column in zip(*changes, strict=True)]
    return Remembered(length, *means)


def _time(rnn: Recurrent, transformer: Transformer, length: int) -> Timed:
    source = Packed.from_sequences([[i % VOCABULARY for i in range(length)]])

    def best(run: Callable[[], object]) -> float:
        seconds = []
        for _ in range(RUNS):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    def step_by_step() -> None:
        # One word after another, as the recurrence has to: the state after each word is the input of the next.
        cell = torch.nn.LSTMCell(WIDTH, WIDTH)
        x = torch.zeros(length, WIDTH)
        state = torch.zeros(1, WIDTH), torch.zeros(1, WIDTH)
        for t in range(length):
            state = cell(x[t : t + 1], state)

    return Timed(length, best(step_by_step), best(lambda: transformer.encode(source)))


def describe(result: Result) -> LessonText:
    first, last = result.remembered[0], result.remembered[-1]
    fades = last.state < 0.5 * first.state
    return LessonText(
        "what remains of the word that was read first. It is exchanged for another; the bars show how much the decoder "
        "notices, in sentences of growing length. All three models are untrained: this is their construction, not "
        "their learning.",
        (
            Bars(
                "Relative change when the word read first is exchanged",
                tuple(
                    (
                        f"{r.length} words",
                        (("2014: one state", r.state), ("2015: attention", r.attended), ("Transformer", r.transformer)),
                    )
                    for r in result.remembered
                ),
            ),
        ),
        (
            f"2014: {first.state:.2f} in {first.length} words, {format_small(last.state)} in {last.length}. 2015: "
            f"{first.attended:.2f} and {last.attended:.2f}. Transformer: {first.transformer:.2f} and {last.transformer:.2f}.",
        ),
        (
            f"The model of 2014 squeezes every sentence into {result.state_size} numbers, and each new word covers up "
            "what came before. "
            if fades
            else f"The model of 2014 squeezes every sentence into {result.state_size} numbers. "
        )
        + "Attention (2015) gives the decoder all states instead of the last; the Transformer (2017) drops the recurrence and "
        "keeps the attention.",
        Library(
            "seq2see train --src a.en --tgt a.hi --preset rnn-2014 --out old\n"
            "seq2see train --src a.en --tgt a.hi --preset rnn-2015 --out attending",
            "course/recurrent/network.py",
        ),
        (
            Section(
                "A recurrent network needs no positions",
                (
                    "Two words are exchanged. The final state of the recurrent network changes by "
                    f"{result.order_change:.2f}: it has read them one after another, so the order is in it. The vectors "
                    f"of a Transformer without positions change by {format_small(result.order_change_transformer)}, "
                    "word by word: nothing but rounding (lesson: order).",
                ),
            ),
            Section(
                "All words at once, or one after another: timed",
                (
                    Table(
                        ("words", "one after another", "all at once"),
                        tuple(
                            (t.length, f"{1000 * t.recurrent_seconds:.2f} ms", f"{1000 * t.transformer_seconds:.2f} ms")
                            for t in result.timed
                        ),
                        f"Encoders of width {WIDTH}, best of {RUNS}; times vary with the machine",
                    ),
                    "The recurrence cannot start a word before it has finished the last. Attention computes all words "
                    "in one product of matrices, which is what makes training on much text possible. (For very long "
                    "texts its table of n × n weights becomes the burden.)",
                ),
            ),
            Section(
                "Number by number",
                (
                    Table(
                        ("words", "2014", "2015", "Transformer"),
                        tuple((r.length, r.state, r.attended, r.transformer) for r in result.remembered),
                        "Relative change, mean over random sentences",
                        4,
                    ),
                    "The model of 2014 reads the sentence from its end, so that its start is fresh when the "
                    "translation begins; the word it reads first is the last. Training can teach a recurrent network "
                    "to hold on to a word for longer; that it fails from about 30 words on is measured, on trained "
                    "models, in docs/recurrent.md.",
                ),
            ),
        ),
        (Try("Longer sentences.", {"lengths": [10, 30, 60, 100]}), Try("Other random weights.", options="--seed 2")),
        (
            Note(
                ATTENTION,
                "The encoder-decoder “kind of starts missing initial words for long sentences (30 words)”, which led "
                "to attention. So it is if the sentence is read from its start; read from its end, as in 2014, the "
                "last words suffer. And a recurrent network has no trouble with the order: “one Word at a time”.",
            ),
            Note(
                SLIDES,
                "Machine translation of 2015: an encoder's vectors of every word, read by the decoder with attention.",
            ),
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    keep = 0.8
    left = torch.tensor(keep, dtype=torch.float64).pow(30)
    return (
        Exercise(
            "A state keeps 0.8 of what it held with every word. What share of the first word is left after 30 more?",
            float(left),
            f"0.8³⁰ = {float(left):.4f}.",
            tolerance=0.0005,
        ),
        Exercise(
            "A sentence of 50 words: how many steps, one after another, does a recurrent encoder take?",
            50.0,
            "One per word.",
        ),
        choose(
            "Which of the two needs positions added to its words?",
            ("recurrent network", "Transformer"),
            lambda choice: float(choice == "Transformer"),
            "The recurrent network reads in order; attention is a sum, which has none.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1)
    x = [r.length for r in result.remembered]
    axes.plot(x, [r.state for r in result.remembered], "o-", color=ORANGE, label="2014: one state")
    axes.plot(x, [r.attended for r in result.remembered], "o:", color=BLUE, label="2015: attention")
    axes.plot(x, [r.transformer for r in result.remembered], "o-", color=BLUE, label="Transformer")
    label_axes(axes, "What an exchanged word changes, read first", "words", "relative change")
    save_figure(figure, path)
