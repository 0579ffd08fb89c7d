"""Tokens as text for people: which characters each token covers, and whether it splits a grapheme.

A byte-level token may hold part of a character, and a Devanagari vowel sign is not a letter by itself. Both are marked,
so that a page can join such a token with its neighbours and show readable text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

# A grapheme is what a reader sees as one letter: Oniguruma's \X (emoji families, accents, vowel signs, Hangul, flags)
# and also consonants that a virama joins into one conjunct, क् + ष = क्ष, as in Unicode since 15.1.
_VIRAMAS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d"
_GRAPHEMES = Split(Regex(rf"(?:\X(?:(?<=[{_VIRAMAS}])|(?<=[{_VIRAMAS}]\u200d))(?=\p{{L}}))*\X"), "isolated")


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A token, and the characters text[start:end] that it covers, fully or partly."""

    id: int
    text: str  # readable: bytes that are not a character are written as ⟨E0 A4⟩
    start: int
    end: int
    whole: bool  # false if it splits a grapheme: join it with its neighbours to show it


Span = tuple[int, int]


def grapheme_boundaries(text: str) -> set[int]:
    """Returns the indices at which the text can be split without splitting a grapheme."""
    return {0, len(text)}.union(end for _, (_, end) in _GRAPHEMES.pre_tokenize_str(text))


def make_token_spans(
    ids: Sequence[int], contents: Sequence[bytes], spans: Sequence[Span], text: str
) -> list[TokenSpan]:
    """Builds token spans from token ids, the bytes of each token and the characters it covers."""
    boundaries = grapheme_boundaries(text)
    tokens = []
    for i, (id, content, (start, end)) in enumerate(zip(ids, contents, spans, strict=True)):
        overlaps = (i > 0 and spans[i - 1][1] > start) or (i + 1 < len(spans) and spans[i + 1][0] < end)
        whole = not overlaps and start in boundaries and end in boundaries
        tokens.append(TokenSpan(id, readable(content), start, end, whole))
    return tokens


def character_spans(contents: Sequence[bytes]) -> list[Span]:
    """Returns the characters that each token covers in the concatenated text, decoded with errors="replace"."""
    begun = [0, *accumulate(_begins_character(b"".join(contents)))]  # characters begun before each byte, and at the end
    spans = []
    end = 0
    for content in contents:
        start, end = end, end + len(content)
        # A token that continues a character begun earlier covers that character too.
        spans.append((begun[start + 1] - 1 if content else begun[start], begun[end]))
    return spans


def _begins_character(data: bytes) -> list[bool]:
    """Returns which bytes begin a character of data.decode(errors="replace"), where each error is one character."""
    begins = [byte & 0xC0 != 0x80 for byte in data]
    position = 0
    while position < len(data):
        try:
            data[position:].decode()
            break
        except UnicodeDecodeError as error:
            first, position = position + error.start, position + error.end
            begins[first:position] = [True] + [False] * (position - first - 1)
    return begins


def close_gaps(spans: Sequence[Span], length: int) -> list[Span]:
    """Extends spans to cover the text without gaps: normalisation omits the second of two characters that it joins."""
    covered = {index for start, end in spans for index in range(start, end)} | {length}
    extended = {end: next(index for index in range(end, length + 1) if index in covered) for _, end in spans}
    return [(start if i else 0, extended[end]) for i, (start, end) in enumerate(spans)]


def readable(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"⟨{content.hex(' ').upper()}⟩"
