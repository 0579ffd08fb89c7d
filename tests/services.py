"""A running `seq2see serve` with a translator, a chat model and an encoder."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.commands import Command
from tests.foreign_models import CHAT, byte_level, decoder, encoder, save, word_piece
from tests.models import GRAMMAR_MODEL
from tests.waiting import HANG, wait_until

SENTENCES = [
    "How are you?",
    "I like tea.",
    "The girl reads a book.",
    "He does not go to the market.",
    "We are friends.",
]
LONG = [" ".join(SENTENCES)] * 90  # seconds of work
KEY, LIMITED, GLOSSARY_KEY = "the-key", "limited-key", "glossary-key"


@dataclass(frozen=True)
class RunningService:
    process: Command
    url: str
    log: Path  # its stdout and stderr

    def client(self, key: str = "") -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, timeout=HANG, headers=headers)


def save_models(folder: Path) -> dict[str, Path]:
    chat = save(
        folder / "chat",
        decoder(),
        byte_level(),
        eos_token="<|im_end|>",
        bos_token="<|endoftext|>",
        chat_template=CHAT,
    )
    return {"en-hi": GRAMMAR_MODEL, "chat": chat, "encoder": save(folder / "encoder", encoder(), word_piece())}


@contextmanager
def running_service(log: Path, models: dict[str, Path], *options: str) -> Iterator[RunningService]:
    arguments = [argument for name, path in models.items() for argument in ("--model", f"{name}={path}")]
    with log.open("w") as file:
        process = Command("serve", "--port", "0", "--workers", "1", *arguments, *options, stdout=file, stderr=file)
    try:
        wait_until(lambda: "http://" in log.read_text() or process.poll() is not None)
        address = re.search(r"http://\S+", log.read_text())
        assert address, log.read_text()
        yield RunningService(process, address[0], log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.wait(HANG)


def error(response: httpx.Response, status: int) -> Any:
    assert response.status_code == status, response.text
    (name,) = response.json()
    assert name == "error"
    return response.json()["error"]
