"""Samples a sentence: picks a construction, and rejects results that make no sense.

`CONSTRUCTIONS` lists all constructions of the corpus with their weights. `is_sensible` rejects what the kinds of the lexicon
cannot exclude: people who meet themselves, two clauses about the same name, a husband of a man.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from random import Random

from grammar import compound_sentences, copula
from grammar.clauses import verbal_clause
from grammar.hindi_noun_phrases import possible_pronouns
from grammar.lexicon import Noun
from grammar.meaning import (
    AdjectivePhrase,
    Adjunct,
    Clause,
    CompoundSentence,
    Fact,
    Meaning,
    NounPhrase,
    Pronoun,
    facts,
)
from grammar.phrase_sampler import PhraseSampler

CONSTRUCTIONS: tuple[tuple[Callable[[PhraseSampler], Meaning], float], ...] = (
    (verbal_clause, 55),
    (copula.description, 9),
    (copula.comparison, 3.5),
    (copula.identification, 4),
    (copula.demonstrative_clause, 3),
    (copula.location, 4.5),
    (copula.existential_clause, 4.5),
    (copula.age, 1.2),
    (copula.price, 0.8),
    (copula.clock_time, 0.1),
    (copula.naming, 0.8),
    (copula.how_question, 0.8),
    (compound_sentences.reason, 3),
    (compound_sentences.contrast, 1.8),
    (compound_sentences.addition, 1.8),
    (compound_sentences.scene, 1),
    (compound_sentences.condition, 1),
    (compound_sentences.reported, 1.8),
)
_FUNCTIONS = tuple(construction for construction, _ in CONSTRUCTIONS)
_CUMULATIVE_WEIGHTS = tuple(accumulate(weight for _, weight in CONSTRUCTIONS))


def sample_sentence(rng: Random, is_allowed: Callable[[Fact], bool]) -> Meaning:
    """Samples a sensible sentence. Compound sentences prefer allowed facts; for single clauses the caller checks."""
    sampler = PhraseSampler(rng, is_allowed)
    while True:
        meaning = rng.choices(_FUNCTIONS, cum_weights=_CUMULATIVE_WEIGHTS)[0](sampler)
        if is_sensible(meaning):
            return meaning


def sample_longer(rng: Random, is_allowed: Callable[[Fact], bool]) -> Meaning:
    """Samples a sentence of about three clauses from the same constructions."""
    sampler = PhraseSampler(rng, is_allowed)
    while True:
        meaning = compound_sentences.nested_sentence(sampler)
        if is_sensible(meaning) and all(is_allowed(fact) for fact in facts(meaning)):
            return meaning


def clauses(meaning: Meaning) -> Iterator[Clause]:
    if isinstance(meaning, Clause):
        yield meaning
    else:
        yield from clauses(meaning.first)
        yield from clauses(meaning.second)


def phrases(clause: Clause) -> Iterator[NounPhrase]:
    """Yields every noun phrase of a clause, including possessors, the subject first."""
    tops = [clause.subject, clause.object, clause.recipient, *(a.phrase for a in clause.adjuncts)]
    if isinstance(clause.complement, NounPhrase):
        tops.append(clause.complement)
    elif isinstance(clause.complement, Adjunct):
        tops.append(clause.complement.phrase)
    elif isinstance(clause.complement, AdjectivePhrase):
        tops.append(clause.complement.than)
    for top in tops:
        phrase: NounPhrase | None = top
        while phrase is not None:
            yield phrase
            if phrase.conjunct:
                yield phrase.conjunct
            phrase = phrase.possessor


def is_sensible(meaning: Meaning) -> bool:
    parts = list(clauses(meaning))
    if not all(_is_sensible_clause(clause) for clause in parts):
        return False
    if isinstance(meaning, CompoundSentence) and meaning.conjunction == "that":
        inner = parts[1].subject.determiner
        if inner and inner.english == ("that",):
            return False
    named = [part.subject.lemma for part in parts if not part.subject_elided and isinstance(part.subject.head, Noun)]
    return len(set(named)) == len(named)  # no name is the subject of two clauses, unless the second one is elided


def _is_sensible_clause(clause: Clause) -> bool:
    all_phrases = list(phrases(clause))
    people = [part.lemma for part in all_phrases if part.kinds & {"person", "city-name", "country", "company"}]
    if len(set(people)) < len(people):
        return False
    subject = clause.subject
    if isinstance(clause.complement, AdjectivePhrase) and subject.adjective is clause.complement.adjective:
        return False  # "the hot bread is hot"
    if (
        isinstance(clause.complement, AdjectivePhrase)
        and clause.complement.than
        and _is_odd_comparison(subject, clause.complement)
    ):
        return False
    open_gender = isinstance(subject.head, Noun) and len(subject.head.genders) == 2 and not subject.gender
    if open_gender and _has_third_person_possessor(all_phrases):
        return False  # "the doctor read his book" would determine the gender of the doctor
    if clause.verb.english[0] == "wear" and clause.object and "women's" in clause.object.kinds:
        return possible_pronouns(subject) == ("she",)
    return all(_spouse_fits(phrase) for phrase in all_phrases)


def _is_odd_comparison(subject: NounPhrase, quality: AdjectivePhrase) -> bool:
    """Returns whether ages within a family are compared ("younger than her son"), or a thing with itself."""
    other = quality.than
    assert other is not None
    family = quality.adjective.english in ("old", "young") and bool((subject.kinds | other.kinds) & {"kin"})
    return family or (other.head is subject.head and isinstance(other.head, Noun))


def _has_third_person_possessor(all_phrases: list[NounPhrase]) -> bool:
    owners = [part.possessor.head for part in all_phrases if part.possessor]
    return any(isinstance(owner, Pronoun) and owner.subject in ("he", "she") for owner in owners)


def _spouse_fits(phrase: NounPhrase) -> bool:
    if phrase.lemma not in ("husband", "wife") or phrase.possessor is None:
        return True
    pronoun = "she" if phrase.lemma == "husband" else "he"
    return pronoun in possible_pronouns(phrase.possessor)
