"""Random numbers by place: a number is the hash of what it is for, so it does not matter what was drawn before.

That makes an epoch resumable at any point, the same on one process and on eight, and the same with every version of
numpy, whose own generators promise less.
"""

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


def mix(x: Hashes) -> Hashes:
    """splitmix64: every bit of the input changes half the bits of the output."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def seeded(count: int, *parts: int) -> Hashes:
    """The same number `count` times over, from whole numbers such as (seed, epoch)."""
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        state = mix(state + np.uint64(part % 2**64))
    return np.repeat(state, count)


def draws(count: int, *parts: int) -> Hashes:
    """Number i of these depends on the parts and on i alone."""
    numbers: Hashes = np.arange(count, dtype=np.uint64)
    return mix(seeded(count, *parts) + numbers)


def uniform(hashes: Hashes) -> NDArray[np.float64]:
    """From 0 to 1, without the 1."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
