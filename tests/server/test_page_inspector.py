"""The Inspector, the heads and the Microscope in a real browser: every number can be recomputed from its operands."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from seq2see.inspect import attention_flow, logit_attribution
from seq2see.inspect.explain import Explanation
from seq2see.server.explore.app import create_app
from tests.browser import NEEDS_BROWSER, SENTENCES, audit_all, open_view, parse_number
from tests.explore import serving
from tests.models import TINY, save, tiny_model

pytestmark = NEEDS_BROWSER


def test_inspector_recomputes_every_tensor(page: Page, address: str, explanation: Explanation) -> None:
    open_view(page, f"{address}/#/walk")
    worst = audit_all(page, "", explanation)
    print(f"largest difference between model and browser: {worst:.1e}")
    assert worst > 0, "the browser must have computed something itself"


ONE_LAYER = replace(TINY, decoder_layers=1)
# Together these cover every option that changes a formula.
SHAPES = {
    "paper": replace(ONE_LAYER, norm_first=False, output_bias=True, tie_embeddings="none", positions="learned"),
    "llama": replace(
        ONE_LAYER,
        shape="decoder",
        norm_first=True,
        norm="rms",
        activation="swiglu",
        positions="rotary",
        heads=4,
        key_value_heads=2,
        bias="nowhere",
        max_positions=64,
    ),
    "marian": replace(
        ONE_LAYER, positions="sinusoidal-halves", activation="gelu", tie_embeddings="all", embedding_norm=True
    ),
    "gemma": replace(
        ONE_LAYER,
        shape="decoder",
        decoder_layers=2,
        norm_first=True,
        norm="rms",
        activation="geglu",
        positions="rotary",
        heads=4,
        bias="nowhere",
        max_positions=64,
        output_norm=True,
        query_key_norm=True,
        attention_window=2,
        local_layers=(0,),
        local_rotary_base=50.0,
        rotary_factors=tuple(1 + i / 5 for i in range(TINY.width // 8)),
        rotary_magnitude=1.1,
        attention_scale=0.3,
        attention_cap=2.0,
        logit_cap=3.0,
    ),
    "t5": replace(ONE_LAYER, positions="relative", norm="rms", norm_first=True, attention_scale=1.0, logit_scale=0.2),
    "whisper": replace(ONE_LAYER, positions="learned", encoder_positions="sinusoidal-whisper"),
    "m2m100": replace(ONE_LAYER, positions="sinusoidal-fairseq", norm_first=True),
}


def test_inspector_supports_every_transformer_configuration(page: Page, tmp_path: Path) -> None:
    models = {name: tiny_model(SENTENCES, config) for name, config in SHAPES.items()}
    directories: dict[str, Path] = {name: save(model, tmp_path / name) for name, model in models.items()}
    with serving(create_app(directories)) as client:
        for name, model in models.items():
            open_view(page, f"{client.base_url}/#/translate?model={name}&text=the+bird")
            explanation = model.explain("the bird")
            assert page.locator("[data-output]").text_content() == explanation.output
            audit_all(page, f"model={name}&text=the+bird", explanation)


def test_operands_are_highlighted_and_can_be_inspected(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/walk?head=3&stage=decoder.1.cross.scores")
    canvas = page.locator("[data-matrix='decoder.1.cross.queries head 3'] canvas")
    canvas.wait_for()
    before = canvas.evaluate("c => c.toDataURL()")
    grid = page.locator("[data-matrix='decoder.1.cross.scores head 3'] [role=grid]")
    box = grid.bounding_box()
    assert box is not None
    grid.click(position={"x": box["width"] * 0.5, "y": box["height"] * 0.6})
    page.locator("[data-audit^='decoder.1.cross.scores:3,']").wait_for()
    assert canvas.evaluate("c => c.toDataURL()") != before
    page.locator(".inspect-link").first.click()
    page.locator("[data-audit^='decoder.1.cross.queries:']").wait_for()
    page.go_back()
    page.locator("[data-audit^='decoder.1.cross.scores:3,']").wait_for()


def test_heads_are_sorted_by_entropy_and_contribution(page: Page, address: str, explanation: Explanation) -> None:
    def order(attention: str) -> list[int]:
        thumbnails = page.locator(f"[data-head^='{attention} ']").all()
        heads = [int((thumbnail.get_attribute("data-head") or "").split()[1]) for thumbnail in thumbnails]
        return [head for head in heads if head >= 0]

    open_view(page, f"{address}/#/heads?row=2")
    page.locator("[data-head='decoder.1.cross 7']").wait_for()
    assert page.locator("[data-head]").count() == 6 * 9
    assert order("decoder.1.cross") == list(range(8))
    page.get_by_role("button", name="by entropy").click()
    page.locator("[data-head='decoder.1.cross 7'] .sort-value").wait_for()
    assert (
        order("decoder.1.cross") == attention_flow.attention_entropy(explanation)["decoder.1.cross"].argsort().tolist()
    )
    page.get_by_role("button", name="by contribution").click()
    attribution = logit_attribution.logit_attribution(explanation, 2)
    contributions = {(part.component, part.head): part.logit for part in attribution.contributions}
    best = sorted(range(8), key=lambda head: -contributions["decoder.1.cross", head])
    page.wait_for_function(
        "head => document.querySelectorAll('[data-head^=\"decoder.1.cross \"]')[1].dataset.head.endsWith(` ${head}`)",
        arg=best[0],
    )
    assert order("decoder.1.cross") == best
    thumbnail = page.locator("[data-head='decoder.0.masked 4']")
    thumbnail.hover()
    expect(page.locator("[data-large='decoder.0.masked 4']")).to_be_visible()
    page.mouse.move(5, 5)
    expect(page.locator("[data-large='decoder.0.masked 4']")).to_have_count(0)
    thumbnail.click()
    page.mouse.move(5, 5)
    expect(page.locator("[data-large='decoder.0.masked 4']")).to_be_visible()


def test_microscope_plays_a_row(page: Page, address: str, explanation: Explanation) -> None:
    open_view(page, f"{address}/#/microscope?attention=decoder.0.masked&head=2&row=3")
    rows = page.locator(".lookup tbody tr")
    rows.nth(5).wait_for()
    scores, weights = (
        explanation.trace[f"decoder.0.masked.{name}", 0][2, 3].tolist() for name in ("scores", "weights")
    )
    for i, row in enumerate(rows.all()):
        cells = row.locator("td").all_inner_texts()
        assert cells[0] == explanation.decoder_input_tokens[i]
        assert parse_number(cells[2]) == pytest.approx(scores[i], abs=5.1e-3)
        if i > 3:
            assert cells[3] == "masked" and cells[4].strip() == "–"
        else:
            assert parse_number(cells[4].replace("<", "")) == pytest.approx(100 * weights[i], abs=0.1)
    page.get_by_role("button", name="play row").click()
    expect(page.locator(".lookup tr.pending")).to_have_count(0)
