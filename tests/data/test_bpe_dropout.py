"""BPE-dropout: the same text in other pieces in each epoch, and never another text."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see.data.bpe_dropout import BpeDropout, MergeRules, merge, word_seeds
from seq2see.data.tokenizer import Tokenizer
from seq2see.tensors.rng import random_uint64, splitmix64
from tests.data.texts import CORPUS, SENTENCES, encode_with_dropout

# BPE-dropout


@given(st.lists(st.text(st.sampled_from("".join(CORPUS)) | st.characters(exclude_categories=["Cs"])), max_size=6))
@settings(deadline=None)
def test_zero_dropout_equals_plain_encoding(bpe: Tokenizer, texts: list[str]) -> None:
    assert encode_with_dropout(bpe, texts, 0.0) == [bpe.encode(text) for text in texts]


@given(st.lists(st.text(), max_size=6), st.floats(0, 1))
@settings(deadline=None)
def test_dropout_does_not_change_the_decoded_text(bpe: Tokenizer, texts: list[str], p: float) -> None:
    assert [bpe.decode(ids) for ids in encode_with_dropout(bpe, texts, p)] == texts


def test_full_dropout_leaves_bytes(bpe: Tokenizer) -> None:
    assert list(map(len, encode_with_dropout(bpe, CORPUS, 1.0))) == [len(text.encode()) for text in CORPUS]


def test_dropout_depends_on_seed_epoch_and_index_but_not_on_the_batch(bpe: Tokenizer) -> None:
    whole = encode_with_dropout(bpe, CORPUS, 0.3)
    assert whole == encode_with_dropout(bpe, CORPUS, 0.3)
    for i, text in enumerate(CORPUS):
        assert encode_with_dropout(bpe, [text], 0.3, first=i) == [whole[i]]
    assert whole != encode_with_dropout(bpe, CORPUS, 0.3, seed=2)
    assert whole != encode_with_dropout(bpe, CORPUS, 0.3, epoch=1)
    assert whole[0] != whole[len(SENTENCES)]  # the same sentence at another index
    (again,) = encode_with_dropout(bpe, [" the" * 60], 0.3)
    assert again != again[: len(again) // 60] * 60  # the same word at another index


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_vectorized_merge_equals_reference(data: st.DataObject) -> None:
    symbols = 12
    triples = st.tuples(st.integers(0, 7), st.integers(0, 7))
    pairs = data.draw(st.lists(triples, max_size=20, unique=True))
    rules = [(a, b, 4 + i % (symbols - 4)) for i, (a, b) in enumerate(pairs)]
    words = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=6))
    flat = np.array([symbol for word in words for symbol in word], dtype=np.int32)
    owners = np.repeat(np.arange(len(words)), [len(word) for word in words])
    seeds = random_uint64(len(words), data.draw(st.integers(0, 2**64 - 1)))
    p = data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    merged, of_word = merge(flat, owners, seeds, MergeRules.from_triples(rules, symbols), p)
    expected = [merge_word(word, int(seed), rules, p) for word, seed in zip(words, seeds, strict=True)]
    assert merged.tolist() == [symbol for word in expected for symbol in word]
    assert of_word.tolist() == [i for i, word in enumerate(expected) for _ in word]


def merge_word(word: list[int], seed: int, rules: list[tuple[int, int, int]], probability: float) -> list[int]:
    """Does the same as `merge`, for one word and one merge at a time."""
    parts = list(enumerate(word))
    for step in itertools.count():
        candidates = []
        for i, ((index, left), (_, right)) in enumerate(itertools.pairwise(parts)):
            rank = next((rank for rank, rule in enumerate(rules) if rule[:2] == (left, right)), None)
            random = splitmix64(np.array([seed + index + (step << 32) & 2**64 - 1], dtype=np.uint64))[0]
            if rank is not None and random >> np.uint64(32) >= np.uint64(round(probability * 2**32)):
                candidates.append((rank, i))
        if not candidates:
            return [symbol for _, symbol in parts]
        rank, i = min(candidates)
        parts[i : i + 2] = [(parts[i][0], rules[rank][2])]
    raise AssertionError


def test_merges_are_dropped_with_the_given_probability() -> None:
    # Many words with one possible merge each.
    rules = MergeRules.from_triples([(0, 1, 2)], 3)
    words = 20_000
    symbols, owners = np.tile(np.array([0, 1], dtype=np.int32), words), np.repeat(np.arange(words), 2)
    seeds = word_seeds(BpeDropout(0.1, 5, 0), np.arange(words), np.zeros(words, dtype=np.int64))
    merged, _ = merge(symbols, owners, seeds, rules, 0.1)
    assert (merged == 2).sum() / words == pytest.approx(0.9, abs=0.01)
