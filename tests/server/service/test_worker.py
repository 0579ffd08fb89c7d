"""A worker process answers every request, whatever happens in it, and works for nobody who has gone."""

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seq2see.api import Model
from seq2see.server.service.worker import Worker
from seq2see.translate.translator import Translator
from tests.waiting import wait_until

pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")

SILENCE = 30.0  # seconds; only a request that is never answered takes as long
COMMON = {"client": "acme", "beam": 1, "nbest": 1, "glossary": {}}
REQUESTS: dict[str, dict[str, Any]] = {
    "translate": {"model": "en-hi", "texts": ["I like tea."], "format": "text", **COMMON},
    "html": {"operation": "translate", "model": "en-hi", "texts": ["<p>tea</p>"], "format": "html", **COMMON},
    "document": {"model": "en-hi", "name": "a.txt", "content": "SSBsaWtlIHRlYS4=", **COMMON},
    "generate": {
        "model": "chat",
        "prompts": ["the cat"],
        "stream": False,
        "logprobs": False,
        "stop": [],
        "n": 1,
        "max_tokens": 4,
        "search": {},
    },
    "embed": {"model": "encoder", "texts": ["the cat"]},
}
Ask = Callable[..., dict[str, Any]]


class Connection:
    """The front process."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(SILENCE)
        self._end, self._lines = end, end.makefile("rb")

    def send(self, message: dict[str, Any]) -> None:
        self._end.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:
        return json.loads(self._lines.readline())

    def ask(self, kind: str, **options: Any) -> Any:
        self.send({"id": 1, "operation": kind, **REQUESTS[kind], **options})
        return self.receive()


@pytest.fixture(scope="module")
def worker(models: dict[str, Path]) -> Iterator[tuple[Worker, Connection]]:
    front, back = socket.socketpair()
    options = {"models": {name: str(path) for name, path in models.items()}, "device": "cpu", "precision": "float32"}
    worker = Worker(back, options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    connection = Connection(front)
    assert connection.receive()["ready"].keys() == models.keys()
    yield worker, connection
    front.shutdown(socket.SHUT_RDWR)
    thread.join(SILENCE)
    for end in (connection._lines, front, back):
        end.close()


class Panic(BaseException):
    """What a library in Rust raises when it panics: no Exception."""


@pytest.mark.parametrize(
    ("kind", "function"),
    [("translate", (Translator, "translate")), ("html", (Translator, "translate")), ("embed", (Model, "embed"))],
)
def test_a_panic_is_answered_at_once(
    worker: tuple[Worker, Connection], monkeypatch: pytest.MonkeyPatch, kind: str, function: tuple[type, str]
) -> None:
    def panic(*_: object) -> None:
        raise Panic("backtrack limit exceeded")

    with monkeypatch.context() as patched:
        patched.setattr(*function, panic)
        assert worker[1].ask(kind) == {"id": 1, "error": "backtrack limit exceeded", "kind": "internal"}
    assert "result" in worker[1].ask(kind)


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_late_request_of_any_kind_is_not_begun(
    worker: tuple[Worker, Connection], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def begin(*_: object) -> None:
        raise Panic("begun")

    for operation in worker[0]._operations:
        monkeypatch.setitem(worker[0]._operations, operation, begin)
    assert worker[1].ask(kind)["error"] == "begun"
    assert worker[1].ask(kind, seconds=-1)["kind"] == "deadline"


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("translate", {"texts": ["I like tea."] * 100, "glossary": {"tea": "दूध"}}),
        ("html", {"texts": ["<p>I like tea.</p>" * 100]}),
        ("document", {"content": base64.b64encode(b"I like tea.\n" * 100).decode()}),
    ],
)
def test_a_translation_that_nobody_waits_for_stops_between_texts(
    worker: tuple[Worker, Connection], monkeypatch: pytest.MonkeyPatch, kind: str, texts: dict[str, Any]
) -> None:
    answering, connection = worker
    split: list[str] = []
    sentences = Translator.sentences

    def count(translator: Translator, text: str, location: str) -> Any:
        split.append(text)
        if len(split) == 2:
            connection.send({"cancel": 1})
            wait_until(lambda: all(each.cancelled.is_set() for each in answering._answering.values()))
        return sentences(translator, text, location)

    monkeypatch.setattr(Translator, "sentences", count)
    assert "error" in connection.ask(kind, **texts)
    assert len(split) == 2


def test_embeddings_that_nobody_waits_for_are_not_computed(
    worker: tuple[Worker, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    embed = Model.embed

    def count(model: Model, texts: list[str]) -> Any:
        computed.append(len(texts))
        if len(computed) == 2:
            connection.send({"cancel": 1})
            wait_until(lambda: all(each.cancelled.is_set() for each in answering._answering.values()))
        return embed(model, texts)

    answering, connection = worker
    monkeypatch.setattr(Model, "embed", count)
    assert "error" in connection.ask("embed", texts=["the cat"] * 1000)
    assert computed == [64, 64]


def test_embeddings_in_several_parts_are_those_of_the_model(worker: tuple[Worker, Connection]) -> None:
    texts = [f"the cat sees {i} dogs" for i in range(70)]
    parts = worker[1].ask("embed", texts=texts)["result"]
    expected = worker[0]._models["encoder"].embed(texts)
    vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in parts["vectors"]]
    np.testing.assert_allclose(np.stack(vectors), expected.numpy(), atol=1e-5)
    tokenizer = worker[0]._models["encoder"].tokenizers[0]
    assert parts["tokens"] == [sum(len(tokenizer.encode(text)) for text in texts), 0]
