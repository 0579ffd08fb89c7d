"""Runs the service: starts the workers, then listens until SIGTERM or Ctrl-C. SIGHUP reloads models and keys."""

import asyncio
import ipaddress
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fastapi import FastAPI

from seq2see.config import InferencePrecision
from seq2see.errors import UsageError
from seq2see.server.http.listening import Server, listen, server_config
from seq2see.server.service.app import create_app
from seq2see.server.service.service import Service, Settings, split_pair
from seq2see.server.service.supervisor import Supervisor, WorkerOptions
from seq2see.storage.bundled import GRAMMAR, bundled_model, bundled_names, find_model

MAX_CONNECTIONS = 4000
MAX_DEFAULT_WORKERS, MAX_DEFAULT_BYTES = 4, 1 << 30  # unless the caller sets the number of workers


def parse_models(arguments: list[str]) -> dict[str, str]:
    """Returns the directories by name from NAME=DIR arguments; by default the bundled translators and language model."""
    models: dict[str, str] = {}
    for argument in arguments:
        name, equals, directory = argument.partition("=")
        if not equals or not name or not directory:
            raise UsageError(f'--model {argument}: write NAME=DIRECTORY, such as "en-hi=runs/en-hi"')
        if name in models:
            raise UsageError(f'--model {argument}: another model is called "{name}" already')
        models[name] = os.path.abspath(find_model(directory))
    return models or {name: str(bundled_model(name)) for name in bundled_names() if name != GRAMMAR}


def default_workers(models: dict[str, str], device: str) -> int:
    """Returns the number of workers unless the caller sets it. On a CPU, several with one thread each are faster than one with
    several threads, but each of them keeps its own copy of the models.
    """
    if device != "cpu":
        return 1
    size = sum(_weight_bytes(Path(path)) for path in models.values())
    return max(1, min(os.cpu_count() or 1, MAX_DEFAULT_WORKERS, MAX_DEFAULT_BYTES // max(size, 1)))


def _weight_bytes(path: Path) -> int:
    files = [file for file in path.iterdir() if file.suffix in (".safetensors", ".bin")] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def is_local(host: str) -> bool:
    """Returns whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    workers: WorkerOptions, settings: Settings, host: str, port: int, explain: bool, report: Callable[[str], None]
) -> None:
    """Runs the service until it is told to stop; `report` receives its status lines."""
    if settings.key_file is None and not is_local(host):
        raise UsageError(
            f"--host {host} can be reached from other machines: give --key-file, with keys made by "
            '"seq2see serve --new-key NAME"'
        )
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(workers, settings, listen(host, port), host, explain, report))


async def _serve(
    workers: WorkerOptions,
    settings: Settings,
    listener: socket.socket,
    host: str,
    explain: bool,
    report: Callable[[str], None],
) -> None:
    supervisor = Supervisor(workers)
    service = Service(supervisor, settings)
    await supervisor.start()
    for name in service.models("encoder-decoder"):
        if not all(split_pair(name)):
            await supervisor.stop()
            raise UsageError(f'--model {name}=… is a translator: call it by its languages, such as "en-hi"')
    service.check_glossaries()
    app = create_app(service, _explore(workers) if explain else None)
    config = server_config(app, MAX_CONNECTIONS, int(settings.timeout) + 5)
    loop, reloading = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def reload() -> None:
        task = loop.create_task(service.reload())
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when it has stopped
    shown = f"[{host}]" if ":" in host else host
    report(f"seq2see serves {', '.join(supervisor.models)} at http://{shown}:{listener.getsockname()[1]}")
    await Server(config).serve([listener])


def _explore(workers: WorkerOptions) -> FastAPI:
    """Our own page and API, in this process, with copies of the models that it loads on first use."""
    from seq2see.server.explore.app import create_app as create_explore

    precision: InferencePrecision = workers.precision  # type: ignore[assignment]
    models = {name: Path(path) for name, path in workers.models.items()}
    return create_explore(models, device=workers.device, precision=precision, local_only=False)
