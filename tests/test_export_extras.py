"""Exports that need another runtime to be checked: CTranslate2, onnxruntime, llama.cpp. `make test-extras` installs them.

The checks that every export makes of itself are the tests: each compares its numbers with our own.
"""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from seq2see.course.grammar import generate_corpus
from seq2see.directory import BUNDLED, load_pipeline
from seq2see.errors import UserError
from seq2see.exchange.export import Exported, export_model
from tests.models import TINY, save, tiny_model
from tests.parity import FAMILIES, perturbed
from tests.test_export import GPT, OURS, TEXTS, require_close

pytestmark = pytest.mark.extras

LLAMA = replace(OURS["rotary language model"][0], rotary_factors=())


def export_tiny(config: Any, folder: Path, format: Any, precision: Any = "float32") -> Exported:
    model = tiny_model(TEXTS, config)
    perturbed(model.network)
    source = save(model, folder / "in")
    return export_model(load_pipeline(source), source, folder / "out", format, precision)


CTRANSLATE2 = {
    "post-norm": TINY,
    "pre-norm, separate output": replace(TINY, norm_first=True, tie_embeddings="none"),
    "RMS, gated, grouped heads, rotary": replace(
        TINY, heads=4, norm="rms", norm_first=True, activation="swiglu", key_value_heads=2, positions="rotary", bias="nowhere"
    ),
    "post-norm, rotary": replace(TINY, positions="rotary", activation="geglu"),
    "learned positions, embedding norm": replace(
        TINY, positions="learned", activation="gelu", embedding_norm=True, output_bias=True, max_positions=64
    ),
    "no positions, wide heads": replace(TINY, positions="none", activation="silu", head_width=4, bias="attention"),
    "scales": replace(TINY, scale_embeddings=False, attention_scale=0.7, logit_scale=0.5, activation="gelu-tanh"),
    "language model": GPT,
    "rotary language model": replace(LLAMA, rotary_factors=(2.0,) * 4, query_key_norm=True, output_norm=True, logit_cap=3.0),
}  # fmt: skip


@pytest.mark.parametrize("kind", CTRANSLATE2)
def test_ctranslate2_gives_our_numbers(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    require_close(export_tiny(CTRANSLATE2[kind], tmp_path, "ctranslate2"))


@pytest.mark.parametrize("family", ["Marian", "BART", "mBART", "Pegasus", "M2M100, NLLB", "GPT-2"])
def test_foreign_families_go_through_ours_to_ctranslate2(family: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    torch.manual_seed(1)
    theirs: Any = perturbed(FAMILIES[family](Random(1))).eval()
    theirs.save_pretrained(tmp_path / "in")
    require_close(export_model(load_pipeline(tmp_path / "in"), tmp_path / "in", tmp_path / "out", "ctranslate2"))


@pytest.mark.parametrize(("precision", "equal"), [("float32", 198), ("int8", 180)])
def test_ctranslate2_translates_200_sentences_as_we_do(precision: Any, equal: int, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    from tokenizers import Tokenizer

    ours, out = load_pipeline(), str(tmp_path / "out")
    export_model(ours, BUNDLED, Path(out), "ctranslate2", precision)
    sentences = [pair.source for pair in generate_corpus(1000, 1).train[:200]]
    source, target = (Tokenizer.from_file(f"{out}/{name}") for name in ("tokenizer.json", "target/tokenizer.json"))
    translator = ctranslate2.Translator(out)
    found = translator.translate_batch([source.encode(sentence).tokens for sentence in sentences], beam_size=4)
    theirs = [target.decode([target.token_to_id(token) for token in result.hypotheses[0]]) for result in found]
    expected = ours.translate_sentences(sentences, beam=4)
    assert len(sentences) == 200
    # Measured: 200 in float32 and 195 in int8; a near tie may go either way.
    assert sum(a == b for a, b in zip(theirs, expected, strict=True)) >= equal


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(TINY, positions="relative"), 'needs model.positions = "sinusoidal" (not "relative"); train'),
        (replace(TINY, attention_cap=3.0), "CTranslate2 cannot hold this model: it needs model.attention_cap = 0.0"),
        (replace(LLAMA, attention_window=3), "needs model.attention_window = 0 (not 3); train"),
        (OURS["encoder"][0], "CTranslate2 is for translators and language models, and this is an encoder"),
    ],
)
def test_ctranslate2_refuses_what_it_cannot_hold(config: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        export_tiny(config, tmp_path, "ctranslate2")
    assert message in str(error.value)
    assert [f.name for f in tmp_path.iterdir()] == ["in"]
