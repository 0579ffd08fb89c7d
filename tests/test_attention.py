"""Attention: the fast, the open and the column form are the same numbers, and do what the notes say."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seq2see.layout import Layout, Packed
from seq2see.model.attention import attend, attend_in_columns, attend_openly, visible

Attend = Callable[..., Tensor]
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=5)
grouping = st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 1), (3, 3)])


def vectors(seed: int, queries: Layout, keys: Layout, heads: tuple[int, int], width: int = 8) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    shapes = [(len(queries.positions), heads[0]), (len(keys.positions), heads[1]), (len(keys.positions), heads[1])]
    return [torch.randn(*shape, width, generator=random, dtype=torch.float64, requires_grad=True) for shape in shapes]


def outcome(how: Attend, qkv: list[Tensor], queries: Layout, keys: Layout, causal: bool) -> list[Tensor]:
    """The output and the gradients of all three inputs."""
    for x in qkv:
        x.grad = None
    output = how(*qkv, queries, keys, causal)
    pull = torch.arange(output.numel(), dtype=output.dtype).view_as(output).cos()
    (output * pull).sum().backward()
    return [output.detach(), *(x.grad.clone() for x in qkv if x.grad is not None)]


@pytest.mark.parametrize("how", [attend, attend_in_columns])
@given(source=lengths, heads=grouping, causal=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_form_of_self_attention_gives_the_same_numbers_and_gradients(
    how: Attend, source: list[int], heads: tuple[int, int], causal: bool, seed: int
) -> None:
    layout = Layout.of(source)
    qkv = vectors(seed, layout, layout, heads)
    expected = outcome(attend_openly, qkv, layout, layout, causal)
    for got, wanted in zip(outcome(how, qkv, layout, layout, causal), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", [attend, attend_in_columns])
@given(pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5), heads=grouping)
@settings(max_examples=40, deadline=None)
def test_every_form_of_cross_attention_gives_the_same_numbers_and_gradients(
    how: Attend, pairs: list[tuple[int, int]], heads: tuple[int, int]
) -> None:
    queries, keys = Layout.of([n for n, _ in pairs]), Layout.of([m for _, m in pairs])
    qkv = vectors(1, queries, keys, heads)
    expected = outcome(attend_openly, qkv, queries, keys, causal=False)
    for got, wanted in zip(outcome(how, qkv, queries, keys, causal=False), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_attention_is_the_formula_of_the_notes() -> None:
    """Against the arithmetic spelled out for one sentence and one head, mask included."""
    layout = Layout.of([4])
    q, k, v = (x.detach() for x in vectors(0, layout, layout, (1, 1), width=3))
    for causal in (False, True):
        for i in range(4):
            keys = range(i + 1) if causal else range(4)
            e = [math.exp(float(q[i, 0] @ k[j, 0]) / math.sqrt(3)) for j in keys]
            expected = sum((w / sum(e)) * v[j, 0] for w, j in zip(e, keys, strict=True))
            torch.testing.assert_close(attend_openly(q, k, v, layout, layout, causal)[i, 0], expected)


def test_a_query_in_the_middle_of_a_cache_sees_all_keys_up_to_itself() -> None:
    """SDPA's own causal flag would show it only the first key."""
    keys = Layout.of([5])
    whole = [x.detach() for x in vectors(0, keys, keys, (2, 2))]
    q, k, v = whole
    expected = attend(q, k, v, keys, keys, causal=True)[3:]
    last = Layout.of([2])
    queries = Layout(last.starts, last.positions + 3, last.slots, last.real, last.longest)
    for how in (attend, attend_openly, attend_in_columns):
        got = how(q[3:], k, v, queries, keys, causal=True)
        torch.testing.assert_close(got, expected)


def test_the_mask_is_that_of_the_notes() -> None:
    layout = Layout.of([3, 2])
    assert visible(layout, layout, causal=True)[:, 0].tolist() == [
        [[True, False, False], [True, True, False], [True, True, True]],
        [[True, False, False], [True, True, False], [True, False, False]],  # the last row is padding, and nobody's
    ]


@given(source=lengths, target=lengths)
def test_cross_attention_is_as_long_as_the_target_whatever_the_source(source: list[int], target: list[int]) -> None:
    count = min(len(source), len(target))
    queries, keys = Layout.of(target[:count]), Layout.of(source[:count])
    q, k, v = vectors(0, queries, keys, (2, 2))
    assert attend(q, k, v, queries, keys).shape == (sum(target[:count]), 2, 8)


def test_dropout_drops_weights_and_keeps_their_mean() -> None:
    layout = Layout.of([50] * 40)
    q, k, v = (x.detach().float() for x in vectors(0, layout, layout, (2, 2)))
    for how in (attend, attend_openly):
        torch.manual_seed(0)
        dropped = how(q, k, torch.ones_like(v), layout, layout, False, 0.5)
        assert dropped.std() > 0.05  # without dropout every output is exactly 1
        assert abs(float(dropped.mean()) - 1) < 0.01


def test_bfloat16_stays_near_float32() -> None:
    layout = Layout.of([7, 30, 12])
    q, k, v = (x.detach().float() for x in vectors(0, layout, layout, (4, 2), width=32))
    exact = attend_openly(q, k, v, layout, layout, True)
    half = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), layout, layout, True)
    assert float((half.float() - exact).abs().max()) < 0.03


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(0, 9))
def test_padding_and_unpadding_lose_nothing(sizes: list[int], longest: int) -> None:
    layout = Layout.of(sizes, longest)
    x = torch.arange(1.0, sum(sizes) + 1).requires_grad_()
    padded = layout.pad(x)
    assert padded.shape == (len(sizes), max(longest, *sizes))
    assert torch.equal(layout.unpad(padded), x)
    assert torch.equal(padded != 0, layout.real)
    (layout.unpad(padded) * x.detach()).sum().backward()
    assert torch.equal(x.grad, x.detach())  # type: ignore[arg-type]


def test_a_batch_is_its_sentences_end_to_end() -> None:
    packed = Packed.of([[7, 8, 9], [5], [6, 4]])
    assert packed.tokens.tolist() == [7, 8, 9, 5, 6, 4]
    assert packed.layout.starts.tolist() == [0, 3, 4, 6]
    assert packed.layout.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.layout.lengths.tolist() == [3, 1, 2]
    assert packed.tokens[packed.layout.slice(2)].tolist() == [6, 4]
