"""From the files of a configuration to tokenizers and batches.

What is decided here for the user (a validation set held out, a preset and a vocabulary by the size of the corpus) is
written into the run's configuration, so that the same run can be made again from its config.toml alone.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

from seq2see.config import Config, DataConfig
from seq2see.errors import UserError
from seq2see.text.batches import Batches, PairBatches, TextBatches
from seq2see.text.bpe_dropout import Dropout
from seq2see.text.corpus import Documents, Pairs, plain, training_pairs, validation_pairs
from seq2see.text.store import Store, store_pairs, store_texts
from seq2see.text.tokenizer import Tokenizer

HELD_OUT = 1000  # pairs, at most, and
HELD_OUT_SHARE = 0.02  # of the corpus, at most, that validate a run without a validation set of its own
HELD_OUT_TEXT = 0.1  # of a text, at most, and
HELD_OUT_CHARACTERS = 1_000_000  # at most, that validate a language model without a validation text
LEARN_FROM = 2_000_000  # lines that a tokenizer is trained on, at most: more teaches it nothing

Pair = tuple[str, str]


@dataclass(frozen=True)
class Prepared:
    """What the training loop asks for."""

    tokenizers: tuple[Tokenizer, Tokenizer]  # of source and target; often one and the same
    batches: Callable[[int], Batches]  # of an epoch
    valid_batches: Batches
    valid: list[Pair]  # as text; of a language model, none
    pairs: int  # or documents
    dropped: int  # too long for the model


def documents(data: DataConfig, role: str = "") -> Documents:
    return plain([Path(path) for path in getattr(data, f"{role}text")], data.boundaries)


class Split:
    """Pairs for training and for validation. A pair is held out by its source alone, so that the same sentence with two
    translations never stands on both sides. Empty and one-sided pairs teach nothing and are left out.
    """

    def __init__(self, train: Pairs, valid: Pairs | None, count: int) -> None:
        self._train, self._valid = train, valid
        share = 0.0 if valid is not None else min(HELD_OUT_SHARE, HELD_OUT / max(count, 1))
        self._below = int(share * (1 << 32))
        self.key = f"{train.key} {self._below}"

    def _is_held_out(self, source: str) -> bool:
        return int.from_bytes(hashlib.blake2b(source.encode(errors="replace"), digest_size=4).digest()) < self._below

    def train(self) -> Iterator[Pair]:
        return (pair for pair in _sound(self._train) if not self._is_held_out(pair[0]))

    def valid(self) -> list[Pair]:
        if self._valid is not None:
            return list(_sound(self._valid))
        return [pair for pair in _sound(self._train) if self._is_held_out(pair[0])]


class TextSplit:
    """Passages, each with whether its document ends there, for training and for validation: a text of its own, or else the
    end of the training text.
    """

    def __init__(self, train: Documents, valid: Documents | None) -> None:
        self._train, self._valid = train, valid
        size = 0 if valid is not None else sum(len(p.text) for p in train.passages())
        self._first = size - min(HELD_OUT_CHARACTERS, int(size * HELD_OUT_TEXT))  # characters that train; 0: all
        self.key = f"{train.key} {self._first}"
        self.valid_key = valid.key if valid is not None else f"{train.key} from {self._first}"

    def train(self) -> Iterator[tuple[str, bool]]:
        if not self._first:
            yield from ((p.text, p.ends) for p in self._train.passages())
            return
        left = self._first
        for passage in self._train.passages():
            if len(passage.text) >= left:
                yield passage.text[:left], True
                return
            left -= len(passage.text)
            yield passage.text, passage.ends

    def valid(self) -> Iterator[tuple[str, bool]]:
        left = self._first
        for passage in (self._train if self._valid is None else self._valid).passages():
            if len(passage.text) > left:
                yield passage.text[left:], passage.ends
            left = max(0, left - len(passage.text))


def _sound(pairs: Iterable[Pair]) -> Iterator[Pair]:
    return (pair for pair in pairs if pair[0].strip() and pair[1].strip())


def prepare_translation(
    config: Config, folder: Path, tokenizers: tuple[Tokenizer, Tokenizer] | None, count: int, static: bool
) -> Prepared:
    """`count` is the number of pairs; tokenizers are trained unless there are some already."""
    split = Split(training_pairs(config.data), validation_pairs(config.data), count)
    valid = split.valid()
    if not valid:
        raise UserError(
            f"too few pairs ({count:,}) to hold some out: name a validation set with --valid-src and --valid-tgt"
        )
    tokenizers = tokenizers or _train_tokenizers(config, split)
    longest, train = config.model.longest, config.train

    @lru_cache(2)
    def batches(epoch: int) -> Batches:
        store = store_pairs(folder, split.train(), split.key, tokenizers, _drawn(config, epoch), count)
        return PairBatches(
            store, micro_tokens(config), tokenizers[1], seed=train.seed, longest=longest, too_long="drop", static=static
        )

    held = store_pairs(folder, valid, _key_of(valid), tokenizers)
    valid_batches = PairBatches(held, max(4000, micro_tokens(config)), tokenizers[1], longest=longest, too_long="drop")
    first = batches(0)
    assert isinstance(first, PairBatches)
    return Prepared(
        tokenizers, batches if config.text.dropout else lambda epoch: first, valid_batches, valid,
        len(first.kept), len(first.dropped),
    )  # fmt: skip


def prepare_text(config: Config, folder: Path, tokenizer: Tokenizer | None, static: bool) -> Prepared:
    split = TextSplit(documents(config.data), documents(config.data, "valid_") if config.data.valid_text else None)
    if tokenizer is None:
        vocabulary, kind = config.text.vocabulary, config.text.tokenizer
        tokenizer = Tokenizer.train(
            (text for text, _ in split.train()), kind, vocabulary, normalise=config.text.normalise
        )

    def batches_of(store: Store) -> TextBatches:
        return TextBatches(
            store, micro_tokens(config), tokenizer, context=config.model.longest, seed=config.train.seed,
            within_documents=config.text.documents, static=static,
        )  # fmt: skip

    def stored(epoch: int) -> Store:
        return store_texts(folder, split.train(), split.key, tokenizer, _drawn(config, epoch))

    whole = batches_of(stored(0))
    valid = batches_of(store_texts(folder, split.valid(), split.valid_key, tokenizer))
    sampled = lru_cache(2)(lambda epoch: batches_of(stored(epoch)))
    return Prepared(
        (tokenizer, tokenizer), sampled if config.text.dropout else lambda epoch: whole, valid, [],
        len(whole.text), 0,
    )  # fmt: skip


def _train_tokenizers(config: Config, split: Split) -> tuple[Tokenizer, Tokenizer]:
    text = config.text

    def trained(lines: Iterator[str]) -> Tokenizer:
        return Tokenizer.train(islice(lines, LEARN_FROM), text.tokenizer, text.vocabulary, normalise=text.normalise)

    if text.shared:
        both = trained(side for pair in split.train() for side in pair)
        return both, both
    return trained(pair[0] for pair in split.train()), trained(pair[1] for pair in split.train())


def _drawn(config: Config, epoch: int) -> Dropout | None:
    return Dropout(config.text.dropout, config.train.seed, epoch) if config.text.dropout else None


def _key_of(pairs: Sequence[Pair]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for source, target in pairs:
        whole.update(f"{source}\n{target}\n".encode(errors="replace"))
    return whole.hexdigest()


def micro_tokens(config: Config) -> int:
    return max(1, config.train.tokens // config.train.accumulate)


def with_vocabularies(config: Config, tokenizers: tuple[Tokenizer, Tokenizer]) -> Config:
    """The configuration with the sizes that the tokenizers really have."""
    source, target = map(len, tokenizers)
    shared = tokenizers[0] is tokenizers[1]
    tie = config.model.tie if shared or config.model.tie == "none" else "target"
    model = replace(config.model, vocabulary=target, source_vocabulary=0 if shared else source, tie=tie)
    return replace(config, model=model)
