"""Batches: every sentence once per epoch, full batches of similar length, independent of the number of processes."""

import itertools
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional as F

from seq2see.config import Config, DataConfig, ModelConfig
from seq2see.data.batch import IGNORE_INDEX, Batch, BatchShape, Sequences, TensorBatch, pad_to_shape
from seq2see.data.batch_plan import Budget, EpochPlan, plan_epoch
from seq2see.data.batches import Batches, PairBatches, TextBatches
from seq2see.data.layout import Layout
from seq2see.data.split import Pair, PairSplit
from seq2see.data.store import TokenStore, store_documents, store_pairs
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.model.transformer import Transformer
from seq2see.train import prepare_data
from seq2see.train.prepare_data import PrefetchedEpochs, prepare_text, prepare_translation
from tests.corpora import SMALL_SETTINGS, write_phrases
from tests.data.stores import lengths, random_store, split
from tests.waiting import HANG, wait_until


def realistic_lengths(sentences: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths as in translation corpora: log-normal, with a correlation of 0.85 between the sides."""
    generator = np.random.default_rng(seed)
    source = generator.lognormal(2.4, 0.5, sentences)
    target = source * generator.lognormal(0.05, 0.25, sentences)
    return source.astype(np.int64) + 2, target.astype(np.int64) + 2


@given(
    lengths,
    st.integers(1, 120),
    st.integers(1, 5),
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 9, 24, 40]),
    st.booleans(),
)
@settings(max_examples=250, deadline=None)
def test_every_sentence_once_per_epoch(
    tokenizer: Tokenizer,
    lengths: list[tuple[int, int]],
    tokens: int,
    world: int,
    seed: int,
    max_length: int,
    static: bool,
) -> None:
    store = random_store(*map(list, zip(*lengths, strict=True)))
    batches = PairBatches(store, tokens, tokenizer, seed=seed, max_length=max_length, too_long="drop", static=static)
    for epoch in (0, 1):
        shares = [list(batches.iterate(epoch, rank=rank, world_size=world)) for rank in range(world)]
        assert len({len(share) for share in shares}) == 1
        seen = Counter(int(i) for share in shares for batch in share for i in batch.indices)
        assert seen == Counter(set(range(len(lengths))) - set(batches.dropped.tolist()))
        for batch in itertools.chain.from_iterable(shares):
            assert_pairs(batch, batches, store)


def assert_pairs(batch: Batch, batches: PairBatches, store: TokenStore) -> None:
    """Checks that a batch holds the sentences of the store, and that the rest is ignored."""
    assert batch.source is not None
    shape = batches.shape
    used = len(batch.indices)
    sources, inputs = split(batch.source), split(batch.inputs)
    targets = split(Sequences(batch.targets, batch.inputs.lengths, 0))
    assert sources[:used] == [store.sides[0][i].tolist() for i in batch.indices]
    assert targets[:used] == [store.sides[1][i].tolist() for i in batch.indices]
    assert inputs[:used] == [[batches.start, *target[:-1]] for target in targets[:used]]
    assert batch.num_targets == sum(map(len, targets[:used]))
    assert set(itertools.chain.from_iterable(targets[used:])) <= {IGNORE_INDEX}
    assert all(source or not target for source, target in zip(sources, inputs, strict=True)), "no source to attend to"
    assert sum(map(len, sources[:used])) <= batches.budget.source
    assert sum(map(len, targets[:used])) <= batches.budget.target
    for side in (batch.source, batch.inputs):
        assert side.lengths.max() <= side.max_length <= shape.max_length
    if batches.static:
        assert (len(batch.source.tokens), len(batch.inputs.tokens)) == (shape.source, shape.target)
        assert len(batch.inputs.lengths) == len(batch.source.lengths) == shape.sequences
        assert {batch.source.max_length, batch.inputs.max_length} <= {16, 32, shape.max_length}
    else:
        assert used == len(batch.inputs.lengths) or not batch.num_targets


@given(st.integers(0, 40), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_resuming_continues_with_the_same_batches(
    tokenizer: Tokenizer, first: int, world: int, later_world: int
) -> None:
    batches = PairBatches(random_store(*realistic_lengths(500)), 200, tokenizer)
    full_epoch = [batch.indices.tolist() for batch in batches.iterate(3)]
    assert len(full_epoch) > 30
    first = min(first, len(full_epoch))
    fresh = PairBatches(random_store(*realistic_lengths(500)), 200, tokenizer)
    shares = [list(fresh.iterate(3, first, rank, later_world)) for rank in range(later_world)]
    rest = [batch.indices.tolist() for together in zip(*shares, strict=True) for batch in together]
    assert rest[: len(full_epoch) - first] == full_epoch[first:]
    assert not any(rest[len(full_epoch) - first :]), "the last round is filled with dummy batches"


def test_plan_depends_on_seed_and_epoch(tokenizer: Tokenizer) -> None:
    store = random_store(*realistic_lengths(2000))

    def epoch(seed: int, epoch: int) -> list[list[int]]:
        batches = PairBatches(store, 400, tokenizer, seed=seed)
        return [sorted(batch.indices.tolist()) for batch in batches.iterate(epoch)]

    assert epoch(1, 5) == epoch(1, 5)
    assert epoch(1, 5) != epoch(1, 6)
    assert epoch(1, 5) != epoch(2, 5)
    # Not only the order of the batches differs, but also which sentences share a batch.
    once = {tuple(batch) for batch in epoch(1, 5)}
    assert sum(tuple(batch) in once for batch in epoch(1, 6)) <= 2


def test_plan_is_reproducible_across_machines() -> None:
    """Runs are resumed on other machines with other versions of numpy: these numbers are recorded, not computed."""
    lengths = np.arange(1, 21, dtype=np.int32)
    epoch = plan_epoch(lengths, lengths[::-1].copy(), Budget(60, 60), seed=7, epoch=3)
    assert [epoch[i].tolist() for i in range(len(epoch))] == FIXED_PLAN


FIXED_PLAN = [[17, 2, 18, 19], [0], [5, 15, 16, 3, 1], [13, 7, 14, 6, 4], [9, 10, 8, 11, 12]]


@pytest.mark.parametrize("tokens", [4000, 8000, 25000, 60000])
@pytest.mark.parametrize("epoch", [0, 1])
def test_batches_are_full_and_of_similar_length(tokenizer: Tokenizer, tokens: int, epoch: int) -> None:
    batches = PairBatches(random_store(*realistic_lengths(29_000)), tokens, tokenizer, static=True)
    capacity = batches.num_batches(epoch) * (batches.shape.source + batches.shape.target)
    assert sum(int(side.sum()) for side in batches.lengths) >= 0.97 * capacity
    assert batches.budget.target > 0.8 * tokens
    ratios = []
    for batch in batches.iterate(epoch):
        used = len(batch.indices)
        ratios.append(batch.inputs.lengths[:used].mean() / batch.inputs.lengths[:used].max())
    assert np.mean(ratios) > (0.75 if tokens <= 8000 else 0.5)


def test_padding_sequences_always_have_a_source() -> None:
    """Decoder rows attend to encoder rows; softmax over an empty row is NaN."""
    side = Sequences(np.full(10, 5), np.array([10]), 10)
    shape = BatchShape(source=12, target=200, sequences=40, max_length=100)
    padded = pad_to_shape(Batch(side, side, np.full(10, 5), np.array([0])), shape, pad=0)
    assert padded.source is not None
    assert padded.source.lengths[:4].tolist() == [10, 1, 1, 0]
    assert padded.inputs.lengths[:4].tolist() == [10, 95, 95, 0]
    assert (padded.source.max_length, padded.inputs.max_length) == (100, 100)
    assert (padded.source.batch_max_length, padded.inputs.batch_max_length) == (16, 100)


def test_padding_takes_no_more_sequences_than_the_shape_has() -> None:
    side = Sequences(np.full(10, 5), np.array([10]), 10)
    shape = BatchShape(source=40, target=40, sequences=2, max_length=10)  # room for three more, but one is left
    padded = pad_to_shape(Batch(side, side, np.full(10, 5), np.array([0])), shape, pad=0)
    assert padded.source is not None
    assert padded.source.lengths.tolist() == padded.inputs.lengths.tolist() == [10, 30]


def test_budgets_have_the_ratio_of_the_corpus(tokenizer: Tokenizer) -> None:
    source, target = realistic_lengths(5000)
    batches = PairBatches(random_store(source, 2 * target), 4000, tokenizer)
    ratio = source.sum() / (2 * target.sum())
    assert batches.budget.source / batches.budget.target == pytest.approx(ratio, rel=0.01)


def test_too_long_sentences_are_an_error_or_dropped(tokenizer: Tokenizer) -> None:
    store = random_store([5, 5, 40, 5], [5, 5, 5, 60])
    with pytest.raises(
        UserError, match="2 of 4 sentence pairs are too long; the first is pair 3 with 40 source and 5 target tokens"
    ):
        PairBatches(store, 100, tokenizer, max_length=32)
    batches = PairBatches(store, 100, tokenizer, max_length=32, too_long="drop")
    assert batches.dropped.tolist() == [2, 3]
    with pytest.raises(UserError, match="every sentence pair is too long"):
        PairBatches(store, 100, tokenizer, max_length=4, too_long="drop")


@pytest.mark.parametrize("static", [False, True])
def test_halves_have_half_of_the_real_tokens_each(tokenizer: Tokenizer, static: bool) -> None:
    source, target = realistic_lengths(300)
    batches = PairBatches(random_store(source, target), 1500, tokenizer, static=static)
    batch = batches.batch(0, 0)
    halves = batch.halves()
    assert sum(half.num_targets for half in halves) == batch.num_targets
    assert max(half.num_targets for half in halves) < 0.6 * batch.num_targets
    assert all(half.num_targets == len(half.targets) for half in halves)  # without padding
    rows = [row for half in halves for row in split(half.inputs)]
    assert rows == split(batch.inputs)[: len(rows)]


def test_halving_ends_with_single_sequences(tokenizer: Tokenizer) -> None:
    batch = PairBatches(random_store([9, 1, 1, 1], [9, 1, 1, 1]), 40, tokenizer, static=True).batch(0, 0)
    parts = [batch]
    while len(halves := [half for part in parts for half in part.halves()]) > len(parts):
        parts = halves
    assert sorted(part.num_targets for part in parts) == [1, 1, 1, 9]
    assert PairBatches(random_store([9], [9]), 40, tokenizer).batch(0, 1).halves()[0].num_targets == 0  # a dummy batch


def test_each_epoch_is_planned_once_while_the_next_is_prefetched(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []

    def plan(*arguments: Any) -> EpochPlan:
        planned.append(arguments[-1])
        return plan_epoch(*arguments)

    batches = PairBatches(random_store(*realistic_lengths(300)), 500, tokenizer)
    monkeypatch.setattr("seq2see.data.batches.plan_epoch", plan)
    for epoch in range(3):
        for number in range(batches.num_batches(epoch)):
            batches.batch(epoch + (number > 3), number)  # the prefetching thread, already in the next epoch
            batches.num_batches(epoch)  # the training loop
    assert planned == [0, 1, 2, 3]


# Tensors


def loss(model: Transformer, batch: Batch) -> float:
    tensors = batch.to("cpu")
    logits = model(tensors.inputs) if tensors.source is None else model(tensors.source, tensors.inputs)
    return F.cross_entropy(logits.double(), tensors.targets, ignore_index=IGNORE_INDEX, reduction="sum").item()


@pytest.mark.parametrize("shape", ["encoder-decoder", "decoder"])
def test_padding_does_not_change_the_loss(tokenizer: Tokenizer, shape: str) -> None:
    torch.manual_seed(0)
    config = ModelConfig(
        shape="decoder" if shape == "decoder" else "encoder-decoder",
        vocab_size=90,
        width=16,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        feed_forward=32,
        max_positions=64,
        positions="learned",
    )
    model = Transformer(config).eval()
    losses = []
    for static in (False, True):
        batches: PairBatches | TextBatches
        if shape == "decoder":
            text = random_store(np.random.default_rng(0).integers(1, 90, 30))
            batches = TextBatches(text, 256, tokenizer, context=64, within_documents=True, static=static)
        else:
            batches = PairBatches(random_store(*realistic_lengths(200)), 300, tokenizer, max_length=64, static=static)
        # One more than the epoch has, as a process gets in an incomplete round.
        numbers = range(batches.num_batches(0) + 1)
        losses.append([loss(model, batches.batch(0, number)) for number in numbers])
        assert losses[-1][-1] == 0
        assert batches.batch(0, batches.num_batches(0)).num_targets == 0
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("static", [False, True])
def test_layout_equals_layout_from_lengths(tokenizer: Tokenizer, static: bool) -> None:
    batch = PairBatches(random_store(*realistic_lengths(200)), 300, tokenizer, max_length=64, static=static).batch(0, 1)
    layout = batch.to("cpu").inputs.layout
    expected = vars(Layout.from_lengths(torch.from_numpy(batch.inputs.lengths), batch.inputs.max_length))
    assert layout.sequence_ids is None
    expected_max = torch.tensor(batch.inputs.batch_max_length) if static else None
    assert layout.batch_max_length == expected_max
    for name, value in vars(layout).items():
        if name in ("sequence_ids", "batch_max_length"):
            continue
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(expected[name])), name
        assert torch.as_tensor(value).dtype == torch.as_tensor(expected[name]).dtype


def test_text_to_tensors_end_to_end(tmp_path: Path) -> None:
    pairs = [("the cat sleeps", "बिल्ली सोती है"), ("the old dog sleeps", "बूढ़ा कुत्ता सोता है"), ("dogs", "कुत्ते")]
    tokenizer = Tokenizer.train([text for pair in pairs for text in pair], kind="word")
    store = store_pairs(tmp_path, pairs, "key", (tokenizer, tokenizer))
    (batch,) = PairBatches(store, 100, tokenizer).iterate(0)
    tensors = batch.to("cpu")
    assert tensors.source is not None
    for row, i in enumerate(batch.indices):
        source, target = pairs[i]
        rows = tensors.inputs.layout.slice(row)
        assert tokenizer.decode(tensors.source.tokens[tensors.source.layout.slice(row)]) == source
        assert tokenizer.decode(tensors.inputs.tokens[rows]) == tokenizer.decode(tensors.targets[rows]) == target
        assert tensors.inputs.tokens[rows][0] == tokenizer.start
        assert tensors.targets[rows][-1] == tokenizer.end
    assert tensors.num_targets == batch.num_targets == len(batch.targets)

    text = store_documents(tmp_path, ((source, True) for source, _ in pairs), "key", tokenizer)
    (batch,) = TextBatches(text, 100, tokenizer, context=100).iterate(0)
    assert batch.to().inputs.tokens.dtype == torch.int64


def test_the_example_in_the_documentation_runs() -> None:
    document = (Path(__file__).parents[2] / "docs" / "text.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", document, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["tensors"], TensorBatch)


def of_epoch(batches: Batches, epoch: int) -> Batches:
    assert isinstance(batches, PrefetchedEpochs)
    return batches.of_epoch(epoch)


def test_static_batches_of_all_epochs_have_one_shape_with_bpe_dropout(tmp_path: Path) -> None:
    """The captured step on a GPU is made for one shape, but BPE-dropout changes the lengths of sentences in every epoch."""
    data = write_phrases(tmp_path)
    settings = [*SMALL_SETTINGS, "text.bpe_dropout=0.3", "text.documents=true", "model.max_positions=64"]
    pairs = Config(data=data).override(settings)
    phrases = (tmp_path / "train.en").read_text(encoding="utf-8")
    (tmp_path / "phrases.txt").write_text(phrases.replace("\n", "\n\n"), encoding="utf-8")  # one per document
    documents = DataConfig(text=(str(tmp_path / "phrases.txt"),), valid_text=data.valid_src)
    text = Config(data=documents).override(settings)
    prepared = (
        prepare_translation(pairs, tmp_path / "pairs", None, 340, static=True),
        prepare_text(text, tmp_path / "text", None, static=True),
    )
    for one in prepared:
        batches = one.batches
        token_counts = {sum(batch.num_targets for batch in batches.iterate(epoch)) for epoch in range(4)}
        assert len(token_counts) > 1  # the epochs do differ
        assert len({of_epoch(batches, epoch).shape for epoch in range(4)}) == 1
        one.close()


def test_the_next_epoch_is_tokenized_while_one_is_trained_on(tmp_path: Path) -> None:
    config = Config(data=write_phrases(tmp_path)).override([*SMALL_SETTINGS, "text.bpe_dropout=0.3"])
    tokens = tmp_path / "tokens"
    data = prepare_translation(config, tokens, None, 340, static=False)

    def stored_epochs() -> set[int | None]:
        epochs = set()
        for file in tokens.glob("tokens-*/store.json"):
            with suppress(FileNotFoundError):  # replaced at this moment
                epochs.add(json.loads(file.read_text())["epoch"])
        return epochs

    assert 0 in stored_epochs()
    present = [batch.targets.tolist() for batch in data.batches.iterate(0)]
    wait_until(lambda: 1 in stored_epochs())
    assert present == [batch.targets.tolist() for batch in data.batches.iterate(0)]  # it is still there
    data.close()


@pytest.mark.parametrize("small", [True, False])
def test_the_segmentations_of_a_small_corpus_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    monkeypatch.setattr(prepare_data, "SEGMENTATIONS", 3)
    monkeypatch.setattr(prepare_data, "MAX_REPEATED_TOKENS", 1 << 24 if small else 0)
    config = Config(data=write_phrases(tmp_path)).override([*SMALL_SETTINGS, "text.bpe_dropout=0.3"])
    data = prepare_translation(config, tmp_path / "tokens", None, 340, static=False)
    corpora = []
    for epoch in range(7):
        batches = of_epoch(data.batches, epoch)
        assert isinstance(batches, PairBatches)
        corpora.append(batches.target.tokens[:].tolist())
    assert len({str(corpus) for corpus in corpora}) == (3 if small else 7)
    assert (corpora[1] == corpora[4]) == small
    order = [[batch.indices.tolist() for batch in data.batches.iterate(epoch)] for epoch in (1, 4)]
    assert order[0] != order[1]  # the batches are shuffled in every epoch
    data.close()


def test_an_epoch_that_is_no_longer_needed_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(data=write_phrases(tmp_path)).override([*SMALL_SETTINGS, "text.bpe_dropout=0.3"])
    data = prepare_translation(config, tmp_path / "tokens", None, 340, static=False)
    rows, started = PairSplit.train, threading.Event()

    def endless(split: PairSplit) -> Iterator[Pair]:
        while True:
            started.set()
            yield from rows(split)

    monkeypatch.setattr(PairSplit, "train", endless)
    data.batches.num_batches(0)
    assert started.wait(HANG)
    data.close()
    assert not list((tmp_path / "tokens").glob("*.building"))
