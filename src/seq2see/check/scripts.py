"""Detects the script of many sentences at once.

The Unicode name of a character begins with the name of its script. A table with one byte per code point, built once,
maps characters to scripts; numpy then counts the letters of all sentences, concatenated.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

# Scripts in modern use that a corpus may contain. Japanese mixes three, which therefore count as one.
SCRIPTS = (
    "none", "Latin", "Devanagari", "Cyrillic", "Greek", "Arabic", "Hebrew", "Han or kana", "Hangul", "Bengali",
    "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan",
    "Myanmar", "Georgian", "Armenian", "Ethiopic", "Khmer", "Mongolian", "Thaana", "Syriac", "Cherokee", "Tifinagh",
    "Nko", "Ol Chiki", "Meetei Mayek", "Javanese", "Balinese", "Adlam",
)  # fmt: skip
_MERGED = {"CJK": "Han or kana", "HIRAGANA": "Han or kana", "KATAKANA": "Han or kana", "BOPOMOFO": "Han or kana"}
_VARIANT_PREFIXES = {"FULLWIDTH", "HALFWIDTH", "MODIFIER", "SUPERSCRIPT", "SUBSCRIPT"}
_TABLE_SIZE = 0x323B0  # past the last assigned ideograph, which is also the last letter


@cache
def _script_table() -> NDArray[np.uint8]:
    """Returns the index in SCRIPTS for each code point that is a letter or a combining mark, else 0."""
    first_words = {name.split()[0].upper(): index for index, name in enumerate(SCRIPTS) if index}
    first_words |= {word: SCRIPTS.index(name) for word, name in _MERGED.items()}
    table = np.zeros(_TABLE_SIZE, np.uint8)
    for code in range(_TABLE_SIZE):
        character = chr(code)
        if unicodedata.category(character)[0] in "LM":
            words = unicodedata.name(character, "").split()
            if words and words[0] in _VARIANT_PREFIXES:
                words = [word for word in words if word in first_words]
            if words:
                table[code] = first_words.get(words[0], 0)
    return table


def count_letters(sentences: Sequence[str]) -> NDArray[np.int32]:
    """Counts the letters of each script in each sentence: [sentences, scripts]."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    codes = np.frombuffer("".join(sentences).encode("utf-32-le", "surrogatepass"), np.uint32)
    scripts = _script_table()[np.minimum(codes, _TABLE_SIZE - 1)]
    rows = np.repeat(np.arange(len(sentences)), lengths)
    counts = np.bincount(rows * len(SCRIPTS) + scripts, minlength=len(sentences) * len(SCRIPTS))
    return counts.reshape(len(sentences), len(SCRIPTS)).astype(np.int32)
