"""Markup within a sentence: the model sees plain text, and elements follow their words into the translation."""

import re

import numpy as np
import pytest

from seq2see.api import load
from seq2see.config.search import Search
from seq2see.data.word_spans import split_words
from seq2see.formats.markup import put_back, take_out
from seq2see.formats.placeholders import MARKDOWN_PLACEHOLDER, PLACEHOLDER
from seq2see.formats.protected import protect
from seq2see.translate.segmentation import SplitText, sentence_spans
from seq2see.translate.translator import Translator
from seq2see.translate.warning_log import WarningLog
from tests.models import GRAMMAR_MODEL

SILENT = WarningLog(lambda text: None)


def carry(sentence: str, translation: str, links: str, pattern: re.Pattern[str] = PLACEHOLDER) -> str:
    """Carries the markup of a sentence over links such as "0-2 1-0", from source to target words."""
    marked = take_out(sentence, pattern)
    whole = marked.sentence(0, len(marked.text.rstrip()))
    weights = np.zeros((len(split_words(translation)), len(split_words(whole.text))), dtype=np.float32)
    for source, target in (link.split("-") for link in links.split()):
        weights[int(target), int(source)] = 1.0
    return SplitText.from_spans(sentence, [whole.span]).join([put_back(whole, translation, weights)])


@pytest.mark.parametrize(
    ("sentence", "translation", "links", "expected"),
    [
        ("I like <b>tea</b>.", "मुझे चाय पसंद है।", "0-0 2-1 1-2 1-3 3-4", "मुझे <b>चाय</b> पसंद है।"),
        ("I <i>like</i> <b>tea</b>.", "मुझे चाय पसंद है।", "0-0 2-1 1-2 1-3 3-4", "मुझे <b>चाय</b> <i>पसंद है</i>।"),
        (
            "<p>I like <a href='#x'>hot <b>tea</b></a>.</p>",
            "मुझे गरम चाय पसंद है।",
            "0-0 2-1 3-2 1-3 1-4 4-5",
            "<p>मुझे <a href='#x'>गरम <b>चाय</b></a> पसंद है।</p>",
        ),
        # A word far away does not belong to the element, nor one that belongs to nothing.
        (
            "<b>the old man</b> eats fish",
            "वह बूढ़ा आदमी मछली खाता है",
            "1-1 2-2 4-3 3-4 0-5",
            "वह <b>बूढ़ा आदमी</b> मछली खाता है",
        ),
        # Marks of their own, and elements that begin or end in another sentence.
        ("He eats<img src='f'> fish.", "वह मछली खाता है।", "0-0 2-1 1-2 1-3 3-4", "वह मछली खाता<img src='f'> है।"),
        ("He eats <b>fish.", "वह मछली खाता है।", "0-0 2-1 1-2 1-3 3-4", "वह <b>मछली खाता है।"),
        ("He</b> eats fish.", "वह मछली खाता है।", "0-0 2-1 1-2 1-3 3-4", "वह</b> मछली खाता है।"),
        ("He eats fish.</b></p>", "वह मछली खाता है।", "0-0 2-1 1-2 1-3 3-4", "वह मछली खाता है।</b></p>"),
        # What stands unchanged in the translation is found there, also within a word.
        (
            "<b>{name}</b> drinks H<sub>2</sub>O",
            "{name} H2O पीता है",
            "0-0 2-1 1-2",
            "<b>{name}</b> H<sub>2</sub>O पीता है",
        ),
        ("tea <b></b> and <b>milk</b>", "और", "1-0", "<b></b><b>और</b>"),
        ("<b>a</b> <i>b</i>", "x", "", "<i></i><b>x</b>"),
    ],
)
def test_element_follows_its_words(sentence: str, translation: str, links: str, expected: str) -> None:
    assert carry(sentence, translation, links) == expected


@pytest.mark.parametrize(
    ("sentence", "plain", "expected"),
    [
        ("I *like* [hot **tea**](a.md) now", "I like hot tea now", "1 *2* [3 **4**](a.md) 5"),
        ("- 2 * 3 * 4 is `code` and _so_", "- 2 * 3 * 4 is `code` and so", "1 2 3 4 5 6 7 8 9 _10_"),
        ("see[^1] snake_case, a* b", "see snake_case, a* b", "1[^1] 2 3 4 5"),
    ],
)
def test_markdown_that_is_markup_goes_around_the_model(sentence: str, plain: str, expected: str) -> None:
    assert take_out(sentence, MARKDOWN_PLACEHOLDER).text == plain
    words = split_words(plain)
    in_order = " ".join(f"{i}-{i}" for i in range(len(words)))
    translation = " ".join(str(i + 1) for i in range(len(words)))
    assert carry(sentence, translation, in_order, MARKDOWN_PLACEHOLDER) == expected


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("<b>One.</b> Two.", [("One.", "One."), ("Two.", "Two.")]),
        ("Go <b>on. </b>Stop <i>now.</i>", [("Go <b>on. </b>", "Go on."), ("Stop <i>now.</i>", "Stop now.")]),
        ("<p>Say <i>one. Two</i> is all.</p>", [("Say <i>one.", "Say one."), ("Two</i> is all.", "Two is all.")]),
        ("मैं हूँ।<b>तुम</b> हो।", [("मैं हूँ।", "मैं हूँ।"), ("<b>तुम</b> हो।", "तुम हो।")]),
    ],
)
def test_markup_does_not_hide_the_end_of_a_sentence(text: str, sentences: list[tuple[str, str]]) -> None:
    marked = take_out(text, PLACEHOLDER)
    found = [marked.sentence(*span) for span in sentence_spans(marked.text, marked.protected)]
    assert [(each.raw, each.text) for each in found] == sentences
    assert [text[slice(*each.span)] for each in found] == [each.raw for each in found]


def test_elements_that_go_on_in_another_sentence_keep_their_order() -> None:
    assert carry("a <b>one <i>two", "zwei eins", "0-0 1-1 2-0") == "zwei <b><i>eins"
    assert carry("one</i> two</b> a", "zwei eins", "0-1 1-0") == "zwei eins</i></b>"


def test_a_thousand_nested_elements_are_kept() -> None:
    deep = "a <b>" * 1200 + "x" + "</b>" * 1200
    assert carry(deep, "y", "") == "<b>" * 1200 + "y" + "</b>" * 1200


def test_bundled_model_carries_tags_by_its_attention() -> None:
    translator = protect(Translator(load(GRAMMAR_MODEL), SILENT, Search(beam=4)), PLACEHOLDER)
    found = translator.translate(
        ["I like <b>tea</b>.", "Two <i>cows</i> are in the <a href='v'>village</a>."], ["one", "two"]
    )
    assert found == ["मुझे <b>चाय</b> पसंद है।", "दो <i>गायें</i> <a href='v'>गाँव</a> में हैं।"]
