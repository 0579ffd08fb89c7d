"""Train in a real browser: a run is started and paused from the page, and another one is followed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

import seq2see
from seq2see.server.explore.app import create_app
from seq2see.server.explore.options import TrainingOptions
from seq2see.storage.bundled import GRAMMAR
from seq2see.storage.directory import snapshots
from tests.browser import NEEDS_BROWSER, checked_page
from tests.corpora import SINGLE_THREAD_ENV, write_phrases
from tests.explore import serving
from tests.models import GRAMMAR_MODEL

pytestmark = NEEDS_BROWSER
Page = Any


@pytest.fixture
def tab(browser: Any) -> Iterator[Page]:
    yield from checked_page(browser)


def test_a_training_is_started_watched_and_paused(tab: Page, tmp_path: Path) -> None:
    write_phrases(tmp_path)
    options = TrainingOptions(tmp_path / "runs", tmp_path, environment=SINGLE_THREAD_ENV)
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, training=options)) as client:
        tab.goto(f"{client.base_url}/#/train?text={quote('one red tea')}")
        tab.get_by_label("text to learn from").select_option("train.en")
        tab.get_by_label("its translation").select_option("train.hi")
        tab.get_by_label("name of the run").fill("phrases")
        tab.get_by_role("button", name="Start").click()
        expect(tab.locator("[data-training=training]")).to_be_visible()
        expect(tab.get_by_role("heading", name="phrases")).to_be_visible()
        expect(tab.locator("[data-report='1']")).to_be_visible()
        expect(tab.get_by_role("heading", name="One head")).to_be_visible()
        expect(tab.locator("[data-figure='learning rate']")).not_to_have_text("–")
        expect(tab.locator("[data-figure=step]")).to_have_text(re.compile(r"^[\d,]+ of about [\d,]+$"))
        tab.get_by_role("button", name="Pause").click()
        expect(tab.locator("[data-training=paused]")).to_be_visible()
        expect(tab.get_by_role("button", name="Resume")).to_be_visible()
        tab.get_by_role("button", name="Train another").click()
        expect(tab.get_by_role("group", name="paused runs").get_by_role("button", name="phrases")).to_be_visible()
        tab.goto("about:blank")  # it would go on asking the server, which ends


def test_a_followed_run_shows_every_report_and_opens(tab: Page) -> None:
    options = TrainingOptions(follow=GRAMMAR_MODEL)
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, training=options)) as client:
        tab.goto(f"{client.base_url}/#/train?text={quote('How are you?')}&attention=decoder.0.cross&head=2")
        rows = tab.locator("[data-report]")
        expect(rows).to_have_count(len(snapshots(GRAMMAR_MODEL)))
        expected = seq2see.load(GRAMMAR_MODEL, step=256).explain("How are you?").output
        row = tab.locator("[data-report='256']")
        expect(row.locator(".snapshot-output")).to_have_text(expected)
        row.click()
        expect(row).to_have_attribute("aria-pressed", "true")
        expect(tab.locator("[data-matrix='decoder.0.cross step 256']")).to_be_visible()
        expect(tab.locator(".select-field select").last).to_have_value("2")
        expect(tab.locator("[data-figure=step]")).to_have_text("10,000 of 10,000")
        expect(row).to_contain_text("step 256 of 10,000")
        expect(row).to_contain_text(re.compile(r"loss [\d.]+( at step 2\d\d)?$"))
        expect(tab.locator("[data-matrix='decoder.0.cross step 256']")).to_contain_text("<start> ▸")
        expect(row).not_to_contain_text("%")
        expect(tab.get_by_role("button", name="Pause")).to_have_count(0)  # it is not the page's own
        tab.get_by_role("button", name="Open the model").click()
        tab.wait_for_url("**/#/map?model=grammar-en-hi**")
        tab.goto("about:blank")


def test_a_server_that_does_not_train_says_so(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#/train")
    expect(tab.get_by_role("heading", name="No training here")).to_be_visible()
    assert tab.get_by_role("button", name="Start").count() == 0
