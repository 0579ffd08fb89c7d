"""The uses of "be", drawn at random: what something is, what it is like, where it is, how old it is, what it costs."""

from dataclasses import replace
from functools import cache

from seq2see.course.grammar.hindi_noun_phrases import stands_for
from seq2see.course.grammar.lexicon import Adjective, Gender, Noun, adjectives, noun, of_kind, verbs, word
from seq2see.course.grammar.meaning import Adjunct, Clause, Measure, Phrase, Pronoun, Quality, Tense
from seq2see.course.grammar.noun_phrases import (
    PERSONAL,
    Composer,
    adverbs_of,
    nouns_of,
    often,
    others,
    pronoun,
    same_party,
)

BE = next(verb for verb in verbs() if verb.english == ("be",) and not verb.particle)
COST = next(verb for verb in verbs() if verb.english[0] == "cost")
BE_TENSES: dict[Tense, float] = {"present": 6, "past": 3, "future": 1}
DAYS: dict[Tense, str] = {"present": "state", "past": "was", "future": "will"}  # groups of adverbs
MASS = frozenset({"mass"})
# What there is, where: kinds of nouns, kinds of places, how often. A mole is another animal in each of its places.
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


def _said(c: Composer, made: Clause, asks: float = 0.15, denies: float = 0.18) -> Clause:
    """Stated, denied or asked."""
    if c.chance(asks):
        return replace(made, mood="question")
    return replace(made, negative=True) if c.chance(denies) else made


def _past(c: Composer, probability: float) -> Tense:
    return "past" if c.chance(probability) else "present"


def _asked(subject: Phrase, what: Phrase | Measure) -> Clause:
    return Clause(BE, subject, complement=what, mood="question", asked="complement")


@cache
def sayable() -> tuple[Adjective, ...]:
    """Adjectives that can follow "is"."""
    return often((a for a in adjectives() if not a.marks & {"before", "comparative"}), lambda a: a.marks)


def described(c: Composer) -> Clause:
    """ "The house is very big." """
    adjective = c.pick(sayable())
    subject, tense = bearer(c, adjective), c.draw(BE_TENSES)
    if tense == "future" and (stands_for(subject)[0] in ("I", "you") or "coming" not in adjective.marks):
        tense = "present"
    very = "absolute" not in adjective.marks and c.chance(0.2)
    made = Clause(BE, subject, complement=Quality(adjective, very), tense=tense)
    if "passing" in adjective.marks and not very and c.chance(0.25):
        made = replace(made, adjuncts=(Adjunct("when", adverb=c.pick(adverbs_of(DAYS[tense]))),))
    return _said(c, made)


def bearer(c: Composer, adjective: Adjective) -> Phrase:
    """Somebody or something the adjective can be said of."""
    if "person" in adjective.kinds and (len(adjective.kinds) == 1 or c.chance(0.7)):
        return c.person(pairs=True)
    return c.made_by(c.known(c.pick(nouns_of(*sorted(adjective.kinds - {"person"}))), adjective=0.04))


@cache
def kinds_to_compare(adjective: Adjective) -> tuple[str, ...]:
    """Like is compared with like: fruit with fruit, a bus with a car."""
    mixed = ("food", "thing", "washed-body", "task")
    return tuple(kind for kind in sorted(adjective.kinds) if kind not in mixed and len(of_kind(kind)) > 1)


@cache
def comparable() -> tuple[Adjective, ...]:
    fitting = [a for a in adjectives() if not a.marks & {"absolute", "positive", "before", "steady"}]
    return tuple(a for a in fitting if kinds_to_compare(a))


def compared(c: Composer) -> Clause:
    """ "Ravi is taller than Meera", "this car is faster than that bus"."""
    adjective = c.pick(comparable())
    kind = "person" if "person" in adjective.kinds else c.pick(kinds_to_compare(adjective))
    if kind == "person":
        one = c.person()
        two = c.person(others(one))
    else:
        first = c.pick(of_kind(kind))
        bare = first.kinds & {"proper", "bare"}
        alike = [n for n in of_kind(kind) if n is not first and n.kinds & {"proper", "bare"} == bare]
        one, two = _alike(c, first, c.pick(alike or [first]))
    return _said(c, Clause(BE, one, complement=Quality(adjective, than=two), tense=_past(c, 0.15)))


def _alike(c: Composer, one: Noun, two: Noun) -> tuple[Phrase, Phrase]:
    """Two nouns spoken of in the same way."""
    if "fruits" in one.kinds and c.chance(0.4):
        return Phrase(one), Phrase(two)  # "Apple is better than orange", as the notes have it
    if c.chance(0.25):
        return c.generic(one), c.generic(two)
    first, second = (Phrase(n, bool(n.kinds & {"plural", "uncounted"}), "the") for n in (one, two))
    if one.kinds & {"proper", "bare"}:
        return Phrase(one), Phrase(two)
    if c.chance(0.4) and not first.plural and not second.plural:
        return c.pointed_at(one), c.pointed_at(two)
    return first, second


def identified(c: Composer) -> Clause:
    """ "Meera is a doctor", "they are my friends"."""
    subject = c.person(pairs=True)
    many = stands_for(subject)[0] in ("we", "they")
    related = [n for n in (*of_kind("sibling"), *of_kind("friend")) if _can_be(subject, n)]
    if related and c.chance(0.3):
        entry = c.pick(related)
        what = Phrase(entry, many, possessor=c.owner(others(subject)))
    else:
        entry = c.pick([n for n in nouns_of("occupation", "student", "player") if _can_be(subject, n)])
        what = Phrase(entry, many, "" if many else "a", adjective=c.adjective(entry, 0.2))
    if entry.kinds & {"sibling", "nurse", "fisherman"} and not subject.also:
        subject = replace(subject, gender=entry.genders[0])  # "I am her sister" says that I am a woman
    return _said(c, Clause(BE, subject, complement=what, tense=_past(c, 0.25)))


def _can_be(subject: Phrase, entry: Noun) -> bool:
    """No brother is a daughter; but Meera may be a farmer, in both languages."""
    if subject.kinds & entry.kinds & {"occupation", "kin", "student"}:
        return False
    if not entry.kinds & {"sibling", "nurse", "fisherman"}:
        return True
    return all(entry.genders[0] in _genders(part) for part in (subject, subject.also) if part)


def _genders(phrase: Phrase) -> tuple[Gender, ...]:
    if isinstance(phrase.head, Noun):
        return phrase.head.genders
    return (phrase.head.gender,) if phrase.head.gender else ("m", "f")


def pointed(c: Composer) -> Clause:
    """ "This is Ravi's house", "those are my books", "what is this?", "whose bag is that?" """
    many = c.chance(0.3)
    subject = pronoun(c.pick(("these", "those") if many else ("this", "that")))
    if c.chance(0.04):
        return _asked(subject, pronoun("what"))
    around = ("thing", "furniture", "vehicle", "fruits", "pet", "building")
    entry = c.pick(nouns_of(*around, without=frozenset({"mass", "public"})))
    if entry.kinds & {"thing", "vehicle", "pet"} and c.chance(0.15):
        return _asked(subject, Phrase(entry, many, possessor=pronoun("who")))
    if entry.kinds & {"thing", "vehicle", "pet", "house", "school", "office"} and c.chance(0.5):
        what = Phrase(entry, many, possessor=c.owner(), adjective=c.adjective(entry, 0.15))
    else:
        what = c.made_by(Phrase(entry, many, "" if many else "a", adjective=c.adjective(entry, 0.25)))
    return _said(c, Clause(BE, subject, complement=what, tense=_past(c, 0.1)))


def located(c: Composer) -> Clause:
    """ "My book is on the table", "Ravi is in the garden", "where is the key?" """
    if c.chance(0.45):
        subject, place = c.person(pairs=True), c.place("workplace", "study", "goal", "room", "outdoors", "home")
    else:
        subject, place = _thing_in_place(c)
    made = Clause(BE, subject, complement=place, tense=_past(c, 0.3))
    if c.chance(0.2):
        return replace(made, mood="question", asked="where", complement=None)
    return _said(c, made)


def _thing_in_place(c: Composer) -> tuple[Phrase, Adjunct]:
    how = c.draw({"thing": 6, "on the bank": 1, "farm-animal": 1, "in the garden": 1})
    if how == "on the bank":
        return c.known(c.pick(nouns_of("boat", "crocodile", "duck"))), c.place("river-bank")
    if how == "farm-animal":
        return c.known(c.pick(nouns_of("farm-animal"))), c.place("planted", "street")
    if how == "in the garden":
        return c.known(c.pick(nouns_of("digger", "pet"))), c.place("garden", "field")
    entry = c.pick(nouns_of("thing", without=frozenset({"mass", "stone"})))
    return c.known(entry), lying(c, entry)


def lying(c: Composer, entry: Noun) -> Adjunct:
    """On the table, in the bag, under the chair."""
    if c.chance(0.4):
        by = c.pick((*nouns_of("furniture", without=frozenset({"container", "mat"})), noun("door"), noun("window")))
        relations = ("near", "behind", "in front of") + (("under",) if "furniture" in by.kinds else ())
        return Adjunct("place", word("prepositions", c.pick(relations)), Phrase(by, article="the"))
    by = c.pick([n for n in nouns_of("surface", "container", without=frozenset({"roof"})) if n is not entry])
    return Adjunct("place", word("prepositions", "on" if "on" in by.kinds else "in"), c.place_phrase(by))


def existing(c: Composer) -> Clause:
    """ "There are two books on the table", "there is a mole on her cheek"."""
    how = c.draw({"lying": 5, "scene": sum(weight for _, _, weight in SCENES), "amount": 0.8})
    if how == "lying":
        entry = c.pick(nouns_of("thing", "fruits", "drink", without=frozenset({"stone"})))
        subject, place = c.indefinite(entry), lying(c, entry)
    elif how == "amount":
        subject = c.amount(noun("mole", "amount"))
        place = Adjunct("place", word("prepositions", "in"), c.pointed_at(noun("bottle")))
    else:
        kinds, places = c.draw({(kinds, places): weight for kinds, places, weight in SCENES})
        entry, place = c.pick(nouns_of(*kinds)), c.place(*places, near=0)
        subject = Phrase(entry, True) if "sky" in places else c.indefinite(entry)
    made = Clause(BE, subject, complement=place, there=True, tense=_past(c, 0.25))
    return _said(c, made, asks=0.12, denies=0)


def aged(c: Composer) -> Clause:
    """ "Ravi is ten years old", "how old is your sister?" """
    subject = c.draw({pronoun(c.pick(PERSONAL[:4])): 4, c.name(): 4, c.kin(): 3})
    if subject.plural:
        subject = c.name()
    if c.chance(0.2) and not same_party(subject, "I"):
        return _asked(subject, Measure(None, noun("year")))
    years = c.number(30, 60) if "elder" in subject.kinds else c.number(4, 40)
    return _said(c, Clause(BE, subject, complement=Measure(years, noun("year"))), asks=0.08, denies=0.06)


def priced(c: Composer) -> Clause:
    """ "This bag costs fifty rupees", "how much does the sari cost?" """
    dear = c.chance(0.4)
    kinds = ("clothing", "bag", "umbrella", "clock", "toy") if dear else ("fruits", "school-thing", "dish", "newspaper")
    entry = c.pick(nouns_of(*kinds, without=MASS))
    subject = c.pointed_at(entry) if c.chance(0.6) else Phrase(entry, article="the")
    if c.chance(0.25):
        return replace(_asked(subject, Measure(None, noun("rupee"))), verb=COST)
    rupees = c.number(100, 1000) if dear else c.number(5, 60)
    return Clause(COST, subject, complement=Measure(rupees, noun("rupee")))


def clock(c: Composer) -> Clause:
    """ "It is five o'clock." """
    what = Phrase(noun("o'clock"), True, count=c.number(2, 12))
    return Clause(BE, pronoun("it"), complement=what, tense=_past(c, 0.2))


def named(c: Composer) -> Clause:
    """ "My brother's name is Ravi", "what is her name?", "who is that man?" """
    if c.chance(0.3):
        entry = c.pick(nouns_of("person", without=frozenset({"proper", "kin", "police", "folk"})))
        return _asked(c.known(entry), pronoun("who"))
    owner = pronoun(c.pick(PERSONAL[:4])) if c.chance(0.4) else c.kin()
    if owner.plural:
        owner = pronoun("she")
    subject = Phrase(noun("name"), possessor=owner)
    if c.chance(0.3) and not same_party(owner, "I"):
        return _asked(subject, pronoun("what"))
    name = c.pick([n for n in of_kind("first-name") if n.genders[0] in _genders(owner)])
    return Clause(BE, subject, complement=Phrase(name))


def faring(c: Composer) -> Clause:
    """ "How is your mother?", "how was the film?" """
    tense: Tense = "present"
    if c.chance(0.6):
        subject = c.person(("you", "he", "she", "they"))
        if subject.possessor and isinstance(subject.possessor.head, Pronoun) and subject.possessor.head.person == 1:
            subject = replace(subject, possessor=pronoun("you"))
    else:
        subject = c.known(c.pick(nouns_of("drink", "show", "text", "device")), adjective=0.04)
        tense = _past(c, 0.5)
    return Clause(BE, subject, mood="question", asked="how", tense=tense)
