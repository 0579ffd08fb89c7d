"""Sentences for the tests of tokenizers."""

import itertools

from seq2see.data.bpe_dropout import BpeDropout
from seq2see.data.tokenizer import Tokenizer

ENGLISH = ["the black cat sleeps on the old chair", "my friend doesn't like cold tea", "She's read 2 books: 2026!"]
HINDI = [
    "काली बिल्ली पुरानी कुर्सी पर सोती है।",
    "मेरे दोस्त को ठंडी चाय पसन्द नहीं है।",
    "क्षेत्र में विद्यालय, ज़रूर बहुत बड़ा है।",
]
SENTENCES = [*ENGLISH, *HINDI]
CORPUS = SENTENCES * 3


def encode_with_dropout(
    tokenizer: Tokenizer, texts: list[str], p: float, seed: int = 1, epoch: int = 0, first: int = 0
) -> list[list[int]]:
    tokens, offsets = tokenizer.encode_with_dropout(texts, BpeDropout(p, seed, epoch), first)
    return [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets)]
