"""`seq2see serve`: keys and limits, and faults."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from seq2see.api import Model
from seq2see.errors import UserError
from seq2see.server.http.listening import listen
from seq2see.server.service import supervisor
from seq2see.server.service.keys import Client, Keys, RateLimiter, new_key, read_keys
from seq2see.server.service.scheduler import Scheduler
from seq2see.server.service.server import default_workers, parse_models
from seq2see.server.service.supervisor import Supervisor, WorkerDiedError, WorkerOptions
from seq2see.server.service.worker import Answering, SharedDecoding
from tests.browser import NEEDS_BROWSER
from tests.commands import run_command
from tests.models import GRAMMAR_MODEL
from tests.service_fuzz import fuzz
from tests.services import KEY, LIMITED, LONG, SENTENCES, RunningService, error, running_service
from tests.waiting import HANG, wait_until

pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")

# Keys and limits

NAMES = ['the "best"', "a\\b", "line\nbreak", "चाय \U0001f375\x7f", "[x]"]


def test_key_is_required_and_compared(service: RunningService) -> None:
    with service.client() as anybody, service.client("wrong") as stranger:
        body = {"q": "I like tea.", "source": "en", "target": "hi"}
        assert "API key is required" in error(anybody.post("/translate", json=body), 401)
        assert error(stranger.post("/translate", json=body), 403) == "Invalid API key"
        assert error(stranger.get("/v1/models"), 401)["code"] == "invalid_api_key"
        for path in ("/metrics", "/api/models", "/"):
            assert anybody.get(path).status_code == 401, path
        assert anybody.get("/", auth=("anyone", KEY)).status_code == 200


@pytest.mark.skipif(any(mark.args[0] for mark in NEEDS_BROWSER), reason="no browser, or the page is not built")
def test_page_behind_a_key_works_in_a_browser(service: RunningService, browser: Any, tmp_path: Path) -> None:
    folder = Path(os.environ.get("SEQ2SEE_SCREENSHOTS") or tmp_path)
    stranger = browser.new_context()
    assert stranger.request.get(service.url).status == 401
    context = browser.new_context(
        http_credentials={"username": "anyone", "password": KEY}, viewport={"width": 1280, "height": 800}
    )
    page = context.new_page()
    page.goto(f"{service.url}/#/translate?text=How+are+you%3F")
    page.locator("[data-output='आप कैसे हैं?']").wait_for()
    page.screenshot(path=folder / "behind-a-key.png")
    context.close()
    stranger.close()


def test_limits_of_a_key(service: RunningService) -> None:
    with service.client(LIMITED) as client:
        body = {"source": "en", "target": "hi"}
        assert "exceeds text limit (20)" in error(client.post("/translate", json={**body, "q": "a" * 21}), 400)
        assert client.post("/translate", json={**body, "q": "We are friends."}).status_code == 200
        refused = client.post("/translate", json={**body, "q": "We are friends."})
        assert "Slowdown" in error(refused, 429)
        assert 1 <= int(refused.headers["retry-after"]) <= 60


def test_rate_limit_refills_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    limiter, client = RateLimiter(), Client("a", requests_per_minute=2)
    assert [limiter.wait(client) for _ in range(3)] == [0, 0, 30]
    clock[0] = 30
    assert [limiter.wait(client) for _ in range(2)] == [0, 30]
    assert limiter.wait(Client("b")) == 0


def test_key_file_is_checked(tmp_path: Path) -> None:
    key, entry = new_key("acme")
    file = tmp_path / "keys.toml"
    file.write_text(entry)
    keys = read_keys(file)
    file.write_text("".join(new_key(name)[1] for name in NAMES))
    assert [client.name for client in read_keys(file).clients.values()] == NAMES
    file.write_text(entry)
    assert keys.find(key) == Client("acme") and keys.find(key + "x") is None and isinstance(keys, Keys)
    for text, problem in {
        "": "has no keys",
        "[[key]]\nname = 'a'": "sha256",
        f"{entry}{entry}": "no other key has",
        f"{entry}colour = 1": 'unknown field "colour"',
        entry.replace("per_minute = 0", "per_minute = -1"): "is not a number",
        f'{entry}glossary = {{ tea = "दूध" }}': r'write \[key.glossary.hi\] and below it "tea" = "दूध"$',
        f"{entry}glossary = 1": "is not a table: write",
        f"{entry}[key.glossary.hi]\ntea = 1": "glossary.hi is not a table of terms",
        "[[": "cannot read",
    }.items():
        file.write_text(text)
        with pytest.raises(UserError, match=problem):
            read_keys(file)


def test_public_address_requires_keys() -> None:
    result = run_command("serve", "--host", "0.0.0.0")
    assert result.returncode == 2 and "--key-file" in result.stderr


def test_answers_are_sent_without_delay() -> None:
    """asyncio sets TCP_NODELAY only on sockets whose protocol is named; without it, every answer would take 40 ms more."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_only_listed_origins_get_cors_headers(client: httpx.Client) -> None:
    for origin, allowed in (("https://example.org", "https://example.org"), ("https://evil.example", None)):
        headers = {"origin": origin, "access-control-request-method": "POST"}
        response = client.options("/translate", headers=headers)
        assert response.headers.get("access-control-allow-origin") == allowed


def test_a_local_server_without_keys_answers_its_own_name_and_the_listed_origins_only(
    models: dict[str, Path], tmp_path: Path
) -> None:
    options = ("--cors", "https://example.org")
    with (
        running_service(tmp_path / "log", {"en-hi": models["en-hi"]}, *options) as service,
        service.client() as client,
    ):
        for headers, status in (
            ({"origin": "https://example.org", "sec-fetch-site": "cross-site"}, 200),
            ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
            ({"host": "evil.example"}, 421),
            ({"host": "evil.example", "origin": "https://example.org"}, 421),
            ({}, 200),
        ):
            assert client.post("/detect", data={"q": "hello"}, headers=headers).status_code == status, headers


def test_a_password_that_a_browser_sends_by_itself_counts_only_from_our_own_page(service: RunningService) -> None:
    body = {"q": "I like tea.", "source": "en", "target": "hi"}
    with service.client() as client:
        for headers, status in (
            ({}, 200),
            ({"origin": service.url, "sec-fetch-site": "same-origin"}, 200),
            ({"origin": "https://example.org", "sec-fetch-site": "cross-site"}, 200),  # listed
            ({"origin": "https://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
        ):
            assert client.post("/translate", data=body, headers=headers, auth=("anyone", KEY)).status_code == status
        bearer = {"origin": "https://evil.example", "authorization": f"Bearer {KEY}"}
        assert client.post("/translate", data=body, headers=bearer).status_code == 200


def test_metrics_count_requests_and_tokens(client: httpx.Client) -> None:
    client.post("/translate", json={"q": "I like tea.", "source": "en", "target": "hi"})
    text = client.get("/metrics").text
    assert re.search(r'seq2see_requests_total\{path="/translate",status="200"\} [1-9]', text)
    assert re.search(r'seq2see_tokens_total\{kind="generated",model="en-hi"\} [1-9]', text)
    assert re.search(r'seq2see_worker_memory_bytes\{worker="0"\} [1-9]', text)
    assert 'seq2see_batch_rows{model="en-hi"}' in text


# Connections and faults


def test_oversized_body_is_refused(client: httpx.Client) -> None:
    response = client.post("/translate", content=b" " * (8 << 20))
    assert "the maximum is 225,536" in error(response, 413)


def test_request_of_a_client_that_leaves_is_cancelled(service: RunningService, client: httpx.Client) -> None:
    def decoding() -> float:
        found = re.search(r'seq2see_sentences_decoding\{model="chat"\} (\S+)', client.get("/metrics").text)
        assert found
        return float(found[1])

    body = {"model": "chat", "prompt": "the cat", "max_tokens": 100, "n": 16, "logprobs": 5, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_lines())
    wait_until(lambda: decoding() == 0)


def test_dead_worker_is_replaced_and_its_requests_are_answered_503(models: dict[str, Path], tmp_path: Path) -> None:
    with running_service(tmp_path / "log", {"en-hi": models["en-hi"]}) as service, service.client() as client:
        body = {"q": LONG, "source": "en", "target": "hi"}

        def translate(number: int) -> httpx.Response:
            with service.client() as own:
                return own.post("/translate", json=body)

        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(translate, number) for number in range(8)]
            wait_until(lambda: _running(client) == 8 or running[0].done())
            (worker,) = _children(service.process.pid)
            os.kill(worker, signal.SIGKILL)
            statuses = {each.result(HANG).status_code for each in running}
        assert statuses <= {200, 503} and 503 in statuses
        wait_until(lambda: client.get("/health").status_code == 200 and _children(service.process.pid) != [worker])
        assert client.post("/translate", json=body).status_code == 200
        assert "seq2see_worker_restarts 1" in client.get("/metrics").text


def test_a_worker_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PING_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "SILENT_SECONDS", HANG)

    async def stop_a_worker() -> None:
        workers = Supervisor(WorkerOptions({"en-hi": str(GRAMMAR_MODEL)}, "cpu", "float32"))
        await workers.start()
        (first,) = workers.workers
        os.kill(first.process.pid, signal.SIGSTOP)
        asking = asyncio.create_task(workers.call({"operation": "statistics"}))
        await asyncio.sleep(1)
        assert not asking.done()
        monkeypatch.setattr(supervisor, "SILENT_SECONDS", 0.5)
        with pytest.raises(WorkerDiedError):
            await asking
        monkeypatch.setattr(supervisor, "SILENT_SECONDS", HANG)
        while not workers.workers:
            await asyncio.sleep(0.01)
        assert await workers.call({"operation": "statistics"})
        assert workers.restarts == 1
        await workers.stop()

    with ThreadPoolExecutor(1) as pool:  # the browser of other tests has an event loop in this thread
        pool.submit(lambda: asyncio.run(stop_a_worker())).result()


def test_reload_drops_no_request(models: dict[str, Path], tmp_path: Path) -> None:
    with running_service(tmp_path / "log", {"en-hi": models["en-hi"]}) as service, service.client() as client:
        (old,) = _children(service.process.pid)
        statuses, stop = set(), threading.Event()

        def translate() -> None:
            with service.client() as own:
                while not stop.is_set():
                    statuses.add(
                        own.post("/translate", json={"q": "I like tea.", "source": "en", "target": "hi"}).status_code
                    )

        with ThreadPoolExecutor(3) as pool:
            for _ in range(3):
                pool.submit(translate)
            service.process.send_signal(signal.SIGHUP)
            wait_until(lambda: _children(service.process.pid) and old not in _children(service.process.pid))
            stop.set()
        assert statuses == {200}
        assert client.get("/health").status_code == 200


def test_worker_whose_decoding_thread_fails_ends() -> None:
    broken = "from seq2see.server.service.scheduler import Scheduler; Scheduler._turn = lambda self: 1 / 0; "
    front, connection = socket.socketpair()
    options = {"models": {"en-hi": str(GRAMMAR_MODEL)}, "device": "cpu", "precision": "float32"}
    command = [sys.executable, "-c", broken + "from seq2see.server.service.worker import main; main()"]
    arguments = [str(connection.fileno()), json.dumps(options)]
    with subprocess.Popen(
        [*command, *arguments], pass_fds=[connection.fileno()], stderr=subprocess.PIPE, text=True
    ) as worker:
        connection.close()
        request = {"operation": "translate", "model": "en-hi", "texts": ["I run."], "format": "text", "beam": 1}
        front.sendall(json.dumps({"id": 1, "glossary": {}, "nbest": 1, **request}).encode() + b"\n")
        assert "ZeroDivisionError" in worker.communicate(timeout=HANG)[1]
    assert worker.returncode == 1
    front.close()


def test_sentences_decoded_with_those_of_others_continue_their_prefixes(bundled: Model) -> None:
    shared = SharedDecoding(Scheduler(bundled.network), Answering(1, "acme", time.monotonic() + HANG))
    prefixes = ["आप", "मुझे"]
    expected = bundled.translate_sentences(SENTENCES[:2], prefixes=prefixes, beam=2)
    assert replace(bundled, decode=shared).translate_sentences(SENTENCES[:2], prefixes=prefixes, beam=2) == expected
    assert all(text.startswith(prefix) for text, prefix in zip(expected, prefixes, strict=True))


def test_stopping_finishes_what_runs_and_ends_the_workers(models: dict[str, Path], tmp_path: Path) -> None:
    with running_service(tmp_path / "log", {"en-hi": models["en-hi"]}) as service:
        (worker,) = _children(service.process.pid)
        with ThreadPoolExecutor(1) as pool, service.client() as client:
            body = {"q": LONG, "source": "en", "target": "hi"}
            running = pool.submit(client.post, "/translate", json=body)
            with service.client() as other:
                wait_until(lambda: _running(other) == 1 or running.done())
            service.process.send_signal(signal.SIGTERM)
            assert running.result(HANG).status_code == 200
        assert service.process.wait(HANG) == 0
        wait_until(lambda: not Path(f"/proc/{worker}").exists())
    log = service.log.read_text()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"time", "client", "status", "milliseconds", "tokens"} <= set(lines[0])
    assert "tea" not in log and "चाय" not in log


def _running(client: httpx.Client) -> float:
    found = re.search(r"^seq2see_requests_running (\S+)", client.get("/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--model", "bundled"], "write NAME=DIRECTORY"),
        (["--model", "en-hi=/nowhere"], "does not exist"),
        (["--model", "en-hi={empty}"], "config.toml"),
        (["--model", "translator={bundled}"], "call it by its languages"),
    ],
)
def test_unusable_models_are_reported_at_the_start(arguments: list[str], problem: str, tmp_path: Path) -> None:
    filled = [each.format(empty=tmp_path, bundled=GRAMMAR_MODEL) for each in arguments]
    result = run_command("serve", "--port", "0", *filled)
    assert result.returncode in (1, 2) and problem in result.stderr


# Anything at all


def test_by_default_a_cpu_gets_a_worker_per_core_unless_the_models_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, file = tmp_path / "model.safetensors", tmp_path / "model.gguf"
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    for size, count in ((100 << 20, 3), (400 << 20, 2), (3 << 30, 1)):
        for path in (weights, file):
            with path.open("wb") as sparse:
                sparse.truncate(size)
        assert default_workers({"en-hi": str(tmp_path)}, "cpu") == default_workers({"chat": str(file)}, "cpu") == count
        assert default_workers({"en-hi": str(tmp_path)}, "cuda") == 1
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert default_workers({"en-hi": str(GRAMMAR_MODEL)}, "cpu") == 4


def test_no_request_makes_the_server_fail(service: RunningService) -> None:
    statuses = fuzz(service, KEY, cases=6)
    assert not any(status >= 500 for status in statuses), statuses


def test_without_a_model_all_bundled_ones_but_that_of_the_lessons_are_served() -> None:
    assert list(parse_models([])) == ["en-hi", "en-fr", "books"]
