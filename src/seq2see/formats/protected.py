"""Translates sentences and keeps their placeholders: those that stand for words, and the markup around words.

The model does not see the markup, unless it has no attention to put it back by. If it changed another placeholder, the text
between the placeholders is translated separately; if the placeholders of the result still differ from those of the sentence,
the sentence is left untranslated.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice

from seq2see.formats.markup import MarkedSentence, put_back, take_out
from seq2see.formats.placeholders import changed_placeholders, strip_markup
from seq2see.translate.segmentation import Span, SplitText
from seq2see.translate.translator import TranslatedSentence, TranslatedText, Translator

_PART = re.compile(r"\S(?:.*\S)?", re.DOTALL)


def protect(translator: Translator, placeholders: re.Pattern[str] | None) -> Translator:
    """Returns a translator that keeps what the pattern matches."""
    return replace(translator, protection=Placeholders(placeholders) if placeholders else None)


@dataclass(frozen=True)
class Placeholders:
    """A `Protection` of what a pattern matches."""

    pattern: re.Pattern[str]

    def spans(self, text: str) -> list[Span]:
        return [match.span() for match in self.pattern.finditer(text)]

    def strip(self, text: str, start: int, end: int) -> Span:
        return strip_markup(text, start, end, self.pattern)

    def words(self, sentence: str) -> str:
        return self.pattern.sub(" ", sentence)

    def translate(
        self, translator: Translator, sentences: Sequence[str], locations: Sequence[str]
    ) -> list[TranslatedSentence]:
        return _translate(translator, sentences, locations, self.pattern)


def _translate(
    translator: Translator, sentences: Sequence[str], locations: Sequence[str], pattern: re.Pattern[str]
) -> list[TranslatedSentence]:
    has_attention = translator.model.config.model.cross_layers > 0
    marked = [take_out(sentence, pattern) if has_attention else MarkedSentence(sentence) for sentence in sentences]
    translations = _translate_if_text(translator, [each.text for each in marked], pattern)
    retried = [i for i, each in enumerate(marked) if changed_placeholders(each.text, translations[i].text, pattern)]
    _put_back(translator, sentences, marked, translations)
    splits = [_split_at_placeholders(sentences[i], pattern) for i in retried]
    parts = iter(_translate_if_text(translator, [part for split in splits for part in split.sentences], pattern))
    for i, split in zip(retried, splits, strict=True):
        changed = ", ".join(dict.fromkeys(changed_placeholders(sentences[i], translations[i].text, pattern)))
        between = list(islice(parts, len(split.sentences)))
        text, action = TranslatedText(split, between), "translated the text around it"
        translations[i] = TranslatedSentence(sentences[i], text.text, text.assessment)
        if changed_placeholders(sentences[i], text.text, pattern):
            translations[i], action = TranslatedSentence(sentences[i], sentences[i]), "left untranslated"
        translator.warnings.add(
            "sentences had placeholders that the model changed",
            locations[i],
            f"{changed} changed or lost: {action}",
        )
    return translations


def _put_back(
    translator: Translator,
    sentences: Sequence[str],
    marked: Sequence[MarkedSentence],
    translations: list[TranslatedSentence],
) -> None:
    """Puts the markup of the sentences into their translations."""
    has_markup = [i for i, each in enumerate(marked) if each.elements]
    for i in has_markup:
        if translations[i].text == marked[i].text:
            translations[i] = translations[i]._replace(text=sentences[i])
    index = [i for i in has_markup if translations[i].text != sentences[i]]
    pairs = [(marked[i].text, translations[i].text) for i in index]
    for i, weights in zip(index, translator.word_attention(pairs), strict=True):
        text = put_back(marked[i], translations[i].text, weights.numpy())
        translations[i] = translations[i]._replace(text=text)


def _translate_if_text(
    translator: Translator, sentences: Sequence[str], pattern: re.Pattern[str]
) -> list[TranslatedSentence]:
    """Translates the sentences that contain a letter outside their placeholders; returns the others unchanged."""
    has_text = [any(map(str.isalpha, pattern.sub("", sentence))) for sentence in sentences]
    translated = iter(translator.translate_sentences(list(compress(sentences, has_text))))
    return [
        next(translated) if text else TranslatedSentence(sentence, sentence)
        for sentence, text in zip(sentences, has_text, strict=True)
    ]


def _split_at_placeholders(text: str, pattern: re.Pattern[str]) -> SplitText:
    """Returns the text between the placeholders, without the whitespace around it, as the sentences of a text."""
    edges = [0, *(edge for match in pattern.finditer(text) for edge in match.span()), len(text)]
    between = zip(edges[::2], edges[1::2], strict=True)
    return SplitText.from_spans(text, [part.span() for span in between for part in _PART.finditer(text, *span)])
