"""Computation off the event loop: a few threads, a short queue before them, and a clock on every request.

What does not fit is refused at once, with the time after which to try again, so that a server under load stays as fast as
it is and no bigger. A thread cannot be stopped from outside; the model looks at the clock at every step instead.
"""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """What one server gives at most. Those of a single request are in its schema."""

    threads: int = 2  # that compute
    waiting: int = 64  # requests before them; the next one is refused
    seconds: float = 30.0  # of a request, from its arrival
    training_seconds: float = 180.0  # of a lesson that trains; one at a time does
    tokens: int = 1024  # of a text, of either side
    traces: int = 64  # that are kept; the one that nobody asked for longest makes room
    trace_bytes: int = 512 << 20  # of them all
    answer_bytes: int = 64 << 20  # of one tensor
    body_bytes: int = 256 << 10
    snapshots: int = 3  # models at earlier steps that stay loaded


class Refusal(HTTPException):
    """An answer other than the one hoped for: what, where, what to do."""

    def __init__(self, status: int, what: str, remedy: str, where: str = "", retry: int | None = None) -> None:
        super().__init__(status, what)
        self.status, self.what, self.remedy, self.where, self.retry = status, what, remedy, where, retry


def near(word: str, known: Iterable[str], listed: str) -> str:
    """A remedy that names the nearest known word, or else where they are listed, for there may be hundreds."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"{listed} lists what there is"


class Clock:
    """The time that a request has left. `check` raises when it is over, or when nobody waits for the answer any more."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end, self.stopped = seconds, time.monotonic() + seconds, False

    @property
    def over(self) -> bool:
        return time.monotonic() > self.end

    def check(self) -> None:
        if self.stopped:
            raise Refusal(503, "the request was given up, for the server ends", "start it again", retry=1)
        if self.over:
            raise Refusal(
                504, f"not done within {self.seconds:g} seconds", "shorten the text, or ask for fewer tokens or a narrower beam"
            )  # fmt: skip


@dataclass(frozen=True)
class _Job:
    work: Callable[[Clock], Iterator[Any]]
    clock: Clock
    hand_over: Callable[[Any, BaseException | None, bool], None]  # (an item, what went wrong, whether this is the end)


class Workers:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._jobs: queue.Queue[_Job] = queue.Queue(limits.waiting)
        self._clocks: set[Clock] = set()  # of the requests that are being computed
        self._ending = False
        # Daemons, so that Ctrl-C waits for none of them.
        for number in range(limits.threads):
            threading.Thread(target=self._run, name=f"worker {number}", daemon=True).start()

    async def do(self, work: Callable[[Clock], T], seconds: float | None = None) -> T:
        """What `work` returns, computed by a worker."""
        async with aclosing(self.stream(lambda clock: iter([work(clock)]), seconds)) as answers:
            return await anext(answers)

    async def stream(self, work: Callable[[Clock], Iterator[T]], seconds: float | None = None) -> AsyncGenerator[T]:
        """What `work` yields, as it comes. Leaving early stops the worker at its next look at the clock."""
        loop, items = asyncio.get_running_loop(), asyncio.Queue[tuple[Any, BaseException | None, bool]]()

        def hand_over(*item: Any) -> None:
            with suppress(RuntimeError):  # the loop may be closed: the server has ended
                loop.call_soon_threadsafe(items.put_nowait, item)

        clock = Clock(seconds or self.limits.seconds)
        try:
            self._jobs.put_nowait(_Job(work, clock, hand_over))
        except queue.Full:
            raise Refusal(
                503, f"{self.limits.waiting} requests are waiting already", "try again in a second", retry=1
            ) from None
        try:
            while True:
                item, error, last = await items.get()
                if error is not None:
                    raise error
                if last:
                    return
                yield item
        finally:
            clock.stopped = True

    def stop(self) -> None:
        """The server ends: what waits is refused, and what is being computed ends at its next look at the clock."""
        self._ending = True
        for clock in list(self._clocks):
            clock.stopped = True

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job.clock.stopped:
                continue
            self._clocks.add(job.clock)
            try:
                if self._ending:
                    job.clock.stopped = True
                    job.clock.check()
                if job.clock.over:
                    waited = f"waited {job.clock.seconds:g} seconds for its turn"
                    raise Refusal(503, waited, "try again in a second", retry=1)
                for item in job.work(job.clock):
                    job.hand_over(item, None, False)
                job.hand_over(None, None, True)
            except BaseException as error:  # whatever it was, it is this request's alone, and the worker lives on
                job.hand_over(None, error, True)
            finally:
                self._clocks.discard(job.clock)
                del job  # an idle worker keeps nothing of what it did
