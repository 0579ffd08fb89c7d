"""Linear maps in whole numbers of 8 bits, for decoding on a CPU: a quarter of the memory to read, several times the speed.

Each row of a weight matrix has its own scale, and so has each row of the input, so that what a sentence gives does not
depend on its neighbours in the batch. Weights on disk stay as they are.
"""

from copy import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from seq2see.errors import UsageError
from seq2see.model.layers import StackedLinear
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer

M = TypeVar("M", bound=nn.Module)


class Int8Linear(nn.Module):
    """x · Wᵀ + b with both rounded to −127 … 127, row by row; the sums are exact."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        scale = weight.abs().amax(1, keepdim=True).clamp_(min=1e-30) / 127
        self.rounded = (
            (weight / scale).round().to(torch.int8).T
        )  # [in, out]; a view, which is what the kernel likes best
        self.scale = scale.T.contiguous()  # [1, out]
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        # At least so much, for 0 / 0 of a row of zeros would be no number. (vector_norm is ten times as slow.)
        scale = x.abs().amax(-1, keepdim=True).clamp_(min=1e-30).div_(127)
        whole = torch._int_mm((x / scale).round_().to(torch.int8), self.rounded)
        y = whole * self.scale
        return y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)


class Int8StackedLinear(Int8Linear):
    def __init__(self, linear: StackedLinear) -> None:
        super().__init__(linear.weight, linear.bias)
        self.heads, self.head_width = linear.heads, linear.head_width

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return super().forward(x).unflatten(-1, (-1, self.head_width)).split(self.heads, dim=1)


@torch.no_grad()
def quantised(model: Network) -> Transformer:
    """A copy of the model whose linear maps, and the table that makes the logits, are in 8 bits. It can only decode."""
    if not isinstance(model, Transformer):
        raise UsageError(f'8-bit decoding is for Transformers, and this model is of the kind "{model.config.kind}"')
    if model.embedding.weight.is_cuda:
        raise UsageError("8-bit decoding is for a CPU, and this model is on a GPU: there bf16 is as fast")
    less = _copied(model)
    table = model.embedding.weight if model.unembedding is None else model.unembedding.weight
    less.unembedding = Int8Linear(table, model.unembedding_bias)  # type: ignore[assignment]
    less.unembedding_bias = None
    return less


def _copied(module: M) -> M:
    """A copy of a tree of modules, its linear maps in 8 bits, all else shared with the original."""
    less = copy(module)
    less._modules, less._parameters = dict(module._modules), dict(module._parameters)
    for name, child in module._modules.items():
        if isinstance(child, StackedLinear):
            less._modules[name] = Int8StackedLinear(child)
        elif isinstance(child, nn.Linear):
            less._modules[name] = Int8Linear(child.weight, child.bias)
        elif child is not None:
            less._modules[name] = _copied(child)
    return less
