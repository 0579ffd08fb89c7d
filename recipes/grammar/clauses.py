"""Samples clauses with a full verb: every tense and mood that suits the verb, its objects and its questions."""

from dataclasses import replace
from functools import cache

from grammar.hindi_noun_phrases import possible_pronouns
from grammar.lexicon import Adjective, Noun, Verb, adjectives, word
from grammar.meaning import AdjectivePhrase, Adjunct, Clause, Modal, NounPhrase, Pronoun, Tense
from grammar.phrase_sampler import (
    PhraseSampler,
    determiner,
    main_verbs,
    nouns_of,
    other_pronouns,
    pronoun,
)

TENSES: dict[Tense, float] = {
    "present": 22,
    "past": 28,
    "future": 16,
    "progressive": 16,
    "past progressive": 5,
    "perfect": 5,
    "used": 3,
}
STATIVE_TENSES: dict[Tense, float] = {"present": 7, "past": 3}
MODALS: dict[Modal, float] = {"can": 30, "want": 25, "like": 14, "have": 14, "should": 14, "start": 8}
HABITUAL_OBJECTS = {"generic": 6.0, "indefinite": 1.0, "definite": 1.0}
EVENT_OBJECTS = {"generic": 1.0, "indefinite": 5.0, "definite": 5.0}


def verbal_clause(c: PhraseSampler) -> Clause:
    """Samples a statement, question or command with a full verb."""
    verb = c.pick(main_verbs())
    clause = statement(c, verb)
    kind = c.pick_weighted({"statement": 58, "yes/no": 13, "wh": 14, "command": 15})
    if kind == "command" and is_voluntary(verb) and _object_is_no_pronoun(clause):
        return command(c, clause)
    if (
        kind in ("statement", "command")
        or clause.tense == "used"
        or clause.modal == "start"
        or _speaker_would_know(clause)
    ):
        return clause
    if kind == "wh" and clause.modal != "have":
        return wh_question(c, clause)
    return replace(clause, mood="question", negative=False, adjuncts=_without(clause, "often"))


def _speaker_would_know(clause: Clause) -> bool:
    """Excludes "what did I eat?", but not "what can I eat?"."""
    return possible_pronouns(clause.subject)[0] in ("I", "we") and clause.modal not in ("can", "should")


def _object_is_no_pronoun(clause: Clause) -> bool:
    return clause.object is None or isinstance(clause.object.head, Noun)


def _without(clause: Clause, kind: str) -> tuple[Adjunct, ...]:
    return tuple(part for part in clause.adjuncts if part.kind != kind)


def statement(
    c: PhraseSampler,
    verb: Verb,
    tense: Tense | None = None,
    subject: NounPhrase | None = None,
    adjunct_rate: float = 1.0,
) -> Clause:
    """Samples a statement with that verb. Tense (without a modal) and subject are sampled unless given."""
    modal = None
    if tense is None:
        modal, tense = sample_modal_and_tense(c, verb)
    subject = subject or sample_subject(c, verb, generic=tense == "present")
    if modal and isinstance(subject.head, Noun) and "person" not in subject.kinds:
        modal, tense = "can", "present"  # animals can, but do not want or have to
    obj = sample_object(c, verb, subject, tense, modal)
    adjuncts = c.adjuncts(verb, subject, tense, modal, adjunct_rate)
    clause = Clause(verb, subject, obj, tense=tense, modal=modal, adjuncts=adjuncts)
    if "tastes" in verb.features:
        clause = replace(clause, complement=AdjectivePhrase(c.pick(taste_adjectives(subject.kinds))))
    if "asks" in verb.features or ("to" in verb.features and c.chance(0.6)):
        first = "asks" in verb.features or (
            _object_is_no_pronoun(clause) and verb.english[0] != "write" and c.chance(0.5)
        )
        clause = replace(clause, recipient=c.person(other_pronouns(subject)), recipient_first=first)
    return _add_negation_or_frequency(c, clause)


@cache
def taste_adjectives(kinds: frozenset[str]) -> tuple[Adjective, ...]:
    fitting = [a for a in adjectives() if a.english in ("good", "bad", "sweet", "sour", "awesome")]
    return tuple(a for a in fitting if a.kinds & kinds and "comparative" not in a.features)


def sample_modal_and_tense(c: PhraseSampler, verb: Verb) -> tuple[Modal | None, Tense]:
    """Samples a modal with its tense, or a tense alone."""
    if not is_voluntary(verb) or "harmful" in verb.features or not c.chance(0.28):
        return None, c.pick_weighted(tenses_of(verb))
    modal = c.pick_weighted(MODALS)
    if modal in ("start", "like") and verb.features & {"result", "no-progressive"}:
        return "can", "present"
    past = modal == "start" or (modal in ("want", "have") and c.chance(0.25))
    return modal, "past" if past else "present"


def tenses_of(verb: Verb) -> dict[Tense, float]:
    if "only" in verb.attributes:
        return {tense: weight for tense, weight in TENSES.items() if tense in verb.attributes["only"]}
    if "stative" in verb.features or verb.english[0] == "be":
        return STATIVE_TENSES
    excluded: set[str] = set()
    if "weather" in verb.subjects:
        excluded |= {"present", "perfect", "used"}
    if "result" in verb.features:
        excluded |= {"perfect", "used"}
    if verb.features & {"the", "timeless"} or verb.attributes.keys() & {"from", "into"}:
        excluded |= {"used"}
    if "no-progressive" in verb.features:
        excluded |= {"progressive", "past progressive"}
    return {tense: weight for tense, weight in TENSES.items() if tense not in excluded}


def is_voluntary(verb: Verb) -> bool:
    """Returns whether people can be told to do it, want to do it, or be able to."""
    return (
        "person" in verb.subjects
        and not verb.features & {"no-command", "stative", "affirmative"}
        and verb.english[0] != "be"
    )


def _add_negation_or_frequency(c: PhraseSampler, clause: Clause) -> Clause:
    verb = clause.verb
    if "affirmative" in verb.features or clause.tense == "used" or clause.modal in ("have", "start"):
        return clause
    if c.chance(0.17):
        return replace(
            clause, negative=True, object=without_quantifier(clause.object), adjuncts=_without(clause, "manner")
        )
    habit = (
        clause.tense == "present" and not clause.modal and verb.english[0] != "be" and "stative" not in verb.features
    )
    if not habit or not c.chance(0.2):
        return clause
    adverb = c.pick_weighted({"always": 2, "often": 2, "sometimes": 2, "never": 3})
    adjuncts = tuple(a for a in _without(clause, "manner") if not (a.adverb and a.adverb.english[0] == "every"))
    return replace(clause, adjuncts=(*adjuncts, Adjunct("often", adverb=word("adverbs", adverb))))


def without_quantifier(phrase: NounPhrase | None) -> NounPhrase | None:
    """Removes "some", "many" or "three", whose scope under a negation is ambiguous."""
    if phrase is None:
        return None
    if phrase.count:
        return replace(phrase, count=None, article="" if phrase.possessor_style == "'s" and phrase.possessor else "the")
    if phrase.determiner and phrase.determiner.english[0] in ("some", "many", "a", "two"):
        return replace(phrase, determiner=None)
    return phrase


def sample_subject(c: PhraseSampler, verb: Verb, generic: bool) -> NounPhrase:
    if "weather" in verb.subjects:
        return pronoun("it")
    if "owned" in verb.features:  # "his hands" must belong to the subject
        return pronoun(c.pick(("I", "you", "he", "she", "we", "they"))) if c.chance(0.5) else c.name()
    if "person" in verb.subjects and (len(verb.subjects) == 1 or c.chance(0.75)):
        return c.person(pairs=True)
    entry = c.pick(nouns_of(*sorted(verb.subjects - {"person"} or verb.subjects)))
    if "generic-subject" in verb.features or (generic and "animal" in entry.kinds and c.chance(0.4)):
        return c.generic(entry)
    return c.definite(entry)


def sample_object(
    c: PhraseSampler, verb: Verb, subject: NounPhrase, tense: Tense, modal: Modal | None
) -> NounPhrase | None:
    """Samples the object, with the determiner that the features of the verb and the tense call for."""
    kinds, features = verb.objects, verb.features
    if not kinds:
        return None
    if "person" in kinds and (len(kinds) == 1 or c.chance(0.7)):
        return c.person(other_pronouns(subject))
    entry = c.pick(nouns_of(*sorted(kinds - {"person"} or kinds)))
    if "piece" in entry.kinds:
        return c.piece(entry)
    if verb.object_case == "goal":
        return c.place_phrase(entry)
    if "counted" in features:
        return c.amount(entry)
    if "owned" in features:
        return NounPhrase(entry, entry.english in ("hand", "foot"), possessor=pronoun(possible_pronouns(subject)[0]))
    if "plural-object" in features:
        return NounPhrase(entry, True, adjective=c.adjective(entry, 0.6))
    if "plural-the" in features:
        return NounPhrase(entry, "mass" not in entry.kinds, "the", adjective=c.adjective(entry, 0.1))
    if "the" in features:
        is_instrument = "instrument" in entry.kinds
        return NounPhrase(entry, article="the") if is_instrument else c.maybe_compound(c.definite(entry, counted=False))
    if "generic" in features or modal == "like":
        return c.generic(entry)
    if "single" in features:
        return c.single(entry)
    definiteness = (
        "indefinite"
        if "indefinite" in features
        else c.pick_weighted(HABITUAL_OBJECTS if tense in ("present", "used") and not modal else EVENT_OBJECTS)
    )
    return c.maybe_compound(
        {"generic": c.generic, "indefinite": c.indefinite, "definite": c.definite}[definiteness](entry)
    )


def command(c: PhraseSampler, clause: Clause) -> Clause:
    """Samples a command: plain, polite, negative, or "let us"."""
    verb, you = clause.verb, pronoun("you")
    adjuncts = tuple(a for a in clause.adjuncts if a.kind in ("place", "into", "tool", "manner", "source", "for"))
    recipient = clause.recipient
    if recipient and "you" in possible_pronouns(recipient):
        recipient = pronoun("I")
    obj = sample_object(c, verb, you, "past", None)
    imperative = Clause(verb, you, obj, recipient, clause.recipient_first, adjuncts=adjuncts, mood="command")
    kind = c.pick_weighted({"command": 5, "please": 3, "let us": 1})
    if kind == "let us" and "company" in verb.features and verb.object_case != "goal":
        return replace(imperative, mood="let us", subject=pronoun("we"))
    if "harmful" in verb.features or c.chance(0.3):
        imperative = replace(imperative, negative=True, object=without_quantifier(obj))
    return replace(imperative, mood="please") if kind == "please" else imperative


def wh_question(c: PhraseSampler, clause: Clause) -> Clause:
    """Turns a statement into a wh-question."""
    plain = replace(clause, mood="question", negative=False, adjuncts=_without(clause, "often"))
    options = wh_targets(clause)
    target = c.pick_weighted(options) if options else ""
    if target == "subject":
        return replace(plain, subject=pronoun("who"), questioned=target)
    if target == "object":
        return replace(plain, object=questioned_object(c, clause), questioned=target, recipient_first=False)
    if target == "where":
        adjuncts = tuple(a for a in plain.adjuncts if a.kind in ("when", "company"))
        obj = None if clause.verb.object_case == "goal" else clause.object
        return replace(plain, questioned=target, adjuncts=adjuncts, object=obj)
    if target == "when":
        return replace(plain, questioned=target, adjuncts=_without(plain, "when"))
    return replace(plain, questioned=target, negative=clause.negative and target == "why")


def wh_targets(clause: Clause) -> dict[str, float]:
    """Returns what a wh-question about a statement can ask for, with weights."""
    verb = clause.verb
    owned = any(phrase is not None and phrase.possessor is not None for phrase in (clause.object, clause.recipient))
    is_event = "stative" not in verb.features and bool(verb.subjects & {"person", "animal", "public", "weather"})
    object_can_be_asked = clause.object is not None and not verb.features & {"owned", "counted", "no-object-question"}
    options: dict[str, float] = {
        "subject": 2.0 * ("person" in verb.subjects and not owned),
        "object": 4.0 * (object_can_be_asked and verb.object_case != "goal"),
        "where": 2.0 * (verb.object_case == "goal" or "at" in verb.attributes),
        "when": 2.0 * (is_event and clause.tense in ("past", "future") and not clause.modal),
        "why": 2.0
        * (is_event and "weather" not in verb.subjects and clause.modal != "like" and verb.subject_case != "को"),
    }
    return {name: weight for name, weight in options.items() if weight}


def questioned_object(c: PhraseSampler, clause: Clause) -> NounPhrase:
    """Samples the phrase that asks for the object: what, who, which book, how many books."""
    head = clause.object.head if clause.object else None
    if isinstance(head, Pronoun) or (head and head.kinds & {"person", "agent"}):
        return pronoun("who")
    assert isinstance(head, Noun)
    question = c.pick_weighted({"what": 5, "which": 2, "how many": 2})
    if head.kinds & {"mass", "bare", "plural", "illness"} or "generic" in clause.verb.features or question == "what":
        return pronoun("what")
    if question == "which" and clause.verb.english[0] != "have":
        return NounPhrase(head, determiner=determiner("which"))
    return NounPhrase(head, True, determiner=determiner("how many"))
