"""The FastAPI application. Each route validates its parameters, passes the work to a worker and returns the result.

The first worker imports torch, not this module, so that the server responds within a second or two of its start.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from seq2see import __version__
from seq2see.config import InferencePrecision
from seq2see.config.search import Search
from seq2see.course.lessons import LESSONS
from seq2see.errors import UserError
from seq2see.server.explore import PAGE_DIRECTORY, requests, responses
from seq2see.server.explore.middleware import UPLOAD_PATH, SecurityMiddleware, error_response
from seq2see.server.explore.static_files import HTML_POLICY, NOT_BUILT, load_files, render_docs, render_html
from seq2see.server.explore.tensors import INDEX_PATTERN, TensorBytes
from seq2see.server.explore.training import TrainingManager, TrainingOptions
from seq2see.server.explore.workers import ApiError, Deadline, Limits, WorkerPool

if TYPE_CHECKING:
    from seq2see.server.explore.handlers import Handlers

log = logging.getLogger("seq2see.server.explore")

DESCRIPTION = (
    "The API behind the page: translate, generate and trace text. A trace holds every intermediate tensor of one forward "
    "pass. Tensors are returned by name and slice as little-endian float32, with the shape in the X-Shape header. "
    "Errors say what is wrong, where, and what to do. After a 503, retry after Retry-After seconds."
)

Index = Annotated[
    str,
    Query(
        max_length=80, description="A slice such as `0,:,2:5` or `:,::8`. Default: the whole tensor.",
        json_schema_extra={"pattern": INDEX_PATTERN},  # documented here, checked by the handler with a clearer message
    ),
]  # fmt: skip
TraceId = Annotated[str, PathParameter(min_length=1, max_length=40, description="The id of a trace.")]
Name = Annotated[str, PathParameter(min_length=1, max_length=100)]
Step = Annotated[
    int | None, Query(ge=0, le=1 << 40, description="Training step of a snapshot. Default: the final weights.")
]
Row = Annotated[
    int, Query(ge=-1024, le=1024, description="Row of the decoder, from 0; negative rows count from the end.")
]
Top = Annotated[int, Query(ge=1, le=100, description="Number of tokens to return, most likely first.")]
TokenId = Annotated[int | None, Query(ge=0, le=1 << 31, description="A token id.")]
Layer = Annotated[int, Query(ge=-1024, le=1024, description="Negative layers count from the last.")]
Head = Annotated[int | None, Query(ge=0, le=1024, description="Default: the mean over all heads.")]


class BinaryResponse(Response):
    media_type = "application/octet-stream"


class JsonLinesResponse(StreamingResponse):
    media_type = "application/x-ndjson"


TENSOR_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Little-endian float32 in C order; −∞ is encoded as such.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"X-Shape": {"schema": {"type": "string"}, "description": "Such as 8,6,5; empty for a scalar."}},
    }
}
MEDIA_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file as it was sent.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": 'JSON lines: {"text": piece} as it is generated, then {"done": true, "text": all}; or an ErrorResponse.',
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": responses.ErrorResponse, "description": description}
    for status, description in {
        400: "Invalid JSON.", 403: "Cross-origin request, or disabled.", 404: "Not found.",
        408: "The request body did not arrive in time.", 409: "Not possible now.", 413: "Request or response too large.",
        421: "Unknown host name.", 422: "Invalid request.", 500: "Internal server error.",
        503: "Too many requests; see Retry-After.", 504: "Timeout.",
    }.items()
}  # fmt: skip


class LazyHandlers:
    """Creates the handlers, and so imports torch, on first use."""

    def __init__(
        self, directories: dict[str, Path], limits: Limits, device: str, precision: InferencePrecision
    ) -> None:
        self._arguments = directories, limits, device, precision
        self._lock = threading.Lock()
        self._handlers: Handlers | None = None

    def __call__(self) -> "Handlers":
        with self._lock:
            if self._handlers is None:
                from seq2see.server.explore.handlers import Handlers

                self._handlers = Handlers(*self._arguments)
        return self._handlers

    def preload(self) -> None:
        """Loads all models before the first request needs them."""
        registry = self().registry
        for name in registry.names:
            try:
                registry.load(name)
            except ApiError as error:
                log.error("%s", error.message)


def create_app(
    models: dict[str, Path], limits: Limits | None = None, page_directory: Path = PAGE_DIRECTORY,
    device: str = "cpu", precision: InferencePrecision = "float32", local_only: bool = True,
    training: TrainingOptions | None = None,
) -> FastAPI:  # fmt: skip
    """Returns the application for models by name.

    `local_only`: answer only requests to this machine's own name and from the page itself; without it, or without
    `training`, the page cannot train.
    """
    limits = limits or Limits()
    workers, handlers = WorkerPool(limits), LazyHandlers(models, limits, device, precision)
    manager = TrainingManager(training, lambda run: handlers().registry.add(run)) if training and local_only else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=handlers.preload, daemon=True).start()
        yield
        workers.stop()
        if manager is not None:
            await asyncio.to_thread(manager.close)

    app = FastAPI(
        title="seq2see", version=__version__, description=DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None,
        responses=ERRORS,
    )  # fmt: skip
    app.add_middleware(
        SecurityMiddleware, max_body_bytes=limits.max_body_bytes, timeout=limits.timeout, local_only=local_only,
        max_upload_bytes=limits.max_upload_bytes,
    )  # fmt: skip
    _add_error_handlers(app)

    async def respond(
        work: Callable[["Handlers", Deadline], BaseModel], status: int = 200, timeout: float | None = None
    ) -> Response:
        # The worker also serializes: a large response would block the event loop.
        data = await workers.run(lambda deadline: work(handlers(), deadline).model_dump_json().encode(), timeout)
        return Response(data, status, media_type="application/json")

    async def respond_tensor(work: Callable[["Handlers", Deadline], TensorBytes]) -> Response:
        tensor = await workers.run(lambda deadline: work(handlers(), deadline))
        return BinaryResponse(tensor.data, headers={"x-shape": ",".join(map(str, tensor.shape))})

    app.state.workers, app.state.handlers = workers, handlers
    _add_model_routes(app, respond, respond_tensor)
    _add_generation_routes(app, respond, workers, handlers)
    _add_media_routes(app, respond, workers, handlers)
    _add_trace_routes(app, respond, respond_tensor)
    _add_analysis_routes(app, respond, respond_tensor)
    _add_space_routes(app, respond, limits)
    _add_training_routes(app, respond, manager)
    _add_lesson_routes(app, respond, limits)
    _add_pages(app, page_directory)
    return app


Respond = Callable[..., Any]


def _add_model_routes(app: FastAPI, respond: Respond, respond_tensor: Respond) -> None:
    @app.get("/api/models", response_model=responses.ModelList, tags=["models"])
    async def models() -> Response:
        """Lists the models with their configuration, scores and training snapshots."""
        return await respond(lambda handlers, deadline: handlers.models())

    @app.get("/api/models/{model}/weights", response_model=responses.WeightList, tags=["models"])
    async def weights(model: Name, step: Step = None) -> Response:
        """Lists the weights: shape, component, and which rows are W_Q, W_K and so on."""
        return await respond(lambda handlers, deadline: handlers.weights(model, step))

    @app.get(
        "/api/models/{model}/weights/{weight}", response_class=Response, responses=TENSOR_RESPONSE, tags=["models"]
    )
    async def weight(model: Name, weight: Name, step: Step = None, index: Index = "") -> Response:
        """Returns a weight tensor or a slice of it."""
        return await respond_tensor(lambda handlers, deadline: handlers.weight(model, weight, step, index))

    @app.get("/api/models/{model}/vocabulary", response_model=responses.Vocabulary, tags=["models"])
    async def vocabulary(model: Name) -> Response:
        """Returns the text of every token: the columns of the logits."""
        return await respond(lambda handlers, deadline: handlers.vocabulary(model))

    @app.get("/api/models/{model}/history", response_model=responses.History, tags=["models"])
    async def history(model: Name) -> Response:
        """Returns the training loss and the validations from the training log."""
        return await respond(lambda handlers, deadline: handlers.history(model))


def _add_generation_routes(app: FastAPI, respond: Respond, workers: WorkerPool, handlers: LazyHandlers) -> None:
    @app.post("/api/translate", response_model=responses.Translation, tags=["generation"])
    async def translate(body: requests.TranslateRequest) -> Response:
        """Translates a text and returns the best hypotheses of each sentence with the log-probability of every token."""
        return await respond(lambda handlers, deadline: handlers.translate(body, deadline))

    @app.post("/api/generate", response_class=Response, responses=STREAM_RESPONSE, tags=["generation"])
    async def generate(body: requests.GenerateRequest) -> Response:
        """Streams generated text."""
        pieces = workers.stream(lambda deadline: handlers().generate(body, deadline))
        first = await anext(pieces)  # so that an invalid request gets an error status

        async def lines() -> AsyncGenerator[bytes]:
            try:
                yield first
                async for piece in pieces:
                    yield piece
            except ApiError as error:
                yield bytes(error_response(error, "/api/generate").body) + b"\n"
            finally:
                await pieces.aclose()

        return JsonLinesResponse(lines())


def _add_media_routes(app: FastAPI, respond: Respond, workers: WorkerPool, handlers: LazyHandlers) -> None:
    @app.post(
        UPLOAD_PATH, status_code=201, response_model=responses.Media, tags=["media"],
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
            }
        },
    )  # fmt: skip
    async def add_media(request: Request) -> Response:
        """Stores a picture or sound for a while, the content of its file; its id is the text of a trace request."""
        data = await request.body()
        return await respond(lambda handlers, deadline: handlers.add_media(data), 201)

    @app.get("/api/media/{id}", response_class=Response, responses=MEDIA_RESPONSE, tags=["media"])
    async def media(id: TraceId) -> Response:
        """Returns the content of a stored picture or sound."""
        return BinaryResponse(await workers.run(lambda deadline: handlers().media.path(id, "id").read_bytes()))


def _add_trace_routes(app: FastAPI, respond: Respond, respond_tensor: Respond) -> None:
    @app.post("/api/traces", status_code=201, response_model=responses.Trace, tags=["traces"])
    async def create_trace(body: requests.TraceRequest) -> Response:
        """Traces a forward pass over a text and its output, and stores it.

        With interventions, also returns what they changed in the output.
        """
        return await respond(lambda handlers, deadline: handlers.create_trace(body, deadline), 201)

    @app.get("/api/traces/{id}", response_model=responses.Trace, tags=["traces"])
    async def trace(id: TraceId) -> Response:
        """Returns the tokens of a stored trace and lists its tensors."""
        return await respond(lambda handlers, deadline: handlers.trace(id))

    @app.get("/api/traces/{id}/tensors/{name}", response_class=Response, responses=TENSOR_RESPONSE, tags=["traces"])
    async def tensor(id: TraceId, name: Name, index: Index = "") -> Response:
        """Returns a tensor of a trace, such as `decoder.1.cross.weights`, or a slice of it."""
        return await respond_tensor(lambda handlers, deadline: handlers.tensor(id, name, index))


def _add_analysis_routes(app: FastAPI, respond: Respond, respond_tensor: Respond) -> None:
    @app.get("/api/traces/{id}/alignment", response_model=responses.Alignment, tags=["analyses"])
    async def alignment(id: TraceId, layer: Layer = -1, head: Head = None) -> Response:
        """Aligns source and target words by the cross-attention of a layer."""
        return await respond(lambda handlers, deadline: handlers.alignment(id, layer, head, deadline))

    @app.get("/api/traces/{id}/attention-entropy", response_model=responses.AttentionEntropy, tags=["analyses"])
    async def attention_entropy(id: TraceId) -> Response:
        """Returns the mean entropy of the attention weights of each head."""
        return await respond(lambda handlers, deadline: handlers.attention_entropy(id, deadline))

    @app.get("/api/traces/{id}/logit-lens", response_model=responses.LogitLens, tags=["analyses"])
    async def logit_lens(id: TraceId, top: Top = 5) -> Response:
        """Returns the prediction of each layer: its vectors through the final norm and the unembedding."""
        return await respond(lambda handlers, deadline: handlers.logit_lens(id, top, deadline))

    @app.get("/api/traces/{id}/logit-attribution", response_model=responses.LogitAttribution, tags=["analyses"])
    async def logit_attribution(id: TraceId, row: Row, token: TokenId = None, against: TokenId = None) -> Response:
        """Returns what each head and feed-forward layer adds to a token's logit, or to its difference from another's."""
        return await respond(
            lambda handlers, deadline: handlers.logit_attribution(id, row, token, against, deadline)
        )  # fmt: skip

    @app.get("/api/traces/{id}/alternatives", response_model=responses.Alternatives, tags=["analyses"])
    async def alternatives(id: TraceId, row: Row, top: Top = 10) -> Response:
        """Returns the most likely tokens of a row."""
        return await respond(lambda handlers, deadline: handlers.alternatives(id, row, top, deadline))

    @app.get("/api/traces/{id}/next-token", response_model=responses.NextToken, tags=["analyses"])
    async def next_token(
        id: TraceId, row: Row, temperature: Annotated[requests.Temperature, Query()] = 1.0,
        top_k: Annotated[requests.TopK, Query()] = 0, top_p: Annotated[requests.TopP, Query()] = 1.0,
        seed: Annotated[requests.Seed, Query()] = 0, top: Top = 8,
    ) -> Response:  # fmt: skip
        """Returns the most likely tokens of a row with the probabilities that sampling would give them."""
        search = Search(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return await respond(lambda handlers, deadline: handlers.next_token(id, row, search, top, deadline))

    @app.get("/api/traces/{id}/top-tokens", response_model=responses.TopTokens, tags=["analyses"])
    async def top_tokens(id: TraceId, count: Annotated[int, Query(ge=1, le=500)] = 100) -> Response:
        """Returns the logits and probabilities of the most likely tokens of all rows, for a large vocabulary."""
        return await respond(lambda handlers, deadline: handlers.top_tokens(id, count, deadline))

    @app.get(
        "/api/traces/{id}/attention-rollout/{stack}", response_class=Response, responses=TENSOR_RESPONSE,
        tags=["analyses"],
    )  # fmt: skip
    async def attention_rollout(
        id: TraceId, stack: Literal["encoder", "decoder", "both"], index: Index = ""
    ) -> Response:
        """Returns the attention rollout through all layers, [tokens, tokens]; for `both`, [target, source + target]."""
        return await respond_tensor(lambda handlers, deadline: handlers.attention_rollout(id, stack, index, deadline))

    @app.get(
        "/api/traces/{id}/head-ablation/{attention}", response_class=Response, responses=TENSOR_RESPONSE,
        tags=["analyses"],
    )  # fmt: skip
    async def head_ablation(id: TraceId, attention: Name, index: Index = "") -> Response:
        """Returns ln P of each token with each head minus ln P without it, [heads, rows]."""
        return await respond_tensor(lambda handlers, deadline: handlers.head_ablation(id, attention, index, deadline))

    @app.get(
        "/api/traces/{id}/token-similarity/{name}", response_class=Response, responses=TENSOR_RESPONSE,
        tags=["analyses"],
    )  # fmt: skip
    async def token_similarity(
        id: TraceId, name: Name, measure: Literal["dot", "cosine", "scaled"] = "cosine", index: Index = ""
    ) -> Response:
        """Returns the similarity between the tokens' vectors in a tensor such as `encoder.vectors`, [tokens, tokens]."""
        return await respond_tensor(
            lambda handlers, deadline: handlers.token_similarity(id, name, measure, index, deadline)
        )

    @app.post("/api/contextual-embeddings", response_model=responses.ContextualEmbeddings, tags=["analyses"])
    async def contextual_embeddings(body: requests.ContextualEmbeddingsRequest) -> Response:
        """Returns the vectors of one word in several sentences, layer by layer, and their cosines."""
        return await respond(lambda handlers, deadline: handlers.contextual_embeddings(body, deadline))


def _add_space_routes(app: FastAPI, respond: Respond, limits: Limits) -> None:
    @app.post("/api/space", response_model=responses.Space, tags=["analyses"])
    async def space(body: requests.SpaceRequest, request: Request) -> Response:
        """Places embeddings, the tokens of traces at every layer, and words and their sums, in two or three dimensions."""
        timeout = limits.training_timeout if body.method == "tsne" else None
        response = respond(lambda handlers, deadline: handlers.space(body, deadline), 200, timeout)
        return await _cancel_on_disconnect(request, response)

    @app.get("/api/traces/{id}/nearest-embeddings", response_model=responses.NearestEmbeddings, tags=["analyses"])
    async def nearest_embeddings(
        id: TraceId, stack: Literal["encoder", "decoder"], position: Row, count: Top = 5
    ) -> Response:
        """Returns the embeddings nearest to a token's vector at each layer of a stack."""
        return await respond(
            lambda handlers, deadline: handlers.nearest_embeddings(id, stack, position, count, deadline)
        )


def _add_training_routes(app: FastAPI, respond: Respond, manager: TrainingManager | None) -> None:
    disabled = "this server does not train: only seq2see explore does, on its own machine"

    def require_manager() -> TrainingManager:
        if manager is None:
            raise ApiError(403, disabled, "run seq2see explore on your own machine")
        return manager

    async def run(command: Callable[[TrainingManager], None]) -> responses.Training:
        # Not in the worker pool: what waits for a process or a disk must not keep a translation waiting.
        found = require_manager()
        await asyncio.to_thread(command, found)
        return await asyncio.to_thread(found.status)

    @app.get("/api/training", response_model=responses.Training, tags=["training"])
    async def training() -> responses.Training:
        """Describes the training run that was started, resumed or followed last."""
        if manager is None:
            return responses.Training(disabled=disabled, runs="", files=[], paused=[], run=None)
        return await asyncio.to_thread(manager.status)

    @app.post("/api/training", status_code=201, response_model=responses.Training, tags=["training"])
    async def start(body: requests.StartTraining) -> responses.Training:
        """Starts a training in a process of its own; one at a time."""
        return await run(lambda manager: manager.start(body))

    @app.post("/api/training/pause", response_model=responses.Training, tags=["training"])
    async def pause() -> responses.Training:
        """Makes the training save and end its process; it can be resumed."""
        return await run(lambda manager: manager.pause())

    @app.post("/api/training/resume", response_model=responses.Training, tags=["training"])
    async def resume(body: requests.ResumeTraining) -> responses.Training:
        """Continues a paused run."""
        return await run(lambda manager: manager.resume(body.name))

    @app.post("/api/training/stop", response_model=responses.Training, tags=["training"])
    async def stop() -> responses.Training:
        """Ends the training early, and writes the model of the step that it has reached."""
        return await run(lambda manager: manager.stop())

    @app.get("/api/training/report", response_model=responses.TrainingReport, tags=["training"])
    async def report(
        step: Annotated[int, Query(ge=0, le=1 << 40)], text: Annotated[requests.Text, Query(min_length=1)],
        attention: Annotated[str, Query(max_length=100)] = "", head: Head = None,
    ) -> Response:  # fmt: skip
        """Returns the output and the attention of one head at a training step."""
        directory = require_manager().run
        return await respond(
            lambda handlers, deadline: handlers.training_report(directory, step, text, attention, head, deadline)
        )


def _add_lesson_routes(app: FastAPI, respond: Respond, limits: Limits) -> None:
    @app.get("/api/lessons", response_model=responses.LessonList, tags=["lessons"])
    async def lessons() -> Response:
        """Lists the lessons and their settings, in the order of the course."""
        return await respond(lambda handlers, deadline: handlers.lessons())

    @app.post("/api/lessons/{lesson}", response_model=responses.LessonResult, tags=["lessons"])
    async def lesson(lesson: Name, body: requests.LessonRequest, request: Request) -> Response:
        """Computes a lesson with the default settings or with others."""
        trains = lesson in LESSONS and LESSONS[lesson].training_seconds
        timeout = limits.training_timeout if trains else None
        response = respond(lambda handlers, deadline: handlers.lesson(lesson, body, deadline), 200, timeout)
        return await _cancel_on_disconnect(request, response)


async def _cancel_on_disconnect(request: Request, response: Coroutine[Any, Any, Response]) -> Response:
    """Awaits the response, but stops its worker at the next deadline check when the client disconnects."""
    working, disconnected = asyncio.ensure_future(response), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ApiError(503, "the client disconnected", "send the request again", retry_after=1)
        return working.result()
    finally:
        working.cancel()
        disconnected.cancel()


def _add_pages(app: FastAPI, directory: Path) -> None:
    files = load_files(directory)

    def html_response(html: bytes) -> Response:
        return Response(html, media_type="text/html", headers={"content-security-policy": HTML_POLICY})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return html_response(render_docs(app.openapi()))

    @app.api_route("/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(path: str) -> Response:
        file = files.get(f"/{path}")
        if file is not None:
            return Response(file.data, media_type=file.media_type, headers={"cache-control": "no-cache"})
        if path or files:
            raise HTTPException(404)
        return html_response(render_html("seq2see", NOT_BUILT))


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        return error_response(error, request.url.path)

    @app.exception_handler(UserError)
    async def user_error(request: Request, error: UserError) -> Response:
        return error_response(ApiError(422, str(error), "see /docs"), request.url.path)

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        return error_response(ApiError(422, first["msg"], "see /docs", location), request.url.path)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        response = error_response(ApiError(error.status_code, error.detail, "see /docs"), request.url.path)
        response.headers.update(error.headers or {})
        return response
