"""Settings for all tests, which must precede the first import of torch, and shared fixtures."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Some virtual machines report Intel AMX but reject its instructions, which kills the process in bf16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import hypothesis
import pytest
import torch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from seq2see.config import DataConfig

torch.set_num_threads(1)  # the models of the tests are too small for a second thread to help
hypothesis.settings.register_profile("any machine", deadline=None)  # by default 200 ms per example
hypothesis.settings.load_profile("any machine")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported: our kernels then run on the CPU


# Each worker takes whole files in this order: the longest first, so that both end together.
LONGEST_FILES = [
    "train/test_interruptions.py",
    "train/test_parallel.py",
    "server/test_page.py",
    "server/test_explore_training.py",
    "server/service/test_service.py",
    "server/test_page_inspector.py",
    "server/test_explore_documents.py",
    "server/test_page_use.py",
    "train/test_train.py",
    "train/test_resume.py",
    "server/test_page_views.py",
    "server/test_explore_server.py",
    "formats/test_media_models.py",
    "tensors/test_files.py",
    "test_extending.py",
    "model/test_short_attention.py",
    "server/test_page_foreign.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> "DataConfig":
    """Short phrases that a small model learns in seconds."""
    from tests.corpora import write_phrases

    return write_phrases(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def hangup_signal() -> Iterator[None]:
    """SIGHUP as in a terminal, also for processes that a test starts: under nohup it is ignored."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The URL of a server with the bundled model of the grammar."""
    from seq2see.server.explore.app import create_app
    from seq2see.storage.bundled import GRAMMAR
    from tests.explore import serving
    from tests.models import GRAMMAR_MODEL

    with serving(create_app({GRAMMAR: GRAMMAR_MODEL})) as client:
        client.get("/api/models").raise_for_status()
        yield str(client.base_url)


def _set_default_timeout(browser: "Browser", name: str, milliseconds: int) -> None:
    """Gives all pages that a method of the browser opens another default timeout."""
    method = getattr(browser, name)

    def opened(**options: Any) -> Any:
        result = method(**options)
        result.set_default_timeout(milliseconds)
        return result

    setattr(browser, name, opened)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    from tests.browser import CHROMIUM, CHROMIUM_OPTIONS, MAX_WAIT

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)
        for name in ("new_context", "new_page"):
            _set_default_timeout(browser, name, MAX_WAIT)
        yield browser
        browser.close()
