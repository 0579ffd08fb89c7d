"""A pool of worker threads off the event loop, with a short queue and a deadline for every request.

Requests that do not fit are rejected at once with a Retry-After header, so that latency and memory stay bounded under load.
A thread cannot be stopped from outside; the model checks the deadline at every decoding step instead.
"""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from seq2see.server.http.errors import ApiError

T = TypeVar("T")


class Deadline:
    """The time limit of a request. `check` raises when it has passed or when the request was cancelled."""

    def __init__(self, seconds: float) -> None:
        self._start, self.seconds, self.cancelled = time.monotonic(), seconds, False

    @property
    def expired(self) -> bool:
        return time.monotonic() > self._start + self.seconds

    def check(self) -> None:
        if self.cancelled:
            raise ApiError(503, "the request was cancelled because the server is stopping", "restart it", retry_after=1)
        if self.expired:
            hint = "shorten the text, or use fewer tokens or a smaller beam"
            raise ApiError(504, f"not finished within {self.seconds:g} seconds", hint)


@dataclass(frozen=True)
class _Job:
    work: Callable[[Deadline], Iterator[Any]]
    deadline: Deadline
    deliver: Callable[[Any, BaseException | None, bool], None]  # (item, error, whether it is the last)


class WorkerPool:
    def __init__(self, workers: int, queue_size: int, timeout: float) -> None:
        self._timeout = timeout
        self.jobs: queue.Queue[_Job] = queue.Queue(queue_size)
        self.running: set[Deadline] = set()
        self._stopping = False
        # Daemon threads, so that Ctrl-C does not wait for them.
        for number in range(workers):
            threading.Thread(target=self._run, name=f"worker {number}", daemon=True).start()

    async def run(self, work: Callable[[Deadline], T]) -> T:
        """Runs `work` in a worker thread and returns its result."""
        async with aclosing(self.stream(lambda deadline: iter([work(deadline)]))) as results:
            return await anext(results)

    async def stream(self, work: Callable[[Deadline], Iterator[T]]) -> AsyncGenerator[T]:
        """Yields the items of `work` as they are produced. Closing the generator stops the worker at its next check."""
        loop, items = asyncio.get_running_loop(), asyncio.Queue[tuple[Any, BaseException | None, bool]]()

        def deliver(*item: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed once the server has stopped
                loop.call_soon_threadsafe(items.put_nowait, item)

        deadline = Deadline(self._timeout)
        try:
            self.jobs.put_nowait(_Job(work, deadline, deliver))
        except queue.Full:
            message = f"{self.jobs.maxsize} requests are already waiting"
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
        for deadline in list(self.running):
            deadline.cancelled = True

    def _run(self) -> None:
        while True:
            job = self.jobs.get()
            if job.deadline.cancelled:
                continue
            self.running.add(job.deadline)
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
                self.running.discard(job.deadline)
                del job  # an idle worker holds no references to its last request


async def begin(stream: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Returns a stream when its first item is there, so that a request that is refused gets an error status."""
    first = await anext(stream)

    async def whole() -> AsyncGenerator[T]:
        async with aclosing(stream):
            yield first
            async for item in stream:
                yield item

    return whole()


async def until_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`, or cancels it when the client goes away."""
    working, disconnected = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ApiError(499, "the client disconnected", "send the request again")
        return working.result()
    finally:
        working.cancel()
        disconnected.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
