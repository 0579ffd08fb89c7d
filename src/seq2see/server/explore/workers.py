"""A pool of worker threads off the event loop, with a short queue and a deadline for every request.

Requests that do not fit are rejected at once with a Retry-After header, so that latency and memory stay bounded under load.
A thread cannot be stopped from outside; the model checks the deadline at every decoding step instead.
"""

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Limits of the server. The limits of a single request are in its schema."""

    workers: int = 2  # threads
    queue_size: int = 64  # waiting requests
    timeout: float = 30.0  # seconds to send a request, and from its arrival to its answer
    training_timeout: float = 180.0  # seconds for a lesson that trains; only one trains at a time
    max_tokens: int = 1024  # per text
    max_media_tokens: int = 1500  # per picture or sound: the 30 seconds of a Whisper
    max_traces: int = 64  # stored traces; the least recently used is evicted
    max_trace_bytes: int = 768 << 20  # of all stored traces; one of a sound in Whisper base takes 620 MiB
    max_response_bytes: int = 64 << 20  # per tensor
    max_body_bytes: int = 256 << 10
    max_upload_bytes: int = 16 << 20  # of a picture or sound
    max_media_bytes: int = 256 << 20  # of all pictures and sounds; the least recently used is removed
    max_snapshots: int = 3  # loaded models from earlier training steps


class ApiError(HTTPException):
    """An error response: what is wrong, which part of the request caused it, and what to do about it."""

    def __init__(
        self, status: int, message: str, hint: str, location: str = "", retry_after: int | None = None
    ) -> None:
        super().__init__(status, message)
        self.status, self.message, self.hint = status, message, hint
        self.location, self.retry_after = location, retry_after


def suggest(word: str, known: Iterable[str], listing: str) -> str:
    """Returns a hint: the closest known word, or else the endpoint that lists them all, since there may be hundreds."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"see {listing} for the known names"


def unused_name(base: str, taken: Container[str]) -> str:
    """Returns the name, with a number appended if it is taken."""
    names = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


class Deadline:
    """The time limit of a request. `check` raises when it has passed or when the request was cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end, self.cancelled = seconds, time.monotonic() + seconds, False

    @property
    def expired(self) -> bool:
        return time.monotonic() > self.end

    def check(self) -> None:
        if self.cancelled:
            raise ApiError(503, "the request was cancelled because the server is stopping", "restart it", retry_after=1)
        if self.expired:
            raise ApiError(
                504, f"not finished within {self.seconds:g} seconds", "shorten the text, or use fewer tokens or a smaller beam"
            )  # fmt: skip


@dataclass(frozen=True)
class _Job:
    work: Callable[[Deadline], Iterator[Any]]
    deadline: Deadline
    deliver: Callable[[Any, BaseException | None, bool], None]  # (item, error, whether it is the last)


class WorkerPool:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._jobs: queue.Queue[_Job] = queue.Queue(limits.queue_size)
        self._running: set[Deadline] = set()
        self._stopping = False
        # Daemon threads, so that Ctrl-C does not wait for them.
        for number in range(limits.workers):
            threading.Thread(target=self._run, name=f"worker {number}", daemon=True).start()

    async def run(self, work: Callable[[Deadline], T], timeout: float | None = None) -> T:
        """Runs `work` in a worker thread and returns its result."""
        async with aclosing(self.stream(lambda deadline: iter([work(deadline)]), timeout)) as results:
            return await anext(results)

    async def stream(self, work: Callable[[Deadline], Iterator[T]], timeout: float | None = None) -> AsyncGenerator[T]:
        """Yields the items of `work` as they are produced. Closing the generator stops the worker at its next check."""
        loop, items = asyncio.get_running_loop(), asyncio.Queue[tuple[Any, BaseException | None, bool]]()

        def deliver(*item: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed once the server has stopped
                loop.call_soon_threadsafe(items.put_nowait, item)

        deadline = Deadline(timeout or self.limits.timeout)
        try:
            self._jobs.put_nowait(_Job(work, deadline, deliver))
        except queue.Full:
            message = f"{self.limits.queue_size} requests are already waiting"
            raise ApiError(503, message, "try again in a second", retry_after=1) from None
        try:
            while True:
                item, error, last = await items.get()
                if error is not None:
                    raise error
                if last:
                    return
                await asyncio.sleep(0)  # if the client has gone, the server notices before it sends many waiting items
                yield item
        finally:
            deadline.cancelled = True

    def stop(self) -> None:
        """Rejects waiting requests and stops running ones at their next check."""
        self._stopping = True
        for deadline in list(self._running):
            deadline.cancelled = True

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job.deadline.cancelled:
                continue
            self._running.add(job.deadline)
            try:
                if self._stopping:
                    job.deadline.cancelled = True
                    job.deadline.check()
                if job.deadline.expired:
                    message = f"waited {job.deadline.seconds:g} seconds in the queue"
                    raise ApiError(503, message, "try again in a second", retry_after=1)
                for item in job.work(job.deadline):
                    job.deliver(item, None, False)
                job.deliver(None, None, True)
            except BaseException as error:  # fails this request only; the worker continues
                job.deliver(None, error, True)
            finally:
                self._running.discard(job.deadline)
                del job  # an idle worker holds no references to its last request
