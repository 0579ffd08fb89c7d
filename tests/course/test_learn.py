"""Lessons over HTTP: results equal the library's, also for edited settings; invalid ones are rejected."""

import json
import math
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import seq2see
from seq2see.config import ModelConfig
from seq2see.course.lessons import LESSONS
from seq2see.course.lessons.similarity import DOCUMENT
from seq2see.course.lessons.training import before_each_step
from seq2see.server.explore.app import create_app
from seq2see.server.explore.lessons import LessonText, exercise_responses
from seq2see.storage.bundled import GRAMMAR
from seq2see.tensors.files import to_json
from seq2see.train.trainer import Trainer
from tests.course.lessons import SHORT, computed
from tests.explore import LANGUAGE_MODEL, TEXTS, error, post, serving
from tests.models import GRAMMAR_MODEL, save, tiny_model
from tests.waiting import HANG, wait_until

ENCODER = ModelConfig(shape="encoder", width=16, heads=2, encoder_layers=1, feed_forward=16, dropout=0.0)
EDITED = {**DOCUMENT, "apple": (5, 2, 0)}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    folder = tmp_path_factory.mktemp("models")
    language_model, encoder = (save(tiny_model(TEXTS, c), folder / c.shape) for c in (LANGUAGE_MODEL, ENCODER))
    return create_app({GRAMMAR: GRAMMAR_MODEL, "language-model": language_model, "encoder": encoder})


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[httpx.Client]:
    with serving(app) as client:
        client.timeout = httpx.Timeout(180)
        yield client


def run_lesson(client: httpx.Client, lesson: str, **settings: object) -> dict[str, Any]:
    return post(client, f"/api/lessons/{lesson}", settings=settings)


def close(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal up to rounding, which depends on the number of threads."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        timed = {key for key in one if key.endswith("_seconds")}
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one.keys() - timed)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=2e-4, abs_tol=2e-6)
    return bool(one == other)


def test_lessons_are_listed_in_order_and_take_no_file_names(client: httpx.Client) -> None:
    lessons = client.get("/api/lessons").json()["lessons"]
    assert [lesson["name"] for lesson in lessons] == list(LESSONS)
    for lesson in lessons:
        defaults = LESSONS[lesson["name"]].defaults()
        names = [setting["name"] for setting in lesson["settings"]]
        assert names == [name for name in defaults if name not in ("model", "vectors", "wic")]
        assert lesson["uses_model"] == ("model" in defaults)
        for setting in lesson["settings"]:
            assert setting["default"] == to_json(
                defaults[setting["name"]] or ("" if setting["name"] == "target" else 0)
            )
    kinds = {setting["kind"] for lesson in lessons for setting in lesson["settings"]}
    assert kinds == {
        "text",
        "texts",
        "rows",
        "number",
        "numbers",
        "matrix",
        "values",
        "table",
        "matrices",
        "groups",
        "questions",
    }
    trained = ["directions", "saturation", "order", "cross", "patches", "learning", "leak"]
    assert [lesson["name"] for lesson in lessons if lesson["training_seconds"]] == trained
    assert all(lesson["question"] and lesson["group"] for lesson in lessons)


# Except `saturation`, which trains like `order`, but longer.
@pytest.mark.parametrize("name", [name for name in LESSONS if name != "saturation"])
def test_a_lesson_returns_the_librarys_result(client: httpx.Client, name: str) -> None:
    settings: Mapping[str, Any] = SHORT.get(name, {})
    lesson, response = LESSONS[name], run_lesson(client, name, **settings)
    server_model = {"model": seq2see.load(GRAMMAR_MODEL)}
    result = computed(name) if lesson.model == GRAMMAR else lesson.compute({**settings, **server_model})
    assert close(response["result"], json.loads(json.dumps(to_json(result))))
    text = LessonText.model_validate(lesson.describe(result)).model_dump()
    assert [type(part) for part in response["text"]["body"]] == [type(part) for part in text["body"]]
    assert [section["title"] for section in response["text"]["more"]] == [section["title"] for section in text["more"]]
    expected = [exercise.model_dump() for exercise in exercise_responses(lesson)]
    assert close(response["exercises"], json.loads(json.dumps(expected)))
    assert all(response["settings"][setting] == value for setting, value in settings.items())
    assert response["model"] == (GRAMMAR if "model" in lesson.defaults() else None)


def test_an_edited_table_changes_the_result_as_object_or_as_pairs(client: httpx.Client) -> None:
    expected = to_json(LESSONS["context"].compute({"table": EDITED}))
    as_object = run_lesson(client, "context", table=EDITED)["result"]
    as_pairs = run_lesson(client, "context", table=[[word, numbers] for word, numbers in EDITED.items()])["result"]
    assert close(as_object, expected) and close(as_pairs, expected)
    assert not close(as_object, to_json(LESSONS["context"].compute({})))


def test_masked_scores_are_null_and_formatted_and_weights_are_shaded(client: httpx.Client) -> None:
    text = run_lesson(client, "mask")["text"]
    assert [table["shaded"] for table in text["picture"]] == [True, True]
    mask = text["more"][0]["parts"][0]
    assert mask["formatted"][0][1:3] == ["0", "−∞"] and mask["rows"][0][2] is None


INVALID: list[tuple[str, Any, str]] = [
    ("directions", {"vectors": "/etc/passwd"}, 'no setting "vectors"'),
    ("senses", {"wic": "/etc"}, 'no setting "wic"'),
    ("mask", {"model": "/etc"}, 'no setting "model"'),
    ("context", {"tabel": {}}, 'no setting "tabel"'),
    ("context", {"table": {}}, "got 0"),
    ("context", {"table": "apple"}, "expected a list"),
    ("context", {"table": {"apple": "red"}}, "expected a list"),
    ("context", {"table": {"apple": [1, "two", 3]}}, 'expected a number, got "two"'),
    ("context", {"table": {"apple": [1, math.nan, 3]}}, "expected a number, got nan"),
    ("context", {"table": {"apple": [1, math.inf, 3]}}, "expected a number, got inf"),
    ("context", {"table": {"apple": [1, True, 3]}}, "expected a number, got True"),
    ("context", {"table": {"apple": [1e300, 0, 0]}}, "1e+300 is not between"),
    ("context", {"table": {"apple": [[[[[[1]]]]]]}}, "expected a number"),
    ("context", {"table": json.loads("[" * 500 + "]" * 500)}, "expected a pair of name and value"),
    ("context", {"table": {f"w{i}": [1, 2, 3] for i in range(10_000)}}, "got 10,000"),
    ("context", {"table": {**DOCUMENT, "apple": [1, 2]}}, "rows of 2, 3 numbers"),
    ("context", {"table": [["apple", [1, 2]], ["apple", [1, 2]]]}, 'duplicate name "apple"'),
    ("context", {"table": [["apple", [1, 2], 3]]}, "expected a pair of name and value"),
    ("context", {"table": {" ": [1, 2, 3]}}, "the text is empty"),
    ("context", {"sentences": ["an apple tree"]}, 'no row for "tree"'),
    ("context", {"sentences": [7]}, "expected a text, got 7"),
    ("context", {"sentences": ["apple " * 100]}, "600 characters"),
    ("context", {"bank_weights": {"money bank": [[1, 0, 0]]}}, "1 × 3, but it has 2 words"),
    ("qkv", {"query_weights": [[1, 2], [3]]}, "rows of 1, 2 numbers"),
    ("qkv", {"query_weights": [[1, 2]]}, "W_Q has 1 rows"),
    ("lookup", {"temperatures": [0]}, "0 is not between 0.01 and 1000"),
    ("lookup", {"query": {"$ne": 1}}, "expected a text"),
    ("temperature", {"temperatures": [1e-300]}, "1e-300 is not between"),
    ("window", {"messages": [["user"]]}, "expected 2 items"),
    ("window", {"messages": [["nobody", "hello"]]}, 'unknown chat role "nobody"'),
    ("mask", {"weights": [[1, 2]]}, "as many rows as columns"),
    ("heads", {"perspectives": {"sport": [1]}}, "has 1 numbers, but a word has 3"),
    ("heads", {"questions": {"The man saw it.": ["it"]}}, "expected 2 items"),
    ("heads", {"questions": {"The man saw it.": ["she", ["man"]]}}, '"she" is not in'),
    ("senses", {"senses": {"bank": ["No such word here."]}}, "bank"),
    ("scaling", {"samples": 10**9}, "1000000000 is not between 2 and 4000"),
    ("scaling", {"dimensions": [10**6]}, "1000000 is not between 1 and 512"),
    ("scaling", {"dimensions": [2.5]}, "expected an integer"),
    ("words", {"sentences": 10**7}, "10000000 is not between 20 and 2000"),
    ("words", {"shares": [0.5] * 9}, "expected 1 to 5 items, got 9"),
    ("positions", {"length": 10**6}, "1000000 is not between 1 and 200"),
    ("positions", {"width": 5}, "even"),
    ("saturation", {"steps": 10**6}, "1000000 is not between 10 and 200"),
    ("order", {"steps": -1}, "-1 is not between 10 and 200"),
    ("leak", {"seed": -1}, "-1 is not between 0"),
    ("directions", {"sentences": 10**9}, "1000000000 is not between"),
    ("directions", {"pairs": [["one", "two", "three"]]}, "expected 2 items"),
    ("mask", {"layer": 9}, "layer 9"),
]


@pytest.mark.parametrize(("lesson", "settings", "message"), INVALID)
def test_invalid_settings_are_rejected(client: httpx.Client, lesson: str, settings: Any, message: str) -> None:
    body = json.dumps({"settings": settings}).encode()  # with NaN and Infinity, which httpx does not write
    response = client.post(f"/api/lessons/{lesson}", content=body, headers={"content-type": "application/json"})
    assert message in error(response, 422)["message"]


def test_an_error_names_its_location(client: httpx.Client) -> None:
    response = client.post("/api/lessons/context", json={"settings": {"table": {"an": [1, 2], "apple": [1, "x"]}}})
    assert error(response, 422)["location"] == "settings.table.apple.1"
    assert "context" in error(client.post("/api/lessons/contxt", json={}), 404)["hint"]
    error(client.post("/api/lessons/context", content=b'{"settings": {"names": ["\\ud800"]}}'), 422)
    error(client.post("/api/lessons/mask", json={"model": "unknown"}), 404)


@pytest.mark.parametrize("model", ["language-model", "encoder"])
def test_lessons_with_other_models_succeed_or_return_an_error(client: httpx.Client, model: str) -> None:
    statuses = {}
    for name, lesson in LESSONS.items():
        if "model" in lesson.defaults() and not lesson.training_seconds:
            response = client.post(f"/api/lessons/{name}", json={"model": model})
            statuses[name] = response.status_code
            assert response.status_code == 200 or error(response, 422)
    assert 200 in statuses.values(), statuses


def test_a_training_stops_when_the_client_disconnects_and_only_one_runs(
    app: FastAPI, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, steps, original = app.state.api.state.lesson_runner.training, [], Trainer.step

    def count_steps(trainer: Trainer) -> None:
        steps.append(trainer)
        original(trainer)

    monkeypatch.setattr(Trainer, "step", count_steps)
    body = b'{"settings": {"steps": 200}}'
    lines = ["POST /api/lessons/saturation HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    with socket.create_connection(("127.0.0.1", client.base_url.port or 80)) as connection:
        connection.sendall(head.encode() + body)
        wait_until(lock.locked)  # until it has started
        busy = client.post("/api/lessons/cross", json={"settings": {"steps": 10}})
        assert "another lesson" in error(busy, 503)["message"]
    assert lock.acquire(timeout=HANG)
    lock.release()
    assert len(steps) < 200  # it trains several models for so many steps


def test_a_training_can_be_stopped_at_any_step() -> None:
    steps = []

    def stop_at_third_step() -> None:
        steps.append(1)
        if len(steps) == 3:
            raise TimeoutError

    token = before_each_step.set(stop_at_third_step)
    try:
        with pytest.raises(TimeoutError):
            LESSONS["order"].compute({})
        steps.clear()
        with pytest.raises(TimeoutError):
            LESSONS["directions"].compute({"sentences": 1000})
    finally:
        before_each_step.reset(token)


def test_the_server_starts_without_torch() -> None:
    code = "import sys, seq2see.server.explore.app; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
