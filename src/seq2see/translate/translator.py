"""Translates texts with a sentence model: splits them, divides sentences that are too long, translates in batches, rejoins.

`Model.translate`, the command line and the server all translate through here.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from seq2see.decode.search import Hypothesis, Search
from seq2see.storage.assessment import Assessment
from seq2see.storage.pipeline import Pipeline
from seq2see.translate.segmentation import Span, SplitText, sentence_spans, split_long_sentence
from seq2see.translate.warning_log import WarningLog

if TYPE_CHECKING:
    from seq2see.translate.glossary import Glossary

_PAIRS = 100  # whose attention is computed at a time
_MAX_TOKENS_PER_CHARACTER = 9  # bytes of a character in UTF-8, composed or decomposed; a token has at least one byte


class TranslatedSentence(NamedTuple):
    source: str
    text: str
    assessment: Assessment = Assessment()
    nbest: Sequence[Hypothesis] = ()  # best first; empty if it was put together from several translations


class TranslatedText(NamedTuple):
    split: SplitText
    sentences: list[TranslatedSentence]

    @property
    def text(self) -> str:
        return self.split.join([sentence.text for sentence in self.sentences])

    @property
    def assessment(self) -> Assessment:
        return Assessment.of_text([sentence.assessment for sentence in self.sentences])


@dataclass(frozen=True)
class Sentence:
    span: Span  # in the text that it is from
    text: str  # what the model reads


class Source(Protocol):
    """A text as the model reads it, for example without markup."""

    text: str

    @property
    def protected(self) -> Sequence[Span]:
        """What must not be divided."""

    def sentence(self, start: int, stop: int) -> Sentence: ...


class Protection(Protocol):
    """What a translation keeps unchanged, such as markup; the formats of documents have it."""

    def read(self, text: str, model: Pipeline) -> Source: ...

    def words(self, sentence: str) -> str:
        """Returns a sentence without what is kept."""

    def translate(
        self, translator: "Translator", sentences: Sequence[Any], locations: Sequence[str]
    ) -> list[TranslatedSentence]:
        """Translates sentences of the sources that `read` returns; each stands for all of the text at its span."""

    def changes(self, text: str, translation: str) -> str:
        """Returns a note on what a translation lost or added of what is kept; an empty string if nothing."""


@dataclass(frozen=True)
class Translator:
    """Translates texts with the terms of a glossary. `check` is called between sentences, and raises an error to stop."""

    model: Pipeline
    warnings: WarningLog = field(default_factory=WarningLog)
    search: Search = field(default_factory=Search)
    protection: Protection | None = None
    glossary: Mapping[str, str] = field(default_factory=dict)  # terms and the translations to use for them
    check: Callable[[], None] = lambda: None

    @cached_property
    def terms(self) -> "Glossary":
        from seq2see.translate.glossary import Glossary

        return Glossary(self.glossary)

    def translate(self, texts: Sequence[str], locations: Sequence[str]) -> list[str]:
        """Translates each text; `locations` say where they come from, for warnings."""
        return [found.text for found in self.translate_by_sentence(texts, locations)]

    def translate_by_sentence(self, texts: Sequence[str], locations: Sequence[str]) -> list[TranslatedText]:
        """Splits each text and translates its sentences, those of all texts together."""
        sentences = []
        for text, location in zip(texts, locations, strict=True):
            self.check()
            sentences.append(self.sentences(text, location))
        together = list(chain.from_iterable(sentences))
        if self.protection:
            repeated = [location for each, location in zip(sentences, locations, strict=True) for _ in each]
            translated = iter(self.protection.translate(self, together, repeated))
        else:
            translated = iter(self.translate_sentences([each.text for each in together]))
        found = []
        for text, location, each in zip(texts, locations, sentences, strict=True):
            split = SplitText.from_spans(text, [sentence.span for sentence in each])
            whole = TranslatedText(split, list(islice(translated, len(each))))
            if self.protection and (changed := self.protection.changes(text, whole.text)):
                whole = TranslatedText(SplitText((), (text,)), [])
                note = f"{changed}: left untranslated"
                self.warnings.add("texts had placeholders that the model changed", location, note)
            if note := whole.assessment.note:
                self.warnings.add("texts with unknown words or low confidence", location, note)
            found.append(whole)
        return found

    def sentences(self, text: str, location: str) -> list[Sentence]:
        """Splits a text into sentences, and sentences that exceed the model's maximum length into parts."""
        source = self.protection.read(text, self.model) if self.protection else None
        plain, protected = (source.text, source.protected) if source else (text, ())
        max_tokens = max(1, self.model.config.model.max_positions - 1)  # one position is for <end>
        spans: list[Span] = []
        for start, end in sentence_spans(plain, protected):
            sentence = plain[start:end]
            tokens = 0 if len(sentence) * _MAX_TOKENS_PER_CHARACTER <= max_tokens else self._count_tokens(sentence)
            if tokens <= max_tokens:
                spans.append((start, end))
                continue
            inside = protected[bisect_left(protected, (start,)) : bisect_left(protected, (end,))]
            inside = [(first - start, last - start) for first, last in inside]
            parts = split_long_sentence(sentence, self._count_tokens, max_tokens, inside)
            spans += [(start + first, start + last) for first, last in parts]
            self.warnings.add(
                "sentences exceeded the model's maximum length",
                location,
                f"{tokens:,} tokens exceed the model's maximum of {max_tokens:,}: translated in {len(parts):,} parts",
            )
        return [source.sentence(*span) if source else Sentence(span, text[slice(*span)]) for span in spans]

    def _count_tokens(self, text: str) -> int:
        return len(self.model.tokenizers[0].encode(text))

    def translate_sentences(self, sentences: Sequence[str]) -> list[TranslatedSentence]:
        """Translates each text as one sentence, without regard to what is kept unchanged."""
        if self.glossary:
            from seq2see.translate.glossary import translate_with_terms

            found = translate_with_terms(self, sentences)
        else:
            found = self.model.search_sentences(sentences, self.search)
        translated = []
        for sentence, nbest in zip(sentences, found, strict=True):
            words = self.protection.words(sentence) if self.protection else sentence
            assessment = self.model.assess(words, nbest[0].confidence)
            translated.append(TranslatedSentence(sentence, one_line(self.model.text(nbest[0])), assessment, nbest))
        return translated

    def word_attention(self, pairs: Sequence[tuple[str, str]]) -> list[Tensor]:
        """Returns the attention between the words of pairs of a sentence and its translation: [target words, source words]."""
        from seq2see.inspect.alignment import word_attention

        found: list[Tensor] = []
        for start in range(0, len(pairs), _PAIRS):
            self.check()
            found += word_attention(self.model, pairs[start : start + _PAIRS])
        return found


def one_line(text: str) -> str:
    """Replaces line feeds: one in a translation would misalign all lines after it."""
    return text.replace("\n", " ").strip()
