"""The code in the README and the quickstart runs and gives the documented results."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


def python_blocks(document: str) -> list[str]:
    """Returns the Python code blocks of a Markdown file."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)


def test_code_in_the_quickstart_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    tracing, intervening, _huggingface = python_blocks("docs/quickstart.md")
    exec(tracing + intervening, names)
    t, logits = names["t"], names["logits"]
    assert isinstance(logits, torch.Tensor)
    assert logits.shape == (5, 8000)
    assert t["decoder.3.cross.weights", 0].shape == (4, 2, 3)  # type: ignore[index]
    assert t.quantity("decoder.3.cross.weights").formula in tracing  # type: ignore[attr-defined]


def test_code_in_the_readme_runs() -> None:
    names: dict[str, object] = {}
    _training, tracing = python_blocks("README.md")
    exec(tracing, names)
    assert names["t"]["decoder.3.cross.weights", 0].shape == (8, 2, 3)  # type: ignore[index]
