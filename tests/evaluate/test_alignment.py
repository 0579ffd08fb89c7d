"""The alignment error rate of Och and Ney, and gold alignments from files."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.data.word_spans import whitespace_spans
from seq2see.errors import UserError
from seq2see.evaluate.alignment import GoldAlignment, GoldPairs, alignment_scores, read_gold

links = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=4))
def test_alignment_error_rate_follows_och_and_ney(pairs: list[tuple[frozenset[tuple[int, int]], ...]]) -> None:
    golds = [GoldAlignment(sure, sure | more) for _, sure, more in pairs]
    found = alignment_scores([a for a, _, _ in pairs], golds)
    table = [(n, i, j) for n in range(len(pairs)) for i in range(5) for j in range(5)]
    a, s = ({(n, i, j) for n, i, j in table if (i, j) in pairs[n][k]} for k in (0, 1))
    p = s | {(n, i, j) for n, i, j in table if (i, j) in pairs[n][2]}
    if a or s:
        assert found.aer == pytest.approx(1 - (len(a & s) + len(a & p)) / (len(a) + len(s)))
    if a and s:
        assert (found.precision, found.recall) == pytest.approx((len(a & p) / len(a), len(a & s) / len(s)))


def test_gold_files_of_all_formats_are_read_alike(tmp_path: Path) -> None:
    sizes = [(3, 3), (2, 4)]
    formats = {
        "from 0": "0-0 1-2 2p1 \n1-3 0?0\n",
        "from 1": "1-1 2-3 3p2\n2-4 1?1\n",
        "one line per link": "0001 1 1 S\n0001 2 3\n0001 3 2 P\n0002 2 4 S\n0002 1 1 P\n",
    }
    for text in formats.values():
        (tmp_path / "gold").write_text(text)
        assert read_gold(tmp_path / "gold", sizes) == [
            GoldAlignment(frozenset({(0, 0), (1, 2)}), frozenset({(0, 0), (1, 2), (2, 1)})),
            GoldAlignment(frozenset({(1, 3)}), frozenset({(1, 3), (0, 0)})),
        ]


def test_error_rate_of_perfect_and_disjoint_alignments(tmp_path: Path) -> None:
    random = Random(1)
    rows = [sorted({(random.randrange(5), random.randrange(5)) for _ in range(6)}) for _ in range(20)]
    (tmp_path / "gold").write_text("".join(" ".join(f"{i}-{j}" for i, j in row) + "\n" for row in rows))
    gold = GoldPairs.read(tmp_path / "gold", [("a b c d e", "v w x y z")] * 20, whitespace_spans)
    assert alignment_scores(rows, gold.golds).aer == 0
    assert alignment_scores([[(i + 9, j) for i, j in row] for row in rows], gold.golds).aer == 1


def test_gold_files_that_do_not_match_are_rejected(tmp_path: Path) -> None:
    for text, message in (
        ("0-0\n", "aligns 1 pairs, but there are 2"),
        ("0-0\n0_1\n", 'line 2: "0_1" is not a link'),
        ("0-0\n5-1\n", "pair 2 has a link 5-1 .* 2 source and 4 target words"),
        ("0001 1 1\n0003 1 1\n", "a link of pair 3, but there are 2"),
        ("0001 1 1\nfoo\n", 'line 2: "foo" is not a link'),
    ):
        (tmp_path / "gold").write_text(text)
        with pytest.raises(UserError, match=message):
            read_gold(tmp_path / "gold", [(3, 3), (2, 4)])
