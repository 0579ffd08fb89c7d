"""The bundled model: small, accurate, and with snapshots of its training."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from demo import EXAMPLE_SENTENCES, evaluate
from grammar.corpus import fixed_pairs

import seq2see
from seq2see.api import Model, load
from seq2see.course.sample_corpus import SampleCorpus, load_corpus
from seq2see.errors import UserError
from seq2see.storage.directory import save_weights, snapshots
from seq2see.tensors.quantize import dequantize, quantize_4_bits
from tests.models import GRAMMAR_MODEL


@pytest.fixture(scope="module")
def corpus() -> SampleCorpus:
    return load_corpus()


@pytest.fixture(scope="module")
def model() -> Model:
    return seq2see.load(GRAMMAR_MODEL)


def test_the_bundled_model_is_small() -> None:
    sizes = {file: file.stat().st_size for file in GRAMMAR_MODEL.rglob("*") if file.is_file()}
    snapshots_size = sum(size for file, size in sizes.items() if file.parent.name == "snapshots")
    assert sum(sizes.values()) - snapshots_size <= 3_000_000
    assert 0 < snapshots_size <= 4_000_000


def test_it_translates_the_example_sentences(model: Model) -> None:
    references = {pair.source: pair.references for pair in fixed_pairs()}
    for english, hindi in zip(EXAMPLE_SENTENCES, model.translate(EXAMPLE_SENTENCES), strict=True):
        assert hindi in references[english]


def test_it_translates_unseen_combinations(model: Model, corpus: SampleCorpus) -> None:
    published = json.loads((GRAMMAR_MODEL / "scores.json").read_text())["built_in_corpus"]["test"]["exact_match"]
    measured = evaluate(model, corpus.test[:200])["exact_match"]
    assert published >= 95
    assert measured == pytest.approx(published, abs=3)
    assert f"{published}%" in (GRAMMAR_MODEL / "README.md").read_text(encoding="utf-8")


def test_it_is_sure_of_the_words_it_knows_and_not_of_others(model: Model, corpus: SampleCorpus) -> None:
    unseen = [
        "The president met the minister in Paris.",
        "My name is Tim.",
        "HOW ARE YOU?",
        "It rained all week in London.",
    ]
    noted = []
    for sources in ([pair.source for pair in corpus.test[:200]], unseen):
        found = zip(sources, model.hypotheses(sources), strict=True)
        noted.append(sum(bool(model.assess(source, best.confidence).note) for source, (best, *_) in found))
    assert noted[0] <= 4 and noted[1] == len(unseen)


def test_later_snapshots_assign_more_probability_to_the_translation(model: Model) -> None:
    from seq2see.data.layout import Packed

    source, target = model.tokenizers
    ids = target.encode("मुझे आइसक्रीम खाना पसंद है")
    inputs = Packed.from_sequences([[*source.encode("I like eating ice-cream"), source.end]])
    steps = snapshots(GRAMMAR_MODEL)
    assert len(steps) >= 5
    losses = []
    for step in (*steps, None):
        snapshot = load(GRAMMAR_MODEL, step=step)
        with torch.no_grad():
            logits = snapshot.network(inputs, Packed.from_sequences([[target.start, *ids]]))
        losses.append(float(torch.nn.functional.cross_entropy(logits, torch.tensor([*ids, target.end]))))
    assert losses[-1] < 0.5 < 2 < losses[0]
    assert sum(later < earlier for earlier, later in pairwise(losses)) >= len(losses) - 2
    with pytest.raises(UserError, match="no snapshot of step 3"):
        load(GRAMMAR_MODEL, step=3)


def test_4_bit_weights_are_close_and_other_tensors_stay_bf16(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = {"matrix": torch.randn(6, 128), "narrow": torch.randn(6, 60), "bias": torch.randn(128)}
    save_weights(tmp_path / "w.safetensors", quantize_4_bits(weights), None)
    from safetensors.torch import load_file

    restored = dict(dequantize(load_file(tmp_path / "w.safetensors")))
    assert restored.keys() == weights.keys()
    error = (restored["matrix"] - weights["matrix"]).square().mean() / weights["matrix"].square().mean()
    assert float(error) < 0.012  # the optimum of 16 uniform levels for a normal distribution is 0.0115
    for name in ("narrow", "bias"):
        torch.testing.assert_close(restored[name], weights[name].bfloat16().float(), rtol=0, atol=0)
    assert quantize_4_bits(weights)["matrix.four_bits"].shape == (6, 64)
