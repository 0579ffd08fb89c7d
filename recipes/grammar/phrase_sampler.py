"""Samples noun phrases and adjuncts: who can do what to what, where and when.

The kinds in the tables keep sentences sensible (people eat food, dogs bark); this module adds usage: which determiners suit
a noun, what can be owned or counted, when a place or a time is added. `clauses.py` and `copula.py` build clauses from these,
`compound_sentences.py` joins them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import TypeVar

from grammar.lexicon import (
    Adjective,
    FunctionWord,
    Noun,
    Verb,
    adjectives,
    function_words,
    noun,
    of_kind,
    verbs,
    word,
)
from grammar.meaning import Adjunct, Clause, Fact, Modal, NounPhrase, Pronoun, Tense

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
COMMON_WEIGHT = 8  # how many times as often a common word is picked
# Modals that refer to the future.
FUTURE_MODALS: frozenset[Modal | None] = frozenset({"can", "want", "have", "should"})
# "at five o'clock" has no postposition: पाँच बजे. "with a knife" is not "with a friend": चाकू से.
AT_THE_HOUR = FunctionWord(("at",), (), frozenset())
WITH_A_TOOL = FunctionWord(("with",), (("से", (0,)),), frozenset())
COLLECTIVE_OR_NAMED = frozenset({"proper", "kin", "police"})
OWNABLE = frozenset({"related", "thing", "vehicle", "clothing", "pet", "body", "furniture"})
FIXED_PLACES = frozenset({"river-bank", "money-bank", "mole-place", "sky", "kitchen"})  # never "here" or "there"


def pronoun(english: str) -> NounPhrase:
    return NounPhrase(PRONOUNS[english])


def same_party(subject: NounPhrase, english: str) -> bool:
    """Returns whether a pronoun refers to the subject or overlaps with it, as in "I saw me" or "we saw me"."""
    own = subject.head.subject if isinstance(subject.head, Pronoun) else ""
    return own == english or {own, english} <= {"I", "we"}


def other_pronouns(subject: NounPhrase) -> list[str]:
    """Returns the personal pronouns that refer to somebody else."""
    return [english for english in PERSONAL if not same_party(subject, english)]


def repeat_common(entries: Iterable[T], features: Callable[[T], frozenset[str]]) -> tuple[T, ...]:
    """Returns the entries to pick from, with common ones repeated."""
    return tuple(entry for entry in entries for _ in range(COMMON_WEIGHT if "common" in features(entry) else 1))


@cache
def adjectives_for(entry: Noun) -> tuple[Adjective, ...]:
    """Returns the adjectives that can precede a noun."""
    if entry.kinds & {"wanted", "agent", "police"}:
        return ()
    barred = {"after", "comparative"} | ({"persons-after"} if "person" in entry.kinds else set())
    return repeat_common(
        (a for a in adjectives() if a.kinds & entry.kinds and not a.features & barred), lambda a: a.features
    )


@cache
def nouns_of(*kinds: str, without: frozenset[str] = frozenset()) -> tuple[Noun, ...]:
    """Returns the nouns of any of the kinds, with common ones repeated."""
    matching = {entry: None for kind in sorted(kinds) for entry in of_kind(kind) if not entry.kinds & without}
    return repeat_common(matching, lambda entry: entry.kinds)


@cache
def main_verbs() -> tuple[Verb, ...]:
    return repeat_common((v for v in verbs() if not v.features & {"clausal", "copula"}), lambda verb: verb.features)


@cache
def adverbs_of(*groups: str) -> tuple[FunctionWord, ...]:
    """Returns the adverbs that are in all the groups; those of long durations only if "long" is one of them."""
    fitting = (adverb for adverb in function_words("adverbs") if set(groups) <= adverb.groups)
    return tuple(adverb for adverb in fitting if ("long" in adverb.groups) <= ("long" in groups))


@cache
def numbers(minimum: int, maximum: int) -> tuple[FunctionWord, ...]:
    return tuple(number for number in function_words("numbers") if minimum <= int(next(iter(number.groups))) <= maximum)


def determiner(english: str, group: str = "") -> FunctionWord:
    return next(
        d for d in function_words("determiners") if " ".join(d.english) == english and (not group or group in d.groups)
    )


class PhraseSampler:
    """Samples noun phrases and adjuncts with one random generator."""

    def __init__(self, rng: Random, is_allowed: Callable[[Fact], bool] = lambda fact: True) -> None:
        self.rng = rng
        self.is_allowed = is_allowed

    def until_allowed(self, sample: Callable[[], Clause]) -> Clause:
        """Samples until the fact of the clause is allowed, at most 60 more times."""
        clause = sample()
        for _ in range(60):
            if self.is_allowed(clause.fact()):
                break
            clause = sample()
        return clause

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.random() * len(options))]

    def pick_weighted(self, weights: dict[T, float]) -> T:
        remaining = self.rng.random() * sum(weights.values())
        for option, weight in weights.items():
            remaining -= weight
            if remaining < 0:
                return option
        return next(iter(weights))

    # People

    def person(self, pronouns: Sequence[str] = PERSONAL, pairs: bool = False) -> NounPhrase:
        form = self.pick_weighted(
            {"pronoun": 42 * bool(pronouns), "name": 24, "kin": 16, "other": 15, "pair": 3 * pairs}
        )
        if form == "pronoun":
            return pronoun(self.pick(pronouns))
        if form == "pair":
            one, two = self.rng.sample(of_kind("first-name"), 2)
            return NounPhrase(one, conjunct=NounPhrase(two))
        if form == "kin":
            return self.kin()
        return (
            self.name() if form == "name" else self.definite(self.pick(nouns_of("person", without=COLLECTIVE_OR_NAMED)))
        )

    def name(self) -> NounPhrase:
        return NounPhrase(self.pick(of_kind("first-name")))

    def kin(self) -> NounPhrase:
        entry = self.pick(nouns_of("kin"))
        plural = "sibling" in entry.kinds and self.chance(0.15)
        return NounPhrase(entry, plural or "plural" in entry.kinds, possessor=self.owner())

    def owner(self, pronouns: Sequence[str] = PERSONAL) -> NounPhrase:
        return pronoun(self.pick(pronouns)) if self.chance(0.8) else self.name()

    # Things, by definiteness

    def definite(self, entry: Noun, adjective: float = 0.09, counted: bool = True) -> NounPhrase:
        """Samples a definite noun phrase: the boy, this book, my dog, Ravi."""
        kinds = entry.kinds
        if kinds & {"proper", "bare"}:
            return NounPhrase(entry)
        if kinds & {"kin", "kin-like"}:
            return NounPhrase(entry, "plural" in kinds, possessor=self.owner())
        plural = self._sample_plural(entry)
        modifier = self.adjective(entry, adjective)
        number_is_clear = entry.plural != entry.english or "plural" in kinds  # "the sheep" may be one or many
        if number_is_clear and kinds & OWNABLE and "public" not in kinds and self.chance(0.3):
            return NounPhrase(entry, plural, possessor=self.owner(), adjective=modifier)
        if kinds & {"police", "unique"} or (number_is_clear and self.chance(0.6)):
            return NounPhrase(entry, plural, "the", adjective=modifier)
        if not plural:
            return NounPhrase(entry, determiner=determiner(self.pick(("this", "that"))), adjective=modifier)
        counted = counted and "plural" not in kinds
        name = self.pick_weighted(
            {"these": 3, "those": 2, "all the": 1, "many": counted, "some": counted, "two": 3 * counted}
        )
        if name == "two":
            return NounPhrase(entry, True, count=self.number(2, 6), adjective=modifier)
        return NounPhrase(entry, True, determiner=determiner(name), adjective=modifier)

    def _sample_plural(self, entry: Noun) -> bool:
        if entry.kinds & {"plural", "uncounted"}:
            return True
        if entry.kinds & {"mass", "unique"}:
            return False
        return self.chance(0.06 if entry.kinds & {"in", "on", "at", "furniture", "machine"} else 0.18)

    def indefinite(self, entry: Noun) -> NounPhrase:
        """Samples an indefinite noun phrase: a book, two books, some milk, a cup of tea."""
        kinds = entry.kinds
        if kinds & {"proper", "bare"}:
            return NounPhrase(entry)
        modifier = self.adjective(entry, 0.12)
        if "mass" in kinds:
            return self._quantity(entry) or NounPhrase(entry, adjective=modifier)
        if "plural" in kinds:
            return NounPhrase(entry, True, adjective=modifier)
        single = "uncounted" not in kinds
        form = self.pick_weighted({"a": 6 * single, "number": 2 * single, "some": 0.7, "many": 0.7})
        if "illness" in kinds or form == "a":
            return NounPhrase(entry, False, "a", adjective=modifier)
        if form == "number":
            return NounPhrase(entry, True, count=self.number(2, 7), adjective=modifier)
        return NounPhrase(entry, True, determiner=determiner(form, "many"), adjective=modifier)

    def _quantity(self, entry: Noun) -> NounPhrase | None:
        containers = [d for d in function_words("determiners") if d.english[-1] == "of" and d.groups & entry.kinds]
        if containers and self.chance(0.5):
            return NounPhrase(entry, determiner=self.pick(containers))
        if entry.kinds & {"food", "drink", "medicine", "grass"} and self.chance(0.35):
            return NounPhrase(entry, determiner=determiner("some", "mass"))
        return None

    def single(self, entry: Noun) -> NounPhrase:
        """Samples a singular noun phrase, for objects used one at a time: a car to drive, a shirt to wear."""
        plural = bool(entry.kinds & {"plural", "paired"})
        modifier = self.adjective(entry, 0.2)
        if "mass" in entry.kinds or self.chance(0.4):
            return NounPhrase(entry, plural, "the", adjective=modifier)
        if entry.kinds & {"vehicle", "clothing", "jewel"} and self.chance(0.4):
            return NounPhrase(entry, plural, possessor=self.owner(), adjective=modifier)
        return NounPhrase(entry, plural, "" if plural else "a", adjective=modifier)

    def generic(self, entry: Noun) -> NounPhrase:
        """Samples a generic noun phrase: mangoes, milk."""
        if "instrument" in entry.kinds:
            return NounPhrase(entry, article="the")
        return NounPhrase(entry, not entry.kinds & {"mass", "bare", "proper"}, adjective=self.adjective(entry, 0.08))

    def demonstrative(self, entry: Noun) -> NounPhrase:
        return NounPhrase(entry, determiner=determiner(self.pick(("this", "that"))))

    def maybe_compound(self, phrase: NounPhrase) -> NounPhrase:
        """Sometimes adds a modifying noun: an Apple phone, mango juice."""
        if phrase.possessor or phrase.adjective or (phrase.determiner and phrase.determiner.english[-1] == "of"):
            return phrase
        if "device" in phrase.kinds and self.chance(0.35):
            return replace(phrase, possessor=NounPhrase(self.pick(nouns_of("company"))), possessor_style="compound")
        if phrase.kinds & {"juice", "tree"} and self.chance(0.5):
            fruit = self.pick(nouns_of("fruits", without=frozenset({"small-fruit"})))
            return replace(phrase, possessor=NounPhrase(fruit), possessor_style="compound")
        return phrase

    def piece(self, entry: Noun) -> NounPhrase:
        whole = NounPhrase(self.pick(of_kind("piece-of")))
        if self.chance(0.5):
            return NounPhrase(entry, False, "a", possessor=whole, possessor_style="of")
        return NounPhrase(entry, True, count=self.number(2, 6), possessor=whole, possessor_style="of")

    def amount(self, entry: Noun) -> NounPhrase:
        substance, count = NounPhrase(self.pick(of_kind("substance"))), self.number(1, 12)
        return NounPhrase(entry, count.english != ("one",), count=count, possessor=substance, possessor_style="of")

    def adjective(self, entry: Noun, probability: float) -> Adjective | None:
        fitting = adjectives_for(entry) if self.chance(probability) else ()
        return self.pick(fitting) if fitting else None

    def number(self, minimum: int, maximum: int) -> FunctionWord:
        return self.pick(numbers(minimum, maximum))

    # Places, times and other adjuncts

    def place_phrase(self, entry: Noun) -> NounPhrase:
        if entry.kinds & {"proper", "bare"}:
            return NounPhrase(entry)
        if "river-bank" in entry.kinds:
            return self._river_bank(entry)
        if "mole-place" in entry.kinds:  # of a definite person, not the subject
            return NounPhrase(entry, possessor=self.owner(("I", "you")) if self.chance(0.4) else self.name())
        if entry.kinds & {"sleeping", "room"} and self.chance(0.4):
            return NounPhrase(entry, possessor=self.owner())
        use_demonstrative = "unique" not in entry.kinds and self.chance(0.2)
        return self.demonstrative(entry) if use_demonstrative else NounPhrase(entry, article="the")

    def _river_bank(self, entry: Noun) -> NounPhrase:
        """Samples "the bank of the river", "the river bank" or "the bank"."""
        form = self.pick(("of", "compound", ""))
        if form == "of":
            return NounPhrase(
                entry, article="the", possessor=NounPhrase(noun("river"), article="the"), possessor_style="of"
            )
        return NounPhrase(
            entry, article="the", possessor=NounPhrase(noun("river")) if form else None, possessor_style="compound"
        )

    def place(self, *kinds: str, adverb_rate: float = 0.06) -> Adjunct:
        """Samples a place of one of the kinds; `adverb_rate` is the probability of "here" or "there"."""
        if self.chance(adverb_rate) and not FIXED_PLACES.intersection(kinds):
            return Adjunct("place", adverb=word("adverbs", self.pick(("here", "there"))))
        entry = self.pick(nouns_of(*kinds))
        name = next((p for p in ("in", "on", "at", "for") if p in entry.kinds), "in")
        return Adjunct("place", word("prepositions", name), self.place_phrase(entry))

    def time(self, verb: Verb, tense: Tense, modal: Modal | None) -> Adjunct | None:
        if modal in ("like", "start") or verb.features & {"stative", "timeless"}:
            return None
        group: str = "want" if modal in FUTURE_MODALS and tense == "present" else tense
        if verb.english[0] == "be":
            group = {"present": "state", "past": "was", "future": "will"}[tense]
        if group in ("present", "past", "future") and self.chance(0.12):
            return Adjunct("when", AT_THE_HOUR, NounPhrase(noun("o'clock"), True, count=self.number(2, 12)))
        fitting = adverbs_of(group, "long") if "long" in verb.features and self.chance(0.25) else adverbs_of(group)
        return Adjunct("when", adverb=self.pick(fitting)) if fitting else None

    def adjuncts(
        self, verb: Verb, subject: NounPhrase, tense: Tense, modal: Modal | None, rate: float
    ) -> tuple[Adjunct, ...]:
        """Samples place, source, tool, company, manner and time; `rate` scales their probabilities."""
        parts: list[Adjunct] = []
        attributes, features = verb.attributes, verb.features
        if "at" in attributes and ("needs-at" in features or self.chance(0.2 * rate)):
            parts.append(self.place(*attributes["at"]))
        if "into" in attributes:
            parts.append(replace(self.place(*attributes["into"]), kind="into"))
        if "from" in attributes and not parts and ("needs-from" in features or self.chance(0.25 * rate)):
            parts.append(
                Adjunct("source", word("prepositions", "from"), self.source(self.pick(attributes["from"]), subject))
            )
        if "tool" in attributes and self.chance(0.35 * rate):
            parts.append(self.tool(self.pick(nouns_of(*attributes["tool"]))))
        if "company" in features and not subject.conjunct and self.chance(0.12 * rate):
            parts.append(Adjunct("company", word("prepositions", "with"), self.person(other_pronouns(subject))))
        if "for" in features and self.chance(0.2 * rate):
            parts.append(Adjunct("for", word("prepositions", "for"), self.person(other_pronouns(subject))))
        if "how" in attributes and ("needs-how" in features or (len(parts) < 2 and self.chance(0.25 * rate))):
            parts.append(self.manner(self.pick(attributes["how"])))
        if len(parts) < 2 and self.chance(0.22 * rate):
            when = self.time(verb, tense, modal)
            parts += [when] if when else []
        return tuple(parts)

    def manner(self, english: str) -> Adjunct:
        return Adjunct("manner", adverb=next(a for a in adverbs_of("manner") if a.english == (english,)))

    def source(self, kind: str, subject: NounPhrase) -> NounPhrase:
        if kind == "person":
            return self.person(other_pronouns(subject))
        entry = self.pick(of_kind(kind))
        return self.place_phrase(entry) if kind == "mole-place" else NounPhrase(entry, article="the")

    def tool(self, entry: Noun) -> Adjunct:
        article = "" if "mass" in entry.kinds else self.pick(("a", "the"))
        return Adjunct("tool", WITH_A_TOOL, NounPhrase(entry, article=article))
