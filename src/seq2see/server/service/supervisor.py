"""The worker processes, as the front process sees them: started, given requests, and replaced when they die.

A request goes to the worker with the fewest requests. If a worker dies, or stops answering, its requests fail with a 503 and a
new one starts.
A reload starts new workers, sends them all new requests, and lets the old ones finish theirs.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from seq2see.errors import UserError
from seq2see.server.http.errors import ApiError

log = logging.getLogger("seq2see.server.service")

MAX_LINE_BYTES = 256 << 20  # of a message from a worker
RESTART_SECONDS = 1.0  # before a worker that died while it was starting is started again
PING_SECONDS = 5.0  # between messages that a worker must answer
SILENT_SECONDS = 30.0  # without an answer, after which a worker is killed
Message = dict[str, Any]
_STATUS = {"user": 400, "context": 400, "queue": 503, "deadline": 504, "internal": 500}


@dataclass(frozen=True)
class WorkerOptions:
    models: dict[str, str]  # directories by name
    device: str
    precision: str
    count: int = 1


class WorkerFailedError(UserError):
    """A worker could not load the models."""


class WorkerDiedError(ApiError):
    def __init__(self) -> None:
        super().__init__(503, "the worker process of this request has died", "send the request again", retry_after=1)


class RequestFailedError(ApiError):
    """An error that a worker answers with; `kind` says which."""

    def __init__(self, message: str, kind: str) -> None:
        hint = "see the traceback in the server's log" if kind == "internal" else ""
        text = "internal server error" if kind == "internal" else message
        super().__init__(_STATUS[kind], text, hint, retry_after=1 if kind == "queue" else None)
        self.kind = kind


class WorkerProcess:
    """A running worker with its connection."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process, self._reader, self._writer = process, reader, writer
        self._replies: dict[int, asyncio.Queue[Message | None]] = {}
        self._ids = count()
        self._last_message = asyncio.get_running_loop().time()
        self.models: dict[str, Message] = {}
        self.died = asyncio.get_running_loop().create_task(self._read())  # completed when the connection is closed

    @classmethod
    async def start(cls, options: WorkerOptions) -> "WorkerProcess":
        """Starts a process and waits until it has loaded the models."""
        ours, theirs = socket.socketpair()
        threads = max(1, (os.cpu_count() or 1) // options.count)
        arguments = json.dumps({"models": options.models, "device": options.device, "precision": options.precision})
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "seq2see.server.service.worker",
                str(theirs.fileno()),
                arguments,
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env={"OMP_NUM_THREADS": str(threads), **os.environ},
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        try:
            first = json.loads(await reader.readline() or b'{"failed": "it ended before its models were loaded"}')
        except BaseException:
            process.kill()
            raise
        if "failed" in first:
            writer.close()
            raise WorkerFailedError(first["failed"])
        worker = cls(process, reader, writer)
        worker.models = first["ready"]
        return worker

    @property
    def requests(self) -> int:
        return len(self._replies)

    async def kill_if_silent(self) -> None:
        """Sends messages until the worker dies, and kills it if it does not answer them: a stopped process, say."""
        clock = asyncio.get_running_loop().time
        while not self.died.done():
            self._write({"ping": True})
            await asyncio.wait([self.died], timeout=PING_SECONDS)
            silent = clock() - self._last_message
            if silent > SILENT_SECONDS:
                log.error("worker %d has not answered for %.0f seconds: killing it", self.process.pid, silent)
                self.process.kill()
                await asyncio.wait([self.died])

    async def stream(self, message: Message) -> AsyncGenerator[Message]:
        """Yields the pieces of the answer, if any, then its result. Closing the generator cancels the request."""
        id, replies, complete = next(self._ids), asyncio.Queue[Message | None](), False
        self._replies[id] = replies
        try:
            self._write({"id": id, **message})
            while not complete:
                reply = await replies.get()
                if reply is None:
                    raise WorkerDiedError
                if "error" in reply:
                    complete = True
                    raise RequestFailedError(reply["error"], reply["kind"])
                complete = "result" in reply
                yield reply["result" if complete else "piece"]
        finally:
            del self._replies[id]
            if not complete:
                self._write({"cancel": id})

    def _write(self, message: Message) -> None:
        if self.died.done():
            raise WorkerDiedError
        self._writer.write(json.dumps(message, ensure_ascii=False).encode(errors="surrogatepass") + b"\n")

    async def _read(self) -> None:
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                self._last_message = asyncio.get_running_loop().time()
                reply = json.loads(line)
                if replies := self._replies.get(reply["id"]):
                    replies.put_nowait(reply)
        for replies in self._replies.values():
            replies.put_nowait(None)
        with suppress(ProcessLookupError):  # a process without its connection is of no use
            self.process.send_signal(signal.SIGKILL)
        self._writer.close()

    async def finish(self) -> None:
        """Waits for the running requests, then ends the process."""
        while self._replies and not self.died.done():
            await asyncio.sleep(0.05)
        self._writer.close()
        await self.process.wait()


class Supervisor:
    """Keeps the wanted number of workers running."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.models: dict[str, Message] = {}
        self.restarts = 0
        self._workers: list[WorkerProcess] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def workers(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if not worker.died.done()]

    async def start(self) -> None:
        self._workers = await self._start_all()
        self.models = self._workers[0].models

    async def _start_all(self) -> list[WorkerProcess]:
        workers = await asyncio.gather(*(WorkerProcess.start(self.options) for _ in range(self.options.count)))
        for worker in workers:
            self._spawn(self._watch(worker))
        return workers

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, worker: WorkerProcess) -> None:
        """Replaces a worker when it dies."""
        await worker.kill_if_silent()
        status = await worker.process.wait()
        if self._stopping or worker not in self._workers:
            return
        log.error("worker %d ended with status %d: starting another", worker.process.pid, status)
        self._workers.remove(worker)
        while not self._stopping:
            try:
                replacement = await WorkerProcess.start(self.options)
            except WorkerFailedError as error:
                log.error("cannot start a worker: %s", error)
                await asyncio.sleep(RESTART_SECONDS)
                continue
            self.restarts += 1
            self._workers.append(replacement)
            self._spawn(self._watch(replacement))
            return

    async def reload(self) -> None:
        """Loads the models again, from the files as they are now. If that fails, the old workers stay."""
        try:
            replacements = await self._start_all()
        except WorkerFailedError as error:
            log.error("the models were not reloaded: %s", error)
            return
        old, self._workers = self._workers, replacements
        self.models = replacements[0].models
        for worker in old:
            self._spawn(worker.finish())
        log.info("the models were reloaded")

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*(worker.finish() for worker in self._workers))

    async def stream(self, message: Message) -> AsyncGenerator[Message]:
        """Yields the answer of the least busy worker."""
        workers = self.workers
        if not workers:
            raise ApiError(503, "no worker process is ready", "try again in a few seconds", retry_after=2)
        worker = min(workers, key=lambda worker: worker.requests)
        async with aclosing(worker.stream(message)) as pieces:
            async for piece in pieces:
                yield piece

    async def call(self, message: Message) -> Message:
        """Returns the result of a request."""
        result: Message = {}
        async with aclosing(self.stream(message)) as pieces:
            async for piece in pieces:
                result = piece
        return result

    async def statistics(self) -> list[Message]:
        """Returns what the schedulers of each worker report, and its memory."""
        found = []
        for worker in self.workers:
            with suppress(ApiError):
                async with aclosing(worker.stream({"operation": "statistics"})) as replies:
                    found.append({"models": await anext(replies), "bytes": resident_memory(worker.process.pid)})
        return found


def resident_memory(pid: int) -> int:
    """Returns the resident set size of a process in bytes; 0 where /proc is missing."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
