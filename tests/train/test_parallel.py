"""Parallel training: N processes make the same steps as one, write the same files, and resume each other's runs."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import Size

from seq2see.config import Config, DataConfig
from seq2see.errors import UserError
from seq2see.train import run as training_run
from seq2see.train import start as run
from seq2see.train.checkpoint import CheckpointManager, load_checkpoint
from tests.corpora import SINGLE_THREAD_ENV, SMALL_SETTINGS
from tests.waiting import HANG

# No dropout, because each process draws its own masks. Two processes cannot share three micro-batches evenly.
SETTINGS = [
    *SMALL_SETTINGS, "model.dropout=0", "train.gradient_accumulation=3", "train.batch_tokens=500", "train.steps=50",
]  # fmt: skip
FSDP = "train.fsdp=true"

# The command line with changes: it reports every step; the second process fails; writing checkpoints is slow.
EVERY_STEP = """
from seq2see.cli import main
from seq2see.train import run
run.REPORT_EVERY = 1
main()
"""
ONE_FAILS = """
import os
from seq2see.cli import main
from seq2see.errors import UserError
from seq2see.train.trainer import Trainer
original = Trainer.step
def step(self):
    if self.state.step == 3 and self.world.rank == 1:
        raise UserError("simulated failure of the second process")
    original(self)
Trainer.step = step
main()
"""
SLOW_DISK = """
import time
from seq2see.cli import main
from seq2see.train.checkpoint import CheckpointManager
original = CheckpointManager._write
def write(*arguments):
    time.sleep(1)
    original(*arguments)
CheckpointManager._write = write
main()
"""


@pytest.fixture(scope="module")
def single(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one process."""
    out = tmp_path_factory.mktemp("single") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "REPORT_EVERY", 1)
        run.train(corpus, out, settings=SETTINGS)
    return out


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def start(program: str, *arguments: str | Path, rendezvous: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Starts torchrun with two processes on a free port, or at a rendezvous with other machines."""
    place = rendezvous or [f"--master-port={free_port()}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *place]
    command = [*torchrun, *program.split(), "train", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=SINGLE_THREAD_ENV)


def wait_for_stderr(process: subprocess.Popen[str]) -> str:
    """Waits for the process to exit and returns its stderr."""
    try:
        return process.communicate(timeout=HANG)[1]
    except subprocess.TimeoutExpired:
        for pid in (*workers(process), process.pid):
            os.kill(pid, signal.SIGKILL)
        raise


def workers(process: subprocess.Popen[str]) -> list[int]:
    """Returns the ids of the processes that torchrun started, each in its own session."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def finish(process: subprocess.Popen[str]) -> str:
    stderr = wait_for_stderr(process)
    assert process.returncode == 0, stderr
    return stderr


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def double(
    request: pytest.FixtureRequest, corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The same run with two processes, by replicas (DDP) or shards (FSDP2)."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "config.toml").write_text(Config(data=corpus).override(SETTINGS).to_toml())
    (folder / "program.py").write_text(EVERY_STEP)
    settings = ["--set", FSDP] if request.param == "fsdp" else []
    stderr = finish(
        start(str(folder / "program.py"), "--config", folder / "config.toml", "--out", folder / "run", *settings)
    )
    assert stderr.count("(weights: ") == 1, "only the main process prints"
    return request.param, folder / "run"


def losses(out: Path) -> list[float]:
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows]


def contents(out: Path) -> dict[str, tuple[Size, str]]:
    tensors, _ = load_checkpoint(CheckpointManager(out / "checkpoints").list_files("step")[0])
    return {name: (tensor.shape, str(tensor.dtype)) for name, tensor in tensors.items()}


def test_two_processes_match_the_losses_and_checkpoints_of_one(double: tuple[str, Path], single: Path) -> None:
    _, out = double
    assert len(losses(single)) == 50 + 3  # steps and validations
    assert losses(out) == pytest.approx(losses(single), abs=1e-4)
    assert contents(out) == contents(single)


def test_two_nodes_of_two_processes_match_one(
    corpus: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*SETTINGS, "train.gradient_accumulation=4", "train.steps=10"]
    (tmp_path / "config.toml").write_text(Config(data=corpus).override(settings).to_toml())
    (tmp_path / "program.py").write_text(EVERY_STEP)
    monkeypatch.setattr(training_run, "REPORT_EVERY", 1)
    run.train(corpus, tmp_path / "one", settings=settings)
    rendezvous = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=test"]
    arguments = ("--config", tmp_path / "config.toml", "--out", tmp_path / "four")
    nodes = [start(str(tmp_path / "program.py"), *arguments, rendezvous=rendezvous) for _ in range(2)]
    stderr = "".join(finish(node) for node in nodes)
    assert stderr.count("(weights: ") == 1, "only the main process prints"
    assert losses(tmp_path / "four") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)


def test_run_with_two_processes_resumes_with_one(double: tuple[str, Path], single: Path, tmp_path: Path) -> None:
    kind, out = double
    shutil.copytree(single, tmp_path / "single")
    run.resume(tmp_path / "single", ["train.steps=70"])
    run.resume(out, ["train.steps=70", "train.fsdp=false"])
    assert losses(out) == pytest.approx(losses(tmp_path / "single"), abs=1e-3 if kind == "fsdp" else 1e-4)


def test_run_with_one_process_resumes_with_two_and_fsdp(single: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(single, tmp_path / name)
    stderr = finish(start("-m seq2see", "--resume", tmp_path / "two", "--set", "train.steps=70", "--set", FSDP))
    assert stderr.count("resumed at step 50") == 1
    run.resume(tmp_path / "one", ["train.steps=70"])
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_failing_process_reports_its_error_once_and_all_exit(single: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ONE_FAILS)
    process = start(str(tmp_path / "program.py"), "--config", single / "config.toml", "--out", tmp_path / "run")
    stderr = wait_for_stderr(process)
    assert process.returncode == 1
    assert [line for line in stderr.splitlines() if line.startswith("seq2see:")] == [
        "seq2see: simulated failure of the second process"
    ]
    assert "Connection closed" not in stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_saves_once_even_if_slurm_and_torchrun_both_send_it(number: int, single: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    endless = ["--set", "train.steps=100000", "--set", "train.validate_every=100000"]
    (tmp_path / "program.py").write_text(SLOW_DISK)
    process = start(str(tmp_path / "program.py"), "--config", single / "config.toml", "--out", out, *endless)
    while not (out / "log.jsonl").exists() and process.poll() is None:
        time.sleep(0.05)
    with pytest.raises(UserError, match=f"{out} is in use: process"):
        run.resume(out)
    for worker in workers(process):
        os.kill(worker, number)
    time.sleep(0.2)
    process.send_signal(number)  # torchrun forwards it
    stderr = wait_for_stderr(process)
    assert stderr.count(f"to continue: seq2see train --resume {out}") == 1
    assert len(CheckpointManager(out / "checkpoints").list_files("step")) == 1
