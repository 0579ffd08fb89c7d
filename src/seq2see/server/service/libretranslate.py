"""LibreTranslate's API: its endpoints, parameters, messages and status codes, for the clients that know them.

Parameters come as JSON, or as a form (urlencoded or multipart) and in the query string, the key as `api_key` or as a bearer
token. An error is {"error": message}.
"""

import asyncio
import re
import secrets
from base64 import b64decode, b64encode
from collections import OrderedDict
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from seq2see.errors import UserError
from seq2see.server.http.errors import ApiError
from seq2see.server.service.languages import Detector, language_name
from seq2see.server.service.parameters import (
    FILE_SUFFIXES,
    DetectParameters,
    FileParameters,
    Glossary,
    TranslateParameters,
    Upload,
    alternatives_count,
    describe_body,
    glossary_terms,
    read_parameters,
    required_text,
    text_parameter,
    texts_to_translate,
    uploaded_file,
)
from seq2see.server.service.service import Service
from seq2see.translate.formats import source_text

MAX_FILES = 64  # translated files that wait for their download


class Error(BaseModel):
    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error}
    for status in (400, 401, 403, 404, 405, 408, 413, 429, 500, 503, 504)
}  # fmt: skip


def error_response(error: ApiError) -> Response:
    text = f"{error.message}: {error.hint}" if error.hint else error.message
    return JSONResponse({"error": text}, error.status, error.headers)


def create_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["LibreTranslate"], responses=ERRORS)
    detector = Detector()
    files: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    @router.post("/translate", openapi_extra=describe_body(TranslateParameters))
    async def translate(request: Request) -> Response:
        """Translates a text or a list of texts."""
        parameters = await read_parameters(request)
        client = service.authenticate(request, text_parameter(parameters, "api_key"))
        texts, source, target = (
            texts_to_translate(parameters),
            required_text(parameters, "source"),
            required_text(parameters, "target"),
        )
        if len(texts) > service.settings.max_texts:
            limit = service.settings.max_texts
            raise ApiError(400, f"Invalid request: request ({len(texts)}) exceeds text limit ({limit})", "", "q")
        format = text_parameter(parameters, "format") or "text"
        if format not in ("text", "html"):
            raise ApiError(400, f"{format[:80]} format is not supported", "", "format")
        alternatives = alternatives_count(parameters)
        with service.admit(client, sum(map(len, texts))):
            detected = await asyncio.to_thread(detector.detect, texts, _codes(service)) if source == "auto" else None
            sources = [each["language"] for each in detected] if detected else [source] * len(texts)
            models = [_model(service, each, target) for each in sources]
            glossary = _merge(client.glossary.get(target, {}), glossary_terms(parameters))
            translations: list[list[str]] = [[text] for text in texts]
            for model in dict.fromkeys(filter(None, models)):
                index = [i for i, each in enumerate(models) if each == model]
                beam = max(service.settings.beam, alternatives + 1)
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
            body["alternatives"] = answer([_others(nbest) for nbest in translations])
        return JSONResponse(body)

    @router.post("/detect", openapi_extra=describe_body(DetectParameters))
    async def detect(request: Request) -> Response:
        """Detects the language of a text, among the languages of the models."""
        parameters = await read_parameters(request)
        client = service.authenticate(request, text_parameter(parameters, "api_key"))
        texts = texts_to_translate(parameters)
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

    @router.post("/translate_file", openapi_extra=describe_body(FileParameters, ("multipart/form-data",)))
    async def translate_file(request: Request) -> Response:
        """Translates a file; returns the URL of the result."""
        parameters = await read_parameters(request)
        client = service.authenticate(request, text_parameter(parameters, "api_key"))
        file = uploaded_file(parameters)
        source, target = required_text(parameters, "source"), required_text(parameters, "target")
        glossary = _merge(client.glossary.get(target, {}), glossary_terms(parameters))
        content = file.content
        with service.admit(client, len(file.text)):
            if source == "auto":
                source = await asyncio.to_thread(_detect_in_file, file, detector, _codes(service))
            model = _model(service, source, target)
            if model is not None:
                message = {
                    "operation": "document", "model": model, "name": file.path.name, "glossary": glossary,
                    "beam": service.settings.beam,
                    "content": b64encode(content).decode(),
                }  # fmt: skip
                content = b64decode((await service.call(request, client, message))["content"])
        token = secrets.token_urlsafe(24)
        files[token] = (f"{file.path.stem}_{target}{file.path.suffix}", content)
        while len(files) > MAX_FILES:
            files.popitem(last=False)
        return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", token=token))})

    @router.get("/download_file/{token}", response_class=Response)
    async def download_file(token: str) -> Response:
        """Returns a translated document."""
        if token not in files:
            raise ApiError(404, "file not found: it was replaced by newer ones", "translate it again")
        name, content = files[token]
        plain = re.sub(r'[^ -~]|["\\]', "_", name)
        headers = {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"}
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
                "supportedFilesFormat": list(FILE_SUFFIXES),
                "language": {
                    "source": {"code": source, "name": language_name(source)},
                    "target": {"code": target, "name": language_name(target)},
                },
            }
        )

    @router.post("/suggest")
    async def suggest() -> Response:
        """Refuses better translations: nothing would use them."""
        raise ApiError(403, "Suggestions are disabled on this server.", "")

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


def _detect_in_file(file: Upload, detector: Detector, codes: list[str]) -> str:
    """Returns the language of a file's text, without its markup."""
    try:
        return detector.candidates(source_text(file.path, file.text), codes)[0]["language"]
    except UserError as error:
        raise ApiError(400, str(error), "", "file") from error


def _others(nbest: list[str]) -> list[str]:
    """Returns the translations that differ from the best one."""
    best, *others = nbest
    return [text for text in dict.fromkeys(others) if text not in (best, "")]


def _merge(glossary: Glossary, preferred: Glossary) -> Glossary:
    """Returns the terms of two glossaries; of a term that both have, in any case, the preferred translation."""
    known = {_folded(term) for term in preferred}
    return {**{term: text for term, text in glossary.items() if _folded(term) not in known}, **preferred}


def _folded(term: str) -> str:
    return " ".join(term.split()).casefold()
