"""The HTTP API: its answers are the library's own numbers, its bounds hold, and nobody gets in who should not."""

import json
import math
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
import torch
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from torch import Tensor

import seq2see
from seq2see.api import Model
from seq2see.config import ModelConfig
from seq2see.directory import save_weights, snapshot_file
from seq2see.inspect import attention_flow, logit_attribution, logit_lens, token_similarity
from seq2see.inspect.alignment import word_alignment
from seq2see.quantize import compact
from seq2see.serve import server
from seq2see.serve.app import create
from seq2see.serve.handlers import Answers
from seq2see.serve.middleware import HEADERS
from seq2see.serve.workers import Limits
from tests.models import TINY, save, tiny_model

TEXTS = ["the cat sees the dog", "the dog sees a bird", "a bird sings", "बिल्ली कुत्ते को देखती है"]
TEXT, TARGET = TEXTS[0], TEXTS[3]
WRITER = ModelConfig(shape="decoder", width=16, heads=2, decoder_layers=2, feed_forward=16, dropout=0.0, longest=64)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path | None]:
    """A translator with a snapshot from its training, and a language model."""
    folder = tmp_path_factory.mktemp("models")
    translator = save(tiny_model(TEXTS), folder / "translator")
    earlier = {name: weight / 2 for name, weight in tiny_model(TEXTS).network.state_dict().items()}
    (translator / "snapshots").mkdir()
    save_weights(snapshot_file(translator, 8), compact(earlier), None)
    return {"translator": translator, "writer": save(tiny_model(TEXTS, WRITER), folder / "writer")}


@contextmanager
def serving(app: FastAPI) -> Iterator[httpx.Client]:
    """A real server on a real port."""
    listener = server.bound(0)
    uvicorn_server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=uvicorn_server.run, args=([listener],))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
            yield client
    finally:
        uvicorn_server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def app(folders: dict[str, Path | None]) -> FastAPI:
    return create(folders)


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[httpx.Client]:
    with serving(app) as client:
        yield client


@pytest.fixture(scope="module")
def model(folders: dict[str, Path | None]) -> Model:
    return seq2see.load(folders["translator"])


@pytest.fixture(scope="module")
def traced(client: httpx.Client) -> dict[str, Any]:
    return post(client, "/api/traces", text=TEXT, target=TARGET)


def post(client: httpx.Client, path: str, **body: object) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code in (200, 201), answer.text
    found = answer.json()
    assert isinstance(found, dict)
    return found


def get(client: httpx.Client, path: str) -> dict[str, Any]:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert isinstance(found, dict)
    return found


def numbers(client: httpx.Client, path: str) -> NDArray[np.float32]:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    shape = [int(size) for size in answer.headers["x-shape"].split(",") if size]
    return np.frombuffer(answer.content, "<f4").reshape(shape)


def same(found: NDArray[np.float32], own: Tensor) -> bool:
    return np.array_equal(found, own.detach().float().numpy())


def problem(answer: httpx.Response, status: int) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    found = answer.json()
    assert set(found) == {"what", "where", "remedy"}
    assert all(text and "\n" not in text and "Traceback" not in text for text in found.values())
    assert isinstance(found, dict)
    return found


# The library's own numbers


def test_models_are_listed_with_what_they_are(client: httpx.Client, model: Model) -> None:
    translator, writer = get(client, "/api/models")["models"]
    assert (translator["name"], translator["kind"], translator["snapshots"]) == ("translator", "translator", [8])
    assert (writer["name"], writer["kind"], writer["snapshots"]) == ("writer", "language model", [])
    assert translator["parameters"] == sum(p.numel() for p in model.network.parameters())
    assert translator["vocabulary"]["target"] == len(model.tokenizers[1])
    assert translator["config"]["model"]["width"] == TINY.width


@pytest.mark.parametrize("name", ["translator", "writer"])
def test_every_tensor_of_a_trace_comes_bit_for_bit(
    client: httpx.Client, folders: dict[str, Path | None], name: str
) -> None:
    told = post(client, "/api/traces", model=name, text=TEXT)
    own = seq2see.load(folders[name]).explain(TEXT)
    assert told["output"] == own.output
    assert [token["text"] for token in told["reads"]] == list(own.reads)
    assert [token["id"] for token in told["sources"]] == list(own.source_ids)
    assert [token["logprob"] for token in told["writes"]] == own.chosen.tolist()
    assert [tensor["name"] for tensor in told["tensors"]] == own.trace.names()
    for tensor in told["tensors"]:
        found = numbers(client, f"/api/traces/{told['id']}/tensors/{tensor['name']}")
        assert list(found.shape) == tensor["shape"]
        assert len(tensor["axes"]) == found.ndim
        assert same(found, own.trace[tensor["name"], 0]), tensor["name"]
    assert get(client, f"/api/traces/{told['id']}") == told


def test_a_slice_is_numpys_and_minus_infinity_stays(client: httpx.Client, traced: dict[str, Any]) -> None:
    path = f"/api/traces/{traced['id']}/tensors/decoder.0.masked.masked"
    whole = numbers(client, path)
    assert whole[0, 0, 1] == -np.inf
    for index, own in (
        ("0,:,2:5", whole[0, :, 2:5]),
        ("-1", whole[-1]),
        ("1,2,0", whole[1, 2, 0]),
        (":,-3:", whole[:, -3:]),
    ):
        assert np.array_equal(numbers(client, f"{path}?index={index}"), own)
    assert numbers(client, f"{path}?index=0,9:3").size == 0
    for wrong in ("x", "0,,1", "0,1,2,3", "99", "1:2:3", "٣"):
        assert problem(client.get(path, params={"index": wrong}), 422)["where"] == "query.index"


def test_a_cell_can_be_worked_out_again_from_its_operands(client: httpx.Client, traced: dict[str, Any]) -> None:
    weights = get(client, "/api/models/translator/weights")["weights"]
    for place, reads in (("decoder.1.cross", "encoder.vectors"), ("encoder.0.self", "encoder.input")):
        for letter, quantity in (("K", "keys"), ("V", "values")):
            parts = {}
            for weight in weights:
                for symbol in weight["symbols"]:
                    if weight["place"] == place and symbol["symbol"] in (f"W_{letter}", f"b_{letter}"):
                        start, stop = symbol["start"], symbol["stop"]
                        path = f"/api/models/translator/weights/{weight['name']}?index={start}:{stop}"
                        parts[symbol["symbol"][0]] = numbers(client, path)
            x = numbers(client, f"/api/traces/{traced['id']}/tensors/{reads}")
            keys = numbers(client, f"/api/traces/{traced['id']}/tensors/{place}.{quantity}")
            again = x @ parts["W"].T + parts["b"]
            assert np.allclose(again.reshape(keys.shape), keys, atol=1e-5)


def test_every_weight_comes_bit_for_bit_also_of_a_snapshot(
    client: httpx.Client, folders: dict[str, Path | None], model: Model
) -> None:
    earlier = seq2see.load(folders["translator"], step=8)
    told = get(client, "/api/models/translator/weights")["weights"]
    assert [weight["name"] for weight in told] == list(model.network.state_dict())
    assert all(weight["symbols"] for weight in told)
    for name, own in model.network.state_dict().items():
        assert same(numbers(client, f"/api/models/translator/weights/{name}"), own)
    name = "embedding.weight"
    path = f"/api/models/translator/weights/{name}"
    assert same(numbers(client, f"{path}?step=8&index=3:5"), earlier.network.state_dict()[name][3:5])
    assert "8" in problem(client.get(f"{path}?step=9"), 404)["remedy"]


def test_translations_are_the_librarys(client: httpx.Client, model: Model) -> None:
    told = post(client, "/api/translate", text=TEXT, beam=3, nbest=2)["hypotheses"]
    (own,) = model.hypotheses([TEXT], beam=3, nbest=2)
    assert [one["text"] for one in told] == [model.text(one) for one in own]
    assert [one["score"] for one in told] == [one.score for one in own]
    assert [[token["logprob"] for token in one["tokens"]] for one in told] == [list(one.logprobs) for one in own]
    with model.without("decoder.1.cross", 0) as less:
        (best, *_) = less.hypotheses([TEXT])[0]
    head = [{"do": "without", "attention": "decoder.1.cross", "head": 0}]
    (told_best,) = post(client, "/api/translate", text=TEXT, interventions=head)["hypotheses"]
    assert [token["logprob"] for token in told_best["tokens"]] == list(best.logprobs) != list(own[0].logprobs)


@pytest.mark.parametrize("name", ["translator", "writer"])
def test_a_stream_is_the_librarys_text_in_pieces(
    client: httpx.Client, folders: dict[str, Path | None], name: str
) -> None:
    body = {"model": name, "prompt": "the cat", "tokens": 30, "temperature": 0.9, "top_k": 50, "top_p": 0.9, "seed": 3}
    with client.stream("POST", "/api/generate", json=body) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        *pieces, last = map(json.loads, answer.iter_lines())
    own = seq2see.load(folders[name]).stream("the cat", tokens=30, temperature=0.9, top_k=50, top_p=0.9, seed=3)
    assert [piece["text"] for piece in pieces] == list(own)
    assert last == {"done": True, "text": "".join(piece["text"] for piece in pieces)}


def test_readings_are_the_librarys(client: httpx.Client, model: Model, traced: dict[str, Any]) -> None:
    e, here = model.explain(TEXT, target=TARGET), f"/api/traces/{traced['id']}"
    alignment = get(client, f"{here}/alignment")
    assert [(one["source"], one["target"]) for one in alignment["links"]] == word_alignment(e).links
    assert get(client, f"{here}/entropies")["entropies"] == {
        n: h.tolist() for n, h in attention_flow.entropies(e).items()
    }
    for stack in ("encoder", "decoder", "both"):
        assert same(numbers(client, f"{here}/rollout/{stack}"), attention_flow.rollout(e, stack))
    worth = numbers(client, f"{here}/ablations/decoder.1.cross?index=0")
    assert same(worth, attention_flow.ablations(e, "decoder.1.cross")[0])
    near = numbers(client, f"{here}/similarities/encoder.vectors?measure=scaled")
    assert same(near, token_similarity.similarities(e, "encoder.vectors", "scaled"))
    told, own = get(client, f"{here}/lens?top=2"), logit_lens.lens(e, 2)
    assert told["places"] == list(own.places)
    assert [[one["rank"] for one in row] for row in told["readings"]] == [
        [one.rank for one in row] for row in own.readings
    ]
    assert told["readings"][1][2]["top"][0]["probability"] == own.readings[1][2].top[0][1]
    parts = get(client, f"{here}/contributions?row=-1")
    assert parts["logit"] == logit_attribution.contributions(e, -1).logit
    assert math.isclose(sum(part["logit"] for part in parts["parts"]), parts["logit"], abs_tol=1e-4)
    others = get(client, f"{here}/alternatives?row=1&top=4")["alternatives"]
    assert [one["id"] for one in others] == [one.id for one in logit_lens.alternatives(e, 1, 4)]
    senses, own_senses = (
        post(client, "/api/senses", word="dog", sentences=TEXTS[:2]),
        token_similarity.senses(model, "dog", TEXTS[:2]),
    )
    assert torch.equal(torch.tensor(senses["cosines"]), own_senses.cosines)


def test_a_snapshot_is_traced_as_it_was(client: httpx.Client, folders: dict[str, Path | None]) -> None:
    told = post(client, "/api/traces", text=TEXT, target=TARGET, step=8)
    own = seq2see.load(folders["translator"], step=8).explain(TEXT, target=TARGET)
    assert same(numbers(client, f"/api/traces/{told['id']}/tensors/logits"), own.trace["logits", 0])
    assert (
        get(client, f"/api/traces/{told['id']}/lens")["readings"][0][0]["rank"]
        == logit_lens.lens(own).readings[0][0].rank
    )


# Reaching in


def test_each_intervention_does_what_the_librarys_does(
    client: httpx.Client, model: Model, traced: dict[str, Any]
) -> None:
    vectors = model.explain(TEXT, target=TARGET).trace["encoder.vectors", 0]
    other = model.explain(TEXTS[1], target=TARGET).trace["encoder.vectors", 0]
    elsewhere = post(client, "/api/traces", text=TEXTS[1], target=TARGET)["id"]
    row = torch.zeros(100)
    row[1] = 1.0
    at = seq2see.Where(positions=[1, 2])
    patch = {"do": "patch", "name": "encoder.vectors", "positions": [1, 2]}
    for asked, own in (
        ({"do": "without", "attention": "decoder.1.cross", "head": 1}, seq2see.without("decoder.1.cross", 1)),
        ({"do": "attend", "attention": "decoder.0.cross", "weights": [0, 1]}, seq2see.attending("decoder.0.cross", row)),
        ({"do": "attend_uniformly", "attention": "encoder.*.self"}, seq2see.attending_uniformly("encoder.*.self")),
        ({"do": "scale", "name": "decoder.0.feed_forward.output", "factor": 0.5, "positions": [1, 2]},
         seq2see.scaling("decoder.0.feed_forward.output", 0.5, at)),
        ({**patch, "from": {"position": 4}}, seq2see.patching("encoder.vectors", vectors[4], at)),
        ({**patch, "from": {"position": 3, "trace": elsewhere}}, seq2see.patching("encoder.vectors", other[3], at)),
    ):  # fmt: skip
        told = post(client, "/api/traces", text=TEXT, target=TARGET, interventions=[asked])
        logits = model.explain(TEXT, target=TARGET, interventions=[own]).trace["logits", 0]
        found = numbers(client, f"/api/traces/{told['id']}/tensors/logits")
        assert same(found, logits), asked
        assert not same(numbers(client, f"/api/traces/{traced['id']}/tensors/logits"), logits)
        shifts = [change["p_kept"] - change["p_before"] for change in told["changes"]]
        assert len(shifts) == len(told["writes"])
        assert any(shifts)


@pytest.mark.parametrize(
    ("intervention", "place"),
    [
        ({"do": "without", "attention": "decoder.9.cross", "head": 0}, "0"),
        ({"do": "without", "attention": "decoder.1.cross", "head": 2}, "0.head"),
        ({"do": "without", "attention": "decoder.1.cross"}, "0.without.head"),
        ({"do": "scale", "name": "decoder.tokens", "factor": 2}, "0"),
        ({"do": "scale", "name": "logits", "factor": 2, "head": 0}, "0.head"),
        ({"do": "scale", "name": "decoder.0.masked.masked", "factor": 0}, ""),
        ({"do": "attend", "attention": "decoder.0.cross", "weights": [0.1] * 99}, "0.weights"),
        ({"do": "patch", "name": "encoder.vectors", "positions": [0], "from": {"position": 99}}, "0.from.position"),
        ({"do": "patch", "name": "encoder.0.self.weights", "positions": [0], "from": {"position": 0}}, "0.name"),
        ({"do": "explode"}, "0"),
        ({"do": "scale", "name": "logits", "factor": 2, "hed": 0}, "0.scale"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(client: httpx.Client, intervention: dict[str, Any], place: str) -> None:
    answer = client.post("/api/traces", json={"text": TEXT, "interventions": [intervention]})
    where = problem(answer, 422)["where"].removeprefix("body.")
    assert where == f"interventions.{place}".rstrip(".")


def test_an_unknown_key_or_name_is_answered_with_the_nearest(client: httpx.Client, traced: dict[str, Any]) -> None:
    answer = client.post("/api/translate", json={"text": TEXT, "beem": 4})
    assert 'did you mean "beam"?' in problem(answer, 422)["what"]
    answer = client.post("/api/translate", json={"text": TEXT, "model": "translater"})
    assert problem(answer, 404)["remedy"] == 'did you mean "translator"?'
    answer = client.get(f"/api/traces/{traced['id']}/tensors/decoder.1.cross.weight")
    assert problem(answer, 404)["remedy"] == 'did you mean "decoder.1.cross.weights"?'
    assert "only a model of shape encoder-decoder" in problem(
        client.post("/api/translate", json={"text": TEXT, "model": "writer"}), 422
    )["what"]  # fmt: skip


def test_clients_with_different_interventions_never_see_each_others(client: httpx.Client, model: Model) -> None:
    own = {
        head: model.explain(
            TEXT, target=TARGET, interventions=[] if head is None else [seq2see.without("decoder.1.cross", head)]
        ).trace["logits", 0]
        for head in (None, 0, 1)
    }  # fmt: skip
    assert not torch.equal(own[0], own[1])

    def ask(number: int) -> bool:
        head = (None, 0, 1)[number % 3]
        reach = [] if head is None else [{"do": "without", "attention": "decoder.1.cross", "head": head}]
        told = post(client, "/api/traces", text=TEXT, target=TARGET, interventions=reach)
        return same(numbers(client, f"/api/traces/{told['id']}/tensors/logits"), own[head])

    with ThreadPoolExecutor(6) as clients:
        assert all(clients.map(ask, range(48)))


# Bounds


def test_a_full_queue_answers_503_and_when_to_come_back(folders: dict[str, Path | None]) -> None:
    app = create(folders, Limits(threads=1, waiting=1))
    with serving(app) as client, ThreadPoolExecutor(2) as others:
        id = post(client, "/api/traces", text=TEXT)["id"]
        path = f"/api/traces/{id}/tensors/logits"
        with app.state.answers().traces[id].lock:  # the worker waits for the trace, and the next request for the worker
            held = [others.submit(client.get, path)]
            time.sleep(0.3)
            held.append(others.submit(client.get, path))
            time.sleep(0.3)
            answer = client.get(path)
            assert problem(answer, 503)["remedy"] == "try again in a second"
            assert answer.headers["retry-after"] == "1"
            assert client.get("/docs").status_code == 200  # the event loop is free all the while
        assert [answer.result().status_code for answer in held] == [200, 200]
        assert client.get(path).status_code == 200


def test_the_oldest_trace_makes_room(folders: dict[str, Path | None]) -> None:
    app = create(folders, Limits(traces=2))
    with serving(app) as client:
        first, second, third = (post(client, "/api/traces", text=text)["id"] for text in TEXTS[:3])
        assert "trace the text again" in problem(client.get(f"/api/traces/{first}"), 404)["remedy"]
        assert client.get(f"/api/traces/{second}").status_code == 200  # used, and thereby the newer one
        post(client, "/api/traces", text=TEXT)
        assert client.get(f"/api/traces/{second}").status_code == 200
        problem(client.get(f"/api/traces/{third}"), 404)
        size = app.state.answers().traces[second].size
    app = create(folders, Limits(trace_bytes=size // 2))
    with serving(app) as client:
        problem(client.post("/api/traces", json={"text": TEXT}), 413)
        assert len(app.state.answers().traces) == 0


def test_what_takes_too_long_is_given_up(folders: dict[str, Path | None]) -> None:
    with serving(create(folders, Limits(seconds=0.5))) as client:
        client.get("/api/models")
        body = {"text": "the cat sees a dog " * 40, "beam": 8}
        answer = client.post("/api/translate", json=body)
        assert "not done within 0.5 seconds" in problem(answer, 504)["what"]
        long = {"prompt": "the cat sees a dog " * 40, "tokens": 500, "temperature": 1.0}
        lines = client.post("/api/generate", json={**long, "model": "writer"}).text.splitlines()
        assert json.loads(lines[-1]).get("done") or "not done" in json.loads(lines[-1])["what"]


def test_long_input_is_refused(client: httpx.Client, traced: dict[str, Any]) -> None:
    assert problem(client.post("/api/traces", json={"text": "a b " * 900}), 422)["where"] == "text"
    assert problem(client.post("/api/translate", json={"text": "a" * 8001}), 422)["where"] == "body.text"
    assert problem(client.post("/api/translate", json={"text": "a" * (1 << 20)}), 413)["where"] == "body"

    def unannounced() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * (1 << 14)

    assert client.post("/api/translate", content=unannounced()).status_code == 413


def test_a_fault_harms_no_other_request(
    client: httpx.Client, traced: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    path = f"/api/traces/{traced['id']}/alternatives?row=0"
    monkeypatch.setattr(Answers, "alternatives", broken)
    answer = client.get(path)
    problem(answer, 500)
    assert "secret" not in answer.text
    assert client.get(f"/api/traces/{traced['id']}/entropies").status_code == 200
    monkeypatch.undo()
    assert client.get(path).status_code == 200


def test_a_broken_model_is_told_and_harms_no_other(folders: dict[str, Path | None], tmp_path: Path) -> None:
    whole = folders["translator"]
    assert whole is not None
    broken = tmp_path / "broken"
    shutil.copytree(whole, broken)
    (broken / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:1000])
    with serving(create({"broken": broken, "whole": whole})) as client:
        assert "cannot read" in problem(client.post("/api/translate", json={"text": TEXT}), 500)["what"]
        assert post(client, "/api/translate", text=TEXT, model="whole")["hypotheses"]


# Who may ask


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1"]
)
def test_a_foreign_host_is_refused(client: httpx.Client, host: str) -> None:
    assert problem(client.get("/api/models", headers={"host": host}), 421)["where"] == "Host"
    assert problem(client.get("/", headers={"host": host}), 421)


def test_another_origin_is_refused(client: httpx.Client) -> None:
    body = {"text": TEXT}
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert problem(client.post("/api/translate", json=body, headers=headers), 403)["where"] == "Origin"
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert problem(client.get("/api/models", headers=link), 403)
    own = {"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    answer = client.post("/api/translate", json=body, headers=own)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
    assert client.options("/api/translate", headers=own).status_code == 405


def test_every_answer_is_hardened(client: httpx.Client) -> None:
    for answer in (
        client.get("/api/models"), client.get("/nothing"), client.get("/"), client.get("/docs"),
        client.post("/api/translate", content="{"), client.get("/", headers={"host": "evil.example"}),
    ):  # fmt: skip
        assert set(HEADERS) <= set(answer.headers)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


# Pages


def test_the_document_of_the_api_needs_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs").text
    paths = get(client, "/openapi.json")["paths"]
    assert len(paths) >= 15
    for path in paths:
        assert f"<code>{path}</code>" in page
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!/|#)', page)


def test_without_the_page_a_plain_one_says_what_is_missing(folders: dict[str, Path | None], tmp_path: Path) -> None:
    with serving(create(folders, page=tmp_path)) as client:
        answer = client.get("/")
        assert answer.status_code == 200
        assert "make setup" in answer.text
        assert 'href="/docs"' in answer.text


def test_the_page_is_served_from_memory_and_nothing_beside_it(folders: dict[str, Path | None], tmp_path: Path) -> None:
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<h1>page</h1>")
    (page / "assets" / "page.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    app = create(folders, page=page)
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
            problem(client.get(path), 404)


# The API as documented

SOME = {
    "model": "translator", "weight": "embedding.weight", "name": "logits", "stack": "both", "attention": "decoder.1.cross",
    "place": "encoder.vectors", "lesson": "context",
}  # fmt: skip
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip


BODIES = {
    "/api/translate": {"text": TEXT}, "/api/generate": {"prompt": TEXT}, "/api/traces": {"text": TEXT},
    "/api/senses": {"word": "dog", "sentences": TEXTS[:2]}, "/api/lessons/{lesson}": {"given": {"names": ["a", "b"]}},
}  # fmt: skip


def test_every_answer_is_as_documented_whatever_is_asked(client: httpx.Client, traced: dict[str, Any]) -> None:
    schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        known = {name: SOME.get(name, traced["id"]) for name in re.findall(r"{(\w+)}", operation.path)}
        row = {"row": 0} if operation.path.endswith(("contributions", "alternatives")) else {}
        sound = operation.Case(path_parameters=known, query=row, **_body(operation.path))
        answer = sound.call()
        sound.validate_response(answer, checks=CHECKS)
        assert answer.status_code in (200, 201), answer.text
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
    return {"body": BODIES[path], "media_type": "application/json"} if path in BODIES else {}


# As a command


def test_many_clients_lose_nothing_and_memory_stays_bounded(folders: dict[str, Path | None]) -> None:
    script = Path(__file__).parent.parent / "benchmarks" / "serve_load.py"
    command = [sys.executable, str(script), "--clients", "12", "--seconds", "4", "--model", str(folders["translator"])]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["lost"] == told["dropped"] == 0
    assert told["answered"] > 20
    assert told["MiB at most"] < told["MiB before"] + 100


def test_a_taken_port_gives_the_next_and_ctrl_c_ends_at_once() -> None:
    with server.bound(0) as listener:
        _start_and_end(listener.getsockname()[1])


def _start_and_end(taken: int) -> None:
    command = [sys.executable, "-m", "seq2see", "explore", "--no-open", "--port", str(taken)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == f"port {taken} is taken\n"
        told = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert told and int(told[1]) > taken
        assert httpx.get(f"{told[0]}/docs", timeout=60).status_code == 200
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 5
        assert process.stderr.read() == ""


def test_a_folder_without_a_model_is_told_on_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seq2see", "explore", "--no-open", "--model", str(tmp_path)]
    failed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert failed.returncode == 1
    assert failed.stderr == f"seq2see: {tmp_path} is no model directory: it has no config.toml\n"


def test_models_of_the_same_name_are_told_apart(folders: dict[str, Path | None]) -> None:
    folder = folders["writer"]
    assert folder is not None
    assert server.named([folder, folder]) == {"writer": folder, "writer-2": folder}
    assert server.named([]) == {"bundled": None}


def test_the_server_listens_on_this_machine_only() -> None:
    with server.bound(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        with pytest.raises(OSError, match=r"refused|unreachable"), socket.socket() as other:
            other.connect((_own_address(), listener.getsockname()[1]))


def _own_address() -> str:
    """This machine's address in its network; where there is none, one of the loop that nobody listens on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))  # sends nothing
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


def test_nothing_but_the_server_needs_its_libraries() -> None:
    code = Path(seq2see.__file__).parent
    libraries = re.compile(r"^\s*(?:import|from) (?:fastapi|starlette|uvicorn|pydantic)", re.MULTILINE)
    users = {path for path in code.rglob("*.py") if libraries.search(path.read_text(encoding="utf-8"))}
    assert users and all(path.is_relative_to(code / "serve") for path in users)
    importers = re.compile(r"^(?:import|from) seq2see\.serve", re.MULTILINE)
    others = [path for path in code.rglob("*.py") if not path.is_relative_to(code / "serve")]
    assert not [path for path in others if importers.search(path.read_text(encoding="utf-8"))]
