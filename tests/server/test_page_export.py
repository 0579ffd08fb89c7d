"""The exported file, opened from disk: it shows what the server would, offline."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import seq2see
from seq2see.api import Model
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation, explain
from seq2see.server.explore.app import create_app
from seq2see.server.explore.static_export import embedded_data, export_html, render_page
from seq2see.storage.bundled import GRAMMAR
from tests.browser import NEEDS_BROWSER
from tests.explore import serving
from tests.models import GRAMMAR_MODEL

pytestmark = NEEDS_BROWSER
TEXT = "I like eating ice-cream"
Page = Any


@pytest.fixture(scope="module")
def model() -> Model:
    return seq2see.load(GRAMMAR_MODEL)


@pytest.fixture(scope="module")
def before(model: Model) -> Explanation:
    return explain(model, TEXT, search=Search())


@pytest.fixture(scope="module")
def exported_file(before: Explanation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "why.html"
    export_html(before, path, GRAMMAR)
    return path


def test_exported_file_shows_every_view_offline(browser: Any, exported_file: Path, before: Explanation) -> None:
    assert exported_file.stat().st_size < 6 << 20
    context = browser.new_context(offline=True)
    tab, requests = context.new_page(), []
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda r: None if r.url.startswith(("file://", "data:", "blob:")) else requests.append(r.url))
    tab.goto(f"{exported_file.as_uri()}#/translate?row=1")
    tab.locator(f"[data-output='{before.output}']").wait_for()
    tab.locator(".lines path").first.wait_for(state="attached")
    assert tab.evaluate(
        "document.fonts.ready.then(() => document.fonts.check('16px \"Noto Sans Devanagari Variable\"', 'है'))"
    )
    for view, selector in {
        "walk?stage=decoder.1.cross.scores&head=2": "[data-matrix='decoder.1.cross.scores head 2']",
        "heads?sort=contribution": ".head-thumbnail .sort-value",
        "microscope?head=1": ".lookup .meter",
        "compare?head=3": "[data-largest-difference]",
        "intervene": "[data-needs-model]",
        "replay": "[data-needs-model]",
        "learn": "[data-needs-model]",
    }.items():
        tab.goto(f"{exported_file.as_uri()}#/{view}")
        tab.locator(selector).first.wait_for(state="attached")
    assert tab.get_by_role("navigation", name="views").inner_text().split() == [
        "Map",
        "Translate",
        "Walk",
        "Heads",
        "Microscope",
        "Compare",
    ]
    assert not requests and not errors
    context.close()


def test_exported_file_recomputes_cells_that_need_weights(tab: Page, exported_file: Path, before: Explanation) -> None:
    for cell in (
        "decoder.1.cross.queries:2,2,3",
        "logits:2,17",
        "encoder.0.feed_forward.pre_activation:1,40",
        "decoder.embedded:1,5",
    ):
        name, _, index = cell.partition(":")
        tab.goto(f"{exported_file.as_uri()}#/walk?cell={quote(cell)}")
        tab.locator(f"[data-audit='{cell}']").wait_for()
        audit = tab.locator("[data-audit]")
        value = float(before.trace[name, 0][tuple(map(int, index.split(",")))])
        assert float(audit.get_attribute("data-model")) == value
        assert float(audit.get_attribute("data-computed")) == pytest.approx(value, abs=1e-4)


def test_exported_file_contains_the_responses_of_the_server(address: str, before: Explanation) -> None:
    embedded = embedded_data(before, GRAMMAR, []).model_dump(mode="json")
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL})) as client:
        trace = client.post("/api/traces", json={"text": TEXT}).json()
        id = trace["id"]
        assert embedded["trace"] | {"id": id} == trace
        (model,) = client.get("/api/models").json()["models"]
        # Without other sentences and snapshots, which only a server can run.
        assert embedded["model"] | {name: model[name] for name in ("snapshots", "about")} == model
        assert embedded["weight_infos"] == client.get("/api/models/grammar-en-hi/weights").json()["weights"]
        assert embedded["vocabulary"] == client.get("/api/models/grammar-en-hi/vocabulary").json()
        assert embedded["attention_entropy"] == client.get(f"/api/traces/{id}/attention-entropy").json()
        assert embedded["logit_attributions"][2] == client.get(f"/api/traces/{id}/logit-attribution?row=2").json()


def test_export_needs_the_built_page(before: Explanation, tmp_path: Path) -> None:
    data = embedded_data(before, GRAMMAR, [])
    with pytest.raises(UserError, match=r"the page is not built .*: run `make setup`"):
        render_page(data, directory=tmp_path)


def test_export_needs_no_web_framework() -> None:
    code = "import sys; sys.modules['fastapi'] = sys.modules['uvicorn'] = sys.modules['starlette'] = None; "
    subprocess.run([sys.executable, "-c", code + "import seq2see.server.explore.static_export"], check=True)


def test_text_is_escaped_in_the_exported_file(model: Model, tab: Page, tmp_path: Path) -> None:
    text = "</script><script>document.title = 'broken'</script><!--"
    export_html(explain(model, text, search=Search()), tmp_path / "x.html", GRAMMAR)
    tab.goto(f"{(tmp_path / 'x.html').as_uri()}#/translate")
    tab.locator("textarea").wait_for()
    assert tab.locator("textarea").input_value() == text
    assert tab.title() == "Translate · grammar-en-hi · seq2see"
