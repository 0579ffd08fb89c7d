"""The tokenizer: lossless round trips, no special tokens from text, spans, BPE-dropout."""

import itertools
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import tokenizers as hf
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see.config import TokenizerKind
from seq2see.data.bpe_dropout import BpeDropout
from seq2see.data.token_spans import TokenSpan, grapheme_boundaries
from seq2see.data.tokenizer import Tokenizer
from seq2see.data.tokenizer_training import split_text
from seq2see.errors import UserError
from tests.data.texts import CORPUS, HINDI, encode_with_dropout

EDGE_CASES = {
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
    "looks like special tokens": "<eos> <end> <start><pad></s> [MASK] <|endoftext|> <user> <unknown>",
    "empty": "",
    "marks without a letter": "\u093f\u0301",
}


@pytest.fixture(scope="module")
def nfc() -> Tokenizer:
    return Tokenizer.train(CORPUS, vocab_size=400, normalize="NFC")


@pytest.fixture(scope="module")
def characters() -> Tokenizer:
    return Tokenizer.train(CORPUS, kind="character")


@pytest.mark.parametrize("text", EDGE_CASES.values(), ids=EDGE_CASES.keys())
def test_edge_cases_round_trip(bpe: Tokenizer, text: str) -> None:
    ids = bpe.encode(text)
    assert bpe.decode(ids) == text
    assert not {bpe.pad, bpe.start, bpe.end, *bpe.roles.values()} & set(ids)


@given(st.text())
@settings(max_examples=500, deadline=None)
def test_any_text_round_trips(bpe: Tokenizer, text: str) -> None:
    assert bpe.decode(bpe.encode(text)) == text


@given(st.lists(st.text(), max_size=8))
@settings(deadline=None)
def test_batch_encoding_equals_single_encoding(bpe: Tokenizer, texts: list[str]) -> None:
    tokens, offsets = bpe.encode_batch(texts)
    assert [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets)] == [bpe.encode(text) for text in texts]


@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
def test_text_never_encodes_to_special_tokens(kind: TokenizerKind) -> None:
    typed = "<end> <start> <pad> <user> <unknown>"
    tokenizer = Tokenizer.train([typed] * 9, kind, vocab_size=400, roles=["user"])
    ids = tokenizer.encode(typed)
    assert not {tokenizer.pad, tokenizer.start, tokenizer.end, tokenizer.roles["user"], tokenizer.unknown} & set(ids)


def test_hindi_words_are_not_split_at_vowel_signs() -> None:
    tokenizer = Tokenizer.train(HINDI * 9, vocab_size=600)
    assert [span.text for span in tokenizer.token_spans(" ठंडी चाय पसन्द")] == [" ठंडी", " चाय", " पसन्द"]


def test_decoding_omits_special_tokens(bpe: Tokenizer) -> None:
    ids = [bpe.start, bpe.roles["user"], *bpe.encode("tea"), bpe.end, bpe.pad]
    assert bpe.decode(ids) == "tea"
    shown = [span for span in bpe.token_spans_from_ids(ids) if span.start == span.end]
    assert [span.text for span in shown] == ["<start>", "<user>", "<end>", "<pad>"]


def test_saved_file_works_in_hugging_face_tokenizers(bpe: Tokenizer, tmp_path: Path) -> None:
    bpe.save(tmp_path / "tokenizer.json")
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.load(tmp_path / "tokenizer.json")
    assert ours.fingerprint == bpe.fingerprint
    assert (ours.kind, ours.normalize, ours.roles, len(ours)) == (bpe.kind, bpe.normalize, bpe.roles, len(bpe))
    for text in CORPUS:
        assert theirs.encode(text).ids == ours.encode(text) == bpe.encode(text)
        assert theirs.decode(bpe.encode(text)) == text
    assert list(tmp_path.iterdir()) == [tmp_path / "tokenizer.json"]


@given(st.lists(st.integers(0, 258) | st.integers(0, 399), max_size=12))
@settings(deadline=None)
def test_decoding_equals_hugging_face(bpe: Tokenizer, ids: list[int]) -> None:
    theirs = hf.Tokenizer.from_str(bpe._backend.to_str())
    ids = [id % len(bpe) for id in ids]
    assert bpe.decode(ids) == theirs.decode(ids)


def test_training_is_deterministic() -> None:
    first, again, smaller = (Tokenizer.train(CORPUS, vocab_size=size).fingerprint for size in (400, 400, 399))
    assert first == again != smaller


def test_vocabulary_has_the_requested_size(bpe: Tokenizer) -> None:
    assert len(bpe) == 400


# Token spans


def assert_spans_cover(spans: list[TokenSpan], text: str) -> None:
    """Checks that the spans cover the text without gaps, and overlap only where a character is split."""
    reached = 0
    for span in spans:
        assert span.start <= reached <= span.end, (span, text)
        assert span.start == reached or not span.whole
        reached = span.end
    assert reached == len(text)


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_token_spans_cover_the_text(bpe: Tokenizer, text: str) -> None:
    spans = bpe.token_spans(text)
    assert_spans_cover(spans, text)
    assert [span.id for span in spans] == bpe.encode(text)
    for span in spans:
        assert not span.text.startswith("⟨") or not span.whole
        if not span.text.startswith("⟨"):
            assert span.text == text[span.start : span.end]
    assert bpe.token_spans_from_ids([span.id for span in spans]) == spans


@given(st.lists(st.integers(0, 258) | st.integers(0, 399), max_size=12))
@settings(deadline=None)
def test_token_spans_from_ids_cover_the_decoded_text(bpe: Tokenizer, ids: list[int]) -> None:
    assert_spans_cover(bpe.token_spans_from_ids(ids), bpe.decode(ids))


@pytest.mark.parametrize(
    ("text", "graphemes"),
    [
        ("क्षेत्र", ["क्षे", "त्र"]),
        ("नमस्ते", ["न", "म", "स्ते"]),
        ("क्\u200dष", ["क्\u200dष"]),
        ("क्", ["क्"]),
        ("👨‍👩‍👧", ["👨‍👩‍👧"]),
        ("🇮🇳🇳🇵", ["🇮🇳", "🇳🇵"]),
        ("e\u0301a", ["e\u0301", "a"]),
        ("\r\n", ["\r\n"]),
        ("한", ["한"]),
        ("", []),
    ],
)
def test_graphemes(text: str, graphemes: list[str]) -> None:
    boundaries = sorted(grapheme_boundaries(text))
    assert [text[a:b] for a, b in itertools.pairwise(boundaries)] == graphemes


def test_tokens_that_split_a_grapheme_are_marked() -> None:
    bytewise = Tokenizer.train(["x"], vocab_size=259)
    assert [(p.text, p.start, p.end, p.whole) for p in bytewise.token_spans("aक")] == [
        ("a", 0, 1, True),
        ("⟨E0⟩", 1, 2, False),
        ("⟨A4⟩", 1, 2, False),
        ("⟨95⟩", 1, 2, False),
    ]
    marks = Tokenizer.train(["क ी ख"] * 9, kind="character")
    assert [span.whole for span in marks.token_spans("की ख")] == [False, False, True, True]


# Normalization


def test_nfc_is_saved_and_spans_refer_to_the_original_text(nfc: Tokenizer, tmp_path: Path) -> None:
    nfc.save(tmp_path / "t.json")
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert loaded.normalize == "NFC"
    typed = "cafe\u0301 \u095b\u0930\u0942\u0930 e\u0323\u0301"
    assert loaded.decode(loaded.encode(typed)) == unicodedata.normalize("NFC", typed)
    spans = loaded.token_spans(typed)
    assert_spans_cover(spans, typed)
    for span in spans:
        if span.whole:
            assert unicodedata.normalize("NFC", typed[span.start : span.end]) == span.text


@given(st.text(st.sampled_from("ae\u0301\u0323\u0308\u0958\u091c\u093c\u0930\u1100\u1161\u11a8 é")))
@settings(deadline=None)
def test_token_spans_cover_the_text_before_normalization(nfc: Tokenizer, text: str) -> None:
    spans = nfc.token_spans(text)
    reached = 0
    for span in spans:
        assert span.start <= reached <= span.end or span.end == reached
        reached = max(reached, span.end)
    assert reached == len(text)


# Character and word tokenizers


def test_word_tokenizer_has_one_token_per_word() -> None:
    tokenizer = Tokenizer.train(["I like eating ice-cream.", "I don't like tea, do I?"], kind="word")
    words = {"I", "like", "eating", "ice-cream", ".", "don't", "tea", ",", "do", "?"}
    assert len(tokenizer) == len(words) + 4
    assert tokenizer.decode(tokenizer.encode("I like tea, don't I?")) == "I like tea, don't I?"
    unknown = tokenizer.token_spans("I like mango tea.")[2]
    assert (unknown.id, unknown.start, unknown.end) == (tokenizer.unknown, 7, 12)
    assert tokenizer.decode(tokenizer.encode("I like mango tea.")) == "I like <unknown> tea."


def test_word_tokenizer_keeps_the_most_frequent_words() -> None:
    tokenizer = Tokenizer.train(["a a a b b c"], kind="word", vocab_size=6)
    assert [tokenizer.unknown == id for id in tokenizer.encode("a b c")] == [False, False, True]


@given(st.text(st.sampled_from("".join(set("".join(CORPUS))))))
@settings(deadline=None)
def test_character_tokenizer_is_lossless_on_seen_characters(characters: Tokenizer, text: str) -> None:
    ids = characters.encode(text)
    assert len(ids) == len(text)
    assert characters.decode(ids) == text


@pytest.mark.parametrize("kind", ["character", "word"])
def test_other_kinds_can_be_saved_and_loaded(kind: TokenizerKind, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(CORPUS, kind, roles=["user"])
    tokenizer.save(tmp_path / "t.json")
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert (loaded.kind, loaded.roles, loaded.fingerprint) == (kind, {"user": 4}, tokenizer.fingerprint)


# Long texts


@pytest.fixture(scope="module")
def whitespace_tokenizer() -> Tokenizer:
    """A tokenizer trained on random mixtures, with merges across runs of spaces and line ends."""
    random = Random(0)
    return Tokenizer.train(["".join(random.choices(MIXED, k=40)) for _ in range(400)], vocab_size=600)


MIXED = "ab'sक\u093f1  \n\n\t\u00a0.\x1c\r"


@given(st.text(st.sampled_from(MIXED), min_size=30, max_size=200), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_splitting_a_long_text_does_not_change_its_tokens(
    whitespace_tokenizer: Tokenizer, text: str, size: int
) -> None:
    parts = list(split_text(text, size))
    assert "".join(parts) == text
    assert [id for part in parts for id in whitespace_tokenizer.encode(part)] == whitespace_tokenizer.encode(text)


def test_split_parts_have_the_requested_size() -> None:
    parts = list(split_text("word " * 1000, 100))
    assert len(parts) > 40
    assert max(map(len, parts)) <= 110


# Errors


def failing_texts() -> Iterator[str]:
    yield "fine"
    raise UserError("line 2 of a.en is not UTF-8")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: Tokenizer.train([]), "no text"),
        (lambda: Tokenizer.train(["", ""], kind="word"), "no text"),
        (lambda: Tokenizer.train(["a"], vocab_size=258), "at least 259"),
        (lambda: Tokenizer.train(["a"], kind="bp"), 'did you mean "bpe"'),  # type: ignore[arg-type]
        (lambda: Tokenizer.train(["a"], normalize="NFD"), 'did you mean "NFC"'),  # type: ignore[arg-type]
        (lambda: Tokenizer.train(["a"], roles=["end"]), '"end" cannot be a role'),
        (lambda: Tokenizer.train(["a"], roles=["two words"]), '"two words" cannot be a role'),
        (lambda: Tokenizer.train(failing_texts()), "line 2 of a.en"),
        (lambda: Tokenizer.train(["a"]).encode("a\ud800"), r"U\+D800, at character 2"),
        (lambda: Tokenizer.train(["a"]).encode_batch(["a", "\udfff"]), "text 2 has an unpaired surrogate"),
        (
            lambda: Tokenizer.train(["a"], kind="word").encode_with_dropout(["a"], BpeDropout(0.1, 0, 0)),
            "word tokenizer",
        ),
        (lambda: Tokenizer.train(["a"]).encode_with_dropout(["a"], BpeDropout(1.1, 0, 0)), "not a probability"),
        (lambda: Tokenizer.load("/nowhere/tokenizer.json"), "tokenizer.json: no such file"),
    ],
)
def test_user_errors_are_one_line(action: object, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        action()  # type: ignore[operator]
    assert "\n" not in str(error.value)


def test_loading_a_foreign_file_is_an_error(bpe: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for content in ("", "{}", "not json"):
        path.write_text(content)
        with pytest.raises(UserError, match=r"is not a tokenizer\.json"):
            Tokenizer.load(path)
    foreign = json.loads(bpe._backend.to_str())
    foreign["added_tokens"] = []
    del foreign["model"]["vocab"]["<start>"]
    path.write_text(json.dumps(foreign))
    with pytest.raises(UserError, match='has no "<start>"'):
        Tokenizer.load(path)


def test_failed_save_keeps_the_old_file(bpe: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "t.json").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        bpe.save(tmp_path / "t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_any_integer_is_a_valid_seed(bpe: Tokenizer) -> None:
    for seed in (-1, 2**70, 2**64 - 1):
        assert encode_with_dropout(bpe, ["cat"], 0.5, seed=seed)
