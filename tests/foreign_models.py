"""Small models of other libraries with tokenizers of every kind, written as their publishers write them."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.parity import build, perturbed

LINES = [
    *(Path(__file__).parent.parent / "LICENSE").read_text(encoding="utf-8").splitlines(),  # a text that never changes
    *["Привет мир, как дела?", "नमस्ते दुनिया", "東京は日本の首都です", "Ünïcödé naïve café", "don't I'll we're"] * 5,
]
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(regex: str = "") -> Tokenizer:
    """GPT-2's kind, or with a regular expression Llama 3's and Qwen's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if regex:
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(regex), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """BERT's kind."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    )
    pairs = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=pairs)
    return tokenizer


def unigram(language_codes: tuple[str, ...] = ()) -> Tokenizer:
    """The kind of T5, mBART and NLLB."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_special_tokens([AddedToken(code, normalized=False, special=True) for code in language_codes])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def llama_bpe() -> Tokenizer:
    """Llama 2's and Gemma's kind: BPE over ▁, bytes for unknown characters, <s> before a text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=520, special_tokens=special, show_progress=False, limit_alphabet=80)
    words = pre_tokenizers.Metaspace()  # only while training, so that merges stay within words
    tokenizer.pre_tokenizer = words
    tokenizer.train_from_iterator(LINES, trainer)
    table = json.loads(tokenizer.to_str())
    table["pre_tokenizer"] = None
    table["added_tokens"] = [token for token in table["added_tokens"] if token["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(table))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def save(folder: Path, model: Any, tokenizer: Tokenizer | None, **options: Any) -> Path:
    """Writes a model and its tokenizer as transformers does."""
    model.save_pretrained(folder)
    if tokenizer is not None:
        wrapped: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)
        wrapped.save_pretrained(folder)
    return folder


def decoder(kind: str = "Qwen3ForCausalLM", **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 430,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
        "eos_token_id": 2,
        "bos_token_id": 0,
    }
    return perturbed(build(kind, sizes | options)).eval()


def translator(kind: str, vocab_size: int, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": vocab_size,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    return perturbed(build(kind, sizes | options)).eval()


def encoder(kind: str = "BertForMaskedLM", **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 400,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
    }
    return perturbed(build(kind, sizes | options)).eval()
