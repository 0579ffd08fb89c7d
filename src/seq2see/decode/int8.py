"""Linear layers in int8 for decoding on a CPU: a quarter of the memory traffic, several times the speed.

Weights and inputs are quantised row by row, each row with its own scale, so the result for a sentence does not depend on
its neighbours in the batch. Weights on disk are unchanged.
"""

import torch
from torch import Tensor, nn

from seq2see.decode.optimize import replace_linears
from seq2see.errors import UsageError
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer


class Int8Linear(nn.Module):
    """x · Wᵀ + b with x and W quantised to −127 … 127 row by row; products accumulate exactly in int32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        max_abs = weight.abs().amax(1, keepdim=True).clamp_(min=1e-30)  # [out, 1]
        self.weight_int8 = (weight * (127 / max_abs)).round_().to(torch.int8).contiguous()  # [out, in]
        self.scale = (max_abs / 127**2).T.contiguous()  # [1, out]
        self.bias = bias
        self.max_int8 = torch.tensor(127.0)  # as a Python number, the division below would be two operations

    def forward(self, x: Tensor) -> Tensor:
        max_abs = x.abs().amax(-1, keepdim=True)  # (vector_norm is ten times as slow)
        # A row of zeros becomes 0 · ∞, which converts to an arbitrary integer; the product is then multiplied by 0.
        x_int8 = (x * (self.max_int8 / max_abs)).round_().to(torch.int8)
        # The kernel is faster with the larger matrix first if x has enough rows and the sums are long.
        if len(x) >= 16 and x.shape[1] > len(self.weight_int8):
            product = torch._int_mm(self.weight_int8, x_int8.T).T
        else:
            product = torch._int_mm(x_int8, self.weight_int8.T)
        y = product * self.scale
        return y.mul_(max_abs) if self.bias is None else torch.addcmul(self.bias, y, max_abs)


def quantize_int8(model: Network) -> Network:
    """Returns a copy of the model with int8 linear layers and output embedding. It can only decode."""
    if not isinstance(model, Transformer):
        raise UsageError(f'int8 decoding requires a Transformer, but this model is of kind "{model.config.kind}"')
    if model.embedding.weight.is_cuda:
        raise UsageError("int8 decoding requires a CPU, but this model is on a GPU: use bf16, which is as fast there")
    return replace_linears(model, Int8Linear)
