"""What training makes smaller.

Shapes: T target tokens in the batch, V tokens in the vocabulary.
"""

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from seq2see.text.batches import IGNORED


class Losses(NamedTuple):
    """Summed over the targets that count, so that batches and processes may be added up before dividing."""

    objective: Tensor  # what is differentiated: smoothed, and with R-Drop's divergence
    plain: Tensor  # −ln p(target), for people to read


def loss(logits: Tensor, targets: Tensor, smoothing: float) -> Losses:
    """Cross-entropy against a target with 1 − smoothing on the right token and the rest spread over all, [T, V] and [T]."""
    counts = targets != IGNORED
    log_p = logits.float().log_softmax(-1)
    right = -log_p.gather(-1, targets.clamp(min=0)[:, None])[:, 0]
    plain = right.where(counts, 0).sum()
    if not smoothing:
        return Losses(plain, plain.detach())
    spread = -log_p.mean(-1).where(counts, 0).sum()
    return Losses((1 - smoothing) * plain + smoothing * spread, plain.detach())


def divergence(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
    """R-Drop: how far two passes with different dropout disagree, (KL(p‖q) + KL(q‖p)) / 2 summed over the targets."""
    p, q = (logits.float().log_softmax(-1) for logits in (first, second))
    both = F.kl_div(p, q, reduction="none", log_target=True) + F.kl_div(q, p, reduction="none", log_target=True)
    return both.sum(-1).where(targets != IGNORED, 0).sum() / 2
