"""Pictures and sounds in the API and in the page: what is sent is traced, painted and audited."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from seq2see.api import load
from seq2see.config import ModelConfig
from seq2see.server.explore.app import create_app
from seq2see.server.explore.options import Limits
from seq2see.server.explore.static_export import embedded_data, export_html
from tests.browser import NEEDS_BROWSER, checked_page
from tests.exchange.test_whisper import write_whisper
from tests.explore import serving
from tests.formats.media import PICTURES, SOUNDS, tone, write_wav
from tests.models import save, tiny_model

MODELS: dict[str, ModelConfig] = {"pictures": replace(PICTURES, max_source_positions=600), "sounds": SOUNDS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    for name, config in MODELS.items():
        save(tiny_model(["one two three"], config), folder / name)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 22)).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    write_wav(folder / "a.wav", tone(440, 0.5))
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    limits = Limits(max_upload_bytes=1 << 20, max_media_bytes=40_000, max_media_tokens=100)
    with serving(create_app({name: folder / name for name in MODELS}, limits)) as client:
        yield client


def send(client: httpx.Client, data: bytes) -> str:
    response = client.post("/api/media", content=data, headers={"content-type": "application/octet-stream"})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


@pytest.mark.parametrize(("kind", "name"), [("pictures", "a.png"), ("sounds", "a.wav")])
def test_a_trace_of_an_uploaded_file_is_that_of_the_file(
    client: httpx.Client, folder: Path, kind: str, name: str
) -> None:
    id = send(client, (folder / name).read_bytes())
    assert client.get(f"/api/media/{id}").content == (folder / name).read_bytes()
    trace = client.post("/api/traces", json={"model": kind, "text": id}).json()
    expected = load(folder / kind).explain(str(folder / name))
    assert (trace["text"], trace["output"]) == (id, expected.output)
    tensor = "encoder.patches" if kind == "pictures" else "encoder.mel_frames"
    rows = np.frombuffer(client.get(f"/api/traces/{trace['id']}/tensors/{tensor}").content, "<f4")
    np.testing.assert_array_equal(rows, expected.trace[tensor, 0].float().numpy().ravel())
    lines = client.post("/api/generate", json={"model": kind, "prompt": id, "temperature": 0.0}).text.splitlines()
    assert json.loads(lines[-1])["done"]
    ablation = client.get(f"/api/traces/{trace['id']}/head-ablation/decoder.0.cross")
    assert ablation.status_code == 200  # runs the model again, without the file


def test_wrong_files_are_refused(client: httpx.Client, folder: Path) -> None:
    def error(model: str, text: str, path: str = "/api/traces") -> tuple[int, str]:
        response = client.post(path, json={"model": model, "text": text})
        return response.status_code, response.json()["message"]

    png, wav = (send(client, (folder / name).read_bytes()) for name in ("a.png", "a.wav"))
    assert error("pictures", "/etc/passwd") == (404, 'unknown picture or sound "/etc/passwd"')
    assert error("pictures", str(folder / "a.png"))[0] == 404
    assert error("sounds", png) == (422, "the file is not a sound that can be read: Format not recognised")
    status, message = error("pictures", wav)
    assert (status, message[:42]) == (422, "the file is not a picture that can be read")
    Image.new("L", (4 * 51, 8)).save(folder / "wide.png")
    assert (
        error("pictures", send(client, (folder / "wide.png").read_bytes()))[1] == "102 tokens exceed the maximum of 100"
    )
    assert error("pictures", png, "/api/translate") == (422, '"pictures" reads pictures, not text')
    assert client.post("/api/media", content=b"").json()["message"] == "the file is empty"
    assert client.post("/api/media", content=bytes((1 << 20) + 1)).status_code == 413
    assert client.post("/api/traces", content=bytes(300 << 10)).status_code == 413  # others stay small
    for i in range(3):  # each is larger than half of what is stored
        send(client, bytes([i]) * 30_000)
    assert error("pictures", png)[0] == 404


def test_a_page_of_one_sound_carries_it(folder: Path) -> None:
    model = load(folder / "sounds")
    data = embedded_data(model.explain(str(folder / "a.wav")), "sounds", [])
    assert base64.b64decode(data.media) == (folder / "a.wav").read_bytes()
    assert "encoder.mel_frames" in data.tensors
    picture = embedded_data(load(folder / "pictures").explain(str(folder / "a.png")), "pictures", [])
    assert picture.media == ""
    assert "encoder.patches" in picture.tensors


# In a browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    yield from checked_page(browser, reduced_motion=True)


def canvas_pixels(page: Page) -> Any:
    """The canvas at the middle of every pixel of a picture of 24 × 8, as grey values."""
    script = """canvas => {
        const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
        const at = (x, y) => data[4 * (Math.floor((y + 0.5) / 8 * height) * width + Math.floor((x + 0.5) / 24 * width))];
        return Array.from({ length: 8 }, (_, y) => Array.from({ length: 24 }, (_, x) => at(x, y)));
    }"""
    return np.array(page.locator(".media-canvas").evaluate(script))


def in_browser(test: Any) -> Any:
    for mark in NEEDS_BROWSER:
        test = mark(test)
    return test


@in_browser
def test_a_picture_is_painted_and_lit_by_attention(page: Page, client: httpx.Client, folder: Path) -> None:
    page.goto(f"{client.base_url}/#/translate?model=pictures")
    expect(page.get_by_text("Choose a file above.")).to_be_visible()
    page.get_by_label("picture file").set_input_files(folder / "a.png")
    expect(page.locator(".media-canvas")).to_be_visible()
    expected = np.asarray(Image.open(folder / "a.png"))
    page.wait_for_function("() => document.querySelector('.media-canvas')?.width > 100")
    found = canvas_pixels(page)
    np.testing.assert_allclose(found[:, :22], expected, atol=1)

    e = load(folder / "pictures").explain(str(folder / "a.png"))
    tokens = page.get_by_label("written tokens").get_by_role("button")
    expect(tokens).to_have_text(list(e.target_tokens))
    tokens.first.hover()
    looked = page.locator("[data-looked='0']")
    weights = e.trace["decoder.1.cross.weights", 0].mean(0)[0]  # of the last layer
    expect(looked).to_contain_text(f"looks most at {e.source_tokens[int(weights.argmax())]}")
    assert np.abs(canvas_pixels(page).astype(int) - found).max() > 20  # the rest of the picture faded


@in_browser
@pytest.mark.parametrize(
    ("kind", "name", "stages"),
    [
        ("pictures", "a.png", ["encoder.patches", "encoder.embedded", "encoder.input"]),
        ("sounds", "a.wav", ["encoder.mel_frames", "encoder.convolved", "encoder.embedded"]),
    ],
)
def test_walk_goes_from_pixels_or_frames_to_vectors_and_audits_them(
    page: Page, client: httpx.Client, folder: Path, kind: str, name: str, stages: list[str]
) -> None:
    id = send(client, (folder / name).read_bytes())
    for stage in stages:
        for row in (0, 7):
            page.goto(f"{client.base_url}/#/walk?model={kind}&text={id}&stage={stage}&cell={stage}:{row},3")
            expect(page.locator(f"[data-stage='{stage}']")).to_be_visible()
            if stage in ("encoder.patches", "encoder.mel_frames"):
                expect(page.locator(".media-canvas")).to_be_visible()
            else:
                audit = page.locator(f"[data-audit='{stage}:{row},3']")
                expect(audit).to_be_visible()
                computed, model = (float(str(audit.get_attribute(f"data-{key}"))) for key in ("computed", "model"))
                assert computed == pytest.approx(model, abs=1e-5)


@in_browser
def test_a_sound_plays_with_its_attention_also_from_a_file(page: Page, folder: Path, tmp_path: Path) -> None:
    model = load(folder / "sounds")
    export_html(model.explain(str(folder / "a.wav")), tmp_path / "why.html", "sounds")
    page.goto(f"{(tmp_path / 'why.html').as_uri()}#/translate")
    expect(page.locator(".media-canvas")).to_be_visible()
    page.get_by_role("button", name="▶ play").click()
    expect(page.get_by_role("button", name="■ stop")).to_be_visible()
    expect(page.get_by_role("button", name="▶ play")).to_be_visible()  # half a second later


@in_browser
@pytest.mark.parametrize("view", ["map", "heads", "microscope", "intervene", "compare"])
def test_every_view_shows_a_picture(page: Page, client: httpx.Client, folder: Path, view: str) -> None:
    id = send(client, (folder / "a.png").read_bytes())
    page.goto(f"{client.base_url}/#/{view}?model=pictures&text={id}")
    expect(page.locator("main .state.error")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("encoder" if view != "compare" else "")


@in_browser
def test_the_thirty_seconds_of_a_whisper_open(page: Page, folder: Path) -> None:
    write_whisper(folder / "whisper", max_source_positions=1500, encoder_layers=1, decoder_layers=1)
    with serving(create_app({"whisper": folder / "whisper"})) as client:
        id = send(client, (folder / "a.wav").read_bytes())
        page.goto(f"{client.base_url}/#/translate?text={id}")
        expect(page.get_by_label("spoken")).to_have_value("en")
        expect(page.locator(".media-canvas")).to_be_visible()
        # Thumbnails are sampled, and of a mean one head after the other is loaded.
        sizes: list[int] = []
        page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
        for view, shown in (
            ("map", "[data-box='encoder.0.self.weights'] .thumbnail"),
            ("heads", "[data-matrix='encoder.0.self.weights mean'] canvas"),
            ("microscope", "[data-matrix='encoder.0.self.weights head 0'] canvas"),
        ):
            page.goto(f"{client.base_url}/#/{view}?text={id}&attention=encoder.0.self")
            page.locator(shown).wait_for()
            expect(page.locator("[role=alert]")).to_have_count(0)
        assert max(sizes) == 4 * 1500 * 1500  # one head
