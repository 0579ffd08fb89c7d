"""A real browser on the page, for the tests that look at it; they are skipped where there is none, or no page."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from seq2see.directory import BUNDLED
from seq2see.serve.static_files import FOLDER

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.skipif(not (FOLDER / "index.html").is_file(), reason='the page is not built: "make page"'),
    pytest.mark.skipif(not (BUNDLED / "config.toml").is_file(), reason="the bundled model is not here"),
]
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def watched(browser: Browser, still: bool = False) -> Iterator[Page]:
    """A page on which nothing may go wrong unnoticed: no error, no refused script or style, no request to elsewhere."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, reduced_motion="reduce" if still else "no-preference"
    )
    page = context.new_page()
    complaints: list[str] = []
    local = ("http://127.0.0.1", "file://", "blob:", "data:")
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("request", lambda r: None if r.url.startswith(local) else complaints.append(r.url))
    yield page
    context.close()
    assert not complaints, complaints
