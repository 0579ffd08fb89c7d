"""run.lock: ensures that only one process trains in a run directory, and records which one, since when, and its progress.

The lock is the operating system's, so it is released when the process is killed; the record remains.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from seq2see.config import build
from seq2see.errors import UserError
from seq2see.tensors.files import file_lock, require_regular_file

LOCK = "run.lock"
_RECORD_BYTES = 400  # always the same length, so that a new record covers the old one


@dataclass(frozen=True)
class RunStatus:
    """The process that trains, or trained last, in a run directory, and its progress."""

    pid: int = 0
    host: str = ""
    since: str = ""
    step: int = 0
    seconds: float = 0.0  # of training, over all processes that continued the run

    @classmethod
    def load(cls, out: Path) -> "RunStatus":
        """Reads the status; a missing or damaged one is empty."""
        try:
            return build(cls, json.loads(require_regular_file(out / LOCK).read_bytes()[:_RECORD_BYTES]))
        except (OSError, ValueError, AttributeError, UserError, RecursionError):
            return cls()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}" if self.pid else "another process"


class RunLock:
    """A held lock. The descriptor is None in processes other than the main one, which do not write."""

    def __init__(self, descriptor: int | None, status: RunStatus) -> None:
        self._descriptor, self._status = descriptor, status

    def update(self, step: int, seconds: float) -> None:
        self._status = replace(self._status, step=step, seconds=round(seconds, 3))
        if self._descriptor is not None:
            with suppress(OSError):  # a full disk does not affect the lock
                os.pwrite(self._descriptor, json.dumps(asdict(self._status)).ljust(_RECORD_BYTES).encode(), 0)


@contextmanager
def lock_run(out: Path, is_main: bool) -> Iterator[RunLock]:
    """Locks the run directory, in the main process only; raises a UserError that names the process that holds it."""
    if not is_main:
        yield RunLock(None, RunStatus())
        return
    with ExitStack() as stack:
        descriptor = None
        while descriptor is None:
            try:
                descriptor = stack.enter_context(file_lock(out / LOCK, wait=False))
            except BlockingIOError:
                if is_locked(out):
                    raise UserError(
                        f"{out} is in use: {RunStatus.load(out)} trains there; wait until it ends, or choose another --out"
                    ) from None
                time.sleep(0.001)  # another process is only asking whether it is locked
        earlier = RunStatus.load(out)
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        lock = RunLock(descriptor, replace(earlier, pid=os.getpid(), host=socket.gethostname(), since=now))
        lock.update(earlier.step, earlier.seconds)
        yield lock


def is_locked(out: Path) -> bool:
    """Returns whether a process is training in the directory; asking with a shared lock is not training."""
    try:
        if (out / LOCK).is_file():
            with file_lock(out / LOCK, wait=False, shared=True):
                pass
    except BlockingIOError:
        return True
    except OSError:  # a file that this user may not read
        pass
    return False
