"""OpenAI's API: models, chat completions, completions and embeddings, with its parameters, errors and streams.

Translators are not language models: they answer at LibreTranslate's endpoints.
"""

import json
import struct
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from secrets import randbelow, token_hex
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from seq2see.errors import did_you_mean
from seq2see.server.http.errors import ApiError
from seq2see.server.http.workers import begin
from seq2see.server.service.keys import Client
from seq2see.server.service.service import Authenticated, Service, ServiceOf, now, server_sent_event
from seq2see.server.service.supervisor import Message, RequestFailedError

MAX_N = 16
MAX_STOPS = 4
DEFAULT_COMPLETION_TOKENS = 16

Stop = str | Annotated[list[str], Field(max_length=MAX_STOPS)] | None
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Prompts = Annotated[list[str], Field(min_length=1, max_length=100)]
TokenPrompts = Annotated[list[TokenIds], Field(min_length=1, max_length=100)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Parameters(Strict):
    model: str = Field(max_length=200)
    user: str | None = Field(None, max_length=1000)  # accepted; keys identify clients
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: bool | None = None


class GenerationParameters(Parameters):
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=MAX_N)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # Their defaults are accepted; other values are not supported.
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None
    refusal: None = None


class ChatParameters(GenerationParameters):
    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: dict[Literal["type"], Literal["text"]] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[Literal["text"]] | None = None


class CompletionParameters(GenerationParameters):
    prompt: str | Prompts | TokenIds | TokenPrompts = "<|endoftext|>"
    max_tokens: int | None = Field(None, ge=1)
    logprobs: int | None = Field(None, ge=0, le=5)
    echo: Literal[False] | None = None
    suffix: None = None
    best_of: Literal[1] | None = None


class EmbeddingParameters(Parameters):
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: None = None


class ErrorDetails(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    error: ErrorDetails


class OpenAIError(ApiError):
    """An error with OpenAI's code."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(status, message, "", param or "")
        self.code = code


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error} for status in (400, 401, 403, 404, 405, 408, 413, 429, 500, 503, 504)
}
_TYPES = {401: "invalid_request_error", 429: "rate_limit_exceeded"}
_CODES = {401: "invalid_api_key", 403: "invalid_api_key", 429: "rate_limit_exceeded"}


def error_response(error: ApiError) -> Response:
    status = 401 if error.status == 403 and error.location == "api_key" else error.status  # theirs for a wrong key
    return JSONResponse({"error": _details(error)}, status, error.headers)


def _details(error: ApiError) -> Message:
    kind = _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    code = getattr(error, "code", None) or _CODES.get(error.status)
    if isinstance(error, RequestFailedError) and error.kind == "context":
        code = "context_length_exceeded"
    param = error.location if error.location and error.location != "api_key" else None
    message = f"{error.message}: {error.hint}" if error.hint else error.message
    return {"message": message, "type": kind, "param": param, "code": code}


def validation_error(problem: dict[str, Any]) -> OpenAIError:
    """Words the problem of an invalid request as OpenAI does."""
    name = ".".join(str(part) for part in problem["loc"] if part != "body")
    if problem["type"] == "extra_forbidden":
        return OpenAIError(400, f"Unknown parameter: '{name[:80]}'.", name[:80], "unknown_parameter")
    if problem["type"] == "missing":
        return OpenAIError(400, f"Missing required parameter: '{name}'.", name, "missing_required_parameter")
    if problem["type"] == "json_invalid":
        return OpenAIError(400, "We could not parse the JSON body of your request.")
    return OpenAIError(400, f"Invalid value for '{name[:80]}': {problem['msg']}", name[:80] or None, "invalid_value")


class _Request(Request):
    """A request whose body is parsed off the event loop."""

    async def json(self) -> Any:
        return await self.state.body_pool.parse(json.loads, await self.body())


class KeyFirst(APIRoute):
    """An endpoint that checks the key before it reads the body: FastAPI would read and parse it before anything else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            service: Service = request.app.state.service
            service.authenticate(request)
            return await handler(_Request(request.scope, request.receive))

        return handle


router = APIRouter(prefix="/v1", tags=["OpenAI"], responses=ERRORS, route_class=KeyFirst)


@router.get("/models")
async def models(client: Authenticated, service: ServiceOf) -> Response:
    """Lists the models."""
    return JSONResponse({"object": "list", "data": [_describe(service, name) for name in service.supervisor.models]})


@router.get("/models/{model}")
async def model(client: Authenticated, service: ServiceOf, model: str) -> Response:
    """Describes a model."""
    _find(service, model)
    return JSONResponse(_describe(service, model))


def _describe(service: Service, name: str) -> Message:
    return {"id": name, "object": "model", "created": service.started, "owned_by": "seq2see"}


@router.post("/chat/completions", response_class=Response)
async def chat(request: Request, client: Authenticated, service: ServiceOf, body: ChatParameters) -> Response:
    """Returns or streams the model's next message."""
    _require(service, body.model, "decoder", "chat/completions", "chat")
    if body.top_logprobs is not None and not body.logprobs:
        raise OpenAIError(400, "'top_logprobs' requires 'logprobs' to be true.", "top_logprobs", "invalid_value")
    messages = [(_ROLES.get(each.role, each.role), _content(each.content)) for each in body.messages]
    message = {
        **_generation(service, body, body.max_completion_tokens or body.max_tokens or 0, body.top_logprobs or 0),
        "messages": messages,
        "logprobs": bool(body.logprobs),
    }
    generation = Generation(service, request, client, message, body, chat=True)
    return await generation.respond(sum(len(text) for _, text in messages))


@router.post("/completions", response_class=Response)
async def completions(
    request: Request, client: Authenticated, service: ServiceOf, body: CompletionParameters
) -> Response:
    """Returns or streams continuations of a prompt."""
    _require(service, body.model, "decoder", "completions", "language")
    prompt = body.prompt
    prompts: list[Any] = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else list(prompt)
    message = {
        **_generation(service, body, body.max_tokens or DEFAULT_COMPLETION_TOKENS, body.logprobs or 0),
        "prompts": prompts,
        "logprobs": body.logprobs is not None,
    }
    generation = Generation(service, request, client, message, body, chat=False)
    return await generation.respond(sum(map(len, prompts)))


@router.post("/embeddings")
async def embeddings(
    request: Request, client: Authenticated, service: ServiceOf, body: EmbeddingParameters
) -> Response:
    """Returns a vector for each text."""
    _require(service, body.model, "encoder", "embeddings", "embedding")
    texts = [body.input] if isinstance(body.input, str) else body.input
    with service.admit(client, sum(map(len, texts))):
        message = {"operation": "embed", "model": body.model, "texts": texts}
        result = await service.call(request, client, message)
    vectors: list[Any] = result["vectors"]
    if body.encoding_format != "base64":
        vectors = [list(struct.unpack(f"<{len(data) // 4}f", data)) for data in map(b64decode, vectors)]
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": result["tokens"][0], "total_tokens": result["tokens"][0]}
    return JSONResponse({"object": "list", "data": data, "model": body.model, "usage": usage})


def _find(service: Service, name: str) -> Message:
    models = service.supervisor.models
    if name not in models:
        hint = did_you_mean(name, models)
        raise OpenAIError(404, f"The model `{name[:80]}` does not exist: {hint}", "model", "model_not_found")
    return models[name]


def _require(service: Service, name: str, shape: str, endpoint: str, kind: str) -> None:
    if _find(service, name)["shape"] != shape:
        article = "an" if kind[0] in "aeiou" else "a"
        message = f"This is not {article} {kind} model and thus not supported in the v1/{endpoint} endpoint."
        raise OpenAIError(404, message, "model")


_ROLES = {"assistant": "model", "developer": "system"}  # as our chat templates call them


def _content(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _generation(service: Service, body: GenerationParameters, max_tokens: int, alternatives: int) -> Message:
    """Returns what the message to a worker has in common for prompts and conversations."""
    if body.stream_options is not None and not body.stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise OpenAIError(400, message, "stream_options", "invalid_value")
    temperature = 1.0 if body.temperature is None else body.temperature
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    seed = randbelow(1 << 31) if body.seed is None else body.seed % (1 << 31)
    return {
        "operation": "generate",
        "model": body.model,
        "n": body.n or 1,
        "stream": bool(body.stream),
        "stop": [each for each in stop if each],
        "max_tokens": min(max_tokens, service.settings.max_new_tokens),
        "search": {"temperature": temperature, "top_p": body.top_p or 1.0, "seed": seed, "alternatives": alternatives},
    }


@dataclass
class Generation:
    """One completion, returned as a whole or as a stream of server-sent events."""

    service: Service
    request: Request
    client: Client
    message: Message
    body: GenerationParameters
    chat: bool

    def __post_init__(self) -> None:
        self.kind, prefix = ("chat.completion", "chatcmpl") if self.chat else ("text_completion", "cmpl")
        self.common = {"id": f"{prefix}-{token_hex(12)}", "created": now(), "model": self.body.model}

    async def respond(self, characters: int) -> Response:
        if not self.body.stream:
            with self.service.admit(self.client, characters):
                result = await self.service.call(self.request, self.client, self.message)
            choices = [self._choice(each) for each in result["choices"]]
            return JSONResponse({**self.common, "object": self.kind, "choices": choices, "usage": _usage(result)})
        return StreamingResponse(await begin(self._events(characters)), media_type="text/event-stream")

    def _choice(self, result: Message) -> Message:
        message = {"role": "assistant", "content": result["text"], "refusal": None}
        content = {"message": message} if self.chat else {"text": result["text"]}
        logprobs = self._logprobs(result["tokens"]) if self.message["logprobs"] else None
        return {"index": result["index"], "finish_reason": result["finish_reason"], "logprobs": logprobs, **content}

    async def _events(self, characters: int) -> AsyncGenerator[bytes]:
        include_usage = self.body.stream_options is not None and self.body.stream_options.include_usage
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        common = {**self.common, "object": kind, **({"usage": None} if include_usage else {})}
        started: set[int] = set()  # choices
        stream = self.service.stream(self.request, self.client, self.message)
        try:
            with self.service.admit(self.client, characters):
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        if "choices" in piece:
                            usage = _usage(piece)
                            continue
                        for delta in self._deltas(piece, started):
                            yield server_sent_event({**common, "choices": [delta]})
            if include_usage:
                yield server_sent_event({**common, "choices": [], "usage": usage})
            yield server_sent_event("[DONE]")
        except ApiError as error:
            if not started:
                raise
            yield server_sent_event({"error": _details(error)})

    def _deltas(self, piece: Message, started: set[int]) -> list[Message]:
        """Returns the choices of the chunks that a piece becomes."""
        index, text, last = piece["index"], piece["text"], piece.get("finish_reason")
        logprobs = self._logprobs(piece["tokens"]) if self.message["logprobs"] else None
        first = index not in started
        started.add(index)

        def choice(delta: Message, finish_reason: str | None, logprobs: Message | None) -> Message:
            content = {"delta": delta} if self.chat else {"text": delta.get("content", "")}
            return {"index": index, **content, "finish_reason": finish_reason, "logprobs": logprobs}

        deltas = []
        if first and self.chat:
            deltas.append(choice({"role": "assistant", "content": ""}, None, None))
        if text or piece["tokens"]:
            deltas.append(choice({"content": text}, None, logprobs))
        if last:
            deltas.append(choice({}, last, None))
        return deltas

    def _logprobs(self, tokens: list[Message]) -> Message:
        if self.chat:
            return {
                "content": [
                    {
                        **_logprob(each["token"], each["logprob"]),
                        "top_logprobs": [_logprob(*top) for top in each["top"]],
                    }
                    for each in tokens
                ],
                "refusal": None,
            }
        return {
            "tokens": [each["token"] for each in tokens],
            "token_logprobs": [each["logprob"] for each in tokens],
            "top_logprobs": [dict(each["top"]) for each in tokens],
            "text_offset": [each["offset"] for each in tokens],  # in the text of the choice, without the prompt
        }


def _logprob(token: str, logprob: float) -> Message:
    return {"token": token, "logprob": max(logprob, -9999.0), "bytes": list(token.encode(errors="replace"))}


def _usage(result: Message) -> Message:
    read, generated = result["tokens"]
    return {"prompt_tokens": read, "completion_tokens": generated, "total_tokens": read + generated}
