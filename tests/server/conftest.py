"""The server of the tests of the API, with a translator and a language model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, Page

import seq2see
from seq2see.api import Model
from seq2see.inspect.explain import Explanation
from seq2see.server.explore.app import create_app
from seq2see.storage.directory import save_weights, snapshot_file
from seq2see.tensors.quantize import quantize_4_bits
from tests.browser import TEXT as PAGE_TEXT
from tests.browser import checked_page
from tests.explore import LANGUAGE_MODEL, TARGET, TEXT, TEXTS, post, serving
from tests.models import GRAMMAR_MODEL, save, tiny_model


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A translator with a training snapshot, and a language model."""
    directory = tmp_path_factory.mktemp("models")
    translator = save(tiny_model(TEXTS), directory / "translator")
    snapshot = {name: weight / 2 for name, weight in tiny_model(TEXTS).network.state_dict().items()}
    (translator / "snapshots").mkdir()
    save_weights(snapshot_file(translator, 8), quantize_4_bits(snapshot), None)
    return {
        "translator": translator,
        "language-model": save(tiny_model(TEXTS, LANGUAGE_MODEL), directory / "language-model"),
    }


@pytest.fixture(scope="module")
def app(directories: dict[str, Path]) -> FastAPI:
    return create_app(directories)


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[httpx.Client]:
    with serving(app) as client:
        yield client


@pytest.fixture(scope="module")
def model(directories: dict[str, Path]) -> Model:
    return seq2see.load(directories["translator"])


@pytest.fixture(scope="module")
def trace(client: httpx.Client) -> dict[str, Any]:
    return post(client, "/api/traces", text=TEXT, target=TARGET)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    yield from checked_page(browser, reduced_motion=True)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return seq2see.load(GRAMMAR_MODEL).explain(PAGE_TEXT)


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    yield from checked_page(browser)
