"""Rules of families: options of ours that depend on several keys of a configuration, or on the names of the tensors.

A rule is a function from their configuration to some of our options. Whatever one key determines is in the tables instead.
"""

from collections.abc import Collection

from seq2see.config import Bias, TieEmbeddings
from seq2see.errors import UserError
from seq2see.exchange.tables import ForeignConfig, Options, Rule

_BIASES: dict[tuple[bool, bool], Bias] = {
    (True, True): "everywhere", (True, False): "attention", (False, True): "feed-forward", (False, False): "nowhere",
}  # fmt: skip


def tied(default: bool) -> Rule:
    def rule(config: ForeignConfig, names: Collection[str]) -> Options:
        return {"tie_embeddings": "all" if config.get("tie_word_embeddings", default) else "none"}

    return rule


def activation(key: str, default: str) -> Rule:
    return lambda config, names: {"activation": config.activation(key, default)}


def biases(config: ForeignConfig, names: Collection[str]) -> Options:
    return {"bias": _BIASES[bool(config.get("attention_bias", False)), bool(config.get("mlp_bias", False))]}


def sliding_window(config: ForeignConfig, names: Collection[str]) -> Options:
    """All layers are local (Mistral)."""
    window = config.get("sliding_window", 0)
    return _local_layers(config, window, range(config["num_hidden_layers"]))


def window_of_later_layers(config: ForeignConfig, names: Collection[str]) -> Options:
    """Qwen: layers from max_window_layers on, if enabled."""
    window = config.get("sliding_window", 0) if config.get("use_sliding_window", False) else 0
    config.used.add("sliding_window")
    return _local_layers(config, window, range(config.get("max_window_layers", 28), config["num_hidden_layers"]))


def window_in_a_pattern(pattern: int) -> Rule:
    """Gemma: all layers except every n-th."""

    def rule(config: ForeignConfig, names: Collection[str]) -> Options:
        every = config.get("sliding_window_pattern", config.get("_sliding_window_pattern", pattern))
        layers = [layer for layer in range(config["num_hidden_layers"]) if (layer + 1) % every]
        return _local_layers(config, config.get("sliding_window", 4096), layers)

    return rule


def _local_layers(config: ForeignConfig, window: int, layers: Collection[int]) -> Options:
    """Takes the layers that `layer_types` names, if the configuration has it."""
    types = config.get("layer_types", [])
    for kind in types:
        if kind not in ("full_attention", "sliding_attention"):
            raise UserError(f"{config.file}: layer_types has {kind!r}, which is not supported")
    if types:
        layers = [layer for layer, kind in enumerate(types) if kind == "sliding_attention"]
    if not window or not layers:
        return {}
    return {"attention_window": window, "local_layers": tuple(layers)}


def gemma_attention(config: ForeignConfig, names: Collection[str]) -> Options:
    # The older key was always computed as the approximation by tanh.
    config.used.add("hidden_act")
    config.require("hidden_activation", "gelu_pytorch_tanh")
    return {
        "attention_scale": config.get("query_pre_attn_scalar", 256) ** -0.5,
        "bias": "attention" if config.get("attention_bias", False) else "nowhere",
    }


def head_width(config: ForeignConfig, names: Collection[str]) -> Options:
    return {"head_width": config.get("head_dim", 0)}


def encoder_decoder_sizes(config: ForeignConfig, names: Collection[str]) -> Options:
    return {
        "heads": config.require_equal("encoder_attention_heads", "decoder_attention_heads"),
        "feed_forward": config.require_equal("encoder_ffn_dim", "decoder_ffn_dim"),
    }


def marian_vocabularies(config: ForeignConfig, names: Collection[str]) -> Options:
    shared = config.get("share_encoder_decoder_embeddings", True)
    tied = config.get("tie_word_embeddings", True)
    tie: TieEmbeddings = ("all" if shared else "target") if tied else "none"
    size = config["vocab_size"]
    return {
        "tie_embeddings": tie,
        "vocab_size": config.get("decoder_vocab_size", size),
        "source_vocab_size": 0 if tie == "all" else size,
    }


def tied_encoder_decoder(config: ForeignConfig, names: Collection[str]) -> Options:
    """BART's source and target embeddings are always one; the output projection may be separate."""
    config.require("tie_word_embeddings", True)
    return {"tie_embeddings": "all"}


def gpt2_options(config: ForeignConfig, names: Collection[str]) -> Options:
    options: Options = {"feed_forward": config.get("n_inner", 4 * config["n_embd"])}
    if not config.get("scale_attn_weights", True):
        options["attention_scale"] = 1.0
    return options


def encoder_heads(masked: str, pooler: str = "") -> Rule:
    """The heads of an encoder that the tensors belong to."""

    def rule(config: ForeignConfig, names: Collection[str]) -> Options:
        has_head = any(name.startswith(masked) for name in names)
        tied = config.get("tie_word_embeddings", True)
        return {
            "masked_head": has_head, "output_bias": has_head, "pooler": bool(pooler) and f"{pooler}.weight" in names,
            "tie_embeddings": "all" if tied or not has_head else "none",
        }  # fmt: skip

    return rule


def roberta_options(config: ForeignConfig, names: Collection[str]) -> Options:
    """Positions are counted from the padding token's id + 1."""
    config.require("pad_token_id", 1)
    if any(name.startswith("lm_head") for name in names):
        config.require("hidden_act", "gelu")  # of the head, whatever the layers use
    return {"max_positions": config["max_position_embeddings"] - 2}


def m2m_positions(config: ForeignConfig, names: Collection[str]) -> Options:
    config.require("pad_token_id", 1)
    return {}


def t5_options(config: ForeignConfig, names: Collection[str]) -> Options:
    kind = config.require("feed_forward_proj", "relu", "gated-gelu")
    config.used.update(("dense_act_fn", "is_gated_act"))
    tied = config.get("tie_word_embeddings", True)
    scaled = config.get("scale_decoder_outputs", tied)
    return {
        "decoder_layers": config.get("num_decoder_layers", config["num_layers"]),
        "activation": "geglu" if kind == "gated-gelu" else "relu",
        "tie_embeddings": "all" if tied else "none",
        "logit_scale": config["d_model"] ** -0.5 if scaled else 1.0,
    }
