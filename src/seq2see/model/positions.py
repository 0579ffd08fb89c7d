"""Positional encodings.

A plain position index would be unbounded and would not express distances. Sines and cosines of many wavelengths are
bounded and smooth, and turn a shift by k positions into a rotation that does not depend on the starting position.

Shapes: T tokens in the batch, H heads, d the width of a head.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig

Rotation = tuple[Tensor, Tensor]  # cosines and sines, [T, 1, d] each
# What a scheme does: adds a vector to the embeddings, rotates queries and keys, adds a bias to their scores, or nothing.
PositionEffect = Literal["vector", "rotation", "bias", "none"]


def sinusoids(length: int, width: int, kind: str = "sinusoidal") -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos of the same angle, [length, width].

    Sines and cosines are interleaved, as in the paper; in the halves kind, all sines come before all cosines, as in Marian.
    The fairseq (M2M100) and whisper kinds also stretch the wavelengths: 10000^(2i/(width − 2)), computed in float32; the
    fairseq kind counts positions from 2.
    """
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    pairs = torch.arange(0, width, 2, dtype=torch.float64)
    if kind in ("sinusoidal-fairseq", "sinusoidal-whisper"):
        step = math.log(10000) / (width // 2 - 1)
        frequencies = torch.exp(torch.arange(width // 2, dtype=torch.int64).float() * -step)
        angles = (positions + 2 * (kind == "sinusoidal-fairseq")).float() * frequencies
    else:
        angles = positions / 10000 ** (pairs / width)  # [length, width / 2]
    waves = [angles.sin(), angles.cos()]
    table = torch.stack(waves, dim=2).flatten(1) if kind == "sinusoidal" else torch.cat(waves, dim=1)
    return table.float()


def grid_sinusoids(length: int, width: int, rows: int) -> Tensor:
    """Returns positions in two dimensions, [length, width]: half of the width encodes the row, half the column.

    Positions run column by column, with `rows` in each: position p is at row p % rows of column p // rows.
    """
    positions = torch.arange(length)
    table = sinusoids(max(length, rows), width // 2)
    return torch.cat([table[positions % rows], table[positions // rows]], dim=1)


def rotary_frequencies(config: ModelConfig, local: bool = False, device: torch.device | None = None) -> Tensor:
    """Returns the angle per position of each pair of dimensions, [head_width / 2].

    Computed in float32 regardless of the model's dtype, as in the published models. Models for longer contexts divide each
    frequency by a factor of its own; local layers with a base of their own do not.
    """
    width = config.actual_head_width
    own_base = local and config.local_rotary_base > 0
    base = config.local_rotary_base if own_base else config.rotary_base
    frequencies = 1.0 / base ** (torch.arange(0, width, 2, device=device).float() / width)
    if not config.rotary_factors or own_base:
        return frequencies
    return (frequencies.double() / _to_device(config.rotary_factors, device)).float()


@lru_cache(maxsize=64)  # a captured CUDA graph must not copy from the host
def _to_device(values: tuple[float, ...], device: torch.device | None) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device)


def rotary_cos_sin(positions: Tensor, frequencies: Tensor, magnitude: float = 1.0) -> Rotation:
    """Returns the cosines and sines by which rotary positions rotate queries and keys, each [T, 1, width]."""
    angles = positions.float()[..., None] * frequencies  # [T, width / 2]
    angles = torch.cat([angles, angles], dim=-1)[..., None, :]
    cosines, sines = angles.cos(), angles.sin()
    return (cosines, sines) if magnitude == 1 else (cosines * magnitude, sines * magnitude)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotates each pair (x_i, x_{i + d/2}) of every head by its angle, [T, H, d]: Llama's half-rotation form."""
    cosines, sines = (t.to(x.dtype) for t in rotation)
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines


class RelativeBias(nn.Embedding):
    """T5's relative positions: each head adds a learned number to the score, which depends on the distance of the key.

    Near distances have a bucket each; farther ones share buckets whose width grows with the distance. Without a causal
    mask, half of the buckets are for later keys.
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__(config.relative_buckets, config.heads)
        self.causal, self.max_distance = causal, config.relative_distance

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the bias for query positions [..., L] and key positions [..., M]: [..., H, L, M]."""
        distances = keys[..., None, :] - queries[..., :, None]
        return super().forward(self.buckets(distances)).movedim(-1, -3)

    def buckets(self, distances: Tensor) -> Tensor:
        count = self.num_embeddings
        later = torch.zeros_like(distances)
        if self.causal:
            distances = -distances.clamp(max=0)
        else:
            count //= 2
            later, distances = (distances > 0) * count, distances.abs()
        near = count // 2
        ratio = torch.log(distances.float() / near) / math.log(self.max_distance / near)
        far = near + (ratio * (count - near)).long()
        return later + torch.where(distances < near, distances, far.clamp(max=count - 1))


# The schemes that add to the scores instead of the embeddings, made of (config, causal). Each returns the bias for positions
# of queries, [..., L], and of keys, [..., M]: [..., H, L, M].
POSITION_BIASES: dict[str, Callable[[ModelConfig, bool], nn.Module]] = {"relative": RelativeBias}


def position_effect(scheme: str) -> PositionEffect:
    if scheme in POSITION_BIASES:
        return "bias"
    return "rotation" if scheme == "rotary" else "none" if scheme == "none" else "vector"
