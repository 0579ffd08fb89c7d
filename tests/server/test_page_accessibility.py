"""The accessibility of every view by axe-core's rules, in both themes: no violation that it calls serious or critical, and no
type below 12 pixels.

Uses Chromium through Playwright; skipped if Chromium, the built page or axe-core (`npm ci` in web/) is missing.
"""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import NEEDS_BROWSER

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [*NEEDS_BROWSER, pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed")]

VIEWS = {
    "map": ".map-box .thumbnail",
    "translate?row=1": ".lines path",
    "walk?stage=decoder.1.cross.scores&row=1&cell=decoder.1.cross.scores:1,1,3": "[data-audit]",
    "heads?sort=entropy&lines=1,3": ".sort-value",
    "microscope?attention=decoder.0.masked&row=2": ".lookup .meter",
    "intervene?interventions=ablate:decoder.1.cross:3": "[data-change]",
    "replay?snapshot=256": "[data-loss]",
    "compare": "[data-side] canvas",
    "space?space=layers&text2=We+are+friends": "[data-path]",
    "space?space=words&dimensions=3&words=went+−+go+%2B+come": "[data-neighbor]",
    "train": "main h2",
    "learn": ".lesson h2, h1, h2",
    "map?tour=3": ".tour",
}

SMALL_TYPE = """() => [...document.querySelectorAll("body *")].flatMap(element => {
    const texts = [...element.childNodes].filter(node => node.nodeType === Node.TEXT_NODE);
    const text = texts.map(node => node.data.trim()).join("");
    const size = parseFloat(getComputedStyle(element).fontSize);
    return (text || element.dataset.latin) && size < 12 && element.getClientRects().length ? [`${size} px: ${text}`] : [];
})"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_has_a_serious_violation(browser: Browser, address: str, theme: Any) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=theme, reduced_motion="reduce")
    page = context.new_page()
    found = []
    for view, selector in VIEWS.items():
        page.goto(f"{address}/#/{view}")
        page.locator(selector).first.wait_for(state="attached")
        expect(page.locator("main [role=status].state")).to_have_count(0)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        for violation in page.evaluate("axe.run().then(result => result.violations)"):
            if violation["impact"] in ("serious", "critical"):
                nodes = [f"{node['html'][:120]} {node['any'][:1]}" for node in violation["nodes"]]
                found.append(f"{view}: {violation['id']}: {nodes[:3]} of {len(nodes)}")
        found += [f"{view}: {text}" for text in page.evaluate(SMALL_TYPE)]
    context.close()
    assert not found, "\n".join(found)
