"""Noun phrases and adjuncts, drawn at random: who can do what to what, where and when.

Kinds in the tables keep the sentences sensible (people eat food, dogs bark); here are the habits of speech on top of them:
which determiners suit a noun, what can be owned or counted, when a place or a time is added. `clauses.py` and `being.py`
make clauses of these, `joining.py` sentences of those.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import TypeVar

from seq2see.course.grammar.lexicon import Adjective, Noun, Small, Verb, adjectives, noun, of_kind, small, verbs, word
from seq2see.course.grammar.meaning import Adjunct, Clause, Fact, Modal, Phrase, Pronoun, Tense

T = TypeVar("T")

PRONOUNS = {
    entry.subject: entry
    for entry in (
        Pronoun("I", "me", "my", 1, False, None),
        Pronoun("you", "you", "your", 2, False, None),
        Pronoun("he", "him", "his", 3, False, "m"),
        Pronoun("she", "her", "her", 3, False, "f"),
        Pronoun("it", "it", "its", 3, False, None),
        Pronoun("we", "us", "our", 1, True, None),
        Pronoun("they", "them", "their", 3, True, None),
        Pronoun("this", "this", "its", 3, False, None),
        Pronoun("that", "that", "its", 3, False, None),
        Pronoun("these", "these", "their", 3, True, None),
        Pronoun("those", "those", "their", 3, True, None),
        Pronoun("who", "who", "whose", 3, False, None),
        Pronoun("what", "what", "what", 3, False, None),
    )
}
PERSONAL = ("I", "you", "he", "she", "we", "they")
# A common word is drawn so many times as often as another.

COMMON = 8
# Clauses with these modals look forward.
FORWARD: frozenset[Modal | None] = frozenset({"can", "want", "have", "should"})
# "at five o'clock" has no postposition: पाँच बजे. "with a knife" is not "with a friend": चाकू से.
AT_THE_HOUR = Small(("at",), (), frozenset())
WITH_A_TOOL = Small(("with",), (("से", (0,)),), frozenset())


def pronoun(english: str) -> Phrase:
    return Phrase(PRONOUNS[english])


def same_party(subject: Phrase, english: str) -> bool:
    """Whether "I saw me" would come out: the pronoun means the subject, or the speaker's group."""
    own = subject.head.subject if isinstance(subject.head, Pronoun) else ""
    return own == english or {own, english} <= {"I", "we"}


def others(subject: Phrase) -> list[str]:
    """The personal pronouns that mean somebody else."""
    return [english for english in PERSONAL if not same_party(subject, english)]


def often(entries: Iterable[T], marks: Callable[[T], frozenset[str]]) -> tuple[T, ...]:
    """The entries to pick from, common ones several times over."""
    return tuple(entry for entry in entries for _ in range(COMMON if "common" in marks(entry) else 1))


@cache
def adjectives_for(entry: Noun) -> tuple[Adjective, ...]:
    """What can stand before a noun."""
    if entry.kinds & {"wanted", "agent", "police"}:
        return ()
    barred = {"after", "comparative"} | ({"persons-after"} if "person" in entry.kinds else set())
    return often((a for a in adjectives() if a.kinds & entry.kinds and not a.marks & barred), lambda a: a.marks)


@cache
def nouns_of(*kinds: str, without: frozenset[str] = frozenset()) -> tuple[Noun, ...]:
    """The nouns of any of the kinds, to pick from."""
    found = {entry: None for kind in sorted(kinds) for entry in of_kind(kind) if not entry.kinds & without}
    return often(found, lambda entry: entry.kinds)


@cache
def main_verbs() -> tuple[Verb, ...]:
    return often((v for v in verbs() if not v.marks & {"clausal", "copula"}), lambda verb: verb.marks)


@cache
def adverbs_of(*groups: str) -> tuple[Small, ...]:
    """Adverbs of all the groups; those of long spans only where "long" is asked for."""
    fitting = (adverb for adverb in small("adverbs") if set(groups) <= adverb.groups)
    return tuple(adverb for adverb in fitting if ("long" in adverb.groups) <= ("long" in groups))


@cache
def numbers(least: int, most: int) -> tuple[Small, ...]:
    return tuple(number for number in small("numbers") if least <= int(next(iter(number.groups))) <= most)


def determiner(english: str, group: str = "") -> Small:
    return next(d for d in small("determiners") if " ".join(d.english) == english and (not group or group in d.groups))


class Composer:
    """Draws noun phrases and adjuncts from one source of chance."""

    def __init__(self, rng: Random, admits: Callable[[Fact], bool] = lambda fact: True) -> None:
        self.rng = rng
        self.admits = admits

    def until_admitted(self, make: Callable[[], Clause]) -> Clause:
        """A clause whose fact is admitted, if one comes up soon."""
        made = make()
        for _ in range(60):
            if self.admits(made.fact()):
                break
            made = make()
        return made

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.random() * len(options))]

    def draw(self, weights: dict[T, float]) -> T:
        left = self.rng.random() * sum(weights.values())
        for option, weight in weights.items():
            left -= weight
            if left < 0:
                return option
        return next(iter(weights))

    # People.

    def person(self, pronouns: Sequence[str] = PERSONAL, pairs: bool = False) -> Phrase:
        how = self.draw({"pronoun": 42 * bool(pronouns), "name": 24, "kin": 16, "other": 15, "pair": 3 * pairs})
        if how == "pronoun":
            return pronoun(self.pick(pronouns))
        if how == "pair":
            one, two = self.rng.sample(of_kind("first-name"), 2)
            return Phrase(one, also=Phrase(two))
        if how == "kin":
            return self.kin()
        return self.name() if how == "name" else self.known(self.pick(nouns_of("person", without=NAMED)))

    def name(self) -> Phrase:
        return Phrase(self.pick(of_kind("first-name")))

    def kin(self) -> Phrase:
        entry = self.pick(nouns_of("kin"))
        several = "sibling" in entry.kinds and self.chance(0.15)
        return Phrase(entry, several or "plural" in entry.kinds, possessor=self.owner())

    def owner(self, pronouns: Sequence[str] = PERSONAL) -> Phrase:
        return pronoun(self.pick(pronouns)) if self.chance(0.8) else self.name()

    # Things, by how they are spoken of.

    def known(self, entry: Noun, adjective: float = 0.09, counted: bool = True) -> Phrase:
        """Somebody or something both speakers know: the boy, this book, my dog, Ravi."""
        kinds = entry.kinds
        if kinds & {"proper", "bare"}:
            return Phrase(entry)
        if kinds & {"kin", "kin-like"}:
            return Phrase(entry, "plural" in kinds, possessor=self.owner())
        plural = self._several(entry)
        described = self.adjective(entry, adjective)
        clear = entry.plural != entry.english or "plural" in kinds  # "the sheep" may be one or many
        if clear and kinds & OWNED and "public" not in kinds and self.chance(0.3):
            return Phrase(entry, plural, possessor=self.owner(), adjective=described)
        if kinds & {"police", "unique"} or (clear and self.chance(0.6)):
            return Phrase(entry, plural, "the", adjective=described)
        if not plural:
            return Phrase(entry, determiner=determiner(self.pick(("this", "that"))), adjective=described)
        counted = counted and "plural" not in kinds
        name = self.draw({"these": 3, "those": 2, "all the": 1, "many": counted, "some": counted, "two": 3 * counted})
        if name == "two":
            return Phrase(entry, True, count=self.number(2, 6), adjective=described)
        return Phrase(entry, True, determiner=determiner(name), adjective=described)

    def _several(self, entry: Noun) -> bool:
        if entry.kinds & {"plural", "uncounted"}:
            return True
        if entry.kinds & {"mass", "unique"}:
            return False
        return self.chance(0.06 if entry.kinds & {"in", "on", "at", "furniture", "machine"} else 0.18)

    def indefinite(self, entry: Noun) -> Phrase:
        """Something new: a book, two books, some milk, a cup of tea."""
        kinds = entry.kinds
        if kinds & {"proper", "bare"}:
            return Phrase(entry)
        described = self.adjective(entry, 0.12)
        if "mass" in kinds:
            return self._quantity(entry) or Phrase(entry, adjective=described)
        if "plural" in kinds:
            return Phrase(entry, True, adjective=described)
        single = "uncounted" not in kinds
        how = self.draw({"a": 6 * single, "number": 2 * single, "some": 0.7, "many": 0.7})
        if "illness" in kinds or how == "a":
            return Phrase(entry, False, "a", adjective=described)
        if how == "number":
            return Phrase(entry, True, count=self.number(2, 7), adjective=described)
        return Phrase(entry, True, determiner=determiner(how, "many"), adjective=described)

    def _quantity(self, entry: Noun) -> Phrase | None:
        measures = [d for d in small("determiners") if d.english[-1] == "of" and d.groups & entry.kinds]
        if measures and self.chance(0.5):
            return Phrase(entry, determiner=self.pick(measures))
        if entry.kinds & {"food", "drink", "medicine", "grass"} and self.chance(0.35):
            return Phrase(entry, determiner=determiner("some", "mass"))
        return None

    def one_of(self, entry: Noun) -> Phrase:
        """A single one, where two at once would be odd: a car one drives, a shirt one wears."""
        plural = bool(entry.kinds & {"plural", "paired"})
        described = self.adjective(entry, 0.2)
        if "mass" in entry.kinds or self.chance(0.4):
            return Phrase(entry, plural, "the", adjective=described)
        if entry.kinds & {"vehicle", "clothing", "jewel"} and self.chance(0.4):
            return Phrase(entry, plural, possessor=self.owner(), adjective=described)
        return Phrase(entry, plural, "" if plural else "a", adjective=described)

    def generic(self, entry: Noun) -> Phrase:
        """Things of that kind: mangoes, milk."""
        if "instrument" in entry.kinds:
            return Phrase(entry, article="the")
        return Phrase(entry, not entry.kinds & {"mass", "bare", "proper"}, adjective=self.adjective(entry, 0.08))

    def pointed_at(self, entry: Noun) -> Phrase:
        return Phrase(entry, determiner=determiner(self.pick(("this", "that"))))

    def made_by(self, phrase: Phrase) -> Phrase:
        """An Apple phone, mango juice: a maker or a fruit before some nouns."""
        if phrase.possessor or phrase.adjective or (phrase.determiner and phrase.determiner.english[-1] == "of"):
            return phrase
        if "device" in phrase.kinds and self.chance(0.35):
            return replace(phrase, possessor=Phrase(self.pick(nouns_of("company"))), link="compound")
        if phrase.kinds & {"juice", "tree"} and self.chance(0.5):
            fruit = self.pick(nouns_of("fruits", without=frozenset({"small-fruit"})))
            return replace(phrase, possessor=Phrase(fruit), link="compound")
        return phrase

    def piece(self, entry: Noun) -> Phrase:
        whole = Phrase(self.pick(of_kind("piece-of")))
        if self.chance(0.5):
            return Phrase(entry, False, "a", possessor=whole, link="of")
        return Phrase(entry, True, count=self.number(2, 6), possessor=whole, link="of")

    def amount(self, entry: Noun) -> Phrase:
        substance, count = Phrase(self.pick(of_kind("substance"))), self.number(1, 12)
        return Phrase(entry, count.english != ("one",), count=count, possessor=substance, link="of")

    def adjective(self, entry: Noun, probability: float) -> Adjective | None:
        fitting = adjectives_for(entry) if self.chance(probability) else ()
        return self.pick(fitting) if fitting else None

    def number(self, least: int, most: int) -> Small:
        return self.pick(numbers(least, most))

    # Places, times and the rest.

    def place_phrase(self, entry: Noun) -> Phrase:
        if entry.kinds & {"proper", "bare"}:
            return Phrase(entry)
        if "river-bank" in entry.kinds:
            return self._river_bank(entry)
        if "mole-place" in entry.kinds:  # not the doctor's own
            return Phrase(entry, possessor=self.owner(("I", "you")) if self.chance(0.4) else self.name())
        if entry.kinds & {"sleeping", "room"} and self.chance(0.4):
            return Phrase(entry, possessor=self.owner())
        pointed = "unique" not in entry.kinds and self.chance(0.2)
        return self.pointed_at(entry) if pointed else Phrase(entry, article="the")

    def _river_bank(self, entry: Noun) -> Phrase:
        """The bank of the river, the river bank, or the bank, where the sentence says which."""
        how = self.pick(("of", "compound", ""))
        if how == "of":
            return Phrase(entry, article="the", possessor=Phrase(noun("river"), article="the"), link="of")
        return Phrase(entry, article="the", possessor=Phrase(noun("river")) if how else None, link="compound")

    def place(self, *kinds: str, near: float = 0.06) -> Adjunct:
        """A place of one of the kinds; `near` is how often it is only "here" or "there"."""
        if self.chance(near) and not {"river-bank", "money-bank", "mole-place", "sky", "kitchen"}.intersection(kinds):
            return Adjunct("place", adverb=word("adverbs", self.pick(("here", "there"))))
        entry = self.pick(nouns_of(*kinds))
        name = next((p for p in ("in", "on", "at", "for") if p in entry.kinds), "in")
        return Adjunct("place", word("prepositions", name), self.place_phrase(entry))

    def time(self, verb: Verb, tense: Tense, modal: Modal | None) -> Adjunct | None:
        if modal in ("like", "start") or verb.marks & {"stative", "timeless"}:
            return None
        group: str = "want" if modal in FORWARD and tense == "present" else tense
        if verb.english[0] == "be":
            group = {"present": "state", "past": "was", "future": "will"}[tense]
        if group in ("present", "past", "future") and self.chance(0.12):
            return Adjunct("when", AT_THE_HOUR, Phrase(noun("o'clock"), True, count=self.number(2, 12)))
        fitting = adverbs_of(group, "long") if "long" in verb.marks and self.chance(0.25) else adverbs_of(group)
        return Adjunct("when", adverb=self.pick(fitting)) if fitting else None

    def adjuncts(self, verb: Verb, who: Phrase, tense: Tense, modal: Modal | None, much: float) -> tuple[Adjunct, ...]:
        """What else is said of an action: place, source, tool, company, manner, time; `much` below 1 says less."""
        parts: list[Adjunct] = []
        lists, marks = verb.lists, verb.marks
        if "at" in lists and ("needs-at" in marks or self.chance(0.2 * much)):
            parts.append(self.place(*lists["at"]))
        if "into" in lists:
            parts.append(replace(self.place(*lists["into"]), kind="into"))
        if "from" in lists and not parts and ("needs-from" in marks or self.chance(0.25 * much)):
            parts.append(Adjunct("source", word("prepositions", "from"), self.source(self.pick(lists["from"]), who)))
        if "tool" in lists and self.chance(0.35 * much):
            parts.append(self.tool(self.pick(nouns_of(*lists["tool"]))))
        if "company" in marks and not who.also and self.chance(0.12 * much):
            parts.append(Adjunct("company", word("prepositions", "with"), self.person(others(who))))
        if "for" in marks and self.chance(0.2 * much):
            parts.append(Adjunct("for", word("prepositions", "for"), self.person(others(who))))
        if "how" in lists and ("needs-how" in marks or (len(parts) < 2 and self.chance(0.25 * much))):
            parts.append(self.manner(self.pick(lists["how"])))
        if len(parts) < 2 and self.chance(0.22 * much):
            when = self.time(verb, tense, modal)
            parts += [when] if when else []
        return tuple(parts)

    def manner(self, english: str) -> Adjunct:
        return Adjunct("manner", adverb=next(a for a in adverbs_of("manner") if a.english == (english,)))

    def source(self, kind: str, who: Phrase) -> Phrase:
        if kind == "person":
            return self.person(others(who))
        entry = self.pick(of_kind(kind))
        return self.place_phrase(entry) if kind == "mole-place" else Phrase(entry, article="the")

    def tool(self, entry: Noun) -> Adjunct:
        article = "" if "mass" in entry.kinds else self.pick(("a", "the"))
        return Adjunct("tool", WITH_A_TOOL, Phrase(entry, article=article))


NAMED = frozenset({"proper", "kin", "police"})
OWNED = frozenset({"related", "thing", "vehicle", "clothing", "pet", "body", "furniture"})
