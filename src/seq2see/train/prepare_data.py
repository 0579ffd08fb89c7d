"""Builds tokenizers and batches from the data files of a configuration.

Choices made here for the user, such as the vocabulary sizes, are written into the run's configuration, so that config.toml
alone reproduces the run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TypeVar

from seq2see.config import Config, TextConfig
from seq2see.config.extensions import load_extension
from seq2see.data.batch import Batch
from seq2see.data.batches import Batches, ClassBatches, PairBatches, TextBatches, require_classes
from seq2see.data.bpe_dropout import BpeDropout
from seq2see.data.corpus import media_kind, open_documents, open_pairs, validation_pairs
from seq2see.data.split import Pair, PairSplit, TextSplit
from seq2see.data.store import TokenizedSide, store_documents, store_pairs
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import ProgressFactory, UserError, no_progress

MAX_TOKENIZER_LINES = 2_000_000  # a tokenizer does not improve beyond this
# The epochs of BPE-dropout after which the segmentations repeat, in a corpus of at most this many target tokens: a GPU trains
# a small model on such a corpus faster than the CPU segments it.
SEGMENTATIONS, MAX_REPEATED_TOKENS = 16, 1 << 24

_TOKENIZER_TASK, _WORDS_TASK = "training the tokenizer", "collecting the known words"


@dataclass(frozen=True)
class TrainingData:
    """The tokenized training and validation data of a run."""

    tokenizers: tuple[Tokenizer, Tokenizer]  # source and target; the same object if shared
    batches: Batches
    valid_batches: Batches
    source_texts: Callable[[], Iterator[str]]  # of the training set; for a language model, the text
    train_count: int  # sentence pairs or documents
    dropped: int = 0  # pairs too long for the model or a batch
    valid_pairs: Sequence[Pair] = ()  # as text, or the path of a picture or sound and its text; of translations only
    valid_sources: TokenizedSide | None = None  # their tokens

    def close(self) -> None:
        """Ends what prepares the next epoch in the background."""
        if isinstance(self.batches, PrefetchedEpochs):
            self.batches.close()


Row = TypeVar("Row")


class PrefetchedEpochs(Batches):
    """Batches where each epoch is tokenized anew: a thread prepares the next epoch while one is trained on.

    `make` returns the batches of an epoch, and gives up when `stopped` is set. With a `period`, as many epochs are kept and
    then repeated. For use by one thread.
    """

    def __init__(self, first: Batches, make: Callable[[int], Batches], stopped: Event, period: int | None) -> None:
        self.shape, self._first, self._make, self._stopped, self._period = first.shape, first, make, stopped, period
        self._epochs: dict[int, Future[Batches]] = {}
        self._pool = ThreadPoolExecutor(1)

    def of_epoch(self, epoch: int) -> Batches:
        """Returns the batches of an epoch; if they are not yet there, waits for them."""
        this, following = (number % self._period if self._period else number for number in (epoch, epoch + 1))
        for number in (this, following):
            if number and number not in self._epochs:
                self._epochs[number] = self._pool.submit(self._make, number)
        if not self._period:
            self._epochs = {number: batches for number, batches in self._epochs.items() if number >= this}
        return self._epochs[this].result() if this else self._first

    def num_batches(self, epoch: int) -> int:
        return self.of_epoch(epoch).num_batches(epoch)

    def batch(self, epoch: int, number: int) -> Batch:
        return self.of_epoch(epoch).batch(epoch, number)

    def close(self) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)


def _until(stopped: Event, rows: Iterable[Row]) -> Iterator[Row]:
    """Yields the rows; raises CancelledError when the event is set."""
    for row in rows:
        if stopped.is_set():
            raise CancelledError
        yield row


def prepare_translation(
    config: Config, folder: Path, tokenizers: tuple[Tokenizer, Tokenizer] | None, count: int, static: bool,
    progress: ProgressFactory = no_progress,
) -> TrainingData:  # fmt: skip
    """Prepares a corpus of `count` sentence pairs. Trains tokenizers if none are given."""
    kind = media_kind(config.data)
    split = PairSplit(open_pairs(config.data), validation_pairs(config.data), count, kind is not None)
    valid = split.valid()
    if not valid:
        remedy = f"--valid-{kind}" if kind else "--valid-src and --valid-tgt"
        raise UserError(f"{count:,} pairs are too few to hold some out: add a validation set with {remedy}")
    tokenizers = tokenizers or _train_tokenizers(config, split, count, progress)
    model = config.model
    source, augment = tokenizers[0], None
    if model.source != "tokens":
        source, augment = load_extension("media", "reader")(model), load_extension("media", "augmentation")(config)
    encoders = (source, tokenizers[1])
    build = partial(ClassBatches if model.classifier else PairBatches, tokenizer=tokenizers[1], too_long="drop")
    build = partial(build, max_length=model.max_positions, max_source_length=model.actual_max_source_positions)
    tokens, stopped = micro_batch_tokens(config), Event()

    def make(epoch: int, like: PairBatches | None = None) -> PairBatches:
        # Later epochs are tokenized in the background, while the display shows the training.
        rows, shown = _until(stopped, split.train()), progress if like is None else no_progress
        store = store_pairs(folder, rows, split.fingerprint, encoders, _bpe_dropout(config, epoch), count, shown)
        if model.classifier:
            require_classes(store)
        return build(store, tokens, seed=config.train.seed, static=static, like=like, augment=augment)

    valid_store = store_pairs(folder, valid, split.valid_fingerprint, encoders)
    if model.classifier:
        require_classes(valid_store)
    first = make(0)
    return TrainingData(
        tokenizers=tokenizers,
        batches=_all_epochs(config, first, partial(make, like=first), stopped),
        valid_batches=build(valid_store, max(4000, tokens)),
        valid_pairs=valid,
        valid_sources=valid_store.sides[0],
        source_texts=lambda: _with_progress((source for source, _ in split.train()), progress(_WORDS_TASK, count)),
        train_count=len(first.kept),
        dropped=len(first.dropped),
    )


def prepare_text(
    config: Config, folder: Path, tokenizer: Tokenizer | None, static: bool, progress: ProgressFactory = no_progress
) -> TrainingData:
    """Prepares plain text for a language model. Trains a tokenizer if none is given."""
    valid_corpus = open_documents(config.data, "valid_") if config.data.valid_text else None
    split = TextSplit(open_documents(config.data), valid_corpus, progress)
    tokenizer = tokenizer or _train_tokenizer(config.text, (text for text, _ in split.train(_TOKENIZER_TASK)))

    context, within_documents, stopped = config.model.max_positions, config.text.documents, Event()
    # With BPE-dropout, the lengths of documents vary by epoch, but the shape of a batch must not.
    max_documents = context if within_documents and config.text.bpe_dropout else None
    build = partial(TextBatches, tokens=micro_batch_tokens(config), tokenizer=tokenizer, context=context, static=static)
    build = partial(build, seed=config.train.seed, within_documents=within_documents, max_documents=max_documents)

    def make(epoch: int) -> TextBatches:
        chunks = _until(stopped, split.train("tokenizing" if epoch == 0 else ""))
        return build(store_documents(folder, chunks, split.fingerprint, tokenizer, _bpe_dropout(config, epoch)))

    first = make(0)
    return TrainingData(
        tokenizers=(tokenizer, tokenizer),
        batches=_all_epochs(config, first, make, stopped),
        valid_batches=build(store_documents(folder, split.valid(), split.valid_fingerprint, tokenizer)),
        source_texts=lambda: (text for text, _ in split.train(_WORDS_TASK)),
        train_count=len(first.text),
    )


def _train_tokenizers(
    config: Config, split: PairSplit, count: int, progress: ProgressFactory
) -> tuple[Tokenizer, Tokenizer]:
    def train(sides: Sequence[int]) -> Tokenizer:
        advance = progress(_TOKENIZER_TASK, min(len(sides) * count, MAX_TOKENIZER_LINES))
        lines = (pair[side] for pair in split.train() for side in sides)
        return _train_tokenizer(config.text, _with_progress(islice(lines, MAX_TOKENIZER_LINES), advance))

    if config.model.source != "tokens" or config.text.shared_vocab:  # other sources are paths
        shared = train([0, 1] if config.model.source == "tokens" else [1])
        return shared, shared
    return train([0]), train([1])


def _train_tokenizer(config: TextConfig, texts: Iterator[str]) -> Tokenizer:
    return Tokenizer.train(texts, config.tokenizer, config.vocab_size, normalize=config.normalize)


def _with_progress(texts: Iterator[str], advance: Callable[[int], None]) -> Iterator[str]:
    for text in texts:
        advance(1)
        yield text


def _all_epochs(config: Config, first: Batches, make: Callable[[int], Batches], stopped: Event) -> Batches:
    if not config.text.bpe_dropout:
        return first
    repeats = first.num_batches(0) * micro_batch_tokens(config) <= MAX_REPEATED_TOKENS
    return PrefetchedEpochs(first, make, stopped, SEGMENTATIONS if repeats else None)


def _bpe_dropout(config: Config, epoch: int) -> BpeDropout | None:
    return BpeDropout(config.text.bpe_dropout, config.train.seed, epoch) if config.text.bpe_dropout else None


def micro_batch_tokens(config: Config) -> int:
    return max(1, config.train.batch_tokens // config.train.gradient_accumulation)


def with_vocab_sizes(config: Config, tokenizers: tuple[Tokenizer, Tokenizer]) -> Config:
    """Returns the configuration with the actual vocabulary sizes of the tokenizers."""
    source, target = map(len, tokenizers)
    shared = config.text.shared_vocab or tokenizers[0] is tokenizers[1]
    tie = config.model.tie_embeddings if shared or config.model.tie_embeddings == "none" else "target"
    model = replace(config.model, vocab_size=target, source_vocab_size=0 if shared else source, tie_embeddings=tie)
    return replace(config, model=model)
