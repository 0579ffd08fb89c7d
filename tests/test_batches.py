"""Batches: every sentence once an epoch, in full batches of like length, the same for one process and for many."""

import itertools
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.layout import Layout
from seq2see.model.transformer import Transformer
from seq2see.text.batch_plan import Budget, plan
from seq2see.text.batches import IGNORED, Batch, PairBatches, Sequences, Shape, TensorBatch, TextBatches, _filled_up
from seq2see.text.store import Side, Store, store_pairs, store_texts
from seq2see.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a b c d"], kind="word")


def side_of(lengths: NDArray[np.int64], seed: int, vocabulary: int = 90) -> Side:
    """Random tokens, none of them special, each sentence closed by <end>, which is 2."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(seed).integers(4, vocabulary, offsets[-1]).astype(np.uint16)
    tokens[offsets[1:] - 1] = 2
    return Side(tokens, offsets)


def store_of(*lengths: list[int] | NDArray[np.int64]) -> Store:
    return Store(Path(), tuple(side_of(np.asarray(side, dtype=np.int64), seed) for seed, side in enumerate(lengths)))


def real_lengths(sentences: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths as translators' corpora have them: log-normal, and correlated between the sides at 0.85."""
    generator = np.random.default_rng(seed)
    source = generator.lognormal(2.4, 0.5, sentences)
    target = source * generator.lognormal(0.05, 0.25, sentences)
    return source.astype(np.int64) + 2, target.astype(np.int64) + 2


def split(sequences: Sequences) -> list[list[int]]:
    ends = np.cumsum(sequences.lengths)
    return [part.tolist() for part in np.split(sequences.tokens, ends[:-1])]


lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=60).map(lambda pairs: [*pairs, (1, 1)])


@given(
    lengths,
    st.integers(1, 120),
    st.integers(1, 5),
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 9, 24, 40]),
    st.booleans(),
)
@settings(max_examples=250, deadline=None)
def test_every_sentence_once_an_epoch(
    tokenizer: Tokenizer, lengths: list[tuple[int, int]], tokens: int, world: int, seed: int, longest: int, static: bool
) -> None:
    store = store_of(*map(list, zip(*lengths, strict=True)))
    batches = PairBatches(store, tokens, tokenizer, seed=seed, longest=longest, too_long="drop", static=static)
    for epoch in (0, 1):
        shares = [list(batches.share(epoch, rank=rank, world=world)) for rank in range(world)]
        assert len({len(share) for share in shares}) == 1
        met = Counter(int(i) for share in shares for batch in share for i in batch.sentences)
        assert met == Counter(set(range(len(lengths))) - set(batches.dropped.tolist()))
        for batch in itertools.chain.from_iterable(shares):
            check_pairs(batch, batches, store)


def check_pairs(batch: Batch, batches: PairBatches, store: Store) -> None:
    """What is in a batch is what is in the store, and the rest does not count."""
    assert batch.source is not None
    shape = batches.shape
    used = len(batch.sentences)
    sources, inputs = split(batch.source), split(batch.inputs)
    targets = split(Sequences(batch.targets, batch.inputs.lengths, 0))
    assert sources[:used] == [store.sides[0][i].tolist() for i in batch.sentences]
    assert targets[:used] == [store.sides[1][i].tolist() for i in batch.sentences]
    assert inputs[:used] == [[batches.start, *target[:-1]] for target in targets[:used]]
    assert batch.count == sum(map(len, targets[:used]))
    assert set(itertools.chain.from_iterable(targets[used:])) <= {IGNORED}
    assert all(source or not target for source, target in zip(sources, inputs, strict=True)), "nothing to look at"
    assert sum(map(len, sources[:used])) <= batches.budget.source
    assert sum(map(len, targets[:used])) <= batches.budget.target
    for side in (batch.source, batch.inputs):
        assert side.lengths.max() <= side.longest <= shape.longest
    if batches.static:
        assert (len(batch.source.tokens), len(batch.inputs.tokens)) == (shape.source, shape.target)
        assert len(batch.inputs.lengths) == len(batch.source.lengths) == shape.sequences
        assert {batch.source.longest, batch.inputs.longest} <= {16, 32, shape.longest}
    else:
        assert used == len(batch.inputs.lengths) or not batch.count


@given(st.integers(0, 40), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_resuming_anywhere_goes_on_as_before(tokenizer: Tokenizer, first: int, world: int, later_world: int) -> None:
    batches = PairBatches(store_of(*real_lengths(500)), 200, tokenizer)
    whole = [batch.sentences.tolist() for batch in batches.share(3)]
    assert len(whole) > 30
    first = min(first, len(whole))
    fresh = PairBatches(store_of(*real_lengths(500)), 200, tokenizer)
    shares = [list(fresh.share(3, first, rank, later_world)) for rank in range(later_world)]
    rest = [batch.sentences.tolist() for together in zip(*shares, strict=True) for batch in together]
    assert rest[: len(whole) - first] == whole[first:]
    assert not any(rest[len(whole) - first :]), "what fills the last round is idle"


def test_the_plan_comes_from_seed_and_epoch(tokenizer: Tokenizer) -> None:
    store = store_of(*real_lengths(2000))

    def epoch(seed: int, epoch: int) -> list[list[int]]:
        batches = PairBatches(store, 400, tokenizer, seed=seed)
        return [sorted(batch.sentences.tolist()) for batch in batches.share(epoch)]

    assert epoch(1, 5) == epoch(1, 5)
    assert epoch(1, 5) != epoch(1, 6)
    assert epoch(1, 5) != epoch(2, 5)
    # Not only the order of the batches differs, but who meets whom.
    once = {tuple(batch) for batch in epoch(1, 5)}
    assert sum(tuple(batch) in once for batch in epoch(1, 6)) <= 2


def test_a_plan_is_the_same_on_every_machine() -> None:
    """Runs are resumed elsewhere, by other versions of numpy: these numbers were written down, not computed here."""
    lengths = np.arange(1, 21, dtype=np.int32)
    epoch = plan(lengths, lengths[::-1].copy(), Budget(60, 60), seed=7, epoch=3)
    assert [epoch[i].tolist() for i in range(len(epoch))] == FIXED_PLAN


FIXED_PLAN = [[17, 2, 18, 19], [0], [5, 15, 16, 3, 1], [13, 7, 14, 6, 4], [9, 10, 8, 11, 12]]


@pytest.mark.parametrize("tokens", [4000, 8000, 25000, 60000])
@pytest.mark.parametrize("epoch", [0, 1])
def test_batches_are_full_and_their_sentences_alike(tokenizer: Tokenizer, tokens: int, epoch: int) -> None:
    batches = PairBatches(store_of(*real_lengths(29_000)), tokens, tokenizer, static=True)
    assert batches.fill(epoch) >= 0.97
    assert batches.budget.target > 0.8 * tokens
    alike = []
    for batch in batches.share(epoch):
        used = len(batch.sentences)
        alike.append(batch.inputs.lengths[:used].mean() / batch.inputs.lengths[:used].max())
    assert np.mean(alike) > (0.75 if tokens <= 8000 else 0.5)


def test_what_fills_up_a_batch_always_has_a_source() -> None:
    """The decoder's rows look at the encoder's, and a row with nothing to look at is not a number."""
    side = Sequences(np.full(10, 5), np.array([10]), 10)
    shape = Shape(source=12, target=200, sequences=40, longest=100)
    filled = _filled_up(Batch(side, side, np.full(10, 5), np.array([0])), shape, pad=0)
    assert filled.source is not None
    assert filled.source.lengths[:4].tolist() == [10, 1, 1, 0]
    assert filled.inputs.lengths[:4].tolist() == [10, 95, 95, 0]
    assert (filled.source.longest, filled.inputs.longest) == (16, 100)


def test_budgets_are_in_the_corpuss_own_ratio(tokenizer: Tokenizer) -> None:
    source, target = real_lengths(5000)
    batches = PairBatches(store_of(source, 2 * target), 4000, tokenizer)
    ratio = source.sum() / (2 * target.sum())
    assert batches.budget.source / batches.budget.target == pytest.approx(ratio, rel=0.01)


def test_a_sentence_that_does_not_fit_is_an_error_or_counted(tokenizer: Tokenizer) -> None:
    store = store_of([5, 5, 40, 5], [5, 5, 5, 60])
    with pytest.raises(UserError, match="2 of 4 sentence pairs are too long, the first number 3 with 40 and 5 tokens"):
        PairBatches(store, 100, tokenizer, longest=32)
    batches = PairBatches(store, 100, tokenizer, longest=32, too_long="drop")
    assert batches.dropped.tolist() == [2, 3]
    with pytest.raises(UserError, match="every sentence pair is too long"):
        PairBatches(store, 100, tokenizer, longest=4, too_long="drop")


# Language models


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 24), st.integers(1, 4), st.integers(1, 3),
    st.booleans(), st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_every_token_of_a_text_is_a_target_once_an_epoch(
    tokenizer: Tokenizer,
    documents: list[int],
    context: int,
    blocks: int,
    world: int,
    within: bool,
    static: bool,
    seed: int,
) -> None:
    # Every token differs, so that each says where in the text it stood.
    offsets = np.concatenate([[0], np.cumsum(documents)])
    text = np.arange(10, 10 + offsets[-1], dtype=np.uint16)
    store = Store(Path(), (Side(text, offsets),))
    batches = TextBatches(
        store, context * blocks, tokenizer, context=context, seed=seed, within_documents=within, static=static
    )
    starts = set((offsets[:-1] + 10).tolist())
    for epoch in (0, 1):
        shares = [list(batches.share(epoch, rank=rank, world=world)) for rank in range(world)]
        assert len({len(share) for share in shares}) == 1
        met: Counter[int] = Counter()
        for batch in itertools.chain.from_iterable(shares):
            met += Counter(batch.targets[batch.targets != IGNORED].tolist())
            check_text(batch, batches, starts)
        assert met == Counter(text.tolist())


def check_text(batch: Batch, batches: TextBatches, starts: set[int]) -> None:
    assert batch.source is None
    inputs, targets = split(batch.inputs), split(Sequences(batch.targets, batch.inputs.lengths, 0))
    assert batch.inputs.lengths.max() <= batch.inputs.longest <= batches.context
    for read, said in zip(inputs, targets, strict=True):
        if not said or said[0] == IGNORED:
            assert set(said) <= {IGNORED}
            continue
        assert said == list(range(said[0], said[0] + len(said)))
        assert read == [batches.start if token in starts else token - 1 for token in said]
        if batches.within_documents:
            assert not starts & set(said[1:]), "attention would cross into another document"
    if batches.static:
        assert len(batch.targets) == batches.shape.target
        assert len(batch.inputs.lengths) == batches.shape.sequences
    elif batch.count and not batches.within_documents:
        assert len(inputs) == len(batch.sentences)


def test_text_can_be_resumed_anywhere(tokenizer: Tokenizer) -> None:
    store = store_of(np.random.default_rng(0).integers(1, 300, 50))
    batches = TextBatches(store, 64, tokenizer, context=16)
    whole = [batch.targets.tolist() for batch in batches.share(2)]
    assert [batch.targets.tolist() for batch in batches.share(2, first=7)] == whole[7:]
    assert whole != [batch.targets.tolist() for batch in batches.share(3)]


def test_a_batch_must_hold_a_block(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="64 tokens cannot hold one block of 128"):
        TextBatches(store_of([500]), 64, tokenizer, context=128)


# Tensors


def loss(model: Transformer, batch: Batch) -> float:
    tensors = batch.to("cpu")
    logits = model(tensors.inputs) if tensors.source is None else model(tensors.source, tensors.inputs)
    return F.cross_entropy(logits.double(), tensors.targets, ignore_index=IGNORED, reduction="sum").item()


@pytest.mark.parametrize("shape", ["encoder-decoder", "decoder"])
def test_filling_up_changes_no_loss(tokenizer: Tokenizer, shape: str) -> None:
    torch.manual_seed(0)
    config = ModelConfig(
        shape="decoder" if shape == "decoder" else "encoder-decoder", vocabulary=90, width=16, heads=2,
        encoder_layers=1, decoder_layers=1, feed_forward=32, longest=64, positions="learned",
    )  # fmt: skip
    model = Transformer(config).eval()
    losses = []
    for static in (False, True):
        made: PairBatches | TextBatches
        if shape == "decoder":
            text = store_of(np.random.default_rng(0).integers(1, 90, 30))
            made = TextBatches(text, 256, tokenizer, context=64, within_documents=True, static=static)
        else:
            made = PairBatches(store_of(*real_lengths(200)), 300, tokenizer, longest=64, static=static)
        # One more than there are, as a process gets in an incomplete round.
        numbers = range(made.count(0) + 1)
        losses.append([loss(model, made.batch(0, number)) for number in numbers])
        assert losses[-1][-1] == 0
        assert made.batch(0, made.count(0)).count == 0
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("static", [False, True])
def test_the_layout_is_the_models_own(tokenizer: Tokenizer, static: bool) -> None:
    batch = PairBatches(store_of(*real_lengths(200)), 300, tokenizer, longest=64, static=static).batch(0, 1)
    made = batch.to("cpu").inputs.layout
    expected = vars(Layout.of(torch.from_numpy(batch.inputs.lengths), batch.inputs.longest))
    assert vars(made).keys() == expected.keys()
    assert made.numbers is expected.pop("numbers") is None
    for name, value in vars(made).items():
        if name == "numbers":
            continue
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(expected[name])), name
        assert torch.as_tensor(value).dtype == torch.as_tensor(expected[name]).dtype


def test_from_text_to_the_model(tmp_path: Path) -> None:
    pairs = [("the cat sleeps", "बिल्ली सोती है"), ("the old dog sleeps", "बूढ़ा कुत्ता सोता है"), ("dogs", "कुत्ते")]
    tokenizer = Tokenizer.train([text for pair in pairs for text in pair], kind="word")
    store = store_pairs(tmp_path, pairs, "key", (tokenizer, tokenizer))
    (batch,) = PairBatches(store, 100, tokenizer).share(0)
    tensors = batch.to("cpu")
    assert tensors.source is not None
    for row, i in enumerate(batch.sentences):
        source, target = pairs[i]
        rows = tensors.inputs.layout.slice(row)
        assert tokenizer.decode(tensors.source.tokens[tensors.source.layout.slice(row)]) == source
        assert tokenizer.decode(tensors.inputs.tokens[rows]) == tokenizer.decode(tensors.targets[rows]) == target
        assert tensors.inputs.tokens[rows][0] == tokenizer.start
        assert tensors.targets[rows][-1] == tokenizer.end
    assert tensors.count == batch.count == len(batch.targets)

    text = store_texts(tmp_path, ((source, True) for source, _ in pairs), "key", tokenizer)
    (batch,) = TextBatches(text, 100, tokenizer, context=100).share(0)
    assert batch.to().inputs.tokens.dtype == torch.int64


def test_the_document_runs() -> None:
    document = (Path(__file__).parent.parent / "docs" / "text.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", document, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["tensors"], TensorBatch)
