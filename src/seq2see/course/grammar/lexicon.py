"""The words of the built-in corpus, read from the tables beside this file.

The tables (`tables/*.txt`) are what a linguist edits: one row a word, columns split by "|", explained at the top of each
file. Here they become typed entries, every Hindi string in NFC; a row that cannot be read is an error with its file and
line. Homonyms (bank, apple, mole, play, old) are simply several rows with the same English word.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from seq2see.errors import UserError

Gender = Literal["m", "f"]
# A word of the other language and the numbers (from 0) of the words of this one that it stands for.
Linked = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class Noun:
    english: str
    plural: str
    hindi: tuple[str, ...]  # more than one where English leaves the choice: दादाजी, नानाजी
    feminine: str  # the word for a woman, where there are two: शिक्षिका
    genders: tuple[Gender, ...]
    kinds: frozenset[str]


@dataclass(frozen=True, eq=False)
class Verb:
    section: str
    english: tuple[str, ...]  # base; or base, past and participle where they are irregular
    particle: str  # wake up, be hungry
    preposition: str  # of the object: wait for
    host: str  # the word before the Hindi root: साफ़ (कर), मदद (कर)
    host_gender: Gender | None  # of a noun as host; None for an adjective or no host
    root: str
    subject_case: str
    object_case: str
    subjects: frozenset[str]
    objects: frozenset[str]
    marks: frozenset[str]
    lists: dict[str, tuple[str, ...]]  # at=, how=, because= …

    @property
    def lemma(self) -> str:
        return " ".join(part for part in (self.english[0], self.particle, self.preposition) if part)


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    comparative: str
    hindi: Linked
    kinds: frozenset[str]
    marks: frozenset[str]


@dataclass(frozen=True, eq=False)
class Small:
    """An adverb, preposition, determiner or number."""

    english: tuple[str, ...]
    hindi: Linked
    groups: frozenset[str]
    others: tuple[Linked, ...] = ()  # as right as the first


@dataclass(frozen=True)
class Row:
    place: str
    section: str
    cells: tuple[str, ...]

    def cell(self, number: int) -> str:
        return self.cells[number] if number < len(self.cells) else ""

    def fault(self, what: str) -> UserError:
        return UserError(f"{self.place}: {what}; see the explanation at the top of that file")


def rows(table: str, section: str = "", width: int = 1) -> Iterator[Row]:
    """The rows of a table, or of one section of it, each with at least `width` filled columns."""
    text = files(__package__).joinpath("tables", table).read_text(encoding="utf-8")
    inside, heading = not section, ""
    for number, line in enumerate(unicodedata.normalize("NFC", text).splitlines(), start=1):
        if line.startswith("["):
            heading = line.strip(" []")
            inside = section in ("", heading)
        elif inside and line.strip() and not line.startswith("#"):
            row = Row(f"{table}, line {number}", heading, tuple(cell.strip() for cell in line.split("|")))
            filled = sum(1 for cell in row.cells[:width] if cell)
            if filled < width:
                raise row.fault(f"{filled} of the first {width} columns are filled")
            yield row


def linked(row: Row, english: tuple[str, ...], hindi: str) -> Linked:
    """The Hindi words of a phrase with the English words they stand for: "पीने/2,3 लायक/1"."""
    words = [word.partition("/") for word in hindi.replace("_", " ").split()]
    everything = tuple(range(len(english)))
    links: list[tuple[str, tuple[int, ...]]] = []
    for position, (word, slash, numbers) in enumerate(words):
        if slash:
            chosen = tuple(int(number) - 1 for number in numbers.split(",") if number)
            if any(not 0 <= number < len(english) for number in chosen):
                raise row.fault(f'"{word}/{numbers}" points outside the {len(english)} words of "{" ".join(english)}"')
            links.append((word, chosen))
        else:
            links.append((word, (position,) if len(words) == len(english) else everything))
    return tuple(links)


@cache
def nouns() -> tuple[Noun, ...]:
    return tuple(_noun(row) for row in rows("nouns.txt", width=3))


def _noun(row: Row) -> Noun:
    english, *irregular = row.cell(0).split()
    if row.cell(2) not in ("m", "f", "mf"):
        raise row.fault(f'gender "{row.cell(2)}" is not m, f or mf')
    genders: tuple[Gender, ...] = ("m", "f") if row.cell(2) == "mf" else ("m",) if row.cell(2) == "m" else ("f",)
    masculine, _, feminine = row.cell(1).partition(" / ")
    return Noun(
        english=english.replace("_", " "),
        plural=irregular[0] if irregular else "",
        hindi=tuple(word.strip().replace("_", " ") for word in masculine.split("~")),
        feminine=feminine.strip(),
        genders=genders,
        kinds=frozenset(row.cell(3).split()) | {english},
    )


@cache
def verbs() -> tuple[Verb, ...]:
    return tuple(_verb(row) for row in rows("verbs.txt", width=4))


def _verb(row: Row) -> Verb:
    words = row.cell(0).split()
    forms = tuple(word for word in words if word[0] not in "+>")
    particle = " ".join(word[1:] for word in words if word[0] == "+").replace("_", " ")
    if forms[0] == "be":
        forms, particle = ("be",), " ".join(forms[1:])
    *host, root = row.cell(1).split()
    noun, _, gender = (host[0] if host else "").partition(":")
    subject_case, _, object_case = row.cell(2).partition(" ")
    known = {"-", "ने", "को", "का", "के_पास"}
    if subject_case not in known or gender not in ("", "m", "f"):
        raise row.fault(
            f'subject case "{subject_case}" is not one of {", ".join(sorted(known))}, or bad gender "{gender}"'
        )
    marks = row.cell(5).split()
    return Verb(
        section=row.section,
        english=forms,
        particle=particle,
        preposition=next((word[1:] for word in words if word[0] == ">"), ""),
        host=noun,
        host_gender="m" if gender == "m" else "f" if gender == "f" else None,
        root=root,
        subject_case=subject_case.replace("_", " "),
        object_case=object_case.strip().replace("_", " "),
        subjects=frozenset(row.cell(3).split()),
        objects=frozenset(row.cell(4).split()),
        marks=frozenset(mark for mark in marks if "=" not in mark),
        lists={
            name: tuple(values.replace("_", " ").split(","))
            for name, _, values in (m.partition("=") for m in marks if "=" in m)
        },
    )


@cache
def adjectives() -> tuple[Adjective, ...]:
    return tuple(_adjective(row) for row in rows("adjectives.txt", width=3))


def _adjective(row: Row) -> Adjective:
    english, *irregular = row.cell(0).split()
    words = tuple(english.split("_"))
    hindi = row.cell(1)
    # One English word for several Hindi ones (टूटा हुआ) stands for all of them.
    return Adjective(
        english=" ".join(words),
        comparative=irregular[0] if irregular else "",
        hindi=linked(row, words, hindi),
        kinds=frozenset(row.cell(2).split()),
        marks=frozenset(row.cell(3).split()),
    )


@cache
def small(section: str) -> tuple[Small, ...]:
    return tuple(_small(row) for row in rows("small.txt", section, width=2))


def _small(row: Row) -> Small:
    english = tuple(row.cell(0).split("_"))
    first, *others = (linked(row, english, said) for said in row.cell(1).split("~"))
    return Small(english, first, frozenset(row.cell(2).split()), tuple(others))


@cache
def of_kind(kind: str) -> tuple[Noun, ...]:
    found = tuple(noun for noun in nouns() if kind in noun.kinds)
    if not found:
        raise UserError(
            f'no noun in nouns.txt is of the kind "{kind}": add it to a row there, or correct who asks for it'
        )
    return found


def noun(english: str, kind: str = "") -> Noun:
    """The noun of that English word; where there are several, the one of that kind."""
    return next(entry for entry in of_kind(kind or english) if entry.english == english)


def word(section: str, english: str) -> Small:
    return next(entry for entry in small(section) if " ".join(entry.english) == english)
