"""The HTTP API: its numbers equal the library's, its limits hold, and foreign hosts and origins are rejected."""

import asyncio
import itertools
import json
import math
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
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
from seq2see.config.search import SearchOptions
from seq2see.course.lessons import LESSONS
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import attention_entropy, attention_rollout, head_ablation
from seq2see.inspect.embedding_space import EmbeddingSpace, token_paths
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import alternatives, logit_lens
from seq2see.inspect.similarity import principal_axes
from seq2see.inspect.token_similarity import contextual_embeddings, token_similarity
from seq2see.server.explore import code_excerpts, page_sources, server
from seq2see.server.explore.app import create_app
from seq2see.server.explore.options import Limits
from seq2see.server.http import workers
from seq2see.server.http.listening import HeaderTimeoutProtocol, listen
from seq2see.server.http.security import HEADERS
from seq2see.storage.bundled import BUNDLED, GRAMMAR
from seq2see.storage.directory import save_weights, snapshot_file
from seq2see.tensors.quantize import quantize_4_bits
from tests.commands import run_command
from tests.models import TINY, save, tiny_model
from tests.waiting import HANG, wait_until

TEXTS = ["the cat sees the dog", "the dog sees a bird", "a bird sings", "बिल्ली कुत्ते को देखती है"]
TEXT, TARGET = TEXTS[0], TEXTS[3]
LANGUAGE_MODEL = ModelConfig(
    shape="decoder", width=16, heads=2, decoder_layers=2, feed_forward=16, dropout=0.0, max_positions=64
)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A translator with a training snapshot, and a language model."""
    directory = tmp_path_factory.mktemp("models")
    translator = save(tiny_model(TEXTS), directory / "translator")
    snapshot = {name: weight / 2 for name, weight in tiny_model(TEXTS).network.state_dict().items()}
    (translator / "snapshots").mkdir()
    save_weights(snapshot_file(translator, 8), quantize_4_bits(snapshot), None)
    return {
        "translator": translator,
        "language-model": save(tiny_model(TEXTS, LANGUAGE_MODEL), directory / "language-model"),
    }


@contextmanager
def serving(app: FastAPI) -> Iterator[httpx.Client]:
    """Runs a real server on a free port and yields a client for it."""
    listener = listen(server.HOST, 0)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, http=HeaderTimeoutProtocol)
    uvicorn_server = uvicorn.Server(config)
    thread = threading.Thread(target=uvicorn_server.run, args=([listener],))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=HANG) as client:
            yield client
    finally:
        uvicorn_server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def app(directories: dict[str, Path]) -> FastAPI:
    return create_app(directories)


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[httpx.Client]:
    with serving(app) as client:
        yield client


@pytest.fixture(scope="module")
def model(directories: dict[str, Path]) -> Model:
    return seq2see.load(directories["translator"])


@pytest.fixture(scope="module")
def trace(client: httpx.Client) -> dict[str, Any]:
    return post(client, "/api/traces", text=TEXT, target=TARGET)


def post(client: httpx.Client, path: str, **body: object) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code in (200, 201), response.text
    data = response.json()
    assert isinstance(data, dict)
    return data


def get(client: httpx.Client, path: str) -> dict[str, Any]:
    response = client.get(path)
    assert response.status_code == 200, response.text
    data = response.json()
    assert isinstance(data, dict)
    return data


def fetch_tensor(client: httpx.Client, path: str) -> NDArray[np.float32]:
    response = client.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/octet-stream"
    shape = [int(size) for size in response.headers["x-shape"].split(",") if size]
    return np.frombuffer(response.content, "<f4").reshape(shape)


def equal(found: NDArray[np.float32], expected: Tensor) -> bool:
    """Bit for bit: the server computes in this process, with the same shapes and number of threads."""
    return np.array_equal(found, expected.detach().float().numpy())


def error(response: httpx.Response, status: int) -> dict[str, str]:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"message", "location", "hint"}
    assert all(text and "\n" not in text and "Traceback" not in text for text in body.values())
    assert isinstance(body, dict)
    return body


# Equal to the library


def test_models_are_listed(client: httpx.Client, model: Model) -> None:
    translator, language_model = get(client, "/api/models")["models"]
    assert (translator["name"], translator["kind"], translator["snapshots"]) == ("translator", "translator", [8])
    assert language_model["name"] == "language-model"
    assert (language_model["kind"], language_model["snapshots"]) == ("language model", [])
    assert translator["parameters"] == sum(p.numel() for p in model.network.parameters())
    assert translator["tokenizer"]["target_vocab_size"] == len(model.tokenizers[1])
    assert translator["config"]["model"]["width"] == TINY.width


@pytest.mark.parametrize("name", ["translator", "language-model"])
def test_every_tensor_of_a_trace_is_bit_identical(
    client: httpx.Client, directories: dict[str, Path], name: str
) -> None:
    trace = post(client, "/api/traces", model=name, text=TEXT)
    expected = seq2see.load(directories[name]).explain(TEXT)
    assert trace["output"] == expected.output
    assert [token["text"] for token in trace["decoder_input_tokens"]] == list(expected.decoder_input_tokens)
    assert [token["id"] for token in trace["source_tokens"]] == list(expected.source_ids)
    assert [token["logprob"] for token in trace["target_tokens"]] == expected.target_logprobs.tolist()
    assert [tensor["name"] for tensor in trace["tensors"]] == expected.trace.names()
    for tensor in trace["tensors"]:
        values = fetch_tensor(client, f"/api/traces/{trace['id']}/tensors/{tensor['name']}")
        assert list(values.shape) == tensor["shape"]
        assert len(tensor["axes"]) == values.ndim
        assert equal(values, expected.trace[tensor["name"], 0]), tensor["name"]
    assert get(client, f"/api/traces/{trace['id']}") == trace


def test_slices_follow_numpy_and_keep_minus_infinity(client: httpx.Client, trace: dict[str, Any]) -> None:
    path = f"/api/traces/{trace['id']}/tensors/decoder.0.masked.masked"
    whole = fetch_tensor(client, path)
    assert whole[0, 0, 1] == -np.inf
    for index, expected in (
        ("0,:,2:5", whole[0, :, 2:5]),
        ("-1", whole[-1]),
        ("1,2,0", whole[1, 2, 0]),
        (":,-3:", whole[:, -3:]),
        (":,::2,1::3", whole[:, ::2, 1::3]),
    ):
        assert np.array_equal(fetch_tensor(client, f"{path}?index={index}"), expected)
    assert fetch_tensor(client, f"{path}?index=0,9:3").size == 0
    for invalid in ("x", "0,,1", "0,1,2,3", "99", "::0", "::-1", "1:2:3:4", "٣"):
        assert error(client.get(path, params={"index": invalid}), 422)["location"] == "query.index"


def test_a_cell_can_be_recomputed_from_its_operands(client: httpx.Client, trace: dict[str, Any]) -> None:
    weights = get(client, "/api/models/translator/weights")["weights"]
    for component, input in (("decoder.1.cross", "encoder.vectors"), ("encoder.0.self", "encoder.input")):
        for letter, output in (("K", "keys"), ("V", "values")):
            operands = {}
            for weight in weights:
                for symbol in weight["symbols"]:
                    if weight["component"] == component and symbol["symbol"] in (f"W_{letter}", f"b_{letter}"):
                        start, stop = symbol["start"], symbol["stop"]
                        path = f"/api/models/translator/weights/{weight['name']}?index={start}:{stop}"
                        operands[symbol["symbol"][0]] = fetch_tensor(client, path)
            x = fetch_tensor(client, f"/api/traces/{trace['id']}/tensors/{input}")
            expected = fetch_tensor(client, f"/api/traces/{trace['id']}/tensors/{component}.{output}")
            recomputed = x @ operands["W"].T + operands["b"]
            assert np.allclose(recomputed.reshape(expected.shape), expected, atol=1e-5)


def test_every_weight_is_bit_identical_also_in_a_snapshot(
    client: httpx.Client, directories: dict[str, Path], model: Model
) -> None:
    snapshot = seq2see.load(directories["translator"], step=8)
    weights = get(client, "/api/models/translator/weights")["weights"]
    assert [weight["name"] for weight in weights] == list(model.network.state_dict())
    assert all(weight["symbols"] for weight in weights)
    for name, expected in model.network.state_dict().items():
        assert equal(fetch_tensor(client, f"/api/models/translator/weights/{name}"), expected)
    name = "embedding.weight"
    path = f"/api/models/translator/weights/{name}"
    assert equal(fetch_tensor(client, f"{path}?step=8&index=3:5"), snapshot.network.state_dict()[name][3:5])
    assert "8" in error(client.get(f"{path}?step=9"), 404)["hint"]


def test_translations_equal_the_librarys(client: httpx.Client, model: Model) -> None:
    (sentence,) = post(client, "/api/translate", text=TEXT, beam=3, nbest=2)["sentences"]
    hypotheses = sentence["hypotheses"]
    (expected,) = model.hypotheses([TEXT], beam=3, nbest=2)
    assert [each["text"] for each in hypotheses] == [model.text(each) for each in expected]
    assert [each["score"] for each in hypotheses] == [each.score for each in expected]
    assert [logprobs(each["tokens"]) for each in hypotheses] == [list(each.logprobs) for each in expected]
    with model.ablate_head("decoder.1.cross", 0) as ablated:
        (best, *_) = ablated.hypotheses([TEXT])[0]
    body = {"text": TEXT, "interventions": [{"type": "ablate_head", "attention": "decoder.1.cross", "head": 0}]}
    (hypothesis,) = post(client, "/api/translate", **body)["sentences"][0]["hypotheses"]
    assert logprobs(hypothesis["tokens"]) == list(best.logprobs) != list(expected[0].logprobs)


def logprobs(tokens: list[dict[str, Any]]) -> list[float]:
    return [token["logprob"] for token in tokens]


@pytest.mark.parametrize("name", ["translator", "language-model"])
def test_a_stream_equals_the_librarys(client: httpx.Client, directories: dict[str, Path], name: str) -> None:
    options: SearchOptions = {"max_new_tokens": 30, "temperature": 0.9, "top_k": 50, "top_p": 0.9, "seed": 3}
    body = {"model": name, "prompt": "the cat", **options}
    with client.stream("POST", "/api/generate", json=body) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        *pieces, last = map(json.loads, response.iter_lines())
    assert [piece["text"] for piece in pieces] == list(seq2see.load(directories[name]).stream("the cat", **options))
    assert last == {"done": True, "text": "".join(piece["text"] for piece in pieces), "unknown": None}


def test_analyses_equal_the_librarys(client: httpx.Client, model: Model, trace: dict[str, Any]) -> None:
    e, url = model.explain(TEXT, target=TARGET), f"/api/traces/{trace['id']}"
    alignment = get(client, f"{url}/alignment")
    assert [(link["source"], link["target"]) for link in alignment["links"]] == word_alignment(e).links
    expected = {name: heads.tolist() for name, heads in attention_entropy(e).items()}
    assert get(client, f"{url}/attention-entropy")["entropies"] == expected
    for stack in ("encoder", "decoder", "both"):
        assert equal(fetch_tensor(client, f"{url}/attention-rollout/{stack}"), attention_rollout(e, stack))
    ablation = fetch_tensor(client, f"{url}/head-ablation/decoder.1.cross?index=0")
    assert equal(ablation, head_ablation(e, "decoder.1.cross")[0])
    similarity = fetch_tensor(client, f"{url}/token-similarity/encoder.vectors?measure=scaled")
    assert equal(similarity, token_similarity(e, "encoder.vectors", "scaled"))
    found, lens = get(client, f"{url}/logit-lens?top=2"), logit_lens(e, 2)
    assert found["layers"] == list(lens.layers)
    ranks = [[reading.rank for reading in row] for row in lens.readings]
    assert [[reading["rank"] for reading in row] for row in found["readings"]] == ranks
    assert found["readings"][1][2]["top"][0]["probability"] == lens.readings[1][2].top[0][1]
    attribution = get(client, f"{url}/logit-attribution?row=-1")
    assert attribution["logit"] == logit_attribution(e, -1).logit
    total = sum(contribution["logit"] for contribution in attribution["contributions"])
    assert math.isclose(total, attribution["logit"], abs_tol=1e-4)
    top = get(client, f"{url}/top-tokens?count=6")
    assert set(e.target_ids) <= set(top["ids"])
    assert top["logits"][1] == pytest.approx(e.trace["logits", 0][1, top["ids"]].tolist())
    assert top["probabilities"][1] == pytest.approx(e.logprobs[1, top["ids"]].exp().tolist())
    others = get(client, f"{url}/alternatives?row=1&top=4")["alternatives"]
    assert [token["id"] for token in others] == [token.id for token in alternatives(e, 1, 4)]
    embeddings = post(client, "/api/contextual-embeddings", word="dog", sentences=TEXTS[:2])
    assert torch.equal(torch.tensor(embeddings["cosines"]), contextual_embeddings(model, "dog", TEXTS[:2]).cosines)


def test_the_space_is_the_librarys(client: httpx.Client, directories: dict[str, Path]) -> None:
    model = seq2see.load(directories["translator"])
    trace = post(client, "/api/traces", text=TEXT, target=TARGET)
    e = model.explain(TEXT, target=TARGET)
    for stack in ("encoder", "decoder"):
        library, path = EmbeddingSpace.of(model, stack), token_paths(e, stack)
        query = {"stack": stack, "fit": "layers", "traces": [trace["id"]], "words": "cat − dog"}
        space = post(client, "/api/space", **query)
        directions = library.directions(path.vectors)
        axes = principal_axes(directions.flatten(0, 1), 3)
        points = torch.tensor([token["path"] for token in space["paths"]])  # [tokens, layers, 3]
        torch.testing.assert_close(points, axes.project(directions).transpose(0, 1), atol=1e-3, rtol=0)
        torch.testing.assert_close(
            torch.tensor(space["points"]), axes.project(library.embeddings(space["ids"])), atol=1e-3, rtol=0
        )
        assert space["layers"] == list(path.layers)
        assert space["variance_ratios"] == pytest.approx(axes.variance_ratios.tolist(), abs=1e-4)
        expected = library.arithmetic("cat − dog").neighbors
        found = space["arithmetic"]["neighbors"]
        assert [one["cosine"] for one in found] == pytest.approx([one.cosine for one in expected], abs=1e-5)
        plus, minus = space["arithmetic"]["terms"]
        assert (plus["sign"], minus["sign"]) == (1, -1)
        nearest = get(client, f"/api/traces/{trace['id']}/nearest-embeddings?stack={stack}&position=-1&count=2")
        assert nearest["token"] == path.tokens[-1]
        for layer, direction in zip(nearest["layers"], directions[:, -1], strict=True):
            (best,) = library.nearest(direction[None], 2)
            assert [one["cosine"] for one in layer["neighbors"]] == pytest.approx(
                [one.cosine for one in best], abs=1e-5
            )


def test_a_sum_of_words_is_drawn_where_its_arrows_lead(client: httpx.Client) -> None:
    space = post(client, "/api/space", stack="encoder", fit="words", words="cat − dog + bird")
    a, b, c = (torch.tensor(term["point"]) for term in space["arithmetic"]["terms"])
    torch.testing.assert_close(torch.tensor(space["arithmetic"]["point"]), a - b + c, atol=1e-3, rtol=0)


def test_the_space_rejects_what_it_cannot_place(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    other = post(client, "/api/traces", model="language-model", text=TEXT, max_new_tokens=2)
    error = client.post("/api/space", json={"stack": "encoder", "traces": [other["id"]]})
    assert error.status_code == 422 and '"language-model"' in error.json()["message"]
    error = client.post("/api/space", json={"stack": "encoder", "model": "language-model"})
    assert error.status_code == 422 and "has no encoder" in error.json()["message"]
    error = client.get(f"/api/traces/{other['id']}/nearest-embeddings?stack=decoder&position=99")
    assert error.status_code == 422 and "position 99 is out of range" in error.json()["message"]
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    error = client.post("/api/space", json={"stack": "encoder", "method": "tsne"})
    assert error.status_code == 422 and "seq2see[tsne]" in error.json()["message"]


@pytest.mark.extras
def test_tsne_places_the_vocabulary_once(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openTSNE")
    first = post(client, "/api/space", stack="encoder", method="tsne", words="cat")
    assert first["methods"] == ["pca", "tsne"] and not first["variance_ratios"]
    assert all(abs(value) <= 1 for point in first["points"] for value in point)
    monkeypatch.setitem(sys.modules, "openTSNE", None)  # the second answer is remembered
    assert post(client, "/api/space", stack="encoder", method="tsne")["points"] == first["points"]


@pytest.mark.parametrize("name", ["translator", "language-model"])
def test_the_next_token_is_the_one_that_was_sampled(
    client: httpx.Client, directories: dict[str, Path], name: str
) -> None:
    sampling = {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "seed": 3}
    trace = post(client, "/api/traces", model=name, text=TEXT, max_new_tokens=8, **sampling)
    banned = get(client, f"/api/models/{name}/vocabulary")["banned"]
    for row, token in enumerate(trace["target_tokens"]):
        query = "&".join(f"{key}={value}" for key, value in sampling.items())
        found = get(client, f"/api/traces/{trace['id']}/next-token?row={row}&{query}&top=5")
        in_prompt = row < trace["output_start"]
        assert found["sampled"] == (None if in_prompt else token["text"])
        assert token["id"] in [one["id"] for one in found["candidates"]]
        assert not set(banned) & {one["id"] for one in found["candidates"] if one["probability"] > 0}
    logits = torch.tensor([one["logit"] for one in found["candidates"]])
    greedy = get(client, f"/api/traces/{trace['id']}/next-token?row=-1&temperature=0")["candidates"]
    assert [one["probability"] for one in greedy[:2]] == [1, 0]
    assert logits.isfinite().all()


def test_a_trace_of_a_snapshot_uses_its_weights(client: httpx.Client, directories: dict[str, Path]) -> None:
    id = post(client, "/api/traces", text=TEXT, target=TARGET, step=8)["id"]
    expected = seq2see.load(directories["translator"], step=8).explain(TEXT, target=TARGET)
    assert equal(fetch_tensor(client, f"/api/traces/{id}/tensors/logits"), expected.trace["logits", 0])
    rank = get(client, f"/api/traces/{id}/logit-lens")["readings"][0][0]["rank"]
    assert rank == logit_lens(expected).readings[0][0].rank


# Interventions


def test_interventions_equal_the_librarys(client: httpx.Client, model: Model, trace: dict[str, Any]) -> None:
    vectors = model.explain(TEXT, target=TARGET).trace["encoder.vectors", 0]
    other = model.explain(TEXTS[1], target=TARGET).trace["encoder.vectors", 0]
    other_id = post(client, "/api/traces", text=TEXTS[1], target=TARGET)["id"]
    row = torch.zeros(100)
    row[1] = 1.0
    where = seq2see.Selection(positions=[1, 2])
    patch = {"type": "patch", "name": "encoder.vectors", "positions": [1, 2]}
    for body, intervention in (
        ({"type": "ablate_head", "attention": "decoder.1.cross", "head": 1}, seq2see.ablate_head("decoder.1.cross", 1)),
        ({"type": "force_attention", "attention": "decoder.0.cross", "weights": [0, 1]},
         seq2see.force_attention("decoder.0.cross", row)),
        ({"type": "uniform_attention", "attention": "encoder.*.self"}, seq2see.uniform_attention("encoder.*.self")),
        ({"type": "scale", "name": "decoder.0.feed_forward.output", "factor": 0.5, "positions": [1, 2]},
         seq2see.scale("decoder.0.feed_forward.output", 0.5, where)),
        ({**patch, "source": {"position": 4}}, seq2see.patch("encoder.vectors", vectors[4], where)),
        ({**patch, "source": {"position": 3, "trace": other_id}}, seq2see.patch("encoder.vectors", other[3], where)),
    ):  # fmt: skip
        changed = post(client, "/api/traces", text=TEXT, target=TARGET, interventions=[body])
        expected = model.explain(TEXT, target=TARGET, interventions=[intervention]).trace["logits", 0]
        assert equal(fetch_tensor(client, f"/api/traces/{changed['id']}/tensors/logits"), expected), body
        assert not equal(fetch_tensor(client, f"/api/traces/{trace['id']}/tensors/logits"), expected)
        shifts = [change["p_same_token"] - change["p_before"] for change in changed["changes"]]
        assert len(shifts) == len(changed["target_tokens"])
        assert any(shifts)


@pytest.mark.parametrize(
    ("intervention", "location"),
    [
        ({"type": "ablate_head", "attention": "decoder.9.cross", "head": 0}, "0"),
        ({"type": "ablate_head", "attention": "decoder.1.cross", "head": 2}, "0.head"),
        ({"type": "ablate_head", "attention": "decoder.1.cross"}, "0.ablate_head.head"),
        ({"type": "scale", "name": "decoder.tokens", "factor": 2}, "0"),
        ({"type": "scale", "name": "logits", "factor": 2, "head": 0}, "0.head"),
        ({"type": "scale", "name": "decoder.0.masked.masked", "factor": 0}, ""),
        ({"type": "force_attention", "attention": "decoder.0.cross", "weights": [0.1] * 99}, "0.weights"),
        ({"type": "patch", "name": "encoder.vectors", "positions": [0], "source": {"position": 99}}, "0.source.position"),
        ({"type": "patch", "name": "encoder.0.self.weights", "positions": [0], "source": {"position": 0}}, "0.name"),
        ({"type": "explode"}, "0"),
        ({"type": "scale", "name": "logits", "factor": 2, "hed": 0}, "0.scale"),
    ],
)  # fmt: skip
def test_invalid_interventions_are_rejected(client: httpx.Client, intervention: dict[str, Any], location: str) -> None:
    response = client.post("/api/traces", json={"text": TEXT, "interventions": [intervention]})
    found = error(response, 422)["location"].removeprefix("body.")
    assert found == f"interventions.{location}".rstrip(".")


def test_an_unknown_key_or_name_gets_a_suggestion(client: httpx.Client, trace: dict[str, Any]) -> None:
    response = client.post("/api/translate", json={"text": TEXT, "beem": 4})
    assert 'did you mean "beam"?' in error(response, 422)["message"]
    response = client.post("/api/translate", json={"text": TEXT, "model": "translater"})
    assert error(response, 404)["hint"] == 'did you mean "translator"?'
    response = client.get(f"/api/traces/{trace['id']}/tensors/decoder.1.cross.weight")
    assert error(response, 404)["hint"] == 'did you mean "decoder.1.cross.weights"?'
    response = client.post("/api/translate", json={"text": TEXT, "model": "language-model"})
    assert "only an encoder-decoder" in error(response, 422)["message"]


def test_concurrent_interventions_do_not_affect_each_other(client: httpx.Client, model: Model) -> None:
    expected = {
        head: model.explain(
            TEXT, target=TARGET, interventions=[] if head is None else [seq2see.ablate_head("decoder.1.cross", head)]
        ).trace["logits", 0]
        for head in (None, 0, 1)
    }  # fmt: skip
    assert not torch.equal(expected[0], expected[1])

    def matches(number: int) -> bool:
        head = (None, 0, 1)[number % 3]
        bodies = [] if head is None else [{"type": "ablate_head", "attention": "decoder.1.cross", "head": head}]
        id = post(client, "/api/traces", text=TEXT, target=TARGET, interventions=bodies)["id"]
        return equal(fetch_tensor(client, f"/api/traces/{id}/tensors/logits"), expected[head])

    with ThreadPoolExecutor(6) as clients:
        assert all(clients.map(matches, range(48)))


# Limits


def test_a_full_queue_returns_503_with_retry_after(directories: dict[str, Path]) -> None:
    app = create_app(directories, Limits(workers=1, queue_size=1))
    with serving(app) as client, ThreadPoolExecutor(2) as others:
        id = post(client, "/api/traces", text=TEXT)["id"]
        path, pool = f"/api/traces/{id}/tensors/logits", app.state.workers
        wait_until(lambda: not pool._running)  # a response is sent shortly before its worker is free
        with app.state.api.state.traces[id].lock:  # blocks the worker, so that the next request stays in the queue
            blocked = [others.submit(client.get, path)]
            wait_until(lambda: pool._running)
            blocked.append(others.submit(client.get, path))
            wait_until(lambda: pool._jobs.full())
            response = client.get(path)
            assert error(response, 503)["hint"] == "try again in a second"
            assert response.headers["retry-after"] == "1"
            assert client.get("/docs").status_code == 200  # the event loop is not blocked
        assert [response.result().status_code for response in blocked] == [200, 200]
        assert client.get(path).status_code == 200


def test_the_least_recently_used_trace_is_evicted(directories: dict[str, Path]) -> None:
    app = create_app(directories, Limits(max_traces=2))
    with serving(app) as client:
        first, second, third = (post(client, "/api/traces", text=text)["id"] for text in TEXTS[:3])
        assert "trace the text again" in error(client.get(f"/api/traces/{first}"), 404)["hint"]
        assert client.get(f"/api/traces/{second}").status_code == 200  # now the more recently used one
        post(client, "/api/traces", text=TEXT)
        assert client.get(f"/api/traces/{second}").status_code == 200
        error(client.get(f"/api/traces/{third}"), 404)
        size = app.state.api.state.traces[second].size
    app = create_app(directories, Limits(max_trace_bytes=size // 2))
    with serving(app) as client:
        error(client.post("/api/traces", json={"text": TEXT}), 413)
        assert len(app.state.api.state.traces) == 0


def test_slow_requests_time_out(directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()  # a clock that advances by a second whenever a deadline is checked
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    with serving(create_app(directories, Limits(timeout=5.5))) as client:
        client.get("/api/models")
        body = {"text": "the cat sees a dog " * 40, "beam": 8}
        response = client.post("/api/translate", json=body)
        assert "not finished within 5.5 seconds" in error(response, 504)["message"]
        long = {"prompt": "the cat sees a dog " * 40, "max_new_tokens": 500, "temperature": 1.0}
        lines = client.post("/api/generate", json={**long, "model": "language-model"}).text.splitlines()
        assert json.loads(lines[-1]).get("done") or "not finished" in json.loads(lines[-1])["message"]


def test_a_body_that_does_not_arrive_times_out(directories: dict[str, Path]) -> None:
    head = b"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    with (
        serving(create_app(directories, Limits(timeout=0.5))) as client,
        socket.create_connection(("127.0.0.1", client.base_url.port), HANG) as connection,
    ):
        connection.sendall(head)
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 408")


REQUEST = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(("before", "head"), [(b"", b""), (b"", REQUEST[:-2]), (REQUEST, REQUEST[:-2])])
def test_headers_that_do_not_arrive_time_out(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, before: bytes, head: bytes
) -> None:
    monkeypatch.setattr(HeaderTimeoutProtocol, "header_seconds", 0.2)
    with socket.create_connection(("127.0.0.1", client.base_url.port), HANG) as connection:
        if before:
            connection.sendall(before)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        connection.sendall(head)
        received = b""
        while data := connection.recv(1 << 16):
            received += data
    assert b"HTTP/1.1 408" in received


def test_long_input_is_rejected(client: httpx.Client, trace: dict[str, Any]) -> None:
    assert error(client.post("/api/traces", json={"text": "a b " * 900}), 422)["location"] == "text"
    assert error(client.post("/api/translate", json={"text": "a" * 8001}), 422)["location"] == "body.text"
    assert error(client.post("/api/translate", json={"text": "a" * (1 << 20)}), 413)["location"] == "body"

    def without_content_length() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * (1 << 14)

    assert client.post("/api/translate", content=without_content_length()).status_code == 413


def test_an_internal_error_affects_no_other_request(
    client: httpx.Client, trace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    path = f"/api/traces/{trace['id']}/alternatives?row=0"
    monkeypatch.setattr(Explanation, "resolve_row", broken)
    response = client.get(path)
    error(response, 500)
    assert "secret" not in response.text
    assert client.get(f"/api/traces/{trace['id']}/attention-entropy").status_code == 200
    monkeypatch.undo()
    assert client.get(path).status_code == 200


def test_a_broken_model_is_reported_and_affects_no_other(directories: dict[str, Path], tmp_path: Path) -> None:
    intact = directories["translator"]
    assert intact is not None
    broken = tmp_path / "broken"
    shutil.copytree(intact, broken)
    (broken / "model.safetensors").write_bytes((intact / "model.safetensors").read_bytes()[:1000])
    with serving(create_app({"broken": broken, "intact": intact})) as client:
        assert "cannot read" in error(client.post("/api/translate", json={"text": TEXT}), 500)["message"]
        assert post(client, "/api/translate", text=TEXT, model="intact")["sentences"]


# Access


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1"]
)
def test_a_foreign_host_is_rejected(client: httpx.Client, host: str) -> None:
    assert error(client.get("/api/models", headers={"host": host}), 421)["location"] == "Host"
    assert error(client.get("/", headers={"host": host}), 421)


def test_another_origin_is_rejected(client: httpx.Client) -> None:
    body = {"text": TEXT}
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert error(client.post("/api/translate", json=body, headers=headers), 403)["location"] == "Origin"
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert error(client.get("/api/models", headers=link), 403)
    own = {"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    response = client.post("/api/translate", json=body, headers=own)
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers
    assert client.options("/api/translate", headers=own).status_code == 405


def test_every_response_has_the_security_headers(client: httpx.Client) -> None:
    for response in (
        client.get("/api/models"), client.get("/nothing"), client.get("/"), client.get("/docs"),
        client.post("/api/translate", content="{"), client.get("/", headers={"host": "evil.example"}),
    ):  # fmt: skip
        assert set(HEADERS) <= set(response.headers)
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"


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
    "model": "translator", "weight": "embedding.weight", "name": "encoder.vectors", "stack": "both",
    "attention": "decoder.1.cross", "lesson": "context",
}  # fmt: skip
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip


BODIES = {
    "/api/translate": {"text": TEXT}, "/api/generate": {"prompt": TEXT}, "/api/traces": {"text": TEXT},
    "/api/contextual-embeddings": {"word": "dog", "sentences": TEXTS[:2]},
    "/api/space": {"stack": "encoder", "words": "cat − dog"},
    "/api/lessons/{lesson}": {"settings": {"names": ["a", "b"]}},
}  # fmt: skip


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
    assert all(excerpt["line"] and "\n" not in excerpt["line"] for excerpt in code_excerpts.code_excerpts().values())
    (tmp_path / "code.py").write_text("def f(x):\n    y = g(\n        'a', x,\n    )\n    return g(x)\n")
    monkeypatch.setattr(code_excerpts, "SOURCE_DIRECTORY", tmp_path)
    assert code_excerpts.find_statement("code.py", 'g("a",x)') == "y = g('a', x)"
    assert code_excerpts.find_statement("code.py", "return g(x)") == "return g(x)"
    with pytest.raises(ValueError, match="2 statements"):
        code_excerpts.find_statement("code.py", "g(")


def test_the_schemas_for_the_page_are_complete() -> None:
    schemas = page_sources.schemas()
    assert set(schemas["LessonResults"]["properties"]) == set(LESSONS)
    assert {"EmbeddedData", "Trace", "TraceRequest", "ModelConfig"} <= set(schemas)
    assert set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schemas))) <= set(schemas)


# The command


def test_under_load_no_request_is_lost_and_memory_stays_bounded(directories: dict[str, Path]) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "explore_load.py"
    command = [
        sys.executable,
        str(script),
        "--clients",
        "12",
        "--seconds",
        "4",
        "--model",
        str(directories["translator"]),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    data = json.loads(ran.stdout.splitlines()[-1])
    assert data["lost"] == data["evicted"] == 0
    assert data["completed"] >= 12
    assert data["mib_max"] < data["mib_before"] + 100


def test_a_port_in_use_is_skipped_and_ctrl_c_stops_at_once() -> None:
    with listen(server.HOST, 0) as listener:
        _start_and_stop(listener.getsockname()[1])


def _start_and_stop(port: int) -> None:
    command = [sys.executable, "-m", "seq2see", "explore", "--model", GRAMMAR, "--no-open", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == f"port {port} is in use\n"
        url = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert url and int(url[1]) > port
        assert httpx.get(f"{url[0]}/docs", timeout=HANG).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 0
        assert process.stderr.read() == ""


def test_a_directory_without_a_model_is_a_one_line_error(tmp_path: Path) -> None:
    failed = run_command("explore", "--no-open", "--model", tmp_path)
    assert failed.returncode == 1
    assert failed.stderr == f"seq2see: {tmp_path} is not a model directory: it has no config.toml\n"


def test_models_with_the_same_name_are_numbered(directories: dict[str, Path]) -> None:
    directory = directories["language-model"]
    assert server.name_models([directory, directory]) == {"language-model": directory, "language-model-2": directory}
    assert server.name_models([Path(GRAMMAR)]) == {GRAMMAR: BUNDLED / GRAMMAR}


def test_the_server_listens_on_localhost_only() -> None:
    with listen(server.HOST, 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        with pytest.raises(OSError, match=r"refused|unreachable"), socket.socket() as other:
            other.connect((_own_address(), listener.getsockname()[1]))


def _own_address() -> str:
    """Returns this machine's network address, or a loopback address without a listener if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))  # sends nothing
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


def test_only_the_servers_import_the_web_framework() -> None:
    code = Path(seq2see.__file__).parent
    libraries = re.compile(r"^\s*(?:import|from) (?:fastapi|starlette|uvicorn|pydantic)", re.MULTILINE)
    users = {path for path in code.rglob("*.py") if libraries.search(path.read_text(encoding="utf-8"))}
    servers = {"server"}
    assert {path.relative_to(code).parts[0] for path in users} == servers
    importers = re.compile(r"^(?:import|from) seq2see\.server\b", re.MULTILINE)
    others = [path for path in code.rglob("*.py") if path.relative_to(code).parts[0] not in servers]
    assert not [path for path in others if importers.search(path.read_text(encoding="utf-8"))]


def test_a_stream_lets_the_server_run_between_items() -> None:
    """So that it notices a lost connection instead of sending everything that waits."""

    async def count_turns() -> list[int]:
        turns, pool = 0, workers.WorkerPool(workers=1, queue_size=1, timeout=HANG)

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other, seen = asyncio.create_task(turn()), []
        async for _ in pool.stream(lambda _: iter(range(100))):
            seen.append(turns)
        other.cancel()
        return seen

    with ThreadPoolExecutor(1) as pool:  # Playwright's loop runs in this thread
        seen = pool.submit(lambda: asyncio.run(count_turns())).result()
    assert all(before < after for before, after in itertools.pairwise(seen))
