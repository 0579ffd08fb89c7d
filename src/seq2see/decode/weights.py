"""How the weights of a model lie in memory while it decodes on a CPU, which decides much of its speed.

Decoding multiplies a few rows with large matrices, so its time goes into reading them. Stored as they are trained, a row
an output, the library's product reads across the rows for few rows of input; turned round, it reads straight on. In bf16
they are cut into the blocks that the processor's instructions take, once instead of before each product. The numbers stay
what they were.
"""

from collections.abc import Callable
from copy import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from seq2see.model.layers import StackedLinear
from seq2see.model.network import Network

M = TypeVar("M", bound=nn.Module)

ROWS = 16  # for which blocks are chosen; they serve any number


def laid_out(model: Network) -> Network:
    """The model with its weights as decoding likes them: the same in float32, in bf16 a copy that can only be run."""
    weight = model.embedding.weight
    if weight.device.type != "cpu":
        return model
    if weight.dtype == torch.bfloat16:
        return with_linear(model, BlockedLinear) if torch.backends.mkldnn.is_available() else model
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    for matrix in matrices if model.unembedding is not None else [*matrices, weight]:
        matrix.data = matrix.data.T.contiguous().T
    return model


class BlockedLinear(nn.Module):
    """x · Wᵀ + b in bf16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.blocks = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.blocks, self.bias, "none", [], "")
        return found


class Split(nn.Module):
    """What a `StackedLinear` does with what it has computed."""

    def __init__(self, linear: nn.Module, like: StackedLinear) -> None:
        super().__init__()
        self.linear, self.heads, self.head_width = linear, like.heads, like.head_width

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found: Tensor = self.linear(x)
        return found.unflatten(-1, (-1, self.head_width)).split(self.heads, dim=1)


@torch.no_grad()
def with_linear(model: Network, make: Callable[[Tensor, Tensor | None], nn.Module]) -> Network:
    """A copy of the model whose linear maps, and the table that makes the logits, are made anew; all else is shared."""
    less = _copied(model, make)
    table = model.embedding.weight if model.unembedding is None else model.unembedding.weight
    less.unembedding = make(table, model.unembedding_bias)  # type: ignore[assignment]
    less.unembedding_bias = None
    return less


def _copied(module: M, make: Callable[[Tensor, Tensor | None], nn.Module]) -> M:
    less = copy(module)
    less._modules, less._parameters = dict(module._modules), dict(module._parameters)
    for name, child in module._modules.items():
        if isinstance(child, nn.Linear):
            linear = make(child.weight, child.bias)
            less._modules[name] = Split(linear, child) if isinstance(child, StackedLinear) else linear
        elif child is not None:
            less._modules[name] = _copied(child, make)
    return less
