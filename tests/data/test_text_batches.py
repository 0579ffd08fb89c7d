"""Batches of text for language models."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see.data.batch import IGNORE_INDEX, Batch, Sequences
from seq2see.data.batches import TextBatches
from seq2see.data.store import TokenizedSide, TokenStore
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from tests.data.stores import random_store, split

# Language models


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
    st.integers(1, 24),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32),
)
@settings(max_examples=200, deadline=None)
def test_every_token_of_a_text_is_a_target_once_per_epoch(
    tokenizer: Tokenizer,
    documents: list[int],
    context: int,
    blocks: int,
    world: int,
    within: bool,
    static: bool,
    seed: int,
) -> None:
    # All tokens differ, so that each identifies its position in the text.
    offsets = np.concatenate([[0], np.cumsum(documents)])
    text = np.arange(10, 10 + offsets[-1], dtype=np.uint16)
    store = TokenStore(Path(), (TokenizedSide(text, offsets),))
    batches = TextBatches(
        store, context * blocks, tokenizer, context=context, seed=seed, within_documents=within, static=static
    )
    starts = set((offsets[:-1] + 10).tolist())
    for epoch in (0, 1):
        shares = [list(batches.iterate(epoch, rank=rank, world_size=world)) for rank in range(world)]
        assert len({len(share) for share in shares}) == 1
        seen: Counter[int] = Counter()
        for batch in itertools.chain.from_iterable(shares):
            seen += Counter(batch.targets[batch.targets != IGNORE_INDEX].tolist())
            assert_text(batch, batches, starts)
        assert seen == Counter(text.tolist())


def assert_text(batch: Batch, batches: TextBatches, starts: set[int]) -> None:
    assert batch.source is None
    inputs, targets = split(batch.inputs), split(Sequences(batch.targets, batch.inputs.lengths, 0))
    assert batch.inputs.lengths.max() <= batch.inputs.max_length <= batches.context
    for read, expected in zip(inputs, targets, strict=True):
        # Padding comes last, where a causal mask hides it.
        size = next((i for i, token in enumerate(expected) if token == IGNORE_INDEX), len(expected))
        assert set(expected[size:]) <= {IGNORE_INDEX}
        read, expected = read[:size], expected[:size]
        if not expected:
            continue
        assert expected == list(range(expected[0], expected[0] + len(expected)))
        assert read == [batches.start if token in starts else token - 1 for token in expected]
        if batches.within_documents:
            assert not starts & set(expected[1:]), "attention would cross into another document"
    if batches.static:
        assert len(batch.targets) == batches.shape.target
        assert len(batch.inputs.lengths) == batches.shape.sequences
    elif batch.num_targets and not batches.within_documents:
        assert len(inputs) == len(batch.indices)


def test_text_batches_can_resume_anywhere(tokenizer: Tokenizer) -> None:
    store = random_store(np.random.default_rng(0).integers(1, 300, 50))
    batches = TextBatches(store, 64, tokenizer, context=16)
    full_epoch = [batch.targets.tolist() for batch in batches.iterate(2)]
    assert [batch.targets.tolist() for batch in batches.iterate(2, first=7)] == full_epoch[7:]
    assert full_epoch != [batch.targets.tolist() for batch in batches.iterate(3)]


def test_batch_smaller_than_a_block_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="64 tokens cannot hold one block of 128"):
        TextBatches(random_store([500]), 64, tokenizer, context=128)
