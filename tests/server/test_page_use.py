"""The page by keyboard, in narrow windows, with long texts, errors and nothing to show."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from seq2see.server.explore.app import create_app
from seq2see.server.explore.options import Limits
from seq2see.storage.bundled import GRAMMAR
from tests.browser import NEEDS_BROWSER, VIEWS, open_view
from tests.explore import serving
from tests.models import GRAMMAR_MODEL

pytestmark = NEEDS_BROWSER


def test_page_works_with_the_keyboard_alone(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/microscope?attention=decoder.1.cross&head=2")
    current_hash = "() => new Promise(done => setTimeout(() => done(location.hash), 200))"
    page.locator("[data-matrix] [role=grid]").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.locator("[data-audit='decoder.1.cross.weights:2,1,1']").wait_for()
    active = page.locator("[data-matrix] [role=grid]").get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.keyboard.press("[")
    assert "attention=decoder.0.cross" in page.evaluate(current_hash)
    page.keyboard.press(".")
    assert "head=3" in page.evaluate(current_hash)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="help")).to_have_count(0)
    page.keyboard.press("4")
    page.locator("[data-stage='encoder.tokens']").wait_for()
    page.locator("body").click(position={"x": 3, "y": 400})
    page.keyboard.press("Space")
    page.locator("[data-stage='encoder.embedded']").wait_for()
    page.keyboard.press("Shift+Space")
    page.locator("[data-stage='encoder.tokens']").wait_for()
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before
    page.go_back()
    page.locator("[data-matrix^='decoder.0.cross']").first.wait_for()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_views_fit_the_window_in_both_themes(
    browser: Browser, address: str, width: int, theme: Any, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce")
    page = context.new_page()
    folder = Path(os.environ.get("SEQ2SEE_SCREENSHOTS") or tmp_path)
    extra = {"walk": "&stage=decoder.1.cross.scores&cell=decoder.1.cross.scores:3,2,1", "heads": "&sort=entropy"}
    for view in VIEWS:
        open_view(page, f"{address}/#/{view}?row=2&head=3{extra.get(view, '')}")
        expect(page.locator("main [role=status]")).to_have_count(0)
        page.evaluate("document.fonts.ready")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{view} is wider than the window"
        assert page.evaluate("document.fonts.check('16px \"Noto Sans Devanagari Variable\"', 'है')")
        page.screenshot(path=folder / f"{view}-{theme}-{width}.png", full_page=True)
    context.close()


def test_matrices_are_exported_as_pictures(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/microscope?attention=decoder.1.cross&head=2")
    for format, magic in (("svg", b"<svg"), ("png", b"\x89PNG")):
        with page.expect_download() as download:
            page.locator("[data-matrix]").first.get_by_role("button", name=format).click()
        assert download.value.suggested_filename == f"decoder.1.cross.weights-head-2.{format}"
        data = Path(download.value.path()).read_bytes()
        assert data.startswith(magic)
        if format == "svg":
            assert "आइसक्रीम" in data.decode()


def test_a_saved_drawing_contains_the_font_of_the_page(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/translate")
    page.locator(".lines path").first.wait_for(state="attached")
    page.evaluate("""() => {
        const make = URL.createObjectURL;
        URL.createObjectURL = blob => { window.drawing ??= blob; return make.call(URL, blob); };
    }""")
    page.locator(".lines").get_by_role("button", name="png").click()
    page.wait_for_function("() => window.drawing")
    assert page.evaluate("window.drawing.text()").count("data:font/woff2;base64,") == 2  # Latin and Devanagari


def test_long_texts_scroll_smoothly(page: Page, address: str) -> None:
    """Of 1,000 × 1,000 cells only the visible ones exist, so that scrolling is smooth."""
    words = ("the boy saw a bank and the girl saw two cows " * 100).split()[:1000]
    page.goto(f"{address}/#/microscope?attention=encoder.0.self&head=2&text={'+'.join(words)}")
    page.locator("[data-matrix='encoder.0.self.weights head 2']").wait_for(timeout=600_000)
    page.evaluate(
        """async () => {
            const view = document.querySelector('[data-matrix] [role=grid]');
            for (let i = 1; i <= 30; i++) {
                view.scrollTop = i * 30; view.scrollLeft = i * 20;
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    assert page.locator("[data-cell]").count() < 700


def test_an_evicted_trace_is_requested_again(browser: Browser) -> None:
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, Limits(max_traces=1))) as client:
        context = browser.new_context()
        page = context.new_page()
        open_view(page, f"{client.base_url}/#/walk")
        client.post("/api/traces", json={"text": "How are you?"}).raise_for_status()  # evicts the page's trace
        page.evaluate("location.hash = '#/walk?stage=encoder.embedded'")
        page.locator("[data-matrix='encoder.embedded']").wait_for()
        context.close()


def test_empty_and_error_states_are_shown(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    open_view(page, f"{address}/#/translate")
    page.get_by_label("Text to translate").fill("")
    expect(page.get_by_text("Enter a text above")).to_be_visible()
    page.route("**/api/traces", lambda route: route.abort())
    page.get_by_label("Text to translate").fill("How are you?")
    expect(page.get_by_role("alert")).to_contain_text("the server does not respond")
    page.unroute("**/api/traces")
    response = {"message": "too busy", "location": "", "hint": "try again"}
    page.route("**/api/models", lambda route: route.fulfill(status=503, body=json.dumps(response)))
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("too busy")
    context.close()


@pytest.mark.parametrize("view", ["map", "walk", "heads", "microscope", "intervene", "replay", "compare"])
def test_an_empty_text_leaves_nothing_old(page: Page, address: str, view: str) -> None:
    open_view(page, f"{address}/#/{view}")
    field = page.get_by_label("input text")
    field.fill("")
    expect(page.get_by_text("Enter a text above")).to_be_visible()
    expect(page.locator(".output-tokens button")).to_have_count(0)
    page.keyboard.type("How are you?")  # the field has kept the focus
    expect(page.locator(".output-tokens button").first).to_be_visible()


def test_a_click_in_the_microscope_selects_the_row_everywhere(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/microscope?attention=decoder.1.cross&head=2")
    page.locator("[data-matrix] [role=grid]").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    page.locator("[data-audit='decoder.1.cross.weights:2,2,0']").wait_for()
    expect(page.locator(".output-tokens [aria-pressed=true]")).to_have_text("खाना")
    expect(page.locator("h2", has_text="Attention from")).to_contain_text("आइसक्रीम")


def test_the_first_arrow_key_moves_to_the_second_token(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/heads")
    expect(page.locator(".output-tokens [aria-pressed=true]")).to_have_text("मुझे")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".output-tokens [aria-pressed=true]")).to_have_text("आइसक्रीम")


def test_interventions_are_announced_in_the_other_views(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/heads?interventions=ablate:decoder.1.cross:3")
    note = page.get_by_text("One intervention is set")
    expect(note).to_be_visible()
    page.get_by_role("button", name="clear").click()
    expect(note).to_have_count(0)
    assert "interventions" not in page.evaluate("new Promise(r => setTimeout(() => r(location.hash), 300))")


def test_any_address_opens_a_view_with_its_own_title(page: Page, address: str) -> None:
    for hash, title in (("%", "Map"), ("/heads", "Heads"), ("/translate", "Translate"), ("/nonsense?row=%", "Map")):
        page.goto(f"{address}/#{hash}")
        page.reload()
        expect(page).to_have_title(f"{title} · {GRAMMAR} · seq2see")
        expect(page.locator("main > *").first).to_be_visible()


def test_the_keyboard_reaches_the_content_and_the_words_of_the_output(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/translate")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    word = page.locator(".output").get_by_role("button", name="आइसक्रीम")
    word.focus()
    page.keyboard.press("Enter")
    expect(word).to_have_attribute("aria-pressed", "true")


def test_unknown_words_keep_their_spelling(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/walk?text=The+weather")
    token = page.locator(".tokens li", has_text="weather")
    expect(token).to_contain_text("not in the vocabulary of this model")
