"""The code in the documents runs, and says what the documents say."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


def blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_quickstart_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    looking, reaching, _huggingface = blocks("docs/quickstart.md")
    exec(looking + reaching, names)
    t, logits = names["t"], names["logits"]
    assert isinstance(logits, torch.Tensor)
    assert logits.shape == (5, 8000)
    assert t["decoder.3.cross.weights", 0].shape == (4, 2, 3)  # type: ignore[index]
    assert t.quantity("decoder.3.cross.weights").formula in looking  # type: ignore[attr-defined]


def test_the_readme_runs() -> None:
    names: dict[str, object] = {}
    _training, looking = blocks("README.md")
    exec(looking, names)
    assert names["t"]["decoder.3.cross.weights", 0].shape == (8, 2, 3)  # type: ignore[index]
