"""Early stopping: a run ends after so many validations without a better score."""

from pathlib import Path

import pytest

from seq2see.config import DataConfig
from seq2see.train import start as run
from seq2see.train.run_lock import RunStatus
from tests.corpora import SMALL_SETTINGS


@pytest.mark.parametrize("patience", [1, 2])
def test_a_run_ends_when_its_patience_does(patience: int, corpus: DataConfig, tmp_path: Path) -> None:
    still = [
        "train.lr=1e-12",
        "train.metric=bleu",
        "train.steps=60",
        "train.validate_every=3",
    ]  # no score is better than the first
    run.train(corpus, tmp_path / "run", settings=[*SMALL_SETTINGS, *still, f"train.patience={patience}"])
    assert RunStatus.load(tmp_path / "run").step == 3 * (1 + patience)
