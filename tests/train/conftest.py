"""A training run, and the same run stopped half-way."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from seq2see.config import DataConfig
from seq2see.errors import UserError
from seq2see.train import start as run
from seq2see.train.trainer import Trainer
from tests.kill_study import STATEFUL


def interrupt_at(steps: set[int], monkeypatch: pytest.MonkeyPatch, number: int = signal.SIGINT) -> None:
    """Sends a signal during these steps."""
    original = Trainer.step

    def step(trainer: Trainer) -> None:
        original(trainer)
        if trainer.state.step in steps:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Trainer, "step", step)


@pytest.fixture(scope="module")
def uninterrupted(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run to step 60 without interruption."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    run.train(corpus, out, settings=[*STATEFUL, "train.steps=60", "train.checkpoint_steps=10"])
    return out


@pytest.fixture(scope="module")
def interrupted_once(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped at step 30, with checkpoints of steps 20 and 30."""
    out = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at({30}, patch)
        with pytest.raises(UserError, match="stopped at step 30"):
            run.train(corpus, out, settings=[*STATEFUL, "train.steps=60", "train.checkpoint_steps=10"])
    return out


@pytest.fixture
def interrupted(interrupted_once: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(interrupted_once, tmp_path / "run"))
