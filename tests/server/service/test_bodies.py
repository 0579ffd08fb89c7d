"""What strangers may make the service do: little. Bodies without a key are small, bounded together, and parsed elsewhere."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from seq2see.server.http.security import BodyPool
from seq2see.server.service import service as services
from seq2see.server.service.app import create_app
from seq2see.server.service.keys import new_key
from seq2see.server.service.service import Service, Settings

pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")

T = TypeVar("T")
SMALL = (64 << 10) + 16 * 10_000
REQUEST = {"q": "I like tea.", "source": "en", "target": "hi"}


class FakeSupervisor:
    """Workers that answer at once, in capitals."""

    def __init__(self) -> None:
        self.seconds = 0.0  # until it answers
        self.models = {"en-hi": {"shape": "encoder-decoder"}, "chat": {"shape": "decoder"}}

    async def call(self, message: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(self.seconds)
        return {"translations": [[text.upper()] for text in message["texts"]], "tokens": [1, 1]}


@pytest.fixture(scope="module")
def key() -> tuple[str, str]:
    return new_key("acme")


@pytest.fixture
def service(tmp_path: Path, key: tuple[str, str]) -> Service:
    (tmp_path / "keys.toml").write_text(key[1].replace("max_characters = 0", "max_characters = 20000"))
    return Service(FakeSupervisor(), Settings(tmp_path / "keys.toml", access_log=False))  # type: ignore[arg-type]


class Post:
    """A request to the application, whose body arrives message by message; `pieces` are those that were read."""

    def __init__(self, path: str, body: Iterator[bytes | None], key: str = "", **headers: str) -> None:
        self._body, self.read, self.status, self.answer = body, list[bytes](), 0, b""
        named = {"host": "127.0.0.1", "content-type": "application/json", **headers}
        named |= {"authorization": f"Bearer {key}"} if key else {}
        self.scope: dict[str, Any] = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "state": {},
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()],
        }  # fmt: skip

    async def receive(self) -> dict[str, Any]:
        piece = next(self._body, None)
        if piece is None:  # nothing more arrives
            await asyncio.Event().wait()
            raise AssertionError
        if piece == GONE:
            return {"type": "http.disconnect"}
        self.read.append(piece)
        return {"type": "http.request", "body": piece.rstrip(END), "more_body": not piece.endswith(END)}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.answer += message.get("body", b"")


END, GONE = b"\0", b"\1"  # of a body; the client disconnects


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def call() -> T:
        return await work()

    with ThreadPoolExecutor(1) as pool:  # the browser of other tests has an event loop in this thread
        return pool.submit(lambda: asyncio.run(call())).result()


def post(service: Service, path: str, *pieces: bytes, key: str = "", **headers: str) -> Post:
    request = Post(path, iter(pieces), key, **headers)
    run(lambda: create_app(service)(request.scope, request.receive, request.send))
    return request


def test_a_body_is_not_read_before_the_key_in_the_headers_is_checked(service: Service) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings"):
        assert (refused := post(service, path, b"{}" + END)).status == 401
        assert refused.read == []
        assert (refused := post(service, path, b"{}" + END, key="wrong")).status == 401
        assert refused.read == []


@pytest.mark.parametrize("path", ["/translate", "/translate_file", "/detect", "/v1/completions"])
def test_without_a_key_in_the_headers_a_small_body_is_read_only(service: Service, path: str) -> None:
    announced = post(service, path, b"{}" + END, content_length=str(SMALL + 1))
    assert (announced.status, announced.read) == (413, [])
    piece = b" " * (1 << 14)
    chunked = post(service, path, *[piece] * 500)
    assert len(chunked.read) <= SMALL // len(piece) + 1
    assert chunked.status == (401 if path.startswith("/v1") else 413)


def test_a_body_has_room_for_the_longest_text_of_its_client(service: Service, key: tuple[str, str]) -> None:
    def body(characters: int, api_key: str) -> bytes:
        return json.dumps({**REQUEST, "q": "𝄞" * characters, "api_key": api_key}).encode() + END

    assert post(service, "/translate", body(10_000, key[0])).status == 200
    assert post(service, "/translate", body(20_000, ""), key=key[0]).status == 200
    assert post(service, "/translate", body(20_000, key[0])).status == 413  # the headers do not say whose it is
    assert "exceeds text limit (20000)" in post(service, "/translate", body(20_001, ""), key=key[0]).answer.decode()


def test_bodies_that_never_end_have_bounded_room_and_take_none_of_others(
    service: Service, key: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    hold = BodyPool.hold

    def record(pool: BodyPool, size: int) -> None:
        hold(pool, size)
        held.append(pool.held)

    monkeypatch.setattr(BodyPool, "hold", record)
    monkeypatch.setattr(services, "POOL_BYTES_WITHOUT_KEY", 1 << 20)
    app = create_app(Service(service.supervisor, service.settings))
    strangers = [Post("/translate", iter([b" " * (1 << 17)])) for _ in range(500)]
    own = Post("/translate", iter([json.dumps(REQUEST).encode() + END]), key[0])

    async def send_all() -> None:
        tasks = [asyncio.ensure_future(app(each.scope, each.receive, each.send)) for each in strangers]
        await asyncio.wait(tasks, timeout=0.05)
        while sum(task.done() for task in tasks) < 492:
            await asyncio.sleep(0.01)
        await app(own.scope, own.receive, own.send)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    run(send_all)
    assert [each.status for each in strangers].count(503) == 492
    assert max(held) == 1 << 20 and own.status == 200
    assert b"I LIKE TEA." in own.answer


def test_room_is_free_again_after_every_kind_of_end(service: Service) -> None:
    (pool,) = {service.body_limit(Post("/detect", iter(())).scope).pool}
    for pieces in ([b"{}" + END], [b"{" + END], [b"{", GONE], [b" " * SMALL, b" ", b""]):
        post(service, "/detect", *pieces)
        assert pool.held == 0


@pytest.mark.parametrize("path", ["/translate", "/v1/completions", "/translate_file"])
def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(
    service: Service, key: tuple[str, str], caplog: pytest.LogCaptureFixture, path: str
) -> None:
    kind = "multipart/form-data; boundary=b" if path == "/translate_file" else "application/json"
    left = post(service, path, b"--b\r\nContent-", GONE, key=key[0], content_type=kind)
    assert left.status == 499 and not caplog.records


def test_bodies_are_parsed_in_a_thread_of_their_own(
    service: Service, key: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def loads(text: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return json.JSONDecoder().decode(text.decode())

    monkeypatch.setattr(json, "loads", loads)
    body = json.dumps({**REQUEST, "model": "none"}).encode() + END
    for path in ("/translate", "/v1/completions"):
        post(service, path, body, key=key[0])
    assert len(threads) == 2 and all(name.startswith("parser") for name in threads)


def test_the_worker_says_itself_that_a_request_took_too_long(service: Service, key: tuple[str, str]) -> None:
    """So that the front process waits a little longer than the request may take."""
    patient = Service(service.supervisor, replace(service.settings, timeout=0.1))
    service.supervisor.seconds = 0.3  # type: ignore[attr-defined]
    assert post(patient, "/translate", json.dumps(REQUEST).encode() + END, key=key[0]).status == 200


def test_a_glossary_has_a_limit(service: Service, key: tuple[str, str]) -> None:
    def post_terms(count: int) -> Post:
        body = {**REQUEST, "glossary": {f"term {i}": "x" for i in range(count)}}
        return post(service, "/translate", json.dumps(body).encode() + END, key=key[0])

    assert post_terms(1000).status == 200
    assert b"glossary parameter has more than 1,000 terms" in (refused := post_terms(1001)).answer
    assert refused.status == 400
