"""CUDA graphs: work of a static shape that the host launches with one call."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import torch

T = TypeVar("T")
MAX_GRAPHS = 256  # that share a pool; then the least recently used gives way


class CudaGraphs:
    """Functions that run eagerly the first time, which compiles them, are captured the second time, and then replayed.

    They share their memory, so they must run one after another, and a replay of any key may overwrite the results of all.
    """

    def __init__(self, stream: torch.cuda.Stream | None = None) -> None:
        self.stream, self.pool = stream, torch.cuda.graph_pool_handle()
        self.captured: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any] | None] = {}  # None: was run once

    def run(self, key: Hashable, function: Callable[[], T]) -> T:
        """Runs a function; calls with equal keys do the same work on the same memory."""
        if key not in self.captured:
            if len(self.captured) == MAX_GRAPHS:
                del self.captured[next(iter(self.captured))]
            self.captured[key] = None
            return function()
        # Moved to the end: the first is the least recently used.
        self.captured[key] = graph, result = self.captured.pop(key) or self._capture(function)
        graph.replay()
        return cast(T, result)

    def _capture(self, function: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        # cuBLAS has one workspace per stream, which lies in the memory of whoever used the stream first, and which anybody may
        # free: torch.compile does. A graph would go on writing there. So each capture allocates one of its own in the pool.
        torch._C._cuda_clearCublasWorkspaces()
        graph = torch.cuda.CUDAGraph()
        try:
            # thread_local, because other threads use the device during the capture: they pin batches and copy checkpoints.
            with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
                result = function()
        finally:
            torch._C._cuda_clearCublasWorkspaces()
        return graph, result
