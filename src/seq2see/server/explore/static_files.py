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


NOT_BUILT = """<p>The server is running, but the page is not built. Build it with <code>make setup</code>, which needs Node.</p>
<p>All data is also available through <a href="/docs">the API</a>.</p>"""


def render_html(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>{body}"
    ).encode()


def render_docs(openapi: dict[str, Any]) -> bytes:
    """Renders the OpenAPI document as HTML."""
    info = openapi["info"]
    parts = [f'<p>{escape(info["description"])} <a href="/openapi.json">openapi.json</a></p>']
    for path, methods in openapi["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    parts.append("<h2>Schemas</h2>")
    parts += [_schema(name, schema) for name, schema in openapi["components"]["schemas"].items()]
    return render_html(info["title"], "".join(parts))


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = [
        (parameter["name"], _type(parameter["schema"]), parameter.get("description", ""))
        for parameter in operation.get("parameters", [])
    ]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        rows.append(("body", _type(content["schema"]), ""))
    for status, response in operation["responses"].items():
        types = [_type(content["schema"]) for content in response.get("content", {}).values() if "schema" in content]
        rows.append((f"→ {status}", " or ".join(types), response["description"]))
    return (
        f'<section><h3><span class="m">{method}</span> <code>{escape(path)}</code></h3>'
        f"<p>{escape(operation.get('description', operation['summary']))}</p>{_table(rows)}</section>"
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    rows = [
        (key + ("" if key in schema.get("required", []) else "?"), _type(field), _describe(field))
        for key, field in schema.get("properties", {}).items()
    ]
    description = escape(schema.get("description", ""))
    return f'<section id="{escape(name)}"><h3>{escape(name)}</h3><p>{description}</p>{_table(rows)}</section>'


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = (f"<tr><th><code>{escape(name)}</code><td>{type}<td>{escape(text)}" for name, type, text in rows)
    return f"<table>{''.join(cells)}</table>"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(_type(choice) for choice in schema[union])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_type(schema['items'])}"
    if "enum" in schema or "const" in schema:
        return escape(", ".join(map(repr, schema.get("enum", [schema.get("const")]))))
    return escape(str(schema.get("type", "any")))


def _describe(field: dict[str, Any]) -> str:
    parts = [field.get("description", "")]
    bounds = {"minimum": "minimum", "maximum": "maximum", "maxLength": "maximum length", "maxItems": "maximum items"}
    parts += [f"{label} {field[key]}" for key, label in bounds.items() if key in field]
    if "default" in field and "$ref" not in field:
        parts.append(f"default {field['default']!r}")
    parts += [f"e.g. {example}" for example in field.get("examples", [])]
    return "; ".join(part for part in parts if part)
