"""The server on this machine: a port that is free, a browser where a person sits, and an end at the first Ctrl-C."""

import os
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn

from seq2see.errors import UserError
from seq2see.serve.app import create
from seq2see.serve.workers import Limits

HOST = "127.0.0.1"
TRIES = 50  # ports
CONNECTIONS = 1000
KEEP_ALIVE = 60  # seconds; shorter than a client's, it would cut the connection just as the next request is sent


def named(folders: Sequence[Path]) -> dict[str, Path | None]:
    """Models by the names of their folders, told apart by a number where two are alike; without any, the bundled one."""
    found: dict[str, Path | None] = {}
    for folder in folders:
        if not (folder / "config.toml").is_file():
            raise UserError(f"{folder} is no model directory: it has no config.toml")
        plain = name = folder.resolve().name
        number = 1
        while name in found:
            number += 1
            name = f"{plain}-{number}"
        found[name] = folder
    return found or {"bundled": None}


def bound(port: int) -> socket.socket:
    """A socket at this port, or at the next one that is free; at 0, at any."""
    for number in range(port, min(port + TRIES, 1 << 16)):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, number))
            listener.listen(128)
            return listener
        except OSError:
            listener.close()
    raise UserError(f"no port from {port} to {port + TRIES - 1} is free: choose another with --port")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stop()  # the workers first, or the server would wait for them
        super().handle_exit(sig, frame)


def serve(folders: Sequence[Path], port: int, browse: bool, tell: Callable[[str], None]) -> None:
    limits = Limits()
    # The workers share the cores; read by torch when a worker imports it.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // limits.threads)))
    app = create(named(folders), limits)
    listener = bound(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    if port and listener.getsockname()[1] != port:
        tell(f"port {port} is taken")
    tell(f"seq2see is at {address} (Ctrl-C ends it)")
    if browse:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE,
        limit_concurrency=CONNECTIONS,
    )
    with suppress(KeyboardInterrupt):
        _Server(config, app.state.workers.stop).run([listener])
