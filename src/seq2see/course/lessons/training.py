"""A small model trained within a lesson, by the library's own trainer, and what came of it."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.config import Config, ModelConfig, TrainConfig
from seq2see.decode.engine import translations as search
from seq2see.decode.session import Vocabulary
from seq2see.model.transformer import Transformer
from seq2see.text.batches import PairBatches
from seq2see.text.store import store_pairs
from seq2see.text.tokenizer import Tokenizer
from seq2see.train.loop import Trainer
from seq2see.train.parallel import World
from seq2see.train.validation import validation_loss

CPU = torch.device("cpu")  # the models are so small that a GPU would only wait
EVERY = 10  # steps between two points of a curve
# Called before every step: a server ends a training by it that nobody waits for any more.
before_each_step: ContextVar[Callable[[], None]] = ContextVar("before_each_step", default=lambda: None)

Pair = tuple[str, str]


@dataclass(frozen=True)
class Material:
    """What is learned from and tested on, one token a word."""

    tokenizer: Tokenizer
    train: PairBatches
    test: PairBatches  # one batch

    @property
    def model(self) -> ModelConfig:
        """A model that learns the little language in seconds."""
        return ModelConfig(
            vocabulary=len(self.tokenizer), width=64, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=128,
            longest=64,
        )  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """Losses, −ln p a target token with the right words before it."""

    steps: tuple[int, ...]
    train: tuple[float, ...]  # the mean since the point before
    test: tuple[float, ...]


@contextmanager
def material(train: Sequence[Pair], test: Sequence[Pair], seed: int) -> Iterator[Material]:
    """Batches, while the block lasts. Inside it torch has one thread: more would wait for each other, and the numbers
    would depend on how many there are. Afterwards threads and random numbers are as they were.
    """
    threads = torch.get_num_threads()
    tokenizer = Tokenizer.train((text for pair in train for text in pair), "word", vocabulary=1000)
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        stores = [
            store_pairs(Path(folder), pairs, name, (tokenizer, tokenizer))
            for name, pairs in (("train", train), ("test", test))
        ]
        torch.set_num_threads(1)
        try:
            yield Material(
                tokenizer,
                PairBatches(stores[0], 600, tokenizer, seed=seed),
                PairBatches(stores[1], 100_000, tokenizer),
            )
        finally:
            torch.set_num_threads(threads)


def untrained(config: ModelConfig, seed: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(config).eval()


def train(
    model: Transformer, given: Material, steps: int, seed: int, watch: Callable[[int], None] = lambda step: None
) -> Curve:
    """Trains the model as it is, whatever has been done to it; `watch` is called at each point of the curve."""
    config = Config(
        model=model.config,
        train=TrainConfig(
            steps=steps, tokens=600, schedule="cosine", lr=4e-3, warmup=40, label_smoothing=0.0, seed=seed
        ),
    )
    trainer = Trainer(config, model, lambda epoch: given.train, World(CPU))
    points: list[tuple[int, float, float]] = []
    may_go_on = before_each_step.get()
    for step in range(1, steps + 1):
        may_go_on()
        trainer.step()
        if step % EVERY == 0 or step == steps:
            model.eval()
            points.append((step, trainer.report().loss, validation_loss(model, given.test, trainer.precision)))
            watch(step)
    at, learned, tested = zip(*points, strict=True)
    return Curve(at, learned, tested)


def few_steps(exact: float) -> str:
    """What to say first where even the model as it should be has not learned the language."""
    if exact >= 0.9:
        return ""
    return f"too few steps: {exact:.0%} of the first model's translations are right; train longer to see what follows. "


def translations(model: Transformer, tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    sources = [[*tokenizer.encode(text), tokenizer.end] for text in texts]
    found = search(model.eval(), sources, Vocabulary.of(tokenizer))
    return [tokenizer.decode(best.tokens) for best, *_ in found]
