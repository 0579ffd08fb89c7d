"""Translates texts with a sentence model: splits them, divides sentences that are too long, translates in batches, rejoins.

`Model.translate`, the command line and the server all translate through here.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from seq2see.decode.search import Hypothesis, Search
from seq2see.inspect.alignment import word_attention
from seq2see.storage.assessment import Assessment
from seq2see.storage.pipeline import Pipeline
from seq2see.translate.glossary import translate_with_terms
from seq2see.translate.markup import MarkedSentence, put_back, take_out
from seq2see.translate.placeholders import changed_placeholders, placeholder_spans, strip_markup
from seq2see.translate.segmentation import Span, SplitText, sentence_spans, split_long_sentence
from seq2see.translate.warning_log import WarningLog

WordAttention = Callable[[Pipeline, Sequence[tuple[str, str]]], list[Tensor]]  # [target words, source words]

_MAX_TOKENS_PER_CHARACTER = 9  # bytes of a character in UTF-8, composed or decomposed; a token has at least one byte


class TranslatedSentence(NamedTuple):
    text: str
    assessment: Assessment | None = None  # None if the model did not translate it


class SearchedText(NamedTuple):
    split: SplitText
    nbest_lists: list[list[Hypothesis]]  # of each sentence, best first
    assessments: list[Assessment]  # of each sentence's best translation


@dataclass(frozen=True)
class Translator:
    """Translates texts with the terms of a glossary; what `placeholders` matches is kept unchanged."""

    model: Pipeline
    warnings: WarningLog
    search: Search = field(default_factory=Search)
    placeholders: re.Pattern[str] | None = None
    attention: WordAttention = word_attention
    glossary: Mapping[str, str] = field(default_factory=dict)  # terms and the translations to use for them

    def translate(self, texts: Sequence[str], locations: Sequence[str]) -> list[str]:
        """Translates each text; `locations` say where they come from, for warnings."""
        splits = [self.split(text, location) for text, location in zip(texts, locations, strict=True)]
        sentences = [sentence for split in splits for sentence in split.sentences]
        if self.placeholders:
            repeated = [location for split, location in zip(splits, locations, strict=True) for _ in split.sentences]
            translated = iter(self._translate_protected(sentences, repeated, self.placeholders))
        else:
            translated = iter(self._translate_sentences(sentences))
        translations = []
        for split, location in zip(splits, locations, strict=True):
            parts = list(islice(translated, len(split.sentences)))
            self._note((part.assessment for part in parts), location)
            translations.append(split.join([part.text for part in parts]))
        return translations

    def hypotheses(self, texts: Sequence[str], locations: Sequence[str]) -> list[SearchedText]:
        """Splits each text and returns the n best translations of its sentences."""
        splits = [self.split(text, location) for text, location in zip(texts, locations, strict=True)]
        sentences = [sentence for split in splits for sentence in split.sentences]
        found = iter(self._search(sentences))
        results = []
        for split, location in zip(splits, locations, strict=True):
            nbest_lists = list(islice(found, len(split.sentences)))
            assessments = [
                self._assess(text, nbest[0]) for text, nbest in zip(split.sentences, nbest_lists, strict=True)
            ]
            self._note(assessments, location)
            results.append(SearchedText(split, nbest_lists, assessments))
        return results

    def split(self, text: str, location: str) -> SplitText:
        """Splits a text into sentences, and sentences that exceed the model's maximum length into parts."""
        protected = placeholder_spans(text, self.placeholders) if self.placeholders else []
        max_tokens = max(1, self.model.config.model.max_positions - 1)  # one position is for <end>
        spans: list[Span] = []
        for start, end in sentence_spans(text, protected):
            if self.placeholders:
                start, end = strip_markup(text, start, end, self.placeholders)
            sentence = text[start:end]
            tokens = 0 if len(sentence) * _MAX_TOKENS_PER_CHARACTER <= max_tokens else self._count_tokens(sentence)
            if tokens <= max_tokens:
                spans.append((start, end))
                continue
            inside = [(first - start, last - start) for first, last in protected if start <= first and last <= end]
            parts = split_long_sentence(sentence, self._count_tokens, max_tokens, inside)
            spans += [(start + first, start + last) for first, last in parts]
            self.warnings.add(
                "sentences exceeded the model's maximum length",
                location,
                f"{tokens:,} tokens exceed the model's maximum of {max_tokens:,}: translated in {len(parts):,} parts",
            )
        return SplitText.from_spans(text, spans)

    def _count_tokens(self, text: str) -> int:
        return len(self.model.tokenizers[0].encode(text))

    def _assess(self, sentence: str, hypothesis: Hypothesis) -> Assessment:
        words = self.placeholders.sub(" ", sentence) if self.placeholders else sentence
        return self.model.assess(words, hypothesis.confidence)

    def _note(self, assessments: Iterable[Assessment | None], location: str) -> None:
        """Warns about a text whose sentences have unknown words or low-confidence translations."""
        if note := Assessment.of_text(filter(None, assessments)).note:
            self.warnings.add("texts with unknown words or low confidence", location, note)

    def _translate_sentences(self, sentences: Sequence[str]) -> list[TranslatedSentence]:
        return [
            TranslatedSentence(one_line(self.model.text(best)), self._assess(sentence, best))
            for sentence, (best, *_) in zip(sentences, self._search(sentences), strict=True)
        ]

    def _search(self, sentences: Sequence[str]) -> list[list[Hypothesis]]:
        if not sentences:
            return []
        if self.glossary:
            return translate_with_terms(self.model, sentences, self.glossary, self.search)
        return self.model.hypotheses(sentences, **vars(self.search))

    def _translate_protected(
        self, sentences: Sequence[str], locations: Sequence[str], pattern: re.Pattern[str]
    ) -> list[TranslatedSentence]:
        """Translates sentences and keeps their placeholders.

        The model does not see the markup, unless it has no attention to put it back by. If it changed another placeholder,
        the text between the placeholders is translated separately; if the placeholders of the result still differ from those
        of the sentence, the sentence is left untranslated.
        """
        has_attention = self.model.config.model.cross_layers > 0
        marked = [take_out(sentence, pattern) if has_attention else MarkedSentence(sentence) for sentence in sentences]
        translations = self._translate_if_text([each.text for each in marked], pattern)
        retried = [i for i, each in enumerate(marked) if changed_placeholders(each.text, translations[i].text, pattern)]
        self._put_back(sentences, marked, translations)
        splits = [SplitText.from_spans(sentences[i], _spans_between(sentences[i], pattern)) for i in retried]
        parts = iter(self._translate_if_text([part for split in splits for part in split.sentences], pattern))
        for i, split in zip(retried, splits, strict=True):
            changed = ", ".join(dict.fromkeys(changed_placeholders(sentences[i], translations[i].text, pattern)))
            between = list(islice(parts, len(split.sentences)))
            assessment = Assessment.of_text(part.assessment for part in between if part.assessment)
            translations[i] = TranslatedSentence(split.join([part.text for part in between]), assessment)
            action = "translated the text around it"
            if changed_placeholders(sentences[i], translations[i].text, pattern):
                translations[i], action = TranslatedSentence(sentences[i]), "left untranslated"
            self.warnings.add(
                "sentences had placeholders that the model changed",
                locations[i],
                f"{changed} changed or lost: {action}",
            )
        return translations

    def _put_back(
        self, sentences: Sequence[str], marked: Sequence[MarkedSentence], translations: list[TranslatedSentence]
    ) -> None:
        """Puts the markup of the sentences into their translations."""
        for i, each in enumerate(marked):
            if each.elements and translations[i].text == each.text:
                translations[i] = translations[i]._replace(text=sentences[i])
        index = [i for i, each in enumerate(marked) if each.elements and translations[i].text != sentences[i]]
        pairs = [(marked[i].text, translations[i].text) for i in index]
        for i, weights in zip(index, self.attention(self.model, pairs), strict=True):
            text = put_back(marked[i], translations[i].text, weights.numpy())
            translations[i] = translations[i]._replace(text=text)

    def _translate_if_text(self, sentences: Sequence[str], pattern: re.Pattern[str]) -> list[TranslatedSentence]:
        """Translates the sentences that contain a letter outside their placeholders; returns the others unchanged."""
        has_text = [any(map(str.isalpha, pattern.sub("", sentence))) for sentence in sentences]
        translated = iter(
            self._translate_sentences([sentence for sentence, text in zip(sentences, has_text, strict=True) if text])
        )
        return [
            next(translated) if text else TranslatedSentence(sentence)
            for sentence, text in zip(sentences, has_text, strict=True)
        ]


def one_line(text: str) -> str:
    """Replaces line feeds: one in a translation would misalign all lines after it."""
    return text.replace("\n", " ").strip()


def _spans_between(text: str, pattern: re.Pattern[str]) -> list[Span]:
    """Returns the spans between the placeholders, without the whitespace around them."""
    edges = [0, *(edge for span in placeholder_spans(text, pattern) for edge in span), len(text)]
    spans = []
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        part = text[start:end]
        if part.strip():
            left = start + len(part) - len(part.lstrip())
            spans.append((left, left + len(part.strip())))
    return spans
