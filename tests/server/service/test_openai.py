"""`seq2see serve`: what clients of OpenAI get."""

import json
import struct
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import pytest

import seq2see
from seq2see.api import Model
from seq2see.decode.search import Hypothesis
from seq2see.server.service.completions import Choice
from tests.foreign_models import decoder, llama_bpe, save
from tests.services import error

pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")


def complete(client: httpx.Client, path: str = "completions", **body: Any) -> Any:
    response = client.post(f"/v1/{path}", json={"model": "chat", **body})
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: httpx.Client, path: str = "completions", **body: Any) -> list[Any]:
    with client.stream("POST", f"/v1/{path}", json={"model": "chat", "stream": True, **body}) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        *events, done = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


def test_completions_equal_the_models_own(client: httpx.Client, chat_model: Model) -> None:
    prompts = ["the cat", "a dog sees"]
    found = complete(client, prompt=prompts, temperature=0, max_tokens=12)
    texts = [chat_model.generate(prompt, max_new_tokens=12)[0] for prompt in prompts]
    assert [choice["text"] for choice in found["choices"]] == texts
    sampled = complete(client, prompt="the cat", temperature=0.9, top_p=0.8, seed=5, n=3, max_tokens=10)
    options = {"max_new_tokens": 10, "temperature": 0.9, "top_p": 0.8, "seed": 5, "samples": 3}
    expected = chat_model.generate("the cat", **options)  # type: ignore[arg-type]
    assert [choice["text"] for choice in sampled["choices"]] == expected
    usage = sampled["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_the_space_before_the_first_word_of_a_completion_is_part_of_it(tmp_path: Path) -> None:
    model = decoder("LlamaForCausalLM", vocab_size=600)
    tokenizer = seq2see.load(save(tmp_path, model, llama_bpe(), bos_token="<s>", eos_token="</s>")).tokenizers[1]
    tokens = tuple(tokenizer.encode("the dog"))  # as in SentencePiece, a space belongs to the word after it
    output = Hypothesis(tokens, (0.0,) * len(tokens), 0.0, True)
    for is_chat, text in ((False, " the dog"), (True, "the dog")):
        assert Choice(0, tokenizer, (), is_chat).advance(output, True, False)["text"] == text


def test_chat_and_its_stream_give_the_same_message(client: httpx.Client, chat_model: Model) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    ]
    body = {"messages": messages, "temperature": 0, "max_tokens": 20}
    found = complete(client, "chat/completions", **body)
    text = found["choices"][0]["message"]["content"]
    assert text.strip() == chat_model.chat([("system", "Be kind."), ("user", "Hello")], max_new_tokens=20)
    events = stream(client, "chat/completions", **body, stream_options={"include_usage": True})
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == text
    assert events[-1]["usage"] == found["usage"] and events[-1]["choices"] == []
    assert events[-2]["choices"][0]["finish_reason"] == found["choices"][0]["finish_reason"]


def test_stop_string_ends_the_text_before_it(client: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": "the cat", "temperature": 0, "max_tokens": 40}
    text = complete(client, **body)["choices"][0]["text"]
    stop = text[len(text) // 2 :][:3]
    cut = text[: text.find(stop)]
    choice = complete(client, **body, stop=stop)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (cut, "stop")
    events = stream(client, **body, stop=["never", stop])
    assert "".join(choice["text"] for event in events for choice in event["choices"]) == cut


def test_log_probabilities_belong_to_the_tokens(client: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 5}
    choice = complete(client, "chat/completions", **body, logprobs=True, top_logprobs=3)["choices"][0]
    for token in choice["logprobs"]["content"]:
        best, *others = token["top_logprobs"]
        assert (best["token"], best["logprob"]) == (token["token"], token["logprob"])
        assert len(others) == 2 and best["logprob"] >= others[0]["logprob"] >= others[1]["logprob"]
    events = stream(client, "chat/completions", **body, logprobs=True, top_logprobs=3)
    streamed = [
        token for event in events for each in event["choices"] for token in (each["logprobs"] or {}).get("content", [])
    ]
    assert [each["token"] for each in streamed] == [each["token"] for each in choice["logprobs"]["content"]]
    old = complete(client, prompt="the cat", temperature=0, max_tokens=4, logprobs=2)["choices"][0]["logprobs"]
    assert len(old["tokens"]) == len(old["token_logprobs"]) == len(old["text_offset"]) == 4
    assert all(len(top) <= 2 for top in old["top_logprobs"])


def test_text_offsets_of_an_answer_and_of_a_stream_are_places_in_the_text(client: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": "the cat", "temperature": 1.5, "seed": 3, "max_tokens": 40, "logprobs": 1, "n": 2}
    answer = [[choice] for choice in complete(client, **body)["choices"]]
    chunks = [choice for event in stream(client, **body) for choice in event["choices"]]
    for parts in (*answer, *([each for each in chunks if each["index"] == index] for index in range(2))):
        text = "".join(part["text"] for part in parts)
        tokens, offsets = (
            [each for part in parts if part["logprobs"] for each in part["logprobs"][name]]
            for name in ("tokens", "text_offset")
        )
        assert len(tokens) == len(offsets) and any("\ufffd" in token for token in tokens)  # parts of characters
        assert all("\ufffd" in token or text.startswith(token, at) for token, at in zip(tokens, offsets, strict=True))
        assert offsets[0] == 0 and offsets == sorted(offsets) and offsets[-1] >= len(text) - len(tokens[-1])


def test_embeddings_equal_the_models_own(client: httpx.Client, models: dict[str, Path]) -> None:
    texts = ["the cat sees", "a dog"]
    expected = seq2see.load(models["encoder"]).embed(texts)
    response = client.post("/v1/embeddings", json={"model": "encoder", "input": texts}).json()
    for i, each in enumerate(response["data"]):
        assert each["embedding"] == pytest.approx(expected[i].tolist(), abs=1e-5)
    body = {"model": "encoder", "input": "a dog", "encoding_format": "base64"}
    (encoded,) = client.post("/v1/embeddings", json=body).json()["data"]
    data = b64decode(encoded["embedding"])
    assert struct.unpack(f"<{len(data) // 4}f", data) == pytest.approx(expected[1].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model": "chat", "prompt": "a", "colour": 1}, 400, "unknown_parameter", "colour"),
        ({"model": "chat", "prompt": "a", "temperature": 9}, 400, "invalid_value", "temperature"),
        ({"model": "chat", "prompt": "a", "best_of": 3}, 400, "invalid_value", "best_of"),
        ({"prompt": "a"}, 400, "missing_required_parameter", "model"),
        ({"model": "chatt", "prompt": "a"}, 404, "model_not_found", "model"),
        ({"model": "en-hi", "prompt": "a"}, 404, None, "model"),
        ({"model": "chat", "prompt": "cat " * 400}, 400, "context_length_exceeded", None),
        ({"model": "chat", "prompt": [99999]}, 400, None, None),
    ],
)
def test_invalid_completions_are_answered_as_openai_does(
    client: httpx.Client, body: object, status: int, code: str | None, param: str | None
) -> None:
    details = error(client.post("/v1/completions", json=body), status)
    assert set(details) == {"message", "type", "param", "code"}
    assert (details["type"], details["code"], details["param"]) == ("invalid_request_error", code, param)


def test_error_before_a_stream_has_its_status(client: httpx.Client) -> None:
    response = client.post("/v1/completions", json={"model": "chat", "prompt": "cat " * 400, "stream": True})
    assert error(response, 400)["code"] == "context_length_exceeded"
