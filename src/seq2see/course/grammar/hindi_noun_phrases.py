"""Meaning to Hindi, first part: noun phrases with their case, agreement and postpositions.

Everything English leaves open is asked of the `Reading`: the level of "you", the gender of "I", अपना or उसका for "his".
"""

from dataclasses import dataclass

from seq2see.course.grammar.ambiguities import Reading
from seq2see.course.grammar.lexicon import Adjective, Gender, Noun, word
from seq2see.course.grammar.meaning import Phrase, Pronoun, Word
from seq2see.course.grammar.morphology import PRONOUNS, Agreement, adjective_form, noun_form

# English pronoun -> the row of the Hindi table; "you" and the plural of respect are chosen below.
PERSON = {"I": "मैं", "we": "हम", "they": "वे", "this": "यह", "these": "ये", "those": "वे", "who": "कौन", "what": "क्या"}
MANY = {"this": "these", "that": "those"}  # "this money" is ये पैसे
LEVELS = ("आप", "तुम", "तू")
# How often the drawn training sentences take each choice.
LEVEL_WEIGHTS = (0.8, 0.15, 0.05)
GENDER_WEIGHTS = {"I": (0.8, 0.2), "you": (0.85, 0.15), "we": (0.9, 0.1), "they": (0.9, 0.1)}
NOUN_GENDER_WEIGHTS = (0.85, 0.15)


@dataclass(frozen=True)
class Context:
    """What a noun phrase must know of its clause."""

    reading: Reading
    subject: Phrase | None = None  # whose own things are अपना
    one: tuple[str, ...] = ("एक", "")  # how "a" may be said here


def person(phrase: Phrase, reading: Reading) -> str:
    """The row of the pronoun table."""
    head = phrase.head
    assert isinstance(head, Pronoun)
    if head.subject == "you":
        return reading.choose("you", LEVELS, LEVEL_WEIGHTS)
    return "वे" if phrase.respect else PERSON.get(head.subject, "वह")


def agreement(phrase: Phrase, reading: Reading) -> Agreement:
    """Person and gender as verbs and adjectives see them."""
    gender = gender_of(phrase, reading)
    if phrase.also:
        other = gender_of(phrase.also, reading)
        return Agreement("वे", "f" if gender == other == "f" else "m")
    if isinstance(phrase.head, Pronoun):
        row = {"यह": "वह", "ये": "वे", "कौन": "वह", "क्या": "वह"}.get(who := person(phrase, reading), who)
        return Agreement(row, gender)
    respected = phrase.respect
    if "elder" in phrase.head.kinds:  # मेरी माँ आई is right too; मेरा पिताजी आया is not
        respected = gender == "m" or reading.choose(f"respect {id(phrase)}", (True, False))
    return Agreement("वे" if is_plural(phrase) or respected else "वह", gender)


def is_plural(phrase: Phrase) -> bool:
    assert isinstance(phrase.head, Noun)
    kinds = phrase.head.kinds
    if "several" in kinds:
        return True
    return phrase.plural and not kinds & {"elder", "plural"}  # "the police are": पुलिस है


def gender_of(phrase: Phrase, reading: Reading) -> Gender:
    if phrase.gender:
        return phrase.gender
    head = phrase.head
    both: tuple[Gender, Gender] = ("m", "f")
    if isinstance(head, Noun):
        if len(head.genders) == 1:
            return head.genders[0]
        # Asked by identity: the same phrase, said or silent, is the same person throughout a sentence.
        return reading.choose(
            f"gender of {id(phrase)}", both, (1, 0) if "company" in head.kinds else NOUN_GENDER_WEIGHTS
        )
    if head.gender or head.subject not in GENDER_WEIGHTS:
        return head.gender or "m"
    return reading.choose(f"gender of {head.subject}", both, GENDER_WEIGHTS[head.subject])


def noun_phrase(phrase: Phrase, path: str, context: Context, post: str = "", mark: str = "") -> list[Word]:
    """The phrase with its postposition: "" direct, "goal" bare oblique, ने, को, से, का (see `genitive`), के साथ …"""
    if isinstance(phrase.head, Pronoun):
        return _pronoun(phrase, path, context, post, mark)
    words = _noun(phrase, path, context, oblique=bool(post))
    if phrase.also:
        words += [Word("और", (f"{path}&",)), *_noun(phrase.also, f"{path}2", context, oblique=bool(post))]
    marks = (mark,) if mark else ()
    return words if post in ("", "goal") else [*words, *(Word(part, marks) for part in post.split())]


def _pronoun(phrase: Phrase, path: str, context: Context, post: str, mark: str) -> list[Word]:
    direct, with_ne, with_ko, oblique, whose = PRONOUNS[person(phrase, context.reading)]
    fused = {"": direct, "ने": with_ne, "को": with_ko, "से": f"{oblique}से", "में": f"{oblique}में"}.get(post)
    if fused:
        return [Word(fused, (path, mark) if mark else (path,))]
    marks = (mark,) if mark else ()
    if post.startswith("के "):
        return [Word(adjective_form(whose, "m", True), (path,)), *(Word(part, marks) for part in post.split()[1:])]
    return [Word(oblique, (path,)), Word(post, marks)]


def genitive(owner: Phrase, path: str, context: Context, possessed: Agreement, oblique: bool, mark: str) -> list[Word]:
    """Whose, agreeing with what is owned: मेरी, रवि के, अपना."""
    gender, many = possessed.gender, possessed.plural
    if isinstance(owner.head, Pronoun):
        row = PRONOUNS[person(owner, context.reading)][4]
        if _own(owner.head, path, context):
            row = "अपना"
        return [Word(adjective_form(row, gender, many, oblique), (path, mark))]
    return [*noun_phrase(owner, path, context, "goal"), Word(adjective_form("का", gender, many, oblique), (mark,))]


def _own(owner: Pronoun, path: str, context: Context) -> bool:
    """Whether the owner is the subject. "He … his" may mean either: usually his own."""
    if context.subject is None or owner.subject not in (subject := stands_for(context.subject)):
        return False
    if owner.person < 3:
        return True
    return context.reading.choose(f"own {path} {subject}", (True, False))


def stands_for(phrase: Phrase) -> tuple[str, ...]:
    """The English pronouns that can refer to a phrase."""
    head = phrase.head
    if isinstance(head, Pronoun):
        return (head.subject,)
    if phrase.also or phrase.plural or "plural" in head.kinds:
        return ("they",)
    if "person" not in head.kinds:
        return ("it",)
    genders = (phrase.gender,) if phrase.gender else head.genders
    return tuple("he" if gender == "m" else "she" for gender in genders)


def _noun(phrase: Phrase, path: str, context: Context, oblique: bool) -> list[Word]:
    head = phrase.head
    assert isinstance(head, Noun)
    agrees, many = agreement(phrase, context.reading), is_plural(phrase)
    if phrase.respect and agrees.gender == "m":  # आप अच्छे लड़के हैं
        many = True
    if phrase.also:
        agrees = Agreement("वे" if many else "वह", gender_of(phrase, context.reading))
    words = _determiner(phrase, path, context, agrees, oblique)
    if phrase.possessor:
        whose = genitive(phrase.possessor, f"{path}.p", context, agrees, oblique, f"{path}.p.of")
        words = words + whose if phrase.determiner else whose + words  # यह सेब का रस, but केक का एक टुकड़ा
    if phrase.count:
        words += [Word(text, (f"{path}.count",)) for text, _ in phrase.count.hindi]
    if phrase.adjective:
        words += adjective_words(phrase.adjective, f"{path}.a", agrees, oblique)
    lemma = context.reading.choose(f"word for {head.english}", head.hindi)
    declined: Gender = agrees.gender if len(head.genders) == 1 else "m"  # two women are दो डॉक्टर too
    if agrees.gender == "f" and head.feminine:
        lemma, declined = head.feminine, "f"
    return [*words, *(Word(part, (path,)) for part in noun_form(lemma, declined, many, oblique).split())]


def _determiner(phrase: Phrase, path: str, context: Context, agrees: Agreement, oblique: bool) -> list[Word]:
    if phrase.article == "a":
        one = context.reading.choose(f"a {path}", context.one)
        return [Word(one, (f"{path}.one",))] if one else []
    if not phrase.determiner:
        return []
    said = phrase.determiner
    if agrees.plural and said.english[0] in MANY:
        said = word("determiners", MANY[said.english[0]])
    if len(said.english) == 1 and len(said.hindi) == 2:  # direct and oblique: यह, इस
        return [Word(said.hindi[oblique][0], (f"{path}.d0",))]
    return [
        Word(adjective_form(text, agrees.gender, agrees.plural, oblique), tuple(f"{path}.d{i}" for i in numbers))
        for text, numbers in said.hindi
    ]


def adjective_words(adjective: Adjective, path: str, agrees: Agreement, oblique: bool = False) -> list[Word]:
    return [
        Word(adjective_form(text, agrees.gender, agrees.plural, oblique), tuple(f"{path}.{i}" for i in numbers))
        for text, numbers in adjective.hindi
    ]
