"""Models of other libraries in a real browser: languages to choose, a vocabulary too large to send, an encoder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

import seq2see
from seq2see.decode.search import Search
from seq2see.inspect.logit_lens import next_token
from seq2see.server.explore.app import create_app
from tests.browser import NEEDS_BROWSER, audit_all, checked_page, walk_through
from tests.explore import serving
from tests.foreign_models import byte_level, decoder, encoder, save, translator, unigram, word_piece

pytestmark = NEEDS_BROWSER
VOCABULARY = 250_000


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, languages = tmp_path_factory.mktemp("models"), unigram(("eng_Latn", "fra_Latn", "hin_Deva"))
    nllb = translator("M2M100ForConditionalGeneration", languages.get_vocab_size())
    special = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>"}
    return {
        "nllb": save(folder / "nllb", nllb, languages, **special),
        "large": save(folder / "large", decoder(vocab_size=VOCABULARY), byte_level(), eos_token="<|im_end|>"),
        "bert": save(folder / "bert", encoder(), word_piece(), cls_token="[CLS]", sep_token="[SEP]"),
    }


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[httpx.Client]:
    with serving(create_app(folders)) as client:
        yield client


@pytest.fixture
def tab(browser: Any) -> Iterator[Page]:
    yield from checked_page(browser)


def test_the_languages_of_a_translator_can_be_chosen(tab: Page, client: httpx.Client, folders: dict[str, Path]) -> None:
    model = seq2see.load(folders["nllb"])
    outputs = {
        (source, target): model.with_languages(source, target).explain("the model").output
        for source, target in (("eng_Latn", "fra_Latn"), ("eng_Latn", "hin_Deva"), ("hin_Deva", "fra_Latn"))
    }
    assert len(set(outputs.values())) > 1
    tab.goto(f"{client.base_url}/#/translate?model=nllb&text=the+model")

    def check(source: str, target: str) -> None:
        tab.wait_for_function(
            "text => document.querySelector('[data-output]')?.dataset.output === text", arg=outputs[source, target]
        )

    check("eng_Latn", "fra_Latn")  # the first that is not the source
    to = tab.locator(".select-field", has=tab.get_by_text("to", exact=True))
    to.locator("select").select_option(label="Hindi (hin_Deva)")
    check("eng_Latn", "hin_Deva")
    tab.goto(f"{client.base_url}/#/translate?model=nllb&text=the+model&sourceLanguage=hin_Deva&targetLanguage=fra_Latn")
    check("hin_Deva", "fra_Latn")
    tab.get_by_role("link", name="Walk").click()
    tab.get_by_role("list", name="output tokens").get_by_role("button", name="fra_Latn").wait_for()


@pytest.mark.parametrize(
    "view",
    [
        "map",
        "translate",
        "walk?stage=logits",
        "walk?stage=probabilities",
        "heads",
        "microscope",
        "intervene",
        "replay",
        "compare",
    ],
)
def test_no_view_fetches_a_row_of_a_large_vocabulary(tab: Page, client: httpx.Client, view: str) -> None:
    sizes: dict[str, int] = {}
    tab.on("requestfinished", lambda r: sizes.update({r.url: r.sizes()["responseBodySize"]}))
    tab.goto(f"{client.base_url}/#/{view}{'&' if '?' in view else '?'}model=large&text=The+model")
    tab.locator("main > *").first.wait_for()
    tab.wait_for_load_state("networkidle")
    expect(tab.locator("main [role=status]")).to_have_count(0)
    assert any("/api/traces" in url for url in sizes)
    large = {url: size for url, size in sizes.items() if "/api/" in url and size > VOCABULARY}  # a row has 4 bytes each
    assert not large


def test_the_next_token_of_a_large_vocabulary_follows_the_sliders(
    tab: Page, client: httpx.Client, folders: dict[str, Path]
) -> None:
    e = seq2see.load(folders["large"]).explain("The model")
    row = e.output_start
    for query, search in (
        ("", Search(temperature=1, seed=1)),
        ("&temperature=0.3&topK=4", Search(temperature=0.3, top_k=4, seed=1)),
        ("&temperature=2&topP=0.4&seed=7", Search(temperature=2, top_p=0.4, seed=7)),
    ):
        expected = next_token(e, row, search)
        tab.goto(f"{client.base_url}/#/translate?model=large&text=The+model&row={row}{query}")
        tab.reload()
        shown = tab.locator(".candidates[data-row]")
        shown.wait_for()
        values = shown.locator(".candidate").evaluate_all(
            "rows => rows.map(r => [+r.dataset.token, r.classList.contains('excluded')])"
        )
        assert values == [[one.id, one.probability == 0] for one in expected.candidates]
        others = 1 - sum(one.probability for one in expected.candidates)
        assert shown.locator("[data-other-tokens]").count() == (others >= 0.0005)
        assert tab.locator("p:has-text('With seed') b").inner_text() == expected.sampled


def test_the_inspector_recomputes_logits_and_probabilities_of_a_large_vocabulary(
    tab: Page, client: httpx.Client, folders: dict[str, Path]
) -> None:
    e = seq2see.load(folders["large"]).explain("The model")
    for name, value in (("logits", e.trace["logits", 0]), ("probabilities", e.logprobs.exp())):
        token = e.target_ids[2]
        tab.goto(f"{client.base_url}/#/walk?model=large&text=The+model&stage={name}&cell={name}:2,{token}")
        audit = tab.locator(f"[data-audit='{name}:2,{token}']")
        audit.wait_for()
        for computed in ("data-model", "data-computed"):
            assert float(audit.get_attribute(computed) or "nan") == pytest.approx(value[2, token].item(), rel=1e-4)


def test_every_value_of_an_encoder_is_shown_and_recomputed(
    tab: Page, client: httpx.Client, folders: dict[str, Path]
) -> None:
    e = seq2see.load(folders["bert"]).explain("The model")
    tab.goto(f"{client.base_url}/#/walk?model=bert&text=The+model")
    tab.locator(".stage-count").wait_for()
    assert walk_through(tab, e) == {"encoder.tokens"}
    audit_all(tab, "model=bert&text=The+model", e)


@pytest.mark.parametrize("view", ["map", "translate", "heads", "microscope", "intervene", "replay", "compare"])
def test_every_view_opens_an_encoder(tab: Page, client: httpx.Client, view: str) -> None:
    tab.goto(f"{client.base_url}/#/{view}?model=bert&text=The+model")
    tab.locator("main > *").first.wait_for()
    tab.wait_for_load_state("networkidle")
    expect(tab.locator("main [role=status]")).to_have_count(0)
    expect(tab.locator("main [role=alert]")).to_have_count(0)
