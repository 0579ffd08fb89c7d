"""Phrases and clauses for the tests of the grammar."""

import unicodedata

from grammar import hindi_clauses
from grammar.corpus import join
from grammar.lexicon import noun, verbs
from grammar.meaning import Clause, NounPhrase, Tense
from grammar.readings import Reading


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def hindi(clause: Clause, choices: tuple[int, ...] = ()) -> str:
    return join(hindi_clauses.sentence(clause, Reading(choices)))


def the(name: str, plural: bool = False, kind: str = "") -> NounPhrase:
    return NounPhrase(noun(name, kind), plural, "the")


def make_clause(
    lemma: str, subject: NounPhrase, obj: NounPhrase | None = None, tense: Tense = "past", root: str = ""
) -> Clause:
    entry = next(entry for entry in verbs() if entry.lemma == lemma and (not root or entry.root == root))
    return Clause(entry, subject, obj, tense=tense)
