"""The Triton kernel for short sequences equals the reference, forward and backward, in Triton's interpreter on a CPU.

`tests/gpu/test_training.py` checks the compiled kernel.
"""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from seq2see.data.layout import Layout
from seq2see.model.attention import PackedKeys, attention_reference

pytest.importorskip("triton")
kernels = pytest.importorskip("seq2see.model.short_attention")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled where there is a GPU")


LENGTHS = [
    ([3, 9, 1], [3, 9, 1]),
    ([30, 0, 7], [30, 1, 7]),
    ([16, 2], [16, 2]),
    ([40], [40]),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "key_value_heads", "width"), [(2, 2, 16), (4, 2, 24), (2, 1, 40)])
@pytest.mark.parametrize(("queries", "keys"), [*LENGTHS, ([3, 9, 1], [5, 2, 20])])
def test_kernel_equals_reference(
    queries: list[int],
    keys: list[int],
    heads: int,
    key_value_heads: int,
    width: int,
    causal: bool,
) -> None:
    if causal and queries != keys:
        pytest.skip("only self-attention is causal")
    q, k, v, gradient = random_inputs(queries, keys, heads, key_value_heads, width)
    layouts = Layout.from_lengths(queries), Layout.from_lengths(keys)
    arguments = (layouts[0].starts, layouts[1].starts, max(queries), max(keys), causal, 0.0, torch.zeros(2).long())
    out = kernels.forward(q, k, v, *arguments)
    gradients = kernels.backward(gradient, q, k, v, *arguments)

    exact = [x.double().requires_grad_() for x in (q, k, v)]
    expected = attention_reference(exact[0], layouts[0], PackedKeys(exact[1], exact[2], layouts[1], causal))
    (expected * gradient).sum().backward()
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    for found, x in zip(gradients, exact, strict=True):
        torch.testing.assert_close(found.double(), x.grad, rtol=1e-5, atol=1e-5)


def test_dropout_is_the_same_in_both_passes_and_unbiased() -> None:
    lengths = [24, 31, 17]
    q, k, v, gradient = random_inputs(lengths, lengths, 2, 2, 16)
    starts = Layout.from_lengths(lengths).starts
    outputs = []
    for seed in range(40):
        arguments = (starts, starts, 31, 31, False, 0.25, torch.tensor([seed, 0]))
        out = kernels.forward(q, k, v, *arguments)
        dv = kernels.backward(gradient, q, k, v, *arguments)[2]
        # The output is linear in the values, so this holds only if both passes drop the same weights.
        torch.testing.assert_close((out * gradient).sum(), (v * dv).sum(), rtol=1e-4, atol=1e-3)
        outputs.append(out)
    plain = kernels.forward(q, k, v, starts, starts, 31, 31, False, 0.0, torch.tensor([0, 0]))
    assert not torch.equal(outputs[0], outputs[1])
    # 40 draws: the mean of the outputs is within a few standard errors of the output without dropout.
    spread = torch.stack(outputs).std(0) / 40**0.5
    assert ((torch.stack(outputs).mean(0) - plain).abs() < 6 * spread + 1e-6).all()


def test_kernels_are_not_imported_without_a_gpu() -> None:
    program = "import sys, seq2see.model.transformer, seq2see.train.step; assert 'triton' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def random_inputs(
    queries: list[int], keys: list[int], heads: int, key_value_heads: int, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    # Views into a stacked projection, as in the model: rows are not contiguous.
    stacked = torch.randn(sum(keys), 2 * key_value_heads, width, generator=random)
    k, v = stacked.split(key_value_heads, dim=1)
    q = torch.randn(sum(queries), heads, width, generator=random)
    return q, k, v, torch.randn(q.shape, generator=random)
