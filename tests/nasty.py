"""Strings that tokenizers get wrong: spaces of every kind, scripts, marks, emoji, controls, markup, and mixtures of them."""

import random

PARTS = [
    "a", "A", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u200d", "\ufeff", "\u00ad", ".",
    "...", "…", "!", "'s", "’ll", "don't", "I'M", "1", "12", "1234567", "3.14", "½", "²", "Ⅷ", "é", "e\u0301", "ñ", "ﬁ", "Å",
    "ß", "İ", "ı", "Straße", "naïve", "hello", "world", "Hello", "WORLD", "the", "of", "translation", "नमस्ते", "दुनिया", "क्ष",
    "ज़", "Привет", "мир", "東京", "日本語", "カタカナ", "ｶﾅ", "한국어", "مرحبا", "שָׁלוֹם", "ไทย", "👩‍👧", "❤️", "🏳️‍🌈", "🇩🇪",
    "😀", "<", ">", "</s>", "<s>", "<unk>", "<pad>", "[MASK]", "[CLS]", "##ing", "▁", "▁▁", "_", "Ġ", "Ċ", "<0x0A>", "\\n",
    "http://x.y/?a=b&c#d", "x@y.z", "C++", "#include", "{}", "[]", "()", "--", "—", "“", "”", "«", "»", "\x00", "\x07", "\x7f",
    "\u0085", "\u2028", "\U0010ffff", "𝔘𝔫𝔦", "q̣̇", "\u0300", "ﷺ", "㎏", "①", "x" * 40, " \n \n", "\t\t", "$100", "50%",
    "a-b", "a_b",
]  # fmt: skip


def strings(count: int, seed: int = 0) -> list[str]:
    """Returns mixtures of the parts: alone, in pairs, and longer."""
    random_ = random.Random(seed)
    mixed = ["".join(random_.choices(PARTS, k=random_.choice([2, 3, 5, 12]))) for _ in range(count)]
    spaced = [" ".join(random_.choices(PARTS, k=random_.choice([2, 4, 8]))) for _ in range(count)]
    found = ["", *PARTS, *(s for pair in zip(mixed, spaced, strict=True) for s in pair)]
    return found[:count]
