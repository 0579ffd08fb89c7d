"""Tokens as a person reads them: which characters each one covers, and whether it cuts a letter in two.

A byte-level token may hold half a character, and a Devanagari vowel sign alone is no letter either. Both are marked, so
that a page can join a piece that is not whole to its neighbours and show readable text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

# What a reader takes for one letter: Oniguruma's \X (emoji families, accents, vowel signs, Hangul, flags) and, beyond
# it, consonants that a virama joins into one conjunct, क् + ष = क्ष, as Unicode has it since 15.1.
_VIRAMAS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d"
_GRAPHEMES = Split(Regex(rf"(?:\X(?:(?<=[{_VIRAMAS}])|(?<=[{_VIRAMAS}]\u200d))(?=\p{{L}}))*\X"), "isolated")


@dataclass(frozen=True, slots=True)
class Piece:
    """A token, and the characters text[start:end] that it covers, wholly or in part."""

    id: int
    text: str  # readable: bytes that are no character are written as ⟨E0 A4⟩
    start: int
    end: int
    whole: bool  # false where it cuts a grapheme: join it to its neighbours to show it


Span = tuple[int, int]


def cut_points(text: str) -> set[int]:
    """Where the text can be cut without cutting a grapheme."""
    return {0, len(text)}.union(end for _, (_, end) in _GRAPHEMES.pre_tokenize_str(text))


def make_pieces(ids: Sequence[int], contents: Sequence[bytes], spans: Sequence[Span], text: str) -> list[Piece]:
    """Pieces from tokens, the bytes that each holds and the characters that each covers."""
    cuts = cut_points(text)
    pieces = []
    for i, (id, content, (start, end)) in enumerate(zip(ids, contents, spans, strict=True)):
        shared = (i > 0 and spans[i - 1][1] > start) or (i + 1 < len(spans) and spans[i + 1][0] < end)
        pieces.append(Piece(id, _readable(content), start, end, not shared and start in cuts and end in cuts))
    return pieces


def spans_of(contents: Sequence[bytes]) -> list[Span]:
    """The characters that each piece covers in the text that all of them make, mistakes in the bytes replaced."""
    begun = [0, *accumulate(_begins_character(b"".join(contents)))]  # before each byte, and at the end
    spans = []
    end = 0
    for content in contents:
        start, end = end, end + len(content)
        # A piece that goes on with a character begun before covers that one too.
        spans.append((begun[start + 1] - 1 if content else begun[start], begun[end]))
    return spans


def _begins_character(whole: bytes) -> list[bool]:
    """Which bytes begin a character of whole.decode(errors="replace"), which makes one of each mistake."""
    begins = [byte & 0xC0 != 0x80 for byte in whole]
    place = 0
    while place < len(whole):
        try:
            whole[place:].decode()
            break
        except UnicodeDecodeError as error:
            wrong, place = place + error.start, place + error.end
            begins[wrong:place] = [True] + [False] * (place - wrong - 1)
    return begins


def close_gaps(spans: Sequence[Span], length: int) -> list[Span]:
    """Spans that cover the text without gaps: normalising leaves out the second of two characters that it joins."""
    begun = {place for start, end in spans for place in range(start, end)} | {length}
    reach = {end: next(place for place in range(end, length + 1) if place in begun) for _, end in spans}
    return [(start if i else 0, reach[end]) for i, (start, end) in enumerate(spans)]


def _readable(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"⟨{content.hex(' ').upper()}⟩"
