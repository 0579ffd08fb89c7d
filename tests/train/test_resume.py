"""Resuming: a run that was damaged, out of disk space or changed continues to the same result, or says why not."""

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from seq2see.config import Config, DataConfig
from seq2see.errors import UserError
from seq2see.storage.directory import WORDS
from seq2see.tensors.files import file_lock
from seq2see.train import start as run
from seq2see.train.checkpoint import CheckpointManager, load_checkpoint
from seq2see.train.run_lock import LOCK, RunStatus, is_locked, lock_run
from seq2see.train.run_log import RunLog
from seq2see.train.validation import Scores
from tests.commands import run_command
from tests.corpora import SMALL_SETTINGS, load_weights, tensors_equal
from tests.kill_study import STATEFUL, checkpoints, is_same_run, newest
from tests.models import GRAMMAR_MODEL


@contextmanager
def max_file_size(size: int) -> Iterator[None]:
    """Limits the size of files, to simulate a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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


def replace_with_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)  # reading it would wait for a writer


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, fill_with_noise, replace_with_other_file, replace_with_pipe])
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


@pytest.mark.parametrize("name", ["log.jsonl", "run.lock", "README.md", "model.safetensors", "tokens/*/source.tokens"])
def test_a_pipe_among_the_files_of_a_run_is_refused(name: str, interrupted: Path) -> None:
    path = next(interrupted.glob(name), interrupted / name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(UserError, match="is a pipe or a device, not a file of this run: delete it"):
        run.resume(interrupted)


def test_error_if_all_checkpoints_are_damaged(interrupted: Path) -> None:
    for checkpoint in checkpoints(interrupted):
        truncate(checkpoint.path)
    with pytest.raises(UserError, match=r"has 2 checkpoints, all damaged or from another run \(newest: step-0000"):
        run.resume(interrupted)


def test_the_average_of_the_checkpoints_is_written_if_it_scores_highest(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.resume(interrupted)
    kept = [load_checkpoint(each)[0] for each in CheckpointManager(interrupted / "checkpoints").list_files("weights")]
    values = count()
    monkeypatch.setattr(Scores, "value", property(lambda _: next(values)))  # the average is scored last
    run.resume(interrupted)
    for name, weight in load_weights(interrupted).items():
        torch.testing.assert_close(weight, torch.stack([each[name] for each in kept]).mean(0))
    assert len(kept) > 1


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


def test_a_run_without_a_checkpoint_starts_from_the_beginning_and_says_so(
    interrupted: Path, uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for checkpoint in checkpoints(interrupted):
        checkpoint.path.unlink()
    run.resume(interrupted)
    assert "no checkpoint found: starting from the beginning" in capsys.readouterr().err
    assert is_same_run(interrupted, uninterrupted)


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


def test_a_resumed_run_keeps_the_words_of_the_model_that_it_began_with(interrupted: Path) -> None:
    words = interrupted / WORDS
    words.write_text(words.read_text() + "elephant\n")
    run.resume(interrupted, ["train.steps=31"])
    assert "elephant" in words.read_text()


def test_a_run_without_a_log_has_not_begun(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(Config().to_toml())
    log = RunLog.load(tmp_path)
    assert (log.step, log.seconds, log.finished) == (0, 0.0, False)


def test_asking_whether_a_run_is_locked_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not for the moment in which it is asked: a training that starts then is not refused."""
    assert not is_locked(tmp_path)
    with ExitStack() as asking:
        (tmp_path / LOCK).touch()
        asking.enter_context(file_lock(tmp_path / LOCK, wait=False, shared=True))  # as is_locked does
        assert not is_locked(tmp_path)
        monkeypatch.setattr("seq2see.train.run_lock.time.sleep", lambda _: asking.close())
        with lock_run(tmp_path, is_main=True):
            assert is_locked(tmp_path)
            with pytest.raises(UserError, match=f"is in use: process {os.getpid()} "), lock_run(tmp_path, is_main=True):
                pass
    assert not is_locked(tmp_path)


def test_the_lock_keeps_the_step_and_the_seconds_of_training(tmp_path: Path) -> None:
    with lock_run(tmp_path, is_main=True) as lock:
        lock.update(step=70, seconds=3.5)
    with lock_run(tmp_path, is_main=True):  # continued, but not trained yet
        status = RunStatus.load(tmp_path)
    assert (status.step, status.seconds, status.pid) == (70, 3.5, os.getpid())


def test_at_most_two_copies_of_the_state_wait_to_be_written(tmp_path: Path) -> None:
    """They are as large as the model and its optimizer: more could take all memory."""
    manager = CheckpointManager(tmp_path)
    for step in range(6):
        manager.save("step", step, {"weight": torch.ones(3)}, {})
        assert len(manager._pending) <= 2
    manager.wait()
    assert [checkpoint.step for checkpoint in manager.list_files("step")] == [5, 4]


def test_a_checkpoint_holds_the_weights_of_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if they are written when training has gone on."""
    manager, weight, written = CheckpointManager(tmp_path), torch.ones(3), []
    monkeypatch.setattr(manager, "_write", lambda kind, step, tensors, metadata: written.append(tensors["weight"]))
    manager.save("step", 1, {"weight": weight}, {})
    manager.wait()
    weight.zero_()
    assert written[0].tolist() == [1, 1, 1]


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
