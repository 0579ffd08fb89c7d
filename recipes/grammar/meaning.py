"""The meaning of a sentence, before it is English or Hindi.

Noun phrases, clauses and compound sentences: the abstract syntax that both grammars (`english.py`, `hindi_clauses.py`)
realise. Each part has a path ("s" the subject, "o" the object, "o.p" its possessor), from which both grammars derive
alignment ids for the words they produce; words that share an id are aligned.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from grammar.lexicon import Adjective, FunctionWord, Gender, Noun, Verb

Tense = Literal["present", "past", "future", "progressive", "past progressive", "perfect", "used"]
Modal = Literal["can", "want", "like", "have", "should", "start"]
Mood = Literal["statement", "question", "command", "please", "let us"]
Fact = tuple[str, str, str]


class Word(NamedTuple):
    text: str
    alignment_ids: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class Pronoun:
    """English forms; the Hindi ones depend on the referent (see `hindi_noun_phrases.py`)."""

    subject: str
    object: str
    possessive: str
    person: int
    plural: bool
    gender: Gender | None


@dataclass(eq=False, slots=True)
class NounPhrase:
    head: Noun | Pronoun
    plural: bool = False
    article: str = ""  # "a" or "the"
    determiner: FunctionWord | None = None
    count: FunctionWord | None = None
    adjective: Adjective | None = None
    possessor: "NounPhrase | None" = None
    possessor_style: Literal["'s", "of", "compound"] = "'s"  # how English attaches the possessor
    gender: Gender | None = None  # fixed by a pronoun elsewhere ("the doctor … she"), else unspecified
    honorific: bool = False  # honorific plural: वे for father or mother, मेरे भाई referring to आप
    conjunct: "NounPhrase | None" = None  # "Ravi and Meera"

    @property
    def lemma(self) -> str:
        lemma = self.head.english if isinstance(self.head, Noun) else self.head.subject
        return f"{lemma} and {self.conjunct.lemma}" if self.conjunct else lemma

    @property
    def kinds(self) -> frozenset[str]:
        return self.head.kinds if isinstance(self.head, Noun) else frozenset()


@dataclass(eq=False, slots=True)
class AdjectivePhrase:
    """A predicative adjective: "very big", "bigger than the cat"."""

    adjective: Adjective
    very: bool = False
    than: NounPhrase | None = None


@dataclass(eq=False, slots=True)
class MeasurePhrase:
    """ "ten years old", "fifty rupees": दस साल का, पचास रुपये का. None: the number is asked for."""

    count: FunctionWord | None
    unit: Noun


@dataclass(eq=False, slots=True)
class Adjunct:
    """A prepositional phrase, or an adverb."""

    kind: Literal["place", "source", "tool", "company", "for", "into", "when", "manner", "often"]
    preposition: FunctionWord | None = None
    phrase: NounPhrase | None = None
    adverb: FunctionWord | None = None


Complement = AdjectivePhrase | NounPhrase | MeasurePhrase | Adjunct


@dataclass(eq=False, slots=True)
class Clause:
    verb: Verb
    subject: NounPhrase
    object: NounPhrase | None = None
    recipient: NounPhrase | None = None
    recipient_first: bool = False  # "gave Meera a book", not "gave a book to Meera"
    complement: Complement | None = None
    adjuncts: tuple[Adjunct, ...] = ()
    tense: Tense = "present"
    modal: Modal | None = None
    negative: bool = False
    mood: Mood = "statement"
    questioned: str = ""  # what a wh-question asks for: where, when, why, how, or the subject, object or complement
    existential: bool = False  # "there is a book on the table"
    subject_elided: bool = False  # in the second of two clauses with the same subject

    def fact(self) -> Fact:
        """Returns (subject, verb, argument); test sentences share no fact with training sentences."""
        part = self.object or self.complement
        if isinstance(part, Adjunct) or part is None:
            adjuncts = [part] if part else list(self.adjuncts)
            part = next((adjunct.phrase for adjunct in adjuncts if adjunct.phrase), None)
        argument = ""
        if isinstance(part, AdjectivePhrase):
            argument = part.adjective.english + (f" than {part.than.lemma}" if part.than else "")
        elif isinstance(part, MeasurePhrase):
            argument = f"{' '.join(part.count.english) if part.count else 'how many'} {part.unit.english}"
        elif part is not None:
            argument = part.lemma
        subject = "you" if self.mood in ("command", "please") else self.subject.lemma
        return (subject, self.verb.lemma, argument)


@dataclass(eq=False, slots=True)
class CompoundSentence:
    """Two sentences joined by a conjunction, each of which may itself be a compound."""

    first: "Clause | CompoundSentence"
    conjunction: str
    second: "Clause | CompoundSentence"

    def facts(self) -> tuple[Fact, ...]:
        # "I think that …" is only a frame: the embedded clause counts.
        return facts(self.second) if self.conjunction == "that" else facts(self.first) + facts(self.second)


Meaning = Clause | CompoundSentence


def facts(meaning: Meaning) -> tuple[Fact, ...]:
    return meaning.facts() if isinstance(meaning, CompoundSentence) else (meaning.fact(),)


def align_words(source: Iterable[Word], target: Iterable[Word]) -> tuple[tuple[int, int], ...]:
    """Returns the word alignment: pairs of positions whose words share an alignment id."""
    positions: dict[str, list[int]] = {}
    for j, word in enumerate(target):
        for id in word.alignment_ids:
            positions.setdefault(id, []).append(j)
    pairs = {(i, j) for i, word in enumerate(source) for id in word.alignment_ids for j in positions.get(id, ())}
    return tuple(sorted(pairs))
