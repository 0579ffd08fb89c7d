"""Rules of families: options of ours that depend on several keys of a configuration, or on the names of the tensors.

A rule is a pair of functions, from their configuration to some of our options and back. Whatever one key determines is in the
tables instead.
"""

from collections.abc import Collection

from seq2see.config import Bias, ModelConfig, TieEmbeddings
from seq2see.errors import UserError
from seq2see.exchange.tables import ForeignConfig, Keys, Options, Rule

_BIASES: dict[tuple[bool, bool], Bias] = {
    (True, True): "everywhere",
    (True, False): "attention",
    (False, True): "feed-forward",
    (False, False): "nowhere",
}


def tied(default: bool) -> Rule:
    return Rule(
        lambda config: {"tie_embeddings": "all" if config.get("tie_word_embeddings", default) else "none"},
        lambda config: {"tie_word_embeddings": config.tie_embeddings != "none"},
    )


BIASES = Rule(
    lambda config: {"bias": _BIASES[bool(config.get("attention_bias", False)), bool(config.get("mlp_bias", False))]},
    lambda config: {"attention_bias": config.projection_bias, "mlp_bias": config.feed_forward_bias},
)
ATTENTION_BIAS = Rule(
    lambda config: {"bias": "attention" if config.get("attention_bias", False) else "nowhere"},
    lambda config: {"attention_bias": config.projection_bias},
)
WINDOW = Rule(  # all layers are local, or none (Mistral)
    lambda config: _local_layers(config, config.get("sliding_window", 0), range(config["num_hidden_layers"])),
    lambda config: {"sliding_window": config.attention_window or None},
)


def _read_later_window(config: ForeignConfig) -> Options:
    window = config.get("sliding_window", 0) if config.get("use_sliding_window", False) else 0
    config.used.add("sliding_window")
    return _local_layers(config, window, range(config.get("max_window_layers", 28), config["num_hidden_layers"]))


def _write_later_window(config: ModelConfig) -> Keys:
    window = config.attention_window
    later = next((layer for layer in range(config.decoder_layers) if config.is_local(layer)), config.decoder_layers)
    return {
        "use_sliding_window": window > 0,
        "sliding_window": window or None,
        "max_window_layers": later,
        "layer_types": _layer_types(config),
    }


WINDOW_OF_LATER_LAYERS = Rule(_read_later_window, _write_later_window)  # Qwen: from max_window_layers on, if enabled


def window_in_a_pattern(pattern: int) -> Rule:
    """Gemma: all layers except every n-th."""
    default = 4096

    def read(config: ForeignConfig) -> Options:
        every = config.get("sliding_window_pattern", config.get("_sliding_window_pattern", pattern))
        layers = [layer for layer in range(config["num_hidden_layers"]) if (layer + 1) % every]
        return _local_layers(config, config.get("sliding_window", default), layers)

    return Rule(
        read,
        lambda config: {"sliding_window": config.attention_window or default, "layer_types": _layer_types(config)},
    )


def _layer_types(config: ModelConfig) -> list[str]:
    return [
        "sliding_attention" if config.is_local(layer) else "full_attention" for layer in range(config.decoder_layers)
    ]


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


def _read_gemma(config: ForeignConfig) -> Options:
    # The older key was always computed as the approximation by tanh.
    config.used.add("hidden_act")
    config.require("hidden_activation", "gelu_pytorch_tanh")
    return {
        "attention_scale": config.get("query_pre_attn_scalar", 256) ** -0.5,
        "attention_cap": config.get("attn_logit_softcapping", 0.0),
        "logit_cap": config.get("final_logit_softcapping", 0.0),
    }


def _write_gemma(config: ModelConfig) -> Keys:
    scalar = (config.attention_scale or config.actual_head_width**-0.5) ** -2
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": round(scalar) if abs(scalar - round(scalar)) < 1e-6 else scalar,
        "attn_logit_softcapping": config.attention_cap or None,
        "final_logit_softcapping": config.logit_cap or None,
    }


GEMMA_ATTENTION = Rule(_read_gemma, _write_gemma)


def _read_vocabularies(config: ForeignConfig) -> Options:
    shared = config.get("share_encoder_decoder_embeddings", True)
    tied = config.get("tie_word_embeddings", True)
    tie: TieEmbeddings = ("all" if shared else "target") if tied else "none"
    size = config["vocab_size"]
    return {
        "tie_embeddings": tie,
        "vocab_size": config.get("decoder_vocab_size", size),
        "source_vocab_size": 0 if tie == "all" else size,
    }


def _write_vocabularies(config: ModelConfig) -> Keys:
    return {
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "tie_word_embeddings": config.tie_embeddings != "none",
        "vocab_size": config.source_vocab_size or config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
    }


MARIAN_VOCABULARIES = Rule(_read_vocabularies, _write_vocabularies)


def _read_whisper_window(config: ForeignConfig) -> Options:
    """The encoder reads windows of one length: 50 positions per second."""
    positions = config.get("max_source_positions", 1500)
    if positions % 50:
        raise UserError(f"{config.file}: max_source_positions = {positions} is not a whole number of seconds, 50 each")
    return {"window_seconds": positions // 50}


WHISPER_WINDOW = Rule(_read_whisper_window, lambda config: {})


def _read_gpt2(config: ForeignConfig) -> Options:
    options: Options = {"feed_forward": config.get("n_inner", 4 * config["n_embd"])}
    if not config.get("scale_attn_weights", True):
        options["attention_scale"] = 1.0
    return options


GPT2_OPTIONS = Rule(
    _read_gpt2,
    lambda config: {"n_inner": config.feed_forward, "scale_attn_weights": config.attention_scale != 1.0},
)


def encoder_heads(masked: str, pooler: str = "") -> Rule:
    """The heads of an encoder that the tensors belong to."""

    def read(config: ForeignConfig) -> Options:
        has_head = any(name.startswith(masked) for name in config.tensors)
        tied = config.get("tie_word_embeddings", True)
        return {
            "masked_head": has_head,
            "output_bias": has_head,
            "pooler": bool(pooler) and f"{pooler}.weight" in config.tensors,
            "tie_embeddings": "all" if tied or not has_head else "none",
        }

    return Rule(read, lambda config: {"tie_word_embeddings": config.tie_embeddings != "none"})


# BERT has at least one segment.
SEGMENTS = Rule(
    lambda config: {"segments": config.get("type_vocab_size", 2)},
    lambda config: {"type_vocab_size": max(config.segments, 1)},
)


def _read_roberta(config: ForeignConfig) -> Options:
    if any(name.startswith("lm_head") for name in config.tensors):
        config.require("hidden_act", "gelu")  # of the head, whatever the layers use
    return {"max_positions": config["max_position_embeddings"] - 2}


# Positions are counted from the padding token's id + 1.
ROBERTA_OPTIONS = Rule(_read_roberta, lambda config: {"max_position_embeddings": config.max_positions + 2})


def _read_t5(config: ForeignConfig) -> Options:
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


def _write_t5(config: ModelConfig) -> Keys:
    return {
        "num_decoder_layers": config.decoder_layers,
        "tie_word_embeddings": config.tie_embeddings == "all",
        "feed_forward_proj": "gated-gelu" if config.gated else "relu",
        "scale_decoder_outputs": config.logit_scale != 1,
    }


T5_OPTIONS = Rule(_read_t5, _write_t5)
