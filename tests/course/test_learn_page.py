"""The view Learn: an edited setting shows the library's result, links keep it, errors stand at their field."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from seq2see.course.lessons import GROUPS, LESSONS, context
from seq2see.course.lessons.similarity import DOCUMENT
from seq2see.server.explore.app import create_app
from seq2see.server.explore.lessons import LessonText
from seq2see.server.explore.lessons import Table as TableResponse
from seq2see.storage.bundled import GRAMMAR
from tests.browser import NEEDS_BROWSER, checked_page
from tests.explore import LANGUAGE_MODEL, TEXTS, serving
from tests.models import GRAMMAR_MODEL, save, tiny_model
from tests.waiting import wait_until

Page = Any
EDITED = {**DOCUMENT, "apple": (5, 2, 0)}


def needs_browser(test: Callable[..., None]) -> Callable[..., None]:
    for mark in NEEDS_BROWSER:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("models")
    language_model = save(tiny_model(TEXTS, LANGUAGE_MODEL), folder / "language-model")
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL, "language-model": language_model})) as client:
        yield str(client.base_url)


@pytest.fixture
def tab(browser: Any) -> Iterator[Page]:
    yield from checked_page(browser, reduced_motion=True)


IS_SHOWN = "name => document.querySelector('.lesson')?.dataset.loaded === name"
TABLES = """() => [...document.querySelectorAll('.lesson-table')].map(table =>
    [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent)))"""


def open_lesson(tab: Page, address: str, lesson: str) -> None:
    tab.goto(f"{address}/#/learn?lesson={lesson}")
    tab.wait_for_function(IS_SHOWN, arg=lesson)


def tables(lesson: str, settings: Mapping[str, Any]) -> list[list[list[str]]]:
    """Returns the formatted tables of a lesson, computed by the library."""
    text = LessonText.model_validate(LESSONS[lesson].describe(LESSONS[lesson].compute(settings)))
    parts = [*text.body, *(part for section in text.more for part in section.parts)]
    return [part.formatted for part in parts if isinstance(part, TableResponse)]


def wait_for_tables(tab: Page, expected: list[list[list[str]]]) -> None:
    tab.wait_for_function(f"expected => JSON.stringify(({TABLES})()) === JSON.stringify(expected)", arg=expected)


@needs_browser
def test_an_edited_cell_shows_the_librarys_result_and_the_link_keeps_it(browser: Any, tab: Page, address: str) -> None:
    open_lesson(tab, address, "context")
    wait_for_tables(tab, tables("context", {}))
    apple = tab.get_by_label("apple, tech")
    assert apple.input_value() == "2"
    apple.fill("5")
    wait_for_tables(tab, tables("context", {"table": EDITED}))
    output = context.compute(table=EDITED).sentences[0].softmax_output[0]
    drawn = tab.locator("[data-arrows='apple and an orange'] [data-word=apple]").get_attribute("data-to")
    assert [float(number) for number in drawn.split(",")] == pytest.approx(output)

    tab.wait_for_function("() => decodeURIComponent(location.hash).includes('\"apple\",[5,2,0]')")
    assert "bank" not in tab.evaluate("location.hash")  # unchanged settings are left out
    other = browser.new_page()
    other.goto(tab.url)
    wait_for_tables(other, tables("context", {"table": EDITED}))
    assert other.get_by_label("apple, tech").input_value() == "5"
    other.close()

    tab.get_by_role("button", name="reset all", exact=True).click()
    wait_for_tables(tab, tables("context", {}))
    assert apple.input_value() == "2"
    tab.wait_for_function("() => !location.hash.includes('settings')")


@needs_browser
def test_rows_columns_and_texts_can_be_added_and_removed(tab: Page, address: str) -> None:
    open_lesson(tab, address, "context")
    table = tab.locator("[data-setting=table]")
    table.get_by_role("button", name="+ row").click()
    table.get_by_label("name of row 6").fill("kiwi")
    table.get_by_label("kiwi, fruit").fill("4")
    sentences = tab.locator("[data-setting=sentences]")
    sentences.get_by_role("button", name="remove Sentences, 2").click()
    sentences.get_by_label("Sentences, 1", exact=True).fill("an apple and kiwi")
    edited = {"table": {**DOCUMENT, "kiwi": (0, 4, 3)}, "sentences": ["an apple and kiwi"]}
    wait_for_tables(tab, tables("context", edited))

    open_lesson(tab, address, "norms")
    samples = tab.locator("[data-setting=samples]")
    samples.get_by_role("button", name="− column").click()
    samples.get_by_role("button", name="remove row 5").click()
    rows = [row[:4] for row in LESSONS["norms"].defaults()["samples"][:4]]
    wait_for_tables(tab, tables("norms", {"samples": rows}))


@needs_browser
def test_lessons_are_in_order_and_keep_their_edits(tab: Page, address: str) -> None:
    open_lesson(tab, address, "lookup")
    assert tab.locator("nav.lessons a").all_text_contents() == [each.title for each in LESSONS.values()]
    assert tab.locator("nav.lessons h3").all_text_contents() == list(GROUPS)
    tab.get_by_role("textbox", name="Query").fill("Smith")
    wait_for_tables(tab, tables("lookup", {"query": "Smith"}))
    tab.locator("[data-lesson-link=norms]").click()
    wait_for_tables(tab, tables("norms", {}))
    tab.locator("[data-lesson-link=lookup]").click()
    wait_for_tables(tab, tables("lookup", {"query": "Smith"}))
    tab.go_back()
    wait_for_tables(tab, tables("norms", {}))


@needs_browser
def test_an_error_is_shown_at_its_field_and_keeps_the_input(browser: Any, address: str) -> None:
    tab = browser.new_page()  # unchecked: the console reports the rejected request
    open_lesson(tab, address, "context")
    cell = tab.get_by_label("apple, tech")
    cell.fill("two")
    alert = tab.locator("[data-setting=table]").get_by_role("alert")
    alert.wait_for()
    assert 'expected a number, got "two"' in alert.inner_text()
    wait_for_tables(tab, tables("context", {}))  # the previous result stays
    assert cell.input_value() == "two"
    cell.fill("5")
    wait_for_tables(tab, tables("context", {"table": EDITED}))
    assert alert.count() == 0
    sentence = tab.get_by_label("Sentences, 1", exact=True)
    sentence.fill("an apple tree")
    tab.locator("[data-setting=sentences]").get_by_role("alert").wait_for()
    assert sentence.input_value() == "an apple tree"
    tab.goto(f"{address}/#/learn?lesson=decoder&model=language-model")
    message = tab.locator(".lesson-body").get_by_role("alert").inner_text()
    assert "choose another" in message and "/docs" not in message  # endpoints are for programs
    tab.close()


@needs_browser
def test_a_lesson_that_trains_waits_for_the_button(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/learn?lesson=order&settings={quote(json.dumps({'steps': 10}))}")
    train = tab.get_by_role("button", name="Train now")
    train.wait_for()
    assert tab.locator(".lesson-table").count() == 0
    assert LESSONS["order"].question in tab.locator(".lesson-head").inner_text()
    assert "trains two small translators (about 12 seconds" in tab.locator(".training").inner_text()
    train.click()
    tab.wait_for_function(IS_SHOWN, arg="order", timeout=120_000)
    wait_for_tables(tab, tables("order", {"steps": 10}))


@needs_browser
def test_the_bars_of_a_group_are_aligned(tab: Page, address: str) -> None:
    open_lesson(tab, address, "lookup")
    begin = "groups => groups.map(g => new Set([...g.querySelectorAll('.meter')].map(m => m.getBoundingClientRect().x)).size)"
    assert tab.locator(".bar-group").evaluate_all(begin) == [1, 1, 1, 1]


@needs_browser
def test_a_lesson_links_to_the_view_of_its_sentence(tab: Page, address: str) -> None:
    open_lesson(tab, address, "mask")
    assert tab.locator("[data-matrix='weights with mask'] [role=gridcell]", has_text="masked").count() > 0
    tab.get_by_role("link", name="this head, with scores and mask").click()
    tab.locator("[data-matrix='decoder.0.masked.weights head 0']").wait_for()


@needs_browser
def test_exercises_are_graded_and_the_browser_remembers_what_is_solved(browser: Any, address: str) -> None:
    browser_context = browser.new_context(reduced_motion="reduce")
    tab = browser_context.new_page()
    open_lesson(tab, address, "mask")
    link = tab.locator("[data-lesson-link=mask]")
    wait_until(lambda: link.get_attribute("data-progress") == "opened")
    items, exercises = tab.locator(".exercises li"), LESSONS["mask"].exercises()
    assert items.count() == len(exercises)
    for i, exercise in enumerate(exercises):
        answer, check = items.nth(i).get_by_role("textbox"), items.nth(i).get_by_role("button", name="check")
        answer.fill("123456")
        check.click()
        assert "Not yet" in items.nth(i).get_by_role("status").inner_text()
        answer.fill(exercise.shown_answer)
        check.click()
        items.nth(i).locator(".verdict.right").wait_for()
        assert exercise.explanation in items.nth(i).inner_text()
    wait_until(lambda: link.get_attribute("data-progress") == "done")
    tab.reload()
    tab.wait_for_function(IS_SHOWN, arg="mask")
    assert link.get_attribute("data-progress") == "done"
    tab.get_by_role("button", name="forget").click()
    wait_until(lambda: link.get_attribute("data-progress") == "new")
    browser_context.close()


@needs_browser
def test_what_to_try_is_a_link_and_the_rest_is_folded(tab: Page, address: str) -> None:
    open_lesson(tab, address, "lookup")
    assert tab.locator("details.fold[open]").count() == 0
    tab.get_by_text("In the notes", exact=True).click()
    assert "Summeth" in tab.locator("details.notes").inner_text()
    tab.get_by_role("link", name="A name that is on the list").click()
    wait_for_tables(tab, tables("lookup", {"query": "Smith"}))


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_lessons_fit_the_screen_and_every_field_has_a_name(browser: Any, address: str, width: int) -> None:
    browser_context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark", reduced_motion="reduce"
    )
    tab = browser_context.new_page()
    for lesson in ("context", "qkv", "heads", "positions", "next", "senses", "window"):
        open_lesson(tab, address, lesson)
        if width < 500:
            tab.locator(".settings summary").click()
        tab.evaluate("document.querySelectorAll('details.fold').forEach(each => each.open = true)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, lesson
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        unnamed = "els => els.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).length"
        assert tab.locator("button, select, input").evaluate_all(unnamed) == 0
    browser_context.close()
