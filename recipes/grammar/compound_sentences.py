"""Samples sentences of more than one clause whose parts belong together.

A reason must make sense (people sleep because they are tired, buy something because it is cheap); "but" contrasts; "when" and
"if" set the scene. The pronoun of a reason refers back, and its Hindi takes the gender of the antecedent: the bread was eaten
because "it" was fresh (ताज़ी), the dog ate because "it" was hungry (भूखा).
"""

from dataclasses import replace
from functools import cache

from grammar.clauses import statement
from grammar.copula import BE, description, identification, location, sample_bearer
from grammar.hindi_noun_phrases import possible_pronouns
from grammar.lexicon import Adjective, Noun, Verb, adjectives, noun, of_kind, verbs
from grammar.meaning import (
    AdjectivePhrase,
    Clause,
    CompoundSentence,
    Meaning,
    NounPhrase,
    Pronoun,
    Tense,
)
from grammar.phrase_sampler import PRONOUNS, PhraseSampler, main_verbs, nouns_of, pronoun, same_party

OPPOSITES = (
    ("big", "small"),
    ("hot", "cold"),
    ("cheap", "expensive"),
    ("new", "old"),
    ("clean", "dirty"),
    ("fast", "slow"),
    ("easy", "hard"),
    ("rich", "poor"),
    ("happy", "sad"),
    ("sweet", "sour"),
    ("open", "closed"),
    ("heavy", "light"),
    ("clever", "lazy"),
    ("good", "bad"),
)
COORDINATED_TENSES: dict[Tense, float] = {"present": 3, "past": 5, "future": 3, "progressive": 4, "past progressive": 2}
REASON_TENSES: dict[Tense, float] = {"past": 6, "present": 1, "progressive": 3}
THIRD_PERSON = ("he", "she", "they")


@cache
def action_verbs() -> tuple[Verb, ...]:
    """Returns the verbs for what people do, rather than what they are, have or feel."""
    return tuple(
        verb
        for verb in main_verbs()
        if "person" in verb.subjects and "stative" not in verb.features and verb.subject_case in ("-", "ने")
        if verb.english[0] != "be"
    )


@cache
def named_verbs(*english: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in main_verbs() if verb.english[0] in english and "person" in verb.subjects)


@cache
def verbs_with_reasons() -> tuple[Verb, ...]:
    return tuple(verb for verb in main_verbs() if verb.attributes.keys() & {"because", "as"})


@cache
def ongoing_verbs() -> tuple[Verb, ...]:
    """Returns the verbs for what somebody can be doing when another arrives."""
    excluded = {"result", "no-progressive", "needs-at", "needs-into", "needs-from"}
    ongoing = [verb for verb in action_verbs() if not verb.features & excluded and "only" not in verb.attributes]
    return tuple(verb for verb in ongoing if verb.section != "going and coming")


@cache
def adjective_of(english: str, kinds: frozenset[str]) -> Adjective | None:
    """Returns the entry of an adjective that fits the kinds: old is बूढ़ा for a man, पुराना for a shirt."""
    fitting = (a for a in adjectives() if a.english == english and a.kinds & kinds and "comparative" not in a.features)
    return next(fitting, None)


def simplified(clause: Clause, without: tuple[str, ...] = ("often",)) -> Clause:
    """Returns the clause as a positive statement without adjuncts of some kinds."""
    return replace(clause, negative=False, adjuncts=tuple(part for part in clause.adjuncts if part.kind not in without))


def sample_tense(c: PhraseSampler, verb: Verb) -> Tense:
    if "stative" in verb.features or verb.english[0] == "be":
        return c.pick_weighted({"present": 3, "past": 1})
    allowed = {tense: weight for tense, weight in COORDINATED_TENSES.items() if allows_tense(verb, tense)}
    return c.pick_weighted(allowed)


def allows_tense(verb: Verb, tense: Tense) -> bool:
    if "no-progressive" in verb.features and "progressive" in tense:
        return False
    return tense in verb.attributes.get("only", (tense,))


def antecedent_and_pronoun(phrase: NounPhrase, female: bool = False) -> tuple[NounPhrase, NounPhrase]:
    """Returns the phrase with its gender fixed, and the pronoun that refers back to it."""
    head = phrase.head
    if isinstance(head, Pronoun):
        return phrase, phrase
    if phrase.conjunct:
        both = [part.head.genders for part in (phrase, phrase.conjunct) if isinstance(part.head, Noun)]
        return phrase, NounPhrase(PRONOUNS["they"], gender="f" if both == [("f",), ("f",)] else "m")
    gender = phrase.gender or head.genders[0]
    if len(head.genders) == 2:
        gender = "f" if female else "m"
        phrase = replace(phrase, gender=gender)
    name = possible_pronouns(phrase)[0]
    # "Money" is singular in English and plural in Hindi: पैसे … वे.
    honorific = "elder" in head.kinds or ("several" in head.kinds and name == "it")
    return phrase, NounPhrase(PRONOUNS[name], gender=gender, honorific=honorific)


def reason(c: PhraseSampler) -> Meaning:
    """Samples sentences such as "Ravi slept because he was tired", "it was cheap, so he bought it"."""
    verb = c.pick(verbs_with_reasons())
    tense = c.pick_weighted({tense: weight for tense, weight in REASON_TENSES.items() if allows_tense(verb, tense)})
    clause = c.until_allowed(lambda: simplified(statement(c, verb, tense, adjunct_rate=0.25), ("often", "when")))
    antecedent, anaphor = antecedent_and_pronoun(clause.subject, c.chance(0.4))
    cause = _subject_reason(c, clause, anaphor) or _object_reason(c, clause)
    if cause is None:
        return clause
    if cause.subject is not anaphor:
        return CompoundSentence(clause, "because", cause)
    if c.chance(0.25):
        return CompoundSentence(replace(cause, subject=antecedent), "so", replace(clause, subject=anaphor))
    return CompoundSentence(replace(clause, subject=antecedent), "because", cause)


def _subject_reason(c: PhraseSampler, clause: Clause, anaphor: NounPhrase) -> Clause | None:
    names = clause.verb.attributes.get("because", ())
    if not names or ("as" in clause.verb.attributes and c.chance(0.5)):
        return None
    name = c.pick(names)
    tense: Tense = "past" if clause.tense == "past" else "present"
    felt = next((verb for verb in main_verbs() if verb.english == ("be",) and verb.particle == name), None)
    if felt and "weather" in felt.subjects:
        return Clause(felt, pronoun("it"), tense=tense)
    kinds = clause.subject.kinds or frozenset({"person"})
    if felt and "person" in kinds:
        return Clause(felt, anaphor, tense=tense)
    adjective = adjective_of(name, kinds)
    if clause.subject.adjective and clause.subject.adjective is adjective:
        return None
    return Clause(BE, anaphor, complement=AdjectivePhrase(adjective), tense=tense) if adjective else None


def _object_reason(c: PhraseSampler, clause: Clause) -> Clause | None:
    names = clause.verb.attributes.get("as", ())
    if not names or clause.object is None or isinstance(clause.object.head, Pronoun):
        return None
    fitting = [a for a in (adjective_of(name, clause.object.kinds) for name in names) if a]
    if not fitting or clause.object.adjective in fitting:
        return None
    _, anaphor = antecedent_and_pronoun(clause.object)
    tense: Tense = "past" if clause.tense == "past" else "present"
    return Clause(BE, anaphor, complement=AdjectivePhrase(c.pick(fitting)), tense=tense)


def contrast(c: PhraseSampler) -> Meaning:
    """Samples sentences such as "Ravi came, but Meera did not come", "the tea is hot, but the water is cold"."""
    return opposition(c) if c.chance(0.5) else exception(c)


def opposition(c: PhraseSampler) -> Meaning:
    one, two = c.rng.sample(c.pick(OPPOSITES), 2)
    tense: Tense = "past" if c.chance(0.3) else "present"
    quality = c.pick([a for a in adjectives() if a.english == one and "comparative" not in a.features])
    first = c.until_allowed(
        lambda: Clause(BE, sample_bearer(c, quality), complement=AdjectivePhrase(quality), tense=tense)
    )
    opposite = adjective_of(two, first.subject.kinds or frozenset({"person"}))
    if opposite is None:
        return first
    complement = AdjectivePhrase(opposite)
    second = c.until_allowed(
        lambda: Clause(BE, _contrasting_subject(c, first.subject, opposite), complement=complement, tense=tense)
    )
    return CompoundSentence(first, "but", second)


def _contrasting_subject(c: PhraseSampler, subject: NounPhrase, adjective: Adjective) -> NounPhrase:
    """Samples a phrase of the same kind for the other side of a contrast."""
    if isinstance(subject.head, Pronoun) or "person" in subject.kinds:
        return c.person(THIRD_PERSON)
    entries = [n for n in nouns_of(*sorted(adjective.kinds & subject.kinds)) if n is not subject.head]
    return c.definite(c.pick(entries or [subject.head]), adjective=0)


def exception(c: PhraseSampler) -> Meaning:
    verb = c.pick([verb for verb in main_verbs() if "person" in verb.subjects and "affirmative" not in verb.features])
    tense, subject = sample_tense(c, verb), c.person(("I", "he", "she", "we"))
    clause = c.until_allowed(
        lambda: simplified(statement(c, verb, tense, subject, adjunct_rate=0.2), ("often", "manner"))
    )
    others = [name for name in ("he", "she", "I", "they") if not same_party(subject, name)]
    other = c.until_allowed(lambda: replace(clause, subject=c.person(others), negative=True))
    return CompoundSentence(clause, "but", other)


def addition(c: PhraseSampler) -> Meaning:
    """Samples sentences such as "Ravi is reading a book and Meera is writing a letter", "I ate rice and drank water"."""
    one = c.pick(action_verbs())
    tense = sample_tense(c, one)
    first = c.until_allowed(lambda: simplified(statement(c, one, tense, c.person(pairs=True), adjunct_rate=0.15)))
    similar = [
        verb
        for verb in action_verbs()
        if verb.section == one.section and verb.english != one.english and allows_tense(verb, tense)
    ]
    if not similar:
        return first
    two = c.pick(similar)
    shared = c.chance(0.5) and one.subject_case == two.subject_case
    if shared:
        second = c.until_allowed(lambda: simplified(statement(c, two, tense, first.subject, adjunct_rate=0)))
        return CompoundSentence(first, "and", replace(second, subject_elided=True))
    return CompoundSentence(first, "and", _simultaneous_clause(c, first, two))


def _simultaneous_clause(c: PhraseSampler, first: Clause, verb: Verb) -> Clause:
    """Samples what somebody else does at the same time."""
    names = THIRD_PERSON if isinstance(first.subject.head, Noun) else ()
    return c.until_allowed(lambda: simplified(statement(c, verb, first.tense, c.person(names), adjunct_rate=0)))


def scene(c: PhraseSampler) -> Meaning:
    """Samples sentences such as "when I came home, Ravi was sleeping"."""
    verb = c.pick(named_verbs("come", "reach", "return"))
    home = noun("home")
    near = [entry for entry in of_kind("goal") if "proper" not in entry.kinds]

    def arrival() -> Clause:
        goal = home if c.chance(0.4) else c.pick(near)
        return Clause(verb, c.person(pairs=True), c.place_phrase(goal), tense="past")

    doing = c.pick(ongoing_verbs())
    second = c.until_allowed(lambda: simplified(statement(c, doing, "past progressive", c.person(), adjunct_rate=0)))
    return CompoundSentence(c.until_allowed(arrival), "when", second)


def condition(c: PhraseSampler) -> Meaning:
    """Samples sentences such as "If it rains tomorrow, we will stay at home", "if Ravi comes home, Meera will make tea"."""
    if c.chance(0.5):
        cause = c.pick([verb for verb in main_verbs() if "weather" in verb.subjects and verb.english[0] != "be"])
        first = c.until_allowed(lambda: simplified(statement(c, cause, "future", adjunct_rate=0.5)))
        indoors = [verb for verb in action_verbs() if "home" in verb.attributes.get("at", ())]
        doing = c.pick([verb for verb in indoors if verb.english[0] not in ("talk", "wait", "look")])
    else:
        verb, goal = c.pick(named_verbs("come", "return")), NounPhrase(noun("home"))
        negative = c.chance(0.2)
        first = c.until_allowed(lambda: Clause(verb, c.person(pairs=True), goal, tense="future", negative=negative))
        together = [verb for verb in action_verbs() if "company" in verb.features or verb.section == "food"]
        doing = c.pick([verb for verb in together if verb.object_case != "goal"])
    return CompoundSentence(
        first, "if", c.until_allowed(lambda: simplified(statement(c, doing, "future", c.person(), adjunct_rate=0)))
    )


def reported(c: PhraseSampler, inner: Meaning | None = None) -> Meaning:
    """Samples sentences such as "I think that the exam is difficult"."""
    verb = c.pick(
        [verb for verb in verbs() if "clausal" in verb.features and not (inner and verb.english[0] == "hope")]
    )
    speaker = c.person(THIRD_PERSON if verb.english[0] == "say" else ("I", "I", "we", *THIRD_PERSON))
    negative = verb.english[0] in ("think", "know") and c.chance(0.12)
    first = Clause(verb, speaker, tense="present", negative=negative)
    if verb.english[0] == "hope":
        hoped = c.pick([verb for verb in action_verbs() if allows_tense(verb, "future")])
        return CompoundSentence(first, "that", simplified(statement(c, hoped, "future", adjunct_rate=0.3), ()))
    return CompoundSentence(first, "that", inner or c.until_allowed(lambda: simple_statement(c)))


def simple_statement(c: PhraseSampler) -> Clause:
    """Samples a statement of one clause."""
    if c.chance(0.35):
        clause = c.pick((description, identification, location))(c)
        return replace(clause, mood="statement") if not clause.questioned else simple_statement(c)
    verb = c.pick([verb for verb in main_verbs() if "person" in verb.subjects])
    return statement(c, verb, sample_tense(c, verb), adjunct_rate=0.3)


def nested_sentence(c: PhraseSampler) -> Meaning:
    """Samples three clauses, or two in reported speech, by nesting the constructions above."""
    kind = c.pick_weighted({"reported": 4, "scene": 2, "condition": 1, "both": 3})
    if kind == "reported":
        return reported(c, c.pick((reason, contrast, addition, scene, condition))(c))
    if kind == "both":  # "Meera cooked rice and Ravi ate the bread because it was fresh"
        second = reason(c)
        first = second.first if isinstance(second, CompoundSentence) else second
        assert isinstance(first, Clause)
        doing = c.pick([verb for verb in action_verbs() if allows_tense(verb, first.tense)])
        return CompoundSentence(_simultaneous_clause(c, first, doing), "and", second)
    clause = scene(c) if kind == "scene" else condition(c)
    assert isinstance(clause, CompoundSentence)
    assert isinstance(clause.second, Clause)
    doing = c.pick(ongoing_verbs())
    return CompoundSentence(
        clause.first,
        clause.conjunction,
        CompoundSentence(clause.second, "and", _simultaneous_clause(c, clause.second, doing)),
    )
