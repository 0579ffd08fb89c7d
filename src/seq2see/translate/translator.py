"""A model of sentences as a translator of texts: split, cut where too long, translated together, joined again."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from seq2see.translate.notices import Notes
from seq2see.translate.placeholders import harmed, spans, unwrapped
from seq2see.translate.segmentation import Span, Split, cut, sentence_spans

if TYPE_CHECKING:
    from seq2see.api import Model


@dataclass(frozen=True)
class Translator:
    """Texts in, texts out. With `keep`, what it matches is in the translation as it was in the text."""

    model: "Model"
    notes: Notes
    beam: int = 1
    keep: re.Pattern[str] | None = None

    def translate(self, texts: Sequence[str], places: Sequence[str]) -> list[str]:
        """The translation of each text; `places` say where they stand, for the notes."""
        splits = [self.split(text, place) for text, place in zip(texts, places, strict=True)]
        sentences = [sentence for split in splits for sentence in split.sentences]
        where = [place for split, place in zip(splits, places, strict=True) for _ in split.sentences]
        translations = iter(self._kept(sentences, where) if self.keep else self._model(sentences))
        return [split.join(list(islice(translations, len(split.sentences)))) for split in splits]

    def split(self, text: str, place: str) -> Split:
        """The parts of a text that the model takes: its sentences, or where one is too long, parts of it."""
        whole = spans(text, self.keep) if self.keep else []
        longest = max(1, self.model.config.model.longest - 1)  # <end> is read, too
        found: list[Span] = []
        for start, end in sentence_spans(text, whole):
            if self.keep:
                start, end = unwrapped(text, start, end, self.keep)
            sentence = text[start:end]
            tokens = 0 if len(sentence) * _BYTES <= longest else self._tokens(sentence)
            if tokens <= longest:
                found.append((start, end))
                continue
            inside = [(first - start, last - start) for first, last in whole if start <= first and last <= end]
            parts = cut(sentence, self._tokens, longest, inside)
            found += [(start + first, start + last) for first, last in parts]
            what = (
                f"a sentence of {tokens:,} tokens, and the model takes {longest:,}: translated in {len(parts):,} parts"
            )
            self.notes.add("sentences were longer than the model takes", place, what)
        return Split.of(text, found)

    def _tokens(self, text: str) -> int:
        return len(self.model.tokenizers[0].encode(text))

    def _model(self, sentences: Sequence[str]) -> list[str]:
        if not sentences:
            return []
        return [one_line(text) for text in self.model.translate(sentences, beam=self.beam)]

    def _kept(self, sentences: Sequence[str], places: Sequence[str]) -> list[str]:
        """Translations whose placeholders are those of their sentences.

        Where the model harmed one, the text between them is translated by itself; where even that has others than the
        sentence, it stays as it was.
        """
        assert self.keep is not None
        translations = self._words_only(sentences)
        again = [i for i, sentence in enumerate(sentences) if harmed(sentence, translations[i], self.keep)]
        around = [Split.of(sentences[i], _between(sentences[i], self.keep)) for i in again]
        parts = iter(self._words_only([part for split in around for part in split.sentences]))
        for i, split in zip(again, around, strict=True):
            lost = ", ".join(dict.fromkeys(harmed(sentences[i], translations[i], self.keep)))
            translations[i] = split.join(list(islice(parts, len(split.sentences))))
            done = "translated around it"
            if harmed(sentences[i], translations[i], self.keep):
                translations[i], done = sentences[i], "left as it is"
            self.notes.add(
                "sentences in which the model changed a placeholder", places[i], f"{lost} changed or lost: {done}"
            )
        return translations

    def _words_only(self, sentences: Sequence[str]) -> list[str]:
        """The translations of those sentences that have a letter beside their placeholders; the others as they are."""
        assert self.keep is not None
        keep = self.keep
        wordy = [any(map(str.isalpha, keep.sub("", sentence))) for sentence in sentences]
        found = iter(self._model([sentence for sentence, has in zip(sentences, wordy, strict=True) if has]))
        return [next(found) if has else sentence for sentence, has in zip(sentences, wordy, strict=True)]


_BYTES = 9  # of one character in UTF-8, composed or not: no tokenizer makes more tokens of it


def one_line(text: str) -> str:
    """What a model wrote, as part of one line: were a line feed in it, all lines behind would fall out of step."""
    return text.replace("\n", " ").strip()


def _between(text: str, pattern: re.Pattern[str]) -> list[Span]:
    """The text between the placeholders, without the white space around it."""
    edges = [0, *(place for span in spans(text, pattern) for place in span), len(text)]
    found = []
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        part = text[start:end]
        if part.strip():
            left = start + len(part) - len(part.lstrip())
            found.append((left, left + len(part.strip())))
    return found
