"""What the server documents: the page, the OpenAPI document, which every response matches, and what the page is built from."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from seq2see.course.lessons import LESSONS
from seq2see.server.explore.app import create_app
from tests.explore import TEXT, TEXTS, error, get, serving
from web import sources

# Pages


def test_the_api_docs_are_complete_and_self_contained(client: httpx.Client) -> None:
    page = client.get("/docs").text
    paths = get(client, "/openapi.json")["paths"]
    assert len(paths) >= 15
    for path in paths:
        assert f"<code>{path}</code>" in page
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!/|#)', page)


def test_without_the_built_page_a_message_says_how_to_build_it(directories: dict[str, Path], tmp_path: Path) -> None:
    with serving(create_app(directories, page_directory=tmp_path)) as client:
        response = client.get("/")
        assert response.status_code == 200
        assert "make setup" in response.text
        assert 'href="/docs"' in response.text


def test_only_the_files_of_the_page_are_served_from_memory(directories: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<h1>page</h1>")
    (page / "assets" / "page.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    app = create_app(directories, page_directory=page)
    shutil.rmtree(page)
    with serving(app) as client:
        assert client.get("/").text == "<h1>page</h1>"
        script = client.get("/assets/page.js")
        assert (script.text, script.headers["content-type"].partition(";")[0]) == ("1", "text/javascript")
        for path in (
            "/../secret.txt",
            "/..%2fsecret.txt",
            "/assets/..%2f..%2fsecret.txt",
            f"/{tmp_path}/secret.txt",
            "/%00",
        ):
            error(client.get(path), 404)


# The OpenAPI document

PATH_PARAMETERS = {
    "model": "translator",
    "weight": "embedding.weight",
    "name": "encoder.vectors",
    "stack": "both",
    "attention": "decoder.1.cross",
    "lesson": "context",
}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


BODIES = {
    "/api/translate": {"text": TEXT},
    "/api/generate": {"prompt": TEXT},
    "/api/traces": {"text": TEXT},
    "/api/contextual-embeddings": {"word": "dog", "sentences": TEXTS[:2]},
    "/api/space": {"stack": "encoder", "words": "cat − dog"},
    "/api/lessons/{lesson}": {"settings": {"names": ["a", "b"]}},
}


def test_every_response_matches_the_openapi_document(client: httpx.Client, trace: dict[str, Any]) -> None:
    schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    media = client.post("/api/media", content=b"a").json()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        id = (media if operation.path.startswith("/api/media") else trace)["id"]
        known = {name: PATH_PARAMETERS.get(name, id) for name in re.findall(r"{(\w+)}", operation.path)}
        row = {"row": 0} if operation.path.endswith(("logit-attribution", "alternatives", "next-token")) else {}
        place = {"stack": "encoder", "position": 0} if operation.path.endswith("nearest-embeddings") else {}
        if operation.path.startswith("/api/training"):  # disabled here; see test_explore_training.py
            continue
        valid = operation.Case(path_parameters=known, query=row | place, **_body(operation.path))
        response = valid.call()
        valid.validate_response(response, checks=CHECKS)
        assert response.status_code in (200, 201), response.text
        strategies = [operation.as_strategy(mode) for mode in GenerationMode]
        strategies.append(operation.as_strategy(path_parameters=known))

        @settings(
            max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
        )
        @given(case=st.one_of(strategies))
        def check(case: schemathesis.Case[Any]) -> None:
            case.validate_response(case.call(), checks=CHECKS)

        check()


def _body(path: str) -> dict[str, Any]:
    if path == "/api/media":
        return {"body": b"a", "media_type": "application/octet-stream"}
    return {"body": BODIES[path], "media_type": "application/json"} if path in BODIES else {}


# The build of the page


def test_every_code_excerpt_is_found_however_it_is_formatted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(excerpt["line"] and "\n" not in excerpt["line"] for excerpt in sources.code_excerpts().values())
    (tmp_path / "code.py").write_text("def f(x):\n    y = g(\n        'a', x,\n    )\n    return g(x)\n")
    monkeypatch.setattr(sources, "SOURCE_DIRECTORY", tmp_path)
    assert sources.find_statement("code.py", 'g("a",x)') == "y = g('a', x)"
    assert sources.find_statement("code.py", "return g(x)") == "return g(x)"
    with pytest.raises(ValueError, match="2 statements"):
        sources.find_statement("code.py", "g(")


def test_the_schemas_for_the_page_are_complete() -> None:
    schemas = sources.schemas()
    assert set(schemas["LessonResults"]["properties"]) == set(LESSONS)
    assert {"EmbeddedData", "Trace", "TraceRequest", "ModelConfig"} <= set(schemas)
    assert set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schemas))) <= set(schemas)
