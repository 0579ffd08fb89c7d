"""Options of the server. Imports no torch, so that the page is there at once."""

import itertools
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seq2see.server.http.security import Access, BodyLimit, BodyPool, Scope

UPLOAD_PATH = "/api/media"


@dataclass(frozen=True)
class Limits:
    """Limits of the server; those of a single request are in its schema."""

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
    max_held_bytes: int = 64 << 20  # of all request bodies at a time
    max_media_bytes: int = 256 << 20  # of all pictures and sounds; the least recently used is removed
    max_snapshots: int = 3  # loaded models from earlier training steps

    def access(self, local_only: bool) -> Access:
        pool = BodyPool(self.max_held_bytes)

        def body_limit(scope: Scope) -> BodyLimit:
            return BodyLimit(self.max_upload_bytes if scope["path"] == UPLOAD_PATH else self.max_body_bytes, pool)

        return Access(local_only, self.timeout, body_limit)


@dataclass(frozen=True)
class TrainingOptions:
    runs: Path = Path("runs")  # where the page's trainings go
    data: Path | None = None  # whose files can be trained on
    follow: Path | None = None  # a run of another process, to watch
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def unused_name(base: str, taken: Container[str]) -> str:
    """Returns the name, with a number appended if it is taken."""
    names = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)
