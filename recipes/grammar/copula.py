"""Samples clauses with "be": what something is, what it is like, where it is, how old it is, what it costs."""

from dataclasses import replace
from functools import cache

from grammar.hindi_noun_phrases import possible_pronouns
from grammar.lexicon import Adjective, Gender, Noun, adjectives, noun, of_kind, verbs, word
from grammar.meaning import AdjectivePhrase, Adjunct, Clause, MeasurePhrase, NounPhrase, Pronoun, Tense
from grammar.phrase_sampler import (
    PERSONAL,
    PhraseSampler,
    adverbs_of,
    nouns_of,
    other_pronouns,
    pronoun,
    repeat_common,
    same_party,
)

BE = next(verb for verb in verbs() if verb.english == ("be",) and not verb.particle)
COST = next(verb for verb in verbs() if verb.english[0] == "cost")
BE_TENSES: dict[Tense, float] = {"present": 6, "past": 3, "future": 1}
ADVERB_GROUPS: dict[Tense, str] = {"present": "state", "past": "was", "future": "will"}
MASS = frozenset({"mass"})
# Kinds of nouns, kinds of places, weight. The place decides which sense "mole" has.
SCENES: tuple[tuple[tuple[str, ...], tuple[str, ...], float], ...] = (
    (("adult", "young", "student"), ("workplace", "study", "eating", "outdoors", "goal"), 2),
    (("flower", "tree"), ("planted", "wilds"), 2),
    (("wild",), ("forest", "zoo"), 1.5),
    (("skin-mark",), ("mole-place",), 1.2),
    (("agent",), ("workplace",), 1.2),
    (("digger",), ("garden", "field"), 1.2),
    (("boat", "tree", "crocodile", "duck", "stone"), ("river-bank",), 1.2),
    (("star", "flyer"), ("sky",), 0.5),
)


def _vary_mood(c: PhraseSampler, clause: Clause, question_rate: float = 0.15, negation_rate: float = 0.18) -> Clause:
    """Turns a statement into a question or a negation with the given probabilities."""
    if c.chance(question_rate):
        return replace(clause, mood="question")
    return replace(clause, negative=True) if c.chance(negation_rate) else clause


def _sample_past(c: PhraseSampler, probability: float) -> Tense:
    return "past" if c.chance(probability) else "present"


def _question_about(subject: NounPhrase, complement: NounPhrase | MeasurePhrase) -> Clause:
    return Clause(BE, subject, complement=complement, mood="question", questioned="complement")


@cache
def predicative_adjectives() -> tuple[Adjective, ...]:
    """Returns the adjectives that can follow "is"."""
    return repeat_common((a for a in adjectives() if not a.features & {"before", "comparative"}), lambda a: a.features)


def description(c: PhraseSampler) -> Clause:
    """Samples clauses such as "the house is very big"."""
    adjective = c.pick(predicative_adjectives())
    subject, tense = sample_bearer(c, adjective), c.pick_weighted(BE_TENSES)
    if tense == "future" and (possible_pronouns(subject)[0] in ("I", "you") or "coming" not in adjective.features):
        tense = "present"
    very = "absolute" not in adjective.features and c.chance(0.2)
    clause = Clause(BE, subject, complement=AdjectivePhrase(adjective, very), tense=tense)
    if "passing" in adjective.features and not very and c.chance(0.25):
        clause = replace(clause, adjuncts=(Adjunct("when", adverb=c.pick(adverbs_of(ADVERB_GROUPS[tense]))),))
    return _vary_mood(c, clause)


def sample_bearer(c: PhraseSampler, adjective: Adjective) -> NounPhrase:
    """Samples somebody or something that the adjective can describe."""
    if "person" in adjective.kinds and (len(adjective.kinds) == 1 or c.chance(0.7)):
        return c.person(pairs=True)
    return c.maybe_compound(c.definite(c.pick(nouns_of(*sorted(adjective.kinds - {"person"}))), adjective=0.04))


@cache
def comparable_kinds(adjective: Adjective) -> tuple[str, ...]:
    """Returns the kinds within which nouns are compared: fruit with fruit, a bus with a car."""
    mixed = ("food", "thing", "washed-body", "task")
    return tuple(kind for kind in sorted(adjective.kinds) if kind not in mixed and len(of_kind(kind)) > 1)


@cache
def comparable_adjectives() -> tuple[Adjective, ...]:
    fitting = [a for a in adjectives() if not a.features & {"absolute", "positive", "before", "steady"}]
    return tuple(a for a in fitting if comparable_kinds(a))


def comparison(c: PhraseSampler) -> Clause:
    """Samples clauses such as "Ravi is taller than Meera", "this car is faster than that bus"."""
    adjective = c.pick(comparable_adjectives())
    kind = "person" if "person" in adjective.kinds else c.pick(comparable_kinds(adjective))
    if kind == "person":
        one = c.person()
        two = c.person(other_pronouns(one))
    else:
        first = c.pick(of_kind(kind))
        bare = first.kinds & {"proper", "bare"}
        similar = [n for n in of_kind(kind) if n is not first and n.kinds & {"proper", "bare"} == bare]
        one, two = _parallel_phrases(c, first, c.pick(similar or [first]))
    return _vary_mood(c, Clause(BE, one, complement=AdjectivePhrase(adjective, than=two), tense=_sample_past(c, 0.15)))


def _parallel_phrases(c: PhraseSampler, one: Noun, two: Noun) -> tuple[NounPhrase, NounPhrase]:
    """Samples phrases for two nouns with the same kind of determiner."""
    if "fruits" in one.kinds and c.chance(0.4):
        return NounPhrase(one), NounPhrase(two)  # "Apple is better than orange", as in the lecture notes
    if c.chance(0.25):
        return c.generic(one), c.generic(two)
    first, second = (NounPhrase(n, bool(n.kinds & {"plural", "uncounted"}), "the") for n in (one, two))
    if one.kinds & {"proper", "bare"}:
        return NounPhrase(one), NounPhrase(two)
    if c.chance(0.4) and not first.plural and not second.plural:
        return c.demonstrative(one), c.demonstrative(two)
    return first, second


def identification(c: PhraseSampler) -> Clause:
    """Samples clauses such as "Meera is a doctor", "they are my friends"."""
    subject = c.person(pairs=True)
    plural = possible_pronouns(subject)[0] in ("we", "they")
    related = [n for n in (*of_kind("sibling"), *of_kind("friend")) if _can_be(subject, n)]
    if related and c.chance(0.3):
        entry = c.pick(related)
        complement = NounPhrase(entry, plural, possessor=c.owner(other_pronouns(subject)))
    else:
        entry = c.pick([n for n in nouns_of("occupation", "student", "player") if _can_be(subject, n)])
        complement = NounPhrase(entry, plural, "" if plural else "a", adjective=c.adjective(entry, 0.2))
    if entry.kinds & {"sibling", "nurse", "fisherman"} and not subject.conjunct:
        subject = replace(subject, gender=entry.genders[0])  # "I am her sister" implies that I am a woman
    return _vary_mood(c, Clause(BE, subject, complement=complement, tense=_sample_past(c, 0.25)))


def _can_be(subject: NounPhrase, entry: Noun) -> bool:
    """Excludes a brother who is a daughter; but Meera can be a farmer, in both languages."""
    if subject.kinds & entry.kinds & {"occupation", "kin", "student"}:
        return False
    if not entry.kinds & {"sibling", "nurse", "fisherman"}:
        return True
    return all(entry.genders[0] in _genders(part) for part in (subject, subject.conjunct) if part)


def _genders(phrase: NounPhrase) -> tuple[Gender, ...]:
    if isinstance(phrase.head, Noun):
        return phrase.head.genders
    return (phrase.head.gender,) if phrase.head.gender else ("m", "f")


def demonstrative_clause(c: PhraseSampler) -> Clause:
    """Samples clauses such as "this is Ravi's house", "those are my books", "what is this?", "whose bag is that?"."""
    plural = c.chance(0.3)
    subject = pronoun(c.pick(("these", "those") if plural else ("this", "that")))
    if c.chance(0.04):
        return _question_about(subject, pronoun("what"))
    visible = ("thing", "furniture", "vehicle", "fruits", "pet", "building")
    entry = c.pick(nouns_of(*visible, without=frozenset({"mass", "public"})))
    if entry.kinds & {"thing", "vehicle", "pet"} and c.chance(0.15):
        return _question_about(subject, NounPhrase(entry, plural, possessor=pronoun("who")))
    if entry.kinds & {"thing", "vehicle", "pet", "house", "school", "office"} and c.chance(0.5):
        complement = NounPhrase(entry, plural, possessor=c.owner(), adjective=c.adjective(entry, 0.15))
    else:
        complement = c.maybe_compound(
            NounPhrase(entry, plural, "" if plural else "a", adjective=c.adjective(entry, 0.25))
        )
    return _vary_mood(c, Clause(BE, subject, complement=complement, tense=_sample_past(c, 0.1)))


def location(c: PhraseSampler) -> Clause:
    """Samples clauses such as "my book is on the table", "Ravi is in the garden", "where is the key?"."""
    if c.chance(0.45):
        subject, place = c.person(pairs=True), c.place("workplace", "study", "goal", "room", "outdoors", "home")
    else:
        subject, place = _thing_in_place(c)
    clause = Clause(BE, subject, complement=place, tense=_sample_past(c, 0.3))
    if c.chance(0.2):
        return replace(clause, mood="question", questioned="where", complement=None)
    return _vary_mood(c, clause)


def _thing_in_place(c: PhraseSampler) -> tuple[NounPhrase, Adjunct]:
    kind = c.pick_weighted({"thing": 6, "on the bank": 1, "farm-animal": 1, "in the garden": 1})
    if kind == "on the bank":
        return c.definite(c.pick(nouns_of("boat", "crocodile", "duck"))), c.place("river-bank")
    if kind == "farm-animal":
        return c.definite(c.pick(nouns_of("farm-animal"))), c.place("planted", "street")
    if kind == "in the garden":
        return c.definite(c.pick(nouns_of("digger", "pet"))), c.place("garden", "field")
    entry = c.pick(nouns_of("thing", without=frozenset({"mass", "stone"})))
    return c.definite(entry), sample_location_of(c, entry)


def sample_location_of(c: PhraseSampler, entry: Noun) -> Adjunct:
    """Samples where a thing is: on the table, in the bag, under the chair."""
    if c.chance(0.4):
        landmark = c.pick(
            (*nouns_of("furniture", without=frozenset({"container", "mat"})), noun("door"), noun("window"))
        )
        relations = ("near", "behind", "in front of") + (("under",) if "furniture" in landmark.kinds else ())
        return Adjunct("place", word("prepositions", c.pick(relations)), NounPhrase(landmark, article="the"))
    landmark = c.pick([n for n in nouns_of("surface", "container", without=frozenset({"roof"})) if n is not entry])
    return Adjunct("place", word("prepositions", "on" if "on" in landmark.kinds else "in"), c.place_phrase(landmark))


def existential_clause(c: PhraseSampler) -> Clause:
    """Samples clauses such as "there are two books on the table", "there is a mole on her cheek"."""
    kind = c.pick_weighted({"thing": 5, "scene": sum(weight for _, _, weight in SCENES), "amount": 0.8})
    if kind == "thing":
        entry = c.pick(nouns_of("thing", "fruits", "drink", without=frozenset({"stone"})))
        subject, place = c.indefinite(entry), sample_location_of(c, entry)
    elif kind == "amount":
        subject = c.amount(noun("mole", "amount"))
        place = Adjunct("place", word("prepositions", "in"), c.demonstrative(noun("bottle")))
    else:
        kinds, places = c.pick_weighted({(kinds, places): weight for kinds, places, weight in SCENES})
        entry, place = c.pick(nouns_of(*kinds)), c.place(*places, adverb_rate=0)
        subject = NounPhrase(entry, True) if "sky" in places else c.indefinite(entry)
    clause = Clause(BE, subject, complement=place, existential=True, tense=_sample_past(c, 0.25))
    return _vary_mood(c, clause, question_rate=0.12, negation_rate=0)


def age(c: PhraseSampler) -> Clause:
    """Samples clauses such as "Ravi is ten years old", "how old is your sister?"."""
    subject = c.pick_weighted({pronoun(c.pick(PERSONAL[:4])): 4, c.name(): 4, c.kin(): 3})
    if subject.plural:
        subject = c.name()
    if c.chance(0.2) and not same_party(subject, "I"):
        return _question_about(subject, MeasurePhrase(None, noun("year")))
    years = c.number(30, 60) if "elder" in subject.kinds else c.number(4, 40)
    return _vary_mood(
        c, Clause(BE, subject, complement=MeasurePhrase(years, noun("year"))), question_rate=0.08, negation_rate=0.06
    )


def price(c: PhraseSampler) -> Clause:
    """Samples clauses such as "this bag costs fifty rupees", "how much does the sari cost?"."""
    expensive = c.chance(0.4)
    kinds = (
        ("clothing", "bag", "umbrella", "clock", "toy")
        if expensive
        else ("fruits", "school-thing", "dish", "newspaper")
    )
    entry = c.pick(nouns_of(*kinds, without=MASS))
    subject = c.demonstrative(entry) if c.chance(0.6) else NounPhrase(entry, article="the")
    if c.chance(0.25):
        return replace(_question_about(subject, MeasurePhrase(None, noun("rupee"))), verb=COST)
    rupees = c.number(100, 1000) if expensive else c.number(5, 60)
    return Clause(COST, subject, complement=MeasurePhrase(rupees, noun("rupee")))


def clock_time(c: PhraseSampler) -> Clause:
    """Samples clauses such as "It is five o'clock"."""
    complement = NounPhrase(noun("o'clock"), True, count=c.number(2, 12))
    return Clause(BE, pronoun("it"), complement=complement, tense=_sample_past(c, 0.2))


def naming(c: PhraseSampler) -> Clause:
    """Samples clauses such as "my brother's name is Ravi", "what is her name?", "who is that man?"."""
    if c.chance(0.3):
        entry = c.pick(nouns_of("person", without=frozenset({"proper", "kin", "police", "folk"})))
        return _question_about(c.definite(entry), pronoun("who"))
    owner = pronoun(c.pick(PERSONAL[:4])) if c.chance(0.4) else c.kin()
    if owner.plural:
        owner = pronoun("she")
    subject = NounPhrase(noun("name"), possessor=owner)
    if c.chance(0.3) and not same_party(owner, "I"):
        return _question_about(subject, pronoun("what"))
    name = c.pick([n for n in of_kind("first-name") if n.genders[0] in _genders(owner)])
    return Clause(BE, subject, complement=NounPhrase(name))


def how_question(c: PhraseSampler) -> Clause:
    """Samples clauses such as "how is your mother?", "how was the film?"."""
    tense: Tense = "present"
    if c.chance(0.6):
        subject = c.person(("you", "he", "she", "they"))
        if subject.possessor and isinstance(subject.possessor.head, Pronoun) and subject.possessor.head.person == 1:
            subject = replace(subject, possessor=pronoun("you"))
    else:
        subject = c.definite(c.pick(nouns_of("drink", "show", "text", "device")), adjective=0.04)
        tense = _sample_past(c, 0.5)
    return Clause(BE, subject, mood="question", questioned="how", tense=tense)
