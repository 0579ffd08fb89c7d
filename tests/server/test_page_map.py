"""The map of the model, the tour, and how tokens and layers are named everywhere."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from seq2see.inspect.explain import Explanation
from seq2see.server.explore.app import create_app
from seq2see.storage.bundled import BUNDLED, GRAMMAR
from tests.browser import NEEDS_BROWSER, open_view, parse_number
from tests.explore import serving
from tests.models import GRAMMAR_MODEL, TINY, save, tiny_model

pytestmark = NEEDS_BROWSER


def test_the_tour_is_done_by_keyboard_left_and_resumed(page: Page, address: str) -> None:
    def press(role: Any, name: str | re.Pattern[str]) -> None:
        page.get_by_role(role, name=name).focus()
        page.keyboard.press("Enter")

    open_view(page, address)
    press("link", "Take the tour")
    tour = page.get_by_role("region", name="tour")
    views = ("translate", "translate", "heads", "microscope", "intervene", "replay")
    for number, view in enumerate(views, 1):
        expect(tour).to_contain_text(f"{number} of 7")
        assert page.evaluate("location.hash").startswith(f"#/{view}?")
        if view == "microscope":
            page.locator("[data-audit]").wait_for()
        if view == "intervene":
            page.locator("[data-after]:not([data-after=''])").wait_for()
            expect(page.locator("[data-after] .changed").first).to_be_visible()
        if number == 3:
            press("button", "leave")
            expect(tour).to_have_count(0)
            press("link", "Tour")
            expect(tour).to_contain_text("3 of 7")
        press("link", re.compile("^next: "))
    expect(tour).to_contain_text("7 of 7 Your own model")
    press("button", "end the tour")
    expect(tour).to_have_count(0)


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
def test_the_map_shows_where_the_text_enters(browser: Browser, address: str, width: int, height: int) -> None:
    """On a large screen the whole figure is in the window; on a small one, its lower end."""
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    open_view(page, address)
    page.locator(".map-box .map-text").first.wait_for()
    visible = (
        "box => { const { top, bottom } = box.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; }"
    )
    page.wait_for_function(f"() => ({visible})(document.querySelector('[data-box=\"decoder.tokens\"]'))")
    if width > 390:
        assert page.locator(".map-box").evaluate_all(f"boxes => boxes.every({visible})")
        assert page.locator(".map-scroll").evaluate("map => map.scrollHeight <= map.clientHeight + 1")
        one_line = "text => text.offsetHeight < 2 * parseFloat(getComputedStyle(text).lineHeight)"
        assert page.locator(".map-opening h1, .map-opening p").evaluate_all(f"texts => texts.every({one_line})")
    assert page.get_by_role("link", name="Take the tour").evaluate(visible)
    context.close()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1280, 800)])
def test_a_large_head_is_in_the_window_beside_legible_thumbnails(
    browser: Browser, address: str, width: int, height: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": height})
    open_view(page, f"{address}/#/heads")
    bottom = "picture => picture.getBoundingClientRect().bottom"
    assert page.locator("[data-large] [data-matrix]").evaluate(bottom) <= height
    if width == 1440:
        assert page.locator("[data-large] .lines svg").evaluate(bottom) <= height
    thumbnails = page.locator(".head-thumbnail canvas")
    expect(thumbnails).to_have_count(6 * 9)
    assert min(thumbnails.evaluate_all("all => all.map(each => each.clientWidth)")) >= 40
    page.mouse.wheel(0, 200)  # the large head stays beside the last thumbnails
    thumbnails.last.hover()
    expect(page.locator("[data-large='decoder.1.masked 7'] [data-matrix]")).to_be_in_viewport(ratio=0.99)
    page.close()


def test_a_model_without_snapshots_leads_to_one_that_has_them(page: Page) -> None:
    with serving(create_app({"en-fr": BUNDLED / "en-fr", GRAMMAR: GRAMMAR_MODEL})) as client:
        page.goto(f"{client.base_url}/#/replay")
        page.get_by_role("link", name=f"Replay the training of {GRAMMAR}").click()
        expect(page.get_by_text("All snapshots")).to_be_visible()
        expect(page.get_by_label("model", exact=True)).to_have_value(GRAMMAR)
        page.goto(f"{client.base_url}/#/intervene?tour=5")
        expect(page.get_by_role("region", name="tour")).to_contain_text("5 of 7")
        page.get_by_role("link", name="next: replay the training").click()
        expect(page.get_by_label("model", exact=True)).to_have_value(GRAMMAR)
        page.goto("about:blank")  # nothing is requested from a server that has ended


def test_the_map_names_one_source_of_the_training_data_and_counts_the_others(page: Page) -> None:
    with serving(create_app({"en-fr": BUNDLED / "en-fr"})) as client:
        page.goto(f"{client.base_url}/#/map")
        expect(page.get_by_text("trained on Tatoeba and 7 more")).to_be_visible()
        page.goto("about:blank")


def test_with_several_models_the_header_stays_in_order(browser: Browser) -> None:
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL, f"{GRAMMAR}-with-a-long-name": GRAMMAR_MODEL})) as client:
        page = browser.new_page()
        page.goto(f"{client.base_url}/#/translate?model={GRAMMAR}-with-a-long-name")
        page.locator("[data-output]:not([data-output=''])").wait_for()
        centers = "parts => parts.map(part => part.getBoundingClientRect()).map(({ y, height }) => y + height / 2)"
        for width in (1440, 1421, 1280, 1024, 390):
            page.set_viewport_size({"width": width, "height": 844})
            rows = page.locator(".header-bar > .brand, .header-bar > .chip, .header-bar > .header-tools")
            if width > 390:  # on a phone the model has a row of its own
                rows = rows.or_(page.get_by_label("model", exact=True))
            assert max(places := rows.evaluate_all(centers)) - min(places) < 4, width
        page.close()


def test_of_a_high_figure_the_lower_end_is_shown(page: Page, tmp_path: Path) -> None:
    save(tiny_model(["one two three"], replace(TINY, encoder_layers=24, decoder_layers=24)), tmp_path / "deep")
    with serving(create_app({"deep": tmp_path / "deep"})) as client:
        open_view(page, str(client.base_url))
        page.wait_for_load_state("networkidle")  # nothing is requested from a server that has ended
        scrolled = "map => [map.scrollTop, map.scrollHeight - map.clientHeight]"
        top, bottom = page.locator(".map-scroll").evaluate(scrolled)
        assert top > 100 and top == pytest.approx(bottom, abs=1)


def test_layers_are_numbered_as_in_python_everywhere(page: Page, address: str) -> None:
    open_view(page, address)
    expect(page.locator(".map-layer")).to_have_text(["encoder layer 0 (of 2)", "decoder layer 0 (of 2)"])
    expect(page.locator(".map-legend")).to_contain_text("counted from 0, as in Python: layer 1 is the second one")
    expect(page.locator(".map-legend .legend")).to_have_text(["negativepositive", "01"])
    page.keyboard.press("5")
    expect(page.locator(".heads-overview")).to_contain_text("counted from 0")
    page.goto(f"{address}/#/walk?stage=decoder.1.cross.scores")
    expect(page.locator(".stage h2")).to_have_text("decoder layer 1, cross-attention: scores")
    expect(page.get_by_label("part of the model")).to_have_value("decoder.1.cross")
    page.goto(f"{address}/#/microscope?attention=decoder.1.cross&head=1")
    expect(page.locator("main h2").first).to_have_text("decoder layer 1, cross-attention, head 1")
    expect(page.locator("[data-matrix='decoder.1.cross.weights head 1']")).to_be_visible()


def test_words_are_transliterated_where_they_are_read(page: Page, address: str) -> None:
    """The Latin letters are generated content: the text itself stays the model's."""
    latin = ["mujhē", "āisakrīma", "khānā", "pasaṁda", "hai"]
    for view, place in {
        "map": ".output-tokens",
        "translate": ".output",
        "heads": ".output-tokens",
        "intervene": "[data-before]",
        "replay": ".output:not(.placeholder)",
        "compare": "[data-side='0'] .accent",
        "space": ".output-tokens",
    }.items():
        open_view(page, f"{address}/#/{view}")
        words = page.locator(f"{place} rt")
        expect(words).to_have_count(5)
        assert words.evaluate_all("all => all.map(rt => rt.dataset.latin)") == latin, view
        assert page.locator(place).first.evaluate(
            "place => !/[a-zāī]{3,}/.test(place.textContent.replace('<end>', ''))"
        )
    for view, place in {
        "walk?stage=decoder.tokens": ".tokens",
        "microscope?attention=decoder.1.masked": ".lookup",
    }.items():
        open_view(page, f"{address}/#/{view}")
        expect(page.locator(f"{place} rt[data-latin='mujhē']")).to_have_count(1)
    open_view(page, f"{address}/#/heads?row=1")
    expect(page.locator(".lines text[lang=hi-Latn]")).to_have_text(latin)
    # The labels of a matrix have it in the line below.
    page.locator("[data-matrix] [role=grid]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout").first).to_contain_text("<start> ▸ मुझे (<start> ▸ mujhē) · I:")


def test_what_is_drawn_is_what_the_chips_say(page: Page, address: str, explanation: Explanation) -> None:
    open_view(page, f"{address}/#/heads?attention=decoder.1.cross&lines=1,3,5")
    chips = page.get_by_role("group", name="heads to draw")
    expect(chips.locator("[aria-pressed=true]")).to_have_text(["1", "3", "5"])
    expect(page.locator(".head-thumbnail[aria-pressed=true]")).to_have_count(3)
    large = page.locator("[data-large]")
    expect(large.get_by_role("heading")).to_have_text("decoder layer 1, cross-attention, heads 1, 3 and 5")
    cell = large.locator("[data-matrix='decoder.1.cross.weights mean of heads 1, 3 and 5'] [data-cell='1,3']")
    mean = explanation.trace["decoder.1.cross.weights", 0][[1, 3, 5], 1, 3].mean().item()
    assert parse_number(cell.inner_text().split(": ")[1]) == pytest.approx(mean, abs=1e-4)
    # One head is chosen elsewhere: the others are no longer drawn.
    page.locator("[data-head='decoder.1.cross 2']").click()
    page.mouse.move(2, 2)  # ends the preview
    expect(chips.locator("[aria-pressed=true]")).to_have_text(["2"])
    expect(page.locator(".head-thumbnail[aria-pressed=true]")).to_have_count(1)
    chips.get_by_role("button", name="mean").click()
    expect(chips.locator("[aria-pressed=true]")).to_have_text(["mean"])


def test_every_view_has_a_key_that_the_help_names(page: Page, address: str) -> None:
    open_view(page, address)
    page.keyboard.press("?")
    keys = page.locator(".view-keys span").all_inner_texts()
    page.keyboard.press("Escape")
    links = page.get_by_role("navigation", name="views").get_by_role("link").all_inner_texts()
    assert [name.split()[1] for name in keys] == links and links[1] == "Learn"
    for entry in keys[-2:]:
        key, name = entry.split()
        page.keyboard.press(key)
        expect(page).to_have_title(re.compile(f"^{name} "))


def test_the_map_names_the_model_and_plays_the_computation(page: Page, address: str) -> None:
    open_view(page, address)
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{GRAMMAR}: English → Hindi")
    expect(page.locator(".map-opening p")).to_have_text(
        "2+2 layers, 8 heads, a vocabulary of 1,901 tokens, trained on Built-in grammar"
    )
    step = page.get_by_role("button", name="one box on")
    lit = []
    for _ in range(8):
        step.click()
        lit.append(page.locator(".map-box.lit").get_attribute("data-box"))
    assert lit[:3] == ["encoder.tokens", "encoder.embedded", "encoder.input"] and "encoder.0.self.weights" in lit
    page.get_by_role("button", name="open decoder layer 1").click()
    page.get_by_role("link", name="cross-attention, decoder layer 1: open in Walk").click()
    page.locator("[data-stage='decoder.1.cross.weights']").wait_for()
    expect(page.get_by_role("navigation", name="where this is in the model").locator(".lit")).to_have_count(3)
