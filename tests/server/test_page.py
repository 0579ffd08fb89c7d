"""The page in a real browser with the bundled model: every number it shows is the model's.

Uses Chromium through Playwright; skipped if Chromium or the built page (`make page`) is missing. Screenshots of each view in
both themes and widths are saved in $SEQ2SEE_SCREENSHOTS, if it is set.
"""

import gzip
import itertools
import re

import pytest
from playwright.sync_api import Page, expect

import seq2see
from seq2see.inspect.explain import Explanation
from seq2see.server.explore import PAGE_DIRECTORY
from tests.browser import NEEDS_BROWSER, TEXT, open_view, parse_number, walk_through
from tests.models import GRAMMAR_MODEL

pytestmark = NEEDS_BROWSER


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
