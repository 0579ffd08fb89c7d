"""Clauses with a full verb, drawn at random: every tense and mood that suits the verb, its objects and what is asked."""

from dataclasses import replace
from functools import cache

from seq2see.course.grammar.hindi_noun_phrases import stands_for
from seq2see.course.grammar.lexicon import Adjective, Noun, Verb, adjectives, word
from seq2see.course.grammar.meaning import Adjunct, Clause, Modal, Phrase, Pronoun, Quality, Tense
from seq2see.course.grammar.noun_phrases import Composer, determiner, main_verbs, nouns_of, others, pronoun

TENSES: dict[Tense, float] = {
    "present": 22, "past": 28, "future": 16, "progressive": 16, "past progressive": 5, "perfect": 5, "used": 3,
}  # fmt: skip
STATIVE_TENSES: dict[Tense, float] = {"present": 7, "past": 3}
MODALS: dict[Modal, float] = {"can": 30, "want": 25, "like": 14, "have": 14, "should": 14, "start": 8}
HABIT = {"generic": 6.0, "indefinite": 1.0, "known": 1.0}
EVENT = {"generic": 1.0, "indefinite": 5.0, "known": 5.0}


def verbal(c: Composer) -> Clause:
    """A statement, question or command with a full verb."""
    verb = c.pick(main_verbs())
    made = action(c, verb)
    how = c.draw({"statement": 58, "yes/no": 13, "asks": 14, "orders": 15})
    if how == "orders" and can_be_ordered(verb) and _no_pronoun(made):
        return order(c, made)
    if how in ("statement", "orders") or made.tense == "used" or made.modal == "start" or _knows_oneself(made):
        return made
    if how == "asks" and made.modal != "have":
        return ask(c, made)
    return replace(made, mood="question", negative=False, adjuncts=_without(made, "often"))


def _knows_oneself(made: Clause) -> bool:
    """Nobody asks "what did I eat?", though "what can I eat?"."""
    return stands_for(made.subject)[0] in ("I", "we") and made.modal not in ("can", "should")


def _no_pronoun(made: Clause) -> bool:
    return made.object is None or isinstance(made.object.head, Noun)


def _without(made: Clause, kind: str) -> tuple[Adjunct, ...]:
    return tuple(part for part in made.adjuncts if part.kind != kind)


def action(c: Composer, verb: Verb, tense: Tense | None = None, who: Phrase | None = None, much: float = 1.0) -> Clause:
    """A statement with that verb. Tense (without a modal) and subject are drawn unless given."""
    modal = None
    if tense is None:
        modal, tense = manner_of_speaking(c, verb)
    who = who or subject(c, verb, generic=tense == "present")
    if modal and isinstance(who.head, Noun) and "person" not in who.kinds:
        modal, tense = "can", "present"  # animals are able, but nobody knows what they want
    what = object_(c, verb, who, tense, modal)
    made = Clause(verb, who, what, tense=tense, modal=modal, adjuncts=c.adjuncts(verb, who, tense, modal, much))
    if "tastes" in verb.marks:
        made = replace(made, complement=Quality(c.pick(tastes(who.kinds))))
    if "asks" in verb.marks or ("to" in verb.marks and c.chance(0.6)):
        first = "asks" in verb.marks or (_no_pronoun(made) and verb.english[0] != "write" and c.chance(0.5))
        made = replace(made, recipient=c.person(others(who)), recipient_first=first)
    return _denied_or_often(c, made)


@cache
def tastes(kinds: frozenset[str]) -> tuple[Adjective, ...]:
    fitting = [a for a in adjectives() if a.english in ("good", "bad", "sweet", "sour", "awesome")]
    return tuple(a for a in fitting if a.kinds & kinds and "comparative" not in a.marks)


def manner_of_speaking(c: Composer, verb: Verb) -> tuple[Modal | None, Tense]:
    """A modal with its tense, or a tense."""
    if not can_be_ordered(verb) or "harmful" in verb.marks or not c.chance(0.28):
        return None, c.draw(tenses_of(verb))
    modal = c.draw(MODALS)
    if modal in ("start", "like") and verb.marks & {"result", "no-progressive"}:
        return "can", "present"
    past = modal == "start" or (modal in ("want", "have") and c.chance(0.25))
    return modal, "past" if past else "present"


def tenses_of(verb: Verb) -> dict[Tense, float]:
    if "only" in verb.lists:
        return {tense: weight for tense, weight in TENSES.items() if tense in verb.lists["only"]}
    if "stative" in verb.marks or verb.english[0] == "be":
        return STATIVE_TENSES
    barred: set[str] = set()
    if "weather" in verb.subjects:
        barred |= {"present", "perfect", "used"}
    if "result" in verb.marks:
        barred |= {"perfect", "used"}
    if verb.marks & {"the", "timeless"} or verb.lists.keys() & {"from", "into"}:
        barred |= {"used"}
    if "no-progressive" in verb.marks:
        barred |= {"progressive", "past progressive"}
    return {tense: weight for tense, weight in TENSES.items() if tense not in barred}


def can_be_ordered(verb: Verb) -> bool:
    """Whether somebody may be told to do it, want to do it, or be able to."""
    return (
        "person" in verb.subjects
        and not verb.marks & {"no-command", "stative", "affirmative"}
        and verb.english[0] != "be"
    )


def _denied_or_often(c: Composer, made: Clause) -> Clause:
    verb = made.verb
    if "affirmative" in verb.marks or made.tense == "used" or made.modal in ("have", "start"):
        return made
    if c.chance(0.17):
        return replace(made, negative=True, object=uncounted(made.object), adjuncts=_without(made, "manner"))
    habit = made.tense == "present" and not made.modal and verb.english[0] != "be" and "stative" not in verb.marks
    if not habit or not c.chance(0.2):
        return made
    name = c.draw({"always": 2, "often": 2, "sometimes": 2, "never": 3})
    kept = tuple(a for a in _without(made, "manner") if not (a.adverb and a.adverb.english[0] == "every"))
    return replace(made, adjuncts=(*kept, Adjunct("often", adverb=word("adverbs", name))))


def uncounted(phrase: Phrase | None) -> Phrase | None:
    """No "some", "many" or "three" under a negation: what they would mean there is another matter."""
    if phrase is None:
        return None
    if phrase.count:
        return replace(phrase, count=None, article="" if phrase.link == "'s" and phrase.possessor else "the")
    if phrase.determiner and phrase.determiner.english[0] in ("some", "many", "a", "two"):
        return replace(phrase, determiner=None)
    return phrase


def subject(c: Composer, verb: Verb, generic: bool) -> Phrase:
    if "weather" in verb.subjects:
        return pronoun("it")
    if "owned" in verb.marks:  # "his hands" must be somebody's own
        return pronoun(c.pick(("I", "you", "he", "she", "we", "they"))) if c.chance(0.5) else c.name()
    if "person" in verb.subjects and (len(verb.subjects) == 1 or c.chance(0.75)):
        return c.person(pairs=True)
    entry = c.pick(nouns_of(*sorted(verb.subjects - {"person"} or verb.subjects)))
    if "generic-subject" in verb.marks or (generic and "animal" in entry.kinds and c.chance(0.4)):
        return c.generic(entry)
    return c.known(entry)


def object_(c: Composer, verb: Verb, who: Phrase, tense: Tense, modal: Modal | None) -> Phrase | None:
    """What the verb is done to, determined as its marks and the tense have it."""
    kinds, marks = verb.objects, verb.marks
    if not kinds:
        return None
    if "person" in kinds and (len(kinds) == 1 or c.chance(0.7)):
        return c.person(others(who))
    entry = c.pick(nouns_of(*sorted(kinds - {"person"} or kinds)))
    if "piece" in entry.kinds:
        return c.piece(entry)
    if verb.object_case == "goal":
        return c.place_phrase(entry)
    if "counted" in marks:
        return c.amount(entry)
    if "owned" in marks:
        return Phrase(entry, entry.english in ("hand", "foot"), possessor=pronoun(stands_for(who)[0]))
    if "plural-object" in marks:
        return Phrase(entry, True, adjective=c.adjective(entry, 0.6))
    if "plural-the" in marks:
        return Phrase(entry, "mass" not in entry.kinds, "the", adjective=c.adjective(entry, 0.1))
    if "the" in marks:
        played = "instrument" in entry.kinds
        return Phrase(entry, article="the") if played else c.made_by(c.known(entry, counted=False))
    if "generic" in marks or modal == "like":
        return c.generic(entry)
    if "single" in marks:
        return c.one_of(entry)
    how = (
        "indefinite"
        if "indefinite" in marks
        else c.draw(HABIT if tense in ("present", "used") and not modal else EVENT)
    )
    return c.made_by({"generic": c.generic, "indefinite": c.indefinite, "known": c.known}[how](entry))


def order(c: Composer, made: Clause) -> Clause:
    """A command: plain, polite, negative, or to oneself and others."""
    verb, you = made.verb, pronoun("you")
    kept = tuple(a for a in made.adjuncts if a.kind in ("place", "into", "tool", "manner", "source", "for"))
    to = made.recipient
    if to and "you" in stands_for(to):
        to = pronoun("I")
    what = object_(c, verb, you, "past", None)
    ordered = Clause(verb, you, what, to, made.recipient_first, adjuncts=kept, mood="command")
    kind = c.draw({"command": 5, "please": 3, "let us": 1})
    if kind == "let us" and "company" in verb.marks and verb.object_case != "goal":
        return replace(ordered, mood="let us", subject=pronoun("we"))
    if "harmful" in verb.marks or c.chance(0.3):
        ordered = replace(ordered, negative=True, object=uncounted(what))
    return replace(ordered, mood="please") if kind == "please" else ordered


def ask(c: Composer, made: Clause) -> Clause:
    """A question with a question word, from a statement."""
    plain = replace(made, mood="question", negative=False, adjuncts=_without(made, "often"))
    options = askable(made)
    asked = c.draw(options) if options else ""
    if asked == "subject":
        return replace(plain, subject=pronoun("who"), asked=asked)
    if asked == "object":
        return replace(plain, object=asked_for(c, made), asked=asked, recipient_first=False)
    if asked == "where":
        kept = tuple(a for a in plain.adjuncts if a.kind in ("when", "company"))
        what = None if made.verb.object_case == "goal" else made.object
        return replace(plain, asked=asked, adjuncts=kept, object=what)
    if asked == "when":
        return replace(plain, asked=asked, adjuncts=_without(plain, "when"))
    return replace(plain, asked=asked, negative=made.negative and asked == "why")


def askable(made: Clause) -> dict[str, float]:
    """What can be asked about a statement, and how often it is."""
    verb = made.verb
    owned = any(phrase is not None and phrase.possessor is not None for phrase in (made.object, made.recipient))
    lively = "stative" not in verb.marks and bool(verb.subjects & {"person", "animal", "public", "weather"})
    can_be_object = made.object is not None and not verb.marks & {"owned", "counted", "no-object-question"}
    options: dict[str, float] = {
        "subject": 2.0 * ("person" in verb.subjects and not owned),
        "object": 4.0 * (can_be_object and verb.object_case != "goal"),
        "where": 2.0 * (verb.object_case == "goal" or "at" in verb.lists),
        "when": 2.0 * (lively and made.tense in ("past", "future") and not made.modal),
        "why": 2.0 * (lively and "weather" not in verb.subjects and made.modal != "like" and verb.subject_case != "को"),
    }
    return {name: weight for name, weight in options.items() if weight}


def asked_for(c: Composer, made: Clause) -> Phrase:
    """What the question is about: what, who, which book, how many books."""
    head = made.object.head if made.object else None
    if isinstance(head, Pronoun) or (head and head.kinds & {"person", "agent"}):
        return pronoun("who")
    assert isinstance(head, Noun)
    how = c.draw({"what": 5, "which": 2, "how many": 2})
    if head.kinds & {"mass", "bare", "plural", "illness"} or "generic" in made.verb.marks or how == "what":
        return pronoun("what")
    if how == "which" and made.verb.english[0] != "have":
        return Phrase(head, determiner=determiner("which"))
    return Phrase(head, True, determiner=determiner("how many"))
