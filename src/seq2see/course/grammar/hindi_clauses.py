"""Meaning to Hindi, second part: clauses.

The order is subject, time, place, recipient, object, question word, manner, negation, verb. In the perfective a transitive
subject takes ने and the verb agrees with an unmarked object; verbs of liking, having and needing have their subject in
another case and agree with what is liked. `VERB_FORMS` says how each English tense is put.
"""

from dataclasses import dataclass, replace

from seq2see.course.grammar.ambiguities import Reading
from seq2see.course.grammar.english import comparative
from seq2see.course.grammar.hindi_noun_phrases import Context, adjective_words, agreement, genitive, noun_phrase
from seq2see.course.grammar.lexicon import Noun
from seq2see.course.grammar.meaning import Adjunct, Clause, Joined, Meaning, Measure, Phrase, Pronoun, Quality, Word
from seq2see.course.grammar.morphology import (
    PAST_BE,
    PRESENT_BE,
    Agreement,
    adjective_form,
    command,
    future,
    habitual,
    infinitive,
    noun_form,
    perfective,
    subjunctive,
)

# English tense -> participle and auxiliary; "state" for stative verbs, "result" for states reached (बैठा है).
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
FELT_FORMS = {**RESULT_FORMS, "present": ("perfective", "present"), "past": ("perfective", "past")}  # भूख लगी है
MODAL_ROOTS = {"can": "सक", "want": "चाह", "start": "लग"}
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


@dataclass(frozen=True)
class Parts:
    """A clause on its way to words: how its verb is put, who carries which case, what the verb agrees with."""

    clause: Clause
    path: str
    context: Context
    participle: str
    auxiliary: str
    subject_case: str
    agrees: Agreement

    @property
    def negative(self) -> bool:
        return self.clause.negative or any(a.adverb and "never" in a.adverb.groups for a in self.clause.adjuncts)


def _parts(clause: Clause, path: str, reading: Reading) -> Parts:
    verb = clause.verb
    forms = STATIVE_FORMS if "stative" in verb.marks else VERB_FORMS
    if "result" in verb.marks:
        forms = FELT_FORMS if verb.english[0] == "be" else RESULT_FORMS
    participle, auxiliary = forms[clause.tense]
    case = "" if verb.subject_case == "-" else verb.subject_case
    if case == "ने" and (participle != "perfective" or clause.modal):
        case = ""
    if clause.modal in ("like", "have", "should"):
        case = "को"
    plain = clause.negative or clause.mood == "question"  # "he does not have a pen": पेन नहीं है
    context = Context(reading, clause.subject, ("", "एक") if plain else ("एक", ""))
    return Parts(clause, path, context, participle, auxiliary, case, _agrees(clause, case, context))


def _agrees(clause: Clause, case: str, context: Context) -> Agreement:
    """What the verb agrees with: the subject if it has no case, else an unmarked object, else the host noun."""
    reading, verb = context.reading, clause.verb
    if clause.modal == "like":
        return Agreement()
    if not case and not _dummy(clause.subject):
        if isinstance(clause.complement, Phrase) and _points(clause.subject):  # "this was my house" agrees with house
            return agreement(clause.complement, reading)
        return agreement(clause.subject, reading)
    if clause.object and verb.object_case == "O" and not _marked(clause, reading):
        return agreement(clause.object, reading)
    if isinstance(clause.complement, Phrase):
        return agreement(clause.complement, reading)
    return Agreement("वह", verb.host_gender or "m")


def _dummy(phrase: Phrase) -> bool:
    """The "it" of the weather and the hour, which Hindi does without."""
    return isinstance(phrase.head, Pronoun) and phrase.head.subject == "it" and phrase.gender is None


def _points(phrase: Phrase) -> bool:
    return isinstance(phrase.head, Pronoun) and phrase.head.subject in ("this", "that", "these", "those")


def _marked(clause: Clause, reading: Reading) -> bool:
    """Whether the object takes को: a person, or an animal one knows; any other animal may."""
    what = clause.object
    if what is None or clause.verb.subject_case not in ("-", "ने") or "thing" in clause.verb.marks:
        return False
    if isinstance(what.head, Pronoun):
        return what.head.subject != "what"
    if what.head.kinds & {"person", "agent"}:
        return True
    if "animal" not in what.head.kinds:
        return False
    pointed = what.determiner is not None and what.determiner.english[0] in ("this", "that", "these", "those")
    known = what.article == "the" or what.possessor is not None or pointed
    return known or reading.choose(f"को {id(what)}", (False, True))


def clause(meaning: Clause, path: str, reading: Reading) -> list[Word]:
    if meaning.mood in ("command", "please", "let us"):
        return _command(meaning, path, reading)
    parts = _parts(meaning, path, reading)
    subject, asked = _subject(parts), meaning.asked
    late: list[Word] = []
    if asked in QUESTION_WORDS:
        late = [Word(QUESTION_WORDS[asked], (f"{path}w",))]
    whole = meaning.modal in ("like", "have", "should")  # किसे अंडे पकाना पसंद है: object and infinitive stay together
    if asked == "subject" and not reading.choose("who comes first", (True, False) if whole else (False, True)):
        subject, late = [], subject
    opening = [Word("क्या", (f"{path}q",))] if meaning.mood == "question" and not asked else []
    if meaning.there:  # the place comes first: मेज़ पर एक किताब है
        return [*opening, *_adjuncts(parts, ("when",)), *_complement(parts), *subject, *_verb(parts)]
    middle, verb, complement = _middle(parts), _verb(parts), _complement(parts)
    if _keeps_host(meaning) or (late and meaning.verb.host_gender and reading.choose("host first", (False, True))):
        middle, verb = [*middle, verb[0]], verb[1:]  # फ़ोन कब किया is as good as कब फ़ोन किया
    manner = _adjuncts(parts, ("manner",))
    if bool(late and manner) and reading.choose("manner first", (False, True)):  # मेहनत से कब काम किया
        late, manner = manner, late
    return [*opening, *subject, *middle, *late, *manner, *complement, *verb]


def _keeps_host(meaning: Clause) -> bool:
    """Whether nothing may come before the host: what is felt or tasted, or what has a genitive (मीरा की मदद किसने की)."""
    verb = meaning.verb
    felt = verb.subject_case in ("को", "का") and not meaning.object
    return verb.host_gender is not None and (felt or verb.object_case == "का")


def _middle(parts: Parts) -> list[Word]:
    """Between the subject and what stands at the verb."""
    into, what = _adjuncts(parts, ("into",)), _object(parts)
    if bool(into) and parts.context.reading.choose("where to first", (False, True)):  # मेज़ पर किताब रखी
        into, what = what, into
    when, often = _adjuncts(parts, ("when",)), _adjuncts(parts, ("often",))
    if bool(when and often) and parts.context.reading.choose("how often first", (False, True)):
        when, often = often, when
    around = _adjuncts(parts, ("place", "company", "source", "for", "tool"))
    return [*when, *often, *around, *_recipient(parts), *what, *into]


def _subject(parts: Parts) -> list[Word]:
    meaning, path = parts.clause, f"{parts.path}s"
    if meaning.silent_subject or _dummy(meaning.subject):
        return []
    context = replace(parts.context, subject=None)
    if parts.subject_case == "का":
        return genitive(meaning.subject, path, context, parts.agrees, False, f"{path}.of")
    return noun_phrase(meaning.subject, path, context, parts.subject_case)


def _object(parts: Parts) -> list[Word]:
    meaning, path = parts.clause, f"{parts.path}o"
    if not meaning.object:
        return []
    mark, context = f"{parts.path}pre", parts.context
    if isinstance(meaning.object.head, Noun) and "illness" in meaning.object.head.kinds:
        context = replace(context, one=("",))
    case = meaning.verb.object_case
    if case == "O":
        return noun_phrase(meaning.object, path, context, "को" if _marked(meaning, context.reading) else "")
    if case == "का":
        host = Agreement("वह", meaning.verb.host_gender or "m")
        if isinstance(meaning.object.head, Pronoun):  # "they waited for them" is not for themselves
            context = replace(context, subject=None)
        return genitive(meaning.object, path, context, host, False, mark)
    return noun_phrase(meaning.object, path, context, case, mark)


def _recipient(parts: Parts) -> list[Word]:
    meaning = parts.clause
    if not meaning.recipient:
        return []
    case = "से" if "asks" in meaning.verb.marks else "को"
    return noun_phrase(meaning.recipient, f"{parts.path}r", parts.context, case, f"{parts.path}r.pre")


def _adjuncts(parts: Parts, kinds: tuple[str, ...]) -> list[Word]:
    return [
        word
        for kind in kinds
        for number, part in enumerate(parts.clause.adjuncts)
        if part.kind == kind
        for word in adjunct(part, f"{parts.path}x{number}", parts.context)
    ]


def adjunct(part: Adjunct, path: str, context: Context) -> list[Word]:
    if part.adverb:
        said = context.reading.choose(f"adverb {path}", (part.adverb.hindi, *part.adverb.others))
        return [Word(text, tuple(f"{path}.{i}" for i in numbers)) for text, numbers in said]
    assert part.phrase
    if not part.preposition:
        return noun_phrase(part.phrase, path, context)
    post = " ".join(text for text, _ in part.preposition.hindi)
    return noun_phrase(part.phrase, path, context, post, f"{path}.pre")


def _complement(parts: Parts) -> list[Word]:
    meaning, path = parts.clause, f"{parts.path}c"
    what, agrees = meaning.complement, parts.agrees
    if meaning.asked == "how":
        return [Word(adjective_form("कैसा", agrees.gender, agrees.plural), (f"{parts.path}w",))]
    if isinstance(what, Quality):
        return _quality(what, path, parts)
    if isinstance(what, Adjunct):
        return adjunct(what, path, parts.context)
    if isinstance(what, Measure):
        return _measure(what, path, agrees)
    if isinstance(what, Phrase):
        return _predicate_noun(what, path, parts)
    return []


def _predicate_noun(what: Phrase, path: str, parts: Parts) -> list[Word]:
    subject, context = parts.clause.subject, parts.context
    if not _points(subject) and not what.adjective and not parts.clause.negative:
        context = replace(context, one=("", "एक"))
    if isinstance(what.head, Noun) and len(what.head.genders) == 2 and not _points(subject):
        what = replace(what, gender=parts.agrees.gender)  # मीरा शिक्षिका है
    if parts.agrees.plural and not what.plural and isinstance(what.head, Noun) and not _points(subject):
        what = replace(what, respect=True)  # आप उसके भाई हैं
    return noun_phrase(what, path, replace(context, subject=None))


def _quality(what: Quality, path: str, parts: Parts) -> list[Word]:
    words = adjective_words(what.adjective, path, parts.agrees)
    if what.than:
        than = noun_phrase(what.than, f"{path}.than", parts.context, "से", f"{path}.from")
        more = parts.context.reading.choose("more", _more(what))
        return [*than, *([Word(more, (f"{path}.more",))] if more else []), *words]
    return [Word("बहुत", (f"{path}.very",)), *words] if what.very else words


def _more(what: Quality) -> tuple[str, ...]:
    """बेहतर is a comparative in itself; सुंदर, for "more beautiful", usually says ज़्यादा."""
    if what.adjective.hindi[0][0] == "बेहतर":
        return ("",)
    more = len(comparative(what.adjective)) > 1
    return ("ज़्यादा", "") if more else ("", "ज़्यादा")


def _measure(what: Measure, path: str, agrees: Agreement) -> list[Word]:
    of = Word(adjective_form("का", agrees.gender, agrees.plural), (f"{path}.old",))
    unit = Word(noun_form(what.unit.hindi[0], "m", True, False), (path,) if what.count else (f"{path}.old",))
    if what.count:
        return [*(Word(text, (f"{path}.count",)) for text, _ in what.count.hindi), unit, of]
    how = Word("कितने", (f"{path}.count",))
    return [how, of] if what.unit.english == "rupee" else [how, unit, of]


def _no(parts: Parts) -> list[Word]:
    if not parts.negative:
        return []
    never = [
        f"{parts.path}x{i}.0" for i, a in enumerate(parts.clause.adjuncts) if a.adverb and "never" in a.adverb.groups
    ]
    return [Word("नहीं", tuple(never) or (f"{parts.path}n",))]


def _verb(parts: Parts) -> list[Word]:
    """Host, negation, verb and auxiliary."""
    meaning, v, t = parts.clause, f"{parts.path}v", f"{parts.path}t"
    root, host = meaning.verb.root, [Word(meaning.verb.host, (v,))] if meaning.verb.host else []
    no = _no(parts)
    if meaning.modal:
        return [*host, *_modal(parts, root, no)]
    if root == "है":
        return [*host, *no, Word(_copula(meaning.tense, parts.agrees), (t,) if host else (v, t))]
    if root == "चाहिए":
        was = [Word(PAST_BE[parts.agrees.key], (t,))] if meaning.tense == "past" else []
        return [*no, Word(root, (v, t)), *was]
    return [*host, *no, *_conjugated(parts, root, v)]


def _copula(tense: str, agrees: Agreement) -> str:
    if tense == "future":
        return future("हो", agrees)
    return PAST_BE[agrees.key] if tense in ("past", "used") else PRESENT_BE[agrees.person]


def _conjugated(parts: Parts, root: str, mark: str) -> list[Word]:
    """A root in the tense of the clause; the last word bears the tense."""
    agrees, t = parts.agrees, f"{parts.path}t"
    auxiliary = {"present": PRESENT_BE[agrees.person], "past": PAST_BE[agrees.key], "": ""}[parts.auxiliary]
    if parts.participle == "habitual" and parts.auxiliary == "present" and parts.negative:
        # नहीं खाता, rather than नहीं खाता है: both are right.
        auxiliary = parts.context.reading.choose(f"auxiliary {parts.path}", ("", auxiliary))
    last = not auxiliary
    if parts.participle == "future":
        words = [future(root, agrees)]
    elif parts.participle == "habitual":
        words = [habitual(root, *agrees.key, last=last)]
    elif parts.participle == "perfective":
        words = [perfective(root, *agrees.key, last=last)]
    else:
        words = [root, perfective("रह", *agrees.key, last=last)]
    marked = [Word(text, (mark,)) for text in words]
    if auxiliary:
        return [*marked, Word(auxiliary, (t,))]
    return [*marked[:-1], Word(words[-1], (mark, t))]


def _modal(parts: Parts, root: str, no: list[Word]) -> list[Word]:
    meaning, agrees = parts.clause, parts.agrees
    v, m, t = f"{parts.path}v", f"{parts.path}m", f"{parts.path}t"
    if meaning.modal == "can":  # पढ़ सकता है
        return [*no, Word(root, (v,)), *_conjugated(parts, "सक", m)]
    if meaning.modal == "want":  # पढ़ना चाहता है, चाहता था
        wanting = replace(parts, participle="habitual", auxiliary="past" if meaning.tense == "past" else "present")
        to_do = Word(infinitive(root), (v,))
        before = bool(no) and parts.context.reading.choose("not before", (False, True))  # नहीं पढ़ना चाहता is right too
        return [*([*no, to_do] if before else [to_do, *no]), *_conjugated(wanting, "चाह", m)]
    if meaning.modal == "start":  # पढ़ने लगा
        return [*no, Word(infinitive(root, oblique=True), (v,)), Word(perfective("लग", *agrees.key), (m, t))]
    if meaning.modal == "like":  # पढ़ना पसंद है
        liked = Word("था" if meaning.tense == "past" else "है", (t,))
        return [Word(infinitive(root), (v,)), Word("पसंद", (m,)), *no, liked]
    to_do = Word(infinitive(root, *agrees.key), (v,))
    if meaning.modal == "should":  # पढ़नी चाहिए
        return [*no, to_do, Word("चाहिए", (m, t))]
    must = perfective("पड़", *agrees.key) if meaning.tense == "past" else PRESENT_BE[agrees.person]
    return [*no, to_do, Word(must, (m, t))]  # पढ़नी है, पढ़नी पड़ी


def _command(meaning: Clause, path: str, reading: Reading) -> list[Word]:
    level = "आप" if meaning.mood == "please" else reading.choose("you", ("आप", "तुम", "तू"), COMMAND_WEIGHTS)
    context = Context(reading, meaning.subject, ("", "एक") if meaning.negative else ("एक", ""))
    parts = Parts(meaning, path, context, "", "", "", Agreement())
    v, root = f"{path}v", meaning.verb.root
    opening: list[Word] = []
    text = command(root, level)
    if meaning.mood == "please":
        opening = [Word("कृपया", (f"{path}please",))]
        text = reading.choose("polite", (text, subjunctive(root, "आप")))
    if meaning.mood == "let us":
        opening = [Word({"आप": "आइए", "तुम": "आओ", "तू": "आ"}[level], (f"{path}let",))]
        text = subjunctive(root, "हम")
    never = ("न", "मत") if meaning.mood == "please" else ("मत", "न")
    no = [Word(reading.choose("not", never), (f"{path}n",))] if meaning.negative else []
    host = [Word(meaning.verb.host, (v,))] if meaning.verb.host else []
    manner = _adjuncts(parts, ("manner",))
    before = [*host, *manner] if _keeps_host(meaning) else [*manner, *host]
    return [*opening, *_middle(parts), *before, *no, Word(text, (v,))]


def sentence(meaning: Meaning, reading: Reading) -> list[Word]:
    end = "?" if isinstance(meaning, Clause) and meaning.mood == "question" else "।"
    return [*_joined(meaning, "", reading), Word(end, ("end",))]


def _joined(meaning: Meaning, path: str, reading: Reading) -> list[Word]:
    if not isinstance(meaning, Joined):
        return clause(meaning, path, reading)
    before, between = CONJUNCTIONS[meaning.conjunction]
    opening = [Word(before, (f"{path}before",))] if before else []
    word = "before" if before else "joint"
    joint = [Word(text, (f"{path}{'comma' if text == ',' else word}",)) for text in between.split()]
    first, second = _joined(meaning.first, f"{path}1", reading), _joined(meaning.second, f"{path}2", reading)
    return [*opening, *first, *joint, *second]
