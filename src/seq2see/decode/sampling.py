"""Drawing a token at random: which ones may be drawn, and one number from 0 to 1 turned into one of them.

Every sequence has a seed, and its number at a step depends on nothing but that seed and the step. The number is turned
through the summed-up distribution, so that what is drawn does not depend on the rest of the batch.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seq2see.rng import draws, uniform

if TYPE_CHECKING:
    from seq2see.decode.search import Search


def uniforms(seeds: list[int], count: int) -> Tensor:
    """One number from 0 to 1 for each seed and step, [seeds, count]."""
    return torch.stack([torch.from_numpy(uniform(draws(count, seed))) for seed in seeds])


def candidates(logits: Tensor, search: "Search") -> Tensor:
    """The logits at this temperature, −∞ for tokens that may not be drawn: first top-k, then top-p, then min-p."""
    logits = logits / search.temperature
    if 0 < search.top_k < logits.shape[-1]:
        least = logits.topk(search.top_k)[0][:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if search.top_p < 1:
        ordered, index = logits.sort()  # from the least likely on
        out = ordered.softmax(-1).cumsum(-1) <= 1 - search.top_p
        out[:, -1] = False  # the likeliest stays
        logits = logits.masked_fill(out.scatter(1, index, out), -torch.inf)
    if search.min_p > 0:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < search.min_p * p.amax(-1, keepdim=True), -torch.inf)
    return logits


def draw(logits: Tensor, u: Tensor) -> Tensor:
    """The token at which the summed-up probabilities pass u, [S, 1]."""
    total = logits.double().softmax(-1).cumsum(-1)  # [S, V]
    return torch.searchsorted(total, u * total[:, -1:], right=True).clamp_(max=logits.shape[-1] - 1)
