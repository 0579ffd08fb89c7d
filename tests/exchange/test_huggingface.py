"""With the same weights, outputs and all attention weights equal those of Hugging Face."""

import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from seq2see.data.layout import Packed
from seq2see.errors import UserError
from seq2see.exchange import families
from seq2see.exchange.huggingface import from_huggingface
from seq2see.exchange.tables import tensor_table
from tests.parity import FAMILIES, SIZES, SOURCES, TARGETS, compare, padded, perturbed, scalings, small


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_and_attention_weights_agree(family: str, seed: int) -> None:
    exact = compare(FAMILIES[family], seed, torch.float64)
    assert exact.outputs < 1e-12
    assert exact.weights < 1e-12
    single = compare(FAMILIES[family], seed, torch.float32)
    assert single.relative < 1e-4  # the rounding of a few layers, which depends on the processor


@pytest.mark.parametrize("scaling", scalings(8), ids=lambda scaling: scaling["rope_type"])
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_every_rotary_scaling_agrees_under_its_newer_and_its_older_key(
    scaling: dict[str, Any], key: str, tmp_path: Path
) -> None:
    theirs = perturbed(small("LlamaForCausalLM", rope_parameters=dict(scaling))).eval()
    theirs.save_pretrained(tmp_path)  # type: ignore[operator]
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    section = config.pop("rope_parameters")
    if key == "rope_scaling":
        section["type"] = section.pop("rope_type")
        config["rope_theta"] = section.pop("rope_theta")
    file.write_text(json.dumps(config | {key: section}))
    ours = from_huggingface(tmp_path)
    with torch.no_grad():
        expected = theirs(torch.tensor([SOURCES[1]])).logits[0]
        torch.testing.assert_close(ours(Packed.from_sequences([SOURCES[1]])), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_loads_the_same_model_as_the_object(family: str, tmp_path: Path) -> None:
    theirs = perturbed(FAMILIES[family](Random(1)))
    theirs.save_pretrained(tmp_path)  # type: ignore[operator]
    from_object, from_folder = from_huggingface(theirs), from_huggingface(tmp_path)
    inputs = (
        (Packed.from_sequences(SOURCES), Packed.from_sequences(TARGETS))
        if from_object.config.shape == "encoder-decoder"
        else (Packed.from_sequences(SOURCES),)
    )
    assert from_object.config == from_folder.config
    assert torch.equal(from_object(*inputs), from_folder(*inputs))


def test_segments_of_bert_agree() -> None:
    theirs = perturbed(small("Bert")).eval()
    source, mask = padded(SOURCES)
    segment_ids = torch.arange(source.shape[1]).remainder(2).expand_as(source)
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=mask, token_type_ids=segment_ids).last_hidden_state[
            mask.bool()
        ]
        got = from_huggingface(theirs).encode(Packed.from_sequences(SOURCES), segments=segment_ids[mask.bool()])
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (("GPT2LMHead", {"scale_attn_by_inverse_layer_idx": True}), "scale_attn_by_inverse_layer_idx"),
        (("GPT2LMHead", {"activation_function": "mish"}), "activation_function"),
        (("Bert", {"is_decoder": True}), "is_decoder"),
        (("MarianMT", {"encoder_ffn_dim": 64}), "encoder_ffn_dim"),
        (("MarianMT", {"decoder_attention_heads": 2}), "decoder_attention_heads"),
        (("LlamaForCausalLM", {"hidden_act": "gelu"}), "hidden_act"),
    ],
)
def test_unsupported_options_are_rejected_by_name(model: tuple[str, dict[str, Any]], field: str) -> None:
    with pytest.raises(UserError, match=field):
        from_huggingface(small(model[0], **model[1]))


# Keys in the config.json of published models, beyond those that the configuration classes write today.
PUBLISHED = {
    "marian": {
        "_num_labels": 3,
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "bad_words_ids": [[58100]],
        "classif_dropout": 0.0,
        "classifier_dropout": 0.0,
        "max_length": 512,
        "normalize_before": False,
        "normalize_embedding": False,
        "num_beams": 6,
        "num_hidden_layers": 6,
        "static_position_embeddings": True,
    },
    "gpt2": {"n_ctx": 1024, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}},
    "bert": {
        "directionality": "bidi",
        "gradient_checkpointing": False,
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "position_embedding_type": "absolute",
    },
    "llama": {
        "is_llama_config": True,
        "rope_interleaved": False,
        "rope_scaling": None,
        "torch_dtype": "bfloat16",
        "quantization_config": None,
    },
}


@pytest.mark.parametrize("kind", SIZES)
def test_every_key_of_a_configuration_is_known_or_rejected_with_its_value(kind: str, tmp_path: Path) -> None:
    small(kind).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | PUBLISHED[config["model_type"]]))
    from_huggingface(tmp_path)
    for key, value in {"attention_multiplier": 0.5, "sliding_window": 4096, "quantization_config": {"bits": 4}}.items():
        file.write_text(json.dumps(config | {key: value}))
        with pytest.raises(UserError, match=re.escape(f"config.json: {key} = {value} is not supported")):
            from_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"type": "xpos", "factor": 2.0}, "rope_scaling.rope_type = 'xpos' is not supported"),
        ({"type": "linear"}, "config.json has no rope_scaling.factor"),
        (
            {"type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5},
            "rope_scaling.partial_rotary_factor = 0.5 is not",
        ),
        ({"type": "default", "beta_fast": 32}, "rope_scaling.beta_fast = 32 is not supported"),
    ],
)
def test_unknown_rotary_scalings_are_rejected(scaling: dict[str, Any], message: str, tmp_path: Path) -> None:
    small("LlamaForCausalLM").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    base = config.pop("rope_parameters")["rope_theta"]
    file.write_text(json.dumps(config | {"rope_theta": base, "rope_scaling": scaling}))
    with pytest.raises(UserError, match=re.escape(message)):
        from_huggingface(tmp_path)
    file.write_text(json.dumps(config | {"rope_theta": base, "rope_scaling": {"type": "default"}}))
    assert from_huggingface(tmp_path).config.rotary_base == base


def test_an_unused_tensor_is_rejected() -> None:
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
    with pytest.raises(UserError, match=r"tensor classifier\.bias"):
        from_huggingface(transformers.BertForSequenceClassification(config))


def test_an_unsupported_family_is_rejected() -> None:
    config = transformers.OPTConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, ffn_dim=16, num_attention_heads=2, word_embed_proj_dim=16
    )
    with pytest.raises(UserError, match='model_type = "opt"'):
        from_huggingface(transformers.OPTModel(config))


def test_another_family_is_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Llama's kind, with a key and a tensor of another name."""
    theirs = perturbed(small("LlamaForCausalLM")).eval()
    theirs.save_pretrained(tmp_path)  # type: ignore[operator]
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "alpaca", "depth": config.pop("num_hidden_layers")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = {
        name.replace("o_proj", "out"): tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match='model_type = "alpaca"'):
        from_huggingface(tmp_path)
    keys = {key: option for key, option in families.LLAMA.keys.items() if key != "num_hidden_layers"}
    tensors = tensor_table("decoder.blocks.*.attention.project layers.*.self_attn.out")
    alpaca = replace(
        families.LLAMA,
        name="Alpaca",
        keys={**keys, "depth": "decoder_layers"},
        tensors={**families.LLAMA.tensors, **tensors},
    )
    monkeypatch.setitem(families.FAMILIES, "alpaca", alpaca)
    with torch.no_grad():
        expected = theirs(torch.tensor([SOURCES[1]])).logits[0]
        torch.testing.assert_close(from_huggingface(tmp_path)(Packed.from_sequences([SOURCES[1]])), expected)


def test_broken_folders_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        from_huggingface(tmp_path)
    small("GPT2LMHead").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    contents = weights.read_bytes()

    weights.write_bytes(contents[: len(contents) // 2])
    with pytest.raises(UserError, match="cannot read"):
        from_huggingface(tmp_path)

    weights.unlink()
    with pytest.raises(UserError, match=r"no \.safetensors file"):
        from_huggingface(tmp_path)

    weights.write_bytes(contents)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "n_layer": 3}))
    with pytest.raises(UserError, match=r"h\.2\."):
        from_huggingface(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 7}))
    with pytest.raises(UserError, match="do not fit the configuration"):
        from_huggingface(tmp_path)
