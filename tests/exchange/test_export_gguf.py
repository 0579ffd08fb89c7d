"""Export to GGUF: read back with the same tokens and numbers, or refused."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seq2see
from seq2see.config import TextConfig
from seq2see.errors import UserError
from seq2see.exchange.check import Samples
from seq2see.exchange.export import export_model
from seq2see.storage.directory import load_pipeline
from tests.exchange.test_export import GGUF, GPT, TEXTS, TOLERANCE
from tests.models import save, tiny_model
from tests.nasty import strings
from tests.parity import perturbed


@pytest.mark.parametrize("precision", ["float32", "float16", "bf16", "int8"])
@pytest.mark.parametrize("architecture", GGUF)
def test_a_gguf_file_is_read_back_with_the_same_tokens_and_numbers(
    architecture: str, precision: Any, tmp_path: Path
) -> None:
    pytest.importorskip("gguf")
    factors = tuple(1 + i / 8 for i in range(16)) if architecture == "llama" else ()
    config = replace(GGUF[architecture], width=64, feed_forward=96, rotary_factors=factors)  # whole blocks of 32
    model = tiny_model(TEXTS, config)
    perturbed(model.network)
    folder = save(model, tmp_path / "in")
    exported = export_model(load_pipeline(folder), folder, tmp_path / "out", "gguf", precision)
    assert exported.steps[0] == f"architecture {architecture}"
    again = seq2see.load(tmp_path / "out" / "model.gguf")
    for text in [*TEXTS, *strings(200)]:
        if "<" not in text:
            assert again.tokenizers[0].encode(text) == model.tokenizers[0].encode(text)
    assert Samples(again).inputs == Samples(model).inputs
    tolerance = {"float32": TOLERANCE, "float16": 0.01, "bf16": 0.2, "int8": 0.2}[precision]
    for a, b in zip(Samples(model).results(), Samples(again).results(), strict=True):
        assert float((a - b).abs().max()) < tolerance * max(1.0, float(a.abs().max()))


def test_gguf_refuses_what_llama_cpp_cannot_hold(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    for name, model, message in (
        ("translator", tiny_model(TEXTS), "llama.cpp runs language models, and this model is an encoder-decoder"),
        ("gelu", tiny_model(TEXTS, GPT), 'gpt2, needs model.activation = "gelu-tanh" (not "gelu"); train'),
        ("words", tiny_model(TEXTS, GGUF["gpt2"], TextConfig(tokenizer="word")), "--set text.tokenizer=bpe"),
    ):
        folder = save(model, tmp_path / name)
        with pytest.raises(UserError, match=re.escape(message)):
            export_model(load_pipeline(folder), folder, tmp_path / "out", "gguf")
        assert not (tmp_path / "out").exists()
