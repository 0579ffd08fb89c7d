"""The tokenizer of a GGUF file, rebuilt from its metadata: SentencePiece's BPE, or byte-level BPE.

llama.cpp splits a text into words by rules that are part of its code, and a file only names one of them.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers

from seq2see.data.framing import Framing
from seq2see.errors import UserError, foreign
from seq2see.exchange.foreign_tokenizer import ForeignTokenizer, Vocabulary
from seq2see.exchange.gguf_file import GgufFile
from seq2see.exchange.sentencepiece import BPE, CONTROL, UNKNOWN, USER_DEFINED, Piece, SentencePieceModel
from seq2see.exchange.tokenizer_files import read_backend

TOKENIZER_JSON = "tokenizer.huggingface.json"  # the whole tokenizer, if a file has it

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


def read_tokenizer(file: GgufFile, vocab_size: int) -> ForeignTokenizer:
    fields = {
        key.removeprefix("tokenizer.ggml."): value for key, value in file.fields.items() if "tokenizer.ggml" in key
    }
    kind, tokens = fields.get("model"), fields.get("tokens")
    if not isinstance(tokens, list) or len(tokens) > vocab_size:
        raise UserError(f"{file.path} has {len(tokens or [])} tokens, but {vocab_size} embeddings")
    types = fields.get("token_type") or [1] * len(tokens)
    vocabulary = Vocabulary(vocab_size, "bytes", strips_first_space=False)
    if kind == "llama":
        backend, vocabulary = _sentencepiece(fields, tokens, types, vocab_size)
    elif kind == "gpt2" and isinstance(file.fields.get(TOKENIZER_JSON), str):
        backend = read_backend(file.fields[TOKENIZER_JSON], f"{file.path}, {TOKENIZER_JSON}")
    elif kind == "gpt2":
        backend = _byte_level_bpe(file, fields, tokens, types)
    else:
        raise UserError(f'{file.path}: the tokenizer "{kind}" is not supported; supported: llama, gpt2')
    end = int(fields.get("eos_token_id", 0))
    start = int(fields.get("bos_token_id", end))
    add_start = fields.get("add_bos_token", kind == "llama")
    others = [fields.get(key) for key in ("eot_token_id", "eom_token_id")]
    # The end of a turn is not always named; these are the names that models use.
    others += [id for id, token in enumerate(tokens) if token in ("<end_of_turn>", "<|im_end|>", "<|eot_id|>")]
    other_ends = tuple(sorted({int(id) for id in others if id is not None} - {end}))
    pad, prompt = int(fields.get("padding_token_id", end)), (start,) if add_start else ()
    framing = Framing(pad=pad, start=start, end=end, prompt=prompt, other_ends=other_ends)
    return ForeignTokenizer(backend, framing, vocabulary)


def _sentencepiece(
    fields: Mapping[str, Any], tokens: list[str], types: list[int], size: int
) -> tuple[hf.Tokenizer, Vocabulary]:
    scores = fields.get("scores") or [0.0] * len(tokens)
    pieces = [Piece(token, float(score), int(kind)) for token, score, kind in zip(tokens, scores, types, strict=True)]
    prefix = bool(fields.get("add_space_prefix", True))
    model = SentencePieceModel(pieces, BPE, add_dummy_prefix=prefix, remove_extra_whitespaces=False, byte_fallback=True)
    backend = model.tokenizer()
    special = [piece.text for piece in pieces if piece.type in (CONTROL, UNKNOWN)]
    backend.add_special_tokens([hf.AddedToken(token, normalized=False, special=True) for token in special])
    ids = {token: id for id, token in enumerate(tokens)}
    numbers = list(range(len(tokens)))
    numbers += [ids.get(backend.id_to_token(id) or "", 0) for id in range(len(tokens), backend.get_vocab_size())]
    return backend, Vocabulary(size, "metaspace", model.add_dummy_prefix, tuple(tokens), tuple(numbers))


def _byte_level_bpe(file: GgufFile, fields: Mapping[str, Any], tokens: list[str], types: list[int]) -> hf.Tokenizer:
    split = fields.get("pre", "default")
    if split not in SPLITS and split not in GPT2_SPLITS:
        known = ", ".join([*GPT2_SPLITS, *SPLITS])
        raise UserError(f'{file.path}: the pre-tokenizer "{split}" is not supported; supported: {known}')
    with foreign(f"{file.path}: the tokenizer's merges do not fit its tokens"):
        return byte_level_backend(split, tokens, types, fields.get("merges") or [])


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
