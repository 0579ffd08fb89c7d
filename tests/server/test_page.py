"""The page in a real browser with the bundled model: every number it shows is the model's.

Uses Chromium through Playwright; skipped if Chromium or the built page (`make page`) is missing. Screenshots of each view in
both themes and widths are saved in $SEQ2SEE_SCREENSHOTS, if it is set.
"""

import csv
import gzip
import itertools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

import seq2see
from seq2see.inspect import attention_flow, logit_attribution
from seq2see.inspect.explain import Explanation
from seq2see.server.explore import PAGE_DIRECTORY
from seq2see.server.explore.app import create_app
from seq2see.server.explore.options import Limits
from seq2see.storage.bundled import BUNDLED, GRAMMAR
from tests.browser import NEEDS_BROWSER, checked_page
from tests.models import GRAMMAR_MODEL, TINY, save, tiny_model
from tests.server.test_explore import serving

pytestmark = NEEDS_BROWSER
TEXT = "I like eating ice-cream"
VIEWS = ("map", "translate", "walk", "heads", "microscope")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    yield from checked_page(browser, reduced_motion=True)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return seq2see.load(GRAMMAR_MODEL).explain(TEXT)


def parse_number(text: str) -> float:
    return float(text.replace("−∞", "-inf").replace("−", "-").replace("%", "").strip())


def open_view(page: Page, url: str) -> None:
    page.goto(url)
    page.locator("[data-output]:not([data-output='']), .output-tokens button").first.wait_for()


def test_output_is_updated_while_typing(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/translate")
    model = seq2see.load(GRAMMAR_MODEL)
    page.get_by_label("Text to translate").fill("How are you?")
    (expected,) = model.translate(["How are you?"])
    page.wait_for_function("t => document.querySelector('[data-output]')?.dataset.output === t", arg=expected)
    assert page.locator(".output").inner_text() == expected
    assert "text=How+are+you" in page.evaluate("new Promise(r => setTimeout(() => r(location.hash), 300))")
    median = page.evaluate(
        """async () => {
            const area = document.querySelector('textarea'), times = [];
            for (const text of ['We are friends', 'I am good', 'Congratulations', 'We are friends', 'I am good']) {
                const before = document.querySelector('[data-output]').dataset.output, start = performance.now();
                area.value = text;
                area.dispatchEvent(new Event('input', {bubbles: true}));
                while (document.querySelector('[data-output]').dataset.output === before)
                    await new Promise(requestAnimationFrame);
                times.push(performance.now() - start);
            }
            return times.sort((a, b) => a - b)[2];
        }"""
    )
    print(f"latency from keystroke to output: {median:.0f} ms")
    assert median < 5000  # under 150 ms on an idle machine


def test_unknown_words_and_low_confidence_are_marked(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/translate")
    caution = page.get_by_role("status").filter(has_text="never saw")
    expect(caution).to_have_count(0)
    page.get_by_label("Text to translate").fill("The weather is nice today")
    expect(caution).to_contain_text("The model never saw weather, nice in training. Low confidence: −")
    page.get_by_label("Text to translate").fill("How are you?")
    expect(caution).to_have_count(0)


def test_page_is_small_and_paints_quickly(page: Page, address: str) -> None:
    sizes = {
        file.name: len(gzip.compress(file.read_bytes())) for file in PAGE_DIRECTORY.iterdir() if file.suffix != ".woff2"
    }
    assert sum(sizes.values()) < 110 * 1024
    open_view(page, f"{address}/#/translate")
    first_paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"{sum(sizes.values()) / 1024:.0f} KB compressed; first paint after {first_paint:.0f} ms")
    assert first_paint < 3000  # under 1000 ms on an idle machine


@pytest.mark.parametrize("attention", ["decoder.1.cross", "decoder.0.masked"])
def test_lines_show_the_attention_of_the_selected_row(
    page: Page, address: str, explanation: Explanation, attention: str
) -> None:
    def shown() -> list[float]:
        page.locator(".lines path").first.wait_for(state="attached")
        texts = page.locator(".lines text.secondary").all_text_contents()
        return [parse_number(text) for text in texts if text.endswith("%")]

    open_view(page, f"{address}/#/heads?row=2&attention={attention}")
    weights = explanation.trace[f"{attention}.weights", 0]
    assert shown() == pytest.approx([100 * w for w in weights.mean(0)[2].tolist() if w >= 0.01], abs=0.051)
    # Several heads at once: one line per head and weight, and the largest weight of each token.
    heads = page.get_by_role("group", name="heads to draw")
    for name in ("head 1", "head 4"):
        heads.get_by_role("button", name=name).click()
    expect(heads.locator("[aria-pressed=true]")).to_have_count(2)
    expect(page.locator(".lines path")).to_have_count(int((weights[[1, 4], 2] >= 0.005).sum()))
    assert shown() == pytest.approx([100 * w for w in weights[[1, 4], 2].amax(0).tolist() if w >= 0.01], abs=0.051)


def test_lines_follow_threshold_and_keyboard(page: Page, address: str, explanation: Explanation) -> None:
    open_view(page, f"{address}/#/translate?attention=decoder.1.cross")
    weights = explanation.trace["decoder.1.cross.weights", 0].mean(0)
    expect(page.locator(".lines path")).to_have_count(int((weights >= 0.04).sum()))
    page.get_by_label("from weight").fill("0.3")
    expect(page.locator(".lines path")).to_have_count(int((weights >= 0.3).sum()))
    page.locator("[data-token='query 0']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-token='query 1']")).to_be_focused()
    expect(page.locator("[data-token='query 1']")).to_have_attribute("aria-label", re.compile("attends to ice-cream 9"))
    page.keyboard.press("Enter")
    expect(page.locator(".candidates")).to_have_attribute("data-row", "1")


def test_lines_of_a_long_text_scroll(page: Page, address: str) -> None:
    words = ("the boy saw a bank and the girl saw two cows " * 30).split()[:300]
    page.goto(f"{address}/#/heads?attention=encoder.0.self&head=2&text={'+'.join(words)}")
    tokens = page.locator(".lines .token:not(.secondary)")
    expect(tokens).to_have_count(300)
    centers = [float(x) for x in tokens.evaluate_all("all => all.map(one => one.getAttribute('x'))")]
    assert all(after - before > 10 for before, after in itertools.pairwise(centers))
    expect(page.locator("[data-head='encoder.0.self 2']")).to_contain_text("≤ 0.")  # the scale of its thumbnail


def test_sliders_act_on_the_logits(page: Page, address: str, explanation: Explanation) -> None:
    open_view(page, f"{address}/#/translate?row=2&temperature=2&topK=5")
    logits = explanation.trace["logits", 0][2].double()
    kept = logits.topk(5).indices
    expected = {int(i): float(p) for i, p in zip(kept, (logits[kept] / 2).softmax(0), strict=True)}
    page.locator(".candidate").first.wait_for()
    for row in page.locator(".candidate").all():
        id, value = int(row.get_attribute("data-token") or ""), row.locator(".value").inner_text()
        if id in expected:
            assert parse_number(value.replace("<", "")) == pytest.approx(100 * expected[id], abs=0.1)
        else:
            assert value == "excluded"
    page.get_by_label("Temperature").fill("0")
    expect(page.locator(".candidate.selected .value")).to_have_text("100%")


def test_page_predicts_the_sampled_token(page: Page, address: str) -> None:
    """The token that the page computes from seed and logits is the one that the model sampled."""
    open_view(page, f"{address}/#/translate?search=sample&temperature=3&seed=5")
    for row in range(3):
        page.evaluate("row => { location.hash = `#/translate?search=sample&temperature=3&seed=5&row=${row}` }", row)
        page.locator(f"[data-row='{row}']").wait_for()
        sampled = page.locator("section p b").last.inner_text()
        assert page.locator(".candidate.selected .name").inner_text() == sampled


def test_beam_shows_the_best_hypotheses(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/translate?search=beam&beam=3")
    ((*expected,),) = seq2see.load(GRAMMAR_MODEL).hypotheses([TEXT], beam=3, nbest=3)
    page.locator(".beam li").nth(2).wait_for()
    scores = [parse_number(text) for text in page.locator(".beam .value").all_inner_texts()]
    assert scores == pytest.approx([hypothesis.score for hypothesis in expected], abs=6e-4)


def test_walk_shows_every_value_of_the_trace(page: Page, address: str, explanation: Explanation) -> None:
    """Steps through all stages with the space bar and compares each matrix, exported as CSV, with the trace."""
    open_view(page, f"{address}/#/walk?head=3&row=2")
    assert walk_through(page, explanation) == {"encoder.tokens", "decoder.tokens"}, "tensors that no stage shows"


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


def test_a_short_route_leads_through_the_main_steps(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/walk")
    page.get_by_role("group", name="route").get_by_role("button", name="12 main steps").click()
    expect(page.locator(".stage-count")).to_have_text("1 of 12")
    for stage in ("encoder.embedded", "encoder.0.self.queries", "encoder.0.self.scores"):
        page.get_by_role("button", name="next →").click()
        page.locator(f"[data-stage='{stage}']").wait_for()
    page.get_by_role("button", name="all 91").click()
    expect(page.locator("[data-stage='encoder.0.self.scores']")).to_be_visible()


def test_a_step_is_shown_as_an_equation_with_its_learned_matrices(page: Page, address: str) -> None:
    for stage, equation, shapes in (
        ("encoder.0.self.queries", "x · W_Q = Q", ["5 × 128", "128 × 16", "5 × 16"]),
        ("decoder.1.cross.scores", "Q · Kᵀ = scores", ["6 × 16", "16 × 5", "6 × 5"]),
        ("decoder.0.feed_forward.output", "active · W₂ = output", ["6 × 512", "512 × 128", "6 × 128"]),
        ("logits", "vectors · embeddingᵀ = logits", ["6 × 128", "128 × 1,901", "6 × 1,901"]),
    ):
        open_view(page, f"{address}/#/walk?stage={stage}")
        shown = page.get_by_role("img", name=equation)
        for i, shape in enumerate(shapes):
            expect(shown.locator("[data-shape]").nth(i)).to_have_text(shape)
    # Each matrix names its scale; the terms of a sum have one in common.
    scales = page.locator("[data-scale]").all_inner_texts()
    assert len(set(scales)) == 3 and all(scale.startswith("±") for scale in scales)
    open_view(page, f"{address}/#/walk?stage=decoder.0.masked.sum")
    page.locator(".panels .legend").nth(2).wait_for()
    expect(page.locator(".equation .thumbnail")).to_have_count(3)
    assert len(set(page.locator(".panels .legend").all_inner_texts())) == 1
    assert len(set(page.locator("[data-scale]").all_inner_texts())) == 1


def test_type_is_larger_on_request(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/microscope")
    height = "() => document.querySelector('[data-matrix] canvas')?.clientHeight"
    page.wait_for_function(f"{height} > 0")
    before = page.evaluate(height)
    page.keyboard.press("f")
    page.wait_for_function(f"{height} > {before}")
    page.keyboard.press("f")
    page.wait_for_function(f"{height} === {before}")


def test_every_press_of_the_space_bar_counts(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/walk")
    page.evaluate("""() => {  // pressed again as soon as the next stage is shown
        const press = () => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: " ", bubbles: true }));
        const watch = new MutationObserver(() => /^29 of/.test(count.textContent) ? watch.disconnect() : press());
        const count = document.querySelector(".stage-count");
        watch.observe(count, { characterData: true, childList: true, subtree: true });
        press();
    }""")
    expect(page.locator(".stage-count")).to_have_text(re.compile("^29 of"))


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


def test_inspector_recomputes_every_tensor(page: Page, address: str, explanation: Explanation) -> None:
    open_view(page, f"{address}/#/walk")
    worst = audit_all(page, "", explanation)
    print(f"largest difference between model and browser: {worst:.1e}")
    assert worst > 0, "the browser must have computed something itself"


def audit_all(page: Page, address: str, explanation: Explanation) -> float:
    """Inspects one cell of every tensor; returns the largest difference between the browser and the model."""
    worst = 0.0
    for name in explanation.trace.names():
        if name.endswith(".tokens"):
            continue
        expected = explanation.trace[name, 0]
        index = tuple(min(size - 1, (2, 1, 4)[axis]) for axis, size in enumerate(expected.shape))
        worst = max(worst, audit_cell(page, f"{address}&head=2", name, index, float(expected[index])))
    return worst


def audit_cell(page: Page, address: str, name: str, index: tuple[int, ...], expected: float) -> float:
    """Inspects a cell; returns the relative difference between the browser and the model.

    The server's number is `expected` bit for bit: it computes in this process, with the same shapes and number of threads.
    """
    key = f"{name}:{','.join(map(str, index))}"
    page.evaluate("hash => { location.hash = hash }", f"#/walk?{address}&cell={key}")
    audit = page.locator(f"[data-audit='{key}']")
    audit.wait_for()
    model, computed = (float(audit.get_attribute(f"data-{part}") or "nan") for part in ("model", "computed"))
    assert model == expected, key
    difference = 0.0 if model == computed else abs(model - computed) / max(1.0, abs(model))
    assert difference < 2e-5, key
    return difference


ONE_LAYER = replace(TINY, decoder_layers=1)
# Together these cover every option that changes a formula.
SHAPES = {
    "paper": replace(ONE_LAYER, norm_first=False, output_bias=True, tie_embeddings="none", positions="learned"),
    "llama": replace(
        ONE_LAYER, shape="decoder", norm_first=True, norm="rms", activation="swiglu", positions="rotary", heads=4,
        key_value_heads=2, bias="nowhere", max_positions=64,
    ),
    "marian": replace(ONE_LAYER, positions="sinusoidal-halves", activation="gelu", tie_embeddings="all", embedding_norm=True),
    "gemma": replace(
        ONE_LAYER, shape="decoder", decoder_layers=2, norm_first=True, norm="rms", activation="geglu", positions="rotary",
        heads=4, bias="nowhere", max_positions=64, output_norm=True, query_key_norm=True, attention_window=2,
        local_layers=(0,), local_rotary_base=50.0, rotary_factors=tuple(1 + i / 5 for i in range(TINY.width // 8)),
        rotary_magnitude=1.1, attention_scale=0.3, attention_cap=2.0, logit_cap=3.0,
    ),
    "t5": replace(ONE_LAYER, positions="relative", norm="rms", norm_first=True, attention_scale=1.0, logit_scale=0.2),
    "m2m100": replace(ONE_LAYER, positions="sinusoidal-fairseq", norm_first=True),
}  # fmt: skip
SENTENCES = ["the cat sees the dog", "a bird sings", "बिल्ली कुत्ते को देखती है", "क्षमा करें"]


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


def test_page_works_with_the_keyboard_alone(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/microscope?attention=decoder.1.cross&head=2")
    current_hash = "() => new Promise(done => setTimeout(() => done(location.hash), 200))"
    page.locator("[data-matrix] [role=grid]").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.locator("[data-audit='decoder.1.cross.weights:2,1,1']").wait_for()
    active = page.locator("[data-matrix] [role=grid]").get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.keyboard.press("[")
    assert "attention=decoder.0.cross" in page.evaluate(current_hash)
    page.keyboard.press(".")
    assert "head=3" in page.evaluate(current_hash)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="help")).to_have_count(0)
    page.keyboard.press("4")
    page.locator("[data-stage='encoder.tokens']").wait_for()
    page.locator("body").click(position={"x": 3, "y": 400})
    page.keyboard.press("Space")
    page.locator("[data-stage='encoder.embedded']").wait_for()
    page.keyboard.press("Shift+Space")
    page.locator("[data-stage='encoder.tokens']").wait_for()
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before
    page.go_back()
    page.locator("[data-matrix^='decoder.0.cross']").first.wait_for()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_views_fit_the_window_in_both_themes(
    browser: Browser, address: str, width: int, theme: Any, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce")
    page = context.new_page()
    folder = Path(os.environ.get("SEQ2SEE_SCREENSHOTS") or tmp_path)
    extra = {"walk": "&stage=decoder.1.cross.scores&cell=decoder.1.cross.scores:3,2,1", "heads": "&sort=entropy"}
    for view in VIEWS:
        open_view(page, f"{address}/#/{view}?row=2&head=3{extra.get(view, '')}")
        expect(page.locator("main [role=status]")).to_have_count(0)
        page.evaluate("document.fonts.ready")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{view} is wider than the window"
        assert page.evaluate("document.fonts.check('16px \"Noto Sans Devanagari Variable\"', 'है')")
        page.screenshot(path=folder / f"{view}-{theme}-{width}.png", full_page=True)
    context.close()


def test_matrices_are_exported_as_pictures(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/microscope?attention=decoder.1.cross&head=2")
    for format, magic in (("svg", b"<svg"), ("png", b"\x89PNG")):
        with page.expect_download() as download:
            page.locator("[data-matrix]").first.get_by_role("button", name=format).click()
        assert download.value.suggested_filename == f"decoder.1.cross.weights-head-2.{format}"
        data = Path(download.value.path()).read_bytes()
        assert data.startswith(magic)
        if format == "svg":
            assert "आइसक्रीम" in data.decode()


def test_a_saved_drawing_contains_the_font_of_the_page(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/translate")
    page.locator(".lines path").first.wait_for(state="attached")
    page.evaluate("""() => {
        const make = URL.createObjectURL;
        URL.createObjectURL = blob => { window.drawing ??= blob; return make.call(URL, blob); };
    }""")
    page.locator(".lines").get_by_role("button", name="png").click()
    page.wait_for_function("() => window.drawing")
    assert page.evaluate("window.drawing.text()").count("data:font/woff2;base64,") == 2  # Latin and Devanagari


def test_long_texts_scroll_smoothly(page: Page, address: str) -> None:
    """Of 1,000 × 1,000 cells only the visible ones exist, so that scrolling is smooth."""
    words = ("the boy saw a bank and the girl saw two cows " * 100).split()[:1000]
    page.goto(f"{address}/#/microscope?attention=encoder.0.self&head=2&text={'+'.join(words)}")
    page.locator("[data-matrix='encoder.0.self.weights head 2']").wait_for(timeout=600_000)
    page.evaluate(
        """async () => {
            const view = document.querySelector('[data-matrix] [role=grid]');
            for (let i = 1; i <= 30; i++) {
                view.scrollTop = i * 30; view.scrollLeft = i * 20;
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    assert page.locator("[data-cell]").count() < 700


def test_an_evicted_trace_is_requested_again(browser: Browser) -> None:
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, Limits(max_traces=1))) as client:
        context = browser.new_context()
        page = context.new_page()
        open_view(page, f"{client.base_url}/#/walk")
        client.post("/api/traces", json={"text": "How are you?"}).raise_for_status()  # evicts the page's trace
        page.evaluate("location.hash = '#/walk?stage=encoder.embedded'")
        page.locator("[data-matrix='encoder.embedded']").wait_for()
        context.close()


def test_empty_and_error_states_are_shown(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    open_view(page, f"{address}/#/translate")
    page.get_by_label("Text to translate").fill("")
    expect(page.get_by_text("Enter a text above")).to_be_visible()
    page.route("**/api/traces", lambda route: route.abort())
    page.get_by_label("Text to translate").fill("How are you?")
    expect(page.get_by_role("alert")).to_contain_text("the server does not respond")
    page.unroute("**/api/traces")
    response = {"message": "too busy", "location": "", "hint": "try again"}
    page.route("**/api/models", lambda route: route.fulfill(status=503, body=json.dumps(response)))
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("too busy")
    context.close()


@pytest.mark.parametrize("view", ["map", "walk", "heads", "microscope", "intervene", "replay", "compare"])
def test_an_empty_text_leaves_nothing_old(page: Page, address: str, view: str) -> None:
    open_view(page, f"{address}/#/{view}")
    field = page.get_by_label("input text")
    field.fill("")
    expect(page.get_by_text("Enter a text above")).to_be_visible()
    expect(page.locator(".output-tokens button")).to_have_count(0)
    page.keyboard.type("How are you?")  # the field has kept the focus
    expect(page.locator(".output-tokens button").first).to_be_visible()


def test_a_click_in_the_microscope_selects_the_row_everywhere(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/microscope?attention=decoder.1.cross&head=2")
    page.locator("[data-matrix] [role=grid]").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    page.locator("[data-audit='decoder.1.cross.weights:2,2,0']").wait_for()
    expect(page.locator(".output-tokens [aria-pressed=true]")).to_have_text("खाना")
    expect(page.locator("h2", has_text="Attention from")).to_contain_text("आइसक्रीम")


def test_the_first_arrow_key_moves_to_the_second_token(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/heads")
    expect(page.locator(".output-tokens [aria-pressed=true]")).to_have_text("मुझे")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".output-tokens [aria-pressed=true]")).to_have_text("आइसक्रीम")


def test_interventions_are_announced_in_the_other_views(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/heads?interventions=ablate:decoder.1.cross:3")
    note = page.get_by_text("One intervention is set")
    expect(note).to_be_visible()
    page.get_by_role("button", name="clear").click()
    expect(note).to_have_count(0)
    assert "interventions" not in page.evaluate("new Promise(r => setTimeout(() => r(location.hash), 300))")


def test_any_address_opens_a_view_with_its_own_title(page: Page, address: str) -> None:
    for hash, title in (("%", "Map"), ("/heads", "Heads"), ("/translate", "Translate"), ("/nonsense?row=%", "Map")):
        page.goto(f"{address}/#{hash}")
        page.reload()
        expect(page).to_have_title(f"{title} · {GRAMMAR} · seq2see")
        expect(page.locator("main > *").first).to_be_visible()


def test_the_keyboard_reaches_the_content_and_the_words_of_the_output(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/translate")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    word = page.locator(".output").get_by_role("button", name="आइसक्रीम")
    word.focus()
    page.keyboard.press("Enter")
    expect(word).to_have_attribute("aria-pressed", "true")


def test_unknown_words_keep_their_spelling(page: Page, address: str) -> None:
    open_view(page, f"{address}/#/walk?text=The+weather")
    token = page.locator(".tokens li", has_text="weather")
    expect(token).to_contain_text("not in the vocabulary of this model")


def test_the_tour_is_done_by_keyboard_left_and_resumed(page: Page, address: str) -> None:
    def press(role: Any, name: str | re.Pattern[str]) -> None:
        page.get_by_role(role, name=name).focus()
        page.keyboard.press("Enter")

    open_view(page, address)
    press("link", "Take the tour")
    tour = page.get_by_role("region", name="tour")
    views = ("translate", "translate", "heads", "microscope", "intervene", "replay")
    for number, view in enumerate(views, 1):
        expect(tour).to_contain_text(f"{number} of 7")
        assert page.evaluate("location.hash").startswith(f"#/{view}?")
        if view == "microscope":
            page.locator("[data-audit]").wait_for()
        if view == "intervene":
            page.locator("[data-after]:not([data-after=''])").wait_for()
            expect(page.locator("[data-after] .changed").first).to_be_visible()
        if number == 3:
            press("button", "leave")
            expect(tour).to_have_count(0)
            press("link", "Tour")
            expect(tour).to_contain_text("3 of 7")
        press("link", re.compile("^next: "))
    expect(tour).to_contain_text("7 of 7 Your own model")
    press("button", "end the tour")
    expect(tour).to_have_count(0)


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
def test_the_map_shows_where_the_text_enters(browser: Browser, address: str, width: int, height: int) -> None:
    """On a large screen the whole figure is in the window; on a small one, its lower end."""
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    open_view(page, address)
    page.locator(".map-box .map-text").first.wait_for()
    visible = (
        "box => { const { top, bottom } = box.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; }"
    )
    page.wait_for_function(f"() => ({visible})(document.querySelector('[data-box=\"decoder.tokens\"]'))")
    if width > 390:
        assert page.locator(".map-box").evaluate_all(f"boxes => boxes.every({visible})")
        assert page.locator(".map-scroll").evaluate("map => map.scrollHeight <= map.clientHeight + 1")
        one_line = "text => text.offsetHeight < 2 * parseFloat(getComputedStyle(text).lineHeight)"
        assert page.locator(".map-opening h1, .map-opening p").evaluate_all(f"texts => texts.every({one_line})")
    assert page.get_by_role("link", name="Take the tour").evaluate(visible)
    context.close()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1280, 800)])
def test_a_large_head_is_in_the_window_beside_legible_thumbnails(
    browser: Browser, address: str, width: int, height: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": height})
    open_view(page, f"{address}/#/heads")
    bottom = "picture => picture.getBoundingClientRect().bottom"
    assert page.locator("[data-large] [data-matrix]").evaluate(bottom) <= height
    if width == 1440:
        assert page.locator("[data-large] .lines svg").evaluate(bottom) <= height
    thumbnails = page.locator(".head-thumbnail canvas")
    expect(thumbnails).to_have_count(6 * 9)
    assert min(thumbnails.evaluate_all("all => all.map(each => each.clientWidth)")) >= 40
    page.mouse.wheel(0, 200)  # the large head stays beside the last thumbnails
    thumbnails.last.hover()
    expect(page.locator("[data-large='decoder.1.masked 7'] [data-matrix]")).to_be_in_viewport(ratio=0.99)
    page.close()


def test_a_model_without_snapshots_leads_to_one_that_has_them(page: Page) -> None:
    with serving(create_app({"en-fr": BUNDLED / "en-fr", GRAMMAR: GRAMMAR_MODEL})) as client:
        page.goto(f"{client.base_url}/#/replay")
        page.get_by_role("link", name=f"Replay the training of {GRAMMAR}").click()
        expect(page.get_by_text("All snapshots")).to_be_visible()
        expect(page.get_by_label("model", exact=True)).to_have_value(GRAMMAR)
        page.goto(f"{client.base_url}/#/intervene?tour=5")
        expect(page.get_by_role("region", name="tour")).to_contain_text("5 of 7")
        page.get_by_role("link", name="next: replay the training").click()
        expect(page.get_by_label("model", exact=True)).to_have_value(GRAMMAR)
        page.goto("about:blank")  # nothing is requested from a server that has ended


def test_the_map_names_one_source_of_the_training_data_and_counts_the_others(page: Page) -> None:
    with serving(create_app({"en-fr": BUNDLED / "en-fr"})) as client:
        page.goto(f"{client.base_url}/#/map")
        expect(page.get_by_text("trained on Tatoeba and 7 more")).to_be_visible()
        page.goto("about:blank")


def test_with_several_models_the_header_stays_in_order(browser: Browser) -> None:
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL, f"{GRAMMAR}-with-a-long-name": GRAMMAR_MODEL})) as client:
        page = browser.new_page()
        page.goto(f"{client.base_url}/#/translate?model={GRAMMAR}-with-a-long-name")
        page.locator("[data-output]:not([data-output=''])").wait_for()
        centers = "parts => parts.map(part => part.getBoundingClientRect()).map(({ y, height }) => y + height / 2)"
        for width in (1440, 1421, 1280, 1024, 390):
            page.set_viewport_size({"width": width, "height": 844})
            rows = page.locator(".header-bar > .brand, .header-bar > .chip, .header-bar > .header-tools")
            if width > 390:  # on a phone the model has a row of its own
                rows = rows.or_(page.get_by_label("model", exact=True))
            assert max(places := rows.evaluate_all(centers)) - min(places) < 4, width
        page.close()


def test_of_a_high_figure_the_lower_end_is_shown(page: Page, tmp_path: Path) -> None:
    save(tiny_model(["one two three"], replace(TINY, encoder_layers=24, decoder_layers=24)), tmp_path / "deep")
    with serving(create_app({"deep": tmp_path / "deep"})) as client:
        open_view(page, str(client.base_url))
        page.wait_for_load_state("networkidle")  # nothing is requested from a server that has ended
        scrolled = "map => [map.scrollTop, map.scrollHeight - map.clientHeight]"
        top, bottom = page.locator(".map-scroll").evaluate(scrolled)
        assert top > 100 and top == pytest.approx(bottom, abs=1)


def test_layers_are_numbered_as_in_python_everywhere(page: Page, address: str) -> None:
    open_view(page, address)
    expect(page.locator(".map-layer")).to_have_text(["encoder layer 0 (of 2)", "decoder layer 0 (of 2)"])
    expect(page.locator(".map-legend")).to_contain_text("counted from 0, as in Python: layer 1 is the second one")
    expect(page.locator(".map-legend .legend")).to_have_text(["negativepositive", "01"])
    page.keyboard.press("5")
    expect(page.locator(".heads-overview")).to_contain_text("counted from 0")
    page.goto(f"{address}/#/walk?stage=decoder.1.cross.scores")
    expect(page.locator(".stage h2")).to_have_text("decoder layer 1, cross-attention: scores")
    expect(page.get_by_label("part of the model")).to_have_value("decoder.1.cross")
    page.goto(f"{address}/#/microscope?attention=decoder.1.cross&head=1")
    expect(page.locator("main h2").first).to_have_text("decoder layer 1, cross-attention, head 1")
    expect(page.locator("[data-matrix='decoder.1.cross.weights head 1']")).to_be_visible()


def test_words_are_transliterated_where_they_are_read(page: Page, address: str) -> None:
    """The Latin letters are generated content: the text itself stays the model's."""
    latin = ["mujhē", "āisakrīma", "khānā", "pasaṁda", "hai"]
    for view, place in {
        "map": ".output-tokens", "translate": ".output", "heads": ".output-tokens", "intervene": "[data-before]",
        "replay": ".output:not(.placeholder)", "compare": "[data-side='0'] .accent", "space": ".output-tokens",
    }.items():  # fmt: skip
        open_view(page, f"{address}/#/{view}")
        words = page.locator(f"{place} rt")
        expect(words).to_have_count(5)
        assert words.evaluate_all("all => all.map(rt => rt.dataset.latin)") == latin, view
        assert page.locator(place).first.evaluate(
            "place => !/[a-zāī]{3,}/.test(place.textContent.replace('<end>', ''))"
        )
    for view, place in {
        "walk?stage=decoder.tokens": ".tokens",
        "microscope?attention=decoder.1.masked": ".lookup",
    }.items():
        open_view(page, f"{address}/#/{view}")
        expect(page.locator(f"{place} rt[data-latin='mujhē']")).to_have_count(1)
    open_view(page, f"{address}/#/heads?row=1")
    expect(page.locator(".lines text[lang=hi-Latn]")).to_have_text(latin)
    # The labels of a matrix have it in the line below.
    page.locator("[data-matrix] [role=grid]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout").first).to_contain_text("<start> ▸ मुझे (<start> ▸ mujhē) · I:")


def test_what_is_drawn_is_what_the_chips_say(page: Page, address: str, explanation: Explanation) -> None:
    open_view(page, f"{address}/#/heads?attention=decoder.1.cross&lines=1,3,5")
    chips = page.get_by_role("group", name="heads to draw")
    expect(chips.locator("[aria-pressed=true]")).to_have_text(["1", "3", "5"])
    expect(page.locator(".head-thumbnail[aria-pressed=true]")).to_have_count(3)
    large = page.locator("[data-large]")
    expect(large.get_by_role("heading")).to_have_text("decoder layer 1, cross-attention, heads 1, 3 and 5")
    cell = large.locator("[data-matrix='decoder.1.cross.weights mean of heads 1, 3 and 5'] [data-cell='1,3']")
    mean = explanation.trace["decoder.1.cross.weights", 0][[1, 3, 5], 1, 3].mean().item()
    assert parse_number(cell.inner_text().split(": ")[1]) == pytest.approx(mean, abs=1e-4)
    # One head is chosen elsewhere: the others are no longer drawn.
    page.locator("[data-head='decoder.1.cross 2']").click()
    page.mouse.move(2, 2)  # ends the preview
    expect(chips.locator("[aria-pressed=true]")).to_have_text(["2"])
    expect(page.locator(".head-thumbnail[aria-pressed=true]")).to_have_count(1)
    chips.get_by_role("button", name="mean").click()
    expect(chips.locator("[aria-pressed=true]")).to_have_text(["mean"])


def test_every_view_has_a_key_that_the_help_names(page: Page, address: str) -> None:
    open_view(page, address)
    page.keyboard.press("?")
    keys = page.locator(".view-keys span").all_inner_texts()
    page.keyboard.press("Escape")
    links = page.get_by_role("navigation", name="views").get_by_role("link").all_inner_texts()
    assert [name.split()[1] for name in keys] == links and links[1] == "Learn"
    for entry in keys[-2:]:
        key, name = entry.split()
        page.keyboard.press(key)
        expect(page).to_have_title(re.compile(f"^{name} "))


def test_the_map_names_the_model_and_plays_the_computation(page: Page, address: str) -> None:
    open_view(page, address)
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{GRAMMAR}: English → Hindi")
    expect(page.locator(".map-opening p")).to_have_text(
        "2+2 layers, 8 heads, a vocabulary of 1,901 tokens, trained on Built-in grammar"
    )
    step = page.get_by_role("button", name="one box on")
    lit = []
    for _ in range(8):
        step.click()
        lit.append(page.locator(".map-box.lit").get_attribute("data-box"))
    assert lit[:3] == ["encoder.tokens", "encoder.embedded", "encoder.input"] and "encoder.0.self.weights" in lit
    page.get_by_role("button", name="open decoder layer 1").click()
    page.get_by_role("link", name="cross-attention, decoder layer 1: open in Walk").click()
    page.locator("[data-stage='decoder.1.cross.weights']").wait_for()
    expect(page.get_by_role("navigation", name="where this is in the model").locator(".lit")).to_have_count(3)
