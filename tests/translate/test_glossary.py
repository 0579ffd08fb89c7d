"""Glossaries: which of their terms a sentence has, and where their translations go."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import seq2see
from seq2see.cli import app
from seq2see.errors import UserError
from seq2see.translate.glossary import find_terms, read_glossary
from tests.models import GRAMMAR_MODEL


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("I like ice cream.", ["आइसक्रीम"]),
        ("Ice  Cream with ice, and ice-cream", ["आइसक्रीम", "बर्फ़"]),
        ("The ice is in the icebox.", ["बर्फ़"]),
        ("The US gave us ice.", ["अमेरिका", "हमें", "बर्फ़"]),
        ("icecream", []),
        ("The big ice cream cone.", ["आइसक्रीम"]),  # longer than "big ice", which comes first
    ],
)
def test_longest_term_of_a_glossary_is_used(sentence: str, expected: list[str]) -> None:
    glossary = {"us": "हमें", "ice": "बर्फ़", "US": "अमेरिका", "ice cream": "आइसक्रीम", "big ice": "बड़ी बर्फ़"}
    found = [match.translation for match in find_terms(sentence, glossary)]
    assert list(dict.fromkeys(found)) == expected


def test_a_term_is_found_within_a_script_without_spaces() -> None:
    assert find_terms("我喜欢喝茶。", {"茶": "tea"})


def test_term_in_devanagari_does_not_match_a_longer_word() -> None:
    assert find_terms("दो किताबें", {"किताब": "book"}) == []
    assert [match.translation for match in find_terms("यह किताब है", {"किताब": "book"})] == ["book"]


@pytest.mark.parametrize("beam", [1, 5])
def test_terms_stand_in_the_place_of_the_words_they_replace(beam: int) -> None:
    model = seq2see.load(GRAMMAR_MODEL)
    texts = ["I like tea. We are friends.", "We are friends.", "The girl drinks tea and reads a book."]
    plain = model.translate(texts, beam=beam)
    found = model.translate(texts, beam=beam, glossary={"tea": "दूध", "book": "चिट्ठी"})
    assert found[:2] == [plain[0].replace("चाय", "दूध"), plain[1]]
    assert re.fullmatch("लड़की दूध .* चिट्ठी .*", found[2]), found[2]


def test_a_term_that_is_lost_to_the_length_limit_ends_the_search() -> None:
    model = seq2see.load(GRAMMAR_MODEL)
    assert model.translate("I like tea.", max_new_tokens=1, glossary={"tea": "दूध"})


def test_translate_takes_a_glossary_file(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("tea\tदूध\n\nbook\tचिट्ठी\n", encoding="utf-8")
    arguments = ["translate", "--model", str(GRAMMAR_MODEL), "--glossary", str(file), "I like tea.", "--device", "cpu"]
    result = CliRunner().invoke(app, arguments)
    assert result.stdout.strip() == "मुझे दूध पसंद है।"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tea दूध", "line 1 of .* is not a term, a tab and its translation"),
        ("a\tb\nc\td\te", "line 2 of"),
        ("tea\tदूध\ntea\tपानी", 'line 2 of .*: "tea" has another translation above, "दूध"'),
        ("\n", "has no terms"),
    ],
)
def test_a_damaged_glossary_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_glossary(file)
