"""LibreTranslate's API: its endpoints, parameters, messages and status codes, for the clients that know them.

Parameters come as JSON or as a form, the key as `api_key` or as a bearer token. An error is {"error": message}.
"""

import asyncio
import json
import secrets
from base64 import b64decode, b64encode
from collections import OrderedDict
from pathlib import PurePath
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile

from seq2see.explore.workers import ApiError
from seq2see.service.languages import Detector, language_name
from seq2see.service.service import Service
from seq2see.translate.suffixes import DOCUMENT_SUFFIXES

MAX_ALTERNATIVES = 10
GLOSSARY_BEAM = 4  # at least: terms are found by a beam search
MAX_FILES = 64  # translated files that wait for their download
Parameters = dict[str, Any]


class TranslateParameters(BaseModel):
    """Parameters of `/translate`."""

    q: str | list[str] = Field(description="The text or texts to translate.", examples=["How are you?"])
    source: str = Field(description="A language code, or auto.", examples=["en"])
    target: str = Field(examples=["hi"])
    format: str = Field("text", description="text or html; HTML keeps its markup.")
    alternatives: int = Field(0, ge=0, le=MAX_ALTERNATIVES, description="Number of alternative translations.")
    glossary: dict[str, str] = Field({}, description="Terms and their translations; an extension of the API.")
    api_key: str = ""


class DetectParameters(BaseModel):
    """Parameters of `/detect`."""

    q: str
    api_key: str = ""


class Error(BaseModel):
    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error}
    for status in (400, 401, 403, 404, 405, 408, 413, 429, 500, 503, 504)
}  # fmt: skip


def error_response(error: ApiError) -> Response:
    text = f"{error.message}: {error.hint}" if error.hint else error.message
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return JSONResponse({"error": text}, error.status, headers)


def create_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["LibreTranslate"], responses=ERRORS)
    detector = Detector()
    files: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    @router.post("/translate", openapi_extra=_body(TranslateParameters))
    async def translate(request: Request) -> Response:
        """Translates a text or a list of texts."""
        parameters = await _read(request)
        client = service.authenticate(request, _text(parameters, "api_key"))
        texts, source, target = _texts(parameters), _required(parameters, "source"), _required(parameters, "target")
        if len(texts) > service.settings.max_texts:
            limit = service.settings.max_texts
            raise ApiError(400, f"Invalid request: request ({len(texts)}) exceeds text limit ({limit})", "", "q")
        format = _text(parameters, "format") or "text"
        if format not in ("text", "html"):
            raise ApiError(400, f"{format[:80]} format is not supported", "", "format")
        alternatives = _alternatives(parameters)
        with service.admit(client, sum(map(len, texts))):
            detected = await asyncio.to_thread(detector.detect, texts, _codes(service)) if source == "auto" else None
            sources = [each["language"] for each in detected] if detected else [source] * len(texts)
            models = [_model(service, each, target) for each in sources]
            glossary = {**client.glossary, **_glossary(parameters)}
            translations: list[list[str]] = [[text] for text in texts]
            for model in dict.fromkeys(filter(None, models)):
                index = [i for i, each in enumerate(models) if each == model]
                beam = max(service.settings.beam, alternatives + 1, GLOSSARY_BEAM if glossary else 1)
                message = {
                    "operation": "translate", "model": model, "texts": [texts[i] for i in index], "format": format,
                    "beam": beam, "nbest": alternatives + 1, "glossary": glossary,
                }  # fmt: skip
                result = await service.call(request, client, message)
                for i, nbest in zip(index, result["translations"], strict=True):
                    translations[i] = nbest
        batch = isinstance(parameters["q"], list)

        def answer(values: list[Any]) -> Any:
            return values if batch else values[0]

        body = {"translatedText": answer([nbest[0] for nbest in translations])}
        if detected:
            body["detectedLanguage"] = answer(detected)
        if alternatives:
            body["alternatives"] = answer([list(dict.fromkeys(nbest[1:])) for nbest in translations])
        return JSONResponse(body)

    @router.post("/detect", openapi_extra=_body(DetectParameters))
    async def detect(request: Request) -> Response:
        """Detects the language of a text, among the languages of the models."""
        parameters = await _read(request)
        client = service.authenticate(request, _text(parameters, "api_key"))
        texts = _texts(parameters)
        with service.admit(client, sum(map(len, texts))):
            return JSONResponse(await asyncio.to_thread(detector.candidates, "\n".join(texts), _codes(service)))

    @router.get("/languages")
    async def languages() -> Response:
        """Lists the languages, each with its targets."""
        codes = dict.fromkeys(code for pair in service.pairs for code in pair)
        return JSONResponse(
            [
                {
                    "code": code, "name": language_name(code),
                    "targets": sorted({code, *(target for source, target in service.pairs if source == code)}),
                }
                for code in codes
            ]
        )  # fmt: skip

    @router.post(
        "/translate_file",
        openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object"}}}}},
    )
    async def translate_file(request: Request) -> Response:
        """Translates a document (multipart: file, source, target); returns the URL of the result."""
        if "multipart/form-data" not in request.headers.get("content-type", ""):
            raise ApiError(400, "Invalid request: missing file parameter", "", "file")
        async with request.form(max_files=1, max_fields=10) as form:
            client = service.authenticate(request, _text(dict(form), "api_key"))
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise ApiError(400, "Invalid request: missing file parameter", "", "file")
            source, target = _required(dict(form), "source"), _required(dict(form), "target")
            name = PurePath(file.filename or "").name
            if not name:
                raise ApiError(400, "Invalid request: empty file", "", "file")
            if PurePath(name).suffix.lower() not in DOCUMENT_SUFFIXES:
                raise ApiError(400, "Invalid request: file format not supported", ", ".join(DOCUMENT_SUFFIXES), "file")
            content = await file.read()
        model = _model(service, source, target)
        with service.admit(client, len(content.decode(errors="replace"))):
            if model is not None:
                message = {
                    "operation": "document", "model": model, "name": name, "glossary": client.glossary,
                    "beam": max(service.settings.beam, GLOSSARY_BEAM if client.glossary else 1),
                    "content": b64encode(content).decode(),
                }  # fmt: skip
                content = b64decode((await service.call(request, client, message))["content"])
        token = secrets.token_urlsafe(24)
        files[token] = (f"{PurePath(name).stem}_{target}{PurePath(name).suffix}", content)
        while len(files) > MAX_FILES:
            files.popitem(last=False)
        return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", token=token))})

    @router.get("/download_file/{token}", response_class=Response)
    async def download_file(token: str) -> Response:
        """Returns a translated document."""
        if token not in files:
            raise ApiError(404, "file not found: it was replaced by newer ones", "translate it again")
        name, content = files[token]
        quoted = name.encode("ascii", "replace").decode().replace('"', "").replace("\\", "")
        headers = {"content-disposition": f'attachment; filename="{quoted}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    @router.get("/frontend/settings")
    async def settings() -> Response:
        """Returns what a front end needs to know."""
        source, target = next(iter(service.pairs), ("en", "en"))
        return JSONResponse(
            {
                "charLimit": service.settings.max_characters,
                "frontendTimeout": 500,
                "apiKeys": service.keys is not None,
                "keyRequired": service.keys is not None,
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": list(DOCUMENT_SUFFIXES),
                "language": {
                    "source": {"code": source, "name": language_name(source)},
                    "target": {"code": target, "name": language_name(target)},
                },
            }
        )

    return router


def _codes(service: Service) -> list[str]:
    codes = list(dict.fromkeys(code for pair in service.pairs for code in pair))
    if not codes:
        raise ApiError(400, "this server has no translators", "", "source")
    return codes


def _model(service: Service, source: str, target: str) -> str | None:
    """Returns the model of a pair of languages; None if both are the same."""
    pairs = service.pairs
    known = _codes(service)
    for code in (source, target):
        if code not in known:
            raise ApiError(400, f"{code[:80]} is not supported", "", "source" if code == source else "target")
    if source == target:
        return None
    if (source, target) not in pairs:
        raise ApiError(
            400, f"{language_name(target)} ({target}) is not available as a target language from {language_name(source)} "
            f"({source})", "", "target",
        )  # fmt: skip
    return pairs[source, target]


async def _read(request: Request) -> Parameters:
    """Returns the parameters of a request, from JSON or a form."""
    body = await request.body()
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        try:
            fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)
        except ValueError as error:
            raise ApiError(400, f"Invalid request: {error}", "") from error
        return {name: "\n".join(value.splitlines()) if name == "q" else value for name, value in fields}
    try:
        parameters = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "Invalid request: invalid JSON", "") from error
    if not isinstance(parameters, dict):
        raise ApiError(400, "Invalid request: the body is not a JSON object", "")
    return parameters


def _text(parameters: Parameters, name: str) -> str:
    value = parameters.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(400, f"Invalid request: {name} parameter is not a string", "", name)
    return _valid(value or "", name)


def _valid(text: str, name: str) -> str:
    """A lone surrogate, which JSON can express, is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ApiError(400, f"Invalid request: {name} parameter is not valid Unicode", "", name) from error
    return text


def _required(parameters: Parameters, name: str) -> str:
    value = _text(parameters, name)
    if not value:
        raise ApiError(400, f"Invalid request: missing {name} parameter", "", name)
    return value


def _texts(parameters: Parameters) -> list[str]:
    q = parameters.get("q")
    if not q:
        raise ApiError(400, "Invalid request: missing q parameter", "", "q")
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "Invalid request: q parameter is not a string or a list of strings", "", "q")
    return [_valid(text, "q") for text in texts]


def _alternatives(parameters: Parameters) -> int:
    value = parameters.get("alternatives") or 0
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ApiError(400, "Invalid request: alternatives parameter is not a number", "", "alternatives") from error
    if not 0 <= count <= MAX_ALTERNATIVES:
        message = f"Invalid request: alternatives parameter must be between 0 and {MAX_ALTERNATIVES}"
        raise ApiError(400, message, "", "alternatives")
    return count


def _glossary(parameters: Parameters) -> dict[str, str]:
    value = parameters.get("glossary") or {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, dict) or not all(
        isinstance(each, str) and each.strip() for pair in value.items() for each in pair
    ):
        raise ApiError(
            400, "Invalid request: glossary parameter is not an object of terms and translations", "", "glossary"
        )
    return {_valid(term, "glossary"): _valid(translation, "glossary") for term, translation in value.items()}


def _body(parameters: type[BaseModel]) -> dict[str, Any]:
    """Documents the parameters, which are read by hand because they may be JSON or a form."""
    schema = parameters.model_json_schema()
    content = {"application/json": {"schema": schema}, "application/x-www-form-urlencoded": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}
