"""Glossaries: which of their terms a sentence has, and where their translations go."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import seq2see
from seq2see.cli import app
from seq2see.config.search import Search
from seq2see.decode.constraints import Constraints
from seq2see.decode.search import Hypothesis
from seq2see.errors import UserError
from seq2see.storage.pipeline import Pipeline
from seq2see.translate.glossary import Glossary, read_glossary
from seq2see.translate.translator import Translator
from tests.fake_model import TOKENIZER, FakeModel, FakeTranslator
from tests.models import GRAMMAR_MODEL
from tests.steps import count_lines


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
    found = [match.translation for match in Glossary(glossary).find(sentence)]
    assert list(dict.fromkeys(found)) == expected


def test_a_term_is_found_within_a_script_without_spaces() -> None:
    assert Glossary({"茶": "tea"}).find("我喜欢喝茶。")


def test_term_in_devanagari_does_not_match_a_longer_word() -> None:
    assert Glossary({"किताब": "book"}).find("दो किताबें") == []
    assert [match.translation for match in Glossary({"किताब": "book"}).find("यह किताब है")] == ["book"]


@pytest.mark.parametrize("beam", [1, 5])
def test_terms_stand_in_the_place_of_the_words_they_replace(beam: int) -> None:
    model = seq2see.load(GRAMMAR_MODEL)
    texts = ["I like tea. We are friends.", "We are friends.", "The girl drinks tea and reads a book."]
    plain = model.translate(texts, beam=beam)
    found = model.translate(texts, beam=beam, glossary={"tea": "दूध", "book": "चिट्ठी"})
    assert found[:2] == [plain[0].replace("चाय", "दूध"), plain[1]]
    assert re.fullmatch("लड़की दूध .* चिट्ठी .*", found[2]), found[2]


def count_searches(monkeypatch: pytest.MonkeyPatch, limit: int) -> list[Sequence[str]]:
    """Returns a list of the sentences of every search from now on; more than `limit` searches are an error."""
    searches: list[Sequence[str]] = []
    search = Pipeline.search_sentences

    def counted(model: Pipeline, sentences: Sequence[str], *arguments: Any, **options: Any) -> list[list[Hypothesis]]:
        searches.append(sentences)
        assert len(searches) <= limit, "the search does not end"
        return search(model, sentences, *arguments, **options)

    monkeypatch.setattr(Pipeline, "search_sentences", counted)
    return searches


def test_a_term_that_is_lost_to_the_length_limit_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seq2see.load(GRAMMAR_MODEL)
    searches = count_searches(monkeypatch, 4)
    found = model.translate("I like tea.", max_new_tokens=2, glossary={"tea": "दूध पानी"})
    assert found == "मुझे दूध"  # as much of the term as the limit allows
    assert [len(sentences) for sentences in searches] == [1, 1, 1]


def test_only_translations_with_the_terms_are_among_the_n_best() -> None:
    model = seq2see.load(GRAMMAR_MODEL)

    def nbest(glossary: dict[str, str]) -> list[str]:
        translator = Translator(model, search=Search(beam=4, nbest=4), glossary=glossary)
        (found,) = translator.translate_by_sentence(["I like tea."], [""])
        return [model.text(each) for each in found.sentences[0].nbest]

    free = nbest({})
    assert free[0].startswith("मुझे ") and not all("मुझे" in text for text in free)
    assert nbest({"I": "मुझे"}) == [text for text in free if "मुझे" in text]


@dataclass(frozen=True)
class ModelWithoutAttention(FakeModel):
    """Writes the phrases that it must write."""

    constraints: list[Constraints] = field(default_factory=list)

    @property
    def config(self) -> Any:
        return SimpleNamespace(model=SimpleNamespace(cross_layers=0, max_positions=64))

    def search_sentences(self, sentences: Sequence[str], search: Search, **options: Any) -> list[list[Any]]:
        required = options.get("constraints") or [Constraints(()) for _ in sentences]
        self.constraints.extend(each for each in required if each.phrases)
        texts = [" ".join(TOKENIZER.decode(phrase).strip() for phrase in each.phrases) for each in required]
        return [[SimpleNamespace(text=text or "x", score=0.0, confidence=0.0)] for text in texts]


def test_without_attention_all_missing_terms_may_stand_anywhere() -> None:
    model = ModelWithoutAttention(str)
    translator = Translator(cast(Any, model), glossary={"boy": "drinks", "tea": "चाय", "The": "x"})
    assert translator.translate(["The boy drinks tea."], [""]) == ["drinks चाय"]
    (constraints,) = model.constraints
    assert (len(constraints.phrases), constraints.prefix, constraints.within) == (2, (), None)


def test_the_time_to_find_terms_does_not_depend_on_their_number() -> None:
    few = {"tea": "a", "book of tea": "b"}
    many = {**few, **{f"word{i} {i}": "c" for i in range(2000)}, **{f"{i}tea": "d" for i in range(2000)}}
    sentence = "I like tea, the book of tea and tears."
    finders = [Glossary(few), Glossary(many)]
    assert finders[0].find(sentence) == finders[1].find(sentence) != []
    steps = [count_lines(partial(finder.find, sentence)) for finder in finders]
    assert steps[0] == steps[1]


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("glossary", [{}, {"tea": "milk"}])
def test_a_translation_stops_between_sentences(glossary: dict[str, str]) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise StoppedError

    asked: list[str] = []
    model = FakeModel(lambda text: asked.append(text) or text)  # type: ignore[func-returns-value]
    translator = FakeTranslator(cast(Any, model), glossary=glossary, check=check)
    with pytest.raises(StoppedError):
        translator.translate(["I like tea."] * 9 if glossary else ["I like tea."] * 20, [""] * (9 if glossary else 20))
    assert calls == 10 and not asked


def test_a_term_as_long_as_a_page_is_refused() -> None:
    with pytest.raises(UserError, match=r'"xxx.* and its translation exceed 500 characters'):
        Glossary({"x" * 501: "y"})


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
