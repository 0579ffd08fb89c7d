"""The families of Hugging Face models that can be loaded and written: one record each.

What a record cannot say is a rule (`rules.py`). The last section lists the families by their `model_type`.
"""

from dataclasses import replace

from seq2see.config import ModelConfig
from seq2see.exchange import rules
from seq2see.exchange.rotary import ROTARY, TWO_ROTARY_BASES
from seq2see.exchange.tables import Family, tensor_table

# Tables, laid out by hand.
# fmt: off

# Encoder-decoders of fairseq and Marian: they differ in positions, norms and vocabularies.

# Some files repeat what the family determines.
_BART_CHOICES = {
    "static_position_embeddings": (False,), "normalize_before": (False,), "add_final_layer_norm": (False,),
    "normalize_embedding": (True,), "add_bias_logits": (False,), "tie_word_embeddings": (True,),
}
_PRE_NORM = {"normalize_before": (True,), "add_final_layer_norm": (True,)}
_SINUSOIDS = {"static_position_embeddings": (True,), "normalize_embedding": (False,)}

BART = Family(
    name="BART", architecture="BartForConditionalGeneration", prefix="model.",
    keys={
        "vocab_size": "vocab_size", "d_model": "width", "encoder_attention_heads|decoder_attention_heads": "heads",
        "encoder_ffn_dim|decoder_ffn_dim": "feed_forward", "encoder_layers": "encoder_layers",
        "decoder_layers": "decoder_layers", "max_position_embeddings": "max_positions",
        "activation_function": ("activation", "gelu"), "scale_embedding": ("scale_embeddings", False),
        "dropout": ("dropout", 0.1), "attention_dropout": ("attention_dropout", 0.0),
        "activation_dropout": ("activation_dropout", 0.0),
    },
    fixed={"positions": "learned", "embedding_norm": True, "output_bias": True, "tie_embeddings": "all"},
    tensors=tensor_table("""
        embedding                                        shared|decoder.embed_tokens|encoder.embed_tokens|lm_head
        unembedding_bias                                 final_logits_bias?                         matrix
        <stack>.positions                                <stack>.embed_positions                    from-row-2
        <stack>.embedding_norm                           <stack>.layernorm_embedding
        <stack>.final_norm                               <stack>.layer_norm
        <stack>.blocks.*.attention.queries_keys_values   <stack>.layers.*.self_attn.(q,k,v)_proj
        <stack>.blocks.*.attention.project               <stack>.layers.*.self_attn.out_proj
        <stack>.blocks.*.attention_norm.norm             <stack>.layers.*.self_attn_layer_norm
        <stack>.blocks.*.cross.queries                   <stack>.layers.*.encoder_attn.q_proj
        <stack>.blocks.*.cross.keys_values               <stack>.layers.*.encoder_attn.(k,v)_proj
        <stack>.blocks.*.cross.project                   <stack>.layers.*.encoder_attn.out_proj
        <stack>.blocks.*.cross_norm.norm                 <stack>.layers.*.encoder_attn_layer_norm
        <stack>.blocks.*.feed_forward.up                 <stack>.layers.*.fc1
        <stack>.blocks.*.feed_forward.down               <stack>.layers.*.fc2
        <stack>.blocks.*.feed_forward_norm.norm          <stack>.layers.*.final_layer_norm
    """),
    supported=_BART_CHOICES,
    ignored=("embed_positions.weights", "embed_positions.weight", "embed_tokens.weight", "lm_head.weight"),
    harmless="""
        num_hidden_layers encoder_layerdrop decoder_layerdrop classif_dropout classifier_dropout save_step
        extra_pos_embeddings
    """,
)
MBART = replace(
    BART, name="mBART", architecture="MBartForConditionalGeneration",
    fixed={**BART.fixed, "norm_first": True},
    supported={**_BART_CHOICES, **_PRE_NORM},
)


def _marian_tensors(config: ModelConfig) -> str:
    target = "shared|decoder.embed_tokens" if config.tie_embeddings == "all" else "decoder.embed_tokens|shared"
    return f"embedding {target}|lm_head"


MARIAN = replace(
    BART, name="Marian", architecture="MarianMTModel",
    fixed={"positions": "sinusoidal-halves", "output_bias": True},
    tensors={
        **BART.tensors,
        **tensor_table("""
            source_embedding                         encoder.embed_tokens|shared|decoder.embed_tokens|lm_head
            unembedding                              lm_head
        """),
    },
    variant=_marian_tensors,
    rules=(rules.MARIAN_VOCABULARIES,),
    supported={key: value for key, value in {**_BART_CHOICES, **_SINUSOIDS}.items() if key != "tie_word_embeddings"},
)
M2M100 = replace(
    BART, name="M2M100", architecture="M2M100ForConditionalGeneration",
    keys={**BART.keys, "scale_embedding": ("scale_embeddings", True), "activation_function": ("activation", "relu")},
    fixed={"positions": "sinusoidal-fairseq", "norm_first": True, "tie_embeddings": "all"},
    supported={**_BART_CHOICES, **_PRE_NORM, **_SINUSOIDS, "pad_token_id": (1,)},  # positions are counted from it
)
PEGASUS = replace(
    BART, name="Pegasus", architecture="PegasusForConditionalGeneration",
    fixed={**MARIAN.fixed, "norm_first": True, "tie_embeddings": "all"},
    supported={**_BART_CHOICES, **_PRE_NORM, **_SINUSOIDS},
    sinusoids=("encoder.embed_positions.weight", "decoder.embed_positions.weight"),
)
WHISPER = Family(
    name="Whisper", architecture="WhisperForConditionalGeneration", prefix="model.",
    keys={
        "vocab_size": "vocab_size", "d_model": "width", "encoder_attention_heads|decoder_attention_heads": "heads",
        "encoder_ffn_dim|decoder_ffn_dim": "feed_forward", "encoder_layers": "encoder_layers",
        "decoder_layers": "decoder_layers", "num_mel_bins": ("mel_bands", 80), "activation_function": ("activation", "gelu"),
        "max_target_positions": ("max_positions", 448), "max_source_positions": ("max_source_positions", 1500),
        "dropout": ("dropout", 0.0), "attention_dropout": ("attention_dropout", 0.0),
        "activation_dropout": ("activation_dropout", 0.0),
    },
    fixed={
        "source": "sounds", "positions": "learned", "encoder_positions": "sinusoidal-whisper", "norm_first": True,
        "scale_embeddings": False, "tie_embeddings": "all",
    },
    tensors={  # as BART's, behind two convolutions; keys have no bias
        **BART.tensors,
        **tensor_table("""
            embedding                                             decoder.embed_tokens|proj_out
            source_reader.conv1                                   encoder.conv1
            source_reader.conv2                                   encoder.conv2
            decoder.positions                                     decoder.embed_positions
            <stack>.blocks.*.attention.queries_keys_values.bias   <stack>.layers.*.self_attn.(q,k,v)_proj.bias?
            <stack>.blocks.*.cross.keys_values.bias               <stack>.layers.*.encoder_attn.(k,v)_proj.bias?
        """),
    },
    rules=(rules.WHISPER_WINDOW,),
    supported={"scale_embedding": (False,), "tie_word_embeddings": (True,)},
    ignored=("encoder.embed_positions.weight", "proj_out.weight"),
    harmless=BART.harmless + """
        apply_spec_augment classifier_proj_size forced_decoder_ids mask_feature_length mask_feature_min_masks
        mask_feature_prob mask_time_length mask_time_min_masks mask_time_prob median_filter_width use_weighted_layer_sum
    """,
)


def _t5_tensors(config: ModelConfig) -> str:
    up = "wi_1" if config.gated else "wi"
    return f"""
        encoder.blocks.*.feed_forward.up             encoder.block.*.layer.1.DenseReluDense.{up}
        decoder.blocks.*.feed_forward.up             decoder.block.*.layer.2.DenseReluDense.{up}
    """


T5 = Family(
    name="T5", architecture="T5ForConditionalGeneration",
    keys={
        "vocab_size": "vocab_size", "d_model": "width", "d_kv": "head_width", "d_ff": "feed_forward",
        "num_layers": "encoder_layers", "num_heads": "heads",
        "relative_attention_num_buckets": ("relative_buckets", 32),
        "relative_attention_max_distance": ("relative_distance", 128), "layer_norm_epsilon": ("norm_epsilon", 1e-6),
        "dropout_rate": ("dropout", 0.1),
    },
    fixed={
        "positions": "relative", "norm": "rms", "norm_first": True, "bias": "nowhere", "scale_embeddings": False,
        "attention_scale": 1.0, "max_positions": 512,
    },
    tensors=tensor_table("""
        embedding                                        shared|decoder.embed_tokens|encoder.embed_tokens
        source_embedding                                 shared|encoder.embed_tokens
        unembedding                                      lm_head
        <stack>.final_norm                               <stack>.final_layer_norm
        <stack>.relative_bias                            <stack>.block.0.layer.0.SelfAttention.relative_attention_bias
        <stack>.blocks.*.attention.queries_keys_values   <stack>.block.*.layer.0.SelfAttention.(q,k,v)
        <stack>.blocks.*.attention.project               <stack>.block.*.layer.0.SelfAttention.o
        <stack>.blocks.*.attention_norm.norm             <stack>.block.*.layer.0.layer_norm
        decoder.blocks.*.cross.queries                   decoder.block.*.layer.1.EncDecAttention.q
        decoder.blocks.*.cross.keys_values               decoder.block.*.layer.1.EncDecAttention.(k,v)
        decoder.blocks.*.cross.project                   decoder.block.*.layer.1.EncDecAttention.o
        decoder.blocks.*.cross_norm.norm                 decoder.block.*.layer.1.layer_norm
        encoder.blocks.*.feed_forward.gate               encoder.block.*.layer.1.DenseReluDense.wi_0
        encoder.blocks.*.feed_forward.down               encoder.block.*.layer.1.DenseReluDense.wo
        encoder.blocks.*.feed_forward_norm.norm          encoder.block.*.layer.1.layer_norm
        decoder.blocks.*.feed_forward.gate               decoder.block.*.layer.2.DenseReluDense.wi_0
        decoder.blocks.*.feed_forward.down               decoder.block.*.layer.2.DenseReluDense.wo
        decoder.blocks.*.feed_forward_norm.norm          decoder.block.*.layer.2.layer_norm
    """),
    variant=_t5_tensors,
    rules=(rules.T5_OPTIONS,),
    ignored=("embed_tokens.weight", "lm_head.weight", "EncDecAttention.relative_attention_bias.weight"),
    harmless="n_positions classifier_dropout",
)

# Decoders

GPT2 = Family(
    name="GPT-2", architecture="GPT2LMHeadModel", prefix="transformer.",
    keys={
        "vocab_size": "vocab_size", "n_embd": "width", "n_head": "heads", "n_layer": "decoder_layers",
        "n_positions": "max_positions", "activation_function": ("activation", "gelu_new"),
        "layer_norm_epsilon": ("norm_epsilon", 1e-5), "resid_pdrop": ("dropout", 0.1),
        "attn_pdrop": ("attention_dropout", 0.1),
    },
    fixed={"shape": "decoder", "norm_first": True, "positions": "learned", "scale_embeddings": False},
    tensors=tensor_table("""
        embedding                                        wte
        unembedding                                      lm_head
        decoder.positions                                wpe
        decoder.final_norm                               ln_f
        decoder.blocks.*.attention.queries_keys_values   h.*.attn.c_attn    transposed
        decoder.blocks.*.attention.project               h.*.attn.c_proj    transposed
        decoder.blocks.*.attention_norm.norm             h.*.ln_1
        decoder.blocks.*.feed_forward.up                 h.*.mlp.c_fc       transposed
        decoder.blocks.*.feed_forward.down               h.*.mlp.c_proj     transposed
        decoder.blocks.*.feed_forward_norm.norm          h.*.ln_2
    """),
    rules=(rules.tied(True), rules.GPT2_OPTIONS),
    supported={"scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)},
    ignored=(".attn.bias", ".attn.masked_bias", "lm_head.weight"),  # the causal mask, a tensor in older files
    harmless="""
        n_ctx embd_pdrop reorder_and_upcast_attn summary_activation summary_first_dropout
        summary_proj_to_labels summary_type summary_use_proj
    """,
)


def _llama_tensors(norm: str, before_feed_forward: str) -> str:
    return f"""
        embedding                                        embed_tokens
        unembedding                                      lm_head
        decoder.final_norm                               norm                                     {norm}
        decoder.blocks.*.attention.queries_keys_values   layers.*.self_attn.(q,k,v)_proj
        decoder.blocks.*.attention.query_norm            layers.*.self_attn.q_norm                {norm}
        decoder.blocks.*.attention.key_norm              layers.*.self_attn.k_norm                {norm}
        decoder.blocks.*.attention.project               layers.*.self_attn.o_proj
        decoder.blocks.*.attention_norm.norm             layers.*.input_layernorm                 {norm}
        decoder.blocks.*.attention_norm.output_norm      layers.*.post_attention_layernorm        {norm}
        decoder.blocks.*.feed_forward.up                 layers.*.mlp.up_proj
        decoder.blocks.*.feed_forward.gate               layers.*.mlp.gate_proj
        decoder.blocks.*.feed_forward.down               layers.*.mlp.down_proj
        decoder.blocks.*.feed_forward_norm.norm          layers.*.{before_feed_forward}           {norm}
        decoder.blocks.*.feed_forward_norm.output_norm   layers.*.post_feedforward_layernorm      {norm}
    """


LLAMA = Family(
    name="Llama", architecture="LlamaForCausalLM", prefix="model.",
    keys={
        "vocab_size": "vocab_size", "hidden_size": "width", "num_attention_heads": "heads",
        "num_key_value_heads": ("key_value_heads", 0), "head_dim": ("head_width", 0),
        "num_hidden_layers": "decoder_layers", "intermediate_size": "feed_forward",
        "rms_norm_eps": ("norm_epsilon", 1e-6), "attention_dropout": ("attention_dropout", 0.0),
    },
    fixed={
        "shape": "decoder", "activation": "swiglu", "norm": "rms", "norm_first": True, "positions": "rotary",
        "scale_embeddings": False, "dropout": 0.0,
    },
    tensors=tensor_table(_llama_tensors("plain", "post_attention_layernorm")),
    rules=(ROTARY, rules.tied(False), rules.BIASES),
    supported={"hidden_act": ("silu",), "pretraining_tp": (1,)},
    ignored=("rotary_emb.inv_freq", "lm_head.weight"),
    harmless="is_llama_config",
)
MISTRAL = replace(
    LLAMA, name="Mistral", architecture="MistralForCausalLM",
    keys={**LLAMA.keys, "num_key_value_heads": ("key_value_heads", 8)},
    fixed={**LLAMA.fixed, "bias": "nowhere"},
    rules=(ROTARY, rules.tied(False), rules.WINDOW),
    harmless="",
)
QWEN2 = replace(
    LLAMA, name="Qwen 2", architecture="Qwen2ForCausalLM",
    fixed={**LLAMA.fixed, "bias": "qkv"},
    rules=(ROTARY, rules.tied(False), rules.WINDOW_OF_LATER_LAYERS),
    harmless="use_mrope",
)
QWEN3 = replace(
    LLAMA, name="Qwen 3", architecture="Qwen3ForCausalLM",
    fixed={**LLAMA.fixed, "query_key_norm": True},
    rules=(ROTARY, rules.tied(False), rules.ATTENTION_BIAS, rules.WINDOW_OF_LATER_LAYERS),
    harmless="",
)
GEMMA2 = replace(
    LLAMA, name="Gemma 2", architecture="Gemma2ForCausalLM",
    keys={**LLAMA.keys, "head_dim": ("head_width", 256)},
    fixed={**LLAMA.fixed, "activation": "geglu", "scale_embeddings": True, "output_norm": True},
    tensors=tensor_table(_llama_tensors("minus-one", "pre_feedforward_layernorm")),
    rules=(rules.tied(True), rules.GEMMA_ATTENTION, rules.ATTENTION_BIAS, ROTARY, rules.window_in_a_pattern(2)),
    supported={"use_bidirectional_attention": (None, False)},
    ignored=("lm_head.weight",),
    harmless="cache_implementation hidden_act",
)
GEMMA3 = replace(
    GEMMA2, name="Gemma 3", architecture="Gemma3ForCausalLM",
    fixed={**GEMMA2.fixed, "query_key_norm": True},
    rules=(
        rules.tied(True),
        rules.GEMMA_ATTENTION,
        rules.ATTENTION_BIAS,
        TWO_ROTARY_BASES,
        rules.window_in_a_pattern(6),
    ),
)

# Encoders


def _bert_tensors(head: str, positions: str) -> str:
    return f"""
        embedding                                        embeddings.word_embeddings
        encoder.positions                                embeddings.position_embeddings           {positions}
        encoder.segments                                 embeddings.token_type_embeddings
        encoder.embedding_norm                           embeddings.LayerNorm
        encoder.blocks.*.attention.queries_keys_values   encoder.layer.*.attention.self.(query,key,value)
        encoder.blocks.*.attention.project               encoder.layer.*.attention.output.dense
        encoder.blocks.*.attention_norm.norm             encoder.layer.*.attention.output.LayerNorm
        encoder.blocks.*.feed_forward.up                 encoder.layer.*.intermediate.dense
        encoder.blocks.*.feed_forward.down               encoder.layer.*.output.dense
        encoder.blocks.*.feed_forward_norm.norm          encoder.layer.*.output.LayerNorm
        pooler                                           pooler.dense
        unembedding                                      {head}.decoder
        unembedding_bias                                 {head}.bias|{head}.decoder.bias
    """


BERT = Family(
    name="BERT", architecture="Bert*", prefix="bert.",
    keys={
        "vocab_size": "vocab_size", "hidden_size": "width", "num_attention_heads": "heads",
        "num_hidden_layers": "encoder_layers", "intermediate_size": "feed_forward",
        "max_position_embeddings": "max_positions", "hidden_act": ("activation", "gelu"),
        "layer_norm_eps": ("norm_epsilon", 1e-12), "hidden_dropout_prob": ("dropout", 0.1),
        "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    },
    fixed={"shape": "encoder", "positions": "learned", "embedding_norm": True, "scale_embeddings": False},
    tensors=tensor_table(f"""{_bert_tensors("cls.predictions", "plain")}
        masked_head.dense                                cls.predictions.transform.dense
        masked_head.norm                                 cls.predictions.transform.LayerNorm
    """),
    rules=(rules.SEGMENTS, rules.encoder_heads("cls.predictions.", "pooler.dense")),
    supported={
        "position_embedding_type": ("absolute",), "directionality": ("bidi",), "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    # The head for the next sentence is not part of our model, and position ids are a buffer.
    ignored=(
        *("cls.seq_relationship.weight", "cls.seq_relationship.bias", "position_ids", "token_type_ids"),
        *("decoder.weight", "decoder.bias"),
    ),
    harmless="""
        classifier_dropout pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
        pooler_size_per_head pooler_type
    """,
)
ROBERTA = replace(
    BERT, name="RoBERTa", architecture="Roberta*", prefix="roberta.",
    tensors=tensor_table(f"""{_bert_tensors("lm_head", "from-row-2")}
        masked_head.dense                                lm_head.dense
        masked_head.norm                                 lm_head.layer_norm
    """),
    rules=(rules.SEGMENTS, rules.encoder_heads("lm_head.", "pooler.dense"), rules.ROBERTA_OPTIONS),
    supported={**BERT.supported, "pad_token_id": (1,)},
)
DISTILBERT = Family(
    name="DistilBERT", architecture="DistilBert*", prefix="distilbert.",
    keys={
        "vocab_size": "vocab_size", "dim": "width", "n_heads": "heads", "n_layers": "encoder_layers",
        "hidden_dim": "feed_forward", "max_position_embeddings": "max_positions", "activation": ("activation", "gelu"),
        "dropout": ("dropout", 0.1), "attention_dropout": ("attention_dropout", 0.1),
    },
    fixed={**BERT.fixed, "norm_epsilon": 1e-12},
    tensors=tensor_table("""
        embedding                                        embeddings.word_embeddings
        encoder.positions                                embeddings.position_embeddings
        encoder.embedding_norm                           embeddings.LayerNorm
        encoder.blocks.*.attention.queries_keys_values   transformer.layer.*.attention.(q,k,v)_lin
        encoder.blocks.*.attention.project               transformer.layer.*.attention.out_lin
        encoder.blocks.*.attention_norm.norm             transformer.layer.*.sa_layer_norm
        encoder.blocks.*.feed_forward.up                 transformer.layer.*.ffn.lin1
        encoder.blocks.*.feed_forward.down               transformer.layer.*.ffn.lin2
        encoder.blocks.*.feed_forward_norm.norm          transformer.layer.*.output_layer_norm
        masked_head.dense                                vocab_transform
        masked_head.norm                                 vocab_layer_norm
        unembedding                                      vocab_projector
        unembedding_bias                                 vocab_projector.bias
    """),
    rules=(rules.encoder_heads("vocab_"),),
    ignored=("vocab_projector.weight", "position_ids"),
    # With sinusoidal positions, their table is stored like a learned one.
    harmless="qa_dropout seq_classif_dropout sinusoidal_pos_embds output_past",
)

FAMILIES = {
    "marian": MARIAN, "bart": BART, "mbart": MBART, "m2m_100": M2M100, "pegasus": PEGASUS, "whisper": WHISPER, "t5": T5,
    "gpt2": GPT2, "llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "qwen3": QWEN3, "gemma2": GEMMA2, "gemma3_text": GEMMA3,
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "camembert": ROBERTA, "distilbert": DISTILBERT,
}
