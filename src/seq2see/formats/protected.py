"""Translates sentences and keeps their placeholders: those that stand for words, and the markup around words.

The model does not see the markup, unless it has no attention to put it back by. If it changed another placeholder, the text
between the placeholders is translated separately; if the placeholders of the result still differ from those of the sentence,
the sentence is left untranslated. Either is reported.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice

from seq2see.formats.markup import MarkedSentence, MarkedText, put_back, take_out
from seq2see.formats.placeholders import changed_placeholders, lost_or_added
from seq2see.storage.pipeline import Pipeline
from seq2see.translate.segmentation import SplitText
from seq2see.translate.translator import TranslatedSentence, TranslatedText, Translator

_PART = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_MAX_SHOWN = 60  # characters of placeholders in a warning


def protect(translator: Translator, placeholders: re.Pattern[str] | None) -> Translator:
    """Returns a translator that keeps what the pattern matches."""
    return replace(translator, protection=Placeholders(placeholders) if placeholders else None)


@dataclass(frozen=True)
class Placeholders:
    """A `Protection` of what a pattern matches."""

    pattern: re.Pattern[str]

    def read(self, text: str, model: Pipeline) -> MarkedText:
        return take_out(text, self.pattern, is_taken=model.config.model.cross_layers > 0)

    def words(self, sentence: str) -> str:
        return self.pattern.sub(" ", sentence)

    def translate(
        self, translator: Translator, sentences: Sequence[MarkedSentence], locations: Sequence[str]
    ) -> list[TranslatedSentence]:
        return _translate(translator, sentences, locations, self.pattern)

    def changes(self, text: str, translation: str) -> str:
        return _note(lost_or_added(text, translation, self.pattern))


def _translate(
    translator: Translator, sentences: Sequence[MarkedSentence], locations: Sequence[str], pattern: re.Pattern[str]
) -> list[TranslatedSentence]:
    translations = _translate_if_text(translator, [each.text for each in sentences], pattern)
    changes = [
        changed_placeholders(each.text, found.text, pattern)
        for each, found in zip(sentences, translations, strict=True)
    ]
    _put_back(translator, sentences, translations)
    for i, each in enumerate(sentences):
        changes[i] = changes[i] or lost_or_added(each.raw, translations[i].text, pattern)
    retried = [i for i, changed in enumerate(changes) if changed]
    splits = [_split_at_placeholders(sentences[i].raw, pattern) for i in retried]
    parts = iter(_translate_if_text(translator, [part for split in splits for part in split.sentences], pattern))
    for i, split in zip(retried, splits, strict=True):
        raw, between = sentences[i].raw, list(islice(parts, len(split.sentences)))
        text, action = TranslatedText(split, between), "translated the text around it"
        translations[i] = TranslatedSentence(raw, text.text, text.assessment)
        if changed_placeholders(raw, text.text, pattern):
            translations[i], action = TranslatedSentence(raw, raw), "left untranslated"
        translator.warnings.add(
            "sentences had placeholders that the model changed", locations[i], f"{_note(changes[i])}: {action}"
        )
    return translations


def _put_back(
    translator: Translator, sentences: Sequence[MarkedSentence], translations: list[TranslatedSentence]
) -> None:
    """Puts the markup of the sentences into their translations."""
    marked = [i for i, each in enumerate(sentences) if each.elements]
    changed = [i for i in marked if translations[i].text != sentences[i].text]
    texts = {i: sentences[i].raw for i in marked}
    attention = translator.word_attention([(sentences[i].text, translations[i].text) for i in changed])
    for i, weights in zip(changed, attention, strict=True):
        translator.check()
        texts[i] = put_back(sentences[i], translations[i].text, weights.numpy())
    for i, text in texts.items():
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


def _note(changed: Sequence[str]) -> str:
    names = ", ".join(dict.fromkeys(changed))
    shown = names if len(names) <= _MAX_SHOWN else f"{names[: _MAX_SHOWN - 1]}…"
    return f"{shown} changed or lost" if shown else ""


def _split_at_placeholders(text: str, pattern: re.Pattern[str]) -> SplitText:
    """Returns the text between the placeholders, without the whitespace around it, as the sentences of a text."""
    edges = [0, *(edge for match in pattern.finditer(text) for edge in match.span()), len(text)]
    between = zip(edges[::2], edges[1::2], strict=True)
    return SplitText.from_spans(text, [part.span() for span in between for part in _PART.finditer(text, *span)])
