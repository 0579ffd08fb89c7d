"""Chromium for the tests of the page, which are skipped if there is none or the page is not built, and what they look at."""

import csv
import re
import shutil
from collections.abc import Iterator

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

from seq2see.inspect.explain import Explanation
from seq2see.server.explore import PAGE_DIRECTORY
from tests.models import GRAMMAR_MODEL

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDS_BROWSER = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(not (PAGE_DIRECTORY / "index.html").is_file(), reason='the page is not built: run "make page"'),
    pytest.mark.skipif(not (GRAMMAR_MODEL / "config.toml").is_file(), reason="the bundled model is missing"),
]
CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

TEXT = "I like eating ice-cream"
SENTENCES = ["the cat sees the dog", "a bird sings", "बिल्ली कुत्ते को देखती है", "क्षमा करें"]
VIEWS = ("map", "translate", "walk", "heads", "microscope")
MAX_WAIT = 180_000  # milliseconds; only a mistake takes so long, not a slow machine
expect.set_options(timeout=MAX_WAIT)


def checked_page(browser: Browser, reduced_motion: bool = False) -> Iterator[Page]:
    """Yields a page; afterwards fails on any script error, blocked script or style, or request to another host."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, reduced_motion="reduce" if reduced_motion else "no-preference"
    )
    page = context.new_page()
    errors: list[str] = []
    local = ("http://127.0.0.1", "file://", "blob:", "data:")
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda r: None if r.url.startswith(local) else errors.append(r.url))
    yield page
    context.close()
    assert not errors, errors


def parse_number(text: str) -> float:
    return float(text.replace("−∞", "-inf").replace("−", "-").replace("%", "").strip())


def open_view(page: Page, url: str) -> None:
    page.goto(url)
    page.locator("[data-output]:not([data-output='']), .output-tokens button").first.wait_for()


def walk_through(page: Page, explanation: Explanation) -> set[str]:
    """Steps through all stages and checks every matrix; returns the tensors that no stage shows."""
    seen: set[str] = set()
    total = int(page.locator(".stage-count").inner_text().split(" of ")[1])
    for number in range(1, total + 1):
        expect(page.locator(".stage-count")).to_have_text(f"{number} of {total}")
        expect(page.locator(".panels [role=status]")).to_have_count(0)
        for matrix in page.locator("[data-matrix]").all():
            name, _, head = (matrix.get_attribute("data-matrix") or "").partition(" head ")
            if name not in seen:
                seen.add(name)
                check_panel(matrix, explanation, name, int(head) if head else None)
        page.evaluate("document.activeElement.blur()")  # the space bar would press a focused button
        page.keyboard.press("Space")
    return set(explanation.trace.names()) - seen


def check_panel(matrix: Locator, explanation: Explanation, name: str, head: int | None) -> None:
    # Intercepts the blob: Chromium occasionally blocks one of a hundred downloads.
    matrix.page.evaluate("""() => {
        const make = URL.createObjectURL;
        URL.createObjectURL = blob => { URL.createObjectURL = make; window.saved = blob; return make.call(URL, blob); };
        window.saved = null;
    }""")
    matrix.get_by_role("button", name="csv").click()
    matrix.page.wait_for_function("() => window.saved")
    (_, *columns), *rows = csv.reader(matrix.page.evaluate("window.saved.text()").splitlines())
    expected = explanation.trace[name, 0]
    is_attention = re.search(r"(scores|scaled|masked|energies|weights)$", name)
    if expected.dim() == 3:  # a single head is not named
        expected = expected[head or 0] if is_attention else expected[:, head or 0]
    shown = torch.tensor([[float(value) for value in row[1:]] for row in rows])
    assert torch.equal(shown, expected.float()), name
    over_source = (name.endswith((".keys", ".values")) and ".cross." in name) or not explanation.decoder_input_tokens
    of_source = name.startswith("encoder") or over_source
    tokens = explanation.source_tokens if of_source else explanation.decoder_input_tokens
    written = [f"{read} ▸ {next_token}" for read, next_token in zip(tokens, explanation.target_tokens, strict=False)]
    labels = list(tokens) if of_source else written
    assert [row[0] for row in rows] == labels, name
    if is_attention:
        assert tuple(columns) == (explanation.source_tokens if "cross" in name else tokens)
    # The grid for screen readers has the same numbers.
    for cell in matrix.locator("[data-cell]").all()[:: max(1, expected.numel() // 3)]:
        row, column = map(int, (cell.get_attribute("data-cell") or "").split(","))
        label, _, text = (cell.text_content() or "").rpartition(": ")
        if text != "masked":
            assert parse_number(text.replace("e−", "e-")) == pytest.approx(
                float(shown[row, column]), rel=0.5, abs=5.1e-5
            )
        assert label == columns[column]


def audit_all(page: Page, address: str, explanation: Explanation) -> float:
    """Inspects one cell of every tensor; returns the largest difference between the browser and the model."""
    cells = {}
    for name in explanation.trace.names():
        if not name.endswith(".tokens"):
            expected = explanation.trace[name, 0]
            index = tuple(min(size - 1, (2, 1, 4)[axis]) for axis, size in enumerate(expected.shape))
            cells[f"{name}:{','.join(map(str, index))}"] = float(expected[index])
    return audit(page, f"{address}&head=2", cells)


INSPECT = """async ([address, keys, timeout]) => {
    const found = {};
    for (const key of keys) {
        location.hash = `#/walk?${address}&cell=${key}`;
        const deadline = Date.now() + timeout, shown = () => document.querySelector(`[data-audit="${key}"]`);
        while (!shown() && Date.now() < deadline) await new Promise(resolve => setTimeout(resolve));
        found[key] = ['model', 'computed'].map(part => Number(shown()?.dataset[part] ?? NaN));
    }
    return found;
}"""


def audit(page: Page, address: str, cells: dict[str, float]) -> float:
    """Inspects cells, such as "logits:0,4"; returns the largest relative difference between the browser and the model.

    The server's numbers are these bit for bit: it computes in this process, with the same shapes and number of threads.
    """
    worst = 0.0
    for key, (model, computed) in page.evaluate(INSPECT, [address, list(cells), MAX_WAIT]).items():
        assert model == cells[key], key
        difference = 0.0 if model == computed else abs(model - computed) / max(1.0, abs(model))
        assert difference < 2e-5, key
        worst = max(worst, difference)
    return worst
