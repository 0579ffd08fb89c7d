"""What training makes smaller.

Shapes: T target tokens in the batch, V tokens in the vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.text.batches import IGNORED


class Losses(NamedTuple):
    """Summed over the targets that count, so that batches and processes may be added up before dividing."""

    objective: Tensor  # what is differentiated: smoothed, and with R-Drop's divergence
    plain: Tensor  # −ln p(target), for people to read


def loss(logits: Tensor, targets: Tensor, smoothing: float) -> Losses:
    """Cross-entropy against a target with 1 − smoothing on the right token and the rest spread over all, [T, V] and [T]."""
    objective, plain = _CrossEntropy.apply(logits, targets, smoothing)
    return Losses(objective, plain)


class _CrossEntropy(torch.autograd.Function):
    """The two sums, and a gradient that is written once: p − target. Left to autograd, the table [T, V], the largest of
    all, would be filled and walked through five times.
    """

    @staticmethod
    def forward(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        logits = logits.float()
        counts = targets != IGNORED
        total = logits.logsumexp(-1)  # [T]
        right = logits.gather(-1, targets.clamp(min=0)[:, None])[:, 0]
        plain = (total - right).where(counts, 0).sum()
        if not smoothing:
            return plain, plain.clone()
        spread = (total - logits.mean(-1)).where(counts, 0).sum()
        return (1 - smoothing) * plain + smoothing * spread, plain

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        logits, targets, ctx.smoothing = inputs
        ctx.save_for_backward(logits, targets)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        logits, targets = ctx.saved_tensors
        scale = torch.where(targets != IGNORED, gradient, 0.0)[:, None]  # [T, 1]
        table = logits.float().softmax(-1).sub_(ctx.smoothing / logits.shape[-1]).mul_(scale)
        right = (ctx.smoothing - 1) * scale
        return table.scatter_add_(-1, targets.clamp(min=0)[:, None], right).to(logits.dtype), None, None


def divergence(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
    """R-Drop: how far two passes with different dropout disagree, (KL(p‖q) + KL(q‖p)) / 2 summed over the targets."""
    p, q = (logits.float().log_softmax(-1) for logits in (first, second))
    both = F.kl_div(p, q, reduction="none", log_target=True) + F.kl_div(q, p, reduction="none", log_target=True)
    return both.sum(-1).where(targets != IGNORED, 0).sum() / 2
