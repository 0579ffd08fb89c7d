"""Training from the page: one process that can be paused, resumed and stopped, and never outlives the server."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import seq2see
from seq2see.inspect.attention_flow import attention_weights
from seq2see.inspect.explain import explain
from seq2see.server.explore.app import create_app
from seq2see.server.explore.options import TrainingOptions
from seq2see.storage.bundled import GRAMMAR
from seq2see.storage.directory import snapshots
from seq2see.train.checkpoint import load_at_step, steps_with_weights
from seq2see.train.run_lock import RunStatus, is_locked
from tests.commands import Command
from tests.corpora import SINGLE_THREAD_ENV, write_phrases
from tests.explore import serving
from tests.models import GRAMMAR_MODEL
from tests.waiting import HANG

PHRASE = "one red tea"
FILES = ["train.en", "train.hi"]


@pytest.fixture
def options(tmp_path: Path) -> TrainingOptions:
    data = tmp_path / "data"
    data.mkdir()
    write_phrases(data)
    return TrainingOptions(tmp_path / "runs", data, environment=SINGLE_THREAD_ENV)


@pytest.fixture
def client(options: TrainingOptions) -> Iterator[httpx.Client]:
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, training=options)) as client:
        yield client


def run_state(client: httpx.Client) -> dict[str, Any]:
    run: dict[str, Any] = client.get("/api/training").raise_for_status().json()["run"]
    return run


def wait_for(client: httpx.Client, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    deadline = time.monotonic() + HANG
    while not condition(run := run_state(client)):
        assert time.monotonic() < deadline, run
        time.sleep(0.2)
    return run


def start(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/api/training", json={"name": "first", "files": FILES, "minutes": 60, **body})


def error(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    return str(response.json()["message"])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_training_is_watched_paused_resumed_and_stopped(client: httpx.Client, options: TrainingOptions) -> None:
    assert client.get("/api/training").json()["files"][0]["name"] == "train.en"
    assert start(client).status_code == 201
    assert "already running" in error(start(client, name="second"), 409)
    out = options.runs / "first"
    run = wait_for(client, lambda run: run["steps_with_weights"] and run["steps"])
    assert run["state"] == "training" and run["own"]
    assert run["command"].startswith("seq2see train --src") and "stop-on-eof" not in run["command"]

    step = run["steps_with_weights"][0]
    query = {"step": step, "text": PHRASE, "attention": "decoder.0.cross", "head": 1}
    report = client.get("/api/training/report", params=query).raise_for_status().json()
    e = explain(load_at_step(out, step), PHRASE)
    assert report["output"] == e.output
    expected = attention_weights(e, "decoder.0.cross")[1]
    assert report["weights"] == [pytest.approx(row, abs=1e-5) for row in expected.tolist()]
    assert (report["queries"], report["keys"]) == (list(e.decoder_input_tokens), list(e.source_tokens))
    assert report["written"] == list(e.target_tokens)

    pid = RunStatus.load(out).pid
    client.post("/api/training/pause").raise_for_status()
    paused = wait_for(client, lambda run: run["state"] == "paused")
    assert not is_alive(pid) and not is_locked(out)
    assert client.get("/api/training").json()["paused"] == ["first"]
    assert paused["steps_with_weights"] == steps_with_weights(out)
    explain(
        load_at_step(out, paused["steps_with_weights"][-1]), PHRASE
    )  # the weights of the checkpoint, not a snapshot
    assert paused["steps_with_weights"][-1] not in snapshots(out) or paused["step"] & (paused["step"] - 1) == 0

    client.post("/api/training/resume", json={"name": "first"}).raise_for_status()
    wait_for(client, lambda run: run["step"] > paused["step"])
    client.post("/api/training/stop").raise_for_status()
    finished = wait_for(client, lambda run: run["state"] == "finished")
    assert finished["model"] == "first" and finished["progress"] == 1
    models = [model["name"] for model in client.get("/api/models").json()["models"]]
    assert models == [GRAMMAR, "first"]
    translation = client.post("/api/translate", json={"model": "first", "text": PHRASE}).json()["translation"]
    assert translation == seq2see.load(out).translate(PHRASE)
    assert "already contains a run" in error(start(client), 409)


def test_a_training_ends_with_its_server_however_that_ends(options: TrainingOptions) -> None:
    reader, writer = os.pipe()
    folders = ["--runs-dir", str(options.runs), "--data-dir", str(options.data)]
    server = Command("explore", "--no-open", "--port", "0", *folders, stdout=writer)
    os.close(writer)
    with open(reader) as stdout:
        address = stdout.readline().split(" at ")[1].split()[0]
    with httpx.Client(base_url=address, timeout=HANG) as client:
        start(client).raise_for_status()
        wait_for(client, lambda run: run["step"])
    pid = RunStatus.load(options.runs / "first").pid
    assert is_alive(pid)
    server.send_signal(signal.SIGKILL)
    server.wait()
    deadline = time.monotonic() + HANG
    while is_locked(options.runs / "first"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert steps_with_weights(options.runs / "first")[-1] >= 1  # it has saved


def test_a_server_that_ends_waits_until_the_training_has_saved(options: TrainingOptions) -> None:
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, training=options)) as client:
        start(client).raise_for_status()
        wait_for(client, lambda run: run["step"])
    assert not is_locked(options.runs / "first")
    assert list((options.runs / "first" / "checkpoints").glob("step-*"))


def test_a_failure_says_why(client: httpx.Client, options: TrainingOptions) -> None:
    assert options.data is not None
    (options.data / "empty.tsv").write_text("")
    start(client, files=["empty.tsv"]).raise_for_status()
    run = wait_for(client, lambda run: run["state"] == "failed")
    assert "empty.tsv" in run["message"] and f"--pairs {options.data / 'empty.tsv'}" in run["command"]
    start(client, name="second").raise_for_status()
    wait_for(client, lambda _: RunStatus.load(options.runs / "second").pid)
    os.kill(RunStatus.load(options.runs / "second").pid, signal.SIGKILL)
    run = wait_for(client, lambda run: run["state"] == "failed")
    assert run["message"] == "the process was killed by signal 9"


def test_a_directory_of_runs_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, training=TrainingOptions(tmp_path / "file" / "runs"))) as client:
        assert "cannot create" in error(start(client, files=[]), 422)


def test_only_listed_files_can_be_trained_on(client: httpx.Client, options: TrainingOptions, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    assert options.data is not None
    (options.data / "link.txt").symlink_to(tmp_path / "secret.txt")
    for name in ("../secret.txt", "link.txt", str(tmp_path / "secret.txt"), "missing.txt", "."):
        assert "no file" in error(start(client, files=[name]), 404)
    for name in ("", "../up", "a/b", ".hidden", "x" * 65):
        assert start(client, name=name).status_code == 422
    assert client.get("/api/training").json()["run"] is None


def test_commands_without_a_training_are_refused(client: httpx.Client) -> None:
    assert "no training of this page" in error(client.post("/api/training/pause"), 409)
    assert "no training is running or paused" in error(client.post("/api/training/stop"), 409)
    assert 'no paused run "first"' in error(client.post("/api/training/resume", json={"name": "first"}), 404)
    assert "no training has been started" in error(client.get("/api/training/report?step=1&text=a"), 404)


def test_only_the_page_on_this_machine_can_train(client: httpx.Client, options: TrainingOptions) -> None:
    body = {"name": "first", "files": FILES}
    headers = {"host": "example.com"}
    assert "unknown host name" in error(client.post("/api/training", json=body, headers=headers), 421)
    headers = {"origin": "http://example.com"}
    assert "cross-origin" in error(client.post("/api/training", json=body, headers=headers), 403)
    for app in (
        create_app({GRAMMAR: GRAMMAR_MODEL}),
        create_app({GRAMMAR: GRAMMAR_MODEL}, training=options, local_only=False),
    ):
        with serving(app) as other:
            assert other.get("/api/training").json()["disabled"]
            assert "does not train" in error(other.post("/api/training", json=body), 403)
            assert "does not train" in error(other.post("/api/training/stop"), 403)
    assert not options.runs.exists()


def test_a_run_of_another_process_is_followed() -> None:
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, training=TrainingOptions(follow=GRAMMAR_MODEL))) as client:
        run = run_state(client)
        assert (run["state"], run["own"], run["model"], run["step"]) == ("finished", False, GRAMMAR, 10000)
        assert run["steps_with_weights"] == snapshots(GRAMMAR_MODEL)
        assert run["steps"][-1]["tokens_per_second"] > 0
        report = client.get("/api/training/report", params={"step": 256, "text": "How are you?"}).json()
        assert report["output"] == seq2see.load(GRAMMAR_MODEL, step=256).explain("How are you?").output
        assert report["attention"] == "decoder.1.cross" and report["head"] is None
        assert "has no weights of step 3" in error(client.get("/api/training/report?step=3&text=a"), 422)
