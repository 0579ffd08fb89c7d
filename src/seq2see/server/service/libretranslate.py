"""LibreTranslate's API: its endpoints, parameters, messages and status codes, for the clients that know them.

Parameters come as JSON, or as a form (urlencoded or multipart) and in the query string, the key as `api_key` or as a bearer
token. An error is {"error": message}.
"""

import asyncio
import re
import secrets
from base64 import b64decode, b64encode
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from seq2see.errors import UserError
from seq2see.formats.documents import source_text
from seq2see.server.http.errors import ApiError
from seq2see.server.service.keys import Client
from seq2see.server.service.languages import language_name
from seq2see.server.service.libretranslate_parameters import (
    FILE_SUFFIXES,
    DetectBody,
    FileBody,
    Glossary,
    TranslateBody,
    Upload,
    check,
    describe_body,
    invalid,
    read_parameters,
)
from seq2see.server.service.service import Service, ServiceOf

MAX_FILES = 64  # translated files that wait for their download
Body = TypeVar("Body", bound=BaseModel)


class Error(BaseModel):
    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error} for status in (400, 401, 403, 404, 405, 408, 413, 429, 500, 503, 504)
}
router = APIRouter(tags=["LibreTranslate"], responses=ERRORS)


def error_response(error: ApiError) -> Response:
    text = f"{error.message}: {error.hint}" if error.hint else error.message
    return JSONResponse({"error": text}, error.status, error.headers)


async def _receive(request: Request, service: Service, kind: type[Body]) -> tuple[Client, Body]:
    """Returns who sends a request, and its parameters."""
    parameters = await read_parameters(request)
    key = parameters.get("api_key")
    client = service.authenticate(request, key if isinstance(key, str) else None)
    body: Body = await request.state.body_pool.parse(check, kind, parameters)
    return client, body


@router.post("/translate", openapi_extra=describe_body(TranslateBody))
async def translate(request: Request, service: ServiceOf) -> Response:
    """Translates a text or a list of texts."""
    client, body = await _receive(request, service, TranslateBody)
    texts = [body.q] if isinstance(body.q, str) else body.q
    limit = service.settings.max_texts
    if len(texts) > limit:
        raise invalid(f"request ({len(texts)}) exceeds text limit ({limit})", "q")
    if body.format not in ("text", "html"):
        raise ApiError(400, f"{body.format[:80]} format is not supported", location="format")
    with service.admit(client, sum(map(len, texts))):
        detected = None
        if body.source == "auto":
            detected = await asyncio.to_thread(service.detector.detect, texts, _codes(service))
        sources = [each["language"] for each in detected] if detected else [body.source] * len(texts)
        translations = await _translate_all(request, service, client, body, list(zip(texts, sources, strict=True)))

    def answer(values: list[Any]) -> Any:
        return values[0] if isinstance(body.q, str) else values

    result = {"translatedText": answer([nbest[0] for nbest in translations])}
    if detected:
        result["detectedLanguage"] = answer(detected)
    if body.alternatives > 0:
        result["alternatives"] = answer([_others(nbest) for nbest in translations])
    return JSONResponse(result)


async def _translate_all(
    request: Request, service: Service, client: Client, body: TranslateBody, texts: list[tuple[str, str]]
) -> list[list[str]]:
    """Returns the n best translations of each text; `texts` come with their languages."""
    models = [_model(service, source, body.target) for _, source in texts]
    nbest = 1 + max(body.alternatives, 0)
    common = {
        "operation": "translate",
        "format": body.format,
        "beam": max(service.settings.beam, nbest),
        "nbest": nbest,
        "glossary": _glossary(client, body),
    }
    translations = [[text] for text, _ in texts]
    for model in dict.fromkeys(filter(None, models)):
        index = [i for i, each in enumerate(models) if each == model]
        message = {**common, "model": model, "texts": [texts[i][0] for i in index]}
        result = await service.call(request, client, message)
        for i, found in zip(index, result["translations"], strict=True):
            translations[i] = found
    return translations


@router.post("/detect", openapi_extra=describe_body(DetectBody))
async def detect(request: Request, service: ServiceOf) -> Response:
    """Detects the language of a text, among the languages of the models."""
    client, body = await _receive(request, service, DetectBody)
    text = body.q if isinstance(body.q, str) else "\n".join(body.q)
    with service.admit(client, len(text)):
        return JSONResponse(await asyncio.to_thread(service.detector.candidates, text, _codes(service)))


@router.get("/languages")
async def languages(service: ServiceOf) -> Response:
    """Lists the languages, each with its targets."""
    codes = dict.fromkeys(code for pair in service.pairs for code in pair)
    targets = {code: {code, *(target for source, target in service.pairs if source == code)} for code in codes}
    return JSONResponse([{**_language(code), "targets": sorted(targets[code])} for code in codes])


@router.post("/translate_file", openapi_extra=describe_body(FileBody, ("multipart/form-data",)))
async def translate_file(request: Request, service: ServiceOf) -> Response:
    """Translates a file; returns the URL of the result."""
    client, body = await _receive(request, service, FileBody)
    file, source, content = body.file, body.source, body.file.content
    if not file.path.name:
        raise invalid("empty file", "file")
    if file.path.suffix.lower() not in FILE_SUFFIXES:
        raise invalid("file format not supported", "file", ", ".join(FILE_SUFFIXES))
    with service.admit(client, len(file.text)):
        if source == "auto":
            source = await asyncio.to_thread(_detect_in_file, file, service)
        model = _model(service, source, body.target)
        if model is not None:
            message = {
                "operation": "document",
                "model": model,
                "name": file.path.name,
                "beam": service.settings.beam,
                "glossary": _glossary(client, body),
                "content": b64encode(content).decode(),
            }
            content = b64decode((await service.call(request, client, message))["content"])
    token = secrets.token_urlsafe(24)
    service.files[token] = (f"{file.path.stem}_{body.target}{file.path.suffix}", content)
    while len(service.files) > MAX_FILES:
        service.files.popitem(last=False)
    return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", token=token))})


@router.get("/download_file/{token}", response_class=Response)
async def download_file(token: str, service: ServiceOf) -> Response:
    """Returns a translated document."""
    if token not in service.files:
        raise ApiError(404, "file not found: it was replaced by newer ones", "translate it again")
    name, content = service.files[token]
    plain = re.sub(r'[^ -~]|["\\]', "_", name)
    headers = {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"}
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.get("/frontend/settings")
async def settings(service: ServiceOf) -> Response:
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
            "supportedFilesFormat": list(FILE_SUFFIXES),
            "language": {"source": _language(source), "target": _language(target)},
        }
    )


@router.post("/suggest")
async def suggest() -> Response:
    """Refuses better translations: nothing would use them."""
    raise ApiError(403, "Suggestions are disabled on this server.")


def _language(code: str) -> dict[str, str]:
    return {"code": code, "name": language_name(code)}


def _codes(service: Service) -> list[str]:
    codes = list(dict.fromkeys(code for pair in service.pairs for code in pair))
    if not codes:
        raise ApiError(400, "this server has no translators", location="source")
    return codes


def _model(service: Service, source: str, target: str) -> str | None:
    """Returns the model of a pair of languages; None if both are the same."""
    known = _codes(service)
    for name, code in (("source", source), ("target", target)):
        if code not in known:
            raise ApiError(400, f"{code[:80]} is not supported", location=name)
    if source != target and (source, target) not in service.pairs:
        names = [f"{language_name(code)} ({code})" for code in (target, source)]
        raise ApiError(400, "{} is not available as a target language from {}".format(*names), location="target")
    return None if source == target else service.pairs[source, target]


def _detect_in_file(file: Upload, service: Service) -> str:
    """Returns the language of a file's text, without its markup."""
    try:
        text = source_text(file.path, file.text)
    except UserError as error:
        raise ApiError(400, str(error), location="file") from error
    return service.detector.candidates(text, _codes(service))[0]["language"]


def _others(nbest: list[str]) -> list[str]:
    """Returns the translations that differ from the best one."""
    best, *others = nbest
    return [text for text in dict.fromkeys(others) if text not in (best, "")]


def _glossary(client: Client, body: TranslateBody | FileBody) -> Glossary:
    """Returns the terms of a client and of a request, whose translation counts if both have a term, in any case."""
    preferred = {_folded(term) for term in body.glossary}
    of_client = client.glossary.get(body.target, {})
    return {**{term: text for term, text in of_client.items() if _folded(term) not in preferred}, **body.glossary}


def _folded(term: str) -> str:
    return " ".join(term.split()).casefold()
