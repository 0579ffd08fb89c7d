"""The HTTP API: its numbers and interventions equal the library's."""

import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import seq2see
from seq2see.api import Model
from seq2see.config.search import SearchOptions
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import attention_entropy, attention_rollout, head_ablation
from seq2see.inspect.embedding_space import EmbeddingSpace, token_paths
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import alternatives, logit_lens
from seq2see.inspect.similarity import principal_axes
from seq2see.inspect.token_similarity import contextual_embeddings, token_similarity
from tests.explore import TARGET, TEXT, TEXTS, equal, error, fetch_tensor, get, post
from tests.models import TINY


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
    # The library decodes on the engine, which nothing stops at the deadline of a request; they differ by rounding.
    assert [each["score"] for each in hypotheses] == pytest.approx([each.score for each in expected], abs=1e-5)
    for found, one in zip(hypotheses, expected, strict=True):
        assert logprobs(found["tokens"]) == pytest.approx(one.logprobs, abs=1e-5)
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
        (
            {"type": "force_attention", "attention": "decoder.0.cross", "weights": [0, 1]},
            seq2see.force_attention("decoder.0.cross", row),
        ),
        ({"type": "uniform_attention", "attention": "encoder.*.self"}, seq2see.uniform_attention("encoder.*.self")),
        (
            {"type": "scale", "name": "decoder.0.feed_forward.output", "factor": 0.5, "positions": [1, 2]},
            seq2see.scale("decoder.0.feed_forward.output", 0.5, where),
        ),
        ({**patch, "source": {"position": 4}}, seq2see.patch("encoder.vectors", vectors[4], where)),
        ({**patch, "source": {"position": 3, "trace": other_id}}, seq2see.patch("encoder.vectors", other[3], where)),
    ):
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
        ({"type": "scale", "name": "encoder.vectors", "factor": 0, "positions": [99]}, ""),
        ({"type": "force_attention", "attention": "decoder.0.cross", "weights": [0.1] * 99}, "0.weights"),
        (
            {"type": "patch", "name": "encoder.vectors", "positions": [0], "source": {"position": 99}},
            "0.source.position",
        ),
        ({"type": "patch", "name": "encoder.0.self.weights", "positions": [0], "source": {"position": 0}}, "0.name"),
        ({"type": "explode"}, "0"),
        ({"type": "scale", "name": "logits", "factor": 2, "hed": 0}, "0.scale"),
    ],
)
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
    }
    assert not torch.equal(expected[0], expected[1])

    def matches(number: int) -> bool:
        head = (None, 0, 1)[number % 3]
        bodies = [] if head is None else [{"type": "ablate_head", "attention": "decoder.1.cross", "head": head}]
        id = post(client, "/api/traces", text=TEXT, target=TARGET, interventions=bodies)["id"]
        return equal(fetch_tensor(client, f"/api/traces/{id}/tensors/logits"), expected[head])

    with ThreadPoolExecutor(6) as clients:
        assert all(clients.map(matches, range(48)))
