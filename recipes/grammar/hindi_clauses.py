"""Realises clauses and sentences in Hindi.

The order is subject, time, place, recipient, object, question word, manner, negation, verb. In the perfective a transitive
subject takes ने and the verb agrees with an unmarked object; verbs of liking, having and needing have their subject in
another case and agree with what is liked. `VERB_FORMS` maps each English tense to its Hindi form.
"""

from dataclasses import replace

from grammar.english import comparative
from grammar.hindi_noun_phrases import Context, adjective_words, agreement, genitive, noun_phrase
from grammar.hindi_verbs import ClausePlan, verb_words
from grammar.lexicon import Noun
from grammar.meaning import (
    AdjectivePhrase,
    Adjunct,
    Clause,
    CompoundSentence,
    Meaning,
    MeasurePhrase,
    NounPhrase,
    Pronoun,
    Word,
)
from grammar.morphology import (
    Agreement,
    adjective_form,
    command,
    noun_form,
    subjunctive,
)
from grammar.readings import Reading

# English tense -> participle and auxiliary; stative verbs and resulting states (बैठा है) differ.
VERB_FORMS: dict[str, tuple[str, str]] = {
    "present": ("habitual", "present"),
    "past": ("perfective", ""),
    "future": ("future", ""),
    "progressive": ("progressive", "present"),
    "past progressive": ("progressive", "past"),
    "perfect": ("perfective", "present"),
    "used": ("habitual", "past"),
}
STATIVE_FORMS = {**VERB_FORMS, "past": ("habitual", "past")}
RESULT_FORMS = {**VERB_FORMS, "progressive": ("perfective", "present"), "past progressive": ("perfective", "past")}
FEELING_FORMS = {**RESULT_FORMS, "present": ("perfective", "present"), "past": ("perfective", "past")}  # भूख लगी है
QUESTION_WORDS = {"where": "कहाँ", "when": "कब", "why": "क्यों"}
CONJUNCTIONS: dict[str, tuple[str, str]] = {  # before the first clause, between the two
    "and": ("", "और"),
    "but": ("", ", लेकिन"),
    "because": ("", "क्योंकि"),
    "so": ("", ", इसलिए"),
    "when": ("जब", ", तब"),
    "if": ("अगर", ", तो"),
    "that": ("", "कि"),
}
COMMAND_WEIGHTS = (0.4, 0.5, 0.1)  # आप, तुम, तू


def _plan(clause: Clause, path: str, reading: Reading) -> ClausePlan:
    verb = clause.verb
    forms = STATIVE_FORMS if "stative" in verb.features else VERB_FORMS
    if "result" in verb.features:
        forms = FEELING_FORMS if verb.english[0] == "be" else RESULT_FORMS
    participle, auxiliary = forms[clause.tense]
    case = "" if verb.subject_case == "-" else verb.subject_case
    if case == "ने" and (participle != "perfective" or clause.modal):
        case = ""
    if clause.modal in ("like", "have", "should"):
        case = "को"
    omits_article = clause.negative or clause.mood == "question"  # "he does not have a pen": पेन नहीं है
    context = Context(reading, clause.subject, ("", "एक") if omits_article else ("एक", ""))
    return ClausePlan(clause, path, context, participle, auxiliary, case, _verb_agreement(clause, case, context))


def _verb_agreement(clause: Clause, case: str, context: Context) -> Agreement:
    """Returns what the verb agrees with: a subject without case, else an unmarked object, else the host noun."""
    reading, verb = context.reading, clause.verb
    if clause.modal == "like":
        return Agreement()
    if not case and not _is_expletive(clause.subject):
        # "This was my house" agrees with "house".
        if isinstance(clause.complement, NounPhrase) and _is_demonstrative(clause.subject):
            return agreement(clause.complement, reading)
        return agreement(clause.subject, reading)
    if clause.object and verb.object_case == "O" and not _takes_ko(clause, reading):
        return agreement(clause.object, reading)
    if isinstance(clause.complement, NounPhrase):
        return agreement(clause.complement, reading)
    return Agreement("वह", verb.host_gender or "m")


def _is_expletive(phrase: NounPhrase) -> bool:
    """Returns whether the phrase is the "it" of weather and time, which Hindi omits."""
    return isinstance(phrase.head, Pronoun) and phrase.head.subject == "it" and phrase.gender is None


def _is_demonstrative(phrase: NounPhrase) -> bool:
    return isinstance(phrase.head, Pronoun) and phrase.head.subject in ("this", "that", "these", "those")


def _takes_ko(clause: Clause, reading: Reading) -> bool:
    """Returns whether the object takes को: a person or a definite animal does; any other animal may."""
    obj = clause.object
    if obj is None or clause.verb.subject_case not in ("-", "ने") or "thing" in clause.verb.features:
        return False
    if isinstance(obj.head, Pronoun):
        return obj.head.subject != "what"
    if obj.head.kinds & {"person", "agent"}:
        return True
    if "animal" not in obj.head.kinds:
        return False
    demonstrative = obj.determiner is not None and obj.determiner.english[0] in ("this", "that", "these", "those")
    definite = obj.article == "the" or obj.possessor is not None or demonstrative
    return definite or reading.choose(f"को {id(obj)}", (False, True))


def clause(meaning: Clause, path: str, reading: Reading) -> list[Word]:
    if meaning.mood in ("command", "please", "let us"):
        return _command(meaning, path, reading)
    plan = _plan(meaning, path, reading)
    subject, questioned = _subject(plan), meaning.questioned
    preverbal: list[Word] = []
    if questioned in QUESTION_WORDS:
        preverbal = [Word(QUESTION_WORDS[questioned], (f"{path}w",))]
    has_infinitive = meaning.modal in (
        "like",
        "have",
        "should",
    )  # object and infinitive stay together: किसे अंडे पकाना पसंद है
    if questioned == "subject" and not reading.choose(
        "who comes first", (True, False) if has_infinitive else (False, True)
    ):
        subject, preverbal = [], subject
    opening = [Word("क्या", (f"{path}q",))] if meaning.mood == "question" and not questioned else []
    if meaning.existential:  # place before subject: मेज़ पर एक किताब है
        return [*opening, *_adjuncts(plan, ("when",)), *_complement(plan), *subject, *verb_words(plan)]
    middle, verb, complement = _middle(plan), verb_words(plan), _complement(plan)
    if _keeps_host(meaning) or (preverbal and meaning.verb.host_gender and reading.choose("host first", (False, True))):
        middle, verb = [*middle, verb[0]], verb[1:]  # फ़ोन कब किया is as correct as कब फ़ोन किया
    manner = _adjuncts(plan, ("manner",))
    if bool(preverbal and manner) and reading.choose("manner first", (False, True)):  # मेहनत से कब काम किया
        preverbal, manner = manner, preverbal
    return [*opening, *subject, *middle, *preverbal, *manner, *complement, *verb]


def _keeps_host(meaning: Clause) -> bool:
    """Returns whether the host noun stays before question words: feelings, tastes, and genitives (मीरा की मदद किसने की)."""
    verb = meaning.verb
    felt = verb.subject_case in ("को", "का") and not meaning.object
    return verb.host_gender is not None and (felt or verb.object_case == "का")


def _middle(plan: ClausePlan) -> list[Word]:
    """Returns the words between the subject and the preverbal position."""
    into, obj = _adjuncts(plan, ("into",)), _object(plan)
    if bool(into) and plan.context.reading.choose("where to first", (False, True)):  # मेज़ पर किताब रखी
        into, obj = obj, into
    when, often = _adjuncts(plan, ("when",)), _adjuncts(plan, ("often",))
    if bool(when and often) and plan.context.reading.choose("how often first", (False, True)):
        when, often = often, when
    circumstances = _adjuncts(plan, ("place", "company", "source", "for", "tool"))
    return [*when, *often, *circumstances, *_recipient(plan), *obj, *into]


def _subject(plan: ClausePlan) -> list[Word]:
    meaning, path = plan.clause, f"{plan.path}s"
    if meaning.subject_elided or _is_expletive(meaning.subject):
        return []
    context = replace(plan.context, subject=None)
    if plan.subject_case == "का":
        return genitive(meaning.subject, path, context, plan.agreement, False, f"{path}.of")
    return noun_phrase(meaning.subject, path, context, plan.subject_case)


def _object(plan: ClausePlan) -> list[Word]:
    meaning, path = plan.clause, f"{plan.path}o"
    if not meaning.object:
        return []
    preposition_id, context = f"{plan.path}pre", plan.context
    if isinstance(meaning.object.head, Noun) and "illness" in meaning.object.head.kinds:
        context = replace(context, indefinite_articles=("",))
    case = meaning.verb.object_case
    if case == "O":
        return noun_phrase(meaning.object, path, context, "को" if _takes_ko(meaning, context.reading) else "")
    if case == "का":
        host = Agreement("वह", meaning.verb.host_gender or "m")
        if isinstance(meaning.object.head, Pronoun):  # "they waited for them" is not for themselves
            context = replace(context, subject=None)
        return genitive(meaning.object, path, context, host, False, preposition_id)
    return noun_phrase(meaning.object, path, context, case, preposition_id)


def _recipient(plan: ClausePlan) -> list[Word]:
    meaning = plan.clause
    if not meaning.recipient:
        return []
    case = "से" if "asks" in meaning.verb.features else "को"
    return noun_phrase(meaning.recipient, f"{plan.path}r", plan.context, case, f"{plan.path}r.pre")


def _adjuncts(plan: ClausePlan, kinds: tuple[str, ...]) -> list[Word]:
    return [
        word
        for kind in kinds
        for number, part in enumerate(plan.clause.adjuncts)
        if part.kind == kind
        for word in adjunct(part, f"{plan.path}x{number}", plan.context)
    ]


def adjunct(part: Adjunct, path: str, context: Context) -> list[Word]:
    if part.adverb:
        hindi = context.reading.choose(f"adverb {path}", (part.adverb.hindi, *part.adverb.alternatives))
        return [Word(text, tuple(f"{path}.{i}" for i in indices)) for text, indices in hindi]
    assert part.phrase
    if not part.preposition:
        return noun_phrase(part.phrase, path, context)
    postposition = " ".join(text for text, _ in part.preposition.hindi)
    return noun_phrase(part.phrase, path, context, postposition, f"{path}.pre")


def _complement(plan: ClausePlan) -> list[Word]:
    meaning, path = plan.clause, f"{plan.path}c"
    complement, agrees = meaning.complement, plan.agreement
    if meaning.questioned == "how":
        return [Word(adjective_form("कैसा", agrees.gender, agrees.plural), (f"{plan.path}w",))]
    if isinstance(complement, AdjectivePhrase):
        return _adjective_phrase(complement, path, plan)
    if isinstance(complement, Adjunct):
        return adjunct(complement, path, plan.context)
    if isinstance(complement, MeasurePhrase):
        return _measure(complement, path, agrees)
    if isinstance(complement, NounPhrase):
        return _predicate_noun(complement, path, plan)
    return []


def _predicate_noun(complement: NounPhrase, path: str, plan: ClausePlan) -> list[Word]:
    subject, context = plan.clause.subject, plan.context
    if not _is_demonstrative(subject) and not complement.adjective and not plan.clause.negative:
        context = replace(context, indefinite_articles=("", "एक"))
    if isinstance(complement.head, Noun) and len(complement.head.genders) == 2 and not _is_demonstrative(subject):
        complement = replace(complement, gender=plan.agreement.gender)  # मीरा शिक्षिका है
    if (
        plan.agreement.plural
        and not complement.plural
        and isinstance(complement.head, Noun)
        and not _is_demonstrative(subject)
    ):
        complement = replace(complement, honorific=True)  # आप उसके भाई हैं
    return noun_phrase(complement, path, replace(context, subject=None))


def _adjective_phrase(complement: AdjectivePhrase, path: str, plan: ClausePlan) -> list[Word]:
    words = adjective_words(complement.adjective, path, plan.agreement)
    if complement.than:
        than = noun_phrase(complement.than, f"{path}.than", plan.context, "से", f"{path}.from")
        more = plan.context.reading.choose("more", _more_options(complement))
        return [*than, *([Word(more, (f"{path}.more",))] if more else []), *words]
    return [Word("बहुत", (f"{path}.very",)), *words] if complement.very else words


def _more_options(complement: AdjectivePhrase) -> tuple[str, ...]:
    """Returns the options for "more": none with बेहतर, which is a comparative; usually ज़्यादा with सुंदर."""
    if complement.adjective.hindi[0][0] == "बेहतर":
        return ("",)
    more = len(comparative(complement.adjective)) > 1
    return ("ज़्यादा", "") if more else ("", "ज़्यादा")


def _measure(complement: MeasurePhrase, path: str, agrees: Agreement) -> list[Word]:
    of = Word(adjective_form("का", agrees.gender, agrees.plural), (f"{path}.old",))
    unit = Word(
        noun_form(complement.unit.hindi[0], "m", True, False), (path,) if complement.count else (f"{path}.old",)
    )
    if complement.count:
        return [*(Word(text, (f"{path}.count",)) for text, _ in complement.count.hindi), unit, of]
    how = Word("कितने", (f"{path}.count",))
    return [how, of] if complement.unit.english == "rupee" else [how, unit, of]


def _command(meaning: Clause, path: str, reading: Reading) -> list[Word]:
    level = "आप" if meaning.mood == "please" else reading.choose("you", ("आप", "तुम", "तू"), COMMAND_WEIGHTS)
    context = Context(reading, meaning.subject, ("", "एक") if meaning.negative else ("एक", ""))
    plan = ClausePlan(meaning, path, context, "", "", "", Agreement())
    v, root = f"{path}v", meaning.verb.root
    opening: list[Word] = []
    text = command(root, level)
    if meaning.mood == "please":
        opening = [Word("कृपया", (f"{path}please",))]
        text = reading.choose("polite", (text, subjunctive(root, "आप")))
    if meaning.mood == "let us":
        opening = [Word({"आप": "आइए", "तुम": "आओ", "तू": "आ"}[level], (f"{path}let",))]
        text = subjunctive(root, "हम")
    particles = ("न", "मत") if meaning.mood == "please" else ("मत", "न")
    negation = [Word(reading.choose("not", particles), (f"{path}n",))] if meaning.negative else []
    host = [Word(meaning.verb.host, (v,))] if meaning.verb.host else []
    manner = _adjuncts(plan, ("manner",))
    before = [*host, *manner] if _keeps_host(meaning) else [*manner, *host]
    return [*opening, *_middle(plan), *before, *negation, Word(text, (v,))]


def sentence(meaning: Meaning, reading: Reading) -> list[Word]:
    end = "?" if isinstance(meaning, Clause) and meaning.mood == "question" else "।"
    return [*_sentence_words(meaning, "", reading), Word(end, ("end",))]


def _sentence_words(meaning: Meaning, path: str, reading: Reading) -> list[Word]:
    if not isinstance(meaning, CompoundSentence):
        return clause(meaning, path, reading)
    before, between = CONJUNCTIONS[meaning.conjunction]
    opening = [Word(before, (f"{path}before",))] if before else []
    id = "before" if before else "joint"
    conjunction = [Word(text, (f"{path}{'comma' if text == ',' else id}",)) for text in between.split()]
    first, second = (
        _sentence_words(meaning.first, f"{path}1", reading),
        _sentence_words(meaning.second, f"{path}2", reading),
    )
    return [*opening, *first, *conjunction, *second]
