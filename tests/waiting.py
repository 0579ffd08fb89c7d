"""Waiting for something that another process or thread does. Only a hang reaches the limit, never a slow machine."""

import time
from collections.abc import Callable

HANG = 600.0  # seconds


def wait_until(condition: Callable[[], object], interval: float = 0.01) -> None:
    deadline = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < deadline, "the condition has not become true"
        time.sleep(interval)
