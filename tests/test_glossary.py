"""Glossaries: which of their terms a sentence has."""

import pytest

from seq2see.translate.glossary import find_terms


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
