"""Writes a model for CTranslate2 through its own specification classes: float32, float16, bf16 or int8, with our tokenizer.

Our stacked matrices have the layout of its fused ones, so tensors are taken as they are. Tables of sinusoids are stored.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.exchange.check import BEAM, Check, Samples, compare, count_equal
from seq2see.exchange.nearest import find_nearest
from seq2see.exchange.tokenizer_files import TARGET
from seq2see.exchange.tokenizer_writer import vocabulary
from seq2see.model.positions import sinusoids
from seq2see.storage.pipeline import Pipeline

FORMAT = "CTranslate2"
INSTALL = 'writing CTranslate2 models needs the package "ctranslate2": pip install "seq2see[ctranslate2]"'
QUANTIZATION = {"float32": None, "float16": "float16", "bf16": "bfloat16", "int8": "int8"}
_ACTIVATIONS = {
    "relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH", "geglu": "GELUTanh",
}  # fmt: skip


def write_ctranslate2(pipeline: Pipeline, folder: Path, precision: str) -> list[str]:
    """Writes a model; its tokenizer is written beside it. Returns what was done, in a few words each."""
    config = pipeline.config.model
    if config.shape == "encoder":
        raise UserError(
            f"{FORMAT} is for translators and language models, and this is an encoder: export it to huggingface"
        )
    find_nearest(config, FORMAT, {FORMAT: FORMAT}, lambda name, config: _held(config))
    try:
        from ctranslate2 import specs
    except ImportError:
        raise UserError(INSTALL) from None
    decoder = _stack_spec(specs, config, specs.transformer_spec.TransformerDecoderSpec, config.decoder_layers)
    # Copies: the quantisation changes tensors in place.
    weights = {name: tensor.float().clone() for name, tensor in pipeline.network.state_dict().items()}
    _fill_decoder(decoder, config, weights)
    decoder.projection.weight = weights.get("unembedding.weight", weights["embedding.weight"])
    if "unembedding_bias" in weights:
        decoder.projection.bias = weights["unembedding_bias"]
    if config.shape == "encoder-decoder":
        encoder = _stack_spec(specs, config, specs.transformer_spec.TransformerEncoderSpec, config.encoder_layers)
        _fill_stack(encoder, config, "encoder", weights)
        encoder.embeddings[0].weight = weights.get("source_embedding.weight", weights["embedding.weight"])
        spec = specs.TransformerSpec(encoder, decoder)
        spec.register_source_vocabulary(vocabulary(pipeline.tokenizers[0], config))
        spec.register_target_vocabulary(vocabulary(pipeline.tokenizers[1], config))
    else:
        spec = specs.TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(vocabulary(pipeline.tokenizers[1], config))
    _set_config(spec.config, pipeline.tokenizers[1], config)
    spec.validate()
    spec.optimize(quantization=QUANTIZATION[precision])
    spec.save(str(folder))
    return ["Transformer specification"]


def _held(config: ModelConfig) -> ModelConfig:
    """Returns the nearest configuration that CTranslate2 can hold."""
    changes: dict[str, Any] = {
        "attention_cap": 0.0, "attention_window": 0, "local_layers": (), "local_rotary_base": 0.0, "segments": 0,
        "rotary_magnitude": 1.0,
    }  # fmt: skip
    if config.positions == "relative":
        changes["positions"] = "sinusoidal"
    if len(set(config.rotary_factors)) > 1:
        changes["rotary_factors"] = ()
    if config.shape == "encoder-decoder":  # its cross-attention would have these norms, too
        changes |= {"query_key_norm": False, "output_norm": False}
    if not config.norm_first:
        changes["output_norm"] = False
    return replace(config, **changes)


def _stack_spec(specs: Any, config: ModelConfig, kind: Any, layers: int) -> Any:
    options: dict[str, Any] = {
        "pre_norm": config.norm_first, "rms_norm": config.norm == "rms", "ffn_glu": config.gated,
        "activation": specs.common_spec.Activation[_ACTIVATIONS[config.activation]],
        "layernorm_embedding": config.embedding_norm, "qk_norm": config.query_key_norm,
        "pre_post_layer_norm": config.output_norm,
    }  # fmt: skip
    if config.actual_key_value_heads != config.heads:
        options["num_heads_kv"] = config.actual_key_value_heads
    if config.actual_head_width * config.heads != config.width:
        options["head_dim"] = config.actual_head_width
    if config.positions == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rotary_base}
        if config.rotary_factors:
            options["rotary_scaling_type"] = specs.attention_spec.RotaryScalingType.Linear
            options["rotary_scaling_factor"] = config.rotary_factors[0]
    if kind is specs.transformer_spec.TransformerDecoderSpec:
        # The attention that it can return: the mean of all heads of the last layer.
        options |= {"alignment_layer": -1, "alignment_heads": config.heads}
        options["with_encoder_attention"] = config.shape == "encoder-decoder"
    return kind(layers, config.heads, **options)


def _fill_stack(spec: Any, config: ModelConfig, stack: str, weights: Mapping[str, Tensor]) -> None:
    """Fills a stack, except its token embeddings and cross-attention."""
    spec.scale_embeddings = config.scale_embeddings
    table = _position_table(config, stack, weights)
    if table is not None:
        spec.position_encodings.encodings = table
    for name, norm in (("embedding_norm", "layernorm_embedding"), ("final_norm", "layer_norm")):
        if f"{stack}.{name}.weight" in weights:
            _fill_norm(getattr(spec, norm), f"{stack}.{name}", weights)
    for i, layer in enumerate(spec.layer):
        block = f"{stack}.blocks.{i}"
        _fill_attention(layer.self_attention, config, f"{block}.attention", weights)
        _fill_linear(layer.self_attention.linear[0], f"{block}.attention.queries_keys_values", weights)
        first, gated = ("gate", "up") if config.gated else ("up", "")
        _fill_linear(layer.ffn.linear_0, f"{block}.feed_forward.{first}", weights)
        if gated:
            _fill_linear(layer.ffn.linear_0_noact, f"{block}.feed_forward.{gated}", weights)
        _fill_linear(layer.ffn.linear_1, f"{block}.feed_forward.down", weights)
        if config.output_norm:
            norms = {
                "attention_norm.norm": layer.input_layer_norm, "attention_norm.output_norm": layer.post_attention_layer_norm,
                "feed_forward_norm.norm": layer.pre_feedforward_layer_norm,
                "feed_forward_norm.output_norm": layer.post_feedforward_layer_norm,
            }  # fmt: skip
        else:
            norms = {
                "attention_norm.norm": layer.self_attention.layer_norm,
                "feed_forward_norm.norm": layer.ffn.layer_norm,
            }
        for name, norm in norms.items():
            _fill_norm(norm, f"{block}.{name}", weights)


def _fill_decoder(spec: Any, config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    import numpy as np

    _fill_stack(spec, config, "decoder", weights)
    spec.embeddings.weight = weights["embedding.weight"]
    if config.logit_scale != 1:
        spec.scale_outputs = np.float32(config.logit_scale)
    if config.logit_cap:
        spec.final_logit_softcapping = np.float32(config.logit_cap)
    for i, layer in enumerate(spec.layer):
        block = f"decoder.blocks.{i}"
        if config.shape == "encoder-decoder":
            _fill_attention(layer.attention, config, f"{block}.cross", weights)
            _fill_linear(layer.attention.linear[0], f"{block}.cross.queries", weights)
            _fill_linear(layer.attention.linear[1], f"{block}.cross.keys_values", weights)
            _fill_norm(layer.attention.layer_norm, f"{block}.cross_norm.norm", weights)


def _fill_attention(spec: Any, config: ModelConfig, name: str, weights: Mapping[str, Tensor]) -> None:
    import numpy as np

    _fill_linear(spec.linear[-1], f"{name}.project", weights)
    if config.attention_scale:
        spec.queries_scale = np.float32(config.attention_scale)
    if f"{name}.query_norm.weight" in weights:
        spec.q_norm.gamma, spec.k_norm.gamma = (weights[f"{name}.{x}_norm.weight"] for x in ("query", "key"))


def _fill_linear(spec: Any, name: str, weights: Mapping[str, Tensor]) -> None:
    spec.weight = weights[f"{name}.weight"]
    if f"{name}.bias" in weights:
        spec.bias = weights[f"{name}.bias"]


def _fill_norm(spec: Any, name: str, weights: Mapping[str, Tensor]) -> None:
    spec.gamma = weights[f"{name}.weight"]
    if hasattr(spec, "beta"):
        spec.beta = weights.get(f"{name}.bias", torch.zeros_like(spec.gamma))


def _position_table(config: ModelConfig, stack: str, weights: Mapping[str, Tensor]) -> Tensor | None:
    if config.positions == "rotary":
        return None
    if config.positions == "learned":
        return weights[f"{stack}.positions.weight"]
    if config.positions == "none":
        return torch.zeros(config.max_positions, config.width)
    return sinusoids(config.max_positions, config.width, config.positions)


def _set_config(config: Any, tokenizer: Tokenizer, model: ModelConfig) -> None:
    framing, names = tokenizer.framing, vocabulary(tokenizer, model)
    config.bos_token, config.eos_token = names[framing.start], names[framing.end]
    config.unk_token = names[tokenizer.unknown] if tokenizer.unknown is not None else ""
    config.layer_norm_epsilon = model.norm_epsilon
    if model.shape == "encoder-decoder":
        config.decoder_start_token = names[framing.prompt[0] if framing.prompt else framing.start]


def check_ctranslate2(samples: Samples, folder: Path) -> Check:
    """Runs an export: log-probabilities of our output in a translator, logits in a language model, and greedy search."""
    import ctranslate2

    pipeline, config = samples.pipeline, samples.pipeline.config.model
    names = [vocabulary(tokenizer, config) for tokenizer in pipeline.tokenizers]
    sources = [[names[0][id] for id in ids] for ids in samples.inputs]
    special = samples.special_tokens
    common = {"suppress_sequences": [[names[1][id]] for id in special.banned], "max_batch_size": 1}
    results = samples.results()
    runtime = f"ctranslate2 {ctranslate2.__version__}"
    if not samples.translates:
        generator = ctranslate2.Generator(str(folder), device="cpu")
        logits = [_logits(generator, ids) for ids in samples.inputs]
        generated = generator.generate_batch(
            sources,
            max_length=samples.new_tokens,
            include_prompt_in_result=False,
            beam_size=1,
            sampling_topk=1,
            **common,
        )
        equal = {"greedy outputs": count_equal(samples.outputs(), [r.sequences_ids[0] for r in generated])}
        return compare(runtime, "logits", results, logits, equal)
    translator = ctranslate2.Translator(str(folder), device="cpu")
    outputs = [[names[1][id] for id in target[1:]] for target in samples.targets]
    scored = translator.score_batch(sources, outputs, max_batch_size=1)
    theirs = [torch.tensor(result.log_probs) for result in scored]
    ours = [_scores(r, [*t[1:], special.end]) for r, t in zip(results, samples.targets, strict=True)]
    prefixes = [[names[1][id] for id in special.prompt_with(())[1:]] or None] * len(sources)
    equal = {}
    for beam, what in ((1, "greedy outputs"), (BEAM, f"outputs with beam {BEAM}")):
        found = translator.translate_batch(
            sources, prefixes, beam_size=beam, max_decoding_length=samples.new_tokens + special.forced, **common
        )
        index = {name: id for id, name in enumerate(names[1])}
        ids = [[index[token] for token in result.hypotheses[0]][special.forced :] for result in found]
        equal[what] = count_equal(samples.outputs(beam, early_stopping=True), ids)  # as its beam search ends
    return compare(runtime, "log-probabilities", ours, theirs, equal)


def _logits(generator: Any, ids: list[int]) -> Tensor:
    view = generator.forward_batch([ids], return_log_probs=False)
    import numpy as np

    return torch.from_numpy(np.array(view))[0].float()


def _scores(logits: Tensor, tokens: list[int]) -> Tensor:
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


USAGE = {
    "encoder-decoder": f"""import ctranslate2
from tokenizers import Tokenizer

translator, tokenizer = ctranslate2.Translator(PATH), Tokenizer.from_file(PATH + "/tokenizer.json")
target = tokenizer  # if there is a directory {TARGET}/: Tokenizer.from_file(PATH + "/{TARGET}/tokenizer.json")
(result,) = translator.translate_batch([tokenizer.encode("…").tokens], beam_size=4)
print(target.decode([target.token_to_id(token) for token in result.hypotheses[0]]))""",
    "decoder": """import ctranslate2
from tokenizers import Tokenizer

generator, tokenizer = ctranslate2.Generator(PATH), Tokenizer.from_file(PATH + "/tokenizer.json")
(result,) = generator.generate_batch([tokenizer.encode("…").tokens], max_length=100)
print(tokenizer.decode(result.sequences_ids[0]))""",
}
