"""Realises noun phrases in Hindi, with case, agreement and postpositions.

A `Reading` decides what English leaves open: the level of "you", the gender of "I", अपना or उसका for "his".
"""

from dataclasses import dataclass

from grammar.lexicon import Adjective, Gender, Noun, word
from grammar.meaning import NounPhrase, Pronoun, Word
from grammar.morphology import PRONOUNS, Agreement, adjective_form, noun_form
from grammar.readings import Reading

# English pronoun -> row of the Hindi table; "you" and the honorific plural are handled below.
PRONOUN_ROWS = {
    "I": "मैं",
    "we": "हम",
    "they": "वे",
    "this": "यह",
    "these": "ये",
    "those": "वे",
    "who": "कौन",
    "what": "क्या",
}
PLURAL_DETERMINERS = {"this": "these", "that": "those"}  # "this money" is ये पैसे
LEVELS = ("आप", "तुम", "तू")
# Probabilities of each choice in sampled training sentences.
LEVEL_WEIGHTS = (0.8, 0.15, 0.05)
GENDER_WEIGHTS = {"I": (0.8, 0.2), "you": (0.85, 0.15), "we": (0.9, 0.1), "they": (0.9, 0.1)}
NOUN_GENDER_WEIGHTS = (0.85, 0.15)


@dataclass(frozen=True)
class Context:
    """What a noun phrase needs to know about its clause."""

    reading: Reading
    subject: NounPhrase | None = None  # its own things are अपना
    indefinite_articles: tuple[str, ...] = ("एक", "")  # options for "a"


def pronoun_row(phrase: NounPhrase, reading: Reading) -> str:
    """Returns the row of the pronoun table."""
    head = phrase.head
    assert isinstance(head, Pronoun)
    if head.subject == "you":
        return reading.choose("you", LEVELS, LEVEL_WEIGHTS)
    return "वे" if phrase.honorific else PRONOUN_ROWS.get(head.subject, "वह")


def agreement(phrase: NounPhrase, reading: Reading) -> Agreement:
    """Returns the person and gender that verbs and adjectives agree with."""
    gender = gender_of(phrase, reading)
    if phrase.conjunct:
        other = gender_of(phrase.conjunct, reading)
        return Agreement("वे", "f" if gender == other == "f" else "m")
    if isinstance(phrase.head, Pronoun):
        row = pronoun_row(phrase, reading)
        return Agreement({"यह": "वह", "ये": "वे", "कौन": "वह", "क्या": "वह"}.get(row, row), gender)
    honorific = phrase.honorific
    if "elder" in phrase.head.kinds:  # मेरी माँ आई is correct as well; मेरा पिताजी आया is not
        honorific = gender == "m" or reading.choose(f"respect {id(phrase)}", (True, False))
    return Agreement("वे" if is_plural(phrase) or honorific else "वह", gender)


def is_plural(phrase: NounPhrase) -> bool:
    assert isinstance(phrase.head, Noun)
    kinds = phrase.head.kinds
    if "several" in kinds:
        return True
    return phrase.plural and not kinds & {"elder", "plural"}  # "the police are": पुलिस है


def gender_of(phrase: NounPhrase, reading: Reading) -> Gender:
    if phrase.gender:
        return phrase.gender
    head = phrase.head
    both: tuple[Gender, Gender] = ("m", "f")
    if isinstance(head, Noun):
        if len(head.genders) == 1:
            return head.genders[0]
        # Keyed by identity: the same phrase, overt or elided, is the same person throughout a sentence.
        return reading.choose(
            f"gender of {id(phrase)}", both, (1, 0) if "company" in head.kinds else NOUN_GENDER_WEIGHTS
        )
    if head.gender or head.subject not in GENDER_WEIGHTS:
        return head.gender or "m"
    return reading.choose(f"gender of {head.subject}", both, GENDER_WEIGHTS[head.subject])


def noun_phrase(
    phrase: NounPhrase, path: str, context: Context, postposition: str = "", postposition_id: str = ""
) -> list[Word]:
    """Returns the phrase with its postposition: "" direct, "goal" bare oblique, ने, को, से, का (see `genitive`), के साथ …"""
    if isinstance(phrase.head, Pronoun):
        return _pronoun(phrase, path, context, postposition, postposition_id)
    words = _noun(phrase, path, context, oblique=bool(postposition))
    if phrase.conjunct:
        words += [Word("और", (f"{path}&",)), *_noun(phrase.conjunct, f"{path}2", context, oblique=bool(postposition))]
    ids = (postposition_id,) if postposition_id else ()
    return words if postposition in ("", "goal") else [*words, *(Word(part, ids) for part in postposition.split())]


def _pronoun(phrase: NounPhrase, path: str, context: Context, postposition: str, postposition_id: str) -> list[Word]:
    direct, with_ne, with_ko, oblique, possessive = PRONOUNS[pronoun_row(phrase, context.reading)]
    fused = {"": direct, "ने": with_ne, "को": with_ko, "से": f"{oblique}से", "में": f"{oblique}में"}.get(postposition)
    if fused:
        return [Word(fused, (path, postposition_id) if postposition_id else (path,))]
    ids = (postposition_id,) if postposition_id else ()
    if postposition.startswith("के "):
        return [
            Word(adjective_form(possessive, "m", True), (path,)),
            *(Word(part, ids) for part in postposition.split()[1:]),
        ]
    return [Word(oblique, (path,)), Word(postposition, ids)]


def genitive(
    owner: NounPhrase, path: str, context: Context, possessed: Agreement, oblique: bool, genitive_id: str
) -> list[Word]:
    """Returns the possessor, agreeing with what is possessed: मेरी, रवि के, अपना."""
    gender, plural = possessed.gender, possessed.plural
    if isinstance(owner.head, Pronoun):
        form = PRONOUNS[pronoun_row(owner, context.reading)][4]
        if _is_reflexive(owner.head, path, context):
            form = "अपना"
        return [Word(adjective_form(form, gender, plural, oblique), (path, genitive_id))]
    return [
        *noun_phrase(owner, path, context, "goal"),
        Word(adjective_form("का", gender, plural, oblique), (genitive_id,)),
    ]


def _is_reflexive(owner: Pronoun, path: str, context: Context) -> bool:
    """Returns whether the possessor is the subject. "He … his" is ambiguous: usually his own."""
    if context.subject is None or owner.subject not in (subject := possible_pronouns(context.subject)):
        return False
    if owner.person < 3:
        return True
    return context.reading.choose(f"own {path} {subject}", (True, False))


def possible_pronouns(phrase: NounPhrase) -> tuple[str, ...]:
    """Returns the English pronouns that can refer to a phrase."""
    head = phrase.head
    if isinstance(head, Pronoun):
        return (head.subject,)
    if phrase.conjunct or phrase.plural or "plural" in head.kinds:
        return ("they",)
    if "person" not in head.kinds:
        return ("it",)
    genders = (phrase.gender,) if phrase.gender else head.genders
    return tuple("he" if gender == "m" else "she" for gender in genders)


def _noun(phrase: NounPhrase, path: str, context: Context, oblique: bool) -> list[Word]:
    head = phrase.head
    assert isinstance(head, Noun)
    agrees, plural = agreement(phrase, context.reading), is_plural(phrase)
    if phrase.honorific and agrees.gender == "m":  # आप अच्छे लड़के हैं
        plural = True
    if phrase.conjunct:
        agrees = Agreement("वे" if plural else "वह", gender_of(phrase, context.reading))
    words = _determiner(phrase, path, context, agrees, oblique)
    if phrase.possessor:
        possessor = genitive(phrase.possessor, f"{path}.p", context, agrees, oblique, f"{path}.p.of")
        words = words + possessor if phrase.determiner else possessor + words  # यह सेब का रस, but केक का एक टुकड़ा
    if phrase.count:
        words += [Word(text, (f"{path}.count",)) for text, _ in phrase.count.hindi]
    if phrase.adjective:
        words += adjective_words(phrase.adjective, f"{path}.a", agrees, oblique)
    lemma = context.reading.choose(f"word for {head.english}", head.hindi)
    declined: Gender = agrees.gender if len(head.genders) == 1 else "m"  # two women are also दो डॉक्टर
    if agrees.gender == "f" and head.feminine:
        lemma, declined = head.feminine, "f"
    return [*words, *(Word(part, (path,)) for part in noun_form(lemma, declined, plural, oblique).split())]


def _determiner(phrase: NounPhrase, path: str, context: Context, agrees: Agreement, oblique: bool) -> list[Word]:
    if phrase.article == "a":
        article = context.reading.choose(f"a {path}", context.indefinite_articles)
        return [Word(article, (f"{path}.one",))] if article else []
    if not phrase.determiner:
        return []
    determiner = phrase.determiner
    if agrees.plural and determiner.english[0] in PLURAL_DETERMINERS:
        determiner = word("determiners", PLURAL_DETERMINERS[determiner.english[0]])
    if len(determiner.english) == 1 and len(determiner.hindi) == 2:  # direct and oblique: यह, इस
        return [Word(determiner.hindi[oblique][0], (f"{path}.d0",))]
    return [
        Word(adjective_form(text, agrees.gender, agrees.plural, oblique), tuple(f"{path}.d{i}" for i in indices))
        for text, indices in determiner.hindi
    ]


def adjective_words(adjective: Adjective, path: str, agrees: Agreement, oblique: bool = False) -> list[Word]:
    return [
        Word(adjective_form(text, agrees.gender, agrees.plural, oblique), tuple(f"{path}.{i}" for i in indices))
        for text, indices in adjective.hindi
    ]
