"""Parts of a block in fewer kernels, for decoding on a GPU. Where somebody listens or gradients are wanted, the parts
themselves are run.
"""

import torch
from torch import Tensor, nn

from seq2see.decode.kernels import ACTIVATIONS, FEW, WIDEST, Norm, add_and_norm, linear
from seq2see.decode.ready import changed
from seq2see.model.layers import AddAndNorm, Block, FeedForward, LayerNorm, Pasts, Sublayer, Turn, apart
from seq2see.model.layout import Layout
from seq2see.model.positions import rotate
from seq2see.model.taps import Taps

FUSED = {"relu": False, "gelu-tanh": True}  # activations that the product brings along, and whether that is GELU


def in_one_go(module: nn.Module) -> nn.Module | None:
    """What does the same in fewer kernels."""
    if (
        isinstance(module, Block)
        and module.causal
        and isinstance(module.attention_norm.norm, LayerNorm)
        and module.feed_forward.activation_name in ACTIVATIONS
        and module.feed_forward.expand.out_features <= WIDEST
    ):
        return QuickBlock(module, changed(module, in_one_go))
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


class QuickBlock(nn.Module):
    """A block of a decoder that writes a few tokens: every norm and residual is part of the product after it."""

    def __init__(self, block: Block, openly: Block) -> None:
        super().__init__()
        self.openly = openly
        self.block = block
        residuals = [block.attention_norm, block.cross_norm, block.feed_forward_norm]
        norms = [residual.norm for residual in residuals if residual is not None]
        self.norms = [norm for norm in norms if isinstance(norm, LayerNorm)]
        self.first = block.attention_norm.first

    def forward(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None, turn: Turn | None,
        taps: Taps, pasts: Pasts = (None, None),
    ) -> Tensor:  # fmt: skip
        past, past_source = pasts
        if past is None or len(x) > FEW or taps.listening or torch.is_grad_enabled():
            return self.openly(x, layout, memory, memory_layout, turn, taps, pasts)
        block = self.block
        stacked = block.attention.queries_keys_values
        out, x = self._into(0, stacked, x, None)
        q, k, v = apart(out, stacked.heads, stacked.head_width)
        if turn is not None:
            q, k = rotate(q, turn), rotate(k, turn)
        y = past.attend(q, k, v, layout, layout, True, taps)
        y = _mapped(block.attention.project, y.flatten(1))
        if block.cross is not None:
            assert past_source is not None
            queries = block.cross.queries
            out, x = self._into(1, queries, x, y)
            (q,) = apart(out, queries.heads, queries.head_width)
            if memory is None or memory_layout is None:
                y = past_source.recall(q, layout, taps)
            else:
                k, v = block.cross.keys_values(memory)
                y = past_source.attend(q, k, v, layout, memory_layout, False, taps)
            y = _mapped(block.cross.project, y.flatten(1))
        feed_forward = block.feed_forward
        out, x = self._into(len(self.norms) - 1, feed_forward.expand, x, y, feed_forward.activation_name)
        y = _mapped(feed_forward.contract, out)
        last = self.norms[-1]
        return x + y if self.first else add_and_norm(x, y, last.weight, last.bias, last.eps)

    def _into(
        self, number: int, map: nn.Linear, x: Tensor, y: Tensor | None, activation: str = ""
    ) -> tuple[Tensor, Tensor]:
        """The product that begins a sub-layer, and x + y as it goes on beside it: normed by the sub-layer itself, or, as in
        the paper, by the one before.
        """
        if not self.first and number == 0:
            return linear(x, map.weight, map.bias, activation=activation)
        norm = self.norms[number if self.first else number - 1]
        before = Norm(norm.weight, norm.bias, norm.eps, "sum" if self.first else "norm")
        return linear(x, map.weight, map.bias, before, y, activation)


def _mapped(map: nn.Linear, x: Tensor) -> Tensor:
    return linear(x, map.weight, map.bias)[0]
