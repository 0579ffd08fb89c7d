"""With --json, standard output is one JSON document, also where a command fails, and error messages go to standard error."""

import json
import math
from typing import Any

import pytest

from seq2see.cli import output
from seq2see.storage.bundled import GRAMMAR
from tests.commands import run_command

DATA = ["--hyp", "missing", "--ref", "missing"]


def document(*arguments: str, code: int) -> Any:
    done = run_command(*arguments)
    assert done.returncode == code, done.stderr
    assert code == 0 or done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["model", GRAMMAR, "--json", "--toml"], 2, "--json cannot be combined with --toml"),
        (["model", "quick", "--json", "--trace"], 2, "--json cannot be combined with --trace"),
        (["model", "no-such-model", "--json"], 2, "neither a model directory nor a bundled model"),
        (["lesson", "norms", "--json", "--quiz"], 2, "leave out --quiz"),
        (["lesson", "--json"], 2, "give its name"),
        (["runs", "missing", "--json"], 1, "missing"),
        (["runs", "--json"], 2, "Missing argument"),
        (["runs", "x", "--json", "--no-such-option"], 2, "No such option"),
        (["explain", "tea", "--json", "--model", "missing"], 1, "missing"),
        (["data", "check", "--json"], 2, "missing data"),
        (["evaluate", "--json", *DATA], 1, "missing"),
        (["vectors", "nearest", "x", "--json", "--vectors", "missing"], 1, "missing"),
        (["generate", "--json", "--model", "missing"], 1, "missing"),
        (["export", "missing", "--to", "gguf", "--out", "x", "--json"], 1, "missing"),
    ],
)
def test_a_failure_is_also_json(arguments: list[str], code: int, message: str) -> None:
    found = document(*arguments, code=code)
    assert found.keys() == {"error"} and message in found["error"]


def test_without_json_a_failure_prints_nothing_to_standard_output() -> None:
    assert run_command("model", "no-such-model").stdout == ""


def test_a_success_is_one_document() -> None:
    assert document("model", GRAMMAR, "--json", code=0)["model"]
    assert document("lesson", "norms", "--json", code=0)["result"]


def test_nan_and_infinity_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"loss": math.nan, "score": [-math.inf, 1.5]})
    assert json.loads(capsys.readouterr().out) == {"loss": None, "score": [None, 1.5]}


def test_a_failure_after_the_document_does_not_print_a_second(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["seq2see", "runs", "--json"])
    output.print_json({"runs": []})
    output.print_json_error("the plot cannot be written")
    assert json.loads(capsys.readouterr().out) == {"runs": []}
    monkeypatch.setattr(output, "_has_printed_json", False)
    output.print_json_error("no such run")
    assert json.loads(capsys.readouterr().out) == {"error": "no such run"}
