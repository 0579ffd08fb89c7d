"""Parameters of requests to LibreTranslate's endpoints: read from JSON, or from a form and the address, and checked."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, Field, InstanceOf, ValidationError, WithJsonSchema
from starlette.datastructures import Headers, QueryParams
from starlette.formparsers import MultiPartException, MultiPartParser

from seq2see.config.extensions import extension_names
from seq2see.formats.documents import TEXT_SUFFIX
from seq2see.server.http.errors import ApiError

MAX_ALTERNATIVES = 10
MAX_TERMS = 1000  # of a glossary
MAX_FIELDS = 100  # of a form
FILE_SUFFIXES = (TEXT_SUFFIX, *extension_names("documents"))
FORMATS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True)
class Upload:
    """A file of a form."""

    path: Path  # only its name: which format it has
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


def _parse_terms(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


Text = Annotated[
    str, Field(min_length=0)
]  # with any constraint, pydantic refuses lone surrogates, which JSON can express
Term = Annotated[str, Field(pattern=r"\S")]
Glossary = dict[Term, Term]  # terms and their translations
ParsedGlossary = Annotated[Glossary, BeforeValidator(_parse_terms), Field(max_length=MAX_TERMS)]
GLOSSARY = "Terms and their translations; an extension of the API."
FILE_SCHEMA = {"type": "string", "format": "binary", "description": f"The file: {', '.join(FILE_SUFFIXES)}."}


class TranslateBody(BaseModel):
    """Parameters of `/translate`."""

    q: Text | list[Text] = Field(description="The text or texts to translate.", examples=["How are you?"])
    source: Text = Field(description="A language code, or auto.", examples=["en"])
    target: Text = Field(examples=["hi"])
    format: Text = Field("text", description="text or html; HTML keeps its markup.")
    alternatives: int = Field(
        0, le=MAX_ALTERNATIVES, json_schema_extra={"minimum": 0}, description="Number of alternative translations."
    )
    glossary: ParsedGlossary = Field({}, description=GLOSSARY)
    api_key: str = ""


class DetectBody(BaseModel):
    """Parameters of `/detect`."""

    q: Text | list[Text]
    api_key: str = ""


class FileBody(BaseModel):
    """Parameters of `/translate_file`."""

    file: Annotated[InstanceOf[Upload], WithJsonSchema(FILE_SCHEMA)]
    source: Text = Field(description="A language code, or auto.", examples=["en"])
    target: Text = Field(examples=["hi"])
    glossary: Annotated[ParsedGlossary, WithJsonSchema({"type": "string"})] = Field(
        {}, description=f"A JSON object. {GLOSSARY}"
    )
    api_key: str = ""


def describe_body(body: type[BaseModel], formats: tuple[str, ...] = FORMATS) -> dict[str, Any]:
    """Documents a body, which is read by hand because it may be JSON or a form."""
    content = {format: {"schema": body.model_json_schema()} for format in formats}
    return {"requestBody": {"required": True, "content": content}}


_TYPES = {
    "q": "a string or a list of strings",
    "alternatives": "a number",
    "glossary": "an object of terms and translations",
}


def check(kind: type[Body], parameters: dict[str, Any]) -> Body:
    """Checks parameters; an empty one is a missing one. Words errors as LibreTranslate does."""
    try:
        return kind.model_validate({name: value for name, value in parameters.items() if value})
    except ValidationError as error:
        problems = {problem["type"]: problem for problem in reversed(error.errors())}
        problem = problems.get("string_unicode") or error.errors()[0]
        name = str(problem["loc"][0])
        match problem["type"]:
            case "missing" | "is_instance_of":
                message = f"missing {name} parameter"
            case "string_unicode":
                message = f"{name} parameter is not valid Unicode"
            case "less_than_equal":
                message = f"{name} parameter must be <= {problem['ctx']['le']}"
            case "too_long":
                message = f"{name} parameter has more than {MAX_TERMS:,} terms"
            case _:
                message = f"{name} parameter is not {_TYPES.get(name, 'a string')}"
        raise invalid(message, name) from error


def invalid(message: str, name: str = "", hint: str = "") -> ApiError:
    return ApiError(400, f"Invalid request: {message}", hint, name)


async def read_parameters(request: Request) -> dict[str, Any]:
    """Returns the parameters of a request, from JSON, or from its query string and form; the first of a name counts."""
    body, pool = await request.body(), request.state.body_pool
    parameters: dict[str, Any] = await pool.parse(_parse, body, request.headers, request.query_params)
    return parameters


def _parse(body: bytes, headers: Headers, query: QueryParams) -> dict[str, Any]:
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type.startswith("application/") and content_type.endswith(("/json", "+json")):
        return _parse_json(body)
    form = _parse_multipart(body, headers) if content_type == "multipart/form-data" else _parse_urlencoded(body)
    parameters: dict[str, Any] = {}
    for name, value in [*query.multi_items(), *form]:
        parameters.setdefault(name, value)
    if isinstance(q := parameters.get("q"), str):
        parameters["q"] = "\n".join(q.splitlines())  # forms have CRLF
    return parameters


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        parameters = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid("invalid JSON") from error
    if not isinstance(parameters, dict):
        raise invalid("the body is not a JSON object")
    return parameters


def _parse_urlencoded(body: bytes) -> Iterable[tuple[str, str]]:
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise invalid(str(error)) from error


def _parse_multipart(body: bytes, headers: Headers) -> Iterable[tuple[str, str | Upload]]:
    """Returns the fields of a form. One with a file name is a text too, except `file`: some clients name all of them."""

    async def whole() -> AsyncGenerator[bytes]:
        yield body

    # The limit of a field is that of the whole body.
    parser = MultiPartParser(headers, whole(), max_files=MAX_FIELDS, max_fields=MAX_FIELDS, max_part_size=len(body))
    parser.spool_max_size = len(body)
    try:
        form = asyncio.run(parser.parse())
    except MultiPartException as error:
        raise invalid(error.message) from error
    fields: list[tuple[str, str | Upload]] = []
    for name, value in form.multi_items():
        if isinstance(value, str):
            fields.append((name, value))
            continue
        upload = Upload(Path(Path(value.filename or "").name), value.file.read())
        fields.append((name, upload if name == "file" else upload.text))
    return fields
