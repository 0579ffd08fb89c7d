"""Positional encodings.

A plain position index would be unbounded and would not express distances. Sines and cosines of many wavelengths are
bounded and smooth, and turn a shift by k positions into a rotation that does not depend on the starting position.

Shapes: T tokens in the batch, H heads, d the width of a head.
"""

import torch
from torch import Tensor

Rotation = tuple[Tensor, Tensor]  # cosines and sines, [T, 1, d] each


def sinusoids(length: int, width: int, halves: bool = False) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos of the same angle, [length, width].

    Sines and cosines are interleaved, as in the paper; with `halves`, all sines come before all cosines, as in Marian.
    """
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    angles = positions / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)  # [length, width / 2]
    waves = [angles.sin(), angles.cos()]
    table = torch.cat(waves, dim=1) if halves else torch.stack(waves, dim=2).flatten(1)
    return table.float()


def rotary_cos_sin(positions: Tensor, width: int, base: float) -> Rotation:
    """Returns the cosines and sines by which rotary positions rotate queries and keys, each [T, 1, width].

    Computed in float32 regardless of the model's dtype, as in the published Llama models.
    """
    frequencies = 1.0 / base ** (torch.arange(0, width, 2, device=positions.device).float() / width)
    angles = positions.float()[:, None] * frequencies  # [T, width / 2]
    angles = torch.cat([angles, angles], dim=1)[:, None, :]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotates each pair (x_i, x_{i + d/2}) of every head by its angle, [T, H, d]: Llama's half-rotation form."""
    cosines, sines = (t.to(x.dtype) for t in rotation)
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines
