"""Trains a small translator within a lesson, with the library's own trainer."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.config import Config, ModelConfig, TrainConfig
from seq2see.data.batches import PairBatches
from seq2see.data.store import store_pairs
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.generate import translate_tokens
from seq2see.model.transformer import Transformer
from seq2see.train.parallel import World
from seq2see.train.trainer import Trainer
from seq2see.train.validation import validation_loss

CPU = torch.device("cpu")  # the models are too small for a GPU to help
EVAL_EVERY = 10  # steps
# Called before every step. The server raises from it to stop a training whose client has disconnected.
before_each_step: ContextVar[Callable[[], None]] = ContextVar("before_each_step", default=lambda: None)

Pair = tuple[str, str]


@dataclass(frozen=True)
class Dataset:
    """Batches to train and to test on, with one token per word."""

    tokenizer: Tokenizer
    train: PairBatches
    test: PairBatches  # one batch

    @property
    def model_config(self) -> ModelConfig:
        """A model small enough to learn the toy language in seconds."""
        return ModelConfig(
            vocab_size=len(self.tokenizer),
            width=64,
            heads=4,
            encoder_layers=2,
            decoder_layers=2,
            feed_forward=128,
            max_positions=64,
        )


@dataclass(frozen=True)
class LossCurve:
    """Cross-entropy per target token, with teacher forcing."""

    steps: tuple[int, ...]
    train: tuple[float, ...]  # mean since the previous point
    test: tuple[float, ...]


@contextmanager
def single_thread() -> Iterator[None]:
    """Runs the block with one thread of torch: models this small gain nothing from more, lose much when the other cores are
    busy, and their results would depend on the number.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def prepare_dataset(train: Sequence[Pair], test: Sequence[Pair], seed: int) -> Iterator[Dataset]:
    """Yields batches backed by temporary files.

    Inside the block torch uses one thread. The number of threads and torch's random state are restored afterwards.
    """
    tokenizer = Tokenizer.train((text for pair in train for text in pair), "word", vocab_size=1000)
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]), single_thread():
        stores = [
            store_pairs(Path(folder), pairs, name, (tokenizer, tokenizer))
            for name, pairs in (("train", train), ("test", test))
        ]
        yield Dataset(
            tokenizer, PairBatches(stores[0], 600, tokenizer, seed=seed), PairBatches(stores[1], 100_000, tokenizer)
        )


def build_model(config: ModelConfig, seed: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(config).eval()


def train(
    model: Transformer, dataset: Dataset, steps: int, seed: int, callback: Callable[[int], None] = lambda step: None
) -> LossCurve:
    """Trains the model, with any interventions in place; calls `callback(step)` at each point of the curve."""
    config = Config(
        model=model.config,
        train=TrainConfig(
            steps=steps, batch_tokens=600, schedule="cosine", lr=4e-3, warmup_steps=40, label_smoothing=0.0, seed=seed
        ),
    )
    trainer = Trainer(config, model, dataset.train, World(CPU))
    points: list[tuple[int, float, float]] = []
    check_cancelled = before_each_step.get()
    for step in range(1, steps + 1):
        check_cancelled()
        trainer.step()
        if step % EVAL_EVERY == 0 or step == steps:
            model.eval()
            points.append((step, trainer.report().loss, validation_loss(model, dataset.test, trainer.precision)))
            callback(step)
    return LossCurve(*zip(*points, strict=True))


def best_seconds(run: Callable[[], object], runs: int) -> float:
    """The shortest time that the function took."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def translate(model: Transformer, tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    sources = [[*tokenizer.encode(text), tokenizer.end] for text in texts]
    hypotheses = translate_tokens(model.eval(), sources, tokenizer.framing)
    return [tokenizer.decode(best.tokens) for best, *_ in hypotheses]
