"""Realises a meaning in English: word forms, noun phrases, and clauses with do-support.

Every word carries alignment ids, which link it to its Hindi counterpart. Words without a counterpart (the, often do) have
ids as well, which then match nothing.
"""

from dataclasses import dataclass, replace

from grammar.lexicon import Adjective, FunctionWord, Noun, Verb
from grammar.meaning import (
    AdjectivePhrase,
    Adjunct,
    Clause,
    Meaning,
    MeasurePhrase,
    NounPhrase,
    Pronoun,
    Word,
)

VOWELS = "aeiou"
QUESTION_ADVERBS = ("where", "when", "why", "how")
MODAL_PAST_FORMS = {"want": "wanted", "like": "liked", "have": "had", "start": "started"}
CONJUNCTIONS: dict[str, tuple[str, str]] = {  # before the first clause, between the two
    "and": ("", "and"),
    "but": ("", ", but"),
    "because": ("", "because"),
    "so": ("", ", so"),
    "when": ("when", ","),
    "if": ("if", ","),
    "that": ("", "that"),
}


def plural(noun: Noun) -> str:
    return noun.plural or third_person(noun.english)  # the same rules: -s, -es, -ies


def _vowel_groups(word: str) -> int:
    return sum(1 for i, letter in enumerate(word) if letter in VOWELS and (i == 0 or word[i - 1] not in VOWELS))


def _doubles_consonant(word: str) -> bool:
    """Returns whether the last consonant doubles: one vowel before one consonant, in one syllable (stop, run)."""
    return (
        _vowel_groups(word) == 1
        and len(word) > 2
        and word[-1] not in VOWELS + "wxy"
        and word[-2] in VOWELS
        and word[-3] not in VOWELS
    )


def third_person(base: str) -> str:
    if base == "have":
        return "has"
    if base.endswith(("s", "sh", "ch", "x", "o")):
        return base + "es"
    return base[:-1] + "ies" if base[-1] == "y" and base[-2] not in VOWELS else base + "s"


def past(verb: Verb) -> str:
    if len(verb.english) > 1:
        return verb.english[1]
    base = verb.english[0]
    if base.endswith("e"):
        return base + "d"
    if base[-1] == "y" and base[-2] not in VOWELS:
        return base[:-1] + "ied"
    return base + base[-1] + "ed" if _doubles_consonant(base) else base + "ed"


def participle(verb: Verb) -> str:
    return verb.english[2] if len(verb.english) > 2 else past(verb)


def ing(base: str) -> str:
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith("ee") and base != "be":
        return base[:-1] + "ing"
    doubled = _doubles_consonant(base) or base in ("forget", "begin")
    return base + base[-1] + "ing" if doubled else base + "ing"


def comparative(adjective: Adjective) -> tuple[str, ...]:
    """Returns ("bigger",) or ("more", "beautiful")."""
    if adjective.comparative:
        return (adjective.comparative,)
    word = adjective.english
    syllables = _vowel_groups(word) - word.endswith("e")  # strange and large have one
    if word.endswith("y"):
        return (word[:-1] + "ier",)
    if syllables > 1:
        return ("more", word)
    if word.endswith("e"):
        return (word + "r",)
    return (word + word[-1] + "er" if _doubles_consonant(word) else word + "er",)


def be(phrase: NounPhrase, tense: str) -> str:
    plural_subject, person = is_plural(phrase), phrase.head.person if isinstance(phrase.head, Pronoun) else 3
    if tense == "past":
        return "were" if plural_subject or person == 2 else "was"
    return "are" if plural_subject or person == 2 else "am" if person == 1 else "is"


def is_plural(phrase: NounPhrase) -> bool:
    if phrase.conjunct:
        return True
    if isinstance(phrase.head, Pronoun):
        return phrase.head.plural
    two_cups = phrase.determiner is not None and phrase.determiner.english[0] == "two"
    return phrase.plural or two_cups or "plural" in phrase.head.kinds


def takes_s(phrase: NounPhrase) -> bool:
    """Returns whether a verb in the present takes -s."""
    return not is_plural(phrase) and not (isinstance(phrase.head, Pronoun) and phrase.head.person < 3)


def noun_phrase(phrase: NounPhrase, path: str, case: str = "subject") -> list[Word]:
    words = _noun_phrase(phrase, path, case)
    if phrase.conjunct:
        words = [*words, Word("and", (f"{path}&",)), *_noun_phrase(phrase.conjunct, f"{path}2", case)]
    return words


def _noun_phrase(phrase: NounPhrase, path: str, case: str) -> list[Word]:
    head = phrase.head
    if isinstance(head, Pronoun):
        return [Word(head.subject if case == "subject" else head.object, (path,))]
    words = _determiner(phrase, path)
    if phrase.count:
        words += [Word(part, (f"{path}.count",)) for part in phrase.count.english]
    if phrase.adjective:
        words.append(Word(phrase.adjective.english, (f"{path}.a.0",)))
    if phrase.possessor and phrase.possessor_style == "compound":
        words += noun_phrase(phrase.possessor, f"{path}.p")
    counted = phrase.plural and "mass" not in head.kinds
    words += [Word(part, (path,)) for part in (plural(head) if counted else head.english).split()]
    if phrase.possessor and phrase.possessor_style == "of":
        words += [Word("of", (f"{path}.p.of",)), *noun_phrase(phrase.possessor, f"{path}.p")]
    if phrase.article == "a":
        words.insert(0, Word("an" if words[0].text[0] in VOWELS else "a", (f"{path}.one",)))
    return words


def _determiner(phrase: NounPhrase, path: str) -> list[Word]:
    if phrase.possessor and phrase.possessor_style == "'s":
        return possessive(phrase.possessor, f"{path}.p")
    if phrase.determiner:
        return [Word(part, (f"{path}.d{i}",)) for i, part in enumerate(phrase.determiner.english)]
    return [Word("the", (f"{path}.the",))] if phrase.article == "the" else []


def possessive(owner: NounPhrase, path: str) -> list[Word]:
    if isinstance(owner.head, Pronoun):
        return [Word(owner.head.possessive, (path, f"{path}.of"))]
    *others, last = noun_phrase(owner, path)
    ending = "'" if is_plural(owner) and last.text.endswith("s") else "'s"
    return [*others, Word(last.text + ending, (*last.alignment_ids, f"{path}.of"))]


def adjunct(part: Adjunct, path: str) -> list[Word]:
    if part.adverb:
        return [Word(text, (f"{path}.{i}",)) for i, text in enumerate(part.adverb.english)]
    assert part.phrase
    words = noun_phrase(part.phrase, path, "object")
    if part.preposition:
        return [*(Word(text, (f"{path}.pre",)) for text in part.preposition.english), *words]
    return words


def _adjective_phrase(quality: AdjectivePhrase, path: str) -> list[Word]:
    adjective = quality.adjective
    if quality.than:
        texts = comparative(adjective)
        more = [Word(text, (f"{path}.more",)) for text in texts[:-1]]
        than = noun_phrase(quality.than, f"{path}.than", "object")
        return [*more, Word(texts[-1], (f"{path}.0",)), Word("than", (f"{path}.from",)), *than]
    very = [Word("very", (f"{path}.very",))] if quality.very else []
    return very + [Word(text, (f"{path}.{i}",)) for i, text in enumerate(adjective.english.split())]


def _complement(clause: Clause, path: str) -> list[Word]:
    complement = clause.complement
    if isinstance(complement, AdjectivePhrase):
        return _adjective_phrase(complement, f"{path}c")
    if isinstance(complement, NounPhrase):
        return noun_phrase(complement, f"{path}c", "object")
    if isinstance(complement, Adjunct):
        return adjunct(complement, f"{path}c")
    if isinstance(complement, MeasurePhrase) and complement.count:
        return _measure(complement.count, complement.unit, f"{path}c")
    return []


def _measure(count: FunctionWord, unit: Noun, path: str) -> list[Word]:
    one = count.english == ("one",)
    words = [Word(part, (f"{path}.count",)) for part in count.english]
    words.append(Word(unit.english if one else plural(unit), (path,)))
    return [*words, Word("old", (f"{path}.old",))] if unit.english == "year" else words


@dataclass(frozen=True)
class VerbGroup:
    """The words of a verb: the finite auxiliary, which comes first in questions, then "not", then the rest."""

    auxiliary: list[Word]
    negation: list[Word]
    rest: list[Word]


def _verb_group(clause: Clause, path: str) -> VerbGroup:
    v, m, t = f"{path}v", f"{path}m", f"{path}t"
    verb, base, modal = clause.verb, clause.verb.english[0], clause.modal
    question_ids = (f"{path}q",) if _inverts(clause) else ()  # a fronted auxiliary is also aligned with क्या
    negation = [Word("not", (f"{path}n",))] if clause.negative else []
    main = [Word(base, (v,)), *(Word(text, (v,)) for text in verb.particle.split())]
    if modal == "can" and clause.negative and not question_ids:
        return VerbGroup([Word("cannot", (m, t, f"{path}n"))], [], main)
    if modal in ("can", "should"):
        return VerbGroup([Word(modal, (m, t, *question_ids))], negation, main)
    if modal:
        rest = [Word(ing(base), (v,)), *main[1:]] if modal in ("like", "start") else [Word("to", (v,)), *main]
        return _with_do_support(clause, path, MODAL_PAST_FORMS[modal], [Word(modal, (m,)), *rest])
    if base == "be":
        copula = () if verb.particle else (v,)  # in "is hungry", "hungry" counts as the verb
        if clause.tense == "future":
            return VerbGroup([Word("will", (*copula, t, *question_ids))], negation, [Word("be", copula), *main[1:]])
        return VerbGroup([Word(be(clause.subject, clause.tense), (*copula, t, *question_ids))], negation, main[1:])
    if clause.tense == "future":
        return VerbGroup([Word("will", (t, *question_ids))], negation, main)
    if clause.tense in ("progressive", "past progressive"):
        is_or_was = be(clause.subject, "past" if clause.tense == "past progressive" else "present")
        return VerbGroup([Word(is_or_was, (t, *question_ids))], negation, [Word(ing(base), (v,)), *main[1:]])
    if clause.tense == "perfect":
        has = "has" if takes_s(clause.subject) else "have"
        return VerbGroup([Word(has, (t, *question_ids))], negation, [Word(participle(verb), (v,)), *main[1:]])
    if clause.tense == "used":
        return VerbGroup([], [], [Word("used", (t,)), Word("to", (t,)), *main])
    return _with_do_support(clause, path, past(verb), main)


def _with_do_support(clause: Clause, path: str, past_form: str, words: list[Word]) -> VerbGroup:
    """Builds a full verb in the present or past, with "do" in questions and negations."""
    first, t = words[0], f"{path}t"
    is_past = clause.tense == "past"
    if clause.negative or _inverts(clause):
        do = "did" if is_past else "does" if takes_s(clause.subject) else "do"
        question_ids = (f"{path}q",) if _inverts(clause) else ()
        negation = [Word("not", (f"{path}n",))] if clause.negative else []
        return VerbGroup([Word(do, (t, *question_ids))], negation, words)
    text = past_form if is_past else third_person(first.text) if takes_s(clause.subject) else first.text
    return VerbGroup([], [], [Word(text, (*first.alignment_ids, t)), *words[1:]])


def _inverts(clause: Clause) -> bool:
    return clause.mood == "question" and clause.questioned != "subject"


def clause(meaning: Clause, path: str = "") -> list[Word]:
    if meaning.mood in ("command", "please", "let us"):
        return _command(meaning, path)
    group = _verb_group(meaning, path)
    auxiliary, subject = group.auxiliary, noun_phrase(meaning.subject, f"{path}s")
    rest = [*group.rest, *_after_verb(meaning, path)]
    if meaning.existential:
        subject, rest = [Word("there")], [*subject, *rest]
    if meaning.subject_elided:
        subject = []
        auxiliary = auxiliary if meaning.negative or not group.rest else []  # "is singing and dancing"
    often = [w for i, a in enumerate(meaning.adjuncts) if a.kind == "often" for w in adjunct(a, f"{path}x{i}")]
    if _inverts(meaning):
        return [*_fronted(meaning, path), *auxiliary, *subject, *group.negation, *often, *rest]
    return [*subject, *auxiliary, *group.negation, *often, *rest]


def _fronted(meaning: Clause, path: str) -> list[Word]:
    """Returns the words that open a question: where, what, which book, how many books, how old."""
    questioned = meaning.questioned
    if questioned in QUESTION_ADVERBS:
        return [Word(questioned, (f"{path}w",))]
    if questioned == "object" and meaning.object:
        return noun_phrase(meaning.object, f"{path}o", "object")
    if questioned == "complement" and isinstance(meaning.complement, NounPhrase):
        return noun_phrase(meaning.complement, f"{path}c")
    if questioned == "complement" and isinstance(meaning.complement, MeasurePhrase):
        word = "old" if meaning.complement.unit.english == "year" else "much"
        return [Word("how", (f"{path}c.count",)), Word(word, (f"{path}c.old",))]
    return []


def _after_verb(meaning: Clause, path: str) -> list[Word]:
    preposition = meaning.verb.preposition
    words = [Word(preposition, (f"{path}pre",))] if preposition else []
    complement = [] if meaning.questioned == "complement" else _complement(meaning, path)
    return [*words, *_objects(meaning, path), *complement, *_adjuncts(meaning, path)]


def _objects(meaning: Clause, path: str) -> list[Word]:
    obj: list[Word] = []
    if meaning.object and meaning.questioned != "object":
        obj = noun_phrase(meaning.object, f"{path}o", "object")
        if meaning.verb.object_case == "goal" and meaning.verb.english[0] != "reach" and meaning.object.lemma != "home":
            obj = [Word("to", (f"{path}pre",)), *obj]
    if not meaning.recipient:
        return obj
    recipient = noun_phrase(meaning.recipient, f"{path}r", "object")
    if meaning.recipient_first or "asks" in meaning.verb.features:
        return recipient + obj
    return [*obj, Word("to", (f"{path}r.pre",)), *recipient]


def _adjuncts(meaning: Clause, path: str) -> list[Word]:
    order = ("into", "manner", "company", "tool", "source", "for", "place", "when")
    numbered = [(order.index(a.kind), i, a) for i, a in enumerate(meaning.adjuncts) if a.kind in order]
    return [word for _, i, part in sorted(numbered, key=lambda n: n[:2]) for word in adjunct(part, f"{path}x{i}")]


def _command(meaning: Clause, path: str) -> list[Word]:
    verb = [Word(meaning.verb.english[0], (f"{path}v",))]
    if meaning.mood == "let us":
        verb = [Word("let", (f"{path}let",)), Word("us", (f"{path}let",)), *verb]
    if meaning.negative:
        verb = [Word("do", (f"{path}n",)), Word("not", (f"{path}n",)), *verb]
    if meaning.mood == "please":
        verb = [Word("please", (f"{path}please",)), *verb]
    particle = [Word(text, (f"{path}v",)) for text in meaning.verb.particle.split()]
    return [*verb, *particle, *_after_verb(meaning, path)]


def sentence(meaning: Meaning) -> list[Word]:
    """Returns the words of a sentence, with a capital letter and final punctuation."""
    words = _sentence_words(meaning, "")
    first = words[0]
    end = "?" if isinstance(meaning, Clause) and meaning.mood == "question" else "."
    return [Word(first.text[0].upper() + first.text[1:], first.alignment_ids), *words[1:], Word(end, ("end",))]


def _sentence_words(meaning: Meaning, path: str) -> list[Word]:
    if isinstance(meaning, Clause):
        return clause(meaning, path)
    before, between = CONJUNCTIONS[meaning.conjunction]
    opening = [Word(before, (f"{path}before",))] if before else []
    first = meaning.first
    if meaning.conjunction == "if" and isinstance(first, Clause):  # "if it rains tomorrow" refers to the future
        first = replace(first, tense="present")
    conjunction = [Word(text, (f"{path}{'comma' if text == ',' else 'joint'}",)) for text in between.split()]
    return [*opening, *_sentence_words(first, f"{path}1"), *conjunction, *_sentence_words(meaning.second, f"{path}2")]
