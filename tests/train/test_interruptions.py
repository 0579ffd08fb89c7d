"""Interruptions: a run that is killed or stopped by a signal at any moment continues to the same result."""

import os
import shutil
import signal
import socket
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from seq2see.config import Config, DataConfig
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.train import start as run
from seq2see.train.run_log import RunLog
from seq2see.train.stop_signals import SIGNALS, StopSignals
from seq2see.train.validation import Validator
from tests.commands import Command
from tests.corpora import SMALL_SETTINGS, load_weights, tensors_equal
from tests.kill_study import KILLED_RUN, STATEFUL, checkpoints, is_same_run, rows, study
from tests.train.conftest import interrupt_at
from tests.waiting import wait_until


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
