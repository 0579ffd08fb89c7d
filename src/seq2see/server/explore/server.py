"""The local server process: finds a free port, opens the browser, and stops at the first Ctrl-C."""

import os
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
from seq2see.server.explore.options import Limits, TrainingOptions, unused_name
from seq2see.server.http.listening import Server, listen, server_config
from seq2see.storage.bundled import find_model
from seq2see.storage.foreign_model import find_reader

HOST = "127.0.0.1"
PORT_ATTEMPTS = 50
MAX_CONNECTIONS = 1000


def name_models(directories: Sequence[Path]) -> dict[str, Path]:
    """Maps each directory's name to its path, with a number appended to repeated names."""
    models: dict[str, Path] = {}
    for directory in map(find_model, directories):
        if not (directory / "config.toml").is_file() and not find_reader(directory):
            raise UserError(f"{directory} is not a model directory: it has no config.toml")
        models[unused_name(directory.resolve().name, models)] = directory
    return models


class _Server(Server):
    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()  # stop the workers first, or the server would wait for them
        super().handle_exit(sig, frame)


def serve(
    directories: Sequence[Path],
    port: int,
    open_browser: bool,
    report: Callable[[str], None],
    device: str,
    precision: InferencePrecision,
    training: TrainingOptions,
) -> None:
    """Runs the server until Ctrl-C; `report` receives its status lines."""
    limits = Limits()
    # Divides the cores among the workers; torch reads it when a worker first imports it.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // limits.workers)))
    app = create_app(name_models(directories), limits, device=device, precision=precision, training=training)
    listener = listen(HOST, port, PORT_ATTEMPTS)
    url = f"http://{HOST}:{listener.getsockname()[1]}"
    if port and listener.getsockname()[1] != port:
        report(f"port {port} is in use")
    report(f"seq2see is running at {url} (Ctrl-C to stop)")
    if open_browser:
        first_view = f"{url}/#/train" if training.follow else url
        threading.Thread(target=webbrowser.open, args=(first_view,), daemon=True).start()
    with suppress(KeyboardInterrupt):
        _Server(server_config(app, MAX_CONNECTIONS, shutdown_seconds=1), app.state.workers.stop).run([listener])
