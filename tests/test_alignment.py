"""Word alignments: read off where the decoder looked, and scored as Och and Ney define."""

from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seq2see.api import Model
from seq2see.errors import UserError
from seq2see.inspect.alignment import View, align, align_by, all_views
from seq2see.inspect.interventions import Where, attending, intervene
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.metrics.alignment import Gold, GoldPairs, alignment_scores, read_gold
from seq2see.text.token_spans import Piece
from seq2see.text.word_spans import marks_apart, spaced, words
from tests.models import tiny_model

PAIRS = [
    ("I like tea.", "मुझे चाय पसंद है।"),
    ("We are friends, my brother!", "हम दोस्त हैं, मेरे भाई!"),
    ("Where are you going tomorrow with the big elephant?", "तुम कल बड़े हाथी के साथ कहाँ जा रहे हो?"),
    ("Congratulations", "बधाई हो"),
    ("", "कुछ नहीं"),
    ("nothing", ""),
    ("Odd   spaces ,here .", "  अजीब   जगह ।"),
]


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model([text for pair in PAIRS[:3] for text in pair])


def test_words_are_aligned_by_where_the_rows_that_predict_them_look(model: Model) -> None:
    source, target = PAIRS[1]
    meant = [2, 0, 4, 5, 1, 6, 3]  # the source word that each target word is to look at
    pieces = [tokenizer.pieces(text) for tokenizer, text in zip(model.tokenizers, PAIRS[1], strict=True)]
    assert all(len(side) > 10 for side in pieces)  # words of several pieces
    forced = torch.zeros(
        len(pieces[1]) + 1, len(pieces[0]) + 1
    )  # rows read <start> and the target, columns end in <end>
    forced[-1, -1] = 1
    for row, piece in enumerate(pieces[1]):
        word = _word_of(target, piece)
        wanted = None if word is None else meant[word]
        looked = [k for k, other in enumerate(pieces[0]) if _word_of(source, other) == wanted]
        forced[row, looked] = 1 / len(looked)
    with intervene(model.network, attending("decoder.1.cross", forced)):
        assert align(model, [PAIRS[1]]) == [sorted((i, j) for j, i in enumerate(meant))]
        read = align_by(model, [PAIRS[1]], [View(-1)], row="reading")[0]
        assert read != align(model, [PAIRS[1]])
    with intervene(model.network, attending("decoder.0.cross", forced, where=Where(head=1))):
        assert align(model, [PAIRS[1]], layer=0, head=1) == [sorted((i, j) for j, i in enumerate(meant))]
        assert align(model, [PAIRS[1]], layer=0, head=0) != align(model, [PAIRS[1]], layer=0, head=1)


def _word_of(text: str, piece: Piece) -> int | None:
    """The word that a piece belongs to, if it is more than a space."""
    found = [i for i, (first, last) in enumerate(marks_apart(text)) if piece.start < last and first < piece.end]
    assert len(found) <= 1
    return found[0] if found else None


def test_pieces_add_up_to_source_words_and_average_over_target_words(model: Model) -> None:
    source, target = PAIRS[2]
    pieces = [tokenizer.pieces(text) for tokenizer, text in zip(model.tokenizers, (source, target), strict=True)]
    start, end = model.tokenizers[1].start, model.tokenizers[0].end
    inputs = Packed.of([[*(p.id for p in pieces[0]), end]]), Packed.of([[start, *(p.id for p in pieces[1])]])
    with torch.no_grad(), trace(model.network) as t:
        model.network(*inputs)
    weights = t["decoder.0.cross.weights", 0].mean(0)
    wanted = []
    for j in range(len(words(target))):
        rows = [r for r, p in enumerate(pieces[1]) if _word_of(target, p) == j]
        totals = [0.0] * len(words(source))
        for row in rows:
            for column, piece in enumerate(pieces[0]):
                word = _word_of(source, piece)
                if word is not None:
                    totals[word] += float(weights[row, column]) / len(rows)
        wanted.append((max(range(len(totals)), key=lambda i: totals[i]), j))
    assert align(model, [(source, target)], layer=0) == [sorted(wanted)]


def test_many_at_a_time_are_aligned_as_one_by_one(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    views = all_views(model)
    assert len(views) == 2 * (1 + 2)
    one_by_one = [align_by(model, [pair], views) for pair in PAIRS]
    for tokens in (2000, 60):
        monkeypatch.setattr("seq2see.inspect.alignment.TOKENS", tokens)
        together = align_by(model, PAIRS, views)
        assert [[view[i] for view in together] for i in range(len(PAIRS))] == [[v[0] for v in a] for a in one_by_one]
    assert together[0][4] == together[0][5] == []  # one side has no word
    assert all(len({j for _, j in together[0][i]}) == len(words(PAIRS[i][1])) for i in (0, 1, 2, 3, 6))


def test_layers_and_heads_that_are_not_there_are_refused(model: Model) -> None:
    for layer, head, complaint in (
        (2, None, "layer 2 of a decoder of 2"),
        (-3, None, "layer -3"),
        (0, 2, "head 2 of 2"),
    ):
        with pytest.raises(UserError, match=complaint):
            align(model, PAIRS[:1], layer=layer, head=head)


links = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=4))
def test_the_error_rate_is_och_and_neys(pairs: list[tuple[frozenset[tuple[int, int]], ...]]) -> None:
    golds = [Gold(sure, sure | more) for _, sure, more in pairs]
    found = alignment_scores([a for a, _, _ in pairs], golds)
    table = [(n, i, j) for n in range(len(pairs)) for i in range(5) for j in range(5)]
    a, s = ({(n, i, j) for n, i, j in table if (i, j) in pairs[n][k]} for k in (0, 1))
    p = s | {(n, i, j) for n, i, j in table if (i, j) in pairs[n][2]}
    if a or s:
        assert found.aer == pytest.approx(1 - (len(a & s) + len(a & p)) / (len(a) + len(s)))
    if a and s:
        assert (found.precision, found.recall) == pytest.approx((len(a & p) / len(a), len(a & s) / len(s)))


def test_gold_files_of_all_forms_say_the_same(tmp_path: Path) -> None:
    sizes = [(3, 3), (2, 4)]
    forms = {
        "from 0": "0-0 1-2 2p1 \n1-3 0?0\n",
        "from 1": "1-1 2-3 3p2\n2-4 1?1\n",
        "a line a link": "0001 1 1 S\n0001 2 3\n0001 3 2 P\n0002 2 4 S\n0002 1 1 P\n",
    }
    for form in forms.values():
        (tmp_path / "gold").write_text(form)
        assert read_gold(tmp_path / "gold", sizes) == [
            Gold(frozenset({(0, 0), (1, 2)}), frozenset({(0, 0), (1, 2), (2, 1)})),
            Gold(frozenset({(1, 3)}), frozenset({(1, 3), (0, 0)})),
        ]


def test_perfect_and_reversed_alignments_of_a_drawn_gold_file(tmp_path: Path) -> None:
    random = Random(1)
    rows = [sorted({(random.randrange(5), random.randrange(5)) for _ in range(6)}) for _ in range(20)]
    (tmp_path / "gold").write_text("".join(" ".join(f"{i}-{j}" for i, j in row) + "\n" for row in rows))
    gold = GoldPairs.read(tmp_path / "gold", [("a b c d e", "v w x y z")] * 20, spaced)
    assert alignment_scores(rows, gold.golds).aer == 0
    assert alignment_scores([[(i + 9, j) for i, j in row] for row in rows], gold.golds).aer == 1


def test_gold_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for text, complaint in (
        ("0-0\n", "aligns 1 pairs, but there are 2"),
        ("0-0\n0_1\n", 'line 2: "0_1" is no link'),
        ("0-0\n5-1\n", "pair 2 has a link 5-1 .* 2 words in the source and 4"),
        ("0001 1 1\n0003 1 1\n", "a link of pair 3, but there are 2"),
        ("0001 1 1\nfoo\n", 'line 2: "foo" is no link'),
    ):
        (tmp_path / "gold").write_text(text)
        with pytest.raises(UserError, match=complaint):
            read_gold(tmp_path / "gold", [(3, 3), (2, 4)])
