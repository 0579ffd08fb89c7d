"""What several tests of pictures need."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.formats.media import SHARES
from tests.formats.pictures import noise


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small noisy pictures of one to three bars, named from left to right."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    lines = []
    for i in range(150):
        bars = rng.choice(list(SHARES), size=rng.integers(1, 4))
        pixels = np.repeat([255 * SHARES[bar] for bar in bars], 8)[None] + rng.normal(0, 10, (8, 8 * len(bars)))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
        lines.append(f"{i}.png\t{' '.join(bars)}\n")
    (folder / "list.tsv").write_text("".join(lines))
    (folder / "train.tsv").write_text("".join(lines[30:]))
    (folder / "valid.tsv").write_text("".join(lines[:30]))
    return folder / "list.tsv"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four pictures with their texts in two lists, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for i in range(4):
        noise(tmp_path / f"{i}.png", seed=i)
    Path("train.tsv").write_text("0.png\tzero\n1.png\tone\n2.png\ttwo\n")
    Path("valid.tsv").write_text("3.png\tthree\n")
    return tmp_path
