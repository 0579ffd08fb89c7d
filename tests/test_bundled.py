"""The model that comes with seq2see: small, right, and with its training to replay."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import seq2see
from seq2see.api import Model, load
from seq2see.course.grammar import Sample, sample
from seq2see.demo import NOTES, judged
from seq2see.directory import BUNDLED, save_weights, snapshots
from seq2see.errors import UserError
from seq2see.quantize import compact, expand


@pytest.fixture(scope="module")
def corpus() -> Sample:
    return sample()


@pytest.fixture(scope="module")
def model() -> Model:
    return seq2see.load()


def test_it_is_small() -> None:
    kept = {file: file.stat().st_size for file in BUNDLED.rglob("*") if file.is_file()}
    of_training = sum(size for file, size in kept.items() if file.parent.name == "snapshots")
    assert sum(kept.values()) - of_training <= 3_000_000
    assert 0 < of_training <= 4_000_000


def test_it_translates_the_notes_sentences(model: Model, corpus: Sample) -> None:
    right = {pair.source: pair.references for pair in corpus.train}
    for english, hindi in zip(NOTES, model.translate(NOTES), strict=True):
        assert hindi in right[english]


def test_it_translates_combinations_that_it_never_saw(model: Model, corpus: Sample) -> None:
    told = json.loads((BUNDLED / "scores.json").read_text())["built_in_corpus"]["test"]["exact"]
    found = judged(model, corpus.test[:200])["exact"]
    assert told >= 95
    assert found == pytest.approx(told, abs=3)
    assert f"{told}%" in (BUNDLED / "README.md").read_text(encoding="utf-8")


def test_its_training_can_be_replayed(model: Model) -> None:
    """The later the snapshot, the better it likes the right translation."""
    from seq2see.layout import Packed

    source, target = model.tokenizers
    words = target.encode("मुझे आइसक्रीम खाना पसंद है")
    read = Packed.of([[*source.encode("I like eating ice-cream"), source.end]])
    steps = snapshots()
    assert len(steps) >= 5
    losses = []
    for step in (*steps, None):
        then = load(step=step)
        with torch.no_grad():
            logits = then.network(read, Packed.of([[target.start, *words]]))
        losses.append(float(torch.nn.functional.cross_entropy(logits, torch.tensor([*words, target.end]))))
    assert losses[-1] < 0.5 < 2 < losses[0]
    assert sum(later < earlier for earlier, later in pairwise(losses)) >= len(losses) - 2
    with pytest.raises(UserError, match="no snapshot of step 3"):
        load(step=3)


def test_four_bits_are_near_and_other_tensors_stay(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = {"matrix": torch.randn(6, 128), "narrow": torch.randn(6, 60), "bias": torch.randn(128)}
    save_weights(tmp_path / "w.safetensors", compact(weights), None)
    from safetensors.torch import load_file

    back = expand(load_file(tmp_path / "w.safetensors"))
    assert back.keys() == weights.keys()
    error = (back["matrix"] - weights["matrix"]).square().mean() / weights["matrix"].square().mean()
    assert float(error) < 0.012  # 16 steps over a normal distribution: at best 0.0115
    for name in ("narrow", "bias"):
        torch.testing.assert_close(back[name], weights[name].bfloat16().float(), rtol=0, atol=0)
    assert compact(weights)["matrix.four_bits"].shape == (6, 64)
