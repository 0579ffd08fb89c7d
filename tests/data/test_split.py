"""How much of a corpus is held out for validation."""

from pathlib import Path

import pytest

from seq2see.config import DataConfig
from seq2see.data.corpus import open_pairs
from seq2see.data.split import PairSplit


@pytest.mark.parametrize(
    ("pairs", "share"),
    [(1_000, 0.05), (6_667, 0.03), (20_000, 0.02), (100_000, 0.01)],  # at most 5%; at least 200; 2%; at most 1,000
)
def test_large_corpora_hold_out_a_smaller_share(pairs: int, share: float, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"sentence {i}\ttranslation {i}\n" for i in range(pairs)))
    split = PairSplit(open_pairs(DataConfig(pairs=(str(file),))), None, pairs)
    held_out = split.valid()
    assert len(held_out) == pytest.approx(pairs * share, rel=0.15)
    trained = list(split.train())
    assert len(trained) + len(held_out) == pairs and not set(trained) & set(held_out)
