"""Stored traces, limited in number and size. The least recently used trace is evicted first."""

import secrets
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from seq2see.inspect.explain import Explanation
from seq2see.inspect.trace import ATTENTION
from seq2see.server.explore.responses import Trace
from seq2see.server.explore.workers import ApiError, Limits


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
