"""Intervene, Replay and Compare in a real browser, against the bundled model; and the page as one file, opened from disk.

Chromium through Playwright; skipped where there is no Chromium or the page is not built (`make setup`).
"""

import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

import seq2see
from seq2see.api import Model
from seq2see.decode.search import Search
from seq2see.directory import BUNDLED, snapshots
from seq2see.errors import UserError
from seq2see.inspect.comparison import compare
from seq2see.inspect.explain import Explanation, explain, rerun
from seq2see.inspect.interventions import Selection, ablate_head, force_attention, patch, scale, uniform_attention
from seq2see.serve.app import create_app
from seq2see.serve.static_export import embedded_data, export_html, render_page
from seq2see.train.run_log import RunLog
from tests.browser import NEEDS_BROWSER, checked_page
from tests.test_serve import serving

pytestmark = NEEDS_BROWSER
TEXT, OTHER = "I like eating ice-cream", "I like eating mangoes"
Page = Any


@pytest.fixture(scope="module")
def model() -> Model:
    return seq2see.load()


@pytest.fixture(scope="module")
def before(model: Model) -> Explanation:
    return explain(model, TEXT, search=Search())


@pytest.fixture
def tab(browser: Any) -> Iterator[Page]:
    yield from checked_page(browser)


def shifts(tab: Page, count: int) -> list[float]:
    tab.wait_for_function("n => document.querySelectorAll('[data-shift]').length === n", arg=count)
    return [float(row.get_attribute("data-shift")) for row in tab.locator("[data-shift]").all()]


def after(tab: Page) -> str:
    tab.locator("[data-after]:not([data-after=''])").wait_for()
    return str(tab.locator("[data-after]").get_attribute("data-after"))


def hash_of(tab: Page) -> str:
    """The address is written a moment after a change."""
    return str(tab.evaluate("new Promise(done => setTimeout(() => done(decodeURIComponent(location.hash)), 250))"))


def cells(tab: Page, name: str) -> dict[str, str]:
    """What the grid for screen readers says, by cell."""
    grid = tab.locator(f'[data-matrix="{name}"]')
    grid.locator("[data-cell]").first.wait_for(state="attached")
    script = "cells => cells.map(cell => [cell.dataset.cell, cell.textContent.split(': ').pop()])"
    return dict(grid.locator("[data-cell]").evaluate_all(script))


def figure(text: str) -> float:
    return float(text.replace("−", "-"))


# Intervene


def test_switching_a_head_off_shows_what_the_library_computes(tab: Page, address: str, before: Explanation) -> None:
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}")
    tab.get_by_role("group", name="decoder layer 1, cross-attention").get_by_label("head 3 off").click()
    reached = [ablate_head("decoder.1.cross", 3)]
    expected = [change.shift for change in compare(before, rerun(before, *reached))]
    assert shifts(tab, len(before.target_tokens)) == pytest.approx(expected, abs=1e-5)
    assert after(tab) == explain(before.model, TEXT, interventions=reached).output
    assert "reach=off:decoder.1.cross:3" in hash_of(tab)


def test_interventions_act_together_from_the_address_alone_and_each_can_be_removed(
    tab: Page, address: str, model: Model, before: Explanation
) -> None:
    vector = explain(model, OTHER, search=Search()).trace["encoder.embedded", 0][3]
    reached = [
        patch("encoder.embedded", vector, Selection(positions=[3])),
        uniform_attention("encoder.1.self", Selection(positions=[2], head=1)),
        force_attention("decoder.0.cross", torch.tensor([0.0, 0.25, 0.75, 0.0, 0.0]), Selection(positions=[1], head=0)),
        scale("decoder.1.feed_forward.post_activation", 0.0, Selection(unit=17)),
    ]
    words = [
        f"swap:encoder.embedded:3:3:{quote(OTHER)}", "even:encoder.1.self:1:2", "set:decoder.0.cross:0:1:0,0.25,0.75",
        "unit:decoder.1.feed_forward:17",
    ]  # fmt: skip
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}&reach={quote(';'.join(words))}")
    expected = [change.shift for change in compare(before, rerun(before, *reached))]
    assert shifts(tab, len(before.target_tokens)) == pytest.approx(expected, abs=1e-5)
    output = after(tab)
    assert output == explain(model, TEXT, interventions=reached).output != before.output
    assert tab.locator(".changed").count() >= 1

    listed = tab.get_by_role("list", name="interventions").get_by_role("listitem")
    assert listed.count() == 4
    listed.first.get_by_role("button").click()
    tab.wait_for_function("t => (document.querySelector('[data-after]')?.dataset.after ?? t) !== t", arg=output)
    assert after(tab) == explain(model, TEXT, interventions=reached[1:]).output
    tab.get_by_role("button", name="remove all").click()
    assert "reach" not in hash_of(tab)


def test_every_kind_of_change_can_be_made_by_hand(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}")
    tab.get_by_role("button", name="Average").last.click()
    tab.get_by_role("button", name="Set").first.click()
    tab.get_by_label("for the token").select_option("1")
    tab.get_by_title("look at like only").click()
    tab.get_by_role("button", name="Set").last.click()
    tab.get_by_role("button", name="Swap").first.click()
    tab.get_by_label("the vector of").select_option("3")
    tab.get_by_label("becomes that of").select_option("1")
    tab.get_by_role("button", name="Swap").last.click()
    tab.get_by_role("button", name="Unit off").click()
    tab.get_by_label("unit, 0 to 511").fill("7")
    tab.get_by_role("button", name="Switch off").click()
    words = hash_of(tab).split("reach=")[1].split("&")[0].split(";")
    assert words[0] == "even:decoder.1.cross:*:*"
    assert words[1] == "set:decoder.1.cross:0:1:0,1,0,0,0"
    assert words[2] == "swap:encoder.embedded:3:1"
    assert words[3] == "unit:decoder.1.feed_forward:7"
    after(tab)


def test_what_the_server_refuses_is_told(browser: Any, address: str) -> None:
    tab = browser.new_page()  # whose console may complain of the refusal
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}&reach=unit:decoder.1.feed_forward:9999")
    tab.get_by_role("alert").wait_for()
    assert "unit 9999" in tab.get_by_role("alert").inner_text()
    tab.close()


# Replay


def test_replay_shows_the_translation_a_head_and_the_loss_at_every_snapshot(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/replay?text={quote(TEXT)}&head=2")
    steps = snapshots(BUNDLED)
    logged = {row["step"]: row["loss"] for row in RunLog.load(BUNDLED).steps}
    slider = tab.get_by_label("snapshot of the training")
    slider.focus()
    for _ in steps:
        tab.keyboard.press("ArrowLeft")
    for step in steps:
        tab.locator(f"[data-snapshot='{step}']").wait_for()
        e = explain(seq2see.load(step=step), TEXT, search=Search())
        tab.wait_for_function(
            "([s, t]) => document.querySelector(`[data-snapshot='${s}']`)?.dataset.output === t", arg=[step, e.output]
        )
        loss = float(tab.locator("[data-loss]").get_attribute("data-loss"))
        nearest = min(logged, key=lambda known: (abs(known - step), known))
        assert loss == pytest.approx(logged[nearest])
        weights = e.trace["decoder.1.cross.weights", 0][2]
        tab.wait_for_function("n => document.querySelector('[role=grid]')?.ariaRowCount == n", arg=len(weights))
        shown = cells(tab, "decoder.1.cross.weights head 2")
        assert [figure(text) for text in shown.values()] == pytest.approx(weights.flatten().tolist(), abs=6e-5)
        assert f"snapshot={step}" in hash_of(tab)
        tab.keyboard.press("ArrowRight")
    assert tab.locator("[data-step]").count() == len(steps) + 1


def test_replay_plays_and_with_reduced_motion_only_steps(browser: Any, address: str) -> None:
    first, second = snapshots(BUNDLED)[:2]
    tab = browser.new_page(reduced_motion="reduce")
    tab.goto(f"{address}/#/replay?snapshot={first}")
    tab.get_by_role("button", name="Next").click()
    tab.locator(f"[data-snapshot='{second}']").wait_for()
    tab.wait_for_timeout(1500)
    assert tab.locator(f"[data-snapshot='{second}']").count() == 1
    tab.close()
    tab = browser.new_page()
    tab.goto(f"{address}/#/replay?snapshot={first}")
    tab.get_by_role("button", name="Play").wait_for()
    tab.keyboard.press(" ")
    tab.locator("[data-snapshot='-1']").wait_for(timeout=20_000)
    tab.get_by_role("button", name="Play").wait_for()  # it ends with the finished model
    tab.close()


# Compare


def test_two_heads_less_each_other(tab: Page, address: str, before: Explanation) -> None:
    tab.goto(f"{address}/#/compare?text={quote(TEXT)}&head=3&head2=5")
    weights = before.trace["decoder.1.cross.weights", 0]
    less = weights[3] - weights[5]
    name = "decoder.1.cross.weights head 3 less decoder.1.cross.weights head 5"
    shown = cells(tab, name)
    assert [figure(text) for text in shown.values()] == pytest.approx(less.flatten().tolist(), abs=6e-5)
    row, col = divmod(int(less.abs().argmax()), less.shape[1])
    assert tab.locator("[data-parting]").get_attribute("data-parting") == f"{row},{col}"
    side = tab.locator("[data-side='0'] [role=grid]")
    side.focus()
    tab.keyboard.press("ArrowRight")
    tab.locator("[data-audit='decoder.1.cross.weights:3,0,0']").wait_for()


def test_two_sentences_and_two_models_side_by_side(tab: Page, address: str, model: Model, before: Explanation) -> None:
    tab.goto(
        f"{address}/#/compare?text={quote(TEXT)}&against=sentences&text2={quote(OTHER)}&head=0&attention=encoder.0.self"
    )
    other = explain(model, OTHER, search=Search())
    tab.get_by_text(other.output).wait_for()
    less = before.trace["encoder.0.self.weights", 0][0] - other.trace["encoder.0.self.weights", 0][0]
    shown = cells(tab, "encoder.0.self.weights head 0 less encoder.0.self.weights head 0")
    assert [figure(text) for text in shown.values()] == pytest.approx(less.flatten().tolist(), abs=6e-5)

    step = snapshots(BUNDLED)[-1]
    tab.goto(
        f"{address}/#/compare?text={quote(TEXT)}&against=models&model2=bundled@{step}&head=0&attention=encoder.0.self"
    )
    earlier = explain(seq2see.load(step=step), TEXT, search=Search())
    tab.get_by_text(f"bundled at step {step}").wait_for()
    less = before.trace["encoder.0.self.weights", 0][0] - earlier.trace["encoder.0.self.weights", 0][0]
    tab.wait_for_function("t => document.querySelector('[data-side=\"1\"]')?.innerText.includes(t)", arg=earlier.output)
    shown = cells(tab, "encoder.0.self.weights head 0 less encoder.0.self.weights head 0")
    assert [figure(text) for text in shown.values()] == pytest.approx(less.flatten().tolist(), abs=6e-5)


def test_an_earlier_model_can_be_given_the_output_of_the_finished_one(
    tab: Page, address: str, before: Explanation
) -> None:
    step = snapshots(BUNDLED)[0]
    state = f"against=models&model2=bundled@{step}&held=1&head=0&attention=decoder.1.masked"
    tab.goto(f"{address}/#/compare?text={quote(TEXT)}&{state}")
    earlier = explain(seq2see.load(step=step), TEXT, target=before.output, search=Search())
    less = before.trace["decoder.1.masked.weights", 0][0] - earlier.trace["decoder.1.masked.weights", 0][0]
    shown = cells(tab, "decoder.1.masked.weights head 0 less decoder.1.masked.weights head 0")
    rows, columns = less.shape
    for row in range(rows):
        for col in range(columns):
            text = shown[f"{row},{col}"]
            assert text == "masked" if col > row else figure(text) == pytest.approx(float(less[row, col]), abs=6e-5)


def test_what_cannot_be_subtracted_says_so(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/compare?text={quote(TEXT)}&against=sentences&text2=Congratulations&attention=encoder.0.self")
    tab.locator("[data-unlike]").wait_for()
    assert re.search(r"5 × 5 cells against \d × \d", tab.locator("[data-unlike]").inner_text())


# One file


@pytest.fixture(scope="module")
def why(before: Explanation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "why.html"
    export_html(before, path)
    return path


def test_the_file_shows_every_view_with_the_network_blocked(browser: Any, why: Path, before: Explanation) -> None:
    assert why.stat().st_size < 6 << 20
    context = browser.new_context(offline=True)
    tab, asked = context.new_page(), []
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda r: None if r.url.startswith(("file://", "data:", "blob:")) else asked.append(r.url))
    tab.goto(f"{why.as_uri()}#/translate?row=1")
    tab.locator(f"[data-output='{before.output}']").wait_for()
    tab.locator(".ribbon path").first.wait_for(state="attached")
    assert tab.evaluate(
        "document.fonts.ready.then(() => document.fonts.check('16px \"Noto Sans Devanagari Variable\"', 'है'))"
    )
    for view, sign in {
        "walk?stage=decoder.1.cross.scores&head=2": "[data-matrix='decoder.1.cross.scores head 2']",
        "heads?sort=contribution": ".stamp .figure",
        "microscope?head=1": ".lookup .meter",
        "compare?head=3": "[data-parting]",
        "intervene": "[data-needs-model]",
        "replay": "[data-needs-model]",
        "learn": "[data-needs-model]",
    }.items():
        tab.goto(f"{why.as_uri()}#/{view}")
        tab.locator(sign).first.wait_for(state="attached")
    assert not asked and not wrong
    context.close()


def test_the_file_recomputes_cells_that_need_weights(tab: Page, why: Path, before: Explanation) -> None:
    for cell in (
        "decoder.1.cross.queries:2,2,3",
        "logits:2,17",
        "encoder.0.feed_forward.pre_activation:1,40",
        "decoder.embedded:1,5",
    ):
        name, _, index = cell.partition(":")
        tab.goto(f"{why.as_uri()}#/walk?cell={quote(cell)}")
        tab.locator(f"[data-audit='{cell}']").wait_for()
        found = tab.locator("[data-audit]")
        value = float(before.trace[name, 0][tuple(map(int, index.split(",")))])
        assert float(found.get_attribute("data-model")) == value
        assert float(found.get_attribute("data-computed")) == pytest.approx(value, abs=1e-4)


def test_the_file_contains_what_the_server_returns(address: str, before: Explanation) -> None:
    embedded = embedded_data(before, "bundled", []).model_dump(mode="json")
    with serving(create_app({"bundled": None})) as client:
        trace = client.post("/api/traces", json={"text": TEXT}).json()
        id = trace["id"]
        assert embedded["trace"] | {"id": id} == trace
        (model,) = client.get("/api/models").json()["models"]
        assert embedded["model"] | {"snapshots": model["snapshots"]} == model
        assert embedded["weight_infos"] == client.get("/api/models/bundled/weights").json()["weights"]
        assert embedded["vocabulary"] == client.get("/api/models/bundled/vocabulary").json()
        assert embedded["attention_entropy"] == client.get(f"/api/traces/{id}/attention-entropy").json()
        assert embedded["logit_attributions"][2] == client.get(f"/api/traces/{id}/logit-attribution?row=2").json()


def test_the_file_cannot_be_written_without_the_built_page(before: Explanation, tmp_path: Path) -> None:
    data = embedded_data(before, "bundled", [])
    with pytest.raises(UserError, match=r"the page is not built .*: run `make setup`"):
        render_page(data, directory=tmp_path)


def test_the_file_needs_no_web_framework() -> None:
    code = "import sys; sys.modules['fastapi'] = sys.modules['uvicorn'] = sys.modules['starlette'] = None; "
    subprocess.run([sys.executable, "-c", code + "import seq2see.serve.static_export"], check=True)


def test_text_cannot_break_out_of_the_file(model: Model, tab: Page, tmp_path: Path) -> None:
    text = "</script><script>document.title = 'broken'</script><!--"
    export_html(explain(model, text, search=Search()), tmp_path / "x.html")
    tab.goto((tmp_path / "x.html").as_uri())
    tab.locator("textarea").wait_for()
    assert tab.locator("textarea").input_value() == text
    assert tab.title() == "seq2see · bundled"


# Both themes, both widths


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_page(browser: Any, address: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark")
    tab = context.new_page()
    for view, sign in {
        "intervene?reach=off:decoder.1.cross:3": "[data-shift]", "replay": "[data-loss]", "compare?head=2": "[data-parting]",
    }.items():  # fmt: skip
        tab.goto(f"{address}/#/{view}")
        tab.locator(sign).first.wait_for()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        unnamed = (
            "els => els.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)"
        )
        assert tab.locator("button, select, input").evaluate_all(unnamed) == []
    context.close()


def test_history_is_the_log(address: str) -> None:
    import httpx

    found = httpx.get(f"{address}/api/models/bundled/history").json()
    log = RunLog.load(BUNDLED)
    assert [row["loss"] for row in found["steps"]] == [row["loss"] for row in log.steps]
    assert found["validations"][-1]["bleu"] == log.validations[-1]["bleu"]
    assert all(math.isfinite(row["loss"]) for row in found["steps"])
