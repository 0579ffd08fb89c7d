"""CUDA: each kernel computes what its plain version computes."""

import pytest
import torch

from seq2see.data.layout import Layout
from seq2see.model.attention import PackedKeys, attend, attention_reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("heads", [(8, 8), (8, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_attend_equals_reference(dtype: torch.dtype, tolerance: float, heads: tuple[int, int], causal: bool) -> None:
    for seed in range(6):
        random = torch.Generator().manual_seed(seed)
        lengths = [int(n) for n in torch.randint(1, 200, (12,), generator=random)]
        others = lengths if causal else [int(n) for n in torch.randint(1, 200, (12,), generator=random)]
        queries = Layout.from_lengths(lengths).to("cuda")
        keys = queries if causal else Layout.from_lengths(others).to("cuda")
        shapes = [(sum(lengths), heads[0]), (sum(others), heads[1]), (sum(others), heads[1])]
        inputs = [torch.randn(*shape, 64, generator=random).cuda().to(dtype) for shape in shapes]
        gradient = torch.randn(sum(lengths), heads[0], 64, generator=random).cuda()

        fast = [x.clone().requires_grad_() for x in inputs]
        exact = [x.double().requires_grad_() for x in inputs]
        found = attend(fast[0], queries, PackedKeys(fast[1], fast[2], keys, causal))
        expected = attention_reference(exact[0], queries, PackedKeys(exact[1], exact[2], keys, causal))
        (found * gradient).sum().backward()
        (expected * gradient).sum().backward()
        for a, b in zip([found, *(x.grad for x in fast)], [expected, *(x.grad for x in exact)], strict=True):
            assert a is not None and b is not None
            scale = float(b.detach().abs().max())
            assert float((a.double() - b).detach().abs().max()) < tolerance * max(1.0, scale)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize(
    ("sentences", "beam", "heads", "groups", "width", "slots", "first"),
    [(3, 1, 4, 4, 16, 70, 40), (2, 4, 8, 2, 32, 256, 130), (2, 4, 8, 8, 64, 256, 252), (1, 8, 16, 4, 16, 64, 8)],
)
def test_attend_kernel_appends_and_attends(
    sentences: int,
    beam: int,
    heads: int,
    groups: int,
    width: int,
    slots: int,
    first: int,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    from seq2see.decode.kernels.attention import attend

    torch.manual_seed(0)
    with torch.device("cuda"):
        q, k, v = torch.randn(sentences * beam, heads + 2 * groups, width, dtype=dtype).split(
            (heads, groups, groups), 1
        )
        keys, values = torch.randn(2, sentences + 1, groups, 300, width, dtype=dtype)
        mask = torch.where(torch.rand(sentences, beam, 300) < 0.5, 0.0, -torch.inf)
        mask[:, :, first:] = -torch.inf
        mask[:, range(beam), range(first, first + beam)] = 0.0  # each hypothesis sees its own slot
        write_slots = torch.arange(first, first + beam)
    new = [x.view(sentences, beam, groups, width).transpose(1, 2) for x in (k, v)]
    expected = keys.clone(), values.clone()
    for table, written in zip(expected, new, strict=True):
        table[:sentences, :, first : first + beam] = written

    def reference(mask: torch.Tensor) -> torch.Tensor:
        group = heads // groups
        queries = q.view(sentences, beam, heads, width).transpose(1, 2).double()
        k, v = (x[:sentences, :, :slots].repeat_interleave(group, dim=1).double() for x in expected)
        scores = queries @ k.mT / width**0.5 + mask[:, None, :, :slots]
        return (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(0, 1)

    found = attend(q, (k, v), keys, values, mask, write_slots, slots)
    torch.testing.assert_close(found.double(), reference(mask), rtol=tolerance, atol=tolerance)
    assert torch.equal(keys, expected[0]) and torch.equal(values, expected[1])

    shared_mask = mask[:, :1].clone()
    shared_mask[0] = -torch.inf  # a sentence with no visible slot, like an unused row
    found = attend(q, None, keys, values, shared_mask, write_slots, slots)
    torch.testing.assert_close(found.double(), reference(shared_mask), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_linear_kernel_equals_norm_product_and_activation(rows: int, dtype: torch.dtype, tolerance: float) -> None:
    from torch.nn.functional import gelu, layer_norm, relu

    from seq2see.decode.kernels.attention import Norm, linear

    torch.manual_seed(0)
    width = 136
    with torch.device("cuda"):
        x, y = torch.randn(2, rows, width, dtype=dtype)
        weight, shifts = torch.randn(301, width, dtype=dtype) / width**0.5, torch.randn(301, dtype=dtype)
        scale, shift = torch.randn(2, width, dtype=dtype)
    total = x + y
    normed = layer_norm(total, (width,), scale, shift)
    for inputs, norm, residual, bias in (
        ((x, None), None, x, None),
        ((x, y), Norm(scale, shift, 1e-5, "norm"), normed, shifts),
        ((x, y), Norm(scale, shift, 1e-5, "sum"), total, shifts),
        ((x, None), Norm(scale, None, 1e-5, "sum"), x, None),
    ):
        before = inputs[0] if inputs[1] is None else total
        if norm is not None:
            before = layer_norm(before, (width,), scale, norm.bias)
        product = before.double() @ weight.double().T + (0.0 if bias is None else bias.double())
        for name, function in (("", lambda x: x), ("relu", relu), ("gelu-tanh", lambda x: gelu(x, approximate="tanh"))):
            found, found_residual = linear(inputs[0], weight, bias, norm, inputs[1], name)
            torch.testing.assert_close(found.double(), function(product), rtol=tolerance, atol=2 * tolerance)
            torch.testing.assert_close(found_residual, residual, rtol=tolerance, atol=tolerance)


def test_gather_slots_kernel_compacts_in_place() -> None:
    from seq2see.decode.kernels.attention import gather_slots

    torch.manual_seed(0)
    used = torch.rand(3, 300) < torch.tensor([0.5, 0.2, 0.9])[:, None]
    used[:, :7] = True
    first, last = 7, int(used.sum(1).max())
    index = (~used).to(torch.uint8).argsort(dim=1, stable=True)[:, first:last].cuda()
    keys, values = torch.randn(2, 4, 2, 400, 32, device="cuda")
    expected = [[table[row, :, :300][:, slots.cuda()] for row, slots in enumerate(used)] for table in (keys, values)]
    gather_slots(keys, values, index, first)
    for table, rows in zip((keys, values), expected, strict=True):
        for row, entries in enumerate(rows):
            assert torch.equal(table[row, :, : entries.shape[1]], entries)


def test_greedy_kernel_selects_and_records_a_token() -> None:
    from seq2see.decode.kernels.select import greedy_step

    torch.manual_seed(0)
    rows, width, end = 5, 9000, 7
    with torch.device("cuda"):
        logits, banned = torch.randn(rows, width), torch.tensor([3, 8999])
        logits[:, 3] = 20.0  # the most likely, and banned
        logits[1, end] = 19.0
        logits[2, 4096:8192] = -torch.inf
        tokens, logprobs = torch.zeros(rows, 6, dtype=torch.int64), torch.zeros(rows, 6)
        count, limit = torch.tensor([0, 1, 2, 4, 5]), torch.tensor([5, 5, 5, 5, 5])
        done = torch.tensor([False, False, False, False, True])
    before = count.clone()
    expected = logits.log_softmax(-1)
    expected[:, banned] = -torch.inf
    best, index = expected.max(-1)
    selected = greedy_step(logits, banned, tokens, logprobs, count, limit, done, end)
    assert torch.equal(selected, index) and torch.equal(tokens.gather(1, before[:, None])[:, 0], index)
    assert bool(logprobs.isfinite().all())  # although one chunk of a row is all −∞
    torch.testing.assert_close(logprobs.gather(1, before[:, None])[:, 0], best, rtol=1e-5, atol=1e-5)
    assert count.tolist() == [1, 2, 3, 5, 5]
    assert done.tolist() == [False, True, False, True, True]
