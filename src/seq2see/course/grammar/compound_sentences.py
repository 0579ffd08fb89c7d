"""Sentences of more than one clause, drawn so that the parts belong together.

A reason must be one (people sleep because they are tired, buy because it is cheap); "but" contrasts; "when" and "if" set the
scene. The pronoun of a reason refers back, and its Hindi takes the gender of what it refers to: the bread was eaten
because "it" was fresh (ताज़ी), the dog ate because "it" was hungry (भूखा).
"""

from dataclasses import replace
from functools import cache

from seq2see.course.grammar.clauses import action
from seq2see.course.grammar.copula import BE, bearer, described, identified, located
from seq2see.course.grammar.hindi_noun_phrases import stands_for
from seq2see.course.grammar.lexicon import Adjective, Noun, Verb, adjectives, noun, of_kind, verbs
from seq2see.course.grammar.meaning import Clause, Joined, Meaning, Phrase, Pronoun, Quality, Tense
from seq2see.course.grammar.noun_phrases import PRONOUNS, Composer, main_verbs, nouns_of, pronoun, same_party

OPPOSITES = (
    ("big", "small"), ("hot", "cold"), ("cheap", "expensive"), ("new", "old"), ("clean", "dirty"), ("fast", "slow"),
    ("easy", "hard"), ("rich", "poor"), ("happy", "sad"), ("sweet", "sour"), ("open", "closed"), ("heavy", "light"),
    ("clever", "lazy"), ("good", "bad"),
)  # fmt: skip
PARALLEL: dict[Tense, float] = {"present": 3, "past": 5, "future": 3, "progressive": 4, "past progressive": 2}
REASONED: dict[Tense, float] = {"past": 6, "present": 1, "progressive": 3}
OTHERS = ("he", "she", "they")


@cache
def doings() -> tuple[Verb, ...]:
    """What people do, rather than what they are, have or feel."""
    return tuple(
        verb
        for verb in main_verbs()
        if "person" in verb.subjects and "stative" not in verb.marks and verb.subject_case in ("-", "ने")
        if verb.english[0] != "be"
    )


@cache
def named_verbs(*english: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in main_verbs() if verb.english[0] in english and "person" in verb.subjects)


@cache
def with_reasons() -> tuple[Verb, ...]:
    return tuple(verb for verb in main_verbs() if verb.lists.keys() & {"because", "as"})


@cache
def going_on() -> tuple[Verb, ...]:
    """What somebody can be found doing."""
    moving = {"result", "no-progressive", "needs-at", "needs-into", "needs-from"}
    still = [verb for verb in doings() if not verb.marks & moving and "only" not in verb.lists]
    return tuple(verb for verb in still if verb.section != "going and coming")


@cache
def adjective_of(english: str, kinds: frozenset[str]) -> Adjective | None:
    """The row of an adjective that fits the kinds: old is बूढ़ा of a man, पुराना of a shirt."""
    fitting = (a for a in adjectives() if a.english == english and a.kinds & kinds and "comparative" not in a.marks)
    return next(fitting, None)


def stated(made: Clause, without: tuple[str, ...] = ("often",)) -> Clause:
    """The clause as a plain statement, without some of its adjuncts."""
    return replace(made, negative=False, adjuncts=tuple(part for part in made.adjuncts if part.kind not in without))


def tense_of(c: Composer, verb: Verb) -> Tense:
    if "stative" in verb.marks or verb.english[0] == "be":
        return c.draw({"present": 3, "past": 1})
    allowed = {tense: weight for tense, weight in PARALLEL.items() if takes(verb, tense)}
    return c.draw(allowed)


def takes(verb: Verb, tense: Tense) -> bool:
    if "no-progressive" in verb.marks and "progressive" in tense:
        return False
    return tense in verb.lists.get("only", (tense,))


def refer(phrase: Phrase, female: bool = False) -> tuple[Phrase, Phrase]:
    """The phrase with its gender settled, and the pronoun that refers back to it."""
    head = phrase.head
    if isinstance(head, Pronoun):
        return phrase, phrase
    if phrase.also:
        both = [part.head.genders for part in (phrase, phrase.also) if isinstance(part.head, Noun)]
        return phrase, Phrase(PRONOUNS["they"], gender="f" if both == [("f",), ("f",)] else "m")
    gender = phrase.gender or head.genders[0]
    if len(head.genders) == 2:
        gender = "f" if female else "m"
        phrase = replace(phrase, gender=gender)
    name = stands_for(phrase)[0]
    # Money is one thing in English and many in Hindi: पैसे … वे.
    respect = "elder" in head.kinds or ("several" in head.kinds and name == "it")
    return phrase, Phrase(PRONOUNS[name], gender=gender, respect=respect)


def reason(c: Composer) -> Meaning:
    """ "Ravi slept because he was tired", "he bought the shirt because it was cheap", and the same with "so"."""
    verb = c.pick(with_reasons())
    tense = c.draw({tense: weight for tense, weight in REASONED.items() if takes(verb, tense)})
    made = c.until_admitted(lambda: stated(action(c, verb, tense, much=0.25), ("often", "when")))
    settled, back = refer(made.subject, c.chance(0.4))
    cause = _own_reason(c, made, back) or _object_reason(c, made)
    if cause is None:
        return made
    if cause.subject is not back:
        return Joined(made, "because", cause)
    if c.chance(0.25):
        return Joined(replace(cause, subject=settled), "so", replace(made, subject=back))
    return Joined(replace(made, subject=settled), "because", cause)


def _own_reason(c: Composer, made: Clause, back: Phrase) -> Clause | None:
    names = made.verb.lists.get("because", ())
    if not names or ("as" in made.verb.lists and c.chance(0.5)):
        return None
    name = c.pick(names)
    tense: Tense = "past" if made.tense == "past" else "present"
    felt = next((verb for verb in main_verbs() if verb.english == ("be",) and verb.particle == name), None)
    if felt and "weather" in felt.subjects:
        return Clause(felt, pronoun("it"), tense=tense)
    kinds = made.subject.kinds or frozenset({"person"})
    if felt and "person" in kinds:
        return Clause(felt, back, tense=tense)
    adjective = adjective_of(name, kinds)
    if made.subject.adjective and made.subject.adjective is adjective:
        return None
    return Clause(BE, back, complement=Quality(adjective), tense=tense) if adjective else None


def _object_reason(c: Composer, made: Clause) -> Clause | None:
    names = made.verb.lists.get("as", ())
    if not names or made.object is None or isinstance(made.object.head, Pronoun):
        return None
    fitting = [a for a in (adjective_of(name, made.object.kinds) for name in names) if a]
    if not fitting or made.object.adjective in fitting:
        return None
    _, back = refer(made.object)
    tense: Tense = "past" if made.tense == "past" else "present"
    return Clause(BE, back, complement=Quality(c.pick(fitting)), tense=tense)


def contrast(c: Composer) -> Meaning:
    """ "Ravi came, but Meera did not come", "the tea is hot, but the water is cold"."""
    return opposition(c) if c.chance(0.5) else exception(c)


def opposition(c: Composer) -> Meaning:
    one, two = c.rng.sample(c.pick(OPPOSITES), 2)
    tense: Tense = "past" if c.chance(0.3) else "present"
    quality = c.pick([a for a in adjectives() if a.english == one and "comparative" not in a.marks])
    first = c.until_admitted(lambda: Clause(BE, bearer(c, quality), complement=Quality(quality), tense=tense))
    opposite = adjective_of(two, first.subject.kinds or frozenset({"person"}))
    if opposite is None:
        return first
    what = Quality(opposite)
    second = c.until_admitted(lambda: Clause(BE, _another(c, first.subject, opposite), complement=what, tense=tense))
    return Joined(first, "but", second)


def _another(c: Composer, subject: Phrase, adjective: Adjective) -> Phrase:
    """A phrase of the same sort for the other side of a contrast."""
    if isinstance(subject.head, Pronoun) or "person" in subject.kinds:
        return c.person(OTHERS)
    entries = [n for n in nouns_of(*sorted(adjective.kinds & subject.kinds)) if n is not subject.head]
    return c.known(c.pick(entries or [subject.head]), adjective=0)


def exception(c: Composer) -> Meaning:
    verb = c.pick([verb for verb in main_verbs() if "person" in verb.subjects and "affirmative" not in verb.marks])
    tense, who = tense_of(c, verb), c.person(("I", "he", "she", "we"))
    made = c.until_admitted(lambda: stated(action(c, verb, tense, who, much=0.2), ("often", "manner")))
    others = [name for name in ("he", "she", "I", "they") if not same_party(who, name)]
    other = c.until_admitted(lambda: replace(made, subject=c.person(others), negative=True))
    return Joined(made, "but", other)


def addition(c: Composer) -> Meaning:
    """ "Ravi is reading a book and Meera is writing a letter", "I ate rice and drank water"."""
    one = c.pick(doings())
    tense = tense_of(c, one)
    first = c.until_admitted(lambda: stated(action(c, one, tense, c.person(pairs=True), much=0.15)))
    alike = [
        verb for verb in doings() if verb.section == one.section and verb.english != one.english and takes(verb, tense)
    ]
    if not alike:
        return first
    two = c.pick(alike)
    shared = c.chance(0.5) and one.subject_case == two.subject_case
    if shared:
        second = c.until_admitted(lambda: stated(action(c, two, tense, first.subject, much=0)))
        return Joined(first, "and", replace(second, silent_subject=True))
    return Joined(first, "and", _beside(c, first, two))


def _beside(c: Composer, first: Clause, verb: Verb) -> Clause:
    """What somebody else does at the same time."""
    names = OTHERS if isinstance(first.subject.head, Noun) else ()
    return c.until_admitted(lambda: stated(action(c, verb, first.tense, c.person(names), much=0)))


def scene(c: Composer) -> Meaning:
    """ "When I came home, Ravi was sleeping." """
    verb = c.pick(named_verbs("come", "reach", "return"))
    home = noun("home")
    near = [entry for entry in of_kind("goal") if "proper" not in entry.kinds]

    def arrival() -> Clause:
        goal = home if c.chance(0.4) else c.pick(near)
        return Clause(verb, c.person(pairs=True), c.place_phrase(goal), tense="past")

    doing = c.pick(going_on())
    second = c.until_admitted(lambda: stated(action(c, doing, "past progressive", c.person(), much=0)))
    return Joined(c.until_admitted(arrival), "when", second)


def condition(c: Composer) -> Meaning:
    """ "If it rains tomorrow, we will stay at home", "if Ravi comes home, Meera will make tea"."""
    if c.chance(0.5):
        cause = c.pick([verb for verb in main_verbs() if "weather" in verb.subjects and verb.english[0] != "be"])
        first = c.until_admitted(lambda: stated(action(c, cause, "future", much=0.5)))
        indoors = [verb for verb in doings() if "home" in verb.lists.get("at", ())]
        doing = c.pick([verb for verb in indoors if verb.english[0] not in ("talk", "wait", "look")])
    else:
        verb, goal = c.pick(named_verbs("come", "return")), Phrase(noun("home"))
        denied = c.chance(0.2)
        first = c.until_admitted(lambda: Clause(verb, c.person(pairs=True), goal, tense="future", negative=denied))
        together = [verb for verb in doings() if "company" in verb.marks or verb.section == "food"]
        doing = c.pick([verb for verb in together if verb.object_case != "goal"])
    return Joined(first, "if", c.until_admitted(lambda: stated(action(c, doing, "future", c.person(), much=0))))


def reported(c: Composer, inner: Meaning | None = None) -> Meaning:
    """ "I think that the exam is difficult." """
    verb = c.pick([verb for verb in verbs() if "clausal" in verb.marks and not (inner and verb.english[0] == "hope")])
    speaker = c.person(OTHERS if verb.english[0] == "say" else ("I", "I", "we", *OTHERS))
    deny = verb.english[0] in ("think", "know") and c.chance(0.12)
    first = Clause(verb, speaker, tense="present", negative=deny)
    if verb.english[0] == "hope":
        hoped = c.pick([verb for verb in doings() if takes(verb, "future")])
        return Joined(first, "that", stated(action(c, hoped, "future", much=0.3), ()))
    return Joined(first, "that", inner or c.until_admitted(lambda: plain(c)))


def plain(c: Composer) -> Clause:
    """A statement of one clause."""
    if c.chance(0.35):
        made = c.pick((described, identified, located))(c)
        return replace(made, mood="statement") if not made.asked else plain(c)
    verb = c.pick([verb for verb in main_verbs() if "person" in verb.subjects])
    return action(c, verb, tense_of(c, verb), much=0.3)


def longer(c: Composer) -> Meaning:
    """Three clauses, or two that are told by somebody: the constructions above inside one another."""
    how = c.draw({"told": 4, "scene": 2, "condition": 1, "both": 3})
    if how == "told":
        return reported(c, c.pick((reason, contrast, addition, scene, condition))(c))
    if how == "both":  # "Meera cooked rice and Ravi ate the bread because it was fresh"
        second = reason(c)
        first = second.first if isinstance(second, Joined) else second
        assert isinstance(first, Clause)
        doing = c.pick([verb for verb in doings() if takes(verb, first.tense)])
        return Joined(_beside(c, first, doing), "and", second)
    made = scene(c) if how == "scene" else condition(c)
    assert isinstance(made, Joined)
    assert isinstance(made.second, Clause)
    doing = c.pick(going_on())
    return Joined(made.first, made.conjunction, Joined(made.second, "and", _beside(c, made.second, doing)))
