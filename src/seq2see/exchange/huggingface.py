"""Weights from Hugging Face's Marian, GPT-2, BERT and Llama models into ours.

    model = from_huggingface("opus-mt-en-de/")        # a folder with config.json and safetensors
    model = from_huggingface(their_model)             # or a model object

For each family there are two things: what its configuration means in ours, with everything that we cannot represent
refused by name, and where each of its tensors goes. Every tensor must be accounted for: one that is left over is an
error, not a silence. transformers itself is not needed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from seq2see.config import Activation, Bias, ModelConfig, Tie
from seq2see.errors import UserError
from seq2see.model.positions import sinusoids
from seq2see.model.transformer import Transformer

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "silu": "silu", "swish": "silu",
}  # fmt: skip


def from_huggingface(source: nn.Module | Path | str) -> Transformer:
    """The same model in our house, in evaluation mode and in the precision of their weights."""
    if isinstance(source, nn.Module):
        config = source.config.to_dict()  # type: ignore[operator, union-attr]
        weights = source.state_dict()
    else:
        config, weights = _read_folder(Path(source))
    kind = str(config.get("model_type"))
    if kind not in FAMILIES:
        raise UserError(f'model_type = "{kind}" cannot be read; these can: {", ".join(FAMILIES)}')
    family = FAMILIES[kind]
    theirs = Tensors(weights, family.prefix)
    ours = family.config(Fields(config))
    tensors = dict(family.tensors(ours, theirs))
    theirs.require_all_used()
    try:
        return Transformer.from_weights(ours, tensors).eval()
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"the weights do not fit their config.json: {reason}") from error


def _read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is no model folder: cannot read its config.json ({error})") from error
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(
            f"{folder} has no .safetensors file: save the model with save_pretrained() of a recent transformers"
        )
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except (OSError, SafetensorError) as error:
            raise UserError(f"cannot read {file}: {error}; is the download complete?") from error
    return config, weights


class Fields:
    """Their configuration, with the ability to refuse."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def __getitem__(self, name: str) -> Any:
        if name not in self.fields:
            raise UserError(f"their config.json lacks {name}")
        return self.fields[name]

    def get(self, name: str, default: Any) -> Any:
        value = self.fields.get(name)
        return default if value is None else value

    def require(self, name: str, wanted: Any) -> None:
        """Refuses any value but one; where the field is absent, that one is meant."""
        value = self.get(name, wanted)
        if value != wanted:
            raise UserError(f"their {name} = {value!r} cannot be represented; only {wanted!r} can")

    def same(self, first: str, second: str) -> Any:
        if self[first] != self[second]:
            raise UserError(
                f"their {first} = {self[first]} and {second} = {self[second]} differ; here they are one number"
            )
        return self[first]

    def activation(self, name: str) -> Activation:
        if self[name] not in ACTIVATIONS:
            raise UserError(f'their {name} = "{self[name]}" cannot be represented; these can: {", ".join(ACTIVATIONS)}')
        return ACTIVATIONS[self[name]]


class Tensors:
    """Their tensors by name, remembering which were used."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str) -> None:
        # A model with a head keeps the bare model's weights behind a prefix.
        self.weights = {name.removeprefix(prefix): weight.detach() for name, weight in weights.items()}
        self.used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.weights

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.weights:
            raise UserError(f"the weights lack {name}: is this a model's whole checkpoint?")
        self.used.add(name)
        return self.weights[name]

    def first(self, *names: str) -> Tensor:
        """The first of these that is there; the others, if there, are copies of it."""
        self.used.update(names)
        return self[next((name for name in names if name in self.weights), names[0])]

    def drop(self, *endings: str) -> None:
        self.used.update(name for name in self.weights if name.endswith(endings))

    def linear(self, ours: str, *theirs: str, transpose: bool = False) -> Iterator[tuple[str, Tensor]]:
        """One of our linear maps, stacked from one or more of theirs, with its bias if there is one."""
        weights = [self[f"{name}.weight"] for name in theirs]
        yield f"{ours}.weight", torch.cat([w.mT for w in weights] if transpose else weights).contiguous()
        if f"{theirs[0]}.bias" in self:
            yield f"{ours}.bias", torch.cat([self[f"{name}.bias"] for name in theirs])

    def require_all_used(self) -> None:
        left = sorted(set(self.weights) - self.used)
        if left:
            raise UserError(
                f"their tensor {left[0]} has no place here ({len(left)} such): load the bare or the language model"
            )


def _marian_config(their: Fields) -> ModelConfig:
    their.require("static_position_embeddings", True)
    their.require("normalize_before", False)
    their.require("normalize_embedding", False)
    shared, tied = their.get("share_encoder_decoder_embeddings", True), their.get("tie_word_embeddings", True)
    tie: Tie = ("all" if shared else "target") if tied else "none"
    return ModelConfig(
        vocabulary=their.get("decoder_vocab_size", their["vocab_size"]),
        source_vocabulary=0 if tie == "all" else their["vocab_size"],
        width=their["d_model"],
        heads=their.same("encoder_attention_heads", "decoder_attention_heads"),
        encoder_layers=their["encoder_layers"],
        decoder_layers=their["decoder_layers"],
        feed_forward=their.same("encoder_ffn_dim", "decoder_ffn_dim"),
        activation=their.activation("activation_function"),
        positions="sinusoidal-halves",
        longest=their["max_position_embeddings"],
        scale_embeddings=their.get("scale_embedding", False),
        tie=tie,
        output_bias=True,
        dropout=their.get("dropout", 0.0),
        attention_dropout=their.get("attention_dropout", 0.0),
        activation_dropout=their.get("activation_dropout", 0.0),
    )


def _marian_tensors(config: ModelConfig, their: Tensors) -> Iterator[tuple[str, Tensor]]:
    table = their.first("decoder.embed_tokens.weight", "shared.weight", "lm_head.weight")
    yield "embedding.weight", table
    source = their.first(
        "encoder.embed_tokens.weight", "shared.weight", "decoder.embed_tokens.weight", "lm_head.weight"
    )
    if config.tie != "all":
        yield "source_embedding.weight", source
    if config.tie == "none":
        yield "unembedding.weight", their["lm_head.weight"]
    bias = their["final_logits_bias"][0] if "final_logits_bias" in their else table.new_zeros(len(table))
    yield "unembedding_bias", bias
    waves = sinusoids(config.longest, config.width, halves=True)
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        if f"{stack}.embed_positions.weight" in their:
            stored = their[f"{stack}.embed_positions.weight"]
            if stored.shape != waves.shape or not torch.allclose(stored.float().cpu(), waves, atol=1e-2):
                raise UserError(f"their {stack}.embed_positions is no table of sinusoids, so it cannot be represented")
        for layer in range(layers):
            ours, there = f"{stack}.blocks.{layer}", f"{stack}.layers.{layer}"
            q, k, v, out = (f"{there}.self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
            yield from their.linear(f"{ours}.attention.queries_keys_values", q, k, v)
            yield from their.linear(f"{ours}.attention.project", out)
            yield from their.linear(f"{ours}.attention_norm.norm", f"{there}.self_attn_layer_norm")
            if stack == "decoder":
                q, k, v, out = (f"{there}.encoder_attn.{name}_proj" for name in ("q", "k", "v", "out"))
                yield from their.linear(f"{ours}.cross.queries", q)
                yield from their.linear(f"{ours}.cross.keys_values", k, v)
                yield from their.linear(f"{ours}.cross.project", out)
                yield from their.linear(f"{ours}.cross_norm.norm", f"{there}.encoder_attn_layer_norm")
            yield from their.linear(f"{ours}.feed_forward.expand", f"{there}.fc1")
            yield from their.linear(f"{ours}.feed_forward.contract", f"{there}.fc2")
            yield from their.linear(f"{ours}.feed_forward_norm.norm", f"{there}.final_layer_norm")


def _gpt2_config(their: Fields) -> ModelConfig:
    their.require("scale_attn_weights", True)
    their.require("scale_attn_by_inverse_layer_idx", False)
    their.require("add_cross_attention", False)
    width = their["n_embd"]
    return ModelConfig(
        shape="decoder",
        vocabulary=their["vocab_size"],
        width=width,
        heads=their["n_head"],
        decoder_layers=their["n_layer"],
        feed_forward=their.get("n_inner", 4 * width),
        activation=their.activation("activation_function"),
        norm_first=True,
        norm_epsilon=their["layer_norm_epsilon"],
        positions="learned",
        longest=their["n_positions"],
        scale_embeddings=False,
        tie="all" if their.get("tie_word_embeddings", True) else "none",
        dropout=their.get("resid_pdrop", 0.0),
        attention_dropout=their.get("attn_pdrop", 0.0),
    )


def _gpt2_tensors(config: ModelConfig, their: Tensors) -> Iterator[tuple[str, Tensor]]:
    their.drop(".attn.bias", ".attn.masked_bias")  # their causal mask, stored as a tensor in older files
    if config.tie == "none":
        yield "embedding.weight", their["wte.weight"]
        yield "unembedding.weight", their["lm_head.weight"]
    else:
        yield "embedding.weight", their.first("wte.weight", "lm_head.weight")
    yield "decoder.positions.weight", their["wpe.weight"]
    for layer in range(config.decoder_layers):
        ours, there = f"decoder.blocks.{layer}", f"h.{layer}"
        # Their Conv1D holds a linear map the other way round; its columns are stacked as our rows are.
        yield from their.linear(f"{ours}.attention.queries_keys_values", f"{there}.attn.c_attn", transpose=True)
        yield from their.linear(f"{ours}.attention.project", f"{there}.attn.c_proj", transpose=True)
        yield from their.linear(f"{ours}.attention_norm.norm", f"{there}.ln_1")
        yield from their.linear(f"{ours}.feed_forward.expand", f"{there}.mlp.c_fc", transpose=True)
        yield from their.linear(f"{ours}.feed_forward.contract", f"{there}.mlp.c_proj", transpose=True)
        yield from their.linear(f"{ours}.feed_forward_norm.norm", f"{there}.ln_2")
    yield from their.linear("decoder.final_norm", "ln_f")


def _bert_config(their: Fields) -> ModelConfig:
    their.require("position_embedding_type", "absolute")
    their.require("is_decoder", False)
    their.require("add_cross_attention", False)
    return ModelConfig(
        shape="encoder",
        vocabulary=their["vocab_size"],
        width=their["hidden_size"],
        heads=their["num_attention_heads"],
        encoder_layers=their["num_hidden_layers"],
        feed_forward=their["intermediate_size"],
        activation=their.activation("hidden_act"),
        norm_epsilon=their["layer_norm_eps"],
        positions="learned",
        longest=their["max_position_embeddings"],
        segments=their["type_vocab_size"],
        embedding_norm=True,
        scale_embeddings=False,
        dropout=their.get("hidden_dropout_prob", 0.0),
        attention_dropout=their.get("attention_probs_dropout_prob", 0.0),
    )


def _bert_tensors(config: ModelConfig, their: Tensors) -> Iterator[tuple[str, Tensor]]:
    their.drop("pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids")  # the pooler reads our vectors
    yield "embedding.weight", their["embeddings.word_embeddings.weight"]
    yield "encoder.positions.weight", their["embeddings.position_embeddings.weight"]
    yield "encoder.segments.weight", their["embeddings.token_type_embeddings.weight"]
    yield from their.linear("encoder.embedding_norm", "embeddings.LayerNorm")
    for layer in range(config.encoder_layers):
        ours, there = f"encoder.blocks.{layer}", f"encoder.layer.{layer}"
        parts = (f"{there}.attention.self.{name}" for name in ("query", "key", "value"))
        yield from their.linear(f"{ours}.attention.queries_keys_values", *parts)
        yield from their.linear(f"{ours}.attention.project", f"{there}.attention.output.dense")
        yield from their.linear(f"{ours}.attention_norm.norm", f"{there}.attention.output.LayerNorm")
        yield from their.linear(f"{ours}.feed_forward.expand", f"{there}.intermediate.dense")
        yield from their.linear(f"{ours}.feed_forward.contract", f"{there}.output.dense")
        yield from their.linear(f"{ours}.feed_forward_norm.norm", f"{there}.output.LayerNorm")


def _llama_config(their: Fields) -> ModelConfig:
    their.require("hidden_act", "silu")
    their.require("pretraining_tp", 1)
    rotary = Fields(their.get("rope_parameters", None) or their.get("rope_scaling", {}))
    rotary.require("rope_type", "default")
    rotary.require("partial_rotary_factor", 1.0)
    biases: dict[tuple[bool, bool], Bias] = {
        (True, True): "everywhere", (True, False): "attention", (False, True): "feed-forward", (False, False): "nowhere",
    }  # fmt: skip
    return ModelConfig(
        shape="decoder",
        vocabulary=their["vocab_size"],
        width=their["hidden_size"],
        heads=their["num_attention_heads"],
        key_value_heads=their.get("num_key_value_heads", 0),
        head_width=their.get("head_dim", 0),
        decoder_layers=their["num_hidden_layers"],
        feed_forward=their["intermediate_size"],
        activation="swiglu",
        norm="rms",
        norm_first=True,
        norm_epsilon=their["rms_norm_eps"],
        positions="rotary",
        rotary_base=float(rotary.get("rope_theta", their.get("rope_theta", 10000.0))),
        longest=their["max_position_embeddings"],
        scale_embeddings=False,
        tie="all" if their.get("tie_word_embeddings", False) else "none",
        bias=biases[their.get("attention_bias", False), their.get("mlp_bias", False)],
        dropout=0.0,
        attention_dropout=their.get("attention_dropout", 0.0),
    )


def _llama_tensors(config: ModelConfig, their: Tensors) -> Iterator[tuple[str, Tensor]]:
    their.drop("rotary_emb.inv_freq")
    if config.tie == "none":
        yield "embedding.weight", their["embed_tokens.weight"]
        yield "unembedding.weight", their["lm_head.weight"]
    else:
        yield "embedding.weight", their.first("embed_tokens.weight", "lm_head.weight")
    for layer in range(config.decoder_layers):
        ours, there = f"decoder.blocks.{layer}", f"layers.{layer}"
        q, k, v, out = (f"{there}.self_attn.{name}_proj" for name in ("q", "k", "v", "o"))
        yield from their.linear(f"{ours}.attention.queries_keys_values", q, k, v)
        yield from their.linear(f"{ours}.attention.project", out)
        yield from their.linear(f"{ours}.attention_norm.norm", f"{there}.input_layernorm")
        yield from their.linear(f"{ours}.feed_forward.expand", f"{there}.mlp.up_proj")
        yield from their.linear(f"{ours}.feed_forward.gate", f"{there}.mlp.gate_proj")
        yield from their.linear(f"{ours}.feed_forward.contract", f"{there}.mlp.down_proj")
        yield from their.linear(f"{ours}.feed_forward_norm.norm", f"{there}.post_attention_layernorm")
    yield from their.linear("decoder.final_norm", "norm")


@dataclass(frozen=True)
class Family:
    prefix: str
    config: Callable[[Fields], ModelConfig]
    tensors: Callable[[ModelConfig, Tensors], Iterator[tuple[str, Tensor]]]


FAMILIES = {
    "marian": Family("model.", _marian_config, _marian_tensors),
    "gpt2": Family("transformer.", _gpt2_config, _gpt2_tensors),
    "bert": Family("bert.", _bert_config, _bert_tensors),
    "llama": Family("model.", _llama_config, _llama_tensors),
}
