"""How a tokenizer is trained: where words end, its special tokens, and text in pieces that bound the memory.

Byte-level BPE differs from GPT-2's in where words end: letters stay together with their combining marks and joiners, because
otherwise Devanagari is split at every vowel sign.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar, get_args

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from seq2see.config import Normalization, TokenizerKind
from seq2see.data.tokenizer import END, LETTERS, PAD, START, UNKNOWN
from seq2see.errors import UserError, did_you_mean

T = TypeVar("T")

_PRE_TOKENS = "|".join(
    (
        f"['’](?:[sdmt]|ll|ve|re)(?![{LETTERS}])",  # she's, we'll; but not the s of j'suis
        f" ?[{LETTERS}]+",
        r" ?\p{N}{1,3}\p{M}*",
        f" ?[^\\s\\p{{N}}{LETTERS}][^\\s\\p{{L}}\\p{{N}}]*",  # symbols, with the marks and joiners that follow: ❤️, 👩‍👧
        r"\s*[\r\n]+",
        r"\s+(?!\S)",  # all spaces but the last, which belongs to the next word
        r"\s+",
    )
)
_WORDS = f"[\\p{{N}}{LETTERS}]+(?:['’-][\\p{{N}}{LETTERS}]+)*|[^\\s\\p{{N}}{LETTERS}][\\p{{M}}\u200c\u200d]*"
_ANY_CHARACTER = "[\\s\\S]"

_BATCH_CHARACTERS = 1 << 18  # passed to the trainer at a time
_PART_CHARACTERS = 1 << 14  # long texts are split into parts of this size


def train_backend(
    texts: Iterable[str], kind: TokenizerKind, vocab_size: int, roles: Sequence[str], normalize: Normalization
) -> hf.Tokenizer:
    special = _special_tokens(kind, vocab_size, roles, normalize)
    backend = hf.Tokenizer(models.BPE() if kind == "bpe" else models.WordLevel(unk_token=UNKNOWN))
    if normalize == "NFC":
        backend.normalizer = normalizers.NFC()
    trainer: trainers.Trainer
    if kind == "bpe":
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(hf.Regex(_PRE_TOKENS), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            special_tokens=special,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    else:
        if kind == "character":
            backend.pre_tokenizer = pre_tokenizers.Split(hf.Regex(_ANY_CHARACTER), "isolated")
            backend.decoder = decoders.Fuse()
        else:
            backend.pre_tokenizer = pre_tokenizers.Split(hf.Regex(_WORDS), "removed", invert=True)
        trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
    backend.train_from_iterator(_batched(texts), trainer)
    return backend


def split_text(text: str, size: int) -> Iterator[str]:
    """Splits a long text into parts of about `size` characters without changing its tokens.

    Every kind of tokenizer starts a new word at a space or newline after a non-space, and no pattern looks behind.
    """
    start = 0
    while len(text) - start > size:
        match = _SPLIT_POINT.search(text, start + size)
        if match is None:
            break
        yield text[start : match.start()]
        start = match.start()
    yield text[start:] if start else text


_SPLIT_POINT = re.compile(r"(?<=\S)[ \n]")


def group(items: Iterable[T], size: Callable[[T], int], max_size: int) -> Iterator[list[T]]:
    """Groups items into lists of about `max_size`, which bounds the memory that their processing takes."""
    pending: list[T] = []
    total = 0
    for item in items:
        pending.append(item)
        total += size(item)
        if total >= max_size:
            yield pending
            pending, total = [], 0
    if pending:
        yield pending


def _batched(texts: Iterable[str]) -> Iterator[list[str]]:
    empty = True
    for batch in group((part for text in texts for part in split_text(text, _PART_CHARACTERS)), len, _BATCH_CHARACTERS):
        empty = empty and not any(batch)
        yield batch
    if empty:
        raise UserError("no text to train a tokenizer on")


def _special_tokens(kind: str, vocab_size: int, roles: Sequence[str], normalize: str) -> list[hf.AddedToken]:
    for what, value, known in (
        ("tokenizer", kind, get_args(TokenizerKind)),
        ("normalisation", normalize, get_args(Normalization)),
    ):
        if value not in known:
            raise UserError(f'unknown {what} "{value}": {did_you_mean(value, known)}')
    names = [PAD, START, END] if kind == "bpe" else [PAD, START, END, UNKNOWN]
    for role in roles:
        # Letters between angle brackets: no tokenizer kind has a word that mixes the two, so no text encodes to it.
        if not re.fullmatch(r"[A-Za-z]+", role) or f"<{role}>" in names:
            raise UserError(f'"{role}" cannot be a role: use a word of Latin letters that is not a special token')
        names.append(f"<{role}>")
    minimum = len(names) + (256 if kind == "bpe" else 1)
    if vocab_size < minimum:
        contents = f"{'256 bytes' if kind == 'bpe' else 'one token'} and {', '.join(names)}"
        raise UserError(f"a vocabulary of {vocab_size:,} tokens cannot hold {contents}: use at least {minimum}")
    return [hf.AddedToken(name, special=True, normalized=False) for name in names]
