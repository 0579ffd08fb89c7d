"""GGUF files, the format of llama.cpp: one file with the configuration, the tokenizer and the weights, often quantised.

Needs the package `gguf` (the extra `seq2see[gguf]`) to dequantise: to float32, a few rows at a time, so that memory
never holds a second copy of a large one.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tokenizers as hf
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.data.foreign_tokenizer import ForeignTokenizer, Vocabulary
from seq2see.data.tokenizer import Framing
from seq2see.decode.chat import ChatTemplate
from seq2see.errors import UserError
from seq2see.exchange.sentencepiece import BPE, CONTROL, UNKNOWN, USER_DEFINED, Piece, SentencePieceModel
from seq2see.exchange.tables import (
    PLAIN,
    ForeignConfig,
    ForeignTensors,
    InterleavedHeads,
    Options,
    Stored,
    TensorTable,
    build_config,
    convert,
    stored,
)
from seq2see.exchange.tokenizer_files import read_backend
from seq2see.model.network import Network
from seq2see.storage.chat_template import JinjaTemplate
from seq2see.storage.foreign_model import ForeignModel
from seq2see.tensors.files import require_regular_file

TOKENIZER_JSON = "tokenizer.huggingface.json"  # the whole tokenizer, if a file has it
QUANTISATIONS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0")
ROWS = 1024  # dequantised at a time

_LLAMA_OPTIONS: Options = {
    "shape": "decoder", "activation": "swiglu", "norm": "rms", "norm_first": True, "positions": "rotary",
    "scale_embeddings": False, "dropout": 0.0, "bias": "nowhere",
}  # fmt: skip
# What each architecture has in common; the rest is in the file.
ARCHITECTURES: dict[str, Options] = {
    "llama": _LLAMA_OPTIONS,
    "qwen2": {**_LLAMA_OPTIONS, "bias": "qkv"},
    "qwen3": {**_LLAMA_OPTIONS, "query_key_norm": True},
    "gemma3": {
        **_LLAMA_OPTIONS, "activation": "geglu", "query_key_norm": True, "output_norm": True, "scale_embeddings": True,
    },
    "gpt2": {
        "shape": "decoder", "activation": "gelu-tanh", "norm_first": True, "positions": "learned", "scale_embeddings": False,
        "dropout": 0.0,
    },
}  # fmt: skip
SIZES = {
    "embedding_length": "width", "block_count": "decoder_layers", "feed_forward_length": "feed_forward",
    "attention.head_count": "heads", "context_length": "max_positions",
}  # fmt: skip
_HARMLESS = frozenset({"vocab_size", "rope.dimension_count", "rope.scaling.finetuned", "tensor_data_layout"})

# Splits a text into words before the merges, under the names that llama.cpp gives them.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKED_WORDS = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPLITS = {  # applied one after another
    "default": [r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "llama-bpe": [rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"],
    "qwen2": [rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}"],
    # These keep vowel signs with their letters, as Indic scripts need.
    "bloom": [r" ?[^(\s|.,!?…。，、।۔،)]+"],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|" + _MARKED_WORDS,
    ],
}
GPT2_SPLITS = ("gpt-2", "smollm")


def open_gguf(path: Path) -> ForeignModel:
    """Reads everything except the weights."""
    file = _GgufFile(path)
    architecture = str(file.fields.get("general.architecture"))
    if architecture not in ARCHITECTURES:
        raise UserError(
            f'{path}: the architecture "{architecture}" is not supported; supported: {", ".join(ARCHITECTURES)}'
        )
    try:
        config = model_config(file, architecture)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    tokenizer = _tokenizer(file, config)
    source = file.fields.get("tokenizer.chat_template")
    bos, eos = (tokenizer.token_text(id) for id in (tokenizer.start, tokenizer.end))
    template = JinjaTemplate(source, bos, eos) if isinstance(source, str) and source else ChatTemplate()
    kinds = ", ".join(sorted({info.kind.name for info in file.tensors.values()}))
    facts = {"architecture": architecture, "quantisation": kinds}
    table = tensor_table(config, architecture)
    weights = GgufWeights(file, table)
    return ForeignModel(f"GGUF {architecture}", config, weights, (tokenizer, tokenizer), template, facts)


_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_STRING, _ARRAY = 8, 9


class _Header:
    """Reads the metadata at the start of a file. (The package's own reader takes a minute for 250,000 tokens.)"""

    def __init__(self, data: memoryview) -> None:
        self.data, self.position = data, 0

    def take(self, size: int) -> memoryview:
        if self.position + size > len(self.data):
            raise ValueError(f"it ends at byte {len(self.data):,}, within a value of {size:,} bytes")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, kind: int) -> Any:
        value = self.numbers(kind, 1)[0]
        return float(str(value)) if value.dtype == np.float32 else value.item()  # 1e-6, not 9.999999974752427e-07

    def numbers(self, kind: int, count: int) -> Any:
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self.take(dtype.itemsize * count), dtype)

    def string(self) -> str:
        return bytes(self.take(self.number(10))).decode(errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.number(kind)
        inner, count = self.number(4), self.number(10)
        if inner in _NUMBERS:
            return self.numbers(inner, count).tolist()
        if count > len(self.data):
            raise ValueError(f"it announces a list of {count:,} values")
        return [self.value(inner) for _ in range(count)]


@dataclass(frozen=True)
class _TensorInfo:
    shape: tuple[int, ...]
    kind: Any  # gguf.GGMLQuantizationType
    offset: int


class _GgufFile:
    """The metadata of a file, and its tensors, which stay on disk."""

    def __init__(self, path: Path) -> None:
        try:
            from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
            from gguf.quants import dequantize
        except ImportError:
            raise UserError('reading GGUF files needs the package "gguf": pip install "seq2see[gguf]"') from None
        self.path, self._dequantize = path, dequantize
        try:
            self.data = np.memmap(require_regular_file(path), np.uint8, "r")
            header = _Header(memoryview(self.data))  # type: ignore[arg-type]
            self.fields, infos = _parse(header)
            alignment = int(self.fields.get("general.alignment", 32))
            start = -(-header.position // alignment) * alignment
            self.tensors: dict[str, _TensorInfo] = {}
            for name, shape, kind, offset in infos:
                self.tensors[name] = info = _TensorInfo(shape, GGMLQuantizationType(kind), start + offset)
                block, size = GGML_QUANT_SIZES[info.kind]
                if info.offset + math.prod(shape) // block * size > len(self.data):
                    raise ValueError(f"tensor {name} lies beyond its end")
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
            raise UserError(
                f"cannot read {path}: {' '.join(str(error).split())[:200]}; is the download complete?"
            ) from error
        self._sizes = GGML_QUANT_SIZES
        for name, info in self.tensors.items():
            if info.kind.name not in QUANTISATIONS:
                raise UserError(
                    f"{path}: tensor {name} is quantised as {info.kind.name}, which is not supported; supported: "
                    f"{', '.join(QUANTISATIONS)}"
                )

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Dequantises rows of a tensor, all but its last axis taken as one."""
        info = self.tensors[name]
        block, size = self._sizes[info.kind]
        row = info.shape[-1] // block * size
        data = self.data[info.offset + start * row : info.offset + stop * row]
        return torch.from_numpy(self._dequantize(np.array(data).reshape(stop - start, row), info.kind))


def _parse(header: _Header) -> tuple[dict[str, Any], list[tuple[str, tuple[int, ...], int, int]]]:
    """Returns the metadata, and the name, shape, type and offset of each tensor."""
    if bytes(header.take(4)) != _MAGIC or header.number(4) not in _VERSIONS:
        raise ValueError("it is not a GGUF file of version 2 or 3")
    tensors, entries = header.number(10), header.number(10)
    fields = {header.string(): header.value(header.number(4)) for _ in range(min(entries, len(header.data)))}
    infos = []
    for _ in range(min(tensors, len(header.data))):
        name, axes = header.string(), header.number(4)
        if axes > 4:
            raise ValueError(f"tensor {name[:80]} has {axes} axes")
        shape = tuple(reversed(header.numbers(10, axes).tolist()))  # the last axis comes first
        infos.append((name, shape, header.number(4), header.number(10)))
    return fields, infos


class _Tensors(Mapping[str, Tensor]):
    """The tensors of a file as float32, dequantised when they are read."""

    def __init__(self, file: "GgufFields") -> None:
        self.file = file

    def blocks(self, name: str) -> Iterator[Tensor]:
        """Yields a tensor in parts, a few rows each."""
        shape = self.file.shape(name)
        rows = math.prod(shape[:-1])
        for start in range(0, rows, ROWS):
            block = self.file.rows(name, start, min(start + ROWS, rows))
            yield block.view(-1, *shape[1:]) if len(shape) > 1 else block.view(-1)

    def __getitem__(self, name: str) -> Tensor:
        return torch.cat(list(self.blocks(name)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.file.tensors)

    def __len__(self) -> int:
        return len(self.file.tensors)


@dataclass(frozen=True)
class GgufWeights:
    """The weights of a GGUF file."""

    file: _GgufFile
    table: TensorTable

    def tensors(
        self, network: Network, dtype: torch.dtype | None, column_major: Collection[str] = (), device: str = "cpu"
    ) -> Iterator[tuple[str, Tensor]]:
        tensors = ForeignTensors(_Tensors(self.file), "")
        yield from convert(network, self.table, tensors, dtype, column_major, device)
        tensors.require_all_used(("rope_freqs.weight",))


class GgufFields(Protocol):
    """What the configuration of a model is read from."""

    @property
    def path(self) -> Path: ...
    @property
    def fields(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, Any]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def rows(self, name: str, start: int, stop: int) -> Tensor: ...


def model_config(file: GgufFields, architecture: str) -> ModelConfig:
    prefix = f"{architecture}."
    values = {key.removeprefix(prefix): value for key, value in file.fields.items() if key.startswith(prefix)}
    config = ForeignConfig(values, prefix, file.path.name)
    options = dict(ARCHITECTURES[architecture])
    for key, option in SIZES.items():
        options[option] = config[key]
    if "token_embd.weight" not in file.tensors:
        raise UserError("the file has no tensor token_embd.weight: is it a part of a split file?")
    vocabulary, width = file.shape("token_embd.weight")
    if width != options["width"]:
        raise UserError(f"token_embd.weight has {width} columns, but {prefix}embedding_length is {options['width']}")
    options["vocab_size"] = vocabulary
    options["tie_embeddings"] = "none" if "output.weight" in file.tensors else "all"
    if architecture == "gpt2":
        options["norm_epsilon"] = config["attention.layer_norm_epsilon"]
    else:
        options |= _llama_options(file, config, options)
    config.require_all_known(_HARMLESS)
    return build_config(options)


def _llama_options(file: GgufFields, config: ForeignConfig, options: Options) -> Options:
    heads = options["heads"]
    if not isinstance(heads, int) or not isinstance(config.get("attention.head_count_kv", heads), int):
        raise UserError("layers with different numbers of heads are not supported")
    width = config.get("attention.key_length", options["width"] // heads)
    if config.get("attention.value_length", width) != width:
        raise UserError("attention.key_length and attention.value_length must be equal")
    local_base, default_base = (10000.0, 1000000.0) if "gemma3" in config.section else (0.0, 10000.0)
    found: Options = {
        "norm_epsilon": config["attention.layer_norm_rms_epsilon"], "head_width": width,
        "key_value_heads": config.get("attention.head_count_kv", heads),
        "rotary_base": float(config.get("rope.freq_base", default_base)),
    }  # fmt: skip
    if local_base:
        found["local_rotary_base"] = float(config.get("rope.freq_base_swa", local_base))
    window = config.get("attention.sliding_window", 0)
    if window and "gemma3" in config.section:
        every = config.get("attention.sliding_window_pattern", 6)
        layers = [layer for layer in range(options["decoder_layers"]) if (layer + 1) % every]
        found |= {"attention_window": window, "local_layers": tuple(layers)}
    elif window:
        raise UserError(f"{config.section}attention.sliding_window = {window} is not supported in a GGUF file")
    if "gemma3" in config.section and options["decoder_layers"] == 62:  # the 27B model, the only one with its own scale
        found["attention_scale"] = (options["width"] / heads) ** -0.5
    if config.get("attention.scale", 0.0):
        found["attention_scale"] = float(config["attention.scale"])
    factor = config.get("rope.scaling.factor", config.get("rope.scale_linear", 1.0))
    config.used.add("rope.scaling.original_context_length")
    if config.require("rope.scaling.type", "none", "linear") == "linear" and factor != 1:
        found["rotary_factors"] = (float(factor),) * (width // 2)
    if "rope_freqs.weight" in file.tensors:  # one divisor per frequency (Llama 3)
        found["rotary_factors"] = tuple(_Tensors(file)["rope_freqs.weight"].double().tolist())
    return found


def tensor_table(config: ModelConfig, architecture: str) -> dict[str, Stored]:
    ours, theirs = "decoder.blocks.*", "blk.*"
    # llama.cpp rotates neighbouring dimensions in Llama and permutes the rows of queries and keys to match.
    permuted = architecture == "llama"
    heads = (InterleavedHeads(config.heads), InterleavedHeads(config.actual_key_value_heads), PLAIN)
    table = {
        "embedding": stored("token_embd"),
        "unembedding": stored("output"),
        "decoder.positions": stored("position_embd"),
        "decoder.final_norm": stored("output_norm"),
        f"{ours}.attention.queries_keys_values": stored(
            *(f"{theirs}.attn_{x}" for x in "qkv"), form=heads if permuted else PLAIN
        ),
        f"{ours}.attention.query_norm": stored(f"{theirs}.attn_q_norm"),
        f"{ours}.attention.key_norm": stored(f"{theirs}.attn_k_norm"),
        f"{ours}.attention.project": stored(f"{theirs}.attn_output"),
        f"{ours}.attention_norm.norm": stored(f"{theirs}.attn_norm"),
        f"{ours}.attention_norm.output_norm": stored(f"{theirs}.post_attention_norm"),
        f"{ours}.feed_forward.up": stored(f"{theirs}.ffn_up"),
        f"{ours}.feed_forward.gate": stored(f"{theirs}.ffn_gate"),
        f"{ours}.feed_forward.down": stored(f"{theirs}.ffn_down"),
        f"{ours}.feed_forward_norm.norm": stored(f"{theirs}.ffn_norm"),
        f"{ours}.feed_forward_norm.output_norm": stored(f"{theirs}.post_ffw_norm"),
    }
    if architecture == "gpt2":
        table[f"{ours}.attention.queries_keys_values"] = stored(f"{theirs}.attn_qkv")
    return table


# The tokenizer


def _tokenizer(file: _GgufFile, config: ModelConfig) -> ForeignTokenizer:
    fields = {
        key.removeprefix("tokenizer.ggml."): value for key, value in file.fields.items() if "tokenizer.ggml" in key
    }
    kind, tokens = fields.get("model"), fields.get("tokens")
    if not isinstance(tokens, list) or len(tokens) > config.vocab_size:
        raise UserError(f"{file.path} has {len(tokens or [])} tokens, but {config.vocab_size} embeddings")
    types = fields.get("token_type") or [1] * len(tokens)
    if kind == "llama":
        backend, vocabulary = _sentencepiece(fields, tokens, types, config.vocab_size)
    elif kind == "gpt2" and isinstance(file.fields.get(TOKENIZER_JSON), str):
        backend = read_backend(file.fields[TOKENIZER_JSON], f"{file.path}, {TOKENIZER_JSON}")
        vocabulary = Vocabulary(config.vocab_size, "bytes", strips_first_space=False)
    elif kind == "gpt2":
        backend = _byte_level_bpe(file, fields, tokens, types)
        vocabulary = Vocabulary(config.vocab_size, "bytes", strips_first_space=False)
    else:
        raise UserError(f'{file.path}: the tokenizer "{kind}" is not supported; supported: llama, gpt2')
    end = int(fields.get("eos_token_id", 0))
    start = int(fields.get("bos_token_id", end))
    add_start = fields.get("add_bos_token", kind == "llama")
    others = [fields.get(key) for key in ("eot_token_id", "eom_token_id")]
    # The end of a turn is not always named; these are the names that models use.
    others += [id for id, token in enumerate(tokens) if token in ("<end_of_turn>", "<|im_end|>", "<|eot_id|>")]
    framing = Framing(
        pad=int(fields.get("padding_token_id", end)), start=start, end=end, prompt=(start,) if add_start else (),
        other_ends=tuple(sorted({int(id) for id in others if id is not None} - {end})),
    )  # fmt: skip
    return ForeignTokenizer(backend, framing, vocabulary)


def _sentencepiece(
    fields: Mapping[str, Any], tokens: list[str], types: list[int], size: int
) -> tuple[hf.Tokenizer, Vocabulary]:
    scores = fields.get("scores") or [0.0] * len(tokens)
    pieces = [Piece(token, float(score), int(kind)) for token, score, kind in zip(tokens, scores, types, strict=True)]
    model = SentencePieceModel(
        pieces, BPE, add_dummy_prefix=bool(fields.get("add_space_prefix", True)), remove_extra_whitespaces=False,
        byte_fallback=True,
    )  # fmt: skip
    backend = model.tokenizer()
    special = [piece.text for piece in pieces if piece.type in (CONTROL, UNKNOWN)]
    backend.add_special_tokens([hf.AddedToken(token, normalized=False, special=True) for token in special])
    ids = {token: id for id, token in enumerate(tokens)}
    numbers = list(range(len(tokens)))
    numbers += [ids.get(backend.id_to_token(id) or "", 0) for id in range(len(tokens), backend.get_vocab_size())]
    return backend, Vocabulary(size, "metaspace", model.add_dummy_prefix, tuple(tokens), tuple(numbers))


def _byte_level_bpe(file: _GgufFile, fields: Mapping[str, Any], tokens: list[str], types: list[int]) -> hf.Tokenizer:
    split = fields.get("pre", "default")
    if split not in SPLITS and split not in GPT2_SPLITS:
        known = ", ".join([*GPT2_SPLITS, *SPLITS])
        raise UserError(f'{file.path}: the pre-tokenizer "{split}" is not supported; supported: {known}')
    try:
        return byte_level_backend(split, tokens, types, fields.get("merges") or [])
    except Exception as error:  # the library raises nothing more specific
        raise UserError(f"{file.path}: the tokenizer's merges do not fit its tokens: {error}") from error


def byte_level_backend(split: str, tokens: list[str], types: list[int], merges: list[str]) -> hf.Tokenizer:
    """Builds a byte-level BPE tokenizer that splits a text into words by one of llama.cpp's rules."""
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    ids = {token: id for id, token in enumerate(tokens)}
    backend = hf.Tokenizer(models.BPE(ids, pairs, ignore_merges=split == "llama-bpe"))  # type: ignore[arg-type]
    if split in SPLITS:
        words = [pre_tokenizers.Split(hf.Regex(rule), "isolated") for rule in SPLITS[split]]
        steps: list[Any] = [*words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    else:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if split == "smollm" else []
        steps = [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if split == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    for id, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind in (CONTROL, USER_DEFINED):
            backend.add_tokens([hf.AddedToken(token, normalized=False, special=kind == CONTROL)])
            assert backend.token_to_id(token) == id
    return backend
