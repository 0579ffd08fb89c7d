"""With the same weights, our numbers are Hugging Face's: outputs, and every attention weight of every head."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from seq2see.errors import UserError
from seq2see.exchange.huggingface import from_huggingface
from seq2see.layout import Packed
from tests.parity import CASES, SOURCES, TARGETS, Case, bert, gpt2, llama, marian, padded, shaken


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_outputs_and_attention_weights_agree(case: Case) -> None:
    exact = case.compare(torch.float64)
    assert exact.outputs < 1e-9
    assert exact.weights < 1e-9
    assert case.compare(torch.float32).relative < 1e-5


@pytest.mark.parametrize("build", [marian(), gpt2(), bert(), llama()], ids=["marian", "gpt2", "bert", "llama"])
def test_a_folder_reads_as_the_model_itself(build: Any, tmp_path: Path) -> None:
    theirs = shaken(build())
    theirs.save_pretrained(tmp_path)  # type: ignore[operator]
    one, other = from_huggingface(theirs), from_huggingface(tmp_path)
    inputs = (
        (Packed.of(SOURCES), Packed.of(TARGETS)) if one.config.shape == "encoder-decoder" else (Packed.of(SOURCES),)
    )
    assert one.config == other.config
    assert torch.equal(one(*inputs), other(*inputs))


def test_segments_of_bert_agree() -> None:
    theirs = shaken(bert()()).eval()
    source, mask = padded(SOURCES)
    kinds = torch.arange(source.shape[1]).remainder(2).expand_as(source)
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=mask, token_type_ids=kinds).last_hidden_state[mask.bool()]
        got = from_huggingface(theirs).encode(Packed.of(SOURCES), segments=kinds[mask.bool()])
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (gpt2(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx"),
        (gpt2(activation_function="mish"), "activation_function"),
        (bert(is_decoder=True), "is_decoder"),
        (marian(encoder_ffn_dim=64), "encoder_ffn_dim"),
        (marian(decoder_attention_heads=2), "decoder_attention_heads"),
        (llama(hidden_act="gelu"), "hidden_act"),
        (
            llama(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}),
            "rope_type",
        ),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(build: Any, field: str) -> None:
    with pytest.raises(UserError, match=field):
        from_huggingface(build())


def test_a_tensor_without_a_place_is_refused() -> None:
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
    with pytest.raises(UserError, match=r"cls\."):
        from_huggingface(transformers.BertForMaskedLM(config))


def test_another_family_is_refused() -> None:
    config = transformers.OPTConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, ffn_dim=16, num_attention_heads=2, word_embed_proj_dim=16
    )
    with pytest.raises(UserError, match='model_type = "opt"'):
        from_huggingface(transformers.OPTModel(config))


def test_broken_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        from_huggingface(tmp_path)
    gpt2()().save_pretrained(tmp_path)  # type: ignore[operator]
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()

    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot read"):
        from_huggingface(tmp_path)

    weights.unlink()
    with pytest.raises(UserError, match=r"no \.safetensors file"):
        from_huggingface(tmp_path)

    weights.write_bytes(whole)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "n_layer": 3}))
    with pytest.raises(UserError, match=r"h\.2\."):
        from_huggingface(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 7}))
    with pytest.raises(UserError, match="do not fit"):
        from_huggingface(tmp_path)
