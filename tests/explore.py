"""A running `seq2see explore` on a free port, and its requests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI
from numpy.typing import NDArray
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.server.explore import server
from seq2see.server.http.listening import BoundedProtocol, listen
from tests.waiting import HANG

TEXTS = ["the cat sees the dog", "the dog sees a bird", "a bird sings", "बिल्ली कुत्ते को देखती है"]
TEXT, TARGET = TEXTS[0], TEXTS[3]
LANGUAGE_MODEL = ModelConfig(
    shape="decoder", width=16, heads=2, decoder_layers=2, feed_forward=16, dropout=0.0, max_positions=64
)


@contextmanager
def serving(app: FastAPI) -> Iterator[httpx.Client]:
    """Runs a real server on a free port and yields a client for it."""
    listener = listen(server.HOST, 0)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, http=BoundedProtocol)
    uvicorn_server = uvicorn.Server(config)
    thread = threading.Thread(target=uvicorn_server.run, args=([listener],))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=HANG) as client:
            yield client
    finally:
        uvicorn_server.should_exit = True
        thread.join()


def post(client: httpx.Client, path: str, **body: object) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code in (200, 201), response.text
    data = response.json()
    assert isinstance(data, dict)
    return data


def get(client: httpx.Client, path: str) -> dict[str, Any]:
    response = client.get(path)
    assert response.status_code == 200, response.text
    data = response.json()
    assert isinstance(data, dict)
    return data


def fetch_tensor(client: httpx.Client, path: str) -> NDArray[np.float32]:
    response = client.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/octet-stream"
    shape = [int(size) for size in response.headers["x-shape"].split(",") if size]
    return np.frombuffer(response.content, "<f4").reshape(shape)


def equal(found: NDArray[np.float32], expected: Tensor) -> bool:
    """Bit for bit: the server computes in this process, with the same shapes and number of threads."""
    return np.array_equal(found, expected.detach().float().numpy())


def error(response: httpx.Response, status: int) -> dict[str, str]:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"message", "location", "hint"}
    assert all(text and "\n" not in text and "Traceback" not in text for text in body.values())
    assert isinstance(body, dict)
    return body
