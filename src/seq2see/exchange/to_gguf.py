"""Writes a language model as a GGUF file for llama.cpp: configuration, tokenizer and weights in one file.

llama.cpp splits a text into words by rules that are part of its code; of those that our reader knows, the file names the one
that gives the most equal tokens. The file also holds the whole tokenizer, under a key of the GGUF specification, and our reader
uses that one.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.config.model import Shape
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.exchange.check import Check, Exporter, Samples, compare, count_equal
from seq2see.exchange.gguf import ARCHITECTURES, ROPE_FREQS
from seq2see.exchange.gguf_tokenizer import GPT2_SPLITS, SPLITS, TOKENIZER_JSON, byte_level_backend
from seq2see.exchange.jinja_template import jinja_source
from seq2see.exchange.nearest import find_nearest
from seq2see.exchange.sentencepiece import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from seq2see.exchange.tokenizer_writer import tokenizer_backend
from seq2see.storage.pipeline import Pipeline

FORMAT = "GGUF"
FILE = "model.gguf"
WRITTEN = ("llama", "gpt2", "qwen2", "qwen3")  # whose every option is in the file, not in llama.cpp's code
KINDS = {"float32": "F32", "float16": "F16", "bf16": "BF16", "int8": "Q8_0"}
BYTE = 6  # the type of the token of a single byte
GELU_TOLERANCE = 1e-2  # llama.cpp takes GELU from a table of half-precision numbers
DIFFICULT_TEXTS = (
    "It's the 1st of 12345 – isn't it?  We'll see…\n\nIt cost $1,234.56 (2023).",
    "don't\tDO that, I'd say: we've, they're",
    "def f(x):\n    return x ** 2  # ok",
    "नमस्ते दुनिया, आप कैसे हैं? १२३",
    "Ünïcödé naïve café",
    "東京は日本の首都です。",
)


def write_gguf(pipeline: Pipeline, folder: Path, precision: str) -> list[str]:
    """Writes model.gguf. Returns what was done, in a few words each."""
    config, tokenizer = pipeline.config.model, pipeline.tokenizers[1]
    if config.shape != "decoder":
        raise UserError(
            f"llama.cpp runs language models, and this model is an {config.shape}: export it to huggingface"
        )
    titles = {name: name for name in WRITTEN}
    found = find_nearest(config, FORMAT, titles, lambda name, config: ARCHITECTURES[name].held(config, {}))
    family = ARCHITECTURES[found.name]
    try:
        import gguf
    except ImportError:
        raise UserError('writing GGUF files needs the package "gguf": pip install "seq2see[gguf]"') from None
    writer = gguf.GGUFWriter(folder / FILE, found.name)
    keys = family.foreign_config(found.config)
    keys.pop(ROPE_FREQS, None)
    for key, value in keys.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{found.name}.{key}", value)
    split = _write_tokenizer(writer, tokenizer, found.config)
    if chat := jinja_source(pipeline.chat_template, tokenizer):
        writer.add_chat_template(chat)
    for name, tensor in family.foreign_tensors(found.config, found.weights(pipeline.network.state_dict())):
        kind = gguf.GGMLQuantizationType[_kind(name, tensor, KINDS[precision], gguf)]
        writer.add_tensor(name, gguf.quants.quantize(tensor.float().numpy(), kind), raw_dtype=kind)
    if found.config.rotary_factors:
        writer.add_tensor(ROPE_FREQS, np.array(found.config.rotary_factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return [f"architecture {found.name}", *(rewriting.summary for rewriting in found.rewritings), split]


def _kind(name: str, tensor: Tensor, wanted: str, gguf: Any) -> str:
    """Vectors and positions stay float32; a matrix whose rows are not whole blocks stays float16."""
    if tensor.dim() == 1 or name == "position_embd.weight":
        return "F32"
    block, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[wanted]]
    return wanted if tensor.shape[1] % block == 0 else "F16"


# The tokenizer


def _write_tokenizer(writer: Any, tokenizer: Tokenizer, config: ModelConfig) -> str:
    backend = tokenizer_backend(tokenizer, config)
    table = json.loads(backend.to_str())
    tokens = [backend.id_to_token(id) for id in range(len(tokenizer))]
    types = list(_types(table, tokens, tokenizer.unknown))
    names = [token if token is not None else f"[PAD{id}]" for id, token in enumerate(tokens)]
    if table["model"]["type"] != "BPE":
        raise UserError(
            f"llama.cpp has no tokenizer like this one, of kind {tokenizer.kind}: train a model with --set "
            "text.tokenizer=bpe, or export it to huggingface"
        )
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in table["model"]["merges"]]
    if (table["decoder"] or {}).get("type") == "ByteLevel":
        split, equal = nearest_split(tokenizer, names, types, merges)
        note = f"words split as in {split}: {equal} of {len(DIFFICULT_TEXTS)} difficult texts have equal tokens"
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(split)
        writer.add_token_merges(merges)
    else:
        note = "tokenizer of SentencePiece's kind"
        rank = {"".join(merge.split(" ")): -float(i) for i, merge in reversed(list(enumerate(merges)))}
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([rank.get(name, -1e4) for name in names])
        types = [BYTE if len(n) == 6 and n.startswith("<0x") else t for n, t in zip(names, types, strict=True)]
    writer.add_token_list(names)
    writer.add_token_types(types)
    framing = tokenizer.framing
    writer.add_bos_token_id(framing.start)
    writer.add_eos_token_id(framing.end)
    writer.add_pad_token_id(framing.pad)
    writer.add_add_bos_token(bool(framing.prompt))
    writer.add_string(TOKENIZER_JSON, backend.to_str())
    return note


def _types(table: Mapping[str, Any], tokens: list[str | None], unknown: int | None) -> Iterator[int]:
    added = {token["id"]: CONTROL if token["special"] else USER_DEFINED for token in table["added_tokens"]}
    for id, token in enumerate(tokens):
        yield UNUSED if token is None else UNKNOWN if id == unknown else added.get(id, NORMAL)


def nearest_split(tokenizer: Tokenizer, tokens: list[str], types: list[int], merges: list[str]) -> tuple[str, int]:
    """Returns the rule for words under which the most texts have equal tokens, and how many have."""
    expected = [tokenizer.encode(text) for text in DIFFICULT_TEXTS]
    counts = {}
    for split in (*GPT2_SPLITS, *SPLITS):
        backend = byte_level_backend(split, tokens, types, merges)
        found = [backend.encode(text, add_special_tokens=False).ids for text in DIFFICULT_TEXTS]
        counts[split] = sum(a == b for a, b in zip(found, expected, strict=True))
    best = max(counts, key=lambda split: counts[split])
    return best, counts[best]


def check_gguf(samples: Samples, folder: Path) -> Check:
    """Runs an export in llama.cpp: logits, tokens and greedy output."""
    import llama_cpp

    context = max(map(len, samples.inputs)) + samples.new_tokens
    with _silent(llama_cpp):
        size = {"n_ctx": context, "n_batch": context, "type_k": 0, "type_v": 0, "n_threads": 2}
        model = llama_cpp.Llama(str(folder / FILE), logits_all=True, verbose=False, **size)
        logits, outputs = [], []
        for ids in samples.inputs:
            model.reset()
            model.eval(ids)
            logits.append(torch.from_numpy(np.array(model.scores[: len(ids)])))
            outputs.append(_greedy(model, samples))
        tokens = [model.tokenize(text.encode(), special=False) for text in samples.texts]
        model.close()
    equal = {
        "tokenized texts": count_equal(samples.inputs, tokens),
        "greedy outputs": count_equal(samples.outputs(), outputs),
    }
    found = compare(f"llama-cpp-python {llama_cpp.__version__}", "logits", samples.results(), logits, equal)
    has_gelu = samples.pipeline.config.model.activation.startswith("gelu")
    return replace(found, tolerance=GELU_TOLERANCE) if has_gelu else found


@contextmanager
def _silent(llama_cpp: Any) -> Iterator[None]:
    """Hides what llama.cpp logs, even if it is not verbose."""
    ignore = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(ignore, None)
    try:
        yield
    finally:
        llama_cpp.llama_log_set(import_module("llama_cpp._logger").llama_log_callback, None)


def _greedy(model: Any, samples: Samples) -> list[int]:
    special = samples.special_tokens
    found: list[int] = []
    while len(found) < samples.new_tokens:
        row = np.array(model.scores[model.n_tokens - 1])
        row[list(special.banned)] = -np.inf
        token = int(row.argmax())
        if token in (special.end, *special.other_ends):
            break
        found.append(token)
        model.eval([token])
    return found


USAGE: dict[Shape, str] = {
    "decoder": f"""from llama_cpp import Llama

model = Llama(PATH + "/{FILE}")
print(model("…", max_tokens=100)["choices"][0]["text"])"""
}
EXPORTER = Exporter(
    precisions=("float32", "bf16", "float16", "int8"),
    runtime="llama_cpp",
    package="llama-cpp-python",
    write=lambda pipeline, folder, precision, source: write_gguf(pipeline, folder, precision),
    check=check_gguf,
    usage=USAGE,
    has_tokenizers=True,  # in the file
)
