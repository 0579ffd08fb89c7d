"""Attention: the fast, the reference and the column implementation agree with each other and with the formula."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seq2see.data.layout import Layout, Packed
from seq2see.model.attention import PackedKeys, attend, attention_by_columns, attention_mask, attention_reference

Attend = Callable[..., Tensor]
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=5)
grouping = st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 1), (3, 3)])


def random_qkv(seed: int, queries: Layout, keys: Layout, heads: tuple[int, int], width: int = 8) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    shapes = [(len(queries.positions), heads[0]), (len(keys.positions), heads[1]), (len(keys.positions), heads[1])]
    return [torch.randn(*shape, width, generator=random, dtype=torch.float64, requires_grad=True) for shape in shapes]


def output_and_gradients(
    attention: Attend, qkv: list[Tensor], queries: Layout, keys: Layout, causal: bool
) -> list[Tensor]:
    """Returns the output and the gradients of all three inputs."""
    for x in qkv:
        x.grad = None
    output = attention(qkv[0], queries, PackedKeys(qkv[1], qkv[2], keys, causal))
    upstream = torch.arange(output.numel(), dtype=output.dtype).view_as(output).cos()
    (output * upstream).sum().backward()
    return [output.detach(), *(x.grad.clone() for x in qkv if x.grad is not None)]


@pytest.mark.parametrize("attention", [attend, attention_by_columns])
@given(source=lengths, heads=grouping, causal=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_all_implementations_of_self_attention_agree_in_outputs_and_gradients(
    attention: Attend, source: list[int], heads: tuple[int, int], causal: bool, seed: int
) -> None:
    layout = Layout.from_lengths(source)
    qkv = random_qkv(seed, layout, layout, heads)
    expected = output_and_gradients(attention_reference, qkv, layout, layout, causal)
    for got, wanted in zip(output_and_gradients(attention, qkv, layout, layout, causal), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", [attend, attention_by_columns])
@given(pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5), heads=grouping)
@settings(max_examples=40, deadline=None)
def test_all_implementations_of_cross_attention_agree_in_outputs_and_gradients(
    attention: Attend, pairs: list[tuple[int, int]], heads: tuple[int, int]
) -> None:
    queries, keys = Layout.from_lengths([n for n, _ in pairs]), Layout.from_lengths([m for _, m in pairs])
    qkv = random_qkv(1, queries, keys, heads)
    expected = output_and_gradients(attention_reference, qkv, queries, keys, causal=False)
    for got, wanted in zip(output_and_gradients(attention, qkv, queries, keys, causal=False), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_attention_matches_the_formula() -> None:
    """Computed term by term for one sentence and one head, with and without the mask."""
    layout = Layout.from_lengths([4])
    q, k, v = (x.detach() for x in random_qkv(0, layout, layout, (1, 1), width=3))
    for causal in (False, True):
        for i in range(4):
            keys = range(i + 1) if causal else range(4)
            e = [math.exp(float(q[i, 0] @ k[j, 0]) / math.sqrt(3)) for j in keys]
            expected = sum((w / sum(e)) * v[j, 0] for w, j in zip(e, keys, strict=True))
            torch.testing.assert_close(attention_reference(q, layout, PackedKeys(k, v, layout, causal))[i, 0], expected)


def test_a_query_in_the_middle_of_a_cache_attends_to_all_keys_up_to_itself() -> None:
    """SDPA's is_causal flag would let it attend to the first key only."""
    keys = Layout.from_lengths([5])
    q, k, v = (x.detach() for x in random_qkv(0, keys, keys, (2, 2)))
    expected = attend(q, keys, PackedKeys(k, v, keys, causal=True))[3:]
    last = Layout.from_lengths([2])
    queries = Layout(last.starts, last.positions + 3, last.padded_index, last.mask, last.max_length)
    for attention in (attend, attention_reference, attention_by_columns):
        got = attention(q[3:], queries, PackedKeys(k, v, keys, causal=True))
        torch.testing.assert_close(got, expected)


def test_the_mask_is_causal_and_hides_padding() -> None:
    layout = Layout.from_lengths([3, 2])
    assert attention_mask(layout, layout, causal=True)[:, 0].tolist() == [
        [[True, False, False], [True, True, False], [True, True, True]],
        [[True, False, False], [True, True, False], [True, False, False]],  # the last row is padding
    ]


@given(source=lengths, target=lengths)
def test_cross_attention_has_the_length_of_the_target(source: list[int], target: list[int]) -> None:
    count = min(len(source), len(target))
    queries, keys = Layout.from_lengths(target[:count]), Layout.from_lengths(source[:count])
    q, k, v = random_qkv(0, queries, keys, (2, 2))
    assert attend(q, queries, PackedKeys(k, v, keys)).shape == (sum(target[:count]), 2, 8)


def test_dropout_preserves_the_mean_of_the_weights() -> None:
    layout = Layout.from_lengths([50] * 40)
    q, k, v = (x.detach().float() for x in random_qkv(0, layout, layout, (2, 2)))
    for attention in (attend, attention_reference):
        torch.manual_seed(0)
        dropped = attention(q, layout, PackedKeys(k, torch.ones_like(v), layout), dropout=0.5)
        assert dropped.std() > 0.05  # without dropout every output is exactly 1
        assert abs(float(dropped.mean()) - 1) < 0.01


def test_bfloat16_is_close_to_float32() -> None:
    layout = Layout.from_lengths([7, 30, 12])
    q, k, v = (x.detach().float() for x in random_qkv(0, layout, layout, (4, 2), width=32))
    exact = attention_reference(q, layout, PackedKeys(k, v, layout, True))
    half = attend(q.bfloat16(), layout, PackedKeys(k.bfloat16(), v.bfloat16(), layout, True))
    assert float((half.float() - exact).abs().max()) < 0.03


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(0, 9))
def test_unpad_is_the_inverse_of_pad(sizes: list[int], max_length: int) -> None:
    layout = Layout.from_lengths(sizes, max_length)
    x = torch.arange(1.0, sum(sizes) + 1).requires_grad_()
    padded = layout.pad(x)
    assert padded.shape == (len(sizes), max(max_length, *sizes))
    assert torch.equal(layout.unpad(padded), x)
    assert torch.equal(padded != 0, layout.mask)
    (layout.unpad(padded) * x.detach()).sum().backward()
    assert torch.equal(x.grad, x.detach())  # type: ignore[arg-type]


def test_a_packed_batch_holds_its_sequences_end_to_end() -> None:
    packed = Packed.from_sequences([[7, 8, 9], [5], [6, 4]])
    assert packed.tokens.tolist() == [7, 8, 9, 5, 6, 4]
    assert packed.layout.starts.tolist() == [0, 3, 4, 6]
    assert packed.layout.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.layout.lengths.tolist() == [3, 1, 2]
    assert packed.tokens[packed.layout.slice(2)].tolist() == [6, 4]
