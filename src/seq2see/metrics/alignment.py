"""Word alignments against gold ones: the alignment error rate of Och and Ney (2003).

Annotators mark links that are sure, S, and others that are possible; every sure link is possible as well, so S ⊆ P. Of an
alignment A,

    precision = |A ∩ P| / |A|     recall = |A ∩ S| / |S|     AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from seq2see.errors import UserError
from seq2see.text.formats.lines import lines
from seq2see.text.word_spans import Split, marks_apart

Link = tuple[int, int]

_LINK = re.compile(r"(\d+)([-p?])(\d+)")
_ROW = re.compile(r"0*(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?\s*")


@dataclass(frozen=True)
class Gold:
    """The links of one pair, (source word, target word); `possible` has the sure ones too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScores:
    aer: float
    precision: float
    recall: float
    links: int


def alignment_scores(found: Iterable[Iterable[Link]], golds: Iterable[Gold]) -> AlignmentScores:
    """Over all pairs together."""
    links = sure = in_sure = in_possible = 0
    for pair, gold in zip(found, golds, strict=True):
        a = set(pair)
        links, sure = links + len(a), sure + len(gold.sure)
        in_sure, in_possible = in_sure + len(a & gold.sure), in_possible + len(a & gold.possible)
    return AlignmentScores(
        1 - (in_sure + in_possible) / max(links + sure, 1), in_possible / max(links, 1), in_sure / max(sure, 1), links
    )


@dataclass(frozen=True)
class GoldPairs:
    """Sentence pairs with their gold alignments, and how words are counted in them."""

    pairs: tuple[tuple[str, str], ...]
    golds: tuple[Gold, ...]
    split: Split

    @classmethod
    def read(cls, path: Path, pairs: Sequence[tuple[str, str]], split: Split = marks_apart) -> Self:
        sizes = [(len(split(source)), len(split(target))) for source, target in pairs]
        return cls(tuple(pairs), tuple(read_gold(path, sizes)), split)


def read_gold(path: Path, sizes: Sequence[tuple[int, int]]) -> list[Gold]:
    """Gold alignments of pairs with so many words each, counted from 0 or from 1 in the file.

    Pharaoh's form has a line a pair, `0-1` for a sure link and `1p2` or `1?2` for a possible one; the other one has a line
    a link, `0001 1 2 P`.
    """
    text = [line or "" for line in lines(path)]
    pairs = _by_rows(path, text, len(sizes)) if _ROW.fullmatch(text[0]) else _by_lines(path, text, len(sizes))
    return _counted_from_zero(path, pairs, sizes)


def _by_lines(path: Path, text: Sequence[str], count: int) -> list[Gold]:
    if len(text) != count:
        raise UserError(f"{path} aligns {len(text):,} pairs, but there are {count:,}: they must be the same sentences")
    golds = []
    for number, line in enumerate(text, 1):
        links = [_LINK.fullmatch(link) for link in line.split()]
        if None in links:
            wrong = line.split()[links.index(None)]
            raise UserError(f'{path}, line {number:,}: "{wrong}" is no link: write 0-1, or 0p1 for a possible one')
        golds.append(_gold((int(m[1]), int(m[3]), m[2] == "-") for m in links if m))
    return golds


def _by_rows(path: Path, text: Sequence[str], count: int) -> list[Gold]:
    rows: list[list[tuple[int, int, bool]]] = [[] for _ in range(count)]
    for number, line in enumerate(text, 1):
        match = _ROW.fullmatch(line)
        if match is None:
            raise UserError(f'{path}, line {number:,}: "{line[:40]}" is no link: write PAIR SOURCE TARGET S or P')
        pair = int(match[1])
        if not 1 <= pair <= count:
            raise UserError(f"{path}, line {number:,}: a link of pair {pair:,}, but there are {count:,}")
        rows[pair - 1].append((int(match[2]), int(match[3]), match[4] != "P"))
    return [_gold(row) for row in rows]


def _gold(links: Iterable[tuple[int, int, bool]]) -> Gold:
    links = list(links)
    return Gold(frozenset((i, j) for i, j, sure in links if sure), frozenset((i, j) for i, j, _ in links))


def _counted_from_zero(path: Path, golds: Sequence[Gold], sizes: Sequence[tuple[int, int]]) -> list[Gold]:
    """A word 0 shows that a file counts from 0; without one, a word of the sentence's length that it counts from 1."""
    zero = any(0 in link for gold in golds for link in gold.possible)
    beyond = any(i == m or j == n for gold, (m, n) in zip(golds, sizes, strict=True) for i, j in gold.possible)
    first = int(beyond and not zero)
    for number, (gold, (m, n)) in enumerate(zip(golds, sizes, strict=True), 1):
        for i, j in sorted(gold.possible):
            if i - first >= m or j - first >= n:
                raise UserError(
                    f"{path}: pair {number:,} has a link {i}-{j} (words from {first}), but {m} words in the source and {n} "
                    "in the target: is it the other way round, or are words counted otherwise (--words)?"
                )
    down = [[frozenset((i - first, j - first) for i, j in links) for links in (g.sure, g.possible)] for g in golds]
    return [Gold(sure, possible) for sure, possible in down]
