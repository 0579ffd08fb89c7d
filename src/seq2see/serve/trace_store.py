"""Traces that were asked for and may be asked about: a bounded number of bounded size; the longest unused makes room."""

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from seq2see.inspect.explain import Explanation
from seq2see.serve.responses import Manifest
from seq2see.serve.workers import Limits, Refusal


@dataclass(frozen=True, eq=False)
class Kept:
    manifest: Manifest
    explanation: Explanation
    lock: threading.Lock = field(default_factory=threading.Lock)  # a trace derives one thing at a time

    @cached_property
    def size(self) -> int:
        """Bytes of what it holds and of all that it can derive, which is more than it ever takes."""
        return 4 * sum(prod(tensor.shape) for tensor in self.manifest.tensors)


class Traces:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    @staticmethod
    def new_id() -> str:
        return secrets.token_urlsafe(12)

    def add(self, kept: Kept) -> None:
        if kept.size > self.limits.trace_bytes:
            raise Refusal(
                413, f"a trace of {kept.size:,} bytes, where {self.limits.trace_bytes:,} are the most", "shorten the text",
                "text",
            )  # fmt: skip
        with self._lock:
            self._kept[kept.manifest.id] = kept
            while len(self._kept) > self.limits.traces or self.size > self.limits.trace_bytes:
                self._kept.popitem(last=False)

    def __getitem__(self, id: str) -> Kept:
        with self._lock:
            if id not in self._kept:
                raise Refusal(
                    404, f'no trace "{id[:40]}" is kept: the last {self.limits.traces} used are', "trace the text again", "id"
                )  # fmt: skip
            self._kept.move_to_end(id)
            return self._kept[id]

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self._kept.values())
