"""`recurrent`: the models before the Transformer, untrained, to show what their construction does.

The encoder-decoder of 2014 reads one word after another into a state of fixed size, from which the decoder starts. That of 2015
lets the decoder attend to the state of every word. Both know the order of the words without positions, and both must wait for
each word before they can read the next.

How much is left of the word read first is measured by exchanging it: the relative change of what the decoder gets to read. The
model of 2014 reads from the end of the sentence, so that word is the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch

from seq2see.config import ModelConfig
from seq2see.course.lessons import kit
from seq2see.course.recurrent.network import Recurrent
from seq2see.data.layout import Packed
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


def compute(lengths: Annotated[Sequence[int], kit.Bounds(2, 100, max_items=8)] = LENGTHS, seed: kit.Seed = 1) -> Result:
    """Builds three small untrained encoders and measures what an exchanged word changes, and the time they take."""
    if not lengths or min(lengths) < 2:
        raise kit.UserError(f"lengths {list(lengths)}: sentences need at least 2 words")
    with torch.random.fork_rng(devices=[]), kit.single_thread(), torch.no_grad():
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
    return Result(remembered, a.numel(), kit.relative_change(a, b)[0], max(kit.relative_change(x, y.flip(0))), timed)


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
            row.append(max(kit.relative_change(before, after)))
        changes.append(row)
    means = [sum(column) / DRAWS for column in zip(*changes, strict=True)]
    return Remembered(length, *means)


def _time(rnn: Recurrent, transformer: Transformer, length: int) -> Timed:
    source = Packed.from_sequences([[i % VOCABULARY for i in range(length)]])

    def step_by_step() -> None:
        # One word after another, as the recurrence has to: the state after each word is the input of the next.
        cell = torch.nn.LSTMCell(WIDTH, WIDTH)
        x = torch.zeros(length, WIDTH)
        state = torch.zeros(1, WIDTH), torch.zeros(1, WIDTH)
        for t in range(length):
            state = cell(x[t : t + 1], state)

    parallel = kit.best_seconds(lambda: transformer.encode(source), RUNS)
    return Timed(length, kit.best_seconds(step_by_step, RUNS), parallel)


def values(result: Result) -> kit.Values:
    return {
        "fades": result.remembered[-1].state < 0.5 * result.remembered[0].state,
        "times": [
            (t.length, f"{1000 * t.recurrent_seconds:.2f} ms", f"{1000 * t.transformer_seconds:.2f} ms")
            for t in result.timed
        ],
    }


def answers() -> kit.Values:
    return {"left": float(torch.tensor(0.8, dtype=torch.float64).pow(30))}
