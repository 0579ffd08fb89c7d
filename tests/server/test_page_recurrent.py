"""The page with recurrent models: the RNN of 2015 with attention, and that of 2014 without."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from seq2see.api import Model, load
from seq2see.config import ModelConfig, TextConfig
from seq2see.inspect.explain import Explanation
from seq2see.inspect.interventions import Selection, ablate_head, scale
from seq2see.server.explore.app import create_app
from seq2see.server.explore.static_export import export_html
from seq2see.storage.directory import save_weights, snapshot_file
from tests.browser import NEEDS_BROWSER, SENTENCES, audit, checked_page, open_view, parse_number, walk_through
from tests.explore import serving
from tests.models import TINY, save, tiny_model

pytestmark = NEEDS_BROWSER
TEXT = "the bird sees"
RNN = ModelConfig(kind="rnn", width=16, heads=1, encoder_layers=2, decoder_layers=2, dropout=0.0, output_bias=True)
KINDS = {
    "2014": RNN,
    "2015": replace(RNN, kind="rnn-attention", encoder_layers=1, decoder_layers=1),
    "deep": replace(RNN, kind="rnn-attention", decoder_layers=3, tie_embeddings="none"),
    "transformer": TINY,
}
VIEWS = ("map", "translate", "walk", "heads", "microscope", "intervene", "replay", "compare")
CROSS = "decoder.0.cross"


def random_model(name: str) -> Model:
    """Returns a model with random weights of noticeable size, including both biases of each gate."""
    model = tiny_model(SENTENCES, KINDS[name], TextConfig(tokenizer="word"))
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kinds")
    for name in KINDS:
        save(random_model(name), path / name)
    return path


@pytest.fixture(scope="module")
def models(directory: Path) -> dict[str, Model]:
    """Loaded as the server loads them; same process, same shapes, aligned weights: the same bits."""
    return {name: load(directory / name) for name in KINDS}


@pytest.fixture(scope="module")
def explanations(models: dict[str, Model]) -> dict[str, Explanation]:
    return {name: model.explain(TEXT) for name, model in models.items()}


@pytest.fixture(scope="module")
def address(models: dict[str, Model], directory: Path) -> Iterator[str]:
    directories: dict[str, Path] = {name: directory / name for name in models}
    for name in ("2014", "2015"):
        snapshot = snapshot_file(directory / name, 1)
        snapshot.parent.mkdir()
        save_weights(snapshot, {name: weight / 2 for name, weight in models[name].network.state_dict().items()})
        (directory / name / "log.jsonl").write_text('{"kind": "step", "step": 1, "loss": 5.0}\n', encoding="utf-8")
    with serving(create_app(directories)) as client:
        yield str(client.base_url)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    yield from checked_page(browser, reduced_motion=True)


def model_state(name: str) -> str:
    return f"model={name}&text={TEXT.replace(' ', '+')}"


@pytest.mark.avx2
@pytest.mark.parametrize("name", ["2014", "deep"])
def test_inspector_recomputes_the_first_and_last_cell_of_every_tensor(
    name: str, page: Page, address: str, explanations: dict[str, Explanation]
) -> None:
    """The first cell depends on the initial state; the last one is in the backward direction, at the last token."""
    open_view(page, f"{address}/#/walk?{model_state(name)}")
    cells = {}
    for tensor in explanations[name].trace.names():
        expected = explanations[name].trace[tensor, 0]
        if not tensor.endswith(".tokens"):
            for index in ((0,) * expected.dim(), tuple(size - 1 for size in expected.shape)):
                cells[f"{tensor}:{','.join(map(str, index))}"] = float(expected[index])
    worst = audit(page, model_state(name), cells)
    assert worst > 0, "the browser must have computed something itself"


@pytest.mark.parametrize("name", ["2014", "2015"])
def test_walk_shows_every_tensor(name: str, page: Page, address: str, explanations: dict[str, Explanation]) -> None:
    open_view(page, f"{address}/#/walk?{model_state(name)}&row=1")
    assert walk_through(page, explanations[name]) == {"encoder.tokens", "decoder.tokens"}


@pytest.mark.avx2
def test_lines_and_microscope_show_the_attention_weights(
    page: Page, address: str, explanations: dict[str, Explanation]
) -> None:
    energies, weights = (
        explanations["2015"].trace[f"{CROSS}.{name}", 0][0, 1].tolist() for name in ("energies", "weights")
    )
    open_view(page, f"{address}/#/translate?{model_state('2015')}&row=1")
    page.locator(".lines path").first.wait_for(state="attached")
    shown = [
        parse_number(text) for text in page.locator(".lines text.secondary").all_text_contents() if text.endswith("%")
    ]
    assert shown == pytest.approx([100 * w for w in weights if w >= 0.01], abs=0.051)
    open_view(page, f"{address}/#/microscope?{model_state('2015')}&row=1&step=scores")  # not a step of this model
    rows = page.locator(".lookup tbody tr")
    rows.nth(len(weights) - 1).wait_for()
    for i, row in enumerate(rows.all()):
        cells = row.locator("td").all_inner_texts()
        assert parse_number(cells[2].replace("e−", "e-")) == pytest.approx(energies[i], abs=5.1e-3)
        assert parse_number(cells[3].replace("<", "")) == pytest.approx(100 * weights[i], abs=0.1)
    assert page.get_by_role("group", name="step").locator("button").all_inner_texts() == ["energies", "softmax"]
    page.get_by_role("button", name="energies").click()
    page.locator(f"[data-matrix='{CROSS}.energies']").wait_for()


@pytest.mark.parametrize("name", ["2014", "2015"])
def test_views_fit_a_phone_and_match_the_architecture(name: str, page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    for view in VIEWS:
        page.goto(f"{address}/#/{view}?{model_state(name)}")
        page.locator("[data-output]:not([data-output='']), .output-tokens button, [data-before]").first.wait_for()
        expect(page.locator("main [role=status]")).to_have_count(0)
        expect(page.locator("main [role=alert]")).to_have_count(0)
        no_attention = expect(page.locator("[data-no-attention]"))
        no_attention.not_to_have_count(0) if name == "2014" and view not in (
            "map",
            "walk",
        ) else no_attention.to_have_count(0)
        text = page.locator("main").inner_text()
        assert not re.search(r"NaN|undefined|Transformer|head \d|mean over", text), view
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        page.goto("about:blank")


def test_analyses_only_for_transformers_are_rejected_with_a_message(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    open_view(page, f"{address}/#/heads?{model_state('2015')}&sort=contribution")
    expect(page.get_by_role("alert")).to_contain_text("logit attribution is only defined for Transformers")
    page.get_by_role("button", name="by entropy").click()
    expect(page.locator(".head-thumbnail .sort-value")).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)
    context.close()


@pytest.mark.avx2
def test_interventions_equal_the_library(page: Page, address: str, models: dict[str, Model]) -> None:
    page.goto(f"{address}/#/intervene?{model_state('2015')}")
    page.get_by_role("button", name="ablate", exact=True).click()
    expected = models["2015"].explain(TEXT, interventions=[ablate_head(CROSS, 0)]).output
    assert expected != models["2015"].explain(TEXT).output
    expect(page.locator("[data-after]")).to_have_attribute("data-after", expected)
    page.goto("about:blank")
    page.goto(f"{address}/#/intervene?{model_state('2014')}")
    page.get_by_role("button", name="Zero unit").click()
    page.get_by_role("button", name="Apply").click()
    expected = models["2014"].explain(TEXT, interventions=[scale("decoder.1.states", 0.0, Selection(unit=0))]).output
    expect(page.locator("[data-after]")).to_have_attribute("data-after", expected)
    expect(page.get_by_label("interventions")).to_contain_text("decoder, after layer 1: unit 0 set to 0")


def test_models_are_compared_if_both_have_attention(
    page: Page, address: str, explanations: dict[str, Explanation]
) -> None:
    state = "compare=models&attention2=decoder.1.cross"
    open_view(page, f"{address}/#/compare?{model_state('2015')}&{state}&model2=transformer")
    expect(page.locator("[data-side] [data-matrix]")).to_have_count(2)
    page.locator(f"[data-side='0'] [data-matrix='{CROSS}.weights']").wait_for()
    page.locator("[data-side='1'] [data-matrix='decoder.1.cross.weights mean']").wait_for()
    page.locator("[data-largest-difference]").wait_for()
    open_view(page, f"{address}/#/compare?{model_state('2015')}&{state}&model2=2014")
    expect(page.locator("[data-side='1'] [data-no-attention]")).to_be_visible()
    expect(page.locator("[data-side='0'] [data-matrix]")).to_be_visible()
    expect(page.locator("[data-side='1'] .accent")).to_have_text(explanations["2014"].output)


@pytest.mark.avx2
@pytest.mark.parametrize("name", ["2014", "2015"])
def test_exported_file_of_a_recurrent_model(
    name: str, page: Page, explanations: dict[str, Explanation], tmp_path: Path
) -> None:
    e = explanations[name]
    export_html(e, tmp_path / "why.html", name)
    open_view(page, f"{(tmp_path / 'why.html').as_uri()}#/translate")
    last = tuple(size - 1 for size in e.trace["decoder.0.states", 0].shape)
    key = f"decoder.0.states:{','.join(map(str, last))}"
    audit(page, "", {key: float(e.trace["decoder.0.states", 0][last])})
    page.evaluate("location.hash = '#/heads?sort=contribution'")
    message = page.locator("[data-no-attention]") if name == "2014" else page.get_by_role("alert")
    expect(message).to_contain_text("no attention" if name == "2014" else "only defined for Transformers")
    page.evaluate("location.hash = '#/compare'")
    page.locator("[data-needs-model]").wait_for()
