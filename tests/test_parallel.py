"""More than one process: N of them make the same steps as one, write the same files, and go on from each other's."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch import Size

from seq2see.config import Config, DataConfig
from seq2see.train import run, runner
from seq2see.train.checkpoint import Checkpoints, read
from tests.corpora import SMALL, THREAD, phrases

# No dropout, whose numbers each process draws for itself. Three micro-batches: two processes cannot share them evenly.
PLAIN = [*SMALL, "model.dropout=0", "train.accumulate=3", "train.tokens=500", "train.steps=50", "train.ema=0.9"]
SHARDS = "train.shard=true"

# The command, but that it reports the loss of every step; that the second process fails; that it takes time to save.
EVERY_STEP = """
from seq2see.cli import main
from seq2see.train import runner
runner.REPORT_EVERY = 1
main()
"""
ONE_FAILS = """
import os
from seq2see.cli import main
from seq2see.errors import UserError
from seq2see.train.loop import Trainer
sound = Trainer.step
def step(self):
    if self.state.step == 3 and self.world.rank == 1:
        raise UserError("the second process has had enough")
    sound(self)
Trainer.step = step
main()
"""
SLOW_DISK = """
import time
from seq2see.cli import main
from seq2see.train.checkpoint import Checkpoints
sound = Checkpoints._write
def write(*given):
    time.sleep(1)
    sound(*given)
Checkpoints._write = write
main()
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    return phrases(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def alone(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "REPORT_EVERY", 1)
        run.train(corpus, out, settings=PLAIN)
    return out


def start(program: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """torchrun with two processes on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    command = [*torchrun, *program.split(), "train", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=THREAD)


def ended(process: subprocess.Popen[str]) -> str:
    """What it told, when it is over."""
    try:
        return process.communicate(timeout=100)[1]
    except subprocess.TimeoutExpired:
        for waiting in (*workers(process), process.pid):
            os.kill(waiting, signal.SIGKILL)
        raise


def workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes that torchrun has started, each in a session of its own."""
    return [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def finish(process: subprocess.Popen[str]) -> str:
    told = ended(process)
    assert process.returncode == 0, told
    return told


@pytest.fixture(scope="module", params=["copies", "shards"])
def together(
    request: pytest.FixtureRequest, corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The same run of two processes, each with a copy of the model (DDP) or with a part of it (FSDP2)."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "config.toml").write_text(Config(data=corpus).override(PLAIN).to_toml())
    (folder / "program.py").write_text(EVERY_STEP)
    settings = ["--set", SHARDS] if request.param == "shards" else []
    told = finish(
        start(str(folder / "program.py"), "--config", folder / "config.toml", "--out", folder / "run", *settings)
    )
    assert told.count("is ready") == 1, "only one process talks"
    return request.param, folder / "run"


def losses(out: Path) -> list[float]:
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows]


def contents(out: Path) -> dict[str, tuple[Size, str]]:
    tensors, _ = read(Checkpoints(out / "checkpoints").of_kind("step")[0])
    return {name: (tensor.shape, str(tensor.dtype)) for name, tensor in tensors.items()}


def test_two_processes_have_the_losses_of_one_and_write_the_same_checkpoints(
    together: tuple[str, Path], alone: Path
) -> None:
    _, out = together
    assert len(losses(alone)) == 50 + 3  # steps and validations
    assert losses(out) == pytest.approx(losses(alone), abs=1e-4)
    assert contents(out) == contents(alone)


def test_a_run_of_two_processes_goes_on_in_one(together: tuple[str, Path], alone: Path, tmp_path: Path) -> None:
    kind, out = together
    shutil.copytree(alone, tmp_path / "alone")
    run.resume(tmp_path / "alone", ["train.steps=70"])
    run.resume(out, ["train.steps=70", "train.shard=false"])
    assert losses(out) == pytest.approx(losses(tmp_path / "alone"), abs=1e-3 if kind == "shards" else 1e-4)


def test_a_run_of_one_process_goes_on_in_two_with_shards(alone: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(alone, tmp_path / name)
    told = finish(start("-m seq2see", "--resume", tmp_path / "two", "--set", "train.steps=70", "--set", SHARDS))
    assert told.count("resumed at step 50") == 1
    run.resume(tmp_path / "one", ["train.steps=70"])
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_a_process_that_fails_says_why_and_all_end(alone: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ONE_FAILS)
    process = start(str(tmp_path / "program.py"), "--config", alone / "config.toml", "--out", tmp_path / "run")
    told = ended(process)
    assert process.returncode == 1
    assert [line for line in told.splitlines() if line.startswith("seq2see:")] == [
        "seq2see: the second process has had enough"
    ]
    assert "Connection closed" not in told


def test_ctrl_c_saves_once_and_stops_all_also_where_slurm_and_torchrun_both_send_it(
    alone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    endless = ["--set", "train.steps=100000", "--set", "train.validate_every=100000"]
    (tmp_path / "program.py").write_text(SLOW_DISK)
    process = start(str(tmp_path / "program.py"), "--config", alone / "config.toml", "--out", out, *endless)
    while not (out / "log.jsonl").exists() and process.poll() is None:
        time.sleep(0.05)
    for worker in workers(process):
        os.kill(worker, signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)  # torchrun passes it on
    told = ended(process)
    assert told.count(f"go on with: seq2see train --resume {out}") == 1
    assert len(Checkpoints(out / "checkpoints").of_kind("step")) == 1
