"""The bookkeeping of CUDA graphs, without a GPU; tests/gpu captures real ones."""

from unittest.mock import MagicMock

import pytest
import torch

from seq2see.tensors import cuda_graphs
from seq2see.tensors.cuda_graphs import CudaGraphs


def test_the_least_recently_used_graph_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS", 2)
    monkeypatch.setattr(CudaGraphs, "_capture", lambda self, function: (MagicMock(), function()))
    graphs = CudaGraphs()
    assert [graphs.run(key, lambda key=key: key) for key in "aabbac"] == list("aabbac")  # type: ignore[misc]
    assert list(graphs.captured) == ["a", "c"]
