"""Space in a real browser: neighbours, sums of words, and paths through the layers are the library's."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

import seq2see
from seq2see.api import Model
from seq2see.inspect.embedding_space import EmbeddingSpace, token_paths
from tests.browser import NEEDS_BROWSER, checked_page
from tests.models import GRAMMAR_MODEL

pytestmark = NEEDS_BROWSER
TEXT = "I like eating ice-cream"
Page = Any


@pytest.fixture(scope="module")
def model() -> Model:
    return seq2see.load(GRAMMAR_MODEL)


@pytest.fixture
def tab(browser: Any) -> Iterator[Page]:
    yield from checked_page(browser, reduced_motion=True)


def cosines(tab: Page, first: str) -> dict[str, float]:
    tab.locator(f"[data-neighbor={first}]").wait_for()
    script = "rows => rows.map(row => [row.dataset.neighbor, Number(row.dataset.cosine)])"
    return dict(tab.locator("[data-neighbor]").evaluate_all(script))


def test_a_words_neighbours_and_a_sum_of_words_are_the_librarys(tab: Page, address: str, model: Model) -> None:
    space = EmbeddingSpace.of(model, "encoder")
    tab.goto(f"{address}/#/space?text={quote(TEXT)}&words=eat")
    expected = {neighbor.token: neighbor.cosine for neighbor in space.arithmetic("eat").neighbors}
    assert cosines(tab, "eats") == pytest.approx(expected, abs=1e-5)
    tab.get_by_role("button", name="eating 0").click()  # a neighbour becomes the word
    expect(tab.get_by_label("nearest to a word")).to_have_value("eating")

    tab.get_by_role("button", name="Sums of words").click()
    field = tab.get_by_label("nearest to a word")
    field.fill("went - go + come")
    expected = {neighbor.token: neighbor.cosine for neighbor in space.arithmetic("went − go + come").neighbors}
    assert cosines(tab, "came") == pytest.approx(expected, abs=1e-5)
    picture = tab.locator("canvas[data-scatter='words encoder']")
    expect(picture).to_have_attribute(
        "aria-label",
        "Nearest to plus went minus go plus come: "
        + ", ".join(f"{word} {cosine:.2f}" for word, cosine in list(expected.items())[:5])
        + ".",
    )


def test_an_unknown_word_is_explained_and_the_picture_stays(browser: Any, address: str) -> None:
    tab = browser.new_page()  # unchecked: the console reports the rejected request
    tab.goto(f"{address}/#/space?words=eat")
    cosines(tab, "eats")
    tab.get_by_label("nearest to a word").fill("eatt")
    expect(tab.get_by_role("alert")).to_contain_text(
        '"eatt" is not in the vocabulary of 1,288 tokens: did you mean eat'
    )
    assert tab.locator("canvas[data-scatter]").is_visible()
    tab.close()


def test_a_word_is_followed_through_the_layers_by_keyboard(tab: Page, address: str, model: Model) -> None:
    tab.goto(f"{address}/#/space?text={quote(TEXT)}&space=layers&stack=decoder&layer=0")
    e = model.explain(TEXT)
    space, path = EmbeddingSpace.of(model, "decoder"), token_paths(e, "decoder")
    chip = tab.get_by_role("group", name="words of the text").get_by_role("button").nth(1)
    row_name = f"{path.tokens[1]} ▸ {path.tokens[2]}"  # what it reads and writes
    expect(chip).to_have_text(row_name)
    chip.focus()
    tab.keyboard.press("Enter")
    expect(tab.locator("h3")).to_have_text(f"“{row_name}” is nearest to …")
    expect(tab.locator("canvas[data-scatter]")).to_have_attribute("aria-label", re.compile(f"selected: {row_name}\\."))
    table = tab.locator(f"[data-path='{path.tokens[1]}'] tbody tr")
    expect(table).to_have_count(len(path.layers))
    for row, vectors in zip(table.all(), path.vectors, strict=True):
        (best,) = space.nearest(space.directions(vectors[1:2]), 3)
        expect(row.locator("td")).to_have_text(", ".join(f"{one.token} {one.cosine:.2f}" for one in best))
    assert table.last.locator("b").inner_text() == path.tokens[2]  # it has become the next word
    (last,) = space.nearest(space.directions(path.vectors[-1][1:2]), 1)
    insight = tab.locator("[data-insight]")
    expect(insight).to_contain_text("starts at its own embedding; after the last layer it is nearest to")
    expect(insight).to_contain_text(f"(cosine {last[0].cosine:.2f}), the very token that the model writes next")

    expect(table.first).to_have_attribute("aria-current", "true")
    tab.get_by_role("slider", name="layer").focus()
    tab.keyboard.press("End")
    expect(table.last).to_have_attribute("aria-current", "true")
    expect(tab.locator(".space-player output")).to_have_text("final norm")


def test_the_cloud_turns_and_zooms_by_keyboard(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/space?dimensions=3")
    canvas = tab.locator("canvas[data-scatter]")
    canvas.focus()
    before = float(canvas.get_attribute("data-turn"))
    tab.keyboard.press("ArrowRight")
    expect(canvas).not_to_have_attribute("data-turn", f"{before:.3f}")
    tab.keyboard.press("+")
    expect(canvas).to_have_attribute("data-zoom", "1.250")
    tab.keyboard.press("0")
    expect(canvas).to_have_attribute("data-turn", f"{before:.3f}")
    assert "row=" not in tab.url  # the arrow keys did not select another token


def test_a_second_text_joins_the_first(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/space?text={quote(TEXT)}&space=layers")
    chips = tab.get_by_role("group", name="words of the text").get_by_role("button")
    expect(chips).to_have_count(5)
    tab.get_by_label("a second text").fill("We are friends")
    expect(chips).to_have_count(9)
    expect(tab.locator(".chip.second").first).to_have_text("We")


def test_tsne_is_offered_only_where_it_is_installed(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/space")
    tab.locator("canvas[data-scatter]").wait_for()
    assert tab.get_by_role("button", name="t-SNE").count() == int(find_spec("openTSNE") is not None)
