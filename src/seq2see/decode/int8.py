"""Linear layers in int8 for decoding on a CPU: a quarter of the memory traffic, several times the speed.

Weights and inputs are quantised row by row, each row with its own scale, so the result for a sentence does not depend on
its neighbours in the batch. Products of the integers are exact on every processor. Weights on disk are unchanged.
"""

import warnings
from functools import cache
from itertools import product

import torch
from torch import Tensor, nn

from seq2see.decode.optimize import replace_linears
from seq2see.errors import Notice, UsageError
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer
from seq2see.tensors.quantize import MAX_INT8, quantize_rows

EXACT_COLUMNS = 1040  # 127² · 1040 < 2²⁴, so float32 holds every sum of this many products exactly


class Int8Matrix:
    """An int8 matrix W, [out, in]; a call with int8 rows x, [n, in], returns x · Wᵀ in int32, [n, out]."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        # The kernel is faster with the larger matrix first if x has enough rows and the sums are long.
        if len(x) >= 16 and x.shape[1] > len(self.weight):
            return torch._int_mm(self.weight, x.T).T
        return torch._int_mm(x, self.weight.T)

    def int8(self) -> Tensor:
        return self.weight


class Float32Matrix:
    """The same for processors whose int8 products overflow: float32 products of at most EXACT_COLUMNS columns each.

    Two int8 products, with the upper 7 bits and with the lowest bit of W, would also be exact. They take half the memory and
    are 0.3 to 2 times as fast, depending on the shape and the processor.
    """

    def __init__(self, weight: Tensor) -> None:
        self.chunks = [chunk.float().T.contiguous() for chunk in weight.split(EXACT_COLUMNS, dim=1)]  # [columns, out]

    def __call__(self, x: Tensor) -> Tensor:
        first, *others = (
            x @ chunk for x, chunk in zip(x.float().split(EXACT_COLUMNS, dim=1), self.chunks, strict=True)
        )
        total = first.to(torch.int32)
        for other in others:
            total += other.to(torch.int32)
        return total

    def int8(self) -> Tensor:
        return torch.cat(self.chunks).T.to(torch.int8)


class Int8Linear(nn.Module):
    """x · Wᵀ + b with x and W quantised to int8 row by row; products accumulate exactly."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight_int8, scales = quantize_rows(weight)  # [out, in], [out, 1]
        exact = weight.shape[1] > 1 and int8_products_are_exact()  # PyTorch's product of a single column is wrong
        self.matrix = Int8Matrix(weight_int8) if exact else Float32Matrix(weight_int8)
        self.scale = (scales / MAX_INT8).T.contiguous()  # [1, out]
        self.bias = bias
        self.max_int8 = torch.tensor(float(MAX_INT8))  # as a Python number, the division below would be two operations

    @property
    def weight(self) -> Tensor:
        """W as rounded to int8, [out, in], in float32, for inspection: converted on each access."""
        return self.matrix.int8() * (self.scale.T * MAX_INT8)

    def forward(self, x: Tensor) -> Tensor:
        max_abs = x.abs().amax(-1, keepdim=True)  # (vector_norm is ten times as slow)
        # A row of zeros becomes 0 · ∞, which converts to an arbitrary integer; the product is then multiplied by 0.
        x_int8 = (x * (self.max_int8 / max_abs)).round_().to(torch.int8)
        y = self.matrix(x_int8) * self.scale
        return y.mul_(max_abs) if self.bias is None else torch.addcmul(self.bias, y, max_abs)


def quantize_int8(model: Network) -> Network:
    """Returns a copy of the model with int8 linear layers and output embedding. It can only decode."""
    if not isinstance(model, Transformer):
        raise UsageError(f'int8 decoding requires a Transformer, but this model is of kind "{model.config.kind}"')
    if model.embedding.weight.is_cuda:
        raise UsageError("int8 decoding requires a CPU, but this model is on a GPU: use bf16, which is as fast there")
    if not int8_products_are_exact():
        warnings.warn(
            "the int8 products of this CPU overflow (it has no VNNI instructions), so int8 is computed with float32 "
            "products: the results are the same, but float32 is about as fast and more accurate",
            Notice,
            stacklevel=2,
        )
    return replace_linears(model, Int8Linear)


@cache
def int8_products_are_exact() -> bool:
    """Tries the largest products on this CPU, in both operand orders and with a single row.

    Without VNNI instructions oneDNN adds pairs of products in 16 bits, which 127² + 127² overflows; only for some signs,
    operand orders and shapes.
    """
    for rows, columns, out, sign, weight_sign in product((1, 16), (17, 64), (1, 64), (1, -1), (1, -1)):
        x = torch.full((rows, columns), sign * MAX_INT8, dtype=torch.int8)
        weight = torch.full((out, columns), weight_sign * MAX_INT8, dtype=torch.int8)
        expected = sign * weight_sign * MAX_INT8**2 * columns
        if not all(bool((y == expected).all()) for y in (torch._int_mm(x, weight.T), torch._int_mm(weight, x.T))):
            return False
    return True
