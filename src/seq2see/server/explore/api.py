"""What the endpoints of the API share: the state of the server, and the call that a worker thread answers.

An endpoint is a function whose first parameter is the call: the others are those of the request, and what it returns is the
response. Errors are raised as `ApiError`, or as the library's `UserError`.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, Query
from fastapi import Path as PathParameter
from fastapi.responses import Response
from pydantic import TypeAdapter
from starlette.requests import Request
from torch import Tensor

from seq2see import __version__
from seq2see.api import Model
from seq2see.config import InferencePrecision
from seq2see.config.search import Search
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.formats.media.reader import MediaReader
from seq2see.inspect.explain import Explanation, explain
from seq2see.inspect.interventions import intervene
from seq2see.server.explore import requests, responses
from seq2see.server.explore.interventions import build_interventions
from seq2see.server.explore.lessons import LessonRunner
from seq2see.server.explore.model_registry import ModelRegistry
from seq2see.server.explore.options import Limits, TrainingOptions
from seq2see.server.explore.placement import Placement
from seq2see.server.explore.stores import MediaStore, TraceStore
from seq2see.server.explore.tensors import INDEX_PATTERN, TensorBytes, tensor_bytes
from seq2see.server.explore.training import TrainingManager
from seq2see.server.http.errors import ApiError
from seq2see.server.http.workers import Deadline, WorkerPool, until_disconnected

Work = TypeVar("Work", bound=Callable[..., Any])

DESCRIPTION = (
    "The API behind the page: translate, generate and trace text. A trace holds every intermediate tensor of one forward "
    "pass. Tensors are returned by name and slice as little-endian float32, with the shape in the X-Shape header. "
    "Errors say what is wrong, where, and what to do. After a 503, retry after Retry-After seconds."
)
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": responses.ErrorResponse, "description": description}
    for status, description in {
        400: "Invalid JSON.",
        403: "Cross-origin request, or disabled.",
        404: "Not found.",
        408: "The request body did not arrive in time.",
        409: "Not possible now.",
        413: "Request or response too large.",
        421: "Unknown host name.",
        422: "Invalid request.",
        500: "Internal server error.",
        503: "Too many requests; see Retry-After.",
        504: "Timeout.",
    }.items()
}
Index = Annotated[
    str,
    Query(
        max_length=80,
        description="A slice such as `0,:,2:5` or `:,::8`. Default: the whole tensor.",
        json_schema_extra={
            "pattern": INDEX_PATTERN
        },  # documented here, checked by `parse_index` with a clearer message
    ),
]
TraceId = Annotated[str, PathParameter(min_length=1, max_length=40, description="The id of a trace.")]
Name = Annotated[str, PathParameter(min_length=1, max_length=100)]
Step = Annotated[
    int | None, Query(ge=0, le=1 << 40, description="Training step of a snapshot. Default: the final weights.")
]
Head = Annotated[int | None, Query(ge=0, le=1024, description="Default: the mean over all heads.")]


class ServerState:
    def __init__(
        self,
        directories: dict[str, Path],
        limits: Limits,
        device: str = "cpu",
        precision: InferencePrecision = "float32",
        training: TrainingOptions | None = None,
    ) -> None:
        self.limits = limits
        self.registry = ModelRegistry(directories, limits.max_snapshots, device, precision)
        self.traces, self.media = TraceStore(limits), MediaStore(limits)
        self.lesson_runner, self.placement = LessonRunner(), Placement()
        self.training = TrainingManager(training, self.registry.add) if training else None


@dataclass(frozen=True)
class Call:
    """A request while a worker answers it."""

    server: ServerState
    deadline: Deadline

    def load(self, body: requests.ModelRequest) -> tuple[str, Model]:
        """Returns the name of the request's model and a copy of it for this call."""
        name = self.server.registry.resolve(body.model)
        model = self.server.registry.load_copy(name, body.step, self.deadline)
        if body.source_language or body.target_language:
            model = model.with_languages(body.source_language, body.target_language)
        return name, model

    def source(self, model: Model, text: str, location: str) -> str:
        """Returns what the model reads: the text, or the path of the stored picture or sound with this id."""
        config = model.config.model
        if config.source == "tokens":
            self.require_short(model.tokenizers[0], text, location)
            return text
        path = self.server.media.path(text, location)
        try:
            rows = len(MediaReader(config).read(path))
        except UserError as error:
            message = str(error).replace(str(path), "the file")
            raise ApiError(422, message, "choose another file", location) from None
        _require_few(rows, self.server.limits.max_media_tokens, f"use shorter {config.source}", location)
        return str(path)

    def require_short(self, tokenizer: Tokenizer, text: str, location: str) -> None:
        _require_few(len(tokenizer.encode(text)), self.server.limits.max_tokens, "shorten the text", location)

    def interventions(
        self, body: requests.InterventionRequest, model: Model, text: str, search: Search
    ) -> AbstractContextManager[None]:
        """Applies the request's interventions; without any, the model is unchanged and at full speed."""
        if not body.interventions:
            return nullcontext()
        before = explain(model, text, search=search)
        return intervene(model.network, *build_interventions(body.interventions, before, self.server.traces))

    @contextmanager
    def explanation(self, id: str) -> Iterator[Explanation]:
        """Yields a stored explanation, which no other call uses meanwhile."""
        stored = self.server.traces[id]
        with stored.lock:
            model = self.server.registry.load_copy(stored.info.model, stored.info.step, self.deadline)
            tokenizers = stored.explanation.model.tokenizers  # of the languages of the request
            yield replace(stored.explanation, model=replace(model, tokenizers=tokenizers))

    def tensor(self, tensor: Tensor, index: str) -> TensorBytes:
        return tensor_bytes(tensor, index, self.server.limits.max_response_bytes)


def require_text_model(name: str, model: Model) -> None:
    kind = model.config.model.source
    if kind != "tokens":
        raise ApiError(422, f'"{name}" reads {kind}, not text', "choose a model that reads text", "model")


def _require_few(tokens: int, limit: int, hint: str, location: str) -> None:
    if tokens > limit:
        raise ApiError(422, f"{tokens:,} tokens exceed the maximum of {limit:,}", hint, location)


class WorkerRouter(APIRouter):
    """Registers endpoints that a worker thread answers."""

    def endpoint(self, method: str, path: str, status: int = 200, **options: Any) -> Callable[[Work], Work]:
        def register(work: Work) -> Work:
            _, *parameters = inspect.signature(work).parameters.values()
            kind = inspect.signature(work).return_annotation
            encode, documented = _encoder(kind, status)

            async def answer(request: Request, **arguments: Any) -> Response:
                server: ServerState = request.app.state.api.state
                workers: WorkerPool = request.app.state.workers
                # The worker also encodes: a large response would block the event loop.
                answering = workers.run(lambda deadline: encode(work(Call(server, deadline), **arguments)))
                return await until_disconnected(request, answering)

            signature = inspect.signature(answer)
            answer.__name__, answer.__doc__ = work.__name__, work.__doc__
            answer.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what FastAPI reads
                parameters=[signature.parameters["request"], *parameters]
            )
            self.add_api_route(path, answer, methods=[method], status_code=status, **{**documented, **options})
            return work

        return register


class BinaryResponse(Response):
    media_type = "application/octet-stream"


def binary(status: int, description: str, **fields: Any) -> dict[int | str, dict[str, Any]]:
    """Documents a response of bytes."""
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {status: {"description": description, "content": content, **fields}}


_SHAPE = {"X-Shape": {"schema": {"type": "string"}, "description": "Such as 8,6,5; empty for a scalar."}}
TENSOR_RESPONSE = binary(200, "Little-endian float32 in C order; −∞ is encoded as such.", headers=_SHAPE)


def _encoder(kind: Any, status: int) -> tuple[Callable[[Any], Response], dict[str, Any]]:
    """Returns how a result becomes a response, and how that is documented."""
    if kind is bytes:
        return BinaryResponse, {"response_class": Response}
    if kind is TensorBytes:
        return _tensor_response, {"response_class": Response, "responses": TENSOR_RESPONSE}
    to_json = TypeAdapter(kind).dump_json
    return lambda value: Response(to_json(value), status, media_type="application/json"), {"response_model": kind}


def _tensor_response(tensor: TensorBytes) -> Response:
    return BinaryResponse(tensor.data, headers={"x-shape": ",".join(map(str, tensor.shape))})


def create_api(server: ServerState, routers: Iterable[APIRouter]) -> FastAPI:
    api = FastAPI(
        title="seq2see",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        redirect_slashes=False,
    )
    api.state.server = server
    for router in routers:
        api.include_router(router)
    return api
