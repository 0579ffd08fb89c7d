"""Optimising a model for decoding: memory layout and kernels change, results do not.

On a CPU, decoding multiplies a few rows with large matrices, so the time goes into reading the matrices. PyTorch stores
them [out, in], which the BLAS product of a few rows reads with strides; column-major storage is read contiguously. Faster
still is a copy in the blocks of the processor's instructions, made once instead of before each product: always in bf16, and
in float32 by `block_weights`, since blocks can be neither trained nor saved. On a GPU, several kernels of a block become one.
"""

import platform
from collections.abc import Callable
from copy import copy
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from seq2see.model.layers import StackedLinear, split_heads
from seq2see.model.network import Network

M = TypeVar("M", bound=nn.Module)

BLOCK_ROWS = 16  # number of input rows that the blocked layout is chosen for; it works for any number
MIN_BLOCKED_WIDTH = 512  # in float32; below it blocks gain little, and a single row is slower


def optimize_for_decoding(model: Network) -> Network:
    """Returns the model, or a copy that shares its weights, optimised for its device and precision."""
    weight = model.embedding.weight
    if weight.is_cuda:
        if not has_kernels(weight):
            return model
        from seq2see.decode.kernels.fused_modules import fuse_modules

        for matrix in _matrices(model):
            matrix.data = matrix.data.contiguous()  # the model may have been optimised for a CPU before it moved here
        return fuse_modules(model)
    if weight.dtype == torch.bfloat16:
        return replace_linears(model, BlockedLinear) if torch.backends.mkldnn.is_available() else model
    for matrix in _matrices(model):
        matrix.data = matrix.data.T.contiguous().T
    return model


def block_weights(model: Network) -> Network:
    """Returns a copy of a float32 model with its matrices in blocks, where products of a few rows are faster then: on two
    cores, 4 rows × 512 × 16,000 take 1.1 instead of 4.0 ms. Returns other models as they are.
    """
    weight, output = model.embedding.weight, model.unembedding
    plain = weight.device.type == "cpu" and weight.dtype == torch.float32 and isinstance(output, nn.Linear | None)
    x86 = platform.machine() in ("x86_64", "AMD64")  # measured only there
    if not plain or not x86 or model.config.width < MIN_BLOCKED_WIDTH or not torch.backends.mkldnn.is_available():
        return model
    return replace_linears(model, BlockedLinear)


def has_kernels(x: Tensor) -> bool:
    """Returns whether our Triton kernels support the device and dtype of this tensor."""
    return x.is_cuda and x.dtype != torch.float64 and find_spec("triton") is not None


def column_major_weights(model: Network) -> set[str]:
    """Returns the names of the weights that are stored column by column on a CPU."""
    matrices = {id(matrix) for matrix in _matrices(model)}
    return {name for name, weight in model.named_parameters() if id(weight) in matrices}


def _matrices(model: Network) -> list[Tensor]:
    """Returns all matrices that activations are multiplied with."""
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return matrices if model.unembedding is not None else [*matrices, model.embedding.weight]


class BlockedLinear(nn.Module):
    """x · Wᵀ + b with W in oneDNN's blocked layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.blocks = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), BLOCK_ROWS)
        self.bias = bias

    @property
    def weight(self) -> Tensor:
        """W, [out, in], for inspection: converted on each access."""
        return self.blocks.to_dense()

    def __deepcopy__(self, memo: dict[int, Any]) -> "BlockedLinear":
        return self  # it never changes, and PyTorch cannot copy the blocks

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.blocks, self.bias, "none", [], "")


class SplitHeads(nn.Module):
    """A `StackedLinear` whose product is computed by another module."""

    def __init__(self, linear: nn.Module, like: StackedLinear) -> None:
        super().__init__()
        self.linear, self.heads, self.head_width = linear, like.heads, like.head_width

    @property
    def weight(self) -> Tensor:
        return self.linear.weight  # type: ignore[return-value]

    @property
    def bias(self) -> Tensor | None:
        return self.linear.bias  # type: ignore[return-value]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return split_heads(self.linear(x), self.heads, self.head_width)


@torch.no_grad()
def replace_linears(model: Network, make: Callable[[Tensor, Tensor | None], nn.Module]) -> Network:
    """Returns a copy with every linear layer and the output embedding replaced by make(weight, bias); the rest is shared."""

    def replacement(module: nn.Module) -> nn.Module | None:
        if not isinstance(module, nn.Linear):
            return None
        linear = make(module.weight, module.bias)
        return SplitHeads(linear, module) if isinstance(module, StackedLinear) else linear

    converted = replace_modules(model, replacement)
    output_weight = model.embedding.weight if model.unembedding is None else model.unembedding.weight
    converted.unembedding = make(output_weight, model.unembedding_bias)  # type: ignore[assignment]
    converted.unembedding_bias = None
    return converted


def replace_modules(module: M, replacement: Callable[[nn.Module], nn.Module | None]) -> M:
    """Returns a copy of a module tree with submodules replaced where `replacement` returns one; the rest is shared."""
    result = copy(module)
    result._modules, result._parameters = dict(module._modules), dict(module._parameters)
    for name, child in module._modules.items():
        if child is not None:
            result._modules[name] = replacement(child) or replace_modules(child, replacement)
    return result
