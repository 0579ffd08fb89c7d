"""Intervene, Replay and Compare in a real browser with the bundled model, and the exported file opened from disk.

Uses Chromium through Playwright; skipped if Chromium or the built page (`make setup`) is missing.
"""

import math
import re
from typing import Any
from urllib.parse import quote

import pytest
import torch
from playwright.sync_api import expect

import seq2see
from seq2see.api import Model
from seq2see.decode.search import Search
from seq2see.inspect.attention_flow import head_ablation
from seq2see.inspect.comparison import compare
from seq2see.inspect.explain import Explanation, explain, rerun
from seq2see.inspect.interventions import Selection, ablate_head, force_attention, patch, scale, uniform_attention
from seq2see.storage.bundled import GRAMMAR
from seq2see.storage.directory import snapshots
from seq2see.train.run_log import RunLog
from tests.browser import NEEDS_BROWSER
from tests.models import GRAMMAR_MODEL

pytestmark = NEEDS_BROWSER
TEXT, OTHER = "I like eating ice-cream", "I like eating mangoes"
Page = Any


@pytest.fixture(scope="module")
def model() -> Model:
    return seq2see.load(GRAMMAR_MODEL)


@pytest.fixture(scope="module")
def before(model: Model) -> Explanation:
    return explain(model, TEXT, search=Search())


def probability_changes(tab: Page, count: int) -> list[float]:
    tab.wait_for_function("n => document.querySelectorAll('[data-change]').length === n", arg=count)
    return [float(row.get_attribute("data-change")) for row in tab.locator("[data-change]").all()]


def output_after(tab: Page) -> str:
    tab.locator("[data-after]:not([data-after=''])").wait_for()
    return str(tab.locator("[data-after]").get_attribute("data-after"))


def hash_of(tab: Page) -> str:
    """Returns the hash, which is written shortly after a change."""
    return str(tab.evaluate("new Promise(done => setTimeout(() => done(decodeURIComponent(location.hash)), 250))"))


def read_cells(tab: Page, name: str) -> dict[str, str]:
    """Returns the texts of the grid for screen readers, by cell."""
    grid = tab.locator(f'[data-matrix="{name}"]')
    grid.locator("[data-cell]").first.wait_for(state="attached")
    script = "cells => cells.map(cell => [cell.dataset.cell, cell.textContent.split(': ').pop()])"
    return dict(grid.locator("[data-cell]").evaluate_all(script))


def parse_number(text: str) -> float:
    return float(text.replace("−", "-"))


# Intervene


def test_ablating_a_head_equals_the_library(tab: Page, address: str, before: Explanation) -> None:
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}")
    tab.get_by_role("group", name="decoder layer 1, cross-attention").get_by_label("ablate head 3").click()
    interventions = [ablate_head("decoder.1.cross", 3)]
    expected = [change.shift for change in compare(before, rerun(before, *interventions))]
    assert probability_changes(tab, len(before.target_tokens)) == pytest.approx(expected, abs=1e-5)
    assert output_after(tab) == explain(before.model, TEXT, interventions=interventions).output
    assert "interventions=ablate:decoder.1.cross:3" in hash_of(tab)


def test_interventions_from_the_url_combine_and_can_be_removed(
    tab: Page, address: str, model: Model, before: Explanation
) -> None:
    vector = explain(model, OTHER, search=Search()).trace["encoder.embedded", 0][3]
    interventions = [
        patch("encoder.embedded", vector, Selection(positions=[3])),
        uniform_attention("encoder.1.self", Selection(positions=[2], head=1)),
        force_attention("decoder.0.cross", torch.tensor([0.0, 0.25, 0.75, 0.0, 0.0]), Selection(positions=[1], head=0)),
        scale("decoder.1.feed_forward.post_activation", 0.0, Selection(unit=17)),
    ]
    formatted = [
        f"patch:encoder.embedded:3:3:{quote(OTHER)}",
        "uniform:encoder.1.self:1:2",
        "set:decoder.0.cross:0:1:0,0.25,0.75",
        "zero:decoder.1.feed_forward:17",
    ]
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}&interventions={quote(';'.join(formatted))}")
    expected = [change.shift for change in compare(before, rerun(before, *interventions))]
    assert probability_changes(tab, len(before.target_tokens)) == pytest.approx(expected, abs=1e-5)
    output = output_after(tab)
    assert output == explain(model, TEXT, interventions=interventions).output != before.output
    assert tab.locator(".changed").count() >= 1

    listed = tab.get_by_role("list", name="interventions").get_by_role("listitem")
    assert listed.count() == 4
    listed.first.get_by_role("button").click()
    tab.wait_for_function("t => (document.querySelector('[data-after]')?.dataset.after ?? t) !== t", arg=output)
    assert output_after(tab) == explain(model, TEXT, interventions=interventions[1:]).output
    tab.get_by_role("button", name="remove all").click()
    assert "interventions" not in hash_of(tab)


def test_a_banner_says_what_was_changed_and_what_it_did(tab: Page, address: str, before: Explanation) -> None:
    ablated = ";".join(f"ablate:decoder.1.cross:{head}" for head in (0, 1))
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}&interventions={ablated}")
    banner = tab.locator(".changed-banner")
    expect(banner).to_contain_text("Changed: heads 0 and 1 of decoder layer 1, cross-attention switched off")
    changes = compare(before, rerun(before, *(ablate_head("decoder.1.cross", head) for head in (0, 1))))
    old, now = (
        math.prod(change.p_before or 0 for change in changes),
        math.prod(change.p_same_token or 0 for change in changes),
    )
    expect(banner).to_contain_text(f"a probability of {100 * old:.1f}% before and {100 * now:.1f}% after")
    expect(banner).to_contain_text("The output is different")
    banner.get_by_role("button", name="clear").click()
    expect(banner).to_have_count(0)
    assert "interventions" not in hash_of(tab)


def test_every_type_of_intervention_can_be_added(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}")
    tab.get_by_role("button", name="Apply").click()
    tab.get_by_role("button", name="Set weights").click()
    tab.get_by_label("query token").select_option("1")
    tab.get_by_title("put all weight on like").click()
    tab.get_by_role("button", name="Apply").click()
    tab.get_by_role("button", name="Patch").click()
    tab.get_by_label("replace the vector of").select_option("3")
    tab.get_by_label("with the vector of").select_option("1")
    tab.get_by_role("button", name="Apply").click()
    tab.get_by_role("button", name="Zero unit").click()
    tab.get_by_label("unit, 0 to 511").fill("7")
    tab.get_by_role("button", name="Apply").click()
    formatted = hash_of(tab).split("interventions=")[1].split("&")[0].split(";")
    assert formatted[0] == "uniform:decoder.1.cross:*:*"
    assert formatted[1] == "set:decoder.1.cross:0:1:0,1,0,0,0"
    assert formatted[2] == "patch:encoder.embedded:3:1"
    assert formatted[3] == "zero:decoder.1.feed_forward:7"
    output_after(tab)


def test_errors_of_the_server_are_shown(browser: Any, address: str) -> None:
    tab = browser.new_page()  # unchecked: the console reports the rejected request
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}&interventions=zero:decoder.1.feed_forward:9999")
    tab.get_by_role("alert").wait_for()
    assert "unit 9999" in tab.get_by_role("alert").inner_text()
    tab.close()


def test_switches_show_what_each_head_is_worth(tab: Page, address: str, before: Explanation) -> None:
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}")
    row = tab.get_by_role("group", name="decoder layer 1, cross-attention")
    row.locator("[data-worth]").nth(7).wait_for()
    worth = [float(switch.get_attribute("data-worth")) for switch in row.locator("[data-worth]").all()]
    assert worth == pytest.approx(head_ablation(before, "decoder.1.cross").sum(1).tolist(), abs=1e-4)


def test_a_whole_attention_is_switched_off_at_once(tab: Page, address: str, model: Model) -> None:
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}")
    row = tab.get_by_role("group", name="decoder layer 1, cross-attention")
    row.get_by_role("button", name="all").click()
    off = explain(model, TEXT, interventions=[ablate_head("decoder.1.cross", head) for head in range(8)])
    assert output_after(tab) == off.output
    tab.locator("[data-attention='After'] path").first.wait_for(state="attached")
    row.get_by_role("button", name="all").click()
    tab.locator("[data-attention]").first.wait_for(state="detached")
    assert "interventions" not in hash_of(tab)


def test_suggested_interventions_change_the_output(tab: Page, address: str, before: Explanation) -> None:
    tab.goto(f"{address}/#/intervene?text={quote(TEXT)}")
    suggestions = tab.locator("[data-suggestions='ready'] button")
    suggestions.first.wait_for()
    for i in range(suggestions.count()):
        suggestions.nth(i).click()
        assert output_after(tab) != before.output
        assert "interventions=" in hash_of(tab)  # written: otherwise the next line would change nothing
        tab.evaluate("location.hash = '#/intervene'")
        suggestions.nth(i).wait_for()


# Replay


def test_replay_shows_output_attention_and_loss_of_every_snapshot(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/replay?text={quote(TEXT)}&head=2")
    steps = snapshots(GRAMMAR_MODEL)
    logged = {row["step"]: row["loss"] for row in RunLog.load(GRAMMAR_MODEL).steps}
    slider = tab.get_by_label("training snapshot")
    slider.focus()
    for _ in steps:
        tab.keyboard.press("ArrowLeft")
    for step in steps:
        tab.locator(f"[data-snapshot='{step}']").wait_for()
        e = explain(seq2see.load(GRAMMAR_MODEL, step=step), TEXT, search=Search())
        tab.wait_for_function(
            "([s, t]) => document.querySelector(`[data-snapshot='${s}']`)?.dataset.output === t", arg=[step, e.output]
        )
        loss = float(tab.locator("[data-loss]").get_attribute("data-loss"))
        nearest = min(logged, key=lambda logged_step: (abs(logged_step - step), logged_step))
        assert loss == pytest.approx(logged[nearest])
        weights = e.trace["decoder.1.cross.weights", 0][2]
        tab.wait_for_function("n => document.querySelector('[role=grid]')?.ariaRowCount == n", arg=len(weights))
        shown = read_cells(tab, "decoder.1.cross.weights head 2")
        assert [parse_number(text) for text in shown.values()] == pytest.approx(weights.flatten().tolist(), abs=6e-5)
        assert f"snapshot={step}" in hash_of(tab)
        tab.keyboard.press("ArrowRight")
    assert tab.locator("[data-step]").count() == len(steps) + 1


def test_replay_plays_or_steps_with_reduced_motion(browser: Any, address: str) -> None:
    first, second = snapshots(GRAMMAR_MODEL)[:2]
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
    tab.locator("[data-snapshot='-1']").wait_for()
    tab.get_by_role("button", name="Play").wait_for()  # stops at the final model
    tab.close()


# Compare


def test_difference_of_two_heads(tab: Page, address: str, before: Explanation) -> None:
    tab.goto(f"{address}/#/compare?text={quote(TEXT)}&compare=heads&head=3&head2=5")
    weights = before.trace["decoder.1.cross.weights", 0]
    difference = weights[3] - weights[5]
    name = "decoder.1.cross.weights head 3 minus decoder.1.cross.weights head 5"
    shown = read_cells(tab, name)
    assert [parse_number(text) for text in shown.values()] == pytest.approx(difference.flatten().tolist(), abs=6e-5)
    row, col = divmod(int(difference.abs().argmax()), difference.shape[1])
    assert tab.locator("[data-largest-difference]").get_attribute("data-largest-difference") == f"{row},{col}"
    side = tab.locator("[data-side='0'] [role=grid]")
    side.focus()
    tab.keyboard.press("ArrowRight")
    tab.locator("[data-audit='decoder.1.cross.weights:3,0,0']").wait_for()


def test_difference_of_two_sentences_and_of_two_models(
    tab: Page, address: str, model: Model, before: Explanation
) -> None:
    tab.goto(
        f"{address}/#/compare?text={quote(TEXT)}&compare=sentences&text2={quote(OTHER)}&head=0&attention=encoder.0.self"
    )
    other = explain(model, OTHER, search=Search())
    tab.get_by_text(other.output).wait_for()
    difference = before.trace["encoder.0.self.weights", 0][0] - other.trace["encoder.0.self.weights", 0][0]
    shown = read_cells(tab, "encoder.0.self.weights head 0 minus encoder.0.self.weights head 0")
    assert [parse_number(text) for text in shown.values()] == pytest.approx(difference.flatten().tolist(), abs=6e-5)

    step = snapshots(GRAMMAR_MODEL)[-1]
    tab.goto(
        f"{address}/#/compare?text={quote(TEXT)}&compare=models&model2=grammar-en-hi@{step}&head=0&attention=encoder.0.self"
    )
    earlier = explain(seq2see.load(GRAMMAR_MODEL, step=step), TEXT, search=Search())
    tab.get_by_text(f"grammar-en-hi at step {step}").wait_for()
    difference = before.trace["encoder.0.self.weights", 0][0] - earlier.trace["encoder.0.self.weights", 0][0]
    tab.wait_for_function("t => document.querySelector('[data-side=\"1\"]')?.innerText.includes(t)", arg=earlier.output)
    shown = read_cells(tab, "encoder.0.self.weights head 0 minus encoder.0.self.weights head 0")
    assert [parse_number(text) for text in shown.values()] == pytest.approx(difference.flatten().tolist(), abs=6e-5)


def test_a_snapshot_can_be_given_the_output_of_the_final_model(tab: Page, address: str, before: Explanation) -> None:
    step = snapshots(GRAMMAR_MODEL)[0]
    state = f"compare=models&model2=grammar-en-hi@{step}&forced=1&head=0&attention=decoder.1.masked"
    tab.goto(f"{address}/#/compare?text={quote(TEXT)}&{state}")
    earlier = explain(seq2see.load(GRAMMAR_MODEL, step=step), TEXT, target=before.output, search=Search())
    difference = before.trace["decoder.1.masked.weights", 0][0] - earlier.trace["decoder.1.masked.weights", 0][0]
    shown = read_cells(tab, "decoder.1.masked.weights head 0 minus decoder.1.masked.weights head 0")
    rows, columns = difference.shape
    for row in range(rows):
        for col in range(columns):
            text = shown[f"{row},{col}"]
            assert (
                text == "masked"
                if col > row
                else parse_number(text) == pytest.approx(float(difference[row, col]), abs=6e-5)
            )


def test_unequal_shapes_are_reported(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/compare?text={quote(TEXT)}&compare=sentences&text2=Congratulations&attention=encoder.0.self")
    tab.locator("[data-shape-mismatch]").wait_for()
    assert re.search(r"the shapes are 5 × 5 and \d × \d", tab.locator("[data-shape-mismatch]").inner_text())


def test_compare_starts_with_an_earlier_self(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/compare?text={quote(TEXT)}")
    steps = snapshots(GRAMMAR_MODEL)
    tab.get_by_text(f"{GRAMMAR} at step {steps[len(steps) // 2]}").wait_for()


# Layout


@pytest.mark.parametrize("width", [390, 1280])
def test_views_fit_the_window_and_controls_have_names(browser: Any, address: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark")
    tab = context.new_page()
    for view, selector in {
        "intervene?interventions=ablate:decoder.1.cross:3": "[data-change]",
        "replay": "[data-loss]",
        "compare?compare=heads&head=2": "[data-largest-difference]",
    }.items():
        tab.goto(f"{address}/#/{view}")
        tab.locator(selector).first.wait_for()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        unnamed = (
            "els => els.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)"
        )
        assert tab.locator("button, select, input").evaluate_all(unnamed) == []
    context.close()


def test_history_equals_the_log(address: str) -> None:
    import httpx

    found = httpx.get(f"{address}/api/models/grammar-en-hi/history").json()
    log = RunLog.load(GRAMMAR_MODEL)
    assert [row["loss"] for row in found["steps"]] == [row["loss"] for row in log.steps]
    assert found["validations"][-1]["bleu"] == log.validations[-1]["bleu"]
    assert all(math.isfinite(row["loss"]) for row in found["steps"])
