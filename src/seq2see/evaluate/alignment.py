"""Scores word alignments against gold alignments: the alignment error rate (AER) of Och and Ney (2003), of each head.

Annotators mark sure links, S, and possible links, P; every sure link is also possible, so S ⊆ P. For an alignment A,

    precision = |A ∩ P| / |A|     recall = |A ∩ S| / |S|     AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from seq2see.data.lines import read_lines
from seq2see.data.word_spans import WordSplitter, wordpunct_spans
from seq2see.errors import UserError
from seq2see.inspect.alignment import LayerHead, LayerHeads, align_with, all_layer_heads
from seq2see.storage.pipeline import Pipeline

Link = tuple[int, int]

_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})")
_ROW = re.compile(r"0*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})(?:\s+([SP]))?\s*")


@dataclass(frozen=True)
class GoldAlignment:
    """Links (source word, target word) of one sentence pair; `possible` includes the sure ones."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScores:
    aer: float
    precision: float
    recall: float
    links: int


@dataclass(frozen=True)
class HeadScores:
    layer_head: LayerHead
    scores: AlignmentScores


def alignment_scores(alignments: Iterable[Iterable[Link]], golds: Iterable[GoldAlignment]) -> AlignmentScores:
    """Scores all pairs together."""
    links = sure = in_sure = in_possible = 0
    for predicted, gold in zip(alignments, golds, strict=True):
        a = set(predicted)
        links, sure = links + len(a), sure + len(gold.sure)
        in_sure, in_possible = in_sure + len(a & gold.sure), in_possible + len(a & gold.possible)
    return AlignmentScores(
        1 - (in_sure + in_possible) / max(links + sure, 1), in_possible / max(links, 1), in_sure / max(sure, 1), links
    )


@dataclass(frozen=True)
class GoldPairs:
    """Sentence pairs with their gold alignments and the word splitter that defines word indices."""

    pairs: tuple[tuple[str, str], ...]
    golds: tuple[GoldAlignment, ...]
    split: WordSplitter

    @classmethod
    def read(cls, path: Path, pairs: Sequence[tuple[str, str]], split: WordSplitter = wordpunct_spans) -> Self:
        sizes = [(len(split(source)), len(split(target))) for source, target in pairs]
        return cls(tuple(pairs), tuple(read_gold(path, sizes)), split)


def alignment_by_head(model: Pipeline, gold: GoldPairs) -> list[HeadScores]:
    """Scores the word alignments of each layer's cross-attention: the mean over its heads, and every head."""
    heads = all_layer_heads(model)
    scores = _scores(model, gold, [(head,) for head in heads])
    return [HeadScores(head, one) for head, one in zip(heads, scores, strict=True)]


def best_heads(model: Pipeline, gold: GoldPairs, max_heads: int = 8) -> tuple[LayerHeads, float]:
    """Returns the heads, of any layer, whose mean aligns gold pairs best, and their error rate.

    Heads are ranked by their own error rates, and the first n are averaged, for the best n. Report results on other pairs
    than those used here.
    """
    single = [one for one in alignment_by_head(model, gold) if one.layer_head.head is not None]
    ranked = tuple(one.layer_head for one in sorted(single, key=lambda one: one.scores.aer))
    candidates = [ranked[:n] for n in range(1, max_heads + 1)]
    rates = [scores.aer for scores in _scores(model, gold, candidates)]
    best = min(range(len(rates)), key=rates.__getitem__)
    return candidates[best], rates[best]


def _scores(model: Pipeline, gold: GoldPairs, heads: Sequence[LayerHeads]) -> list[AlignmentScores]:
    return [alignment_scores(links, gold.golds) for links in align_with(model, gold.pairs, heads, gold.split)]


def read_gold(path: Path, sizes: Sequence[tuple[int, int]]) -> list[GoldAlignment]:
    """Reads gold alignments of pairs with `sizes` words; the file may count words from 0 or from 1.

    Pharaoh format has one line per pair, with `0-1` for a sure link and `1p2` or `1?2` for a possible one; the other format
    has one line per link, `0001 1 2 P`.
    """
    lines = [line or "" for line in read_lines(path)]
    parse = _parse_link_per_line if _ROW.fullmatch(lines[0]) else _parse_pair_per_line
    return _zero_based(path, parse(path, lines, len(sizes)), sizes)


def _parse_pair_per_line(path: Path, lines: Sequence[str], count: int) -> list[GoldAlignment]:
    if len(lines) != count:
        raise UserError(f"{path} aligns {len(lines):,} pairs, but there are {count:,}: they must be the same sentences")
    golds = []
    for number, line in enumerate(lines, 1):
        links = [_LINK.fullmatch(link) for link in line.split()]
        if None in links:
            invalid = line.split()[links.index(None)]
            raise UserError(
                f'{path}, line {number:,}: "{invalid}" is not a link: write 0-1, or 0p1 for a possible link'
            )
        golds.append(_gold((int(m[1]), int(m[3]), m[2] == "-") for m in links if m))
    return golds


def _parse_link_per_line(path: Path, lines: Sequence[str], count: int) -> list[GoldAlignment]:
    rows: list[list[tuple[int, int, bool]]] = [[] for _ in range(count)]
    for number, line in enumerate(lines, 1):
        match = _ROW.fullmatch(line)
        if match is None:
            raise UserError(f'{path}, line {number:,}: "{line[:40]}" is not a link: write PAIR SOURCE TARGET S or P')
        pair = int(match[1])
        if not 1 <= pair <= count:
            raise UserError(f"{path}, line {number:,}: a link of pair {pair:,}, but there are {count:,} pairs")
        rows[pair - 1].append((int(match[2]), int(match[3]), match[4] != "P"))
    return [_gold(row) for row in rows]


def _gold(links: Iterable[tuple[int, int, bool]]) -> GoldAlignment:
    links = list(links)
    return GoldAlignment(frozenset((i, j) for i, j, sure in links if sure), frozenset((i, j) for i, j, _ in links))


def _zero_based(path: Path, golds: Sequence[GoldAlignment], sizes: Sequence[tuple[int, int]]) -> list[GoldAlignment]:
    """Infers the base: an index 0 means the file counts from 0; otherwise an index equal to the length means from 1."""
    has_zero = any(0 in link for gold in golds for link in gold.possible)
    reaches_length = any(i == m or j == n for gold, (m, n) in zip(golds, sizes, strict=True) for i, j in gold.possible)
    base = int(reaches_length and not has_zero)
    for number, (gold, (m, n)) in enumerate(zip(golds, sizes, strict=True), 1):
        for i, j in sorted(gold.possible):
            if i - base >= m or j - base >= n:
                raise UserError(
                    f"{path}: pair {number:,} has a link {i}-{j} (counted from {base}), but {m} source and {n} target words: "
                    "swap source and target, or choose how words are split (--words)"
                )
    shifted = [[frozenset((i - base, j - base) for i, j in links) for links in (g.sure, g.possible)] for g in golds]
    return [GoldAlignment(sure, possible) for sure, possible in shifted]
