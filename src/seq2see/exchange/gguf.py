"""Opens GGUF files; the architectures of llama.cpp are families with the options of Hugging Face's and names of their own."""

from dataclasses import replace
from pathlib import Path

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.exchange import families
from seq2see.exchange.gguf_file import GgufFile
from seq2see.exchange.gguf_tokenizer import read_tokenizer
from seq2see.exchange.jinja_template import JinjaTemplate
from seq2see.exchange.tables import Family, ForeignConfig, ForeignWeights, Keys, Options, Rule, tensor_table
from seq2see.storage.chat import ChatTemplate
from seq2see.storage.foreign_model import ForeignModel, Reader

ROPE_FREQS = "rope_freqs.weight"  # one divisor per frequency (Llama 3); also the key under which the rules see it


def _rotary_options(config: ForeignConfig, default_base: float) -> Options:
    heads, scale = config["attention.head_count"], config.get("attention.scale", 0.0)
    if not isinstance(heads, int) or not isinstance(config.get("attention.head_count_kv", heads), int):
        raise UserError("layers with different numbers of heads are not supported")
    width = config.get("attention.key_length", config["embedding_length"] // heads)
    if config.get("attention.value_length", width) != width:
        raise UserError("attention.key_length and attention.value_length must be equal")
    options: Options = {"rotary_base": float(config.get("rope.freq_base", default_base))}
    factor = config.get("rope.scaling.factor", config.get("rope.scale_linear", 1.0))
    config.used.add("rope.scaling.original_context_length")
    if config.require("rope.scaling.type", "none", "linear") == "linear" and factor != 1:
        options["rotary_factors"] = (float(factor),) * (width // 2)
    if divisors := config.get(ROPE_FREQS, ()):
        options["rotary_factors"] = tuple(divisors)
    return options | ({"attention_scale": float(scale)} if scale else {})


def _write_rotary(config: ModelConfig) -> Keys:
    width = config.actual_head_width
    return {
        "rope.freq_base": config.rotary_base,
        "rope.dimension_count": width,
        "attention.key_length": width,
        "attention.value_length": width,
    }


def _read_gemma3(config: ForeignConfig) -> Options:
    """All layers except every n-th are local, with a base of their own."""
    heads, layers = config["attention.head_count"], config["block_count"]
    window, every = config.get("attention.sliding_window", 0), config.get("attention.sliding_window_pattern", 6)
    options: Options = {"local_rotary_base": float(config.get("rope.freq_base_swa", 10000.0))}
    if window:
        local = tuple(layer for layer in range(layers) if (layer + 1) % every)
        options |= {"attention_window": window, "local_layers": local}
    if layers == 62:  # the 27B model, the only one with its own scale
        options["attention_scale"] = (config["embedding_length"] / heads) ** -0.5
    return options | _rotary_options(config, 1000000.0)


TIED = Rule(
    lambda config: {"tie_embeddings": "none" if "output.weight" in config.tensors else "all"}, lambda config: {}
)
ROTARY = Rule(lambda config: _rotary_options(config, 10000.0), _write_rotary)
# llama.cpp reads the divisors of Llama only.
ROTARY_WITH_DIVISORS = replace(
    ROTARY, write=lambda config: {**_write_rotary(config), ROPE_FREQS: list(config.rotary_factors)}
)
GEMMA3 = Rule(_read_gemma3, lambda config: {})

_SIZES = {
    "vocab_size": "vocab_size",
    "embedding_length": "width",
    "block_count": "decoder_layers",
    "feed_forward_length": "feed_forward",
    "attention.head_count": "heads",
    "context_length": "max_positions",
}
LLAMA = Family(
    name="llama",
    keys={
        **_SIZES,
        "attention.head_count_kv": ("key_value_heads", 0),
        "attention.key_length": ("head_width", 0),
        "attention.layer_norm_rms_epsilon": "norm_epsilon",
    },
    fixed={**families.LLAMA.fixed, "bias": "nowhere"},
    tensors=tensor_table("""
        embedding                                        token_embd
        unembedding                                      output
        decoder.positions                                position_embd
        decoder.final_norm                               output_norm
        decoder.blocks.*.attention.queries_keys_values   blk.*.attn_(q,k,v)
        decoder.blocks.*.attention.query_norm            blk.*.attn_q_norm
        decoder.blocks.*.attention.key_norm              blk.*.attn_k_norm
        decoder.blocks.*.attention.project               blk.*.attn_output
        decoder.blocks.*.attention_norm.norm             blk.*.attn_norm
        decoder.blocks.*.attention_norm.output_norm      blk.*.post_attention_norm
        decoder.blocks.*.feed_forward.up                 blk.*.ffn_up
        decoder.blocks.*.feed_forward.gate               blk.*.ffn_gate
        decoder.blocks.*.feed_forward.down               blk.*.ffn_down
        decoder.blocks.*.feed_forward_norm.norm          blk.*.ffn_norm
        decoder.blocks.*.feed_forward_norm.output_norm   blk.*.post_ffw_norm
    """),
    # llama.cpp rotates neighbouring dimensions in Llama only, and permutes the rows of queries and keys to match.
    variant=lambda config: (
        "decoder.blocks.*.attention.queries_keys_values blk.*.attn_(q,k,v) interleaved,interleaved,plain"
    ),
    rules=(TIED, ROTARY_WITH_DIVISORS),
    supported={"attention.sliding_window": (0,)},
    ignored=(ROPE_FREQS,),
    harmless="rope.scaling.finetuned rope.dimension_count tensor_data_layout",
)
_PLAIN_LLAMA = replace(LLAMA, variant=lambda config: "", rules=(TIED, ROTARY))
ARCHITECTURES = {
    "llama": LLAMA,
    "qwen2": replace(_PLAIN_LLAMA, name="qwen2", fixed=families.QWEN2.fixed),
    "qwen3": replace(_PLAIN_LLAMA, name="qwen3", fixed={**families.QWEN3.fixed, "bias": "nowhere"}),
    "gemma3": replace(
        _PLAIN_LLAMA,
        name="gemma3",
        fixed={**families.GEMMA3.fixed, "bias": "nowhere"},
        rules=(TIED, GEMMA3),
        supported={},
    ),
    "gpt2": replace(
        LLAMA,
        name="gpt2",
        keys={**_SIZES, "attention.layer_norm_epsilon": "norm_epsilon"},
        fixed={**families.GPT2.fixed, "activation": "gelu-tanh", "dropout": 0.0},
        variant=lambda config: "decoder.blocks.*.attention.queries_keys_values blk.*.attn_qkv",
        rules=(TIED,),
    ),
}


def open_gguf(path: Path) -> ForeignModel:
    """Reads everything except the weights."""
    file = GgufFile(path)
    architecture = str(file.fields.get("general.architecture"))
    if architecture not in ARCHITECTURES:
        raise UserError(
            f'{path}: the architecture "{architecture}" is not supported; supported: {", ".join(ARCHITECTURES)}'
        )
    if "token_embd.weight" not in file.tensors:
        raise UserError(f"{path}: the file has no tensor token_embd.weight: is it a part of a split file?")
    prefix = f"{architecture}."
    keys = {key.removeprefix(prefix): value for key, value in file.fields.items() if key.startswith(prefix)}
    keys["vocab_size"] = file.tensors["token_embd.weight"].shape[0]
    if ROPE_FREQS in file.tensors:
        keys[ROPE_FREQS] = file[ROPE_FREQS].double().tolist()
    try:
        weights = ForeignWeights.open(ARCHITECTURES[architecture], ForeignConfig(keys, prefix, path.name), file)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    tokenizer = read_tokenizer(file, weights.config.vocab_size)
    source = file.fields.get("tokenizer.chat_template")
    bos, eos = (tokenizer.token_text(id) for id in (tokenizer.start, tokenizer.end))
    template = JinjaTemplate(source, bos, eos) if isinstance(source, str) and source else ChatTemplate()
    kinds = ", ".join(sorted({info.kind.name for info in file.tensors.values()}))
    facts = {"architecture": architecture, "quantisation": kinds}
    return ForeignModel(f"GGUF {architecture}", weights.config, weights, (tokenizer, tokenizer), template, facts)


READER = Reader(lambda path: path.suffix == ".gguf" and path.is_file(), open_gguf)
