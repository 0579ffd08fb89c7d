"""The lessons over HTTP and in the page: the library's own numbers, also of what somebody edited; and nothing else gets in."""

import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI

from seq2see.config import ModelConfig
from seq2see.course import lessons
from seq2see.course.lessons import LESSONS
from seq2see.course.lessons.measures import DOCUMENT
from seq2see.course.lessons.render import plain
from seq2see.course.lessons.training import before_each_step
from seq2see.serve.app import create
from seq2see.serve.lessons import told
from tests.browser import NEEDED, watched
from tests.models import save, tiny_model
from tests.test_serve import TEXTS, WRITER, post, problem, serving

Page = Any
SMALL = {
    "order": {"steps": 10}, "leak": {"steps": 10}, "cross": {"steps": 10}, "directions": {"sentences": 1000},
    "words": {"sentences": 100}, "scaling": {"samples": 200},
}  # fmt: skip
ENCODER = ModelConfig(shape="encoder", width=16, heads=2, encoder_layers=1, feed_forward=16, dropout=0.0)
EDITED = {**DOCUMENT, "apple": (5, 2, 0)}


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    for mark in NEEDED:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    folder = tmp_path_factory.mktemp("models")
    writer, reader = (save(tiny_model(TEXTS, shape), folder / shape.shape) for shape in (WRITER, ENCODER))
    return create({"bundled": None, "writer": writer, "reader": reader})


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[httpx.Client]:
    with serving(app) as client:
        client.timeout = httpx.Timeout(180)
        yield client


@pytest.fixture(scope="module")
def address(client: httpx.Client) -> str:
    return str(client.base_url)


@pytest.fixture
def tab(browser: Any) -> Iterator[Page]:
    yield from watched(browser, still=True)


def ask(client: httpx.Client, lesson: str, **given: object) -> dict[str, Any]:
    return post(client, f"/api/lessons/{lesson}", given=given)


def alike(one: Any, other: Any) -> bool:
    """Equal but for the last digits, which depend on how many threads add up."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=2e-4, abs_tol=2e-6)
    return bool(one == other)


# Over HTTP


def test_the_lessons_are_listed_in_the_notes_order_and_no_file_can_be_set(client: httpx.Client) -> None:
    cards = client.get("/api/lessons").json()["lessons"]
    assert [card["name"] for card in cards] == list(LESSONS)
    for card in cards:
        own = LESSONS[card["name"]].defaults()
        names = [setting["name"] for setting in card["settings"]]
        assert names == [name for name in own if name not in ("model", "vectors", "wic")]
        assert card["model"] == ("model" in own)
        for setting in card["settings"]:
            assert setting["default"] == plain(own[setting["name"]] or ("" if setting["name"] == "target" else 0))
    kinds = {setting["kind"] for card in cards for setting in card["settings"]}
    assert kinds == {
        "text", "texts", "rows", "number", "numbers", "matrix", "values", "table", "matrices", "groups", "questions",
    }  # fmt: skip
    trained = ["saturation", "order", "leak", "cross", "directions"]
    for having in ("seconds", "claim"):
        assert [card["name"] for card in cards if card[having]] == trained


# But `saturation`, which trains as `order` does, and longer.
@pytest.mark.parametrize("name", [name for name in LESSONS if name != "saturation"])
def test_a_lesson_answers_with_the_library_s_own_numbers(client: httpx.Client, name: str) -> None:
    given: Mapping[str, Any] = SMALL.get(name, {})
    lesson, answer = LESSONS[name], ask(client, name, **given)
    result = lesson.compute(given)
    assert alike(answer["result"], json.loads(json.dumps(plain(result))))
    story = told(lesson.story(result))
    assert [type(part) for part in answer["story"]["parts"]] == [type(part) for part in story["parts"]]
    assert answer["story"]["slips"] == story["slips"]
    assert not lesson.seconds or answer["story"]["claim"] == lesson.claim
    assert all(answer["given"][setting] == value for setting, value in given.items())
    assert answer["model"] == ("bundled" if "model" in lesson.defaults() else None)


def test_an_edited_table_gives_other_numbers_by_name_or_in_pairs(client: httpx.Client) -> None:
    expected = plain(lessons.LESSONS["context"].compute({"table": EDITED}))
    by_name = ask(client, "context", table=EDITED)["result"]
    in_pairs = ask(client, "context", table=[[word, numbers] for word, numbers in EDITED.items()])["result"]
    assert alike(by_name, expected) and alike(in_pairs, expected)
    assert not alike(by_name, plain(LESSONS["context"].compute({})))


def test_what_is_masked_is_shown_as_such_and_weights_are_shaded(client: httpx.Client) -> None:
    tables = [part for part in ask(client, "mask")["story"]["parts"] if isinstance(part, dict)]
    assert tables[0]["shown"][0][1:3] == ["0", "−∞"] and tables[0]["rows"][0][2] is None
    assert [table["shaded"] for table in tables] == [False, False, True, True, False]


BAD: list[tuple[str, Any, str]] = [
    ("directions", {"vectors": "/etc/passwd"}, 'nobody set "vectors"'),
    ("senses", {"wic": "/etc"}, 'nobody set "wic"'),
    ("mask", {"model": "/etc"}, 'nobody set "model"'),
    ("context", {"tabel": {}}, 'nobody set "tabel"'),
    ("context", {"table": {}}, "0 of them"),
    ("context", {"table": "apple"}, "where a list is expected"),
    ("context", {"table": {"apple": "red"}}, "where a list is expected"),
    ("context", {"table": {"apple": [1, "two", 3]}}, '"two" where a number is expected'),
    ("context", {"table": {"apple": [1, math.nan, 3]}}, "nan where a number is expected"),
    ("context", {"table": {"apple": [1, math.inf, 3]}}, "inf where a number is expected"),
    ("context", {"table": {"apple": [1, True, 3]}}, "True where a number is expected"),
    ("context", {"table": {"apple": [1e300, 0, 0]}}, "1e+300 where"),
    ("context", {"table": {"apple": [[[[[[1]]]]]]}}, "where a number is expected"),
    ("context", {"table": json.loads("[" * 500 + "]" * 500)}, "a name and what belongs to it"),
    ("context", {"table": {f"w{i}": [1, 2, 3] for i in range(10_000)}}, "10,000 of them"),
    ("context", {"table": {**DOCUMENT, "apple": [1, 2]}}, "rows of 2, 3 numbers"),
    ("context", {"table": [["apple", [1, 2]], ["apple", [1, 2]]]}, 'two rows are called "apple"'),
    ("context", {"table": [["apple", [1, 2], 3]]}, "a name and what belongs to it"),
    ("context", {"table": {" ": [1, 2, 3]}}, "nothing is written here"),
    ("context", {"sentences": ["an apple tree"]}, 'no row for "tree"'),
    ("context", {"sentences": [7]}, "7 where a text is expected"),
    ("context", {"sentences": ["apple " * 100]}, "600 characters"),
    ("context", {"bank_weights": {"money bank": [[1, 0, 0]]}}, "1 × 3, but it has 2 words"),
    ("qkv", {"query_weights": [[1, 2], [3]]}, "rows of 1, 2 numbers"),
    ("qkv", {"query_weights": [[1, 2]]}, "W_Q has 1 rows"),
    ("lookup", {"temperatures": [0]}, "0 where 0.01 to 1000"),
    ("lookup", {"query": {"$ne": 1}}, "where a text is expected"),
    ("next", {"temperatures": [1e-300]}, "1e-300 where"),
    ("next", {"turns": [["user"]]}, "1 where 2 are expected"),
    ("next", {"turns": [["nobody", "hello"]]}, 'nobody is called "nobody"'),
    ("heads", {"questions": {"The man saw it.": ["it"]}}, "1 where 2 are expected"),
    ("heads", {"questions": {"The man saw it.": ["she", ["man"]]}}, '"she" is not in'),
    ("senses", {"words": {"bank": ["No such word here."]}}, "bank"),
    ("scaling", {"samples": 10**9}, "1000000000 where 2 to 4000"),
    ("scaling", {"dimensions": [10**6]}, "1000000 where 1 to 512"),
    ("scaling", {"dimensions": [2.5]}, "whole number"),
    ("words", {"sentences": 10**7}, "10000000 where 20 to 2000"),
    ("words", {"shares": [0.5] * 9}, "9 of them, where 1 to 5"),
    ("positions", {"length": 10**6}, "1000000 where 1 to 200"),
    ("positions", {"width": 5}, "even"),
    ("saturation", {"steps": 10**6}, "1000000 where 10 to 200"),
    ("order", {"steps": -1}, "-1 where 10 to 200"),
    ("leak", {"seed": -1}, "-1 where 0"),
    ("directions", {"sentences": 10**9}, "1000000000 where"),
    ("directions", {"pairs": [["one", "two", "three"]]}, "3 where 2 are expected"),
    ("mask", {"layer": 9}, "layer 9"),
]  # fmt: skip


@pytest.mark.parametrize(("lesson", "given", "what"), BAD)
def test_what_cannot_be_meant_is_told(client: httpx.Client, lesson: str, given: Any, what: str) -> None:
    body = json.dumps({"given": given}).encode()  # with NaN and Infinity, which httpx would not write
    answer = client.post(f"/api/lessons/{lesson}", content=body, headers={"content-type": "application/json"})
    assert what in problem(answer, 422)["what"]
    assert answer.elapsed.total_seconds() < 20  # in milliseconds on a quiet machine; none of them is computed


def test_where_it_is_wrong_is_told(client: httpx.Client) -> None:
    wrong = client.post("/api/lessons/context", json={"given": {"table": {"an": [1, 2], "apple": [1, "x"]}}})
    assert problem(wrong, 422)["where"] == "given.table.1.1"
    assert "context" in problem(client.post("/api/lessons/contxt", json={}), 404)["remedy"]
    problem(client.post("/api/lessons/context", content=b'{"given": {"names": ["\\ud800"]}}'), 422)
    problem(client.post("/api/lessons/mask", json={"model": "nobody"}), 404)


@pytest.mark.parametrize("model", ["writer", "reader"])
def test_no_model_breaks_a_lesson(client: httpx.Client, model: str) -> None:
    """A language model and an encoder: told, or refused in words."""
    statuses = {}
    for name, lesson in LESSONS.items():
        if "model" in lesson.defaults() and not lesson.seconds:
            answer = client.post(f"/api/lessons/{name}", json={"model": model})
            statuses[name] = answer.status_code
            assert answer.status_code == 200 or problem(answer, 422)
    assert 200 in statuses.values(), statuses


def test_a_training_that_nobody_waits_for_ends_and_only_one_runs(app: FastAPI, client: httpx.Client) -> None:
    lock = app.state.answers().learn._training
    body = b'{"given": {"steps": 200}}'
    lines = ["POST /api/lessons/saturation HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    with socket.create_connection(("127.0.0.1", client.base_url.port or 80)) as leaving:
        leaving.sendall(head.encode() + body)
        while not lock.locked():  # until it has begun
            time.sleep(0.01)
        busy = client.post("/api/lessons/cross", json={"given": {"steps": 10}})
        assert "another lesson" in problem(busy, 503)["what"]
    began = time.monotonic()
    with lock:
        assert time.monotonic() - began < 30  # in 200 steps it would be held far longer


def test_a_training_can_be_ended_at_any_step() -> None:
    steps = []

    def third() -> None:
        steps.append(1)
        if len(steps) == 3:
            raise TimeoutError

    token = before_each_step.set(third)
    try:
        with pytest.raises(TimeoutError):
            LESSONS["order"].compute({})
        steps.clear()
        with pytest.raises(TimeoutError):
            LESSONS["directions"].compute({"sentences": 1000})
    finally:
        before_each_step.reset(token)


def test_the_server_starts_without_torch() -> None:
    code = "import sys, seq2see.serve.app; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# In the page

HAS_TOLD = "name => document.querySelector('.lesson')?.dataset.told === name"
TABLES = """() => [...document.querySelectorAll('.shown')].map(table =>
    [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent)))"""


def opened(tab: Page, address: str, lesson: str, given: object = None) -> None:
    state = "" if given is None else f"&given={quote(json.dumps(given))}"
    tab.goto(f"{address}/#/learn?lesson={lesson}{state}")
    tab.wait_for_function(HAS_TOLD, arg=lesson)


def tables(lesson: str, given: Mapping[str, Any]) -> list[Any]:
    story = told(LESSONS[lesson].story(LESSONS[lesson].compute(given)))
    return [part["shown"] for part in story["parts"] if isinstance(part, dict)]


def shows(tab: Page, expected: list[Any]) -> None:
    """Waits until these are the tables that are seen."""
    tab.wait_for_function(f"expected => JSON.stringify(({TABLES})()) === JSON.stringify(expected)", arg=expected)


@in_a_browser
def test_an_edited_cell_shows_what_the_library_computes_and_a_link_repeats_it(
    browser: Any, tab: Page, address: str
) -> None:
    opened(tab, address, "context")
    shows(tab, tables("context", {}))
    apple = tab.get_by_label("apple, tech")
    assert apple.input_value() == "2"
    apple.fill("5")
    shows(tab, tables("context", {"table": EDITED}))
    moved = lessons.context(table=EDITED).sentences[0].moved[0]
    drawn = tab.locator("[data-arrows='apple and an orange'] [data-word=apple]").get_attribute("data-to")
    assert [float(number) for number in drawn.split(",")] == pytest.approx(moved)

    tab.wait_for_function("() => decodeURIComponent(location.hash).includes('\"apple\",[5,2,0]')")
    assert "bank" not in tab.evaluate("location.hash")  # what is the notes' own is left out
    other = browser.new_page()
    other.goto(tab.url)
    shows(other, tables("context", {"table": EDITED}))
    assert other.get_by_label("apple, tech").input_value() == "5"
    other.close()

    tab.get_by_role("button", name="back to the notes’", exact=True).click()
    shows(tab, tables("context", {}))
    assert apple.input_value() == "2"
    tab.wait_for_function("() => !location.hash.includes('given')")


@in_a_browser
def test_rows_columns_and_texts_come_and_go(tab: Page, address: str) -> None:
    opened(tab, address, "context")
    table = tab.locator("[data-setting=table]")
    table.get_by_role("button", name="+ row").click()
    table.get_by_label("name of row 6").fill("kiwi")
    table.get_by_label("kiwi, fruit").fill("4")
    sentences = tab.locator("[data-setting=sentences]")
    sentences.get_by_role("button", name="remove Sentences, 2").click()
    sentences.get_by_label("Sentences, 1", exact=True).fill("an apple and kiwi")
    edited = {"table": {**DOCUMENT, "kiwi": (0, 4, 3)}, "sentences": ["an apple and kiwi"]}
    shows(tab, tables("context", edited))

    opened(tab, address, "norms")
    samples = tab.locator("[data-setting=samples]")
    samples.get_by_role("button", name="− column").click()
    samples.get_by_role("button", name="remove row 5").click()
    rows = [row[:4] for row in LESSONS["norms"].defaults()["samples"][:4]]
    shows(tab, tables("norms", {"samples": rows}))


@in_a_browser
def test_lessons_stand_in_order_keep_their_edits_and_going_back_undoes(tab: Page, address: str) -> None:
    opened(tab, address, "lookup")
    assert tab.locator("nav.lessons a").all_text_contents() == list(LESSONS)
    tab.get_by_role("textbox", name="Who asks").fill("Smith")
    shows(tab, tables("lookup", {"query": "Smith"}))
    tab.locator("nav.lessons").get_by_role("link", name="norms").click()
    shows(tab, tables("norms", {}))
    tab.locator("nav.lessons").get_by_role("link", name="lookup").click()
    shows(tab, tables("lookup", {"query": "Smith"}))
    tab.go_back()
    shows(tab, tables("norms", {}))
    tab.keyboard.press("8")  # the view is the eighth
    assert tab.locator(".views [aria-current]").inner_text() == "Learn"


@in_a_browser
def test_an_error_stands_beside_its_field_and_nothing_is_lost(browser: Any, address: str) -> None:
    tab = browser.new_page()  # whose console may complain of the refusal
    opened(tab, address, "context")
    cell = tab.get_by_label("apple, tech")
    cell.fill("two")
    wrong = tab.locator("[data-setting=table]").get_by_role("alert")
    wrong.wait_for()
    assert '"two" where a number is expected' in wrong.inner_text()
    shows(tab, tables("context", {}))  # the last answer stays
    assert cell.input_value() == "two"
    cell.fill("5")
    shows(tab, tables("context", {"table": EDITED}))
    assert wrong.count() == 0
    sentence = tab.get_by_label("Sentences, 1", exact=True)
    sentence.fill("an apple tree")
    tab.locator("[data-setting=sentences]").get_by_role("alert").wait_for()
    assert sentence.input_value() == "an apple tree"
    tab.goto(f"{address}/#/learn?lesson=decoder&model=writer")
    told = tab.locator(".lesson-body").get_by_role("alert").inner_text()
    assert "choose another" in told and "/docs" not in told  # which is for programs
    tab.close()


@in_a_browser
def test_a_lesson_that_trains_waits_to_be_asked(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/learn?lesson=order&given={quote(json.dumps({'steps': 10}))}")
    train = tab.get_by_role("button", name="Train now")
    train.wait_for()
    assert tab.locator(".shown").count() == 0
    head, claim = tab.locator(".lesson-head"), LESSONS["order"].claim
    assert claim[0].upper() + claim[1:] in head.inner_text()
    assert "trains two small translators on the spot: about 12 seconds" in tab.locator(".train").inner_text()
    train.click()
    tab.wait_for_function(HAS_TOLD, arg="order", timeout=120_000)
    shows(tab, tables("order", {"steps": 10}))


@in_a_browser
def test_the_bars_of_a_group_begin_below_each_other(tab: Page, address: str) -> None:
    opened(tab, address, "lookup")
    begin = "groups => groups.map(g => new Set([...g.querySelectorAll('.meter')].map(m => m.getBoundingClientRect().x)).size)"
    assert tab.locator(".bar-group").evaluate_all(begin) == [1, 1, 1, 1]


@in_a_browser
def test_a_lesson_leads_into_the_view_of_its_sentence(tab: Page, address: str) -> None:
    opened(tab, address, "mask")
    assert tab.locator("[data-matrix='weights with the mask'] [role=gridcell]", has_text="masked").count() > 0
    tab.get_by_role("button", name="under the microscope").click()
    tab.locator("[data-matrix='decoder.0.masked.weights head 0']").wait_for()


@in_a_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_lessons_fit_in_the_dark_and_every_field_has_a_name(browser: Any, address: str, width: int) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark", reduced_motion="reduce"
    )
    tab = context.new_page()
    for lesson in ("context", "qkv", "heads", "positions", "next", "senses"):
        opened(tab, address, lesson)
        if width < 500:
            tab.locator(".settings summary").click()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, lesson
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        unnamed = "els => els.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).length"
        assert tab.locator("button, select, input").evaluate_all(unnamed) == 0
    context.close()
