"""`seq2see serve`: what clients of LibreTranslate get."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from seq2see.api import Model
from tests.services import GLOSSARY_KEY, KEY, SENTENCES, RunningService, error

pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")


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
        (
            "The manager signed the contract.",
            {"manager": "gérant", "contract": "accord"},
            "gérant .* accord[ .]",
            "contrat",
        ),
    ],
)
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
        (
            {"q": "a", "source": "hi", "target": "en"},
            "English (en) is not available as a target language from Hindi (hi)",
        ),
        ({"q": "a", "source": "en", "target": "hi", "format": "pdf"}, "pdf format is not supported"),
        ({"q": "a", "source": "en", "target": "hi", "alternatives": "x"}, "alternatives parameter is not a number"),
        ({"q": "a", "source": "en", "target": "hi", "alternatives": 11}, "alternatives parameter must be <= 10"),
        ({"q": "a" * 10_001, "source": "en", "target": "hi"}, "request (10001) exceeds text limit (10000)"),
        ({"q": ["a"] * 101, "source": "en", "target": "hi"}, "request (101) exceeds text limit (100)"),
        ({"q": "\ud800", "source": "en", "target": "hi"}, "not valid Unicode"),
        ([], "not a JSON object"),
    ],
)
def test_invalid_translation_requests_are_answered_as_libretranslate_does(
    client: httpx.Client, body: object, message: str
) -> None:
    response = client.post("/translate", content=json.dumps(body), headers={"content-type": "application/json"})
    assert message in error(response, 400)
