"""Writes tokenizers as the files that Hugging Face's `AutoTokenizer` reads: tokenizer.json and tokenizer_config.json.

Ours need three things that our own file leaves to our code: where special tokens go around a text, how words are joined with
spaces, and the names of the special tokens. If the source has its own tokenizer, the target's is in a directory of its own.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import decoders, processors

from seq2see.config import ModelConfig
from seq2see.data.framing import Framing
from seq2see.data.tokenizer import NO_SPACE_AFTER, NO_SPACE_BEFORE, Tokenizer
from seq2see.exchange.foreign_tokenizer import ForeignTokenizer
from seq2see.exchange.jinja_template import FILE as CHAT_TEMPLATE
from seq2see.exchange.jinja_template import jinja_source
from seq2see.exchange.tokenizer_files import TARGET, WORD_PREFIX, template
from seq2see.storage.pipeline import Pipeline

# The files of a published tokenizer, and of what sentence-transformers puts around an encoder.
FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "vocab.txt", "source.spm", "target.spm", "target_vocab.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model",
    "spm.model", CHAT_TEMPLATE, "modules.json", "sentence_bert_config.json", "1_Pooling", TARGET,
)  # fmt: skip


def copy_tokenizers(source: Path, folder: Path) -> None:
    """Copies the files of a published tokenizer as they are."""
    for name in FILES:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        elif (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def write_tokenizers(folder: Path, pipeline: Pipeline, offset: int = 0) -> None:
    """Writes the tokenizers of a model; the ids of a source with its own tokenizer begin at `offset`."""
    (source, target), config = pipeline.tokenizers, pipeline.config.model
    _write(folder, source, config, offset)
    if source is not target:
        (folder / TARGET).mkdir()
        _write(folder / TARGET, target, config)
    if chat_source := jinja_source(pipeline.chat_template, target):
        (folder / CHAT_TEMPLATE).write_text(chat_source, encoding="utf-8")


def _write(folder: Path, tokenizer: Tokenizer, config: ModelConfig, offset: int = 0) -> None:
    backend = tokenizer_backend(tokenizer, config)
    if offset:
        backend = _shifted(backend, offset)
    framing = tokenizer.framing
    names = {"pad_token": framing.pad, "bos_token": framing.start, "eos_token": framing.end}
    if tokenizer.unknown is not None:
        names["unk_token"] = tokenizer.unknown
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.max_positions,
        "model_input_names": ["input_ids", "attention_mask"],
        **{name: backend.id_to_token(id + offset) for name, id in names.items()},
    }
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1, ensure_ascii=False), encoding="utf-8")


def tokenizer_backend(tokenizer: Tokenizer, config: ModelConfig) -> hf.Tokenizer:
    """Returns an equivalent tokenizer of the `tokenizers` library that adds special tokens and joins words by itself."""
    table = tokenizer.table()
    if isinstance(tokenizer, ForeignTokenizer):
        backend = hf.Tokenizer.from_str(
            json.dumps(_renumbered(table, tokenizer) if tokenizer.vocabulary.ids else table)
        )
        if backend.decoder is None and tokenizer.vocabulary.notation == "metaspace":
            scheme = "always" if tokenizer.vocabulary.strips_first_space else "never"
            backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", scheme)])
    else:
        for token in table["added_tokens"]:
            token["special"] = token["id"] != tokenizer.unknown  # <unknown> is shown in a decoded text
        backend = hf.Tokenizer.from_str(json.dumps(table))
        if tokenizer.kind == "word":
            backend.decoder = word_decoder()
    _frame(backend, tokenizer.framing, config)
    return backend


def vocabulary(tokenizer: Tokenizer, config: ModelConfig) -> list[str]:
    """Returns the token of each id, as the written tokenizer names it."""
    backend = tokenizer_backend(tokenizer, config)
    return [backend.id_to_token(id) or f"<extra_id_{id}>" for id in range(len(tokenizer))]


def _shifted(backend: hf.Tokenizer, offset: int) -> hf.Tokenizer:
    """Adds a number to all ids."""
    table = json.loads(backend.to_str())
    model = table["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {token: id + offset for token, id in model["vocab"].items()}
    else:  # a list, in the order of ids
        model["vocab"] = [*((f"\0{id}", 0.0) for id in range(offset)), *model["vocab"]]
        model["unk_id"] += offset
    for token in table["added_tokens"]:
        token["id"] += offset
    for token in ((table["post_processor"] or {}).get("special_tokens") or {}).values():
        token["ids"] = [id + offset for id in token["ids"]]
    return hf.Tokenizer.from_str(json.dumps(table))


def _frame(backend: hf.Tokenizer, framing: Framing, config: ModelConfig) -> None:
    before, after = (framing.before, framing.after) if config.has_encoder else (framing.prompt, ())
    if template(backend) == (before, after):
        return
    tokens = {id: backend.id_to_token(id) or "" for id in (*before, *after)}
    pattern = " ".join([*(tokens[id] for id in before), "$A", *(tokens[id] for id in after)])
    pairs = [(token, id) for id, token in tokens.items()]
    backend.post_processor = processors.TemplateProcessing(single=pattern, special_tokens=pairs)


def word_decoder() -> decoders.Decoder:
    """Joins words as our word tokenizer does: with spaces, but not before a full stop or after an opening bracket."""
    before, after = (
        "".join(f"\\{character}" for character in sorted(characters))
        for characters in (NO_SPACE_BEFORE, NO_SPACE_AFTER)
    )
    marks = "\\p{M}\u200c\u200d"
    spaces = decoders.WordPiece(prefix=WORD_PREFIX, cleanup=False)  # before every word but the first
    without = decoders.Replace(hf.Regex(f" (?=[{before}](?![{marks}]))|(?<=[{after}]) "), "")
    return decoders.Sequence([spaces, decoders.Fuse(), without])


def _renumbered(table: dict[str, Any], tokenizer: ForeignTokenizer) -> dict[str, Any]:
    """Gives the tokens of a SentencePiece tokenizer the ids of the model."""
    tokens, ids = tokenizer.vocabulary.tokens, tokenizer.vocabulary.ids
    model = table["model"]
    names = [token or f"\0{id}" for id, token in enumerate(tokens)]
    if model["type"] == "BPE":
        model["vocab"] = {name: id for id, name in enumerate(names)}
        model["unk_token"] = names[tokenizer.unknown or 0]
    else:
        scores: Sequence[float] = [score for _, score in model["vocab"]]
        found = {ids[i]: (text, scores[i]) for i, (text, _) in enumerate(model["vocab"])}
        unreachable = [(f"\0{id}", 0.0) for id in range(len(names))]  # tokens of the other language
        model["vocab"] = [found.get(id, unreachable[id]) for id in range(len(names))]
        model["unk_id"] = tokenizer.unknown
    added = []
    for token in table["added_tokens"]:
        id = ids[token["id"]]
        added.append({**token, "id": id})
        if model["type"] != "BPE":
            model["vocab"][id] = (token["content"], 0.0)
    return {**table, "added_tokens": sorted(added, key=lambda token: int(token["id"]))}
