"""Sampling a token: temperature, top-k, top-p and min-p filters, and the draw itself.

Every sequence has a seed, and its uniform number at a step depends only on the seed and the step. The token is found by
inverse transform sampling, so a sample does not depend on the rest of the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from seq2see.config.search import Search
from seq2see.decode.constraints import Constraints
from seq2see.tensors.rng import random_uint64, to_uniform


@dataclass(frozen=True)
class RowOptions:
    """What a row of a batch has of its own: how it samples its tokens, and what its output must be like."""

    temperature: float = 0.0  # 0: the most likely token
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    constraints: Constraints | None = None  # for a beam

    @classmethod
    def of(cls, search: Search, constraints: Constraints | None = None) -> Self:
        return cls(search.temperature, search.top_k, search.top_p, search.min_p, constraints)


def draw_uniforms(seeds: Sequence[int], steps: int) -> Tensor:
    """Returns one uniform number in [0, 1) per seed and step, [seeds, steps]."""
    return torch.stack([torch.from_numpy(to_uniform(random_uint64(steps, seed))) for seed in seeds])


def filter_logits(logits: Tensor, options: RowOptions | Search) -> Tensor:
    """Applies temperature, top-k, top-p and min-p in this order; excluded tokens become −∞."""
    logits = logits / options.temperature
    if 0 < options.top_k < logits.shape[-1]:
        threshold = logits.topk(options.top_k)[0][:, -1:]
        logits = logits.masked_fill(logits < threshold, -torch.inf)
    if options.top_p < 1:
        ordered, index = logits.sort()  # ascending
        excluded = ordered.softmax(-1).cumsum(-1) <= 1 - options.top_p
        excluded[:, -1] = False  # the most likely token always stays
        logits = logits.masked_fill(excluded.scatter(1, index, excluded), -torch.inf)
    if options.min_p > 0:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < options.min_p * p.amax(-1, keepdim=True), -torch.inf)
    return logits


def sample_tokens(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Returns the token at which the cumulative probability exceeds the uniform number, [S, 1]."""
    cumulative = logits.double().softmax(-1).cumsum(-1)  # [S, V]
    found = torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)
    return found.clamp_(max=logits.shape[-1] - 1)
