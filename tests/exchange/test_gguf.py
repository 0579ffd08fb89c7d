"""GGUF files open with the weights, the tokenizer and the template that they hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seq2see
from seq2see.data.layout import Packed
from seq2see.errors import UserError
from seq2see.exchange.gguf_file import QUANTISATIONS
from seq2see.exchange.huggingface import from_huggingface
from tests.damage import rewrite_gguf
from tests.foreign_models import CHAT, byte_level, decoder, llama_bpe
from tests.nasty import strings

gguf = pytest.importorskip("gguf")

IDS = [5, 9, 2, 14, 33, 60, 71, 8, 4]
SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
    "vocab_size": 500,
}
ROPE = {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's permutation of queries and keys."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def write(path: Path, architecture: str, model: Any, tokenizer: Any, kind: str = "F32", **extra: Any) -> Path:
    """Writes a Hugging Face model the way that llama.cpp's converter does."""
    writer = gguf.GGUFWriter(path, architecture)
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if architecture == "gpt2":
        writer.add_feed_forward_length(4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(config.head_dim if hasattr(config, "head_dim") else config.hidden_size // 4)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(extra.pop("base", 500.0))
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    _write_tokenizer(writer, tokenizer)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    for theirs, weight in state.items():
        name = _tensor_name(theirs, architecture)
        if name is None or (name == "output.weight" and config.tie_word_embeddings):
            continue
        if architecture == "llama" and "attn_q." in name:
            weight = interleave(weight, config.num_attention_heads)
        if architecture == "llama" and "attn_k." in name:
            weight = interleave(weight, config.num_key_value_heads)
        if architecture == "gemma3" and "norm" in name:
            weight = weight + 1
        if architecture == "gpt2" and weight.ndim == 2 and "embd" not in name and name != "output.weight":
            weight = weight.T
        quantisation = gguf.GGMLQuantizationType[kind if weight.ndim == 2 else "F32"]
        data = gguf.quants.quantize(np.ascontiguousarray(weight), quantisation)
        writer.add_tensor(name, data, raw_dtype=quantisation)
    if "divisors" in extra:
        writer.add_tensor("rope_freqs.weight", np.array(extra["divisors"], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer: Any, tokenizer: Any) -> None:
    import json

    table = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(id) for id in range(size)]
    special = {token["content"] for token in table["added_tokens"]}
    bytes_ = [token.startswith("<0x") for token in tokens]
    types = [3 if token in special else 6 if byte else 1 for token, byte in zip(tokens, bytes_, strict=True)]
    if table["decoder"]["type"] == "ByteLevel":
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2" if table["normalizer"] else "gpt-2")
        writer.add_token_merges([" ".join(pair) for pair in table["model"]["merges"]])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(False)
    else:
        writer.add_tokenizer_model("llama")
        rank = {left + right: -i for i, (left, right) in reversed(list(enumerate(table["model"]["merges"])))}
        writer.add_token_scores([float(rank.get(token, -1e4)) for token in tokens])
        types[0] = 2
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_chat_template(CHAT)


def _tensor_name(theirs: str, architecture: str) -> str | None:
    kinds = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "gemma3": "GEMMA3", "gpt2": "GPT2"}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kinds[architecture]], 8)
    return names.get_name(theirs, try_suffixes=(".weight", ".bias"))


def _check(path: Path, model: Any, tolerance: float = 1e-5) -> Any:
    ours = seq2see.load(path)
    reference = from_huggingface(model)
    assert ours.config.model.norm_epsilon == reference.config.norm_epsilon  # 1e-6, not what float32 makes of it
    with torch.no_grad():
        found, expected = (net(Packed.from_sequences([IDS])) for net in (ours.network, reference))
    assert float((found[:, : expected.shape[1]] - expected).abs().max()) < tolerance * float(expected.abs().max())
    return ours


@pytest.mark.parametrize(
    ("architecture", "kind", "options"),
    [
        ("llama", "LlamaForCausalLM", {**ROPE, "tie_word_embeddings": False}),
        ("qwen2", "Qwen2ForCausalLM", {**ROPE, "tie_word_embeddings": True}),
        ("qwen3", "Qwen3ForCausalLM", {**ROPE, "tie_word_embeddings": True}),
        (
            "gemma3",
            "Gemma3ForCausalLM",
            {
                "num_hidden_layers": 7,
                "sliding_window": 3,
                "query_pre_attn_scalar": 16,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 500.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            },
        ),
    ],
)
def test_every_architecture_gives_the_numbers_of_the_original(
    architecture: str, kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    tokenizer = llama_bpe() if architecture in ("llama", "gemma3") else byte_level()
    sizes = dict(SIZES, vocab_size=max(SIZES["vocab_size"], tokenizer.get_vocab_size()))
    if kind == "Qwen2ForCausalLM":
        del sizes["head_dim"]
    model = decoder(kind, **{**sizes, **options})
    path = write(tmp_path / "model.gguf", architecture, model, tokenizer)
    ours = _check(path, model)
    assert ours.chat_template.render([("user", "hello")]).endswith("<|im_start|>assistant\n")
    assert isinstance(ours.generate("The model", max_new_tokens=3)[0], str)


def test_gpt2_gives_the_numbers_of_the_original(tmp_path: Path) -> None:
    from tests.parity import perturbed, small

    model = perturbed(small("GPT2LMHead", vocab_size=430, n_embd=64)).eval()
    _check(write(tmp_path / "model.gguf", "gpt2", model, byte_level()), model)


def test_divisors_of_the_rotary_frequencies_are_taken(tmp_path: Path) -> None:
    divisors = [1.0, 1.5, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]
    rope = {
        "rope_type": "longrope",
        "rope_theta": 500.0,
        "short_factor": divisors,
        "long_factor": divisors,
        "factor": 1.0,
        "original_max_position_embeddings": 64,
    }
    model = decoder("LlamaForCausalLM", **dict(SIZES, vocab_size=520), rope_parameters=rope)
    _check(write(tmp_path / "model.gguf", "llama", model, llama_bpe(), divisors=divisors), model)


@pytest.mark.parametrize("kind", [kind for kind in QUANTISATIONS if not kind.endswith("_K")])
def test_quantised_weights_are_close_to_the_original(kind: str, tmp_path: Path) -> None:
    model = decoder("Qwen3ForCausalLM", **SIZES, **ROPE)
    path = write(tmp_path / "model.gguf", "qwen3", model, byte_level(), kind)
    _check(path, model, 1e-5 if kind == "F32" else 0.02 if kind in ("F16", "BF16", "Q8_0") else 0.6)


def test_the_tokenizer_is_rebuilt_from_the_metadata(tmp_path: Path) -> None:
    for name, tokenizer, kind in (("qwen3", byte_level(), "Qwen3"), ("llama", llama_bpe(), "Llama")):
        sizes = dict(SIZES, vocab_size=tokenizer.get_vocab_size())
        path = write(tmp_path / f"{name}.gguf", name, decoder(f"{kind}ForCausalLM", **sizes, **ROPE), tokenizer)
        ours = seq2see.load(path).tokenizers[0]
        for text in strings(1000):
            if text and not text.startswith(" "):
                expected = tokenizer.encode(text, add_special_tokens=False).ids
                assert ours.encode(text) == expected
                assert ours.decode(expected) == tokenizer.decode(expected)


def test_damaged_and_foreign_files_are_refused_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", "qwen3", decoder("Qwen3ForCausalLM", **SIZES, **ROPE), byte_level())
    content = path.read_bytes()
    for damaged, message in (
        (content[: len(content) // 2], "lies beyond its end"),
        (content[:100], "it ends at byte 100"),
        (b"GGUF" + b"\xff" * 100, "not a GGUF file of version 2 or 3"),
        (b"not a model", "not a GGUF file"),
        (content[:24] + b"\xff" * 8 + content[32:], "cannot read"),
        (content.replace(b"qwen3", b"mamba"), 'the architecture "mamba" is not supported'),
    ):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=message) as error:
            seq2see.load(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer.ggml.tokens", "a b c", "has 5 tokens|cannot read"),
        ("tokenizer.ggml.token_type", [1] * 3, "do not fit its tokens"),
        ("tokenizer.ggml.eos_token_id", "x", "cannot read"),
        ("tokenizer.ggml.bos_token_id", 10**6, "the special token 1000000 is not one of the model's 500 tokens"),
        ("tokenizer.ggml.eos_token_id", -1, "the special token -1 is not one of the model's 500 tokens"),
        ("qwen3.rope.freq_base", "x", "cannot read"),
        ("qwen3.attention.head_count", "x", "different numbers of heads"),
        ("qwen3.attention.head_count", 0, "cannot read"),
        ("qwen3.block_count", "2", "must be an integer"),
        ("general.alignment", 0, "cannot read"),
    ],
)
def test_metadata_of_a_wrong_type_or_out_of_range_is_refused(
    key: str, value: Any, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "model.gguf", "qwen3", decoder("Qwen3ForCausalLM", **SIZES, **ROPE), byte_level())
    path.write_bytes(rewrite_gguf(path.read_bytes(), lambda fields, infos: ({**fields, key: value}, infos)))
    with pytest.raises(UserError, match=message) as error:
        seq2see.load(path)
    assert "\n" not in str(error.value)
