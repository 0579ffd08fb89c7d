"""A running service, shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import seq2see
from seq2see.api import Model
from seq2see.storage.bundled import bundled_model
from tests.models import GRAMMAR_MODEL
from tests.services import GLOSSARY_KEY, KEY, LIMITED, RunningService, running_service, save_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def service(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "keys.toml").write_text(
        f'[[key]]\nname = "acme"\nsha256 = "{_sha256(KEY)}"\n'
        f'[[key]]\nname = "small"\nsha256 = "{_sha256(LIMITED)}"\nrequests_per_minute = 1\nmax_characters = 20\n'
        f'[[key]]\nname = "terms"\nsha256 = "{_sha256(GLOSSARY_KEY)}"\n'
        '[key.glossary.hi]\ntea = "दूध"\nriver = "नदी"\n[key.glossary.fre]\ntea = "lait"\n'
    )
    options = ("--key-file", str(folder / "keys.toml"), "--explain", "--cors", "https://example.org", "--timeout", "30")
    with running_service(folder / "log", {**models, "en-fr": bundled_model("en-fr")}, *options) as service:
        yield service


@pytest.fixture(scope="session")
def client(service: RunningService) -> Iterator[httpx.Client]:
    with service.client(KEY) as client:
        yield client


@pytest.fixture(scope="session")
def bundled() -> Model:
    return seq2see.load(GRAMMAR_MODEL)


@pytest.fixture(scope="session")
def chat_model(models: dict[str, Path]) -> Model:
    return seq2see.load(models["chat"])


def _sha256(key: str) -> str:
    from hashlib import sha256

    return sha256(key.encode()).hexdigest()
