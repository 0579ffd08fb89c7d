"""Parts of a block in fewer kernels, for decoding on a GPU. Where somebody listens or gradients are wanted, the parts
themselves are run.
"""

import torch
from torch import Tensor, nn

from seq2see.decode.kernels import add_and_norm
from seq2see.model.layers import AddAndNorm, FeedForward, LayerNorm, Sublayer
from seq2see.model.taps import Taps

FUSED = {"relu": False, "gelu-tanh": True}  # activations that the product brings along, and whether that is GELU


def in_one_go(module: nn.Module) -> nn.Module | None:
    """What does the same in fewer kernels."""
    if isinstance(module, AddAndNorm) and not module.first and isinstance(module.norm, LayerNorm):
        return QuickAddAndNorm(module, module.norm)
    if isinstance(module, FeedForward) and module.activation_name in FUSED and module.expand.bias is not None:
        return QuickFeedForward(module, FUSED[module.activation_name])
    return None


class QuickAddAndNorm(nn.Module):
    """norm(x + f(x)): sum and norm are one kernel."""

    def __init__(self, openly: AddAndNorm, norm: LayerNorm) -> None:
        super().__init__()
        self.openly, self.norm = openly, norm

    def forward(self, x: Tensor, sublayer: Sublayer, taps: Taps) -> Tensor:
        if taps.listening or torch.is_grad_enabled():
            return self.openly(x, sublayer, taps)
        return add_and_norm(x, sublayer(x), self.norm.weight, self.norm.bias, self.norm.eps)


class QuickFeedForward(nn.Module):
    """The first product adds the bias and applies the activation by itself."""

    def __init__(self, openly: FeedForward, gelu: bool) -> None:
        super().__init__()
        self.openly, self.gelu = openly, gelu

    def forward(self, x: Tensor, taps: Taps) -> Tensor:
        if taps.listening or torch.is_grad_enabled():
            return self.openly(x, taps)
        expand = self.openly.expand
        assert expand.bias is not None
        after = torch._addmm_activation(expand.bias, x, expand.weight.T, use_gelu=self.gelu)
        return self.openly.contract(after)
