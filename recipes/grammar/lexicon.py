"""The words of the built-in corpus, read from the tables next to this file.

The tables (`tables/*.txt`) are for linguists to edit: one row per word, columns separated by "|", documented at the top of
each file. Here they become typed entries with every Hindi string in NFC; an invalid row is an error that names file and
line. Homonyms (bank, apple, mole, play, old) are several rows with the same English word.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from seq2see.errors import UserError

Gender = Literal["m", "f"]
# Hindi words, each with the indices (from 0) of the English words it translates.
LinkedWords = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class Noun:
    english: str
    plural: str
    hindi: tuple[str, ...]  # several if English does not distinguish them: दादाजी, नानाजी
    feminine: str  # the feminine word, if there is one: शिक्षिका
    genders: tuple[Gender, ...]
    kinds: frozenset[str]


@dataclass(frozen=True, eq=False)
class Verb:
    section: str
    english: tuple[str, ...]  # base; or base, past and participle if irregular
    particle: str  # wake up, be hungry
    preposition: str  # of the object: wait for
    host: str  # the first word of a Hindi compound verb: साफ़ (कर), मदद (कर)
    host_gender: Gender | None  # None if the host is not a noun
    root: str
    subject_case: str
    object_case: str
    subjects: frozenset[str]
    objects: frozenset[str]
    features: frozenset[str]
    attributes: dict[str, tuple[str, ...]]  # at=, how=, because= …

    @property
    def lemma(self) -> str:
        return " ".join(part for part in (self.english[0], self.particle, self.preposition) if part)


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    comparative: str
    hindi: LinkedWords
    kinds: frozenset[str]
    features: frozenset[str]


@dataclass(frozen=True, eq=False)
class FunctionWord:
    """An adverb, preposition, determiner or number."""

    english: tuple[str, ...]
    hindi: LinkedWords
    groups: frozenset[str]
    alternatives: tuple[LinkedWords, ...] = ()  # equally correct


@dataclass(frozen=True)
class TableRow:
    location: str
    section: str
    cells: tuple[str, ...]

    def cell(self, number: int) -> str:
        return self.cells[number] if number < len(self.cells) else ""

    def error(self, problem: str) -> UserError:
        return UserError(f"{self.location}: {problem}; the columns are documented at the top of that file")


def read_rows(table: str, section: str = "", width: int = 1) -> Iterator[TableRow]:
    """Yields the rows of a table or of one section of it; the first `width` columns must be filled."""
    text = files(__package__).joinpath("tables", table).read_text(encoding="utf-8")
    inside, heading = not section, ""
    for number, line in enumerate(unicodedata.normalize("NFC", text).splitlines(), start=1):
        if line.startswith("["):
            heading = line.strip(" []")
            inside = section in ("", heading)
        elif inside and line.strip() and not line.startswith("#"):
            row = TableRow(f"{table}, line {number}", heading, tuple(cell.strip() for cell in line.split("|")))
            filled = sum(1 for cell in row.cells[:width] if cell)
            if filled < width:
                raise row.error(f"{filled} of the first {width} columns are filled")
            yield row


def parse_linked(row: TableRow, english: tuple[str, ...], hindi: str) -> LinkedWords:
    """Parses Hindi words with the numbers of the English words they translate: "पीने/2,3 लायक/1"."""
    words = [word.partition("/") for word in hindi.replace("_", " ").split()]
    all_words = tuple(range(len(english)))
    links: list[tuple[str, tuple[int, ...]]] = []
    for position, (word, slash, numbers) in enumerate(words):
        if slash:
            indices = tuple(int(number) - 1 for number in numbers.split(",") if number)
            if any(not 0 <= index < len(english) for index in indices):
                raise row.error(f'"{word}/{numbers}" exceeds the {len(english)} words of "{" ".join(english)}"')
            links.append((word, indices))
        else:
            links.append((word, (position,) if len(words) == len(english) else all_words))
    return tuple(links)


@cache
def nouns() -> tuple[Noun, ...]:
    return tuple(_noun(row) for row in read_rows("nouns.txt", width=3))


def _noun(row: TableRow) -> Noun:
    english, *irregular = row.cell(0).split()
    if row.cell(2) not in ("m", "f", "mf"):
        raise row.error(f'gender "{row.cell(2)}" is not m, f or mf')
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
    return tuple(_verb(row) for row in read_rows("verbs.txt", width=4))


def _verb(row: TableRow) -> Verb:
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
        raise row.error(
            f'subject case "{subject_case}" is not one of {", ".join(sorted(known))}, or gender "{gender}" is not m or f'
        )
    features = row.cell(5).split()
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
        features=frozenset(feature for feature in features if "=" not in feature),
        attributes={
            name: tuple(values.replace("_", " ").split(","))
            for name, _, values in (feature.partition("=") for feature in features if "=" in feature)
        },
    )


@cache
def adjectives() -> tuple[Adjective, ...]:
    return tuple(_adjective(row) for row in read_rows("adjectives.txt", width=3))


def _adjective(row: TableRow) -> Adjective:
    english, *irregular = row.cell(0).split()
    words = tuple(english.split("_"))
    hindi = row.cell(1)
    return Adjective(
        english=" ".join(words),
        comparative=irregular[0] if irregular else "",
        hindi=parse_linked(row, words, hindi),
        kinds=frozenset(row.cell(2).split()),
        features=frozenset(row.cell(3).split()),
    )


@cache
def function_words(section: str) -> tuple[FunctionWord, ...]:
    return tuple(_function_word(row) for row in read_rows("function_words.txt", section, width=2))


def _function_word(row: TableRow) -> FunctionWord:
    english = tuple(row.cell(0).split("_"))
    first, *alternatives = (parse_linked(row, english, hindi) for hindi in row.cell(1).split("~"))
    return FunctionWord(english, first, frozenset(row.cell(2).split()), tuple(alternatives))


@cache
def of_kind(kind: str) -> tuple[Noun, ...]:
    matching = tuple(noun for noun in nouns() if kind in noun.kinds)
    if not matching:
        raise UserError(
            f'no noun in nouns.txt has the kind "{kind}": add it to a row, or correct the row that refers to it'
        )
    return matching


def noun(english: str, kind: str = "") -> Noun:
    """Returns the noun with that English word; `kind` selects among homonyms."""
    return next(entry for entry in of_kind(kind or english) if entry.english == english)


def word(section: str, english: str) -> FunctionWord:
    return next(entry for entry in function_words(section) if " ".join(entry.english) == english)
