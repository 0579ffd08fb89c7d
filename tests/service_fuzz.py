"""Requests to `seq2see serve` made from its schema and against it (schemathesis): no answer may be a server error.

    python -m tests.service_fuzz --requests 10000

prints how often each status was answered.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from seq2see.server.service.keys import new_key
from tests.services import RunningService, running_service, save_models

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def fuzz(service: RunningService, key: str, cases: int, round: int = 0) -> Counter[int]:
    """Sends requests that follow and that break the schema to every endpoint; returns how often each status was answered."""
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    statuses: Counter[int] = Counter()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        strategies = [operation.as_strategy(mode) for mode in GenerationMode]

        @seed(round)
        @settings(max_examples=cases, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=st.one_of(strategies))
        def check(case: "schemathesis.Case[Any]") -> None:
            if isinstance(case.body, dict) and statuses.total() % 2:  # otherwise nearly all would name no model
                known = {"model": "encoder" if "embeddings" in case.path else "chat", "source": "en", "target": "hi"}
                case.body.update({name: value for name, value in known.items() if name in case.body})
            response = case.call(headers={"authorization": f"Bearer {key}"})
            statuses[response.status_code] += 1
            case.validate_response(response, checks=CHECKS)

        check()
    return statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    statuses: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key, entry = new_key("fuzz")
        (folder / "keys.toml").write_text(entry)
        arguments = ("--key-file", str(folder / "keys.toml"), "--explain", "--timeout", "30")
        with running_service(folder / "log", save_models(folder), *arguments) as service:
            round = 0
            while statuses.total() < options.requests:
                statuses += fuzz(service, key, 100, round)
                round += 1
                print(f"{statuses.total():,} requests: {dict(sorted(statuses.items()))}", flush=True)


if __name__ == "__main__":
    main()
