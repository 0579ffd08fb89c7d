"""Translates texts with a sentence model: splits them, divides sentences that are too long, translates in batches, rejoins.

`Model.translate`, the command line and the server all translate through here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from seq2see.decode.search import Hypothesis, Search
from seq2see.storage.assessment import Assessment
from seq2see.storage.pipeline import Pipeline
from seq2see.translate.segmentation import Span, SplitText, sentence_spans, split_long_sentence
from seq2see.translate.warning_log import WarningLog

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
    glossary: Mapping[str, str] = field(default_factory=dict)  # terms and the translations to use for them

    def translate(self, texts: Sequence[str], locations: Sequence[str]) -> list[str]:
        """Translates each text; `locations` say where they come from, for warnings."""
        splits = [self.split(text, location) for text, location in zip(texts, locations, strict=True)]
        sentences = [sentence for split in splits for sentence in split.sentences]
        if self.placeholders:
            from seq2see.translate.protected import translate_protected

            repeated = [location for split, location in zip(splits, locations, strict=True) for _ in split.sentences]
            translated = iter(translate_protected(self, sentences, repeated, self.placeholders))
        else:
            translated = iter(self.translate_sentences(sentences))
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
        protected: list[Span] = []
        if self.placeholders:
            from seq2see.translate.placeholders import placeholder_spans, strip_markup

            protected = placeholder_spans(text, self.placeholders)
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

    def translate_sentences(self, sentences: Sequence[str]) -> list[TranslatedSentence]:
        """Translates each text as one sentence, without regard to placeholders."""
        return [
            TranslatedSentence(one_line(self.model.text(best)), self._assess(sentence, best))
            for sentence, (best, *_) in zip(sentences, self._search(sentences), strict=True)
        ]

    def _search(self, sentences: Sequence[str]) -> list[list[Hypothesis]]:
        if not sentences:
            return []
        if self.glossary:
            from seq2see.translate.glossary import translate_with_terms

            return translate_with_terms(self.model, sentences, self.glossary, self.search)
        return self.model.hypotheses(sentences, **vars(self.search))

    def word_attention(self, pairs: Sequence[tuple[str, str]]) -> list[Tensor]:
        """Returns the attention between the words of pairs of a sentence and its translation: [target words, source words]."""
        from seq2see.inspect.alignment import word_attention

        return word_attention(self.model, pairs)


def one_line(text: str) -> str:
    """Replaces line feeds: one in a translation would misalign all lines after it."""
    return text.replace("\n", " ").strip()
