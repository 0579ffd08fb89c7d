"""What the page has sent or traced, limited in number and size. The least recently used are removed first."""

import secrets
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize

from seq2see.inspect.explain import Explanation
from seq2see.inspect.trace import ATTENTION
from seq2see.server.explore.options import Limits
from seq2see.server.explore.responses import Trace
from seq2see.server.http.errors import ApiError


@dataclass(frozen=True, eq=False)
class StoredTrace:
    info: Trace
    explanation: Explanation
    # Derived tensors are computed and cached one at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def size(self) -> int:
        """Upper bound in bytes: all stored tensors, and the values of the one attention that is derived last."""
        derived: Counter[str] = Counter()
        for tensor in self.info.tensors:
            component, _, value = tensor.name.rpartition(".")
            if value in ATTENTION:
                derived[component] += 4 * prod(tensor.shape)
        return self.explanation.trace.stored_bytes + max(derived.values(), default=0)


class TraceStore:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._traces: OrderedDict[str, StoredTrace] = OrderedDict()
        self._lock = threading.Lock()

    @staticmethod
    def new_id() -> str:
        return secrets.token_urlsafe(12)

    def add(self, trace: StoredTrace) -> None:
        limit = self.limits.max_trace_bytes
        if trace.size > limit:
            message = f"the trace takes {trace.size:,} bytes, more than the maximum of {limit:,}"
            raise ApiError(413, message, "shorten the text", "text")
        with self._lock:
            self._traces[trace.info.id] = trace
            while len(self._traces) > self.limits.max_traces or self.size > limit:
                self._traces.popitem(last=False)

    def __getitem__(self, id: str) -> StoredTrace:
        with self._lock:
            if id not in self._traces:
                message = f'unknown trace "{id[:40]}": only the {self.limits.max_traces} most recently used are stored'
                raise ApiError(404, message, "trace the text again", "id")
            self._traces.move_to_end(id)
            return self._traces[id]

    def __len__(self) -> int:
        return len(self._traces)

    @property
    def size(self) -> int:
        return sum(trace.size for trace in self._traces.values())


class MediaStore:
    """Pictures and sounds, as files by id."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._folder = Path(mkdtemp(prefix="seq2see-"))
        finalize(self, rmtree, self._folder, ignore_errors=True)  # at the latest when the process ends
        self._sizes: OrderedDict[str, int] = OrderedDict()  # in bytes, by id
        self._lock = threading.Lock()

    def add(self, data: bytes) -> str:
        """Stores a file and returns its id; the same file gets the same id."""
        if not data:
            raise ApiError(422, "the file is empty", "choose a picture or sound", "body")
        id = sha256(data).hexdigest()[:24]
        with self._lock:
            (self._folder / id).write_bytes(data)
            self._sizes[id] = len(data)
            self._sizes.move_to_end(id)
            while sum(self._sizes.values()) > self.limits.max_media_bytes and len(self._sizes) > 1:
                oldest, _ = self._sizes.popitem(last=False)
                (self._folder / oldest).unlink()
        return id

    def path(self, id: str, location: str = "text") -> Path:
        with self._lock:
            if id not in self._sizes:
                raise ApiError(404, f'unknown picture or sound "{id[:40]}"', "choose the file again", location)
            self._sizes.move_to_end(id)
            return self._folder / id
