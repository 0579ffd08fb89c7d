"""The server of the page: its limits hold, foreign hosts and origins are rejected, and it starts and stops as told."""

import asyncio
import itertools
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import seq2see
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.server.explore import server
from seq2see.server.explore.app import create_app
from seq2see.server.explore.options import Limits
from seq2see.server.http import listening, workers
from seq2see.server.http.listening import BoundedProtocol, listen
from seq2see.server.http.security import HEADERS
from seq2see.storage.bundled import BUNDLED, GRAMMAR
from tests.commands import run_command
from tests.explore import TEXT, TEXTS, error, post, serving
from tests.waiting import HANG, wait_until

# Limits


def test_a_full_queue_returns_503_with_retry_after(directories: dict[str, Path]) -> None:
    app = create_app(directories, Limits(workers=1, queue_size=1))
    with serving(app) as client, ThreadPoolExecutor(2) as others:
        id = post(client, "/api/traces", text=TEXT)["id"]
        path, pool = f"/api/traces/{id}/tensors/logits", app.state.workers
        wait_until(lambda: not pool.running)  # a response is sent shortly before its worker is free
        with app.state.api.state.traces[id].lock:  # blocks the worker, so that the next request stays in the queue
            blocked = [others.submit(client.get, path)]
            wait_until(lambda: pool.running)
            blocked.append(others.submit(client.get, path))
            wait_until(lambda: pool.jobs.full())
            response = client.get(path)
            assert error(response, 503)["hint"] == "try again in a second"
            assert response.headers["retry-after"] == "1"
            assert client.get("/docs").status_code == 200  # the event loop is not blocked
        assert [response.result().status_code for response in blocked] == [200, 200]
        assert client.get(path).status_code == 200


def test_the_least_recently_used_trace_is_evicted(directories: dict[str, Path]) -> None:
    app = create_app(directories, Limits(max_traces=2))
    with serving(app) as client:
        first, second, third = (post(client, "/api/traces", text=text)["id"] for text in TEXTS[:3])
        assert "trace the text again" in error(client.get(f"/api/traces/{first}"), 404)["hint"]
        assert client.get(f"/api/traces/{second}").status_code == 200  # now the more recently used one
        post(client, "/api/traces", text=TEXT)
        assert client.get(f"/api/traces/{second}").status_code == 200
        error(client.get(f"/api/traces/{third}"), 404)
        size = app.state.api.state.traces[second].size
    app = create_app(directories, Limits(max_trace_bytes=size // 2))
    with serving(app) as client:
        error(client.post("/api/traces", json={"text": TEXT}), 413)
        assert len(app.state.api.state.traces) == 0


def test_slow_requests_time_out(directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()  # a clock that advances by a second whenever a deadline is checked
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    with serving(create_app(directories, Limits(timeout=5.5))) as client:
        client.get("/api/models")
        body = {"text": "the cat sees a dog " * 40, "beam": 8}
        response = client.post("/api/translate", json=body)
        assert "not finished within 5.5 seconds" in error(response, 504)["message"]
        long = {"prompt": "the cat sees a dog " * 40, "max_new_tokens": 500, "temperature": 1.0}
        lines = client.post("/api/generate", json={**long, "model": "language-model"}).text.splitlines()
        assert json.loads(lines[-1]).get("done") or "not finished" in json.loads(lines[-1])["message"]


def test_a_body_that_does_not_arrive_times_out(directories: dict[str, Path]) -> None:
    head = b"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    with (
        serving(create_app(directories, Limits(timeout=0.5))) as client,
        socket.create_connection(("127.0.0.1", client.base_url.port), HANG) as connection,
    ):
        connection.sendall(head)
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 408")


REQUEST = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(("before", "head"), [(b"", b""), (b"", REQUEST[:-2]), (REQUEST, REQUEST[:-2])])
def test_headers_that_do_not_arrive_time_out(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, before: bytes, head: bytes
) -> None:
    monkeypatch.setattr(BoundedProtocol, "header_seconds", 0.2)
    with socket.create_connection(("127.0.0.1", client.base_url.port), HANG) as connection:
        if before:
            connection.sendall(before)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        connection.sendall(head)
        received = b""
        while data := connection.recv(1 << 16):
            received += data
    assert b"HTTP/1.1 408" in received


def test_of_a_refused_body_little_is_read(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    data_received = BoundedProtocol.data_received

    def count(protocol: BoundedProtocol, data: bytes) -> None:
        read.append(len(data))
        data_received(protocol, data)

    monkeypatch.setattr(BoundedProtocol, "data_received", count)
    monkeypatch.setattr(listening, "LINGER_SECONDS", 0.2)
    head = b"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.base_url.port), HANG) as connection:
        with suppress(OSError):  # closed
            connection.sendall(head + b" " * 99_999_999)
        assert connection.recv(12) == b"HTTP/1.1 413"
    assert sum(read) <= 2 * listening.MAX_READ


def test_only_a_body_that_is_not_read_closes_its_connection(client: httpx.Client) -> None:
    """And the answer says so: a client must not send its next request there."""
    foreign = {"host": "evil.example"}
    for send, closes in (
        (lambda: client.get("/nothing"), False),
        (lambda: client.get("/", headers=foreign), False),
        (lambda: client.post("/api/translate", json={"text": 1}), False),
        (lambda: client.post("/api/translate", json={"text": TEXT}, headers=foreign), True),
        (lambda: client.post("/api/translate", content=b"", headers=foreign), False),
        (lambda: client.post("/api/translate", content=iter([b"{}"]), headers=foreign), True),
    ):
        assert (send().headers.get("connection") == "close") == closes


def test_a_body_with_two_lengths_is_refused_and_its_connection_closed(client: httpx.Client) -> None:
    lengths = b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG"
    with socket.create_connection(("127.0.0.1", client.base_url.port), HANG) as connection:
        connection.sendall(b"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lengths)
        received = b""
        while data := connection.recv(1 << 16):
            received += data
    assert received.startswith(b"HTTP/1.1 400") and received.count(b"HTTP/1.1") == 1


def test_long_input_is_rejected(client: httpx.Client, trace: dict[str, Any]) -> None:
    assert error(client.post("/api/traces", json={"text": "a b " * 900}), 422)["location"] == "text"
    assert error(client.post("/api/translate", json={"text": "a" * 8001}), 422)["location"] == "body.text"
    assert error(client.post("/api/translate", json={"text": "a" * (1 << 20)}), 413)["location"] == "body"

    def without_content_length() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * (1 << 14)

    assert client.post("/api/translate", content=without_content_length()).status_code == 413


def test_an_internal_error_affects_no_other_request(
    client: httpx.Client, trace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    path = f"/api/traces/{trace['id']}/alternatives?row=0"
    monkeypatch.setattr(Explanation, "resolve_row", broken)
    response = client.get(path)
    error(response, 500)
    assert "secret" not in response.text
    assert client.get(f"/api/traces/{trace['id']}/attention-entropy").status_code == 200
    monkeypatch.undo()
    assert client.get(path).status_code == 200


def test_a_broken_model_is_reported_and_affects_no_other(directories: dict[str, Path], tmp_path: Path) -> None:
    intact = directories["translator"]
    assert intact is not None
    broken = tmp_path / "broken"
    shutil.copytree(intact, broken)
    (broken / "model.safetensors").write_bytes((intact / "model.safetensors").read_bytes()[:1000])
    with serving(create_app({"broken": broken, "intact": intact})) as client:
        assert "cannot read" in error(client.post("/api/translate", json={"text": TEXT}), 500)["message"]
        assert post(client, "/api/translate", text=TEXT, model="intact")["sentences"]


# Access


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "",
        "[::1",
        "10.0.0.1",
        "evil@127.0.0.1",
        "127.0.0.1:80@evil",
        "127.0.0.1/evil",
    ],
)
def test_a_foreign_host_is_rejected(client: httpx.Client, host: str) -> None:
    assert error(client.get("/api/models", headers={"host": host}), 421)["location"] == "Host"
    assert error(client.get("/", headers={"host": host}), 421)


def test_another_origin_is_rejected(client: httpx.Client) -> None:
    body = {"text": TEXT}
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert error(client.post("/api/translate", json=body, headers=headers), 403)["location"] == "Origin"
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert error(client.get("/api/models", headers=link), 403)
    own = {"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    response = client.post("/api/translate", json=body, headers=own)
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers
    assert client.options("/api/translate", headers=own).status_code == 405


def test_every_response_has_the_security_headers(client: httpx.Client) -> None:
    for response in (
        client.get("/api/models"),
        client.get("/nothing"),
        client.get("/"),
        client.get("/docs"),
        client.post("/api/translate", content="{"),
        client.get("/", headers={"host": "evil.example"}),
    ):
        assert set(HEADERS) <= set(response.headers)
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"


# The command


def test_under_load_no_request_is_lost_and_memory_stays_bounded(directories: dict[str, Path]) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "explore_load.py"
    command = [
        sys.executable,
        str(script),
        "--clients",
        "12",
        "--seconds",
        "4",
        "--model",
        str(directories["translator"]),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    data = json.loads(ran.stdout.splitlines()[-1])
    assert data["lost"] == data["evicted"] == 0
    assert data["completed"] >= 12
    assert data["mib_max"] < data["mib_before"] + 100


def test_a_port_in_use_is_skipped_and_ctrl_c_stops_at_once() -> None:
    with listen(server.HOST, 0) as listener:
        _start_and_stop(listener.getsockname()[1])


def _start_and_stop(port: int) -> None:
    command = [sys.executable, "-m", "seq2see", "explore", "--model", GRAMMAR, "--no-open", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == f"port {port} is in use\n"
        url = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert url and int(url[1]) > port
        assert httpx.get(f"{url[0]}/docs", timeout=HANG).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 0
        assert process.stderr.read() == ""


def test_a_directory_without_a_model_is_a_one_line_error(tmp_path: Path) -> None:
    failed = run_command("explore", "--no-open", "--model", tmp_path)
    assert failed.returncode == 1
    assert failed.stderr == f"seq2see: {tmp_path} is not a model directory: it has no config.toml\n"


def test_models_with_the_same_name_are_numbered(directories: dict[str, Path]) -> None:
    directory = directories["language-model"]
    assert server.name_models([directory, directory]) == {"language-model": directory, "language-model-2": directory}
    assert server.name_models([Path(GRAMMAR)]) == {GRAMMAR: BUNDLED / GRAMMAR}


def test_a_port_that_cannot_be_had_is_an_error_with_the_option_to_change() -> None:
    with (
        listen(server.HOST, 0) as listener,
        pytest.raises(UserError, match="in use: choose another with --host or --port"),
    ):
        listen(server.HOST, listener.getsockname()[1])


def test_the_server_listens_on_localhost_only() -> None:
    with listen(server.HOST, 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        with pytest.raises(OSError, match=r"refused|unreachable"), socket.socket() as other:
            other.connect((_own_address(), listener.getsockname()[1]))


def _own_address() -> str:
    """Returns this machine's network address, or a loopback address without a listener if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))  # sends nothing
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


def test_only_the_servers_import_the_web_framework() -> None:
    code = Path(seq2see.__file__).parent
    texts = {path.relative_to(code): path.read_text(encoding="utf-8") for path in code.rglob("*.py")}

    def users(pattern: str) -> set[str]:
        importing = re.compile(rf"^\s*(?:import|from) (?:{pattern})\b", re.MULTILINE)
        return {path.parts[0] for path, text in texts.items() if importing.search(text)}

    assert users("fastapi|starlette|uvicorn") == {"server"}
    assert users("pydantic") == {
        "server",
        "course",
    }  # of the course: the settings of lessons, which are checked by their types
    at_the_top = re.compile(r"^(?:import|from) seq2see\.server\b", re.MULTILINE)
    assert not [path for path, text in texts.items() if path.parts[0] != "server" and at_the_top.search(text)]


def test_a_stream_lets_the_server_run_between_items() -> None:
    """So that it notices a lost connection instead of sending everything that waits."""

    async def count_turns() -> list[int]:
        turns, pool = 0, workers.WorkerPool(workers=1, queue_size=1, timeout=HANG)

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other, seen = asyncio.create_task(turn()), []
        async for _ in pool.stream(lambda _: iter(range(100))):
            seen.append(turns)
        other.cancel()
        return seen

    with ThreadPoolExecutor(1) as pool:  # Playwright's loop runs in this thread
        seen = pool.submit(lambda: asyncio.run(count_turns())).result()
    assert all(before < after for before, after in itertools.pairwise(seen))
