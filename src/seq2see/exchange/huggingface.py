"""Imports Hugging Face's Marian, GPT-2, BERT and Llama models.

    model = from_huggingface("opus-mt-en-de/")        # a directory with config.json and safetensors
    model = from_huggingface(hf_model)                # or a model object

Each family has two functions: one converts the configuration and rejects every unsupported option by name, the other maps
the tensors. A key of the configuration that is neither used nor known to be harmless is an error, and so is a tensor left
over. transformers itself is not needed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from seq2see.config import Activation, Bias, ModelConfig, TieEmbeddings
from seq2see.errors import UserError
from seq2see.files import require_regular_file
from seq2see.model.positions import sinusoids
from seq2see.model.transformer import Transformer

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "silu": "silu", "swish": "silu",
}  # fmt: skip


def from_huggingface(source: nn.Module | Path | str) -> Transformer:
    """Returns the same model as a seq2see `Transformer`, in evaluation mode and in the dtype of its weights."""
    if isinstance(source, nn.Module):
        config = source.config.to_dict()  # type: ignore[operator, union-attr]
        weights = source.state_dict()
    else:
        config, weights = _read_folder(Path(source))
    model_type = str(config.get("model_type"))
    if model_type not in FAMILIES:
        raise UserError(f'model_type = "{model_type}" is not supported; supported: {", ".join(FAMILIES)}')
    family = FAMILIES[model_type]
    hf_config, hf_tensors = HFConfig(config), HFTensors(weights, family.prefix)
    model_config = family.config(hf_config)
    hf_config.require_all_known(HARMLESS | family.harmless)
    # Copies, because tensors mapped from a file are not aligned, and the last bit of some products depends on that.
    tensors = {name: tensor.clone() for name, tensor in family.tensors(model_config, hf_tensors)}
    hf_tensors.require_all_used()
    return Transformer.from_weights(model_config, tensors).eval()


def _read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        config = json.loads(require_regular_file(folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder} is not a model directory: cannot read its config.json ({error})") from error
    if not isinstance(config, dict):
        raise UserError(f"{folder} is not a model directory: its config.json does not contain an object")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(
            f"{folder} has no .safetensors file: save the model with save_pretrained() of a recent version of transformers"
        )
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(require_regular_file(file))
        except (OSError, SafetensorError) as error:
            raise UserError(f"cannot read {file}: {error}; is the download complete?") from error
    return config, weights


class HFConfig:
    """A Hugging Face configuration, or a section of one; tracks which keys were used and checks their values."""

    def __init__(self, fields: Mapping[str, Any], section: str = "") -> None:
        self.fields, self.section = fields, section
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        if name not in self.fields:
            raise UserError(f"config.json has no {self.section}{name}")
        self.used.add(name)
        return self.fields[name]

    def get(self, name: str, default: Any) -> Any:
        self.used.add(name)
        value = self.fields.get(name)
        return default if value is None else value

    def require(self, name: str, supported: Any) -> None:
        """Rejects any other value; a missing field is taken as supported."""
        value = self.get(name, supported)
        if value != supported:
            raise UserError(f"config.json: {self.section}{name} = {value!r} is not supported, only {supported!r}")

    def require_all_known(self, harmless: Collection[str] = ()) -> None:
        """Rejects keys that were not used, except harmless and empty ones, and Hugging Face's private ones."""
        for name in self.fields.keys() - self.used - set(harmless):
            value = self.fields[name]
            if value is not None and value != {} and value != [] and not name.startswith("_"):
                raise UserError(
                    f"config.json: {self.section}{name} = {str(value)[:80]} is not supported; if it does not change what the "
                    "model computes, delete it from config.json"
                )

    def require_equal(self, first: str, second: str) -> Any:
        if self[first] != self[second]:
            raise UserError(f"config.json: {first} = {self[first]} and {second} = {self[second]} must be equal")
        return self[first]

    def activation(self, name: str) -> Activation:
        if self[name] not in ACTIVATIONS:
            raise UserError(
                f'config.json: {name} = "{self[name]}" is not supported; supported: {", ".join(ACTIVATIONS)}'
            )
        return ACTIVATIONS[self[name]]


class HFTensors:
    """Hugging Face tensors by name; tracks which were used."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str) -> None:
        # Models with a head store the base model's weights under a prefix.
        self.weights = {name.removeprefix(prefix): weight.detach() for name, weight in weights.items()}
        self.used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.weights

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.weights:
            raise UserError(f"the weights have no tensor {name}: is the checkpoint complete?")
        self.used.add(name)
        return self.weights[name]

    def first(self, *names: str) -> Tensor:
        """Returns the first of these that exists; the others, if present, are copies of it."""
        self.used.update(names)
        return self[next((name for name in names if name in self.weights), names[0])]

    def ignore(self, *suffixes: str) -> None:
        self.used.update(name for name in self.weights if name.endswith(suffixes))

    def linear(self, target: str, *sources: str, transpose: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Yields the weight, and the bias if there is one, of a linear map, stacked from one or more Hugging Face maps."""
        weights = [self[f"{name}.weight"] for name in sources]
        yield f"{target}.weight", torch.cat([w.mT for w in weights] if transpose else weights).contiguous()
        if f"{sources[0]}.bias" in self:
            yield f"{target}.bias", torch.cat([self[f"{name}.bias"] for name in sources])

    def require_all_used(self) -> None:
        unused = sorted(set(self.weights) - self.used)
        if unused:
            raise UserError(
                f"tensor {unused[0]} is not supported ({len(unused)} in all): load the base model or the language model"
            )


def _marian_config(hf: HFConfig) -> ModelConfig:
    hf.require("static_position_embeddings", True)
    hf.require("normalize_before", False)
    hf.require("normalize_embedding", False)
    hf.require("add_bias_logits", False)
    hf.require("add_final_layer_norm", False)
    shared, tied = hf.get("share_encoder_decoder_embeddings", True), hf.get("tie_word_embeddings", True)
    tie: TieEmbeddings = ("all" if shared else "target") if tied else "none"
    return ModelConfig(
        vocab_size=hf.get("decoder_vocab_size", hf["vocab_size"]),
        source_vocab_size=0 if tie == "all" else hf["vocab_size"],
        width=hf["d_model"],
        heads=hf.require_equal("encoder_attention_heads", "decoder_attention_heads"),
        encoder_layers=hf["encoder_layers"],
        decoder_layers=hf["decoder_layers"],
        feed_forward=hf.require_equal("encoder_ffn_dim", "decoder_ffn_dim"),
        activation=hf.activation("activation_function"),
        positions="sinusoidal-halves",
        max_positions=hf["max_position_embeddings"],
        scale_embeddings=hf.get("scale_embedding", False),
        tie_embeddings=tie,
        output_bias=True,
        dropout=hf.get("dropout", 0.0),
        attention_dropout=hf.get("attention_dropout", 0.0),
        activation_dropout=hf.get("activation_dropout", 0.0),
    )


def _marian_tensors(config: ModelConfig, hf: HFTensors) -> Iterator[tuple[str, Tensor]]:
    table = hf.first("decoder.embed_tokens.weight", "shared.weight", "lm_head.weight")
    yield "embedding.weight", table
    source = hf.first("encoder.embed_tokens.weight", "shared.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    if config.tie_embeddings != "all":
        yield "source_embedding.weight", source
    if config.tie_embeddings == "none":
        yield "unembedding.weight", hf["lm_head.weight"]
    bias = hf["final_logits_bias"][0] if "final_logits_bias" in hf else table.new_zeros(len(table))
    yield "unembedding_bias", bias
    expected = sinusoids(config.max_positions, config.width, halves=True)
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        if f"{stack}.embed_positions.weight" in hf:
            stored = hf[f"{stack}.embed_positions.weight"]
            if stored.shape != expected.shape or not torch.allclose(stored.float().cpu(), expected, atol=1e-2):
                raise UserError(f"tensor {stack}.embed_positions does not hold sinusoids, which is not supported")
        for layer in range(layers):
            ours, theirs = f"{stack}.blocks.{layer}", f"{stack}.layers.{layer}"
            q, k, v, out = (f"{theirs}.self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
            yield from hf.linear(f"{ours}.attention.queries_keys_values", q, k, v)
            yield from hf.linear(f"{ours}.attention.project", out)
            yield from hf.linear(f"{ours}.attention_norm.norm", f"{theirs}.self_attn_layer_norm")
            if stack == "decoder":
                q, k, v, out = (f"{theirs}.encoder_attn.{name}_proj" for name in ("q", "k", "v", "out"))
                yield from hf.linear(f"{ours}.cross.queries", q)
                yield from hf.linear(f"{ours}.cross.keys_values", k, v)
                yield from hf.linear(f"{ours}.cross.project", out)
                yield from hf.linear(f"{ours}.cross_norm.norm", f"{theirs}.encoder_attn_layer_norm")
            yield from hf.linear(f"{ours}.feed_forward.up", f"{theirs}.fc1")
            yield from hf.linear(f"{ours}.feed_forward.down", f"{theirs}.fc2")
            yield from hf.linear(f"{ours}.feed_forward_norm.norm", f"{theirs}.final_layer_norm")


def _gpt2_config(hf: HFConfig) -> ModelConfig:
    hf.require("scale_attn_weights", True)
    hf.require("scale_attn_by_inverse_layer_idx", False)
    hf.require("add_cross_attention", False)
    width = hf["n_embd"]
    return ModelConfig(
        shape="decoder",
        vocab_size=hf["vocab_size"],
        width=width,
        heads=hf["n_head"],
        decoder_layers=hf["n_layer"],
        feed_forward=hf.get("n_inner", 4 * width),
        activation=hf.activation("activation_function"),
        norm_first=True,
        norm_epsilon=hf["layer_norm_epsilon"],
        positions="learned",
        max_positions=hf["n_positions"],
        scale_embeddings=False,
        tie_embeddings="all" if hf.get("tie_word_embeddings", True) else "none",
        dropout=hf.get("resid_pdrop", 0.0),
        attention_dropout=hf.get("attn_pdrop", 0.0),
    )


def _gpt2_tensors(config: ModelConfig, hf: HFTensors) -> Iterator[tuple[str, Tensor]]:
    hf.ignore(".attn.bias", ".attn.masked_bias")  # the causal mask, stored as a tensor in older files
    if config.tie_embeddings == "none":
        yield "embedding.weight", hf["wte.weight"]
        yield "unembedding.weight", hf["lm_head.weight"]
    else:
        yield "embedding.weight", hf.first("wte.weight", "lm_head.weight")
    yield "decoder.positions.weight", hf["wpe.weight"]
    for layer in range(config.decoder_layers):
        ours, theirs = f"decoder.blocks.{layer}", f"h.{layer}"
        # Conv1D stores the transpose of a linear map; its columns are stacked as our rows are.
        yield from hf.linear(f"{ours}.attention.queries_keys_values", f"{theirs}.attn.c_attn", transpose=True)
        yield from hf.linear(f"{ours}.attention.project", f"{theirs}.attn.c_proj", transpose=True)
        yield from hf.linear(f"{ours}.attention_norm.norm", f"{theirs}.ln_1")
        yield from hf.linear(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", transpose=True)
        yield from hf.linear(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", transpose=True)
        yield from hf.linear(f"{ours}.feed_forward_norm.norm", f"{theirs}.ln_2")
    yield from hf.linear("decoder.final_norm", "ln_f")


def _bert_config(hf: HFConfig) -> ModelConfig:
    hf.require("position_embedding_type", "absolute")
    hf.require("directionality", "bidi")
    hf.require("is_decoder", False)
    hf.require("add_cross_attention", False)
    return ModelConfig(
        shape="encoder",
        vocab_size=hf["vocab_size"],
        width=hf["hidden_size"],
        heads=hf["num_attention_heads"],
        encoder_layers=hf["num_hidden_layers"],
        feed_forward=hf["intermediate_size"],
        activation=hf.activation("hidden_act"),
        norm_epsilon=hf["layer_norm_eps"],
        positions="learned",
        max_positions=hf["max_position_embeddings"],
        segments=hf["type_vocab_size"],
        embedding_norm=True,
        scale_embeddings=False,
        dropout=hf.get("hidden_dropout_prob", 0.0),
        attention_dropout=hf.get("attention_probs_dropout_prob", 0.0),
    )


def _bert_tensors(config: ModelConfig, hf: HFTensors) -> Iterator[tuple[str, Tensor]]:
    # The pooler is not part of our model, and position ids are a buffer.
    hf.ignore("pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids")
    yield "embedding.weight", hf["embeddings.word_embeddings.weight"]
    yield "encoder.positions.weight", hf["embeddings.position_embeddings.weight"]
    yield "encoder.segments.weight", hf["embeddings.token_type_embeddings.weight"]
    yield from hf.linear("encoder.embedding_norm", "embeddings.LayerNorm")
    for layer in range(config.encoder_layers):
        ours, theirs = f"encoder.blocks.{layer}", f"encoder.layer.{layer}"
        parts = (f"{theirs}.attention.self.{name}" for name in ("query", "key", "value"))
        yield from hf.linear(f"{ours}.attention.queries_keys_values", *parts)
        yield from hf.linear(f"{ours}.attention.project", f"{theirs}.attention.output.dense")
        yield from hf.linear(f"{ours}.attention_norm.norm", f"{theirs}.attention.output.LayerNorm")
        yield from hf.linear(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        yield from hf.linear(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        yield from hf.linear(f"{ours}.feed_forward_norm.norm", f"{theirs}.output.LayerNorm")


def _llama_config(hf: HFConfig) -> ModelConfig:
    hf.require("hidden_act", "silu")
    hf.require("pretraining_tp", 1)
    hf.require("rope_interleaved", False)
    section = "rope_parameters" if hf.fields.get("rope_parameters") else "rope_scaling"  # the older name
    rotary = HFConfig(hf.get(section, {}), f"{section}.")
    rotary.require("rope_type", "default")
    rotary.require("type", "default")  # its older name
    rotary.require("partial_rotary_factor", 1.0)
    rotary_base = float(rotary.get("rope_theta", hf.get("rope_theta", 10000.0)))
    rotary.require_all_known()
    biases: dict[tuple[bool, bool], Bias] = {
        (True, True): "everywhere", (True, False): "attention", (False, True): "feed-forward", (False, False): "nowhere",
    }  # fmt: skip
    return ModelConfig(
        shape="decoder",
        vocab_size=hf["vocab_size"],
        width=hf["hidden_size"],
        heads=hf["num_attention_heads"],
        key_value_heads=hf.get("num_key_value_heads", 0),
        head_width=hf.get("head_dim", 0),
        decoder_layers=hf["num_hidden_layers"],
        feed_forward=hf["intermediate_size"],
        activation="swiglu",
        norm="rms",
        norm_first=True,
        norm_epsilon=hf["rms_norm_eps"],
        positions="rotary",
        rotary_base=rotary_base,
        max_positions=hf["max_position_embeddings"],
        scale_embeddings=False,
        tie_embeddings="all" if hf.get("tie_word_embeddings", False) else "none",
        bias=biases[hf.get("attention_bias", False), hf.get("mlp_bias", False)],
        dropout=0.0,
        attention_dropout=hf.get("attention_dropout", 0.0),
    )


def _llama_tensors(config: ModelConfig, hf: HFTensors) -> Iterator[tuple[str, Tensor]]:
    hf.ignore("rotary_emb.inv_freq")
    if config.tie_embeddings == "none":
        yield "embedding.weight", hf["embed_tokens.weight"]
        yield "unembedding.weight", hf["lm_head.weight"]
    else:
        yield "embedding.weight", hf.first("embed_tokens.weight", "lm_head.weight")
    for layer in range(config.decoder_layers):
        ours, theirs = f"decoder.blocks.{layer}", f"layers.{layer}"
        q, k, v, out = (f"{theirs}.self_attn.{name}_proj" for name in ("q", "k", "v", "o"))
        yield from hf.linear(f"{ours}.attention.queries_keys_values", q, k, v)
        yield from hf.linear(f"{ours}.attention.project", out)
        yield from hf.linear(f"{ours}.attention_norm.norm", f"{theirs}.input_layernorm")
        yield from hf.linear(f"{ours}.feed_forward.up", f"{theirs}.mlp.up_proj")
        yield from hf.linear(f"{ours}.feed_forward.gate", f"{theirs}.mlp.gate_proj")
        yield from hf.linear(f"{ours}.feed_forward.down", f"{theirs}.mlp.down_proj")
        yield from hf.linear(f"{ours}.feed_forward_norm.norm", f"{theirs}.post_attention_layernorm")
    yield from hf.linear("decoder.final_norm", "norm")


@dataclass(frozen=True)
class Family:
    prefix: str
    config: Callable[[HFConfig], ModelConfig]
    tensors: Callable[[ModelConfig, HFTensors], Iterator[tuple[str, Tensor]]]
    harmless: frozenset[str]  # keys that do not change what the model computes, besides those in HARMLESS


FAMILIES = {
    "marian": Family("model.", _marian_config, _marian_tensors, frozenset({
        "num_hidden_layers", "encoder_layerdrop", "decoder_layerdrop", "classif_dropout", "classifier_dropout",
    })),
    "gpt2": Family("transformer.", _gpt2_config, _gpt2_tensors, frozenset({
        "n_ctx", "embd_pdrop", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj",
    })),
    "bert": Family("bert.", _bert_config, _bert_tensors, frozenset({
        "tie_word_embeddings", "classifier_dropout", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
    })),
    "llama": Family("model.", _llama_config, _llama_tensors, frozenset({"is_llama_config", "transformers.js_config"})),
}  # fmt: skip

# Keys of any family about bookkeeping, special tokens, labels, initialisation, decoding, or how (not what) to compute.
HARMLESS = frozenset({
    "architectures", "auto_map", "dtype", "finetuning_task", "model_type", "tokenizer_class", "torch_dtype",
    "transformers_version", "use_bfloat16",
    "bos_token_id", "cls_token_id", "decoder_start_token_id", "eos_token_id", "mask_token_id", "pad_token_id",
    "sep_token_id", "unk_token_id",
    "id2label", "label2id", "num_labels", "prefix", "problem_type", "task_specific_params",
    "init_std", "initializer_factor", "initializer_range",
    "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
    "length_penalty", "max_length", "max_new_tokens", "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "output_scores", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate",
    "suppress_tokens", "temperature", "top_k", "top_p", "typical_p",
    "add_cross_attention", "chunk_size_feed_forward", "gradient_checkpointing", "is_decoder", "is_encoder_decoder",
    "output_attentions", "output_hidden_states", "return_dict", "tf_legacy_loss", "tie_encoder_decoder", "torchscript",
    "use_cache",
})  # fmt: skip
