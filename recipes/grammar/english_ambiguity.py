"""Finds other meanings with the same English wording; their translations are correct as well.

"We cut the cake" can be present or past; "what do you play?" can ask for a game (खेलते) or an instrument (बजाते); "hungry" is
भूखा or भूख लगी. A meaning is varied in these ways, and a variant is kept if its English is the same.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from grammar import english
from grammar.copula import BE
from grammar.lexicon import Verb, adjectives, verbs
from grammar.meaning import (
    AdjectivePhrase,
    Clause,
    CompoundSentence,
    Meaning,
    NounPhrase,
    Pronoun,
    Tense,
)

OTHER_TENSE: dict[Tense, Tense] = {"present": "past", "past": "present"}  # of verbs whose forms are equal


def meanings_with_same_english(meaning: Meaning) -> Iterator[Meaning]:
    """Yields the meaning itself and every variant with the same English words."""
    yield meaning
    words = [word.text for word in english.sentence(meaning)]
    for other in _variants(meaning):
        if [word.text for word in english.sentence(other)] == words:
            yield other


def _variants(meaning: Meaning) -> Iterator[Meaning]:
    if isinstance(meaning, CompoundSentence):
        yield from (replace(meaning, first=first) for first in _variants(meaning.first))
        yield from (replace(meaning, second=second) for second in _variants(meaning.second))
        return
    if meaning.verb.english[0] == english.past(meaning.verb) and meaning.tense in OTHER_TENSE:
        yield replace(meaning, tense=OTHER_TENSE[meaning.tense])
    yield from _adjective_or_verb(meaning)
    if meaning.object is None or _is_what(meaning.object):
        for verb in homonyms(meaning.verb):
            if _is_possible(verb, meaning):
                yield replace(meaning, verb=verb)


def _adjective_or_verb(meaning: Clause) -> Iterator[Clause]:
    """Exchanges an adjective and the verb of feeling for it: भूखा है, भूख लगी है."""
    if isinstance(meaning.complement, AdjectivePhrase):
        felt = (verb for verb in verbs() if verb.particle == meaning.complement.adjective.english and verb.host)
        yield from (replace(meaning, verb=verb, complement=None) for verb in felt if verb.subject_case == "को")
    elif meaning.verb.english == ("be",) and meaning.verb.subject_case == "को":
        fitting = (a for a in adjectives() if a.english == meaning.verb.particle)
        yield from (replace(meaning, verb=BE, complement=AdjectivePhrase(adjective)) for adjective in fitting)


def _is_what(phrase: NounPhrase) -> bool:
    return isinstance(phrase.head, Pronoun) and phrase.head.subject == "what"


def _is_possible(verb: Verb, meaning: Clause) -> bool:
    """Returns whether the other verb takes this subject and tense, and as many arguments."""
    kinds = meaning.subject.kinds or frozenset({"person"})
    tense_fits = meaning.mood != "statement" or meaning.tense in verb.attributes.get("only", (meaning.tense,))
    return bool(kinds & verb.subjects) and bool(verb.objects) == bool(meaning.verb.objects) and tense_fits


@cache
def homonyms(verb: Verb) -> tuple[Verb, ...]:
    """Returns the other entries with the same English and another Hindi verb."""
    hindi = (verb.host, verb.root, verb.subject_case)
    same = (other for other in verbs() if other.lemma == verb.lemma)
    return tuple(other for other in same if (other.host, other.root, other.subject_case) != hindi)
