"""Nothing lost: a run that is killed, damaged, interrupted or out of space goes on as if nothing had happened."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from seq2see.config import Config, DataConfig
from seq2see.errors import UserError
from seq2see.train import run
from seq2see.train.checkpoint import Checkpoint, Checkpoints, read
from seq2see.train.loop import Trainer
from tests.corpora import SMALL, THREAD, phrases, same, weights

# Everything that is random or remembered: dropout, R-Drop, pieces drawn anew each epoch, a running mean, an average.
EVERYTHING = [*SMALL, "train.r_drop=0.5", "train.label_smoothing=0.1", "text.dropout=0.1", "train.ema=0.9"]
SEQ2SEE = [sys.executable, "-m", "seq2see"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    return phrases(tmp_path_factory.mktemp("corpus"))


def interrupt_at(steps: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during these steps."""
    sound = Trainer.step

    def step(trainer: Trainer) -> None:
        sound(trainer)
        if trainer.state.step in steps:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "step", step)


@pytest.fixture
def begun(corpus: DataConfig, tmp_path: Path) -> Path:
    """A run that was stopped at step 30, with checkpoints of steps 20 and 30."""
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at({30}, patch)
        with pytest.raises(UserError, match="stopped at step 30"):
            run.train(corpus, tmp_path / "run", settings=[*EVERYTHING, "train.steps=60", "train.save_every=10"])
    return tmp_path / "run"


@pytest.fixture(scope="module")
def whole(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run to step 60, never interrupted."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run.train(corpus, out, settings=[*EVERYTHING, "train.steps=60", "train.save_every=10"])
    return out


def checkpoints(out: Path) -> list[Checkpoint]:
    return Checkpoints(out / "checkpoints").of_kind("step")


def newest(out: Path) -> dict[str, Tensor]:
    """Weights, the optimizer's memory and the running mean."""
    return read(checkpoints(out)[0])[0]


def rows(out: Path) -> list[dict[str, Any]]:
    """The log, but for what a clock says."""
    found = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in row if key not in ("seconds", "tokens_per_second")} for row in found]


def is_as(out: Path, other: Path) -> bool:
    return same(weights(out), weights(other)) and same(newest(out), newest(other)) and rows(out) == rows(other)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As on a full disk, files cannot grow further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Nursery:
    """Starts `seq2see` in processes that have torch already, as importing it takes longer than all that they live."""

    PROGRAM = """
import os, sys
import seq2see.train.run
from seq2see.cli import main
for line in sys.stdin:
    child = os.fork()
    if not child:
        sys.argv = line.split()
        sys.exit(main())
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([sys.executable, "-c", self.PROGRAM], text=True, env=THREAD, **pipes)  # type: ignore[call-overload]
        self._running = 0

    def start(self, *arguments: str | Path) -> None:
        self._process.stdin.write(" ".join(map(str, ["seq2see", "train", *arguments])) + "\n")
        self._process.stdin.flush()
        self._running = int(self._process.stdout.readline())

    def kill(self) -> None:
        os.kill(self._running, signal.SIGKILL)
        code = int(self._process.stdout.readline())
        assert code == -signal.SIGKILL, f"it was over before it was killed, with exit code {code}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._running, signal.SIGKILL)
        self._process.communicate()


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def reached(out: Path) -> int:
    return max((checkpoint.step for checkpoint in checkpoints(out)), default=0)


def has_reached(out: Path, step: int) -> bool:
    return reached(out) >= step


def halves(out: Path) -> list[Path]:
    """Files that are being written."""
    return list((out / "checkpoints").glob(".*.part"))


def test_a_run_killed_at_random_moments_ends_as_one_that_never_was(corpus: DataConfig, tmp_path: Path) -> None:
    settings = [*EVERYTHING, "train.steps=300", "train.save_every=7", "train.validate_every=100"]
    config = Config(data=corpus).override(settings)
    (tmp_path / "config.toml").write_text(config.to_toml())
    killed, random, stood = tmp_path / "killed", Random(7), set()
    with Nursery() as nursery:
        nursery.start("--config", tmp_path / "config.toml", "--out", killed)
        wait_until((killed / "config.toml").exists)  # before that there is nothing to go on with
        for life in range(12):
            wait_until(partial(has_reached, killed, reached(killed) + 7 * random.choice([0, 1, 2])))
            if life % 3 == 2:
                wait_until(partial(halves, killed))
            else:
                time.sleep(random.uniform(0, 0.2))
            nursery.kill()
            stood.add(reached(killed))
            if life < 11:
                nursery.start("--resume", killed)
    assert len(stood) > 5, f"it should have been killed at many steps, not only {stood}"
    done = subprocess.run([*SEQ2SEE, "train", "--resume", killed], capture_output=True, check=False, env=THREAD)
    assert done.returncode == 0, done.stderr
    run.train(corpus, tmp_path / "never", config=config)
    assert is_as(killed, tmp_path / "never")
    assert [row["step"] for row in rows(killed) if row["kind"] == "step"] == [1, *range(20, 301, 20)]
    for snapshot in (killed / "snapshots").iterdir():
        assert same(load_file(snapshot), load_file(tmp_path / "never" / "snapshots" / snapshot.name))
    assert not halves(killed)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)


def fill_with_noise(path: Path) -> None:
    path.write_bytes(Random(1).randbytes(1000))


def put_somebody_elses(path: Path) -> None:
    save_file({"weight": torch.ones(3)}, path)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, fill_with_noise, put_somebody_elses])
def test_a_damaged_checkpoint_is_passed_over_for_the_newest_sound_one(
    damage: Any, begun: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = checkpoints(begun)[0].path
    damage(bad)
    run.resume(begun)
    told = capsys.readouterr().err
    assert f"{bad.name} is damaged or of another run" in told
    assert "resumed at step 20" in told
    assert is_as(begun, whole)


def test_another_runs_sound_checkpoint_is_not_taken_for_ones_own(
    corpus: DataConfig, begun: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, setting in enumerate(["model.width=64", "text.normalise=none"]):
        run.train(corpus, tmp_path / setting, settings=[*EVERYTHING, "train.steps=1", setting])
        (other,) = checkpoints(tmp_path / setting)
        shutil.copy(other.path, begun / "checkpoints" / f"step-9000000{number}-{other.digest}.safetensors")
    capsys.readouterr()
    run.resume(begun)
    assert "resumed at step 30" in capsys.readouterr().err
    assert is_as(begun, whole)


def test_where_all_checkpoints_are_damaged_one_line_says_so(begun: Path) -> None:
    for checkpoint in checkpoints(begun):
        truncate(checkpoint.path)
    with pytest.raises(
        UserError, match=r"has 2 checkpoints, and all are damaged or of another run, the newest step-0000"
    ):
        run.resume(begun)


def test_damaged_weights_are_left_out_of_the_average(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.resume(begun)
    kept = Checkpoints(begun / "checkpoints").of_kind("weights")
    flip_a_bit(kept[0].path)
    capsys.readouterr()
    run.resume(begun)
    told = capsys.readouterr().err
    assert f"{kept[0].path.name} is damaged and passed over" in told
    assert f"is ready: step {kept[1].step}" in told
    truncate(kept[1].path)
    run.resume(begun)
    assert "is ready: step 60" in capsys.readouterr().err


def test_what_a_killed_process_left_half_written_is_harmless_and_goes(begun: Path, whole: Path) -> None:
    halves = [begun / "checkpoints" / ".step-00000040-00.safetensors.123.part", begun / ".config.toml.123.part"]
    for half in halves:
        half.write_bytes(b"half")
    with (begun / "log.jsonl").open("a") as log:
        log.write('{"kind": "step", "st')
    run.resume(begun)
    assert is_as(begun, whole)
    assert not any(half.exists() for half in halves)


def test_a_full_disk_leaves_the_last_good_checkpoint(begun: Path, whole: Path) -> None:
    sound = newest(begun)
    with (
        largest_file(checkpoints(begun)[0].path.stat().st_size // 2),
        pytest.raises(UserError, match=r"cannot write a checkpoint to .*: File too large; the last good one is intact"),
    ):
        run.resume(begun)
    assert same(newest(begun), sound)
    run.resume(begun)
    assert is_as(begun, whole)


@pytest.mark.parametrize(("what", "size"), [("tokens", 100), ("snapshot", 30_000), ("log", 100_000)])
def test_a_full_disk_is_one_line_whatever_is_being_written(
    what: str, size: int, corpus: DataConfig, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    if what == "log":
        out.mkdir()
        (out / "log.jsonl").write_text(" " * (size - 1) + "\n")
    settings = [*SMALL, "train.steps=30", f"train.snapshots={'true' if what == 'snapshot' else 'false'}"]
    with (
        largest_file(size),
        pytest.raises(UserError, match=r"cannot write .*: File too large; free some space") as told,
    ):
        run.train(corpus, out, settings=settings)
    assert "\n" not in str(told.value)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("size", [100, 3000])  # too small for the tokenizer, and for the log
def test_a_disk_that_is_still_full_is_one_line_too(size: int, begun: Path, whole: Path) -> None:
    with largest_file(size), pytest.raises(UserError, match=r"cannot write .*: File too large; free some space"):
        run.resume(begun)
    run.resume(begun)
    assert is_as(begun, whole)


def test_a_directory_that_cannot_be_is_one_line_before_any_work(corpus: DataConfig, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserError, match=f"cannot write {file}: File exists; choose another --out"):
        run.train(corpus, file)
    command = [*SEQ2SEE, "train", "--src", *corpus.src, "--tgt", *corpus.tgt, "--out", str(file / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=THREAD)
    assert done.returncode == 1
    assert done.stderr == f"seq2see: cannot write {file / 'run'}: Not a directory; choose another --out\n"


def test_a_run_stopped_by_ctrl_c_goes_on_to_the_same_end(
    corpus: DataConfig, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at({13, 37}, monkeypatch)
    out = tmp_path / "run"
    with pytest.raises(UserError, match=f"stopped at step 13; go on with: seq2see train --resume {out}"):
        run.train(corpus, out, settings=[*EVERYTHING, "train.steps=60", "train.save_every=10"])
    with pytest.raises(UserError, match="stopped at step 37"):
        run.resume(out)
    run.resume(out)
    assert is_as(out, whole)


SLOW_DISK = """
import time
from seq2see.cli import main
from seq2see.train.checkpoint import Checkpoints
Checkpoints._write = lambda *_: time.sleep(60)
main()
"""


def test_a_second_ctrl_c_leaves_at_once_also_while_a_checkpoint_is_written(corpus: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(Config(data=corpus).override([*SMALL, "train.steps=100000"]).to_toml())
    (tmp_path / "slow.py").write_text(SLOW_DISK)
    arguments = ["train", "--config", "config.toml", "--out", "run", "--set", "train.validate_every=100000"]
    process = subprocess.Popen(
        [sys.executable, "slow.py", *arguments], stderr=subprocess.PIPE, text=True, env=THREAD, cwd=tmp_path
    )
    wait_until((tmp_path / "run" / "log.jsonl").exists)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "left at once; the last checkpoint is intact" in told
    assert "Traceback" not in told


def test_another_number_of_threads_is_announced(
    begun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    run.resume(begun)
    assert "the run had 1 threads and now has 2" in capsys.readouterr().err


def test_new_batches_go_on_about_where_the_old_ones_stopped(begun: Path) -> None:
    about = read(checkpoints(begun)[0])[1]
    assert about["state"]["batch"] > 2
    run.resume(begun, ["train.tokens=600", "train.steps=31"])
    now = read(checkpoints(begun)[0])[1]
    was, is_now = ((a["state"]["epoch"] + a["state"]["batch"] / a["batches"]) for a in (about, now))
    assert 0 < is_now - was < 3 / now["batches"]
