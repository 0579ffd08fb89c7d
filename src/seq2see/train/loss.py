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
    objective, plain, _ = _CrossEntropy.apply(logits, targets, smoothing)
    return Losses(objective, plain)


class _CrossEntropy(torch.autograd.Function):
    """The two sums, and a gradient that is written once: p − target. Left to autograd, the table [T, V], the largest of
    all, would be filled and walked through five times.
    """

    @staticmethod
    def forward(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        counts = targets != IGNORED
        log_p = logits.log_softmax(-1, dtype=torch.float32)
        plain = -log_p.gather(-1, targets.clamp(min=0)[:, None])[:, 0].where(counts, 0).sum()
        if not smoothing:
            return plain, plain.clone(), log_p
        spread = -log_p.mean(-1).where(counts, 0).sum()
        return (1 - smoothing) * plain + smoothing * spread, plain, log_p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor, Tensor]) -> None:
        logits, targets, ctx.smoothing = inputs
        _, plain, log_p = output
        ctx.save_for_backward(log_p, targets)
        ctx.dtype = logits.dtype
        ctx.mark_non_differentiable(plain, log_p)
        ctx.set_materialize_grads(False)  # or a table of zeros would come in for log_p

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        log_p, targets = ctx.saved_tensors
        scale = torch.where(targets != IGNORED, gradient, 0.0)[:, None]  # [T, 1]
        table = log_p.exp().sub_(ctx.smoothing / log_p.shape[-1]).mul_(scale)
        right = (ctx.smoothing - 1) * scale
        return table.scatter_add_(-1, targets.clamp(min=0)[:, None], right).to(ctx.dtype), None, None


def divergence(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
    """R-Drop: how far two passes with different dropout disagree, (KL(p‖q) + KL(q‖p)) / 2 summed over the targets."""
    p, q = (logits.float().log_softmax(-1) for logits in (first, second))
    both = F.kl_div(p, q, reduction="none", log_target=True) + F.kl_div(q, p, reduction="none", log_target=True)
    return both.sum(-1).where(targets != IGNORED, 0).sum() / 2
