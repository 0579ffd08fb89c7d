"""The built web page, held in memory, and an HTML version of the API documentation that needs no scripts.

Files are read once, before the first request, so that no request path ever reaches the file system.
"""

import hashlib
from base64 import b64encode
from dataclasses import dataclass
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from jinja2 import Environment

from seq2see.server.explore import PAGE_DIRECTORY
from seq2see.server.http.security import CONTENT_POLICY

STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:.875em/1.5 ui-monospace,monospace}pre{padding:.75rem;overflow:auto;border:1px solid #8884}"
    "table{border-collapse:collapse;margin:.5rem 0}td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}"
    "section{border-top:1px solid #8884;margin-top:1.5rem}.m{font-weight:700;text-transform:uppercase}"
)
_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HTML_POLICY = CONTENT_POLICY.replace("style-src 'self'", f"style-src 'sha256-{_HASH}'").replace(
    "script-src 'self'", "script-src 'none'"
)
NOT_BUILT = """<p>The server is running, but the page is not built. Build it with <code>make setup</code>, which needs Node.</p>
<p>All data is also available through <a href="/docs">the API</a>.</p>"""


@dataclass(frozen=True)
class StaticFile:
    data: bytes
    media_type: str


def load_files(directory: Path = PAGE_DIRECTORY) -> dict[str, StaticFile]:
    """Returns the page's files by URL path; `/` is index.html. Empty if the page is not built."""
    if not (directory / "index.html").is_file():
        return {}
    files = {}
    for path in directory.rglob("*"):
        if path.is_file():
            media_type = guess_type(path.name)[0] or "application/octet-stream"
            files["/" + path.relative_to(directory).as_posix()] = StaticFile(path.read_bytes(), media_type)
    return {"/": files["/index.html"], **files}


def render_html(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>{body}"
    ).encode()


def render_docs(openapi: dict[str, Any]) -> bytes:
    """Renders the OpenAPI document as HTML."""
    template = Path(__file__).with_name("docs.html").read_text(encoding="utf-8")
    return render_html(openapi["info"]["title"], Environment(autoescape=True).from_string(template).render(openapi))
