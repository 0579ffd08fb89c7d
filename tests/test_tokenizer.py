"""The tokenizer: nothing lost, nothing added, nothing taken for a special token; spans; BPE-dropout."""

import itertools
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tokenizers as hf
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see.config import Kind
from seq2see.errors import UserError
from seq2see.rng import draws
from seq2see.text.bpe_dropout import Dropout, Merges, merge, merge_openly, word_seeds
from seq2see.text.token_spans import Piece, cut_points
from seq2see.text.tokenizer import Tokenizer, cut

ENGLISH = ["the black cat sleeps on the old chair", "my friend doesn't like cold tea", "She's read 2 books: 2026!"]
HINDI = [
    "काली बिल्ली पुरानी कुर्सी पर सोती है।",
    "मेरे दोस्त को ठंडी चाय पसन्द नहीं है।",
    "क्षेत्र में विद्यालय, ज़रूर बहुत बड़ा है।",
]
SENTENCES = [*ENGLISH, *HINDI]
CORPUS = SENTENCES * 3

TRAPS = {
    "emoji family": "👨‍👩‍👧‍👦 and 👩🏽‍🚀",
    "emoji with selector": "❤️ ☎︎ 1️⃣",
    "flags": "🇮🇳🇳🇵",
    "NFC": "caf\u00e9 na\u00efve",
    "NFD": "cafe\u0301 nai\u0308ve",
    "nukta composed": "\u0958\u093c \u095b\u0930\u0942\u0930",
    "nukta decomposed": "\u0915\u093c \u091c\u093c\u0930\u0942\u0930",
    "joiner": "क्\u200dष र्\u200dय",
    "non-joiner": "क्\u200cष می\u200cخواهم",
    "tabs": "a\tb\t\tc \t",
    "NUL": "a\0b\0",
    "controls": "\x01\x1b[0m\x7f\x85",
    "line ends": "a\r\nb\rc\n\n\u2028d\u2029",
    "spaces": "  a   b \u00a0\u3000c  ",
    "4-byte characters": "𝔘𝔫𝔦 𐍈 𠜎",
    "byte-order mark": "\ufeffa",
    "replacement": "a\ufffdb",
    "private and unassigned": "\ue000\u0378\U0010ffff",
    "looks special": "<eos> <end> <start><pad></s> [MASK] <|endoftext|> <user> <unknown>",
    "nothing": "",
    "marks without a letter": "\u093f\u0301",
}


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Tokenizer.train(CORPUS, vocabulary=400, roles=["user", "assistant"])


@pytest.fixture(scope="module")
def nfc() -> Tokenizer:
    return Tokenizer.train(CORPUS, vocabulary=400, normalise="NFC")


@pytest.fixture(scope="module")
def characters() -> Tokenizer:
    return Tokenizer.train(CORPUS, kind="character")


@pytest.mark.parametrize("text", TRAPS.values(), ids=TRAPS.keys())
def test_traps_come_back_as_they_were(bpe: Tokenizer, text: str) -> None:
    ids = bpe.encode(text)
    assert bpe.decode(ids) == text
    assert not {bpe.pad, bpe.start, bpe.end, *bpe.roles.values()} & set(ids)


@given(st.text())
@settings(max_examples=500, deadline=None)
def test_any_text_comes_back_as_it_was(bpe: Tokenizer, text: str) -> None:
    assert bpe.decode(bpe.encode(text)) == text


@given(st.lists(st.text(), max_size=8))
@settings(deadline=None)
def test_a_batch_is_encoded_as_each_text_alone(bpe: Tokenizer, texts: list[str]) -> None:
    tokens, offsets = bpe.encode_batch(texts)
    assert [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets)] == [bpe.encode(text) for text in texts]


@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
def test_no_kind_takes_typed_text_for_a_special_token(kind: Kind) -> None:
    typed = "<end> <start> <pad> <user> <unknown>"
    tokenizer = Tokenizer.train([typed] * 9, kind, vocabulary=400, roles=["user"])
    ids = tokenizer.encode(typed)
    assert not {tokenizer.pad, tokenizer.start, tokenizer.end, tokenizer.roles["user"], tokenizer.unknown} & set(ids)


def test_hindi_words_stay_whole() -> None:
    tokenizer = Tokenizer.train(HINDI * 9, vocabulary=600)
    assert [piece.text for piece in tokenizer.pieces(" ठंडी चाय पसन्द")] == [" ठंडी", " चाय", " पसन्द"]


def test_special_tokens_are_left_out_of_the_text(bpe: Tokenizer) -> None:
    ids = [bpe.start, bpe.roles["user"], *bpe.encode("tea"), bpe.end, bpe.pad]
    assert bpe.decode(ids) == "tea"
    shown = [piece for piece in bpe.pieces_of(ids) if piece.start == piece.end]
    assert [piece.text for piece in shown] == ["<start>", "<user>", "<end>", "<pad>"]


def test_the_file_is_hugging_faces_and_says_the_same(bpe: Tokenizer, tmp_path: Path) -> None:
    bpe.save(tmp_path / "tokenizer.json")
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.load(tmp_path / "tokenizer.json")
    assert ours.fingerprint == bpe.fingerprint
    assert (ours.kind, ours.normalise, ours.roles, len(ours)) == (bpe.kind, bpe.normalise, bpe.roles, len(bpe))
    for text in CORPUS:
        assert theirs.encode(text).ids == ours.encode(text) == bpe.encode(text)
        assert theirs.decode(bpe.encode(text)) == text
    assert list(tmp_path.iterdir()) == [tmp_path / "tokenizer.json"]


@given(st.lists(st.integers(0, 258) | st.integers(0, 399), max_size=12))
@settings(deadline=None)
def test_decoding_any_tokens_equals_hugging_faces(bpe: Tokenizer, ids: list[int]) -> None:
    theirs = hf.Tokenizer.from_str(bpe._inner.to_str())
    ids = [id % len(bpe) for id in ids]
    assert bpe.decode(ids) == theirs.decode(ids)


def test_training_again_gives_the_same_tokenizer() -> None:
    first, again, smaller = (Tokenizer.train(CORPUS, vocabulary=size).fingerprint for size in (400, 400, 399))
    assert first == again != smaller


def test_the_vocabulary_is_as_large_as_asked_for(bpe: Tokenizer) -> None:
    assert len(bpe) == 400


# Pieces


def covered(pieces: list[Piece], text: str) -> None:
    """The spans go through the text without gaps, and overlap only where a character is split."""
    reached = 0
    for piece in pieces:
        assert piece.start <= reached <= piece.end, (piece, text)
        assert piece.start == reached or not piece.whole
        reached = piece.end
    assert reached == len(text)


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_pieces_cover_the_text_they_were_made_of(bpe: Tokenizer, text: str) -> None:
    pieces = bpe.pieces(text)
    covered(pieces, text)
    assert [piece.id for piece in pieces] == bpe.encode(text)
    for piece in pieces:
        assert not piece.text.startswith("⟨") or not piece.whole
        if not piece.text.startswith("⟨"):
            assert piece.text == text[piece.start : piece.end]
    assert bpe.pieces_of([piece.id for piece in pieces]) == pieces


@given(st.lists(st.integers(0, 258) | st.integers(0, 399), max_size=12))
@settings(deadline=None)
def test_pieces_cover_what_a_model_wrote(bpe: Tokenizer, ids: list[int]) -> None:
    covered(bpe.pieces_of(ids), bpe.decode(ids))


@pytest.mark.parametrize(("text", "letters"), [
    ("क्षेत्र", ["क्षे", "त्र"]), ("नमस्ते", ["न", "म", "स्ते"]), ("क्\u200dष", ["क्\u200dष"]), ("क्", ["क्"]),
    ("👨‍👩‍👧", ["👨‍👩‍👧"]), ("🇮🇳🇳🇵", ["🇮🇳", "🇳🇵"]), ("e\u0301a", ["e\u0301", "a"]), ("\r\n", ["\r\n"]),
    ("한", ["한"]), ("", []),
])  # fmt: skip
def test_graphemes(text: str, letters: list[str]) -> None:
    places = sorted(cut_points(text))
    assert [text[a:b] for a, b in itertools.pairwise(places)] == letters


def test_a_piece_that_cuts_a_letter_is_marked() -> None:
    bytewise = Tokenizer.train(["x"], vocabulary=259)
    assert [(p.text, p.start, p.end, p.whole) for p in bytewise.pieces("aक")] == [
        ("a", 0, 1, True), ("⟨E0⟩", 1, 2, False), ("⟨A4⟩", 1, 2, False), ("⟨95⟩", 1, 2, False)
    ]  # fmt: skip
    marks = Tokenizer.train(["क ी ख"] * 9, kind="character")
    assert [piece.whole for piece in marks.pieces("की ख")] == [False, False, True, True]


# Normalising


def test_nfc_is_carried_by_the_file_and_spans_refer_to_what_was_typed(nfc: Tokenizer, tmp_path: Path) -> None:
    nfc.save(tmp_path / "t.json")
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert loaded.normalise == "NFC"
    typed = "cafe\u0301 \u095b\u0930\u0942\u0930 e\u0323\u0301"
    assert loaded.decode(loaded.encode(typed)) == unicodedata.normalize("NFC", typed)
    pieces = loaded.pieces(typed)
    covered(pieces, typed)
    for piece in pieces:
        if piece.whole:
            assert unicodedata.normalize("NFC", typed[piece.start : piece.end]) == piece.text


@given(st.text(st.sampled_from("ae\u0301\u0323\u0308\u0958\u091c\u093c\u0930\u1100\u1161\u11a8 é")))
@settings(deadline=None)
def test_normalised_pieces_cover_what_was_typed(nfc: Tokenizer, text: str) -> None:
    pieces = nfc.pieces(text)
    reached = 0
    for piece in pieces:
        assert piece.start <= reached <= piece.end or piece.end == reached
        reached = max(reached, piece.end)
    assert reached == len(text)


# The kinds for teaching


def test_the_word_tokenizer_counts_words() -> None:
    tokenizer = Tokenizer.train(["I like eating ice-cream.", "I don't like tea, do I?"], kind="word")
    words = {"I", "like", "eating", "ice-cream", ".", "don't", "tea", ",", "do", "?"}
    assert len(tokenizer) == len(words) + 4
    assert tokenizer.decode(tokenizer.encode("I like tea, don't I?")) == "I like tea, don't I?"
    unknown = tokenizer.pieces("I like mango tea.")[2]
    assert (unknown.id, unknown.start, unknown.end) == (tokenizer.unknown, 7, 12)
    assert tokenizer.decode(tokenizer.encode("I like mango tea.")) == "I like <unknown> tea."


def test_the_commonest_words_are_kept() -> None:
    tokenizer = Tokenizer.train(["a a a b b c"], kind="word", vocabulary=6)
    assert [tokenizer.unknown == id for id in tokenizer.encode("a b c")] == [False, False, True]


@given(st.text(st.sampled_from("".join(set("".join(CORPUS))))))
@settings(deadline=None)
def test_the_character_tokenizer_is_lossless_on_what_it_has_seen(characters: Tokenizer, text: str) -> None:
    ids = characters.encode(text)
    assert len(ids) == len(text)
    assert characters.decode(ids) == text


@pytest.mark.parametrize("kind", ["character", "word"])
def test_the_other_kinds_survive_saving(kind: Kind, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(CORPUS, kind, roles=["user"])
    tokenizer.save(tmp_path / "t.json")
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert (loaded.kind, loaded.roles, loaded.fingerprint) == (kind, {"user": 4}, tokenizer.fingerprint)


# Long texts


@pytest.fixture(scope="module")
def spacious() -> Tokenizer:
    """One that has learnt to merge whatever stands together, runs of spaces and line ends above all."""
    random = Random(0)
    return Tokenizer.train(["".join(random.choices(MIXED, k=40)) for _ in range(400)], vocabulary=600)


MIXED = "ab'sक\u093f1  \n\n\t\u00a0.\x1c\r"


@given(st.text(st.sampled_from(MIXED), min_size=30, max_size=200), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_a_long_text_may_be_cut(spacious: Tokenizer, text: str, size: int) -> None:
    parts = list(cut(text, size))
    assert "".join(parts) == text
    assert [id for part in parts for id in spacious.encode(part)] == spacious.encode(text)


def test_cutting_gives_parts_of_the_size_asked_for() -> None:
    parts = list(cut("word " * 1000, 100))
    assert len(parts) > 40
    assert max(map(len, parts)) <= 110


# BPE-dropout


def sampled(
    tokenizer: Tokenizer, texts: list[str], p: float, seed: int = 1, epoch: int = 0, first: int = 0
) -> list[list[int]]:
    tokens, offsets = tokenizer.encode_sampled(texts, Dropout(p, seed, epoch), first)
    return [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets)]


@given(st.lists(st.text(st.sampled_from("".join(CORPUS)) | st.characters(exclude_categories=["Cs"])), max_size=6))
@settings(deadline=None)
def test_without_dropout_the_merges_are_the_librarys(bpe: Tokenizer, texts: list[str]) -> None:
    assert sampled(bpe, texts, 0.0) == [bpe.encode(text) for text in texts]


@given(st.lists(st.text(), max_size=6), st.floats(0, 1))
@settings(deadline=None)
def test_sampled_pieces_make_the_same_text(bpe: Tokenizer, texts: list[str], p: float) -> None:
    assert [bpe.decode(ids) for ids in sampled(bpe, texts, p)] == texts


def test_full_dropout_leaves_bytes(bpe: Tokenizer) -> None:
    assert list(map(len, sampled(bpe, CORPUS, 1.0))) == [len(text.encode()) for text in CORPUS]


def test_a_sample_depends_on_seed_epoch_and_number_but_not_on_the_batch(bpe: Tokenizer) -> None:
    whole = sampled(bpe, CORPUS, 0.3)
    assert whole == sampled(bpe, CORPUS, 0.3)
    for i, text in enumerate(CORPUS):
        assert sampled(bpe, [text], 0.3, first=i) == [whole[i]]
    assert whole != sampled(bpe, CORPUS, 0.3, seed=2)
    assert whole != sampled(bpe, CORPUS, 0.3, epoch=1)
    assert whole[0] != whole[len(SENTENCES)]  # the same sentence again
    (again,) = sampled(bpe, [" the" * 60], 0.3)
    assert again != again[: len(again) // 60] * 60  # the same word again


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_merging_at_once_equals_merging_word_by_word(data: st.DataObject) -> None:
    symbols = 12
    triples = st.tuples(st.integers(0, 7), st.integers(0, 7))
    pairs = data.draw(st.lists(triples, max_size=20, unique=True))
    merges = Merges.of([(a, b, 4 + i % (symbols - 4)) for i, (a, b) in enumerate(pairs)], symbols)
    words = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=6))
    flat = np.array([symbol for word in words for symbol in word], dtype=np.int32)
    owners = np.repeat(np.arange(len(words)), [len(word) for word in words])
    seeds = draws(len(words), data.draw(st.integers(0, 2**64 - 1)))
    p = data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    fast, openly = merge(flat, owners, seeds, merges, p), merge_openly(flat, owners, seeds, merges, p)
    assert [x.tolist() for x in fast] == [x.tolist() for x in openly]


def test_a_merge_is_dropped_as_often_as_asked() -> None:
    # One pair that can merge, many words: the draws are what they claim to be.
    merges = Merges.of([(0, 1, 2)], 3)
    words = 20_000
    symbols, owners = np.tile(np.array([0, 1], dtype=np.int32), words), np.repeat(np.arange(words), 2)
    seeds = word_seeds(Dropout(0.1, 5, 0), np.arange(words), np.zeros(words, dtype=np.int64))
    merged, _ = merge(symbols, owners, seeds, merges, 0.1)
    assert (merged == 2).sum() / words == pytest.approx(0.9, abs=0.01)


# What goes wrong


def broken() -> Iterator[str]:
    yield "fine"
    raise UserError("line 2 of a.en is not UTF-8")


@pytest.mark.parametrize(("make", "complaint"), [
    (lambda: Tokenizer.train([]), "no text"),
    (lambda: Tokenizer.train(["", ""], kind="word"), "no text"),
    (lambda: Tokenizer.train(["a"], vocabulary=258), "at least 259"),
    (lambda: Tokenizer.train(["a"], kind="bp"), 'did you mean "bpe"'),  # type: ignore[arg-type]
    (lambda: Tokenizer.train(["a"], normalise="NFD"), 'did you mean "NFC"'),  # type: ignore[arg-type]
    (lambda: Tokenizer.train(["a"], roles=["end"]), '"end" cannot be a role'),
    (lambda: Tokenizer.train(["a"], roles=["two words"]), '"two words" cannot be a role'),
    (lambda: Tokenizer.train(broken()), "line 2 of a.en"),
    (lambda: Tokenizer.train(["a"]).encode("a\ud800"), r"U\+D800 at character 2"),
    (lambda: Tokenizer.train(["a"]).encode_batch(["a", "\udfff"]), "text number 2"),
    (lambda: Tokenizer.train(["a"], kind="word").encode_sampled(["a"], Dropout(0.1, 0, 0)), "word tokenizer"),
    (lambda: Tokenizer.train(["a"]).encode_sampled(["a"], Dropout(1.1, 0, 0)), "no probability"),
    (lambda: Tokenizer.load("/nowhere/tokenizer.json"), "cannot read /nowhere"),
])  # fmt: skip
def test_mistakes_are_named_in_one_line(make: object, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_tokenizer_of_ours_is_refused(bpe: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for content in ("", "{}", "not json"):
        path.write_text(content)
        with pytest.raises(UserError, match=r"is no tokenizer\.json"):
            Tokenizer.load(path)
    foreign = json.loads(bpe._inner.to_str())
    foreign["added_tokens"] = []
    del foreign["model"]["vocab"]["<start>"]
    path.write_text(json.dumps(foreign))
    with pytest.raises(UserError, match='has no "<start>"'):
        Tokenizer.load(path)


def test_a_failed_save_keeps_the_old_file(bpe: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "t.json").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        bpe.save(tmp_path / "t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_an_unseen_seed_is_fine(bpe: Tokenizer) -> None:
    for seed in (-1, 2**70, 2**64 - 1):
        assert sampled(bpe, ["cat"], 0.5, seed=seed)
