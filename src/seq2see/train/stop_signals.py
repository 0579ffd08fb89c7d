"""Ctrl-C, SIGTERM (from schedulers) and SIGHUP (a closed terminal) stop training without losing progress; a second signal
stops it immediately.

While the state of the training changes, a signal is only recorded, and the training saves and stops at the end of the step.
Where there is nothing to save (reading data, scoring), it interrupts immediately.
"""

import _thread
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any, Self


def stop_when_closed(stream: IO[str]) -> None:
    """Acts as Ctrl-C once the stream ends: the process that started this one asks it to stop, or is gone."""

    def wait() -> None:
        stream.read()
        _thread.interrupt_main()

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job of a shell
    threading.Thread(target=wait, daemon=True).start()


SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class StopSignals:
    def __init__(self, processes: int) -> None:
        # Slurm signals every process and torchrun forwards the signal, so one signal may arrive twice.
        self._grace_seconds = 2.0 if processes > 1 else 0.0
        self._first_time = 0.0
        self.repeated = False
        self._interrupted = False
        self._deferred = False
        self._previous: dict[int, Any] = {}

    @property
    def received(self) -> bool:
        return bool(self._first_time)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python handles signals only there
            for number in SIGNALS:
                ignored = signal.getsignal(number) is signal.SIG_IGN  # by nohup
                if not (ignored and number == getattr(signal, "SIGHUP", None)):
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        first = not self._first_time
        self._first_time = self._first_time or now
        self.repeated |= now - self._first_time > self._grace_seconds
        if self.repeated or (first and not self._deferred):
            self._interrupted = True
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside the block, the first signal is only recorded."""
        previous, self._deferred = self._deferred, True
        try:
            yield
        finally:
            self._deferred = previous

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Inside the block, the first signal, or one already recorded, raises KeyboardInterrupt."""
        previous, self._deferred = self._deferred, False
        try:
            if self.received:
                raise KeyboardInterrupt
            yield
        except Exception:
            if self._interrupted:  # Python turns an interrupted import into a RuntimeError
                raise KeyboardInterrupt from None
            raise
        finally:
            self._deferred = previous
