"""How the order of the words enters the model.

A word count would be unbounded, discrete and say nothing of distances; sines and cosines of many wavelengths are
bounded, smooth, and turn a shift by k positions into a rotation that does not depend on where it starts.

Shapes: T tokens in the batch, H heads, d the width of a head.
"""

import torch
from torch import Tensor


def sinusoids(length: int, width: int, halves: bool = False) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)) and PE(pos, 2i+1) the cosine of the same angle, [length, width].

    Interleaved as in the paper and the notes or, as Marian stores it, all sines before all cosines.
    """
    places = torch.arange(length, dtype=torch.float64)[:, None]
    angles = places / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)  # [length, width / 2]
    waves = [angles.sin(), angles.cos()]
    table = torch.cat(waves, dim=1) if halves else torch.stack(waves, dim=2).flatten(1)
    return table.float()


def rotation(positions: Tensor, width: int, base: float) -> tuple[Tensor, Tensor]:
    """The cosines and sines by which rotary positions turn a query or key, each [T, 1, width].

    In float32 whatever the model's own precision, as the published Llamas have it.
    """
    speeds = 1.0 / base ** (torch.arange(0, width, 2, device=positions.device).float() / width)
    angles = positions.float()[:, None] * speeds  # [T, width / 2]
    angles = torch.cat([angles, angles], dim=1)[:, None, :]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turns each pair (x_i, x_{i + d/2}) of every head by its angle, [T, H, d]: Llama's half-rotation form."""
    cosines, sines = (t.to(x.dtype) for t in turn)
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines
