"""What a sentence means, before it is English or Hindi.

A noun phrase, a clause, and two clauses joined: the abstract syntax that both grammars (`english.py`, `hindi.py`) put into
words. Each part of it has a path ("s" the subject, "o" the object, "o.p" whose it is), under which both grammars mark the
words they make of it; words with a common mark are aligned.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seq2see.course.grammar.lexicon import Adjective, Gender, Noun, Small, Verb

Tense = Literal["present", "past", "future", "progressive", "past progressive", "perfect", "used"]
Modal = Literal["can", "want", "like", "have", "should", "start"]
Mood = Literal["statement", "question", "command", "please", "let us"]
Fact = tuple[str, str, str]


class Word(NamedTuple):
    text: str
    marks: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class Pronoun:
    """English forms; the Hindi ones depend on who is meant (see `hindi.py`)."""

    subject: str
    object: str
    possessive: str
    person: int
    plural: bool
    gender: Gender | None


@dataclass(eq=False, slots=True)
class Phrase:
    head: Noun | Pronoun
    plural: bool = False
    article: str = ""  # "a" or "the"
    determiner: Small | None = None
    count: Small | None = None
    adjective: Adjective | None = None
    possessor: "Phrase | None" = None
    link: Literal["'s", "of", "compound"] = "'s"  # how English joins the possessor
    gender: Gender | None = None  # fixed by a pronoun elsewhere ("the doctor … she"), else open
    respect: bool = False  # plural out of respect: वे for father or mother, मेरे भाई said of आप
    also: "Phrase | None" = None  # "Ravi and Meera"

    @property
    def lemma(self) -> str:
        own = self.head.english if isinstance(self.head, Noun) else self.head.subject
        return f"{own} and {self.also.lemma}" if self.also else own

    @property
    def kinds(self) -> frozenset[str]:
        return self.head.kinds if isinstance(self.head, Noun) else frozenset()


@dataclass(eq=False, slots=True)
class Quality:
    """An adjective said of the subject: "very big", "bigger than the cat"."""

    adjective: Adjective
    very: bool = False
    than: Phrase | None = None


@dataclass(eq=False, slots=True)
class Measure:
    """ "ten years old", "fifty rupees": दस साल का, पचास रुपये का. None asks for the number."""

    count: Small | None
    unit: Noun


@dataclass(eq=False, slots=True)
class Adjunct:
    """A prepositional phrase, or an adverb."""

    kind: Literal["place", "source", "tool", "company", "for", "into", "when", "manner", "often"]
    preposition: Small | None = None
    phrase: Phrase | None = None
    adverb: Small | None = None


Complement = Quality | Phrase | Measure | Adjunct


@dataclass(eq=False, slots=True)
class Clause:
    verb: Verb
    subject: Phrase
    object: Phrase | None = None
    recipient: Phrase | None = None
    recipient_first: bool = False  # "gave Meera a book", not "gave a book to Meera"
    complement: Complement | None = None
    adjuncts: tuple[Adjunct, ...] = ()
    tense: Tense = "present"
    modal: Modal | None = None
    negative: bool = False
    mood: Mood = "statement"
    asked: str = ""  # where, when, why; "subject", "object", "complement"; "" for yes or no
    there: bool = False  # "there is a book on the table"
    silent_subject: bool = False  # the second of two clauses with one subject

    def fact(self) -> Fact:
        """Who does what to what: what no test sentence shares with training."""
        what = self.object or self.complement
        if isinstance(what, Adjunct) or what is None:
            places = [what] if what else list(self.adjuncts)
            what = next((part.phrase for part in places if part.phrase), None)
        argument = ""
        if isinstance(what, Quality):
            argument = what.adjective.english + (f" than {what.than.lemma}" if what.than else "")
        elif isinstance(what, Measure):
            argument = f"{' '.join(what.count.english) if what.count else 'how many'} {what.unit.english}"
        elif what is not None:
            argument = what.lemma
        subject = "you" if self.mood in ("command", "please") else self.subject.lemma
        return (subject, self.verb.lemma, argument)


@dataclass(eq=False, slots=True)
class Joined:
    """Two sentences in one, either of which may itself be joined."""

    first: "Clause | Joined"
    conjunction: str
    second: "Clause | Joined"

    def facts(self) -> tuple[Fact, ...]:
        # "I think that …" is only a frame: what counts is the thought.
        return facts(self.second) if self.conjunction == "that" else facts(self.first) + facts(self.second)


Meaning = Clause | Joined


def facts(meaning: Meaning) -> tuple[Fact, ...]:
    return meaning.facts() if isinstance(meaning, Joined) else (meaning.fact(),)


def links(source: Iterable[Word], target: Iterable[Word]) -> tuple[tuple[int, int], ...]:
    """Which words share a mark: the alignment, as pairs of positions."""
    found: dict[str, list[int]] = {}
    for position, word in enumerate(target):
        for mark in word.marks:
            found.setdefault(mark, []).append(position)
    pairs = {(i, j) for i, word in enumerate(source) for mark in word.marks for j in found.get(mark, ())}
    return tuple(sorted(pairs))
