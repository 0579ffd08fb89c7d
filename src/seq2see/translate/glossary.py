"""Glossaries: terms of a source and the translations that must be used for them.

A sentence is translated freely first. If a term's translation is missing, cross-attention says which words of the result come
from the term. A constrained search then keeps what comes before them and writes the term's translation in their place; the word
before it, which may be an article, and the rest are chosen anew. Terms are placed in the order of the translation.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seq2see.data.lines import read_lines
from seq2see.data.token_spans import Span
from seq2see.data.tokenizer import Tokenizer
from seq2see.data.word_spans import wordpunct_spans
from seq2see.decode.constraints import Constraints, Phrase
from seq2see.decode.search import Hypothesis, Search
from seq2see.errors import UserError
from seq2see.inspect.alignment import WordWeights, best_run

if TYPE_CHECKING:
    from seq2see.translate.translator import Translator

MAX_CHARACTERS = 500  # of a term and its translation
MIN_BEAM = 4  # of a search with constraints
MAX_STARTS = 3  # places that are tried for a term

# Scripts, in Unicode's names.
WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


class TermMatch(NamedTuple):
    """A term in a sentence."""

    start: int
    end: int
    translation: str


class Glossary:
    """Terms and their translations, looked up by length: the time to find them does not depend on their number."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self._terms: dict[str, list[tuple[int, str, str]]] = {}  # number, term and translation, by folded term
        self._lengths: dict[str, set[int]] = {}  # of the terms that begin with a character
        for number, (term, translation) in enumerate(terms.items()):
            if len(term) + len(translation) > MAX_CHARACTERS:
                raise UserError(
                    f'"{term[:40]}…" and its translation exceed {MAX_CHARACTERS} characters: use a shorter term'
                )
            folded, _ = _folded(term.strip())
            self._terms.setdefault(folded, []).append((number, term.strip(), translation))
            self._lengths.setdefault(folded[:1], set()).add(len(folded))

    def find(self, sentence: str) -> list[TermMatch]:
        """Returns the terms in a sentence, as a word or several, in any case. Of those that overlap, the longest is used."""
        text, positions = _folded(sentence)
        is_inside = [*map(_in_word, text), False]  # a word; the last is the one before the first character
        matches = []
        for i, character in enumerate(text):
            for length in self._lengths.get(character, ()) if not is_inside[i - 1] else ():
                folded = text[i : i + length]
                if folded not in self._terms or len(folded) < length or is_inside[i + length]:
                    continue
                start, end = positions[i], positions[i + length - 1] + 1
                for number, term, translation in self._terms[folded]:
                    preference = start - end, sentence[start:end] != term, number
                    matches.append((preference, TermMatch(start, end, translation)))
        taken = bytearray(len(sentence))
        chosen: list[TermMatch] = []
        for _, match in sorted(matches):
            if not any(taken[match.start : match.end]):
                taken[match.start : match.end] = b"\1" * (match.end - match.start)
                chosen.append(match)
        return sorted(chosen)


def _folded(text: str) -> tuple[str, list[int]]:
    """Returns a text without case and with single spaces, and where each of its characters stands."""
    characters: list[str] = []
    positions: list[int] = []
    for i, character in enumerate(text):
        folded = " " if character.isspace() else character.casefold()
        if folded != " " or characters[-1:] != [" "]:
            characters.append(folded if len(folded) == 1 else character)
            positions.append(i)
    return "".join(characters), positions


def translate_with_terms(translator: "Translator", sentences: Sequence[str]) -> list[list[Hypothesis]]:
    """Returns the hypotheses of each sentence, with the translations of its terms."""
    model, search = translator.model, translator.search
    drafts = []
    for sentence in sentences:
        translator.check()
        drafts.append(_Draft(sentence, translator.terms.find(sentence), model.tokenizers[1]))
    found = model.search_sentences(sentences, search)
    # By the mean per token, a term could be hidden in words that nobody wrote; by the sum, it costs least where it belongs.
    constrained = Search(
        beam=max(search.beam, MIN_BEAM), nbest=search.nbest, length_penalty=0.0, max_new_tokens=search.max_new_tokens
    )
    incomplete = [i for i, draft in enumerate(drafts) if draft.terms]
    while incomplete:
        translator.check()
        for i in incomplete:
            drafts[i].update(model.text(found[i][0]))
        incomplete = [i for i in incomplete if drafts[i].missing]
        pairs = [(drafts[i].sentence, drafts[i].text) for i in incomplete]
        has_attention = model.config.model.cross_layers > 0
        attention = (
            [each.numpy() for each in translator.word_attention(pairs)] if has_attention else [None] * len(pairs)
        )
        tried = [
            (i, each) for i, weights in zip(incomplete, attention, strict=True) for each in drafts[i].place(weights)
        ]
        sources, constraints = [sentences[i] for i, _ in tried], [each for _, each in tried]
        results = model.search_sentences(sources, constrained, constraints=constraints)
        best: dict[int, list[Hypothesis]] = {}
        for (i, _), nbest in zip(tried, results, strict=True):
            if i not in best or nbest[0].score > best[i][0].score:
                best[i] = nbest
        for i, nbest in best.items():
            found[i] = nbest
        incomplete = [i for i in incomplete if not drafts[i].is_final]
    return [
        [each for each in nbest if not draft.missing_in(model.text(each))] or nbest[:1]
        for draft, nbest in zip(drafts, found, strict=True)
    ]


@dataclass
class _Draft:
    """A translation while its terms are placed, from the first to the last."""

    sentence: str
    terms: Sequence[TermMatch]
    target: Tokenizer
    text: str = ""
    fixed: int = 0  # characters of the text that are final
    placed: str = ""  # the translation that was placed last
    is_lost: bool = False  # whether the search did not write that: its length was limited
    is_final: bool = False  # whether the last search had all terms that were missing

    def update(self, text: str) -> None:
        """Takes the translation of the last search. What comes before the term that it placed stays."""
        self.text = text
        span = _find(self.placed, text, self.fixed) if self.placed else None
        self.fixed = span[1] if span else self.fixed
        self.is_lost = bool(self.placed) and span is None

    @property
    def missing(self) -> list[TermMatch]:
        return self.missing_in(self.text)

    def missing_in(self, text: str) -> list[TermMatch]:
        return [term for term in self.terms if not _find(term.translation, text)]

    def place(self, weights: WordWeights | None) -> list[Constraints]:
        """Returns constraints to try for the next term to be placed, or for all if it is unknown where they belong."""
        missing, continuations = self.missing, word_continuations(self.target)
        found = [(starts, term) for term in missing if (starts := self._starts(term, weights))]
        if not found or self.is_lost:
            self.is_final = True
            phrases = dict.fromkeys(_tokens(term.translation.strip(), self.target) for term in missing)
            return [Constraints(tuple(phrases), self._encode(self.text[: self.fixed]), None, continuations)]
        starts, term = min(found, key=lambda each: each[0][0])
        self.placed = term.translation.strip()
        phrase = _tokens(self.placed, self.target)
        tried = []
        for start in starts:
            before = self.text[:start]
            if not before.strip() or not before[-1].isspace():  # at the beginning, or after l'
                tried.append(Constraints((), self._encode(before + self.placed), None, continuations))
            if before.strip():
                cut = max(before.rstrip().rfind(" "), self.fixed, 0)
                between = len(self._encode(before[cut:]))
                tried.append(Constraints((phrase,), self._encode(before[:cut]), between, continuations))
        return tried

    def _starts(self, term: TermMatch, weights: WordWeights | None) -> list[int]:
        """Returns where the words that come from a term may begin in the text, since attention may include an article."""
        words = wordpunct_spans(self.text)
        sources = wordpunct_spans(self.sentence)
        inside = range(
            bisect_right([b for _, b in sources], term.start), bisect_left([a for a, _ in sources], term.end)
        )
        usable = [start >= self.fixed and any(map(_in_word, self.text[start:stop])) for start, stop in words]
        runs = [list(run) for is_usable, run in groupby(range(len(words)), usable.__getitem__) if is_usable]
        if weights is None or not runs or not inside:
            return []
        first, last = best_run(weights, runs, inside)
        starts = (words[j][0] for j in range(first, last + 1))
        return [start + _elided(self.text[start:], term.translation.strip()) for start in starts][:MAX_STARTS]

    def _encode(self, text: str) -> Phrase:
        return tuple(self.target.encode(text.strip()))


def _elided(text: str, term: str) -> int:
    """Returns the length of l' or the like at the beginning of a text, if it may come before the term too; otherwise 0."""
    match = re.match(r"\w{1,2}['’](?=\w)", text)
    vowel = unicodedata.normalize("NFD", term)[0].lower() in "aeiouyh"
    return match.end() if match and vowel else 0


@lru_cache(maxsize=16)
def word_continuations(target: Tokenizer) -> frozenset[int]:
    """Returns the tokens that continue a word; an apostrophe does, and so may a part of a character."""
    if target.kind == "word":
        return frozenset()
    texts = (target.decode([id], True) for id in range(len(target)))
    return frozenset(id for id, text in enumerate(texts) if text and (_in_word(text[0]) or text[0] in "'’\ufffd"))


def _find(translation: str, text: str, start: int = 0) -> Span | None:
    """Returns where a translation stands in a text, as given and not as part of other words."""
    translation = translation.strip()
    while (start := text.find(translation, start)) >= 0:
        if _stands_alone(text, start, start + len(translation)):
            return start, start + len(translation)
        start += 1
    return None


def _stands_alone(sentence: str, start: int, end: int) -> bool:
    """Returns whether no word continues before or after a span."""
    return not any(map(_in_word, sentence[max(start - 1, 0) : start] + sentence[end : end + 1]))


def _in_word(character: str) -> bool:
    """Whether a character is part of a word that spaces separate from others; vowel signs are."""
    if not character.isalnum() and character != "_" and not unicodedata.category(character).startswith("M"):
        return False
    return not unicodedata.name(character, "").startswith(WITHOUT_SPACES)


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


def read_glossary(path: Path) -> dict[str, str]:
    """Reads a file with a term, a tab and its translation on each line."""
    glossary: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line or not line.strip():
            continue
        term, _, translation = (part.strip() for part in line.partition("\t"))
        if not term or not translation or "\t" in translation:
            raise UserError(f"line {number:,} of {path} is not a term, a tab and its translation")
        if glossary.setdefault(term, translation) != translation:
            raise UserError(f'line {number:,} of {path}: "{term}" has another translation above, "{glossary[term]}"')
    if not glossary:
        raise UserError(f"{path} has no terms: write a term, a tab and its translation on each line")
    return glossary
