"""Parallel training: N processes make the same steps as one, write the same files, and resume each other's runs."""

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Size, nn
from torch.distributed import run

from seq2see.config import Config, DataConfig
from seq2see.errors import UserError
from seq2see.model.transformer import Transformer
from seq2see.train import parallel, start
from seq2see.train import run as training_run
from seq2see.train.checkpoint import CheckpointManager, load_checkpoint
from tests.commands import Command
from tests.corpora import SMALL_SETTINGS
from tests.models import TINY
from tests.waiting import wait_until

# No dropout, because each process draws its own masks. Two processes cannot share three micro-batches evenly.
SETTINGS = [
    *SMALL_SETTINGS,
    "model.dropout=0",
    "train.gradient_accumulation=3",
    "train.batch_tokens=500",
    "train.steps=50",
]
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
from seq2see.train import checkpoint
original = checkpoint.save
def save(tensors, metadata):
    time.sleep(1)
    return original(tensors, metadata)
checkpoint.save = save
main()
"""


@pytest.fixture(scope="module")
def single(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one process."""
    out = tmp_path_factory.mktemp("single") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "REPORT_EVERY", 1)
        start.train(corpus, out, settings=SETTINGS)
    return out


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def torchrun(program: Path, stderr: Path, *arguments: object, rendezvous: Sequence[str] = ()) -> Command:
    """Starts torchrun with two processes on a free port, or at a rendezvous with other machines."""
    place = rendezvous or [f"--master-port={free_port()}"]
    with stderr.open("a") as file:
        return Command(
            "--nproc-per-node=2", *place, program, "train", *arguments, program=Path(run.__file__), stderr=file
        )


def workers(process: Command) -> list[int]:
    """Returns the ids of the processes that torchrun started, each in its own session."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def train_with_two(stderr: Path, *arguments: object, program: Path | None = None) -> str:
    """Trains with two processes as torchrun would start them, which takes longer, and returns what they print."""
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with stderr.open("w") as file:
        places = [{**os.environ, **world, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
        processes = [Command("train", *arguments, program=program, stderr=file, env=place) for place in places]
    assert [process.wait() for process in processes] == [0, 0], stderr.read_text()
    return stderr.read_text()


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def double(
    request: pytest.FixtureRequest, corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The same run with two processes, by replicas (DDP) or shards (FSDP2)."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "config.toml").write_text(Config(data=corpus).override(SETTINGS).to_toml())
    (folder / "program.py").write_text(EVERY_STEP)
    settings = ["--set", FSDP] if request.param == "fsdp" else []
    arguments = ("--config", folder / "config.toml", "--out", folder / "run", *settings)
    stderr = train_with_two(folder / "stderr", *arguments, program=folder / "program.py")
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
    start.train(corpus, tmp_path / "one", settings=settings)
    rendezvous = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=test"]
    arguments = ("--config", tmp_path / "config.toml", "--out", tmp_path / "four")
    program, stderr = tmp_path / "program.py", tmp_path / "stderr"
    nodes = [torchrun(program, stderr, *arguments, rendezvous=rendezvous) for _ in range(2)]
    assert [node.wait() for node in nodes] == [0, 0], stderr.read_text()
    assert stderr.read_text().count("(weights: ") == 1, "only the main process prints"
    assert losses(tmp_path / "four") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)


def test_run_with_two_processes_resumes_with_one(double: tuple[str, Path], single: Path, tmp_path: Path) -> None:
    kind, out = double
    shutil.copytree(single, tmp_path / "single")
    start.resume(tmp_path / "single", ["train.steps=70"])
    start.resume(out, ["train.steps=70", "train.fsdp=false"])
    assert losses(out) == pytest.approx(losses(tmp_path / "single"), abs=1e-3 if kind == "fsdp" else 1e-4)


def test_run_with_one_process_resumes_with_two_and_fsdp(single: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(single, tmp_path / name)
    stderr = train_with_two(tmp_path / "stderr", "--resume", tmp_path / "two", "--set", "train.steps=70", "--set", FSDP)
    assert stderr.count("resumed at step 50") == 1
    start.resume(tmp_path / "one", ["train.steps=70"])
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_failing_process_reports_its_error_once_and_all_exit(single: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ONE_FAILS)
    arguments = ("--config", single / "config.toml", "--out", tmp_path / "run")
    assert torchrun(tmp_path / "program.py", tmp_path / "stderr", *arguments).wait() == 1
    stderr = (tmp_path / "stderr").read_text()
    assert [line for line in stderr.splitlines() if line.startswith("seq2see:")] == [
        "seq2see: simulated failure of the second process"
    ]
    assert "Connection closed" not in stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_saves_once_even_if_slurm_and_torchrun_both_send_it(number: int, single: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    endless = ["--set", "train.steps=100000", "--set", "train.validate_every=100000"]
    (tmp_path / "program.py").write_text(SLOW_DISK)
    arguments = ("--config", single / "config.toml", "--out", out, *endless)
    process = torchrun(tmp_path / "program.py", tmp_path / "stderr", *arguments)
    wait_until(lambda: (out / "log.jsonl").exists() or process.poll() is not None)
    with pytest.raises(UserError, match=f"{out} is in use: process"):
        start.resume(out)
    for worker in workers(process):
        os.kill(worker, number)
    time.sleep(0.2)
    process.send_signal(number)  # torchrun forwards it
    process.wait()
    stderr = (tmp_path / "stderr").read_text()
    assert stderr.count(f"to continue: seq2see train --resume {out}") == 1
    assert len(CheckpointManager(out / "checkpoints").list_files("step")) == 1


@pytest.mark.parametrize("shape", ["encoder-decoder", "decoder"])
def test_every_block_is_a_shard_of_its_own(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all weights would be gathered at once."""
    sharded: list[nn.Module] = []
    monkeypatch.setattr(parallel, "init_device_mesh", lambda *_: None)
    monkeypatch.setattr(parallel, "fully_shard", lambda module, mesh: sharded.append(module))
    model = Transformer(replace(TINY, shape=shape, vocab_size=9))
    assert parallel.parallelize(model, parallel.World(torch.device("cpu"), size=2), fsdp=True) is model
    blocks = [block for stack in (model.encoder, model.decoder) if stack is not None for block in stack.blocks]
    assert sharded == [*blocks, model]
