"""The local server process: finds a free port, opens the browser, and stops at the first Ctrl-C."""

import os
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn

from seq2see.config import InferencePrecision
from seq2see.errors import UserError
from seq2see.server.explore.app import create_app
from seq2see.server.explore.http_protocol import HeaderTimeoutProtocol
from seq2see.server.explore.training import TrainingOptions
from seq2see.server.explore.workers import Limits, unused_name
from seq2see.storage.bundled import find_model
from seq2see.storage.foreign_model import find_reader

HOST = "127.0.0.1"
PORT_ATTEMPTS = 50
MAX_CONNECTIONS = 1000
KEEP_ALIVE = 60  # seconds; if shorter than the client's, connections close just as the next request is sent


def name_models(directories: Sequence[Path]) -> dict[str, Path]:
    """Maps each directory's name to its path, with a number appended to repeated names."""
    models: dict[str, Path] = {}
    for directory in map(find_model, directories):
        if not (directory / "config.toml").is_file() and not find_reader(directory):
            raise UserError(f"{directory} is not a model directory: it has no config.toml")
        models[unused_name(directory.resolve().name, models)] = directory
    return models


def bind(port: int) -> socket.socket:
    """Returns a listening socket at this port or the next free one; port 0 is any free port."""
    for number in range(port, min(port + PORT_ATTEMPTS, 1 << 16)):
        # Unless the protocol is named, asyncio does not set TCP_NODELAY, and an answer takes 40 ms more.
        listener = socket.socket(proto=socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, number))
            listener.listen(128)
            return listener
        except OSError:
            listener.close()
    raise UserError(f"no free port from {port} to {port + PORT_ATTEMPTS - 1}: choose another with --port")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()  # stop the workers first, or the server would wait for them
        super().handle_exit(sig, frame)


def serve(
    directories: Sequence[Path], port: int, open_browser: bool, report: Callable[[str], None], device: str,
    precision: InferencePrecision, training: TrainingOptions,
) -> None:  # fmt: skip
    """Runs the server until Ctrl-C; `report` receives its status lines."""
    limits = Limits()
    # Divides the cores among the workers; torch reads it when a worker first imports it.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // limits.workers)))
    app = create_app(name_models(directories), limits, device=device, precision=precision, training=training)
    listener = bind(port)
    url = f"http://{HOST}:{listener.getsockname()[1]}"
    if port and listener.getsockname()[1] != port:
        report(f"port {port} is in use")
    report(f"seq2see is running at {url} (Ctrl-C to stop)")
    if open_browser:
        first_view = f"{url}/#/train" if training.follow else url
        threading.Thread(target=webbrowser.open, args=(first_view,), daemon=True).start()
    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE,
        limit_concurrency=MAX_CONNECTIONS,
        http=HeaderTimeoutProtocol,
    )
    with suppress(KeyboardInterrupt):
        _Server(config, app.state.workers.stop).run([listener])
