"""Realises Hindi verbs: conjugation with the auxiliary that carries the tense, negation and modals."""

from dataclasses import dataclass, replace

from grammar.hindi_noun_phrases import Context
from grammar.meaning import (
    Clause,
    Word,
)
from grammar.morphology import (
    PAST_BE,
    PRESENT_BE,
    Agreement,
    future,
    habitual,
    infinitive,
    perfective,
)


@dataclass(frozen=True)
class ClausePlan:
    """A clause with its verb form, the case of its subject, and what the verb agrees with."""

    clause: Clause
    path: str
    context: Context
    participle: str
    auxiliary: str
    subject_case: str
    agreement: Agreement

    @property
    def negative(self) -> bool:
        return self.clause.negative or any(a.adverb and "never" in a.adverb.groups for a in self.clause.adjuncts)


def _negation(plan: ClausePlan) -> list[Word]:
    if not plan.negative:
        return []
    never_ids = [
        f"{plan.path}x{i}.0" for i, a in enumerate(plan.clause.adjuncts) if a.adverb and "never" in a.adverb.groups
    ]
    return [Word("नहीं", tuple(never_ids) or (f"{plan.path}n",))]


def verb_words(plan: ClausePlan) -> list[Word]:
    """Returns host, negation, verb and auxiliary."""
    meaning, v, t = plan.clause, f"{plan.path}v", f"{plan.path}t"
    root, host = meaning.verb.root, [Word(meaning.verb.host, (v,))] if meaning.verb.host else []
    negation = _negation(plan)
    if meaning.modal:
        return [*host, *_modal(plan, root, negation)]
    if root == "है":
        return [*host, *negation, Word(_copula(meaning.tense, plan.agreement), (t,) if host else (v, t))]
    if root == "चाहिए":
        past = [Word(PAST_BE[plan.agreement.key], (t,))] if meaning.tense == "past" else []
        return [*negation, Word(root, (v, t)), *past]
    return [*host, *negation, *_conjugate(plan, root, v)]


def _copula(tense: str, agrees: Agreement) -> str:
    if tense == "future":
        return future("हो", agrees)
    return PAST_BE[agrees.key] if tense in ("past", "used") else PRESENT_BE[agrees.person]


def _conjugate(plan: ClausePlan, root: str, verb_id: str) -> list[Word]:
    """Conjugates a root in the tense of the clause; the last word carries the tense."""
    agrees, t = plan.agreement, f"{plan.path}t"
    auxiliary = {"present": PRESENT_BE[agrees.person], "past": PAST_BE[agrees.key], "": ""}[plan.auxiliary]
    if plan.participle == "habitual" and plan.auxiliary == "present" and plan.negative:
        # नहीं खाता, rather than नहीं खाता है: both are correct.
        auxiliary = plan.context.reading.choose(f"auxiliary {plan.path}", ("", auxiliary))
    last = not auxiliary
    if plan.participle == "future":
        words = [future(root, agrees)]
    elif plan.participle == "habitual":
        words = [habitual(root, *agrees.key, last=last)]
    elif plan.participle == "perfective":
        words = [perfective(root, *agrees.key, last=last)]
    else:
        words = [root, perfective("रह", *agrees.key, last=last)]
    linked = [Word(text, (verb_id,)) for text in words]
    if auxiliary:
        return [*linked, Word(auxiliary, (t,))]
    return [*linked[:-1], Word(words[-1], (verb_id, t))]


def _modal(plan: ClausePlan, root: str, negation: list[Word]) -> list[Word]:
    meaning, agrees = plan.clause, plan.agreement
    v, m, t = f"{plan.path}v", f"{plan.path}m", f"{plan.path}t"
    if meaning.modal == "can":  # पढ़ सकता है
        return [*negation, Word(root, (v,)), *_conjugate(plan, "सक", m)]
    if meaning.modal == "want":  # पढ़ना चाहता है, चाहता था
        wanting = replace(plan, participle="habitual", auxiliary="past" if meaning.tense == "past" else "present")
        infinitive_word = Word(infinitive(root), (v,))
        negation_first = bool(negation) and plan.context.reading.choose(
            "not before", (False, True)
        )  # नहीं पढ़ना चाहता is correct as well
        return [
            *([*negation, infinitive_word] if negation_first else [infinitive_word, *negation]),
            *_conjugate(wanting, "चाह", m),
        ]
    if meaning.modal == "start":  # पढ़ने लगा
        return [*negation, Word(infinitive(root, oblique=True), (v,)), Word(perfective("लग", *agrees.key), (m, t))]
    if meaning.modal == "like":  # पढ़ना पसंद है
        liked = Word("था" if meaning.tense == "past" else "है", (t,))
        return [Word(infinitive(root), (v,)), Word("पसंद", (m,)), *negation, liked]
    infinitive_word = Word(infinitive(root, *agrees.key), (v,))
    if meaning.modal == "should":  # पढ़नी चाहिए
        return [*negation, infinitive_word, Word("चाहिए", (m, t))]
    must = perfective("पड़", *agrees.key) if meaning.tense == "past" else PRESENT_BE[agrees.person]
    return [*negation, infinitive_word, Word(must, (m, t))]  # पढ़नी है, पढ़नी पड़ी
