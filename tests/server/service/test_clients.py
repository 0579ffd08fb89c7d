"""The clients that others publish, against a running service: LibreTranslate's and OpenAI's."""

from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

import seq2see
from seq2see.server.service.keys import new_key
from tests.models import GRAMMAR_MODEL
from tests.services import RunningService, running_service, save_models

pytestmark = pytest.mark.extras
openai = pytest.importorskip("openai", reason="the extra `extras` is not installed")
libretranslatepy = pytest.importorskip("libretranslatepy", reason="the extra `extras` is not installed")
pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningService, str, dict[str, Path]]]:
    folder = tmp_path_factory.mktemp("service")
    key, entry = new_key("acme")
    (folder / "keys.toml").write_text(entry)
    models = save_models(folder)
    with running_service(folder / "log", models, "--key-file", str(folder / "keys.toml")) as running:
        yield running, key, models


def test_libretranslates_own_client(service: tuple[RunningService, str, dict[str, Path]]) -> None:
    running, key, _ = service
    client = libretranslatepy.LibreTranslateAPI(running.url, key)
    expected = seq2see.load(GRAMMAR_MODEL).translate("How are you? I like tea.", beam=4)
    assert client.translate("How are you? I like tea.", "en", "hi") == expected
    assert client.detect("यह किताब बहुत अच्छी है")[0]["language"] == "hi"
    assert {language["code"] for language in client.languages()} == {"en", "hi"}
    with pytest.raises(HTTPError, match="403"):
        libretranslatepy.LibreTranslateAPI(running.url, "wrong").translate("How are you?", "en", "hi")


def test_openais_own_client(service: tuple[RunningService, str, dict[str, Path]]) -> None:
    running, key, models = service
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0)
    assert [model.id for model in client.models.list()] == ["en-hi", "chat", "encoder"]
    assert client.models.retrieve("chat").owned_by == "seq2see"

    chat = client.chat.completions.create(model="chat", messages=MESSAGES, temperature=0, max_tokens=10)
    text = chat.choices[0].message.content
    chunks = client.chat.completions.create(
        model="chat",
        messages=MESSAGES,
        temperature=0,
        max_tokens=10,
        stream=True,
        stream_options={"include_usage": True},
    )
    *pieces, last = list(chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == text
    assert last.usage.completion_tokens == chat.usage.completion_tokens

    options = {
        "model": "chat",
        "prompt": "the cat",
        "temperature": 0.8,
        "top_p": 0.9,
        "seed": 7,
        "n": 2,
        "max_tokens": 8,
    }
    completion = client.completions.create(**options, logprobs=3)
    again = client.completions.create(**options)
    assert [choice.text for choice in completion.choices] == [choice.text for choice in again.choices]
    assert len(completion.choices[0].logprobs.tokens) <= 8

    vectors = client.embeddings.create(model="encoder", input=["the cat", "a dog"])
    expected = seq2see.load(models["encoder"]).embed(["the cat", "a dog"])
    assert vectors.data[1].embedding == pytest.approx(expected[1].tolist(), abs=1e-5)


def test_openais_client_recognises_the_errors(service: tuple[RunningService, str, dict[str, Path]]) -> None:
    running, key, _ = service
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0)
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="nothing", prompt="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as unknown:
        client.completions.create(model="chat", prompt="a", extra_body={"colour": 1})
    assert (unknown.value.code, unknown.value.param) == ("unknown_parameter", "colour")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="wrong", max_retries=0).models.list()
