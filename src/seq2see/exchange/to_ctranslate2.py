"""Writes a model for CTranslate2 through its own specification classes: float32, float16, bf16 or int8, with our tokenizer.

Our stacked matrices have the layout of its fused ones, so tensors are taken as they are. Tables of sinusoids are stored.
CTranslate2's own converter would need transformers, and a class of theirs for every model: of the nine kinds of models in our
tests, six have none, and version 4.8.4 fails on the other three beside transformers 5.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.config.model import Shape
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.exchange.check import BEAM, Check, Exporter, Samples, compare, count_equal
from seq2see.exchange.ctranslate2 import FEED_FORWARD, NORMS, STACKS
from seq2see.exchange.nearest import find_nearest
from seq2see.exchange.tables import find_stored, tensor_table
from seq2see.exchange.tokenizer_files import TARGET
from seq2see.exchange.tokenizer_writer import vocabulary
from seq2see.model.positions import sinusoids
from seq2see.storage.pipeline import Pipeline

FORMAT = "CTranslate2"
INSTALL = 'writing CTranslate2 models needs the package "ctranslate2": pip install "seq2see[ctranslate2]"'
QUANTIZATION = {"float32": None, "float16": "float16", "bf16": "bfloat16", "int8": "int8"}
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}  # the others: GELU by tanh


def write_ctranslate2(pipeline: Pipeline, folder: Path, precision: str) -> list[str]:
    """Writes a model. Returns what was done, in a few words each."""
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
    names = [vocabulary(tokenizer, config) for tokenizer in pipeline.tokenizers]
    decoder = _stack_spec(specs, config, specs.transformer_spec.TransformerDecoderSpec, config.decoder_layers)
    if config.shape == "encoder-decoder":
        encoder = _stack_spec(specs, config, specs.transformer_spec.TransformerEncoderSpec, config.encoder_layers)
        spec = specs.TransformerSpec(encoder, decoder)
        spec.register_source_vocabulary(names[0])
        spec.register_target_vocabulary(names[1])
    else:
        spec = specs.TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(names[1])
    _fill(spec, config, pipeline.network.state_dict())
    _set_config(spec.config, pipeline.tokenizers[1], config, names[1])
    spec.validate()
    spec.optimize(quantization=QUANTIZATION[precision])
    spec.save(str(folder))
    return ["Transformer specification"]


def _held(config: ModelConfig) -> ModelConfig:
    """Returns the nearest configuration that CTranslate2 can hold."""
    changes: dict[str, Any] = {"attention_cap": 0.0, "segments": 0, "rotary_magnitude": 1.0}
    changes |= {"attention_window": 0, "local_layers": (), "local_rotary_base": 0.0}
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
        "pre_norm": config.norm_first,
        "rms_norm": config.norm == "rms",
        "ffn_glu": config.gated,
        "activation": specs.common_spec.Activation[_ACTIVATIONS.get(config.activation, "GELUTanh")],
        "layernorm_embedding": config.embedding_norm,
        "qk_norm": config.query_key_norm,
        "pre_post_layer_norm": config.output_norm,
    }
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


_OUTPUT_NORMS = """
    <stack>.blocks.*.attention_norm.norm             <stack>.layer_*.input_layer_norm
    <stack>.blocks.*.attention_norm.output_norm      <stack>.layer_*.post_attention_layer_norm
    <stack>.blocks.*.feed_forward_norm.norm          <stack>.layer_*.pre_feedforward_layer_norm
    <stack>.blocks.*.feed_forward_norm.output_norm   <stack>.layer_*.post_feedforward_layer_norm
"""
_GATED = """
    <stack>.blocks.*.feed_forward.gate               <stack>.layer_*.ffn.linear_0
    <stack>.blocks.*.feed_forward.up                 <stack>.layer_*.ffn.linear_0_noact
"""
_TENSORS = """
    source_embedding                                 encoder.embeddings_0
    embedding                                        decoder.embeddings
    unembedding                                      decoder.projection
    unembedding_bias                                 decoder.projection.bias
    encoder.positions.weight                         encoder.position_encodings.encodings
    <stack>.embedding_norm                           <stack>.layernorm_embedding
    <stack>.blocks.*.attention.query_norm            <stack>.layer_*.self_attention.q_norm
    <stack>.blocks.*.attention.key_norm              <stack>.layer_*.self_attention.k_norm
"""


def _fill(spec: Any, config: ModelConfig, state: Mapping[str, Tensor]) -> None:
    """Fills a specification: tensors first, then what it stores as tensors and numbers of its own."""
    norms, feed_forward = _OUTPUT_NORMS if config.output_norm else NORMS, _GATED if config.gated else FEED_FORWARD
    table = {**STACKS, **tensor_table(_TENSORS + norms + feed_forward)}
    # Copies: the quantisation changes tensors in place.
    weights = {name: tensor.float().clone() for name, tensor in state.items()}
    weights.setdefault("unembedding.weight", weights["embedding.weight"])
    if config.has_encoder:
        weights.setdefault("source_embedding.weight", weights["embedding.weight"])
    for ours, tensor in weights.items():
        *path, name = find_stored(table, ours).names[0].split(".")
        part = _part(spec, path)
        if hasattr(part, "gamma"):  # of a norm, which has no bias in every model of ours
            name = {"weight": "gamma", "bias": "beta"}[name]
            if name == "gamma" and hasattr(part, "beta"):
                part.beta = torch.zeros_like(tensor)
        setattr(part, name, tensor)
    for name in ("encoder", "decoder")[not config.has_encoder :]:
        stack = getattr(spec, name)
        stack.scale_embeddings = config.scale_embeddings
        if config.positions not in ("rotary", "learned"):
            size = (config.max_positions, config.width)
            none = config.positions == "none"
            stack.position_encodings.encodings = torch.zeros(size) if none else sinusoids(*size, config.positions)
        for layer in stack.layer if config.attention_scale else ():
            for attention in filter(None, (layer.self_attention, getattr(layer, "attention", None))):
                attention.queries_scale = np.float32(config.attention_scale)
    if config.logit_scale != 1:
        spec.decoder.scale_outputs = np.float32(config.logit_scale)
    if config.logit_cap:
        spec.decoder.final_logit_softcapping = np.float32(config.logit_cap)


def _part(spec: Any, path: list[str]) -> Any:
    """Follows a path such as decoder.layer_3.ffn: a name that no part has is an item of a list."""
    for name in path:
        if hasattr(spec, name):
            spec = getattr(spec, name)
        else:
            items, _, number = name.rpartition("_")
            spec = getattr(spec, items)[int(number)]
    return spec


def _set_config(config: Any, tokenizer: Tokenizer, model: ModelConfig, names: list[str]) -> None:
    framing = tokenizer.framing
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
        views = (generator.forward_batch([ids], return_log_probs=False) for ids in samples.inputs)
        logits = [torch.from_numpy(np.array(view))[0].float() for view in views]
        settings = {"include_prompt_in_result": False, "beam_size": 1, "sampling_topk": 1, **common}
        generated = generator.generate_batch(sources, max_length=samples.new_tokens, **settings)
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


def _scores(logits: Tensor, tokens: list[int]) -> Tensor:
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


USAGE: dict[Shape, str] = {
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
EXPORTER = Exporter(
    precisions=("float32", "bf16", "float16", "int8"),
    runtime="ctranslate2",
    package="ctranslate2",
    write=lambda pipeline, folder, precision, source: write_ctranslate2(pipeline, folder, precision),
    check=check_ctranslate2,
    usage=USAGE,
)
