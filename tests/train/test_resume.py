"""Resuming: a run that was killed, interrupted, damaged or out of disk space continues to the same result."""

import os
import resource
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from seq2see.config import Config, DataConfig
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.train import start as run
from seq2see.train.checkpoint import CheckpointManager, load_checkpoint
from seq2see.train.run_lock import LOCK
from seq2see.train.run_log import RunLog
from seq2see.train.stop_signals import SIGNALS, StopSignals
from seq2see.train.trainer import Trainer
from seq2see.train.validation import Validator
from tests.commands import Command, run_command
from tests.corpora import SMALL_SETTINGS, load_weights, tensors_equal
from tests.kill_study import KILLED_RUN, STATEFUL, checkpoints, is_same_run, newest, rows, study
from tests.models import GRAMMAR_MODEL
from tests.waiting import wait_until


def interrupt_at(steps: set[int], monkeypatch: pytest.MonkeyPatch, number: int = signal.SIGINT) -> None:
    """Sends a signal during these steps."""
    original = Trainer.step

    def step(trainer: Trainer) -> None:
        original(trainer)
        if trainer.state.step in steps:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Trainer, "step", step)


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


@pytest.fixture(scope="module")
def uninterrupted(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run to step 60 without interruption."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    run.train(corpus, out, settings=[*STATEFUL, "train.steps=60", "train.checkpoint_steps=10"])
    return out


@contextmanager
def max_file_size(size: int) -> Iterator[None]:
    """Limits the size of files, to simulate a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def last_step(out: Path) -> int:
    return max((checkpoint.step for checkpoint in checkpoints(out)), default=0)


def has_reached(out: Path, step: int) -> bool:
    return last_step(out) >= step


def partial_files(out: Path) -> list[Path]:
    """Lists files that are being written."""
    return list((out / "checkpoints").glob(".*.part"))


def test_run_killed_while_it_writes_a_checkpoint_ends_like_an_uninterrupted_one(
    corpus: DataConfig, tmp_path: Path
) -> None:
    config = Config(data=corpus).override(KILLED_RUN)
    (tmp_path / "config.toml").write_text(config.to_toml())
    killed, random = tmp_path / "killed", Random(7)
    with (tmp_path / "stderr").open("w") as log:
        process = Command("train", "--config", tmp_path / "config.toml", "--out", killed, stderr=log)
        wait_until((killed / "config.toml").exists)  # before that there is nothing to resume
        for _ in range(4):
            wait_until(partial(has_reached, killed, last_step(killed) + 7 * random.choice([0, 1, 2])))
            wait_until(partial(partial_files, killed), interval=0.0005)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            process = Command("train", "--resume", killed, stderr=log)
        assert process.wait() == 0, (tmp_path / "stderr").read_text()
    run.train(corpus, tmp_path / "uninterrupted", config=config)
    assert is_same_run(killed, tmp_path / "uninterrupted")
    assert [row["step"] for row in rows(killed) if row["kind"] == "step"] == [1, *range(20, 151, 20)]
    assert not partial_files(killed)


def test_run_killed_at_random_moments_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    result = study(tmp_path, trials=8, seed=7)
    assert result["kills"] == 8 and result["different"] == 0


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)


def fill_with_noise(path: Path) -> None:
    path.write_bytes(Random(1).randbytes(1000))


def replace_with_other_file(path: Path) -> None:
    save_file({"weight": torch.ones(3)}, path)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, fill_with_noise, replace_with_other_file])
def test_damaged_checkpoint_is_skipped_for_the_newest_valid_one(
    damage: Any, interrupted: Path, uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = checkpoints(interrupted)[0].path
    damage(damaged)
    run.resume(interrupted)
    stderr = capsys.readouterr().err
    assert f"skipping {damaged.name}: it is damaged or from another run" in stderr
    assert "resumed at step 20" in stderr
    assert is_same_run(interrupted, uninterrupted)


def test_valid_checkpoint_of_another_run_is_not_used(
    corpus: DataConfig, interrupted: Path, uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, setting in enumerate(["model.width=64", "text.normalize=none"]):
        run.train(corpus, tmp_path / setting, settings=[*STATEFUL, "train.steps=1", setting])
        (other,) = checkpoints(tmp_path / setting)
        shutil.copy(other.path, interrupted / "checkpoints" / f"step-9000000{number}-{other.digest}.safetensors")
    capsys.readouterr()
    run.resume(interrupted)
    assert "resumed at step 30" in capsys.readouterr().err
    assert is_same_run(interrupted, uninterrupted)


def test_error_if_all_checkpoints_are_damaged(interrupted: Path) -> None:
    for checkpoint in checkpoints(interrupted):
        truncate(checkpoint.path)
    with pytest.raises(UserError, match=r"has 2 checkpoints, all damaged or from another run \(newest: step-0000"):
        run.resume(interrupted)


def test_damaged_weights_are_left_out_of_the_average(interrupted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.resume(interrupted)
    kept = CheckpointManager(interrupted / "checkpoints").list_files("weights")
    flip_a_bit(kept[0].path)
    capsys.readouterr()
    run.resume(interrupted)
    stderr = capsys.readouterr().err
    assert f"skipping {kept[0].path.name}: it is damaged" in stderr
    assert f"(weights: step {kept[1].step})" in stderr
    truncate(kept[1].path)
    run.resume(interrupted)
    assert "(weights: step 60)" in capsys.readouterr().err


def test_incomplete_files_of_a_killed_process_are_removed(interrupted: Path, uninterrupted: Path) -> None:
    incomplete = [
        interrupted / "checkpoints" / ".step-00000040-00.safetensors.123.part",
        interrupted / ".config.toml.123.part",
    ]
    for file in incomplete:
        file.write_bytes(b"incomplete")
    with (interrupted / "log.jsonl").open("a") as log:
        log.write('{"kind": "step", "st')
    run.resume(interrupted)
    assert is_same_run(interrupted, uninterrupted)
    assert not any(file.exists() for file in incomplete)


def test_full_disk_leaves_the_last_good_checkpoint(interrupted: Path, uninterrupted: Path) -> None:
    last_good = newest(interrupted)
    with (
        max_file_size(checkpoints(interrupted)[0].path.stat().st_size // 2),
        pytest.raises(UserError, match=r"cannot write a checkpoint to .*: File too large; the last good one is intact"),
    ):
        run.resume(interrupted)
    assert tensors_equal(newest(interrupted), last_good)
    run.resume(interrupted)
    assert is_same_run(interrupted, uninterrupted)


@pytest.mark.parametrize(("what", "size"), [("tokens", 100), ("snapshot", 30_000), ("log", 100_000)])
def test_full_disk_is_a_one_line_error_for_every_file(what: str, size: int, corpus: DataConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    if what == "log":
        out.mkdir()
        (out / "log.jsonl").write_text(" " * (size - 1) + "\n")
    settings = [*SMALL_SETTINGS, "train.steps=30", f"train.snapshots={'true' if what == 'snapshot' else 'false'}"]
    with (
        max_file_size(size),
        pytest.raises(UserError, match=r"cannot write .*: File too large; free some space") as error,
    ):
        run.train(corpus, out, settings=settings)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("size", [100, 3000])  # too small for the tokenizer; too small for the log
def test_disk_still_full_on_resume_is_a_one_line_error(size: int, interrupted: Path, uninterrupted: Path) -> None:
    with max_file_size(size), pytest.raises(UserError, match=r"cannot write .*: File too large; free some space"):
        run.resume(interrupted)
    run.resume(interrupted)
    assert is_same_run(interrupted, uninterrupted)


def test_impossible_output_directory_is_a_one_line_error_before_any_work(corpus: DataConfig, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserError, match=f"cannot write {file}: File exists; choose another --out"):
        run.train(corpus, file)
    done = run_command("train", "--src", *corpus.src, "--tgt", *corpus.tgt, "--out", file / "run")
    assert done.returncode == 1
    assert done.stderr == f"seq2see: cannot write {file / 'run'}: Not a directory; choose another --out\n"


@pytest.mark.usefixtures("hangup_signal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_run_stopped_by_a_signal_resumes_to_the_same_result(
    number: int, corpus: DataConfig, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at({13, 37}, monkeypatch, number)
    out = tmp_path / "run"
    with pytest.raises(UserError, match=f"stopped at step 13; to continue: seq2see train --resume {out}"):
        run.train(corpus, out, settings=[*STATEFUL, "train.steps=60", "train.checkpoint_steps=10"])
    with pytest.raises(UserError, match="stopped at step 37"):
        run.resume(out)
    run.resume(out)
    assert is_same_run(out, uninterrupted)


def test_run_stopped_while_it_validates_or_finishes_resumes_to_the_same_result(
    corpus: DataConfig, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Validator.score
    calls: list[int] = []

    def score(*arguments: Any) -> Any:
        calls.append(len(calls))
        # The first validation, the last one (once it was made again), and the final scores of the average.
        if len(calls) in (1, 4, 6):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments)

    monkeypatch.setattr(Validator, "score", score)
    out = tmp_path / "run"
    with pytest.raises(UserError, match=f"stopped at step 20; to continue: seq2see train --resume {out}"):
        run.train(corpus, out, settings=[*STATEFUL, "train.steps=60", "train.checkpoint_steps=10"])
    for _ in range(2):
        with pytest.raises(UserError, match="stopped at step 60; to continue"):
            run.resume(out)
    assert not (out / "scores.json").exists()
    run.resume(out)
    assert is_same_run(out, uninterrupted)


def test_run_stopped_while_it_prepares_its_data_starts_again(
    corpus: DataConfig, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, settings = tmp_path / "run", [*STATEFUL, "train.steps=60", "train.checkpoint_steps=10"]
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(UserError, match="stopped before the first step: repeat the command to start again"):
            run.train(corpus, out, settings=settings)
    run.train(corpus, out, settings=settings)
    assert is_same_run(out, uninterrupted)


def test_signals_ignored_by_nohup_stay_ignored_and_handlers_are_restored() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        before = [signal.getsignal(number) for number in SIGNALS]
        with StopSignals(processes=1) as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not signals.received
        assert [signal.getsignal(number) for number in SIGNALS] == before
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_only_one_process_trains_in_a_directory_and_the_other_is_told_which(
    corpus: DataConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "config.toml", tmp_path / "run"
    config.write_text(Config(data=corpus).override([*SMALL_SETTINGS, "train.steps=100000"]).to_toml())
    first = Command("train", "--config", config, "--out", out)
    try:
        wait_until(lambda: (out / "log.jsonl").exists() and RunLog.load(out).step > 0)
        message = f"{out} is in use: process {first.pid} on {socket.gethostname()} since 20"
        with pytest.raises(UserError, match=message):
            run.train(corpus, out, settings=SMALL_SETTINGS)
        with pytest.raises(UserError, match=message):
            run.resume(out)
        assert RunLog.load(out).running
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    log = RunLog.load(out)
    assert not log.running and not log.finished
    assert log.step > 0 and log.seconds > 0
    with pytest.raises(UserError, match="already contains a run: continue it with --resume"):
        run.train(corpus, out, settings=SMALL_SETTINGS)
    run.resume(out, [f"train.steps={log.step + 1}"])  # a killed process leaves no lock behind
    assert RunLog.load(out).finished


def test_a_model_without_a_run_is_not_resumed_and_nothing_is_written_to_it() -> None:
    before = sorted(GRAMMAR_MODEL.iterdir())
    with pytest.raises(UserError, match="is a model, not a run that can continue: start from its weights with --init"):
        run.resume(GRAMMAR_MODEL)
    assert sorted(GRAMMAR_MODEL.iterdir()) == before and not (GRAMMAR_MODEL / LOCK).exists()


def test_checkpoints_without_a_configuration_are_not_mixed_with_a_new_run(
    interrupted: Path, corpus: DataConfig
) -> None:
    (interrupted / "config.toml").unlink()
    with pytest.raises(UserError, match="already contains a run"):
        run.train(corpus, interrupted, settings=SMALL_SETTINGS)
    with pytest.raises(UserError, match="is not a run directory"):
        run.resume(interrupted)


def test_damaged_log_is_reported_and_does_not_stop_a_resume(
    interrupted: Path, uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = interrupted / "log.jsonl"
    lines = log.read_bytes().splitlines()
    damaged = [b"\x00\xff\x93", b'{"kind": "step"}', b'{"kind": "step", "step": [], "loss": 1}', b"[" * 100_000, b"1"]
    log.write_bytes(b"\n".join([*lines, *damaged]) + b"\n")
    run.resume(interrupted)
    assert f"skipping {len(damaged)} damaged lines of {log}" in capsys.readouterr().err.replace("\n", "")
    assert is_same_run(interrupted, uninterrupted)
    fill_with_noise(log)
    run.resume(interrupted)
    log.unlink()
    log.mkdir()
    with pytest.raises(UserError, match=r"cannot write .*log\.jsonl: Is a directory"):
        run.resume(interrupted, ["train.steps=80"])


def test_fine_tuning_killed_before_its_first_checkpoint_still_starts_from_the_given_weights(
    corpus: DataConfig, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tuned"
    run.train(corpus, out, init=uninterrupted, settings=[*SMALL_SETTINGS, "train.steps=20"])
    expected = load_weights(out)
    shutil.rmtree(out / "checkpoints")
    (out / "log.jsonl").unlink()
    run.resume(out)
    assert tensors_equal(load_weights(out), expected)
    run.train(DataConfig(), tmp_path / "again", config=Config.load(out / "config.toml"))
    assert tensors_equal(load_weights(tmp_path / "again"), expected)


ENDLESS_WRITE = """
import time
from pathlib import Path
from seq2see.cli import main
from seq2see.train import checkpoint
def save(tensors, metadata):
    Path("writing").touch()
    while True:
        time.sleep(1)
checkpoint.save = save
main()
"""


def test_second_ctrl_c_exits_immediately_even_while_a_checkpoint_is_written(corpus: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        Config(data=corpus).override([*SMALL_SETTINGS, "train.steps=100000"]).to_toml()
    )
    (tmp_path / "slow.py").write_text(ENDLESS_WRITE)
    arguments = ["train", "--config", "config.toml", "--out", "run", "--set", "train.validate_every=100000"]
    with (tmp_path / "stderr").open("w") as file:
        process = Command(*arguments, program=tmp_path / "slow.py", stderr=file, cwd=tmp_path)
    wait_until((tmp_path / "run" / "log.jsonl").exists)
    process.send_signal(signal.SIGINT)
    wait_until((tmp_path / "writing").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    stderr = (tmp_path / "stderr").read_text()
    assert "interrupted; the last checkpoint is intact" in stderr
    assert "Traceback" not in stderr


def test_changed_number_of_threads_is_reported(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    run.resume(interrupted)
    assert "the number of threads changed from 1 to 2" in capsys.readouterr().err


def test_changed_batch_size_continues_at_about_the_same_place(interrupted: Path) -> None:
    before = load_checkpoint(checkpoints(interrupted)[0])[1]
    assert before["state"]["batch"] > 2
    run.resume(interrupted, ["train.batch_tokens=600", "train.steps=31"])
    after = load_checkpoint(checkpoints(interrupted)[0])[1]
    start, end = (m["state"]["epoch"] + m["state"]["batch"] / m["batches_in_epoch"] for m in (before, after))
    assert 0 < end - start < 3 / after["batches_in_epoch"]
