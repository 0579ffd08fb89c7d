"""Counter-based random numbers: each number is a hash of its purpose, independent of what was drawn before.

This makes an epoch resumable at any point, identical on one process and on eight, and identical across numpy versions,
whose generators do not guarantee a stable stream.
"""

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


def splitmix64(x: Hashes) -> Hashes:
    """Mixes bits: flipping any input bit flips about half of the output bits."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def seed_hashes(count: int, *parts: int) -> Hashes:
    """Returns the hash of integers such as (seed, epoch), repeated `count` times."""
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        state = splitmix64(state + np.uint64(part % 2**64))
    return np.repeat(state, count)


def random_uint64(count: int, *parts: int) -> Hashes:
    """Returns `count` random integers; number i depends only on the parts and on i."""
    indices: Hashes = np.arange(count, dtype=np.uint64)
    return splitmix64(seed_hashes(count, *parts) + indices)


def to_uniform(hashes: Hashes) -> NDArray[np.float64]:
    """Maps random integers to floats in [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
