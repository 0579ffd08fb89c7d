"""The page on the models of 2014 and 2015: the attention of the one is shown and worked out, the other says it has none."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from seq2see.api import Model, load
from seq2see.config import ModelConfig, TextConfig
from seq2see.directory import save_weights, snapshot_file
from seq2see.inspect.explain import Explanation
from seq2see.inspect.interventions import Selection, ablate_head, scale
from seq2see.serve.app import create_app
from seq2see.serve.static_export import export_html
from tests.browser import NEEDS_BROWSER, checked_page
from tests.models import TINY, save, tiny_model
from tests.test_page import WORDS, audit_cell, figure, settled, walk_through
from tests.test_serve import serving

pytestmark = NEEDS_BROWSER
TEXT = "the bird sees"
RNN = ModelConfig(
    kind="rnn", width=16, heads=1, encoder_layers=2, decoder_layers=2, dropout=0.0, output_bias=True
)  # fmt: skip
KINDS = {
    "2014": RNN,
    "2015": replace(RNN, kind="rnn-attention", encoder_layers=1, decoder_layers=1),
    "deep": replace(RNN, kind="rnn-attention", decoder_layers=3, tie_embeddings="none"),
    "transformer": TINY,
}
VIEWS = ("translate", "walk", "heads", "microscope", "intervene", "replay", "compare")
CROSS = "decoder.0.cross"


def stirred(name: str) -> Model:
    """Of random weights large enough to matter, the two biases of a gate among them."""
    model = tiny_model(WORDS, KINDS[name], TextConfig(tokenizer="word"))
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    for name in KINDS:
        save(stirred(name), folder / name)
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Model]:
    """Loaded as the server loads them: results depend, in the last bit, on where the weights are in memory."""
    return {name: load(folder / name) for name in KINDS}


@pytest.fixture(scope="module")
def explained(models: dict[str, Model]) -> dict[str, Explanation]:
    return {name: model.explain(TEXT) for name, model in models.items()}


@pytest.fixture(scope="module")
def address(models: dict[str, Model], folder: Path) -> Iterator[str]:
    folders: dict[str, Path | None] = {name: folder / name for name in models}
    for name in ("2014", "2015"):
        earlier = snapshot_file(folder / name, 1)
        earlier.parent.mkdir()
        save_weights(earlier, {name: weight / 2 for name, weight in models[name].network.state_dict().items()})
        (folder / name / "log.jsonl").write_text('{"kind": "step", "step": 1, "loss": 5.0}\n', encoding="utf-8")
    with serving(create_app(folders)) as client:
        yield str(client.base_url)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    yield from checked_page(browser, reduced_motion=True)


def asking(name: str) -> str:
    return f"model={name}&text={TEXT.replace(' ', '+')}"


@pytest.mark.parametrize("name", ["2014", "deep"])
def test_the_browser_works_out_every_quantity_at_both_ends(
    name: str, page: Page, address: str, explained: dict[str, Explanation]
) -> None:
    """The first cell begins from the first state, and the last one is that of the way back, and of the last token."""
    settled(page, f"{address}/#/walk?{asking(name)}")
    worst = 0.0
    for quantity in explained[name].trace.names():
        expected = explained[name].trace[quantity, 0]
        if quantity.endswith(".tokens"):
            continue
        for index in ((0,) * expected.dim(), tuple(size - 1 for size in expected.shape)):
            worst = max(worst, audit_cell(page, asking(name), quantity, index, float(expected[index])))
    assert worst > 0, "the browser must have computed something itself"


@pytest.mark.parametrize("name", ["2014", "2015"])
def test_the_walk_shows_every_quantity(
    name: str, page: Page, address: str, explained: dict[str, Explanation]
) -> None:  # fmt: skip
    settled(page, f"{address}/#/walk?{asking(name)}&row=1")
    assert walk_through(page, explained[name]) == {"encoder.tokens", "decoder.tokens"}


def test_the_ribbon_and_the_microscope_show_the_attention_of_2015(
    page: Page, address: str, explained: dict[str, Explanation]
) -> None:
    energies, weights = (
        explained["2015"].trace[f"{CROSS}.{name}", 0][0, 1].tolist() for name in ("energies", "weights")
    )
    settled(page, f"{address}/#/translate?{asking('2015')}&row=1")
    page.locator(".ribbon path").first.wait_for(state="attached")
    shown = [figure(text) for text in page.locator(".ribbon text.end").all_text_contents() if text.endswith("%")]
    assert shown == pytest.approx([100 * w for w in weights if w >= 0.01], abs=0.051)
    settled(page, f"{address}/#/microscope?{asking('2015')}&row=1&step=scores")  # a step that it has not
    rows = page.locator(".lookup tbody tr")
    rows.nth(len(weights) - 1).wait_for()
    for i, row in enumerate(rows.all()):
        cells = row.locator("td").all_inner_texts()
        assert figure(cells[2].replace("e−", "e-")) == pytest.approx(energies[i], abs=5.1e-3)
        assert figure(cells[3].replace("<", "")) == pytest.approx(100 * weights[i], abs=0.1)
    assert page.get_by_role("group", name="step").locator("button").all_inner_texts() == ["energies", "softmax"]
    page.get_by_role("button", name="energies").click()
    page.locator(f"[data-matrix='{CROSS}.energies']").wait_for()


@pytest.mark.parametrize("name", ["2014", "2015"])
def test_no_view_is_broken_or_says_a_wrong_word(name: str, page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    for view in VIEWS:
        page.goto(f"{address}/#/{view}?{asking(name)}")
        page.locator("[data-output]:not([data-output='']), .written button, [data-before]").first.wait_for()
        expect(page.locator("main [role=status]")).to_have_count(0)
        expect(page.locator("main [role=alert]")).to_have_count(0)
        without = expect(page.locator("[data-without]"))
        without.not_to_have_count(0) if name == "2014" and view != "walk" else without.to_have_count(0)
        text = page.locator("main").inner_text()
        assert not re.search(r"NaN|undefined|Transformer|head \d|mean over", text), view
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        page.goto("about:blank")


def test_what_is_no_reading_of_these_models_is_told_in_its_place(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    settled(page, f"{address}/#/heads?{asking('2015')}&sort=contribution")
    expect(page.get_by_role("alert")).to_contain_text("logit attribution is only defined for Transformers")
    page.get_by_role("button", name="by entropy").click()
    expect(page.locator(".stamp .figure")).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)
    context.close()


def test_reaching_in_changes_the_output_as_the_library_does(page: Page, address: str, models: dict[str, Model]) -> None:
    page.goto(f"{address}/#/intervene?{asking('2015')}")
    page.get_by_role("button", name="head 0 off").click()
    expected = models["2015"].explain(TEXT, interventions=[ablate_head(CROSS, 0)]).output
    assert expected != models["2015"].explain(TEXT).output
    expect(page.locator("[data-after]")).to_have_attribute("data-after", expected)
    page.goto("about:blank")
    page.goto(f"{address}/#/intervene?{asking('2014')}")
    page.get_by_role("button", name="Unit off").click()
    page.get_by_role("button", name="Switch off").click()
    expected = models["2014"].explain(TEXT, interventions=[scale("decoder.1.states", 0.0, Selection(unit=0))]).output
    expect(page.locator("[data-after]")).to_have_attribute("data-after", expected)
    expect(page.get_by_label("interventions")).to_contain_text("decoder, after layer 1: unit 0 off")


def test_kinds_are_compared_where_both_look(page: Page, address: str, explained: dict[str, Explanation]) -> None:
    where = "against=models&attention2=decoder.1.cross"
    settled(page, f"{address}/#/compare?{asking('2015')}&{where}&model2=transformer")
    expect(page.locator("[data-side] [data-matrix]")).to_have_count(2)
    page.locator(f"[data-side='0'] [data-matrix='{CROSS}.weights']").wait_for()
    page.locator("[data-side='1'] [data-matrix='decoder.1.cross.weights mean']").wait_for()
    page.locator("[data-parting]").wait_for()
    settled(page, f"{address}/#/compare?{asking('2015')}&{where}&model2=2014")
    expect(page.locator("[data-side='1'] [data-without]")).to_be_visible()
    expect(page.locator("[data-side='0'] [data-matrix]")).to_be_visible()
    expect(page.locator("[data-side='1'] .accent")).to_have_text(explained["2014"].output)


@pytest.mark.parametrize("name", ["2014", "2015"])
def test_one_file_holds_such_a_model_too(
    name: str, page: Page, explained: dict[str, Explanation], tmp_path: Path
) -> None:  # fmt: skip
    e = explained[name]
    export_html(e, tmp_path / "why.html", name)
    settled(page, f"{(tmp_path / 'why.html').as_uri()}#/translate")
    last = tuple(size - 1 for size in e.trace["decoder.0.states", 0].shape)
    audit_cell(page, "", "decoder.0.states", last, float(e.trace["decoder.0.states", 0][last]))
    page.evaluate("location.hash = '#/heads?sort=contribution'")
    told = page.locator("[data-without]") if name == "2014" else page.get_by_role("alert")
    expect(told).to_contain_text("no attention" if name == "2014" else "only defined for Transformers")
    page.evaluate("location.hash = '#/compare'")
    page.locator("[data-needs-model]").wait_for()
