"""With the same weights, outputs and all attention weights equal those of Hugging Face."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from seq2see.errors import UserError
from seq2see.exchange.huggingface import from_huggingface
from seq2see.layout import Packed
from tests.parity import CASES, SOURCES, TARGETS, Case, bert, gpt2, llama, marian, padded, perturbed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_outputs_and_attention_weights_agree(case: Case) -> None:
    exact = case.compare(torch.float64)
    assert exact.outputs < 1e-9
    assert exact.weights < 1e-9
    assert case.compare(torch.float32).relative < 1e-4  # the rounding of 8 layers, which depends on the processor


@pytest.mark.parametrize("build", [marian(), gpt2(), bert(), llama()], ids=["marian", "gpt2", "bert", "llama"])
def test_a_folder_loads_the_same_model_as_the_object(build: Any, tmp_path: Path) -> None:
    theirs = perturbed(build())
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
    theirs = perturbed(bert()()).eval()
    source, mask = padded(SOURCES)
    segment_ids = torch.arange(source.shape[1]).remainder(2).expand_as(source)
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=mask, token_type_ids=segment_ids).last_hidden_state[
            mask.bool()
        ]
        got = from_huggingface(theirs).encode(Packed.from_sequences(SOURCES), segments=segment_ids[mask.bool()])
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
def test_unsupported_options_are_rejected_by_name(build: Any, field: str) -> None:
    with pytest.raises(UserError, match=field):
        from_huggingface(build())


# Keys in the config.json of published models, beyond those that the configuration classes write today.
PUBLISHED = {
    "marian": {
        "_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "bad_words_ids": [[58100]],
        "classif_dropout": 0.0, "classifier_dropout": 0.0, "max_length": 512, "normalize_before": False,
        "normalize_embedding": False, "num_beams": 6, "num_hidden_layers": 6, "static_position_embeddings": True,
    },
    "gpt2": {"n_ctx": 1024, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}},
    "bert": {
        "directionality": "bidi", "gradient_checkpointing": False, "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
        "position_embedding_type": "absolute",
    },
    "llama": {
        "is_llama_config": True, "rope_interleaved": False, "rope_scaling": None, "torch_dtype": "bfloat16",
        "quantization_config": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("build", [marian(), gpt2(), bert(), llama()], ids=PUBLISHED)
def test_every_key_of_a_configuration_is_known_or_rejected_with_its_value(build: Any, tmp_path: Path) -> None:
    build().save_pretrained(tmp_path)
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
        ({"type": "linear", "factor": 2.0}, "rope_scaling.type = 'linear' is not supported"),
        ({"rope_type": "dynamic", "factor": 2.0}, "rope_scaling.rope_type = 'dynamic' is not supported"),
        ({"type": "default", "beta_fast": 32}, "rope_scaling.beta_fast = 32 is not supported"),
    ],
)
def test_scaled_rotary_positions_of_older_configurations_are_rejected(
    scaling: dict[str, Any], message: str, tmp_path: Path
) -> None:
    llama()().save_pretrained(tmp_path)  # type: ignore[operator]
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
    with pytest.raises(UserError, match=r"cls\."):
        from_huggingface(transformers.BertForMaskedLM(config))


def test_an_unsupported_family_is_rejected() -> None:
    config = transformers.OPTConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, ffn_dim=16, num_attention_heads=2, word_embed_proj_dim=16
    )
    with pytest.raises(UserError, match='model_type = "opt"'):
        from_huggingface(transformers.OPTModel(config))


def test_broken_folders_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        from_huggingface(tmp_path)
    gpt2()().save_pretrained(tmp_path)  # type: ignore[operator]
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
