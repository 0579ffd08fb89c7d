"""Other meanings that English puts in the same words, whose translations are right as well.

"We cut the cake" may be today's habit or yesterday's deed; "what do you play?" may ask for a game (खेलते) or an instrument
(बजाते); who is hungry is भूखा or has भूख. A meaning is varied in these ways, and kept if its English does not change.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from seq2see.course.grammar import english
from seq2see.course.grammar.copula import BE
from seq2see.course.grammar.lexicon import Verb, adjectives, verbs
from seq2see.course.grammar.meaning import Clause, Joined, Meaning, Phrase, Pronoun, Quality, Tense

EITHER_WAY: dict[Tense, Tense] = {"present": "past", "past": "present"}


def alike(meaning: Meaning) -> Iterator[Meaning]:
    """The meaning itself, and every other one with its words."""
    yield meaning
    words = [word.text for word in english.sentence(meaning)]
    for other in _variants(meaning):
        if [word.text for word in english.sentence(other)] == words:
            yield other


def _variants(meaning: Meaning) -> Iterator[Meaning]:
    if isinstance(meaning, Joined):
        yield from (replace(meaning, first=first) for first in _variants(meaning.first))
        yield from (replace(meaning, second=second) for second in _variants(meaning.second))
        return
    if meaning.verb.english[0] == english.past(meaning.verb) and meaning.tense in EITHER_WAY:
        yield replace(meaning, tense=EITHER_WAY[meaning.tense])
    yield from _felt_or_being(meaning)
    if meaning.object is None or _asks_what(meaning.object):
        for verb in homonyms(meaning.verb):
            if _could(verb, meaning):
                yield replace(meaning, verb=verb)


def _felt_or_being(meaning: Clause) -> Iterator[Clause]:
    if isinstance(meaning.complement, Quality):
        felt = (verb for verb in verbs() if verb.particle == meaning.complement.adjective.english and verb.host)
        yield from (replace(meaning, verb=verb, complement=None) for verb in felt if verb.subject_case == "को")
    elif meaning.verb.english == ("be",) and meaning.verb.subject_case == "को":
        fitting = (a for a in adjectives() if a.english == meaning.verb.particle)
        yield from (replace(meaning, verb=BE, complement=Quality(adjective)) for adjective in fitting)


def _asks_what(phrase: Phrase) -> bool:
    return isinstance(phrase.head, Pronoun) and phrase.head.subject == "what"


def _could(verb: Verb, meaning: Clause) -> bool:
    """Whether the subject can do the other thing too, with as many others involved."""
    doer = meaning.subject.kinds or frozenset({"person"})
    said = meaning.mood != "statement" or meaning.tense in verb.lists.get("only", (meaning.tense,))
    return bool(doer & verb.subjects) and bool(verb.objects) == bool(meaning.verb.objects) and said


@cache
def homonyms(verb: Verb) -> tuple[Verb, ...]:
    """Other rows with the same English and another Hindi."""
    own = (verb.host, verb.root, verb.subject_case)
    same = (other for other in verbs() if other.lemma == verb.lemma)
    return tuple(other for other in same if (other.host, other.root, other.subject_case) != own)
