"""What every test needs, before torch is first imported and after."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

# Some virtual machines announce Intel's AMX and then refuse its instructions, which kills the process in bf16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

torch.set_num_threads(1)  # the tests' models are tiny: a second thread would only wait for the first


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server with the bundled model."""
    from seq2see.serve.app import create
    from tests.test_serve import serving

    with serving(create({"bundled": None})) as client:
        client.get("/api/models").raise_for_status()
        yield str(client.base_url)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    from tests.browser import CHROMIUM, QUIET

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()
