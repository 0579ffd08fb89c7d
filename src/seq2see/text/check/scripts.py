"""Which script a sentence is written in, for many sentences at once.

A character's Unicode name begins with the name of its script, so a table of a byte a code point, made once, tells the
letters apart; the sentences are then counted by numpy, end to end.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

# Those in use today that a corpus may hold. Japanese mixes three, which therefore count as one.
SCRIPTS = (
    "none", "Latin", "Devanagari", "Cyrillic", "Greek", "Arabic", "Hebrew", "Han or kana", "Hangul", "Bengali",
    "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan",
    "Myanmar", "Georgian", "Armenian", "Ethiopic", "Khmer", "Mongolian", "Thaana", "Syriac", "Cherokee", "Tifinagh",
    "Nko", "Ol Chiki", "Meetei Mayek", "Javanese", "Balinese", "Adlam",
)  # fmt: skip
_MIXED = {"CJK": "Han or kana", "HIRAGANA": "Han or kana", "KATAKANA": "Han or kana", "BOPOMOFO": "Han or kana"}
_WIDE = {"FULLWIDTH", "HALFWIDTH", "MODIFIER", "SUPERSCRIPT", "SUBSCRIPT"}
_LAST = 0x323B0  # past the last assigned ideograph; beyond stand no letters


@cache
def _table() -> NDArray[np.uint8]:
    """For each code point, the index in SCRIPTS of the script it is a letter or a vowel sign of; 0 for all others."""
    first_words = {name.split()[0].upper(): index for index, name in enumerate(SCRIPTS) if index}
    first_words |= {word: SCRIPTS.index(name) for word, name in _MIXED.items()}
    table = np.zeros(_LAST, np.uint8)
    for code in range(_LAST):
        character = chr(code)
        if unicodedata.category(character)[0] in "LM":
            words = unicodedata.name(character, "").split()
            if words and words[0] in _WIDE:
                words = [word for word in words if word in first_words]
            if words:
                table[code] = first_words.get(words[0], 0)
    return table


def count_letters(sentences: Sequence[str]) -> NDArray[np.int32]:
    """How many letters of each script each sentence has: [sentences, scripts]."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    codes = np.frombuffer("".join(sentences).encode("utf-32-le", "surrogatepass"), np.uint32)
    scripts = _table()[np.minimum(codes, _LAST - 1)]
    rows = np.repeat(np.arange(len(sentences)), lengths)
    counts = np.bincount(rows * len(SCRIPTS) + scripts, minlength=len(sentences) * len(SCRIPTS))
    return counts.reshape(len(sentences), len(SCRIPTS)).astype(np.int32)
