"""What a browser gets: the built page, kept in memory, and a plain document of the API that needs no script.

The files are read once, before the first request, so that no path of a request ever touches the disk.
"""

import hashlib
from base64 import b64encode
from dataclasses import dataclass
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from seq2see.serve.middleware import POLICY

FOLDER = Path(__file__).parent / "page"

STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:.875em/1.5 ui-monospace,monospace}pre{padding:.75rem;overflow:auto;border:1px solid #8884}"
    "table{border-collapse:collapse;margin:.5rem 0}td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}"
    "section{border-top:1px solid #8884;margin-top:1.5rem}.m{font-weight:700;text-transform:uppercase}"
)
_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
PLAIN_POLICY = POLICY.replace("style-src 'self'", f"style-src 'sha256-{_HASH}'").replace(
    "script-src 'self'", "script-src 'none'"
)


@dataclass(frozen=True)
class File:
    data: bytes
    kind: str


def files(folder: Path = FOLDER) -> dict[str, File]:
    """The page's files by their paths; `/` is index.html."""
    if not (folder / "index.html").is_file():
        return {}
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            kind = guess_type(path.name)[0] or "application/octet-stream"
            found["/" + path.relative_to(folder).as_posix()] = File(path.read_bytes(), kind)
    return {"/": found["/index.html"], **found}


MISSING = """<p>The server runs, but the page is not built. <code>make setup</code> builds it, and needs Node for that.</p>
<p>Everything that it would show can be asked for: <a href="/docs">the API</a>.</p>"""


def plain(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>{body}"
    ).encode()


def document(openapi: dict[str, Any]) -> bytes:
    """The OpenAPI document for a person."""
    about = openapi["info"]
    parts = [f'<p>{escape(about["description"])} <a href="/openapi.json">openapi.json</a></p>']
    schemas = openapi["components"]["schemas"]
    for path, methods in openapi["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    parts.append("<h2>Schemas</h2>")
    parts += [_schema(name, schema) for name, schema in schemas.items()]
    return plain(about["title"], "".join(parts))


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = [
        (parameter["name"], _kind(parameter["schema"]), parameter.get("description", ""))
        for parameter in operation.get("parameters", [])
    ]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        rows.append(("body", _kind(content["schema"]), ""))
    for status, answer in operation["responses"].items():
        kinds = [_kind(content["schema"]) for content in answer.get("content", {}).values() if "schema" in content]
        rows.append((f"→ {status}", " or ".join(kinds), answer["description"]))
    return (
        f'<section><h3><span class="m">{method}</span> <code>{escape(path)}</code></h3>'
        f"<p>{escape(operation.get('description', operation['summary']))}</p>{_table(rows)}</section>"
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    rows = [
        (key + ("" if key in schema.get("required", []) else "?"), _kind(field), _told(field))
        for key, field in schema.get("properties", {}).items()
    ]
    told = escape(schema.get("description", ""))
    return f'<section id="{escape(name)}"><h3>{escape(name)}</h3><p>{told}</p>{_table(rows)}</section>'


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = (f"<tr><th><code>{escape(name)}</code><td>{kind}<td>{escape(told)}" for name, kind, told in rows)
    return f"<table>{''.join(cells)}</table>"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(_kind(each) for each in schema[choice])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_kind(schema['items'])}"
    if "enum" in schema or "const" in schema:
        return escape(", ".join(map(repr, schema.get("enum", [schema.get("const")]))))
    return escape(str(schema.get("type", "anything")))


def _told(field: dict[str, Any]) -> str:
    told = [field.get("description", "")]
    bounds = {"minimum": "from", "maximum": "to", "maxLength": "characters at most", "maxItems": "at most"}
    told += [f"{word} {field[key]}" for key, word in bounds.items() if key in field]
    if "default" in field:
        told.append(f"default {field['default']!r}")
    told += [f"e.g. {example}" for example in field.get("examples", [])]
    return "; ".join(part for part in told if part)
