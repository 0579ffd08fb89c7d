"""Glossaries: terms of a source and the translations that must be used for them."""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from seq2see.decode.sampling import Phrase
from seq2see.errors import UserError
from seq2see.text.tokenizer import Tokenizer


class TermMatch(NamedTuple):
    """A term in a sentence."""

    start: int
    end: int
    same_case: bool
    translation: str


def required_phrases(sentence: str, glossary: Mapping[str, str], target: Tokenizer) -> tuple[Phrase, ...]:
    """Returns the tokens of the translations that a sentence's translation must contain."""
    translations = dict.fromkeys(match.translation.strip() for match in find_terms(sentence, glossary))
    phrases = (_tokens(translation, target) for translation in translations)
    return tuple(phrase for phrase in phrases if phrase)


def find_terms(sentence: str, glossary: Mapping[str, str]) -> list[TermMatch]:
    """Returns the terms in a sentence, as a word or several, in any case. Of those that overlap, the longest is used."""
    matches = [
        TermMatch(*match.span(), match[0] == term.strip(), translation)
        for term, translation in glossary.items()
        for match in _pattern(term).finditer(sentence)
        if _stands_alone(sentence, *match.span())
    ]
    chosen: list[TermMatch] = []
    for match in sorted(matches, key=lambda match: (match.start - match.end, not match.same_case)):
        if all(match.end <= other.start or other.end <= match.start for other in chosen):
            chosen.append(match)
    return sorted(chosen)


@lru_cache(maxsize=10_000)
def _pattern(term: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(map(re.escape, term.split())), re.IGNORECASE)


def _stands_alone(sentence: str, start: int, end: int) -> bool:
    """Returns whether no word continues before or after a span."""
    return not any(map(_in_word, sentence[max(start - 1, 0) : start] + sentence[end : end + 1]))


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")  # vowel signs


def _tokens(text: str, target: Tokenizer) -> Phrase:
    """Returns the tokens of a text within a sentence, where they may differ from those at its beginning."""
    before = target.encode("a")
    within = target.encode(f"a {text}")
    tokens = tuple(within[len(before) :] if within[: len(before)] == before else target.encode(text))
    written = target.decode(tokens).strip()
    if unicodedata.normalize("NFC", written) != unicodedata.normalize("NFC", text):
        raise UserError(
            f'the model cannot write "{text}" of the glossary, only "{written}": choose words of its vocabulary'
        )
    return tokens
