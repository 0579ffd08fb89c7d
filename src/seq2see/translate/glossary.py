"""Glossaries: terms of a source and the translations that must be used for them."""

import re
import unicodedata
from collections.abc import Mapping

from seq2see.decode.sampling import Phrase
from seq2see.errors import UserError
from seq2see.text.tokenizer import Tokenizer


def required_phrases(sentence: str, glossary: Mapping[str, str], target: Tokenizer) -> tuple[Phrase, ...]:
    """Returns the tokens of each translation whose term is in the sentence, as a word or several, in any case."""
    found = [
        translation
        for term, translation in glossary.items()
        if re.search(rf"(?<!\w){re.escape(term.strip())}(?!\w)", sentence, re.IGNORECASE)
    ]
    phrases = (_tokens(translation.strip(), target) for translation in dict.fromkeys(found))
    return tuple(phrase for phrase in phrases if phrase)


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
