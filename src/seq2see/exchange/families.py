"""The families of models that can be loaded, as tables: their options and tensors, and ours.

What a table cannot say is a rule (`rules.py`).
"""

from collections.abc import Callable

from seq2see.config import ModelConfig
from seq2see.exchange.rotary import ROTARY, TWO_ROTARY_BASES
from seq2see.exchange.rules import (
    ATTENTION_BIAS,
    BIASES,
    ENCODER_DECODER_SIZES,
    GEMMA_ATTENTION,
    GPT2_OPTIONS,
    HEAD_WIDTH,
    M2M_POSITIONS,
    MARIAN_VOCABULARIES,
    ROBERTA_OPTIONS,
    SEGMENTS,
    T5_OPTIONS,
    TIED_ENCODER_DECODER,
    WHISPER_WINDOW,
    WINDOW,
    WINDOW_OF_LATER_LAYERS,
    activation,
    encoder_heads,
    tied,
    window_in_a_pattern,
)
from seq2see.exchange.tables import (
    FLAT,
    ONE_PLUS,
    PLAIN,
    TRANSPOSED,
    Family,
    Form,
    Offset,
    Options,
    Rule,
    Stored,
    TensorTable,
    stored,
)

Tensors = Callable[[ModelConfig], TensorTable]

# Tensors


def _always(table: TensorTable) -> Tensors:
    return lambda config: table


def _bart_tensors(positions: Form) -> dict[str, Stored]:
    tables: dict[str, Stored] = {
        "embedding": stored("shared|decoder.embed_tokens|encoder.embed_tokens|lm_head"),
        "unembedding_bias": stored("final_logits_bias", form=FLAT, optional=True),
    }
    for stack in ("encoder", "decoder"):
        ours, theirs = f"{stack}.blocks.*", f"{stack}.layers.*"
        tables |= {
            f"{stack}.positions": stored(f"{stack}.embed_positions", form=positions),
            f"{stack}.embedding_norm": stored(f"{stack}.layernorm_embedding"),
            f"{stack}.final_norm": stored(f"{stack}.layer_norm"),
            f"{ours}.attention.queries_keys_values": stored(*(f"{theirs}.self_attn.{x}_proj" for x in "qkv")),
            f"{ours}.attention.project": stored(f"{theirs}.self_attn.out_proj"),
            f"{ours}.attention_norm.norm": stored(f"{theirs}.self_attn_layer_norm"),
            f"{ours}.cross.queries": stored(f"{theirs}.encoder_attn.q_proj"),
            f"{ours}.cross.keys_values": stored(*(f"{theirs}.encoder_attn.{x}_proj" for x in "kv")),
            f"{ours}.cross.project": stored(f"{theirs}.encoder_attn.out_proj"),
            f"{ours}.cross_norm.norm": stored(f"{theirs}.encoder_attn_layer_norm"),
            f"{ours}.feed_forward.up": stored(f"{theirs}.fc1"),
            f"{ours}.feed_forward.down": stored(f"{theirs}.fc2"),
            f"{ours}.feed_forward_norm.norm": stored(f"{theirs}.final_layer_norm"),
        }
    return tables


def _whisper_tensors() -> dict[str, Stored]:
    """As BART's, behind two convolutions; keys have no bias."""
    tables = {
        **_bart_tensors(PLAIN),
        "embedding": stored("decoder.embed_tokens|proj_out"),
        "source_reader.conv1": stored("encoder.conv1"),
        "source_reader.conv2": stored("encoder.conv2"),
    }
    for stack in ("encoder", "decoder"):
        ours, theirs = f"{stack}.blocks.*", f"{stack}.layers.*"
        tables[f"{ours}.attention.queries_keys_values.bias"] = stored(
            *(f"{theirs}.self_attn.{x}_proj.bias" for x in "qkv"), optional=True
        )
        tables[f"{ours}.cross.keys_values.bias"] = stored(
            *(f"{theirs}.encoder_attn.{x}_proj.bias" for x in "kv"), optional=True
        )
    return tables


def _marian_tensors(config: ModelConfig) -> TensorTable:
    target = "shared|decoder.embed_tokens" if config.tie_embeddings == "all" else "decoder.embed_tokens|shared"
    return {
        **_bart_tensors(PLAIN),
        "embedding": stored(f"{target}|lm_head"),
        "source_embedding": stored("encoder.embed_tokens|shared|decoder.embed_tokens|lm_head"),
        "unembedding": stored("lm_head"),
    }


_GPT2_TENSORS: TensorTable = {
    "embedding": stored("wte"),
    "unembedding": stored("lm_head"),
    "decoder.positions": stored("wpe"),
    "decoder.final_norm": stored("ln_f"),
    "decoder.blocks.*.attention.queries_keys_values": stored("h.*.attn.c_attn", form=TRANSPOSED),
    "decoder.blocks.*.attention.project": stored("h.*.attn.c_proj", form=TRANSPOSED),
    "decoder.blocks.*.attention_norm.norm": stored("h.*.ln_1"),
    "decoder.blocks.*.feed_forward.up": stored("h.*.mlp.c_fc", form=TRANSPOSED),
    "decoder.blocks.*.feed_forward.down": stored("h.*.mlp.c_proj", form=TRANSPOSED),
    "decoder.blocks.*.feed_forward_norm.norm": stored("h.*.ln_2"),
}


def _llama_tensors(norm: Form = PLAIN, sandwich: bool = False) -> dict[str, Stored]:
    ours, theirs = "decoder.blocks.*", "layers.*"
    before_feed_forward = "pre_feedforward_layernorm" if sandwich else "post_attention_layernorm"
    return {
        "embedding": stored("embed_tokens"),
        "unembedding": stored("lm_head"),
        "decoder.final_norm": stored("norm", form=norm),
        f"{ours}.attention.queries_keys_values": stored(*(f"{theirs}.self_attn.{x}_proj" for x in "qkv")),
        f"{ours}.attention.query_norm": stored(f"{theirs}.self_attn.q_norm", form=norm),
        f"{ours}.attention.key_norm": stored(f"{theirs}.self_attn.k_norm", form=norm),
        f"{ours}.attention.project": stored(f"{theirs}.self_attn.o_proj"),
        f"{ours}.attention_norm.norm": stored(f"{theirs}.input_layernorm", form=norm),
        f"{ours}.attention_norm.output_norm": stored(f"{theirs}.post_attention_layernorm", form=norm),
        f"{ours}.feed_forward.up": stored(f"{theirs}.mlp.up_proj"),
        f"{ours}.feed_forward.gate": stored(f"{theirs}.mlp.gate_proj"),
        f"{ours}.feed_forward.down": stored(f"{theirs}.mlp.down_proj"),
        f"{ours}.feed_forward_norm.norm": stored(f"{theirs}.{before_feed_forward}", form=norm),
        f"{ours}.feed_forward_norm.output_norm": stored(f"{theirs}.post_feedforward_layernorm", form=norm),
    }


def _bert_tensors(positions: Form, head: dict[str, Stored]) -> dict[str, Stored]:
    ours, theirs = "encoder.blocks.*", "encoder.layer.*"
    return {
        "embedding": stored("embeddings.word_embeddings"),
        "encoder.positions": stored("embeddings.position_embeddings", form=positions),
        "encoder.segments": stored("embeddings.token_type_embeddings"),
        "encoder.embedding_norm": stored("embeddings.LayerNorm"),
        f"{ours}.attention.queries_keys_values": stored(
            *(f"{theirs}.attention.self.{name}" for name in ("query", "key", "value"))
        ),
        f"{ours}.attention.project": stored(f"{theirs}.attention.output.dense"),
        f"{ours}.attention_norm.norm": stored(f"{theirs}.attention.output.LayerNorm"),
        f"{ours}.feed_forward.up": stored(f"{theirs}.intermediate.dense"),
        f"{ours}.feed_forward.down": stored(f"{theirs}.output.dense"),
        f"{ours}.feed_forward_norm.norm": stored(f"{theirs}.output.LayerNorm"),
        "pooler": stored("pooler.dense"),
        **head,
    }


_BERT_TENSORS: TensorTable = _bert_tensors(PLAIN, {
    "masked_head.dense": stored("cls.predictions.transform.dense"),
    "masked_head.norm": stored("cls.predictions.transform.LayerNorm"),
    "unembedding": stored("cls.predictions.decoder"),
    "unembedding_bias": stored("cls.predictions.bias|cls.predictions.decoder.bias"),
})  # fmt: skip

_ROBERTA_TENSORS: TensorTable = _bert_tensors(Offset(2), {
    "masked_head.dense": stored("lm_head.dense"),
    "masked_head.norm": stored("lm_head.layer_norm"),
    "unembedding": stored("lm_head.decoder"),
    "unembedding_bias": stored("lm_head.bias|lm_head.decoder.bias"),
})  # fmt: skip

_DISTILBERT_TENSORS: TensorTable = {
    "embedding": stored("embeddings.word_embeddings"),
    "encoder.positions": stored("embeddings.position_embeddings"),
    "encoder.embedding_norm": stored("embeddings.LayerNorm"),
    "encoder.blocks.*.attention.queries_keys_values": stored(
        *(f"transformer.layer.*.attention.{x}_lin" for x in "qkv")
    ),
    "encoder.blocks.*.attention.project": stored("transformer.layer.*.attention.out_lin"),
    "encoder.blocks.*.attention_norm.norm": stored("transformer.layer.*.sa_layer_norm"),
    "encoder.blocks.*.feed_forward.up": stored("transformer.layer.*.ffn.lin1"),
    "encoder.blocks.*.feed_forward.down": stored("transformer.layer.*.ffn.lin2"),
    "encoder.blocks.*.feed_forward_norm.norm": stored("transformer.layer.*.output_layer_norm"),
    "masked_head.dense": stored("vocab_transform"),
    "masked_head.norm": stored("vocab_layer_norm"),
    "unembedding": stored("vocab_projector"),
    "unembedding_bias": stored("vocab_projector.bias"),
}


def _t5_tensors(config: ModelConfig) -> TensorTable:
    tables = {
        "embedding": stored("shared|decoder.embed_tokens|encoder.embed_tokens"),
        "source_embedding": stored("shared|encoder.embed_tokens"),
        "unembedding": stored("lm_head"),
    }
    for stack, last in (("encoder", 1), ("decoder", 2)):
        ours, theirs = f"{stack}.blocks.*", f"{stack}.block.*.layer"
        self_attention = f"{theirs}.0.SelfAttention"
        tables |= {
            f"{stack}.final_norm": stored(f"{stack}.final_layer_norm"),
            f"{stack}.relative_bias": stored(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"),
            f"{ours}.attention.queries_keys_values": stored(*(f"{self_attention}.{x}" for x in "qkv")),
            f"{ours}.attention.project": stored(f"{self_attention}.o"),
            f"{ours}.attention_norm.norm": stored(f"{theirs}.0.layer_norm"),
            f"{ours}.cross.queries": stored(f"{theirs}.1.EncDecAttention.q"),
            f"{ours}.cross.keys_values": stored(*(f"{theirs}.1.EncDecAttention.{x}" for x in "kv")),
            f"{ours}.cross.project": stored(f"{theirs}.1.EncDecAttention.o"),
            f"{ours}.cross_norm.norm": stored(f"{theirs}.1.layer_norm"),
            f"{ours}.feed_forward.gate": stored(f"{theirs}.{last}.DenseReluDense.wi_0"),
            f"{ours}.feed_forward.up": stored(f"{theirs}.{last}.DenseReluDense.{'wi_1' if config.gated else 'wi'}"),
            f"{ours}.feed_forward.down": stored(f"{theirs}.{last}.DenseReluDense.wo"),
            f"{ours}.feed_forward_norm.norm": stored(f"{theirs}.{last}.layer_norm"),
        }
    return tables


# Families

_ENCODER_DECODER = {
    "d_model": "width", "encoder_layers": "encoder_layers", "decoder_layers": "decoder_layers",
    "max_position_embeddings": "max_positions", "scale_embedding": "scale_embeddings", "dropout": "dropout",
    "attention_dropout": "attention_dropout", "activation_dropout": "activation_dropout",
}  # fmt: skip
_ENCODER_DECODER_DEFAULTS = {
    "scale_embedding": False,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}
_ENCODER_DECODER_HARMLESS = frozenset({
    "num_hidden_layers", "encoder_layerdrop", "decoder_layerdrop", "classif_dropout", "classifier_dropout",
    "save_step", "extra_pos_embeddings",
})  # fmt: skip


def _encoder_decoder(
    name: str, architecture: str, fixed: Options, tensors: Tensors, default_activation: str, *rules: Rule,
    static_positions: bool, norm_first: bool, embedding_norm: bool, scale_embedding: bool = False,
    sinusoids: tuple[str, ...] = (),
) -> Family:  # fmt: skip
    """The families of fairseq and Marian differ in positions, norms and vocabularies; some files repeat their choices."""
    repeated = {
        "static_position_embeddings": static_positions, "normalize_before": norm_first,
        "normalize_embedding": embedding_norm, "add_bias_logits": False, "add_final_layer_norm": norm_first,
    }  # fmt: skip
    # Marian's vocabularies may differ, so a rule sets their sizes.
    options = _ENCODER_DECODER if MARIAN_VOCABULARIES in rules else {**_ENCODER_DECODER, "vocab_size": "vocab_size"}
    positions = ("embed_positions.weights", "embed_positions.weight") if static_positions else ()
    return Family(
        name, architecture, "model.", options, {**fixed, "norm_first": norm_first}, tensors,
        (ENCODER_DECODER_SIZES, activation("activation_function", default_activation), *rules),
        {**_ENCODER_DECODER_DEFAULTS, "scale_embedding": scale_embedding},
        {key: (value,) for key, value in repeated.items()},
        (*positions, "embed_tokens.weight", "lm_head.weight"), _ENCODER_DECODER_HARMLESS, sinusoids,
    )  # fmt: skip


_LLAMA = {
    "vocab_size": "vocab_size", "hidden_size": "width", "num_attention_heads": "heads",
    "num_key_value_heads": "key_value_heads", "num_hidden_layers": "decoder_layers", "intermediate_size": "feed_forward",
    "rms_norm_eps": "norm_epsilon", "attention_dropout": "attention_dropout",
}  # fmt: skip
_LLAMA_DEFAULTS = {"num_key_value_heads": 0, "attention_dropout": 0.0, "rms_norm_eps": 1e-6}
_LLAMA_FIXED = {
    "shape": "decoder", "activation": "swiglu", "norm": "rms", "norm_first": True, "positions": "rotary",
    "scale_embeddings": False, "dropout": 0.0,
}  # fmt: skip
_LLAMA_SUPPORTED = {"hidden_act": ("silu",), "pretraining_tp": (1,)}
_GEMMA_FIXED = {**_LLAMA_FIXED, "activation": "geglu", "scale_embeddings": True, "output_norm": True}


def _gemma(name: str, architecture: str, fixed: Options, *rules: Rule) -> Family:
    return Family(
        name, architecture, "model.", {**_LLAMA, "head_dim": "head_width"},
        {**_GEMMA_FIXED, **fixed}, _always(_llama_tensors(ONE_PLUS, sandwich=True)),
        (tied(True), GEMMA_ATTENTION, ATTENTION_BIAS, *rules), {**_LLAMA_DEFAULTS, "head_dim": 256},
        {"use_bidirectional_attention": (None, False)}, ("lm_head.weight",),
        frozenset({"cache_implementation", "hidden_act"}),
    )  # fmt: skip


_BERT = {
    "vocab_size": "vocab_size", "hidden_size": "width", "num_attention_heads": "heads",
    "num_hidden_layers": "encoder_layers", "intermediate_size": "feed_forward", "layer_norm_eps": "norm_epsilon",
    "max_position_embeddings": "max_positions", "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}  # fmt: skip
_BERT_DEFAULTS = {"layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_BERT_FIXED = {"shape": "encoder", "positions": "learned", "embedding_norm": True, "scale_embeddings": False}
_BERT_SUPPORTED = {
    "position_embedding_type": ("absolute",), "directionality": ("bidi",), "is_decoder": (False,),
    "add_cross_attention": (False,),
}  # fmt: skip
_BERT_HARMLESS = frozenset({
    "classifier_dropout", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type",
})  # fmt: skip
# The head for the next sentence is not part of our model, and position ids are a buffer.
_BERT_IGNORED = ("cls.seq_relationship.weight", "cls.seq_relationship.bias", "position_ids", "token_type_ids", "decoder.weight",
                 "decoder.bias")  # fmt: skip

_ROBERTA_FAMILY = Family(
    "RoBERTa", "Roberta*", "roberta.", _BERT, _BERT_FIXED, _always(_ROBERTA_TENSORS),
    (SEGMENTS, activation("hidden_act", "gelu"), encoder_heads("lm_head.", "pooler.dense"), ROBERTA_OPTIONS), _BERT_DEFAULTS,
    _BERT_SUPPORTED, _BERT_IGNORED, _BERT_HARMLESS,
)  # fmt: skip

FAMILIES: dict[str, Family] = {
    "marian": _encoder_decoder(
        "Marian", "MarianMTModel", {"positions": "sinusoidal-halves", "output_bias": True}, _marian_tensors, "gelu",
        MARIAN_VOCABULARIES, static_positions=True, norm_first=False, embedding_norm=False,
    ),
    "bart": _encoder_decoder(
        "BART", "BartForConditionalGeneration", {"positions": "learned", "output_bias": True, "embedding_norm": True},
        _always(_bart_tensors(Offset(2))), "gelu", TIED_ENCODER_DECODER, static_positions=False, norm_first=False,
        embedding_norm=True,
    ),
    "mbart": _encoder_decoder(
        "mBART", "MBartForConditionalGeneration", {"positions": "learned", "output_bias": True, "embedding_norm": True},
        _always(_bart_tensors(Offset(2))), "gelu", TIED_ENCODER_DECODER, static_positions=False, norm_first=True,
        embedding_norm=True,
    ),
    "m2m_100": _encoder_decoder(
        "M2M100", "M2M100ForConditionalGeneration", {"positions": "sinusoidal-fairseq"}, _always(_bart_tensors(PLAIN)), "relu",
        TIED_ENCODER_DECODER, M2M_POSITIONS, static_positions=True, norm_first=True, embedding_norm=False, scale_embedding=True,
    ),
    "pegasus": _encoder_decoder(
        "Pegasus", "PegasusForConditionalGeneration", {"positions": "sinusoidal-halves", "output_bias": True},
        _always(_bart_tensors(PLAIN)), "gelu", TIED_ENCODER_DECODER, static_positions=True, norm_first=True,
        embedding_norm=False, sinusoids=("encoder.embed_positions.weight", "decoder.embed_positions.weight"),
    ),
    "whisper": Family(
        "Whisper", "WhisperForConditionalGeneration", "model.", {
            "vocab_size": "vocab_size", "d_model": "width", "encoder_layers": "encoder_layers",
            "decoder_layers": "decoder_layers", "num_mel_bins": "mel_bands", "max_target_positions": "max_positions",
            "max_source_positions": "max_source_positions", "dropout": "dropout", "attention_dropout": "attention_dropout",
            "activation_dropout": "activation_dropout",
        },
        {"source": "sounds", "positions": "learned", "encoder_positions": "sinusoidal-whisper", "norm_first": True,
         "scale_embeddings": False},
        _always(_whisper_tensors()),
        (ENCODER_DECODER_SIZES, activation("activation_function", "gelu"), TIED_ENCODER_DECODER, WHISPER_WINDOW),
        {"num_mel_bins": 80, "max_target_positions": 448, "max_source_positions": 1500, "dropout": 0.0,
         "attention_dropout": 0.0, "activation_dropout": 0.0},
        {"scale_embedding": (False,)}, ("encoder.embed_positions.weight", "proj_out.weight"),
        _ENCODER_DECODER_HARMLESS | frozenset({
            "apply_spec_augment", "classifier_proj_size", "forced_decoder_ids", "mask_feature_length",
            "mask_feature_min_masks", "mask_feature_prob", "mask_time_length", "mask_time_min_masks", "mask_time_prob",
            "median_filter_width", "use_weighted_layer_sum",
        }),
    ),
    "t5": Family(
        "T5", "T5ForConditionalGeneration", "", {
            "vocab_size": "vocab_size", "d_model": "width", "d_kv": "head_width", "d_ff": "feed_forward",
            "num_layers": "encoder_layers", "num_heads": "heads", "relative_attention_num_buckets": "relative_buckets",
            "relative_attention_max_distance": "relative_distance", "layer_norm_epsilon": "norm_epsilon",
            "dropout_rate": "dropout",
        },
        {"positions": "relative", "norm": "rms", "norm_first": True, "bias": "nowhere", "scale_embeddings": False,
         "attention_scale": 1.0, "max_positions": 512},
        _t5_tensors, (T5_OPTIONS,),
        {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6,
         "dropout_rate": 0.1},
        {}, ("embed_tokens.weight", "lm_head.weight", "EncDecAttention.relative_attention_bias.weight"),
        frozenset({"n_positions", "classifier_dropout"}),
    ),
    "gpt2": Family(
        "GPT-2", "GPT2LMHeadModel", "transformer.", {
            "vocab_size": "vocab_size", "n_embd": "width", "n_head": "heads", "n_layer": "decoder_layers",
            "layer_norm_epsilon": "norm_epsilon", "n_positions": "max_positions", "resid_pdrop": "dropout",
            "attn_pdrop": "attention_dropout",
        },
        {"shape": "decoder", "norm_first": True, "positions": "learned", "scale_embeddings": False}, _always(_GPT2_TENSORS),
        (tied(True), activation("activation_function", "gelu_new"), GPT2_OPTIONS),
        {"resid_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5},
        {"scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)},
        (".attn.bias", ".attn.masked_bias", "lm_head.weight"),  # the causal mask, stored as a tensor in older files
        frozenset({"n_ctx", "embd_pdrop", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
                   "summary_proj_to_labels", "summary_type", "summary_use_proj"}),
    ),
    "llama": Family(
        "Llama", "LlamaForCausalLM", "model.", _LLAMA, _LLAMA_FIXED, _always(_llama_tensors()),
        (ROTARY, tied(False), BIASES, HEAD_WIDTH), _LLAMA_DEFAULTS, _LLAMA_SUPPORTED,
        ("rotary_emb.inv_freq", "lm_head.weight"), frozenset({"is_llama_config"}),
    ),
    "mistral": Family(
        "Mistral", "MistralForCausalLM", "model.", _LLAMA, {**_LLAMA_FIXED, "bias": "nowhere"}, _always(_llama_tensors()),
        (ROTARY, tied(False), HEAD_WIDTH, WINDOW), {**_LLAMA_DEFAULTS, "num_key_value_heads": 8},
        _LLAMA_SUPPORTED, ("rotary_emb.inv_freq", "lm_head.weight"),
    ),
    "qwen2": Family(
        "Qwen 2", "Qwen2ForCausalLM", "model.", _LLAMA, {**_LLAMA_FIXED, "bias": "qkv"}, _always(_llama_tensors()),
        (ROTARY, tied(False), HEAD_WIDTH, WINDOW_OF_LATER_LAYERS), _LLAMA_DEFAULTS, _LLAMA_SUPPORTED,
        ("rotary_emb.inv_freq", "lm_head.weight"), frozenset({"use_mrope"}),
    ),
    "qwen3": Family(
        "Qwen 3", "Qwen3ForCausalLM", "model.", _LLAMA, {**_LLAMA_FIXED, "query_key_norm": True}, _always(_llama_tensors()),
        (ROTARY, tied(False), ATTENTION_BIAS, HEAD_WIDTH, WINDOW_OF_LATER_LAYERS), _LLAMA_DEFAULTS, _LLAMA_SUPPORTED,
        ("rotary_emb.inv_freq", "lm_head.weight"),
    ),
    "gemma2": _gemma("Gemma 2", "Gemma2ForCausalLM", {}, ROTARY, window_in_a_pattern(2)),
    "gemma3_text": _gemma("Gemma 3", "Gemma3ForCausalLM", {"query_key_norm": True}, TWO_ROTARY_BASES, window_in_a_pattern(6)),
    "bert": Family(
        "BERT", "Bert*", "bert.", _BERT, _BERT_FIXED, _always(_BERT_TENSORS),
        (SEGMENTS, activation("hidden_act", "gelu"), encoder_heads("cls.predictions.", "pooler.dense")), _BERT_DEFAULTS,
        _BERT_SUPPORTED, _BERT_IGNORED, _BERT_HARMLESS,
    ),
    "roberta": _ROBERTA_FAMILY,
    "xlm-roberta": _ROBERTA_FAMILY,
    "camembert": _ROBERTA_FAMILY,
    "distilbert": Family(
        "DistilBERT", "DistilBert*", "distilbert.", {
            "vocab_size": "vocab_size", "dim": "width", "n_heads": "heads", "n_layers": "encoder_layers",
            "hidden_dim": "feed_forward", "max_position_embeddings": "max_positions", "dropout": "dropout",
            "attention_dropout": "attention_dropout",
        },
        {**_BERT_FIXED, "norm_epsilon": 1e-12}, _always(_DISTILBERT_TENSORS),
        (activation("activation", "gelu"), encoder_heads("vocab_")), {"dropout": 0.1, "attention_dropout": 0.1}, {},
        ("vocab_projector.weight", "position_ids"),
        # With sinusoidal positions, their table is stored like a learned one.
        frozenset({"qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds", "output_past"}),
    ),
}  # fmt: skip
