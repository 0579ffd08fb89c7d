"""Token stores in memory for the tests of batches."""

from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from seq2see.data.batch import Sequences
from seq2see.data.store import TokenizedSide, TokenStore


def random_side(lengths: NDArray[np.int64], seed: int, vocab_size: int = 90) -> TokenizedSide:
    """Random non-special tokens; each sentence ends with <end>, which is 2."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(seed).integers(4, vocab_size, offsets[-1]).astype(np.uint16)
    tokens[offsets[1:] - 1] = 2
    return TokenizedSide(tokens, offsets)


def random_store(*lengths: list[int] | NDArray[np.int64]) -> TokenStore:
    return TokenStore(
        Path(), tuple(random_side(np.asarray(side, dtype=np.int64), seed) for seed, side in enumerate(lengths))
    )


def split(sequences: Sequences) -> list[list[int]]:
    ends = np.cumsum(sequences.lengths)
    return [part.tolist() for part in np.split(sequences.tokens, ends[:-1])]


lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=60).map(lambda pairs: [*pairs, (1, 1)])
