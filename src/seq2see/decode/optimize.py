"""A model made ready to decode: what it computes stays the same, how it lies in memory and is started does not.

On a CPU, decoding multiplies a few rows with large matrices, so its time goes into reading them. Stored as they are
trained, a row an output, the library's product reads across the rows for few rows of input; turned round, it reads straight
on. In bf16 they are cut into the blocks that the processor's instructions take, once instead of before each product. On a
GPU, parts of a block that are several kernels become one.
"""

from collections.abc import Callable
from copy import copy
from importlib.util import find_spec
from typing import TypeVar

import torch
from torch import Tensor, nn

from seq2see.model.layers import StackedLinear, apart
from seq2see.model.network import Network

M = TypeVar("M", bound=nn.Module)

ROWS = 16  # for which blocks are chosen; they serve any number


def ready(model: Network) -> Network:
    """The model, or a copy that shares its weights, as decoding likes it on its device and in its precision."""
    weight = model.embedding.weight
    if weight.is_cuda:
        if not has_kernels(weight):
            return model
        from seq2see.decode.fused_modules import in_one_go

        for matrix in _matrices(model):
            matrix.data = matrix.data.contiguous()  # a model that was ready for a CPU may have come here
        return in_one_go(model)
    if weight.dtype == torch.bfloat16:
        return with_linear(model, BlockedLinear) if torch.backends.mkldnn.is_available() else model
    for matrix in _matrices(model):
        matrix.data = matrix.data.T.contiguous().T
    return model


def has_kernels(x: Tensor) -> bool:
    """Whether kernels of our own can work where this lies, in its precision."""
    return x.is_cuda and x.dtype != torch.float64 and find_spec("triton") is not None


def _matrices(model: Network) -> list[Tensor]:
    """All that vectors are multiplied with."""
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return matrices if model.unembedding is not None else [*matrices, model.embedding.weight]


class BlockedLinear(nn.Module):
    """x · Wᵀ + b in bf16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.blocks = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.blocks, self.bias, "none", [], "")


class Split(nn.Module):
    """A `StackedLinear` whose product is another's."""

    def __init__(self, linear: nn.Module, like: StackedLinear) -> None:
        super().__init__()
        self.linear, self.heads, self.head_width = linear, like.heads, like.head_width

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return apart(self.linear(x), self.heads, self.head_width)


@torch.no_grad()
def with_linear(model: Network, make: Callable[[Tensor, Tensor | None], nn.Module]) -> Network:
    """A copy of the model whose linear maps, and the table that makes the logits, are made anew; all else is shared."""

    def change(module: nn.Module) -> nn.Module | None:
        if not isinstance(module, nn.Linear):
            return None
        linear = make(module.weight, module.bias)
        return Split(linear, module) if isinstance(module, StackedLinear) else linear

    less = changed(model, change)
    table = model.embedding.weight if model.unembedding is None else model.unembedding.weight
    less.unembedding = make(table, model.unembedding_bias)  # type: ignore[assignment]
    less.unembedding_bias = None
    return less


def changed(module: M, change: Callable[[nn.Module], nn.Module | None]) -> M:
    """A copy of a tree of modules in which those that `change` has another for are exchanged; all else is shared."""
    other = copy(module)
    other._modules, other._parameters = dict(module._modules), dict(module._parameters)
    for name, child in module._modules.items():
        if child is not None:
            other._modules[name] = change(child) or changed(child, change)
    return other
