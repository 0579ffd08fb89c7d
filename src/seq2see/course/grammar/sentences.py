"""A sentence drawn at random: which construction, and whether what came out makes sense.

`CONSTRUCTIONS` is the table of contents of the corpus. `sensible` refuses what the kinds of the lexicon cannot: people who
meet themselves, two clauses about the same name, a husband of a man.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from random import Random

from seq2see.course.grammar import compound_sentences, copula
from seq2see.course.grammar.clauses import verbal
from seq2see.course.grammar.hindi_noun_phrases import stands_for
from seq2see.course.grammar.lexicon import Noun
from seq2see.course.grammar.meaning import Adjunct, Clause, Fact, Joined, Meaning, Phrase, Pronoun, Quality, facts
from seq2see.course.grammar.noun_phrases import Composer

CONSTRUCTIONS: tuple[tuple[Callable[[Composer], Meaning], float], ...] = (
    (verbal, 55),
    (copula.described, 9),
    (copula.compared, 3.5),
    (copula.identified, 4),
    (copula.pointed, 3),
    (copula.located, 4.5),
    (copula.existing, 4.5),
    (copula.aged, 1.2),
    (copula.priced, 0.8),
    (copula.clock, 0.1),
    (copula.named, 0.8),
    (copula.faring, 0.8),
    (compound_sentences.reason, 3),
    (compound_sentences.contrast, 1.8),
    (compound_sentences.addition, 1.8),
    (compound_sentences.scene, 1),
    (compound_sentences.condition, 1),
    (compound_sentences.reported, 1.8),
)
MAKERS = tuple(make for make, _ in CONSTRUCTIONS)
SHARES = tuple(accumulate(weight for _, weight in CONSTRUCTIONS))


def draw(rng: Random, admits: Callable[[Fact], bool]) -> Meaning:
    """One sensible sentence. Only sentences of several clauses care which facts are admitted: theirs must all be."""
    composer = Composer(rng, admits)
    while True:
        meaning = rng.choices(MAKERS, cum_weights=SHARES)[0](composer)
        if sensible(meaning):
            return meaning


def draw_longer(rng: Random, admits: Callable[[Fact], bool]) -> Meaning:
    """A sentence of three clauses or so, from the same parts."""
    composer = Composer(rng, admits)
    while True:
        meaning = compound_sentences.longer(composer)
        if sensible(meaning) and all(admits(fact) for fact in facts(meaning)):
            return meaning


def clauses(meaning: Meaning) -> Iterator[Clause]:
    if isinstance(meaning, Clause):
        yield meaning
    else:
        yield from clauses(meaning.first)
        yield from clauses(meaning.second)


def phrases(clause: Clause) -> Iterator[Phrase]:
    """Every noun phrase of a clause, owners included, the subject first."""
    tops = [clause.subject, clause.object, clause.recipient, *(a.phrase for a in clause.adjuncts)]
    if isinstance(clause.complement, Phrase):
        tops.append(clause.complement)
    elif isinstance(clause.complement, Adjunct):
        tops.append(clause.complement.phrase)
    elif isinstance(clause.complement, Quality):
        tops.append(clause.complement.than)
    for top in tops:
        part: Phrase | None = top
        while part is not None:
            yield part
            if part.also:
                yield part.also
            part = part.possessor


def sensible(meaning: Meaning) -> bool:
    parts = list(clauses(meaning))
    if not all(_clause_is_sensible(clause) for clause in parts):
        return False
    if isinstance(meaning, Joined) and meaning.conjunction == "that":
        inner = parts[1].subject.determiner
        if inner and inner.english == ("that",):
            return False
    named = [part.subject.lemma for part in parts if not part.silent_subject and isinstance(part.subject.head, Noun)]
    return len(set(named)) == len(named)  # each clause is about somebody else, unless it repeats the subject


def _clause_is_sensible(clause: Clause) -> bool:
    everyone = list(phrases(clause))
    people = [part.lemma for part in everyone if part.kinds & {"person", "city-name", "country", "company"}]
    if len(set(people)) < len(people):
        return False
    subject = clause.subject
    if isinstance(clause.complement, Quality) and subject.adjective is clause.complement.adjective:
        return False  # "the hot bread is hot"
    if (
        isinstance(clause.complement, Quality)
        and clause.complement.than
        and _is_no_comparison(subject, clause.complement)
    ):
        return False
    open_gender = isinstance(subject.head, Noun) and len(subject.head.genders) == 2 and not subject.gender
    if open_gender and _someone_is_theirs(everyone):
        return False  # "the doctor read his book" would settle who the doctor is
    if clause.verb.english[0] == "wear" and clause.object and "women's" in clause.object.kinds:
        return stands_for(subject) == ("she",)
    return all(_spouse_fits(part) for part in everyone)


def _is_no_comparison(subject: Phrase, quality: Quality) -> bool:
    """Whether "she is younger than her son" may come out, or a thing is compared with itself."""
    other = quality.than
    assert other is not None
    family = quality.adjective.english in ("old", "young") and bool((subject.kinds | other.kinds) & {"kin"})
    return family or (other.head is subject.head and isinstance(other.head, Noun))


def _someone_is_theirs(everyone: list[Phrase]) -> bool:
    owners = [part.possessor.head for part in everyone if part.possessor]
    return any(isinstance(owner, Pronoun) and owner.subject in ("he", "she") for owner in owners)


def _spouse_fits(part: Phrase) -> bool:
    if part.lemma not in ("husband", "wife") or part.possessor is None:
        return True
    wanted = "she" if part.lemma == "husband" else "he"
    return wanted in stands_for(part.possessor)
