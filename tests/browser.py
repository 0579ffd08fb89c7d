"""Chromium for the tests of the page; they are skipped if there is no browser or no built page."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from seq2see.server.explore import PAGE_DIRECTORY
from tests.models import GRAMMAR_MODEL

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDS_BROWSER = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(not (PAGE_DIRECTORY / "index.html").is_file(), reason='the page is not built: run "make page"'),
    pytest.mark.skipif(not (GRAMMAR_MODEL / "config.toml").is_file(), reason="the bundled model is missing"),
]
CHROMIUM_OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

MAX_WAIT = 180_000  # milliseconds; only a mistake takes so long, not a slow machine
expect.set_options(timeout=MAX_WAIT)


def checked_page(browser: Browser, reduced_motion: bool = False) -> Iterator[Page]:
    """Yields a page; afterwards fails on any script error, blocked script or style, or request to another host."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, reduced_motion="reduce" if reduced_motion else "no-preference"
    )
    page = context.new_page()
    errors: list[str] = []
    local = ("http://127.0.0.1", "file://", "blob:", "data:")
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda r: None if r.url.startswith(local) else errors.append(r.url))
    yield page
    context.close()
    assert not errors, errors
