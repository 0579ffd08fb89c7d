"""`seq2see serve`: what clients of LibreTranslate and OpenAI get, keys and limits, and faults."""

import asyncio
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import seq2see
from seq2see.api import Model
from seq2see.errors import UserError
from seq2see.server.http.listening import listen
from seq2see.server.service import supervisor
from seq2see.server.service.keys import Client, Keys, RateLimiter, new_key, read_keys
from seq2see.server.service.server import default_workers, parse_models
from seq2see.server.service.supervisor import Supervisor, WorkerDiedError, WorkerOptions
from seq2see.storage.bundled import bundled_model
from tests.browser import NEEDS_BROWSER
from tests.commands import run_command
from tests.models import GRAMMAR_MODEL
from tests.service_fuzz import fuzz
from tests.services import RunningService, running_service, save_models
from tests.waiting import HANG, wait_until

pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")
SENTENCES = [
    "How are you?",
    "I like tea.",
    "The girl reads a book.",
    "He does not go to the market.",
    "We are friends.",
]
LONG = [" ".join(SENTENCES)] * 90  # seconds of work
KEY, LIMITED, GLOSSARY_KEY = "the-key", "limited-key", "glossary-key"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def service(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "keys.toml").write_text(
        f'[[key]]\nname = "acme"\nsha256 = "{_sha256(KEY)}"\n'
        f'[[key]]\nname = "small"\nsha256 = "{_sha256(LIMITED)}"\nrequests_per_minute = 1\nmax_characters = 20\n'
        f'[[key]]\nname = "terms"\nsha256 = "{_sha256(GLOSSARY_KEY)}"\n'
        '[key.glossary.hi]\ntea = "दूध"\nriver = "नदी"\n[key.glossary.fre]\ntea = "lait"\n'
    )
    options = ("--key-file", str(folder / "keys.toml"), "--explain", "--cors", "https://example.org", "--timeout", "30")
    with running_service(folder / "log", {**models, "en-fr": bundled_model("en-fr")}, *options) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[httpx.Client]:
    with service.client(KEY) as client:
        yield client


@pytest.fixture(scope="module")
def bundled() -> Model:
    return seq2see.load(GRAMMAR_MODEL)


@pytest.fixture(scope="module")
def chat_model(models: dict[str, Path]) -> Model:
    return seq2see.load(models["chat"])


def _sha256(key: str) -> str:
    from hashlib import sha256

    return sha256(key.encode()).hexdigest()


def error(response: httpx.Response, status: int) -> Any:
    assert response.status_code == status, response.text
    (name,) = response.json()
    assert name == "error"
    return response.json()["error"]


# LibreTranslate


def test_translations_equal_the_models_own(client: httpx.Client, bundled: Model) -> None:
    text = " ".join(SENTENCES)
    expected = [bundled.translate(each, beam=4) for each in (*SENTENCES, text)]
    as_json = client.post("/translate", json={"q": [*SENTENCES, text], "source": "en", "target": "hi"})
    assert as_json.json() == {"translatedText": expected}
    as_form = client.post("/translate", data={"q": text, "source": "en", "target": "hi", "api_key": KEY})
    assert as_form.json() == {"translatedText": expected[-1]}


@pytest.mark.parametrize("file_name", [None, "q"])  # requests and httpx name a field of `files` unless told otherwise
def test_parameters_of_a_multipart_form(service: RunningService, bundled: Model, file_name: str | None) -> None:
    expected = "\n".join(bundled.translate(SENTENCES[:2], beam=4))
    fields = {"q": "\r\n".join(SENTENCES[:2]), "source": "en", "target": "hi", "api_key": KEY}
    form = {name: (file_name, value.encode()) for name, value in fields.items()}
    with service.client() as anybody:
        assert anybody.post("/translate", files=form).json() == {"translatedText": expected}
        assert anybody.post("/detect", files=form).json()[0]["language"] == "en"
        broken = anybody.post("/translate", content=b"--a", headers={"content-type": "multipart/form-data"})
        assert "boundary" in error(broken, 400)


def test_parameters_in_the_address_and_of_other_json_types(client: httpx.Client, bundled: Model) -> None:
    parameters = {"q": SENTENCES[1], "source": "en", "target": "hi"}
    expected = {"translatedText": bundled.translate(SENTENCES[1], beam=4)}
    assert client.post("/translate", params=parameters).json() == expected
    body, headers = json.dumps(parameters), {"content-type": "Application/vnd.api+JSON; charset=utf-8"}
    assert client.post("/translate", content=body, headers=headers).json() == expected


def test_simultaneous_clients_get_the_same_translations_as_one(service: RunningService, bundled: Model) -> None:
    def translate(number: int) -> str:
        with service.client(KEY) as client:
            body = {"q": SENTENCES[number % len(SENTENCES)], "source": "en", "target": "hi"}
            return str(client.post("/translate", json=body).json()["translatedText"])

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(translate, range(60)))
    expected = bundled.translate(SENTENCES, beam=4)
    assert found == [expected[number % len(SENTENCES)] for number in range(60)]


def test_alternatives_are_other_translations(client: httpx.Client) -> None:
    body = {"q": SENTENCES[2], "source": "en", "target": "hi", "alternatives": 2}
    found = client.post("/translate", json=body).json()
    assert len({found["translatedText"], *found["alternatives"]}) == 3
    assert "alternatives" not in client.post("/translate", json={**body, "alternatives": -1}).json()
    assert client.post("/translate", json={**body, "q": "\n"}).json() == {"translatedText": "\n", "alternatives": []}


def test_suggestions_are_refused_as_by_a_libretranslate_without_them(client: httpx.Client) -> None:
    body = {"q": "I like tea.", "s": "मुझे चाय पसंद है।", "source": "en", "target": "hi"}
    assert error(client.post("/suggest", data=body), 403) == "Suggestions are disabled on this server."


def test_html_keeps_its_markup(client: httpx.Client, bundled: Model) -> None:
    script = '<!-- note --><script>let a = "tea";</script>'
    page = f'<html><body class="a">\n<h1>We are friends.</h1>{script}<p>I like tea.</p></body></html>'
    body = {"q": page, "source": "en", "target": "hi", "format": "html"}
    found = client.post("/translate", json=body).json()["translatedText"]
    assert re.findall("<[^>]*>", found) == re.findall("<[^>]*>", page)
    assert script in found
    for sentence in ("We are friends.", "I like tea."):
        assert bundled.translate(sentence, beam=4) in found
    inline = {**body, "q": 'Two <i>cows</i> are in the <a href="v">village</a>.'}
    found = client.post("/translate", json=inline).json()["translatedText"]
    assert found == 'दो <i>गायें</i> <a href="v">गाँव</a> में हैं।'


def test_terms_of_a_glossary_are_used(service: RunningService, client: httpx.Client) -> None:
    body = {"q": "I like tea. He does not go to the market.", "source": "en", "target": "hi"}
    glossary = {"TEA": "दूध", "market": "स्कूल", "river": "नदी"}
    found = client.post("/translate", json={**body, "glossary": glossary}).json()["translatedText"]
    assert found == "मुझे दूध पसंद है। वह स्कूल नहीं जाता।"
    unknown = client.post("/translate", json={**body, "glossary": {"tea": "नदियाँनदियाँ"}})
    assert "the model cannot write" in error(unknown, 400)
    assert "glossary parameter is not an object" in error(
        client.post("/translate", json={**body, "glossary": [1]}), 400
    )


@pytest.mark.parametrize(
    ("text", "glossary", "terms", "replaced"),
    [
        ("I like tea.", {"tea": "tisane"}, "J'aime .* tisane", "thé"),
        ("The hotel is near the beach.", {"hotel": "auberge"}, "^L'auberge .* plage", "hôtel"),
        ("The manager signed the contract.", {"manager": "gérant", "contract": "accord"}, "gérant .* accord[ .]", "contrat"),
    ],
)  # fmt: skip
def test_a_term_replaces_the_word_that_the_model_would_write(
    client: httpx.Client, text: str, glossary: dict[str, str], terms: str, replaced: str
) -> None:
    body = {"q": text, "source": "en", "target": "fr"}
    assert replaced in client.post("/translate", json=body).json()["translatedText"]
    found = client.post("/translate", json={**body, "glossary": glossary}).json()["translatedText"]
    assert re.search(terms, found) and replaced not in found


def test_glossary_of_a_key_is_for_its_target_language(service: RunningService, client: httpx.Client) -> None:
    body = {"q": "I like tea.", "source": "en", "target": "hi"}
    files = {"file": ("a.txt", "I like tea.")}
    with service.client(GLOSSARY_KEY) as other:
        assert other.post("/translate", json=body).json()["translatedText"] == "मुझे दूध पसंद है।"
        french = {**body, "target": "fr"}
        assert other.post("/translate", json=french).json() == client.post("/translate", json=french).json()
        for form, expected in (({}, "मुझे दूध पसंद है।"), ({"glossary": '{"Tea": "पानी"}'}, "मुझे पानी पसंद है।")):
            answer = other.post("/translate_file", files=files, data={"source": "en", "target": "hi", **form})
            assert other.get(answer.json()["translatedFileUrl"]).text == expected
    assert 'key "terms": no model translates into "fre" of its glossary: did you mean "fr"?' in service.log.read_text()


def test_terms_of_a_request_replace_those_of_its_key(service: RunningService) -> None:
    body = {"q": "I like tea.", "source": "en", "target": "hi", "glossary": {" TEA": "पानी"}}
    with service.client(GLOSSARY_KEY) as client:
        assert client.post("/translate", json=body).json()["translatedText"] == "मुझे पानी पसंद है।"


def test_language_is_detected_among_those_served(client: httpx.Client) -> None:
    hindi = client.post("/detect", data={"q": "यह किताब बहुत अच्छी है"}).json()
    assert {each["language"] for each in hindi} == {"hi", "en", "fr"}
    assert hindi[0]["language"] == "hi" and hindi[0]["confidence"] > 90
    body = {"q": "The girl reads a book in the garden every day.", "source": "auto", "target": "hi"}
    found = client.post("/translate", json=body).json()
    assert found["detectedLanguage"]["language"] == "en"


def test_languages_and_settings(service: RunningService) -> None:
    with service.client() as anybody:
        assert anybody.get("/languages").json() == [
            {"code": "en", "name": "English", "targets": ["en", "fr", "hi"]},
            {"code": "hi", "name": "Hindi", "targets": ["hi"]},
            {"code": "fr", "name": "French", "targets": ["fr"]},
        ]
        settings = anybody.get("/frontend/settings").json()
        assert (
            settings["keyRequired"] and settings["charLimit"] == 10_000 and ".srt" in settings["supportedFilesFormat"]
        )
        assert ".txt" in settings["supportedFilesFormat"]
        assert anybody.get("/health").json() == {"status": "ok"}


def test_document_is_translated_and_downloaded(client: httpx.Client, bundled: Model) -> None:
    subtitles = "1\n00:00:01,000 --> 00:00:02,000\nWe are friends.\n"
    files = {"file": ("film.srt", subtitles)}
    answer = client.post("/translate_file", files=files, data={"source": "en", "target": "hi"})
    found = client.get(answer.json()["translatedFileUrl"])
    assert found.text == subtitles.replace("We are friends.", bundled.translate("We are friends.", beam=4))
    assert "film_hi.srt" in found.headers["content-disposition"]
    named = client.post("/translate_file", files={"file": ("चाय.txt", "")}, data={"source": "auto", "target": "hi"})
    disposition = client.get(named.json()["translatedFileUrl"]).headers["content-disposition"]
    assert disposition == "attachment; filename=\"____hi.txt\"; filename*=UTF-8''%E0%A4%9A%E0%A4%BE%E0%A4%AF_hi.txt"
    refused = client.post("/translate_file", files={"file": ("a.exe", "x")}, data={"source": "en", "target": "hi"})
    assert "file format not supported" in error(refused, 400)


def test_lines_of_a_text_file_stay_where_they_are(client: httpx.Client, bundled: Model) -> None:
    text = "\ufeffWe are friends. I like tea.\r\n\r\n \n\tHow are you?\n\nI like tea."
    files = {"file": ("a.TXT", text.encode())}
    answer = client.post("/translate_file", files=files, data={"source": "en", "target": "hi"})
    for sentence in ("We are friends.", "I like tea.", "How are you?"):
        text = text.replace(sentence, bundled.translate(sentence, beam=4))
    assert client.get(answer.json()["translatedFileUrl"]).content == text.encode()


def test_language_of_a_file_is_that_of_its_text(client: httpx.Client, bundled: Model) -> None:
    def translate(name: str, text: str) -> httpx.Response:
        return client.post("/translate_file", files={"file": (name, text)}, data={"source": "auto", "target": "hi"})

    comment = "<!-- Le petit chat est sur la table et il mange le poisson que la fille lui a donné. -->"
    page = f"{comment}<p>The girl reads a book.</p>"
    found = client.get(translate("a.html", page).json()["translatedFileUrl"]).text
    assert found == page.replace("The girl reads a book.", bundled.translate("The girl reads a book.", beam=4))
    french = translate("a.txt", "Le petit chat est sur la table et il mange le poisson.")
    assert error(french, 400) == "Hindi (hi) is not available as a target language from French (fr)"
    assert "a.po, line 1: not PO" in error(translate("a.po", "nonsense"), 400)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"source": "en", "target": "hi"}, "Invalid request: missing q parameter"),
        ({"q": "a", "target": "hi"}, "Invalid request: missing source parameter"),
        ({"q": "a", "source": "en"}, "Invalid request: missing target parameter"),
        ({"q": "a", "source": "xx", "target": "hi"}, "xx is not supported"),
        ({"q": "a", "source": "hi", "target": "en"}, "English (en) is not available as a target language from Hindi (hi)"),
        ({"q": "a", "source": "en", "target": "hi", "format": "pdf"}, "pdf format is not supported"),
        ({"q": "a", "source": "en", "target": "hi", "alternatives": "x"}, "alternatives parameter is not a number"),
        ({"q": "a", "source": "en", "target": "hi", "alternatives": 11}, "alternatives parameter must be <= 10"),
        ({"q": "a" * 10_001, "source": "en", "target": "hi"}, "request (10001) exceeds text limit (10000)"),
        ({"q": ["a"] * 101, "source": "en", "target": "hi"}, "request (101) exceeds text limit (100)"),
        ({"q": "\ud800", "source": "en", "target": "hi"}, "not valid Unicode"),
        ([], "not a JSON object"),
    ],
)  # fmt: skip
def test_invalid_translation_requests_are_answered_as_libretranslate_does(
    client: httpx.Client, body: object, message: str
) -> None:
    response = client.post("/translate", content=json.dumps(body), headers={"content-type": "application/json"})
    assert message in error(response, 400)


# OpenAI


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


# Keys and limits


def test_key_is_required_and_compared(service: RunningService) -> None:
    with service.client() as anybody, service.client("wrong") as stranger:
        body = {"q": "I like tea.", "source": "en", "target": "hi"}
        assert "API key is required" in error(anybody.post("/translate", json=body), 401)
        assert error(stranger.post("/translate", json=body), 403) == "Invalid API key"
        assert error(stranger.get("/v1/models"), 401)["code"] == "invalid_api_key"
        for path in ("/metrics", "/api/models", "/"):
            assert anybody.get(path).status_code == 401, path
        assert anybody.get("/", auth=("anyone", KEY)).status_code == 200


@pytest.mark.skipif(any(mark.args[0] for mark in NEEDS_BROWSER), reason="no browser, or the page is not built")
def test_page_behind_a_key_works_in_a_browser(service: RunningService, browser: Any, tmp_path: Path) -> None:
    folder = Path(os.environ.get("SEQ2SEE_SCREENSHOTS") or tmp_path)
    stranger = browser.new_context()
    assert stranger.request.get(service.url).status == 401
    context = browser.new_context(
        http_credentials={"username": "anyone", "password": KEY}, viewport={"width": 1280, "height": 800}
    )
    page = context.new_page()
    page.goto(f"{service.url}/#/translate?text=How+are+you%3F")
    page.locator("[data-output='आप कैसे हैं?']").wait_for()
    page.screenshot(path=folder / "behind-a-key.png")
    context.close()
    stranger.close()


def test_limits_of_a_key(service: RunningService) -> None:
    with service.client(LIMITED) as client:
        body = {"source": "en", "target": "hi"}
        assert "exceeds text limit (20)" in error(client.post("/translate", json={**body, "q": "a" * 21}), 400)
        assert client.post("/translate", json={**body, "q": "We are friends."}).status_code == 200
        refused = client.post("/translate", json={**body, "q": "We are friends."})
        assert "Slowdown" in error(refused, 429)
        assert 1 <= int(refused.headers["retry-after"]) <= 60


def test_rate_limit_refills_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    limiter, client = RateLimiter(), Client("a", requests_per_minute=2)
    assert [limiter.wait(client) for _ in range(3)] == [0, 0, 30]
    clock[0] = 30
    assert [limiter.wait(client) for _ in range(2)] == [0, 30]
    assert limiter.wait(Client("b")) == 0


def test_key_file_is_checked(tmp_path: Path) -> None:
    key, entry = new_key("acme")
    file = tmp_path / "keys.toml"
    file.write_text(entry)
    keys = read_keys(file)
    assert keys.find(key) == Client("acme") and keys.find(key + "x") is None and isinstance(keys, Keys)
    for text, problem in {
        "": "has no keys",
        "[[key]]\nname = 'a'": "sha256",
        f"{entry}{entry}": "no other key has",
        f"{entry}colour = 1": 'unknown field "colour"',
        entry.replace("per_minute = 0", "per_minute = -1"): "is not a number",
        f'{entry}glossary = {{ tea = "दूध" }}': r'write \[key.glossary.hi\] and below it "tea" = "दूध"$',
        f"{entry}glossary = 1": "is not a table: write",
        f"{entry}[key.glossary.hi]\ntea = 1": "glossary.hi is not a table of terms",
        "[[": "cannot read",
    }.items():
        file.write_text(text)
        with pytest.raises(UserError, match=problem):
            read_keys(file)


def test_public_address_requires_keys() -> None:
    result = run_command("serve", "--host", "0.0.0.0")
    assert result.returncode == 2 and "--key-file" in result.stderr


def test_answers_are_sent_without_delay() -> None:
    """asyncio sets TCP_NODELAY only on sockets whose protocol is named; without it, every answer would take 40 ms more."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_only_listed_origins_get_cors_headers(client: httpx.Client) -> None:
    for origin, allowed in (("https://example.org", "https://example.org"), ("https://evil.example", None)):
        headers = {"origin": origin, "access-control-request-method": "POST"}
        response = client.options("/translate", headers=headers)
        assert response.headers.get("access-control-allow-origin") == allowed


def test_a_local_server_without_keys_answers_its_own_name_and_the_listed_origins_only(
    models: dict[str, Path], tmp_path: Path
) -> None:
    options = ("--cors", "https://example.org")
    with (
        running_service(tmp_path / "log", {"en-hi": models["en-hi"]}, *options) as service,
        service.client() as client,
    ):
        for headers, status in (
            ({"origin": "https://example.org", "sec-fetch-site": "cross-site"}, 200),
            ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
            ({"host": "evil.example"}, 421),
            ({"host": "evil.example", "origin": "https://example.org"}, 421),
            ({}, 200),
        ):
            assert client.post("/detect", data={"q": "hello"}, headers=headers).status_code == status, headers


def test_metrics_count_requests_and_tokens(client: httpx.Client) -> None:
    client.post("/translate", json={"q": "I like tea.", "source": "en", "target": "hi"})
    text = client.get("/metrics").text
    assert re.search(r'seq2see_requests_total\{path="/translate",status="200"\} [1-9]', text)
    assert re.search(r'seq2see_tokens_total\{kind="generated",model="en-hi"\} [1-9]', text)
    assert re.search(r'seq2see_worker_memory_bytes\{worker="0"\} [1-9]', text)
    assert 'seq2see_batch_rows{model="en-hi"}' in text


# Connections and faults


def test_oversized_body_is_refused(client: httpx.Client) -> None:
    response = client.post("/translate", content=b" " * ((8 << 20) + 1))
    assert "the maximum is 8,388,608" in error(response, 413)


def test_request_of_a_client_that_leaves_is_cancelled(service: RunningService, client: httpx.Client) -> None:
    def decoding() -> float:
        found = re.search(r'seq2see_sentences_decoding\{model="chat"\} (\S+)', client.get("/metrics").text)
        assert found
        return float(found[1])

    body = {"model": "chat", "prompt": "the cat", "max_tokens": 100, "n": 16, "logprobs": 5, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_lines())
    wait_until(lambda: decoding() == 0)


def test_dead_worker_is_replaced_and_its_requests_are_answered_503(models: dict[str, Path], tmp_path: Path) -> None:
    with running_service(tmp_path / "log", {"en-hi": models["en-hi"]}) as service, service.client() as client:
        body = {"q": LONG, "source": "en", "target": "hi"}

        def translate(number: int) -> httpx.Response:
            with service.client() as own:
                return own.post("/translate", json=body)

        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(translate, number) for number in range(8)]
            wait_until(lambda: _running(client) == 8 or running[0].done())
            (worker,) = _children(service.process.pid)
            os.kill(worker, signal.SIGKILL)
            statuses = {each.result(HANG).status_code for each in running}
        assert statuses <= {200, 503} and 503 in statuses
        wait_until(lambda: client.get("/health").status_code == 200 and _children(service.process.pid) != [worker])
        assert client.post("/translate", json=body).status_code == 200
        assert "seq2see_worker_restarts 1" in client.get("/metrics").text


def test_a_worker_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PING_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "SILENT_SECONDS", HANG)

    async def stop_a_worker() -> None:
        workers = Supervisor(WorkerOptions({"en-hi": str(GRAMMAR_MODEL)}, "cpu", "float32"))
        await workers.start()
        (first,) = workers.workers
        os.kill(first.process.pid, signal.SIGSTOP)
        asking = asyncio.create_task(workers.call({"operation": "statistics"}))
        await asyncio.sleep(1)
        assert not asking.done()
        monkeypatch.setattr(supervisor, "SILENT_SECONDS", 0.5)
        with pytest.raises(WorkerDiedError):
            await asking
        monkeypatch.setattr(supervisor, "SILENT_SECONDS", HANG)
        while not workers.workers:
            await asyncio.sleep(0.01)
        assert await workers.call({"operation": "statistics"})
        assert workers.restarts == 1
        await workers.stop()

    with ThreadPoolExecutor(1) as pool:  # the browser of other tests has an event loop in this thread
        pool.submit(lambda: asyncio.run(stop_a_worker())).result()


def test_reload_drops_no_request(models: dict[str, Path], tmp_path: Path) -> None:
    with running_service(tmp_path / "log", {"en-hi": models["en-hi"]}) as service, service.client() as client:
        (old,) = _children(service.process.pid)
        statuses, stop = set(), threading.Event()

        def translate() -> None:
            with service.client() as own:
                while not stop.is_set():
                    statuses.add(
                        own.post("/translate", json={"q": "I like tea.", "source": "en", "target": "hi"}).status_code
                    )

        with ThreadPoolExecutor(3) as pool:
            for _ in range(3):
                pool.submit(translate)
            service.process.send_signal(signal.SIGHUP)
            wait_until(lambda: _children(service.process.pid) and old not in _children(service.process.pid))
            stop.set()
        assert statuses == {200}
        assert client.get("/health").status_code == 200


def test_worker_whose_decoding_thread_fails_ends() -> None:
    broken = "from seq2see.decode.scheduler import Scheduler; Scheduler._turn = lambda self: 1 / 0; "
    front, connection = socket.socketpair()
    options = {"models": {"en-hi": str(GRAMMAR_MODEL)}, "device": "cpu", "precision": "float32"}
    command = [sys.executable, "-c", broken + "from seq2see.server.service.worker import main; main()"]
    arguments = [str(connection.fileno()), json.dumps(options)]
    with subprocess.Popen(
        [*command, *arguments], pass_fds=[connection.fileno()], stderr=subprocess.PIPE, text=True
    ) as worker:
        connection.close()
        request = {"operation": "translate", "model": "en-hi", "texts": ["I run."], "format": "text", "beam": 1}
        front.sendall(json.dumps({"id": 1, "glossary": {}, "nbest": 1, **request}).encode() + b"\n")
        assert "ZeroDivisionError" in worker.communicate(timeout=HANG)[1]
    assert worker.returncode == 1
    front.close()


def test_stopping_finishes_what_runs_and_ends_the_workers(models: dict[str, Path], tmp_path: Path) -> None:
    with running_service(tmp_path / "log", {"en-hi": models["en-hi"]}) as service:
        (worker,) = _children(service.process.pid)
        with ThreadPoolExecutor(1) as pool, service.client() as client:
            body = {"q": LONG, "source": "en", "target": "hi"}
            running = pool.submit(client.post, "/translate", json=body)
            with service.client() as other:
                wait_until(lambda: _running(other) == 1 or running.done())
            service.process.send_signal(signal.SIGTERM)
            assert running.result(HANG).status_code == 200
        assert service.process.wait(HANG) == 0
        wait_until(lambda: not Path(f"/proc/{worker}").exists())
    log = service.log.read_text()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"time", "client", "status", "milliseconds", "tokens"} <= set(lines[0])
    assert "tea" not in log and "चाय" not in log


def _running(client: httpx.Client) -> float:
    found = re.search(r"^seq2see_requests_running (\S+)", client.get("/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--model", "bundled"], "write NAME=DIRECTORY"),
        (["--model", "en-hi=/nowhere"], "does not exist"),
        (["--model", "en-hi={empty}"], "config.toml"),
        (["--model", "translator={bundled}"], "call it by its languages"),
    ],
)
def test_unusable_models_are_reported_at_the_start(arguments: list[str], problem: str, tmp_path: Path) -> None:
    filled = [each.format(empty=tmp_path, bundled=GRAMMAR_MODEL) for each in arguments]
    result = run_command("serve", "--port", "0", *filled)
    assert result.returncode in (1, 2) and problem in result.stderr


# Anything at all


def test_by_default_a_cpu_gets_a_worker_per_core_unless_the_models_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, file = tmp_path / "model.safetensors", tmp_path / "model.gguf"
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    for size, count in ((100 << 20, 3), (400 << 20, 2), (3 << 30, 1)):
        for path in (weights, file):
            with path.open("wb") as sparse:
                sparse.truncate(size)
        assert default_workers({"en-hi": str(tmp_path)}, "cpu") == default_workers({"chat": str(file)}, "cpu") == count
        assert default_workers({"en-hi": str(tmp_path)}, "cuda") == 1
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert default_workers({"en-hi": str(GRAMMAR_MODEL)}, "cpu") == 4


def test_no_request_makes_the_server_fail(service: RunningService) -> None:
    statuses = fuzz(service, KEY, cases=6)
    assert not any(status >= 500 for status in statuses), statuses


def test_without_a_model_all_bundled_ones_but_that_of_the_lessons_are_served() -> None:
    assert list(parse_models([])) == ["en-hi", "en-fr", "books"]
