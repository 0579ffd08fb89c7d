"""Parameters of requests to LibreTranslate's endpoints: read from JSON, or from a form and the address, and checked."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, Field

from seq2see.server.http.errors import ApiError
from seq2see.translate.formats import DOCUMENT_SUFFIXES, TEXT_SUFFIX

MAX_ALTERNATIVES = 10
MAX_FIELDS = 100  # of a form
FILE_SUFFIXES = (TEXT_SUFFIX, *DOCUMENT_SUFFIXES)
FORMATS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
Parameters = dict[str, Any]
Glossary = dict[str, str]  # terms and their translations


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


class FileParameters(BaseModel):
    """Parameters of `/translate_file`."""

    file: str = Field(description=f"The file: {', '.join(FILE_SUFFIXES)}.", json_schema_extra={"format": "binary"})
    source: str = Field(description="A language code, or auto.", examples=["en"])
    target: str = Field(examples=["hi"])
    glossary: str = Field("", description="A JSON object of terms and their translations; an extension of the API.")
    api_key: str = ""


def describe_body(parameters: type[BaseModel], formats: tuple[str, ...] = FORMATS) -> dict[str, Any]:
    """Documents the parameters, which are read by hand because they may be JSON or a form."""
    schema = parameters.model_json_schema()
    return {"requestBody": {"required": True, "content": {format: {"schema": schema} for format in formats}}}


@dataclass(frozen=True)
class Upload:
    """A file of a form."""

    path: Path  # only its name: which format it has
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


async def read_parameters(request: Request) -> Parameters:
    """Returns the parameters of a request, from JSON, or from its query string and form; the first of a name counts."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "application/json" or (
        content_type.startswith("application/") and content_type.endswith("+json")
    ):
        return _parse_json(await request.body())
    form = await (_read_multipart(request) if content_type == "multipart/form-data" else _read_urlencoded(request))
    parameters: Parameters = {}
    for name, value in [*request.query_params.multi_items(), *form]:
        parameters.setdefault(name, value)
    if isinstance(q := parameters.get("q"), str):
        parameters["q"] = "\n".join(q.splitlines())  # forms have CRLF
    return parameters


def _parse_json(body: bytes) -> Parameters:
    try:
        parameters = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "Invalid request: invalid JSON", "") from error
    if not isinstance(parameters, dict):
        raise ApiError(400, "Invalid request: the body is not a JSON object", "")
    return parameters


async def _read_urlencoded(request: Request) -> Iterable[tuple[str, str]]:
    try:
        return parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise ApiError(400, f"Invalid request: {error}", "") from error


async def _read_multipart(request: Request) -> Iterable[tuple[str, str | Upload]]:
    """Returns the fields of a form. One with a file name is a text too, except `file`: some clients name all of them."""
    fields: list[tuple[str, str | Upload]] = []
    limit = sys.maxsize  # of a field: that of the whole body applies
    async with request.form(max_files=MAX_FIELDS, max_fields=MAX_FIELDS, max_part_size=limit) as form:
        for name, value in form.multi_items():
            if isinstance(value, str):
                fields.append((name, value))
                continue
            upload = Upload(Path(Path(value.filename or "").name), await value.read())
            fields.append((name, upload if name == "file" else upload.text))
    return fields


def text_parameter(parameters: Parameters, name: str) -> str:
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


def required_text(parameters: Parameters, name: str) -> str:
    value = text_parameter(parameters, name)
    if not value:
        raise ApiError(400, f"Invalid request: missing {name} parameter", "", name)
    return value


def texts_to_translate(parameters: Parameters) -> list[str]:
    q = parameters.get("q")
    if not q:
        raise ApiError(400, "Invalid request: missing q parameter", "", "q")
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "Invalid request: q parameter is not a string or a list of strings", "", "q")
    return [_valid(text, "q") for text in texts]


def alternatives_count(parameters: Parameters) -> int:
    value = parameters.get("alternatives") or 0
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ApiError(400, "Invalid request: alternatives parameter is not a number", "", "alternatives") from error
    if count > MAX_ALTERNATIVES:
        message = f"Invalid request: alternatives parameter must be <= {MAX_ALTERNATIVES}"
        raise ApiError(400, message, "", "alternatives")
    return max(count, 0)


def glossary_terms(parameters: Parameters) -> Glossary:
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


def uploaded_file(parameters: Parameters) -> Upload:
    file = parameters.get("file")
    if not isinstance(file, Upload):
        raise ApiError(400, "Invalid request: missing file parameter", "", "file")
    if not file.path.name:
        raise ApiError(400, "Invalid request: empty file", "", "file")
    if file.path.suffix.lower() not in FILE_SUFFIXES:
        raise ApiError(400, "Invalid request: file format not supported", ", ".join(FILE_SUFFIXES), "file")
    return file
