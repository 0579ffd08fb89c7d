"""The HTTP application: which address asks what. Each route checks the question, hands it to a worker and passes on the answer.

Torch is imported by the first worker, not here, so that the server answers within a second or two of its start.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from seq2see import __version__
from seq2see.course.lessons import LESSONS
from seq2see.errors import UserError
from seq2see.serve import requests, responses
from seq2see.serve.middleware import Guard, problem
from seq2see.serve.static_files import FOLDER, MISSING, PLAIN_POLICY, document, files, plain
from seq2see.serve.tensors import INDEX, Floats
from seq2see.serve.workers import Clock, Limits, Refusal, Workers

if TYPE_CHECKING:
    from seq2see.serve.handlers import Answers

log = logging.getLogger("seq2see.serve")

ABOUT = (
    "Everything that the page shows, for programs. Texts are translated, continued and traced; a trace holds every number "
    "of one pass by name, and tensors come by name and slice as little-endian float32, their shape in the header X-Shape. "
    "Errors say what, where and what to do. When 503 is answered, ask again after Retry-After seconds."
)

Index = Annotated[
    str,
    Query(
        max_length=80, description="A slice such as `0,:,2:5`; without it, the whole tensor.",
        json_schema_extra={"pattern": INDEX},  # told, but checked where the answer to a wrong one is in plain words
    ),
]  # fmt: skip
Id = Annotated[str, InPath(min_length=1, max_length=40, description="The id of a trace.")]
In = Annotated[str, InPath(min_length=1, max_length=100)]
Step = Annotated[int | None, Query(ge=0, le=1 << 40, description="A snapshot of the training.")]
Row = Annotated[int, Query(ge=-1024, le=1024, description="A row of the decoder, from 0; negative ones from the end.")]
Top = Annotated[int, Query(ge=1, le=100, description="So many of the likeliest.")]
Id32 = Annotated[int | None, Query(ge=0, le=1 << 31, description="A token's id.")]


class Binary(Response):
    media_type = "application/octet-stream"


class Lines(StreamingResponse):
    media_type = "application/x-ndjson"


FLOATS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Little-endian float32 in C order; −∞ is −∞.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "X-Shape": {"schema": {"type": "string"}, "description": "Such as 8,6,5; empty for a single number."}
        },
    }
}
LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": 'Lines of JSON: {"text": piece} as it is written, then {"done": true, "text": all}; or a Problem.',
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": responses.Problem, "description": description}
    for status, description in {
        400: "The body is no JSON.", 403: "Asked by a page from elsewhere.", 404: "There is no such thing.",
        413: "Too large.", 421: "Asked under a foreign name.", 422: "It cannot be meant.", 500: "A fault of the server's.",
        503: "Too many requests; see Retry-After.", 504: "Not done in time.",
    }.items()
}  # fmt: skip


class Lazily:
    """The answers, made by whoever needs them first."""

    def __init__(self, folders: dict[str, Path | None], limits: Limits) -> None:
        self._make = folders, limits
        self._lock, self._made = threading.Lock(), None

    _made: "Answers | None"

    def __call__(self) -> "Answers":
        with self._lock:
            if self._made is None:
                from seq2see.serve.handlers import Answers

                self._made = Answers(*self._make)
        return self._made

    def warm(self) -> None:
        """Loads every model before anybody asks."""
        shelf = self().shelf
        for name in shelf.folders:
            try:
                shelf.model(name)
            except Refusal as refusal:
                log.error("%s", refusal.what)


def create(folders: dict[str, Path | None], limits: Limits | None = None, page: Path = FOLDER) -> FastAPI:
    """The application for models by name; a folder of None is the bundled model."""
    limits = limits or Limits()
    workers, answers = Workers(limits), Lazily(folders, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=answers.warm, daemon=True).start()
        yield
        workers.stop()

    app = FastAPI(
        title="seq2see", version=__version__, description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None,
        responses=PROBLEMS,
    )  # fmt: skip
    app.add_middleware(Guard, body_bytes=limits.body_bytes)
    _errors(app)

    async def told(
        work: Callable[["Answers", Clock], BaseModel], status: int = 200, seconds: float | None = None
    ) -> Response:
        # Written out as JSON by the worker too: a long answer would hold up the event loop.
        data = await workers.do(lambda clock: work(answers(), clock).model_dump_json().encode(), seconds)
        return Response(data, status, media_type="application/json")

    async def numbers(work: Callable[["Answers", Clock], Floats]) -> Response:
        found = await workers.do(lambda clock: work(answers(), clock))
        return Binary(found.data, headers={"x-shape": ",".join(map(str, found.shape))})

    app.state.workers, app.state.answers = workers, answers
    _models(app, told, numbers)
    _writing(app, told, workers, answers)
    _traces(app, told, numbers)
    _readings(app, told, numbers)
    _lessons(app, told, limits)
    _pages(app, page)
    return app


Told = Callable[..., Any]


def _models(app: FastAPI, told: Told, numbers: Told) -> None:
    @app.get("/api/models", response_model=responses.Models, tags=["models"])
    async def models() -> Response:
        """The models that can be asked: what each is, its settings, its scores and the snapshots of its training."""
        return await told(lambda answers, clock: answers.models())

    @app.get("/api/models/{model}/weights", response_model=responses.Weights, tags=["models"])
    async def weights(model: In, step: Step = None) -> Response:
        """Every learned tensor: its shape, where it acts, and which of its rows are W_Q, W_K and so on."""
        return await told(lambda answers, clock: answers.weights(model, step))

    @app.get("/api/models/{model}/weights/{weight}", response_class=Response, responses=FLOATS, tags=["models"])
    async def weight(model: In, weight: In, step: Step = None, index: Index = "") -> Response:
        """A learned tensor, or a slice of it."""
        return await numbers(lambda answers, clock: answers.weight(model, weight, step, index))

    @app.get("/api/models/{model}/tokens", response_model=responses.Tokens, tags=["models"])
    async def tokens(model: In) -> Response:
        """The vocabularies: what stands in each column of the logits."""
        return await told(lambda answers, clock: answers.tokens(model))

    @app.get("/api/models/{model}/history", response_model=responses.History, tags=["models"])
    async def history(model: In) -> Response:
        """How its training went: the loss as it was logged, and the validations; empty where no log was kept."""
        return await told(lambda answers, clock: answers.history(model))


def _writing(app: FastAPI, told: Told, workers: Workers, answers: Lazily) -> None:
    @app.post("/api/translate", response_model=responses.Translation, tags=["writing"])
    async def translate(body: requests.Translate) -> Response:
        """The best translations of a text, with the log-probability of every token."""
        return await told(lambda answers, clock: answers.translate(body, clock))

    @app.post("/api/generate", response_class=Response, responses=LINES, tags=["writing"])
    async def generate(body: requests.Generate) -> Response:
        """What the model writes, piece by piece as it is written."""
        pieces = workers.stream(lambda clock: answers().generate(body, clock))
        first = await anext(pieces)  # what is wrong with the request shows before anything is sent

        async def lines() -> AsyncGenerator[bytes]:
            try:
                yield first
                async for piece in pieces:
                    yield piece
            except Refusal as refusal:
                yield bytes(problem(refusal, "/api/generate").body) + b"\n"
            finally:
                await pieces.aclose()

        return Lines(lines())


def _traces(app: FastAPI, told: Told, numbers: Told) -> None:
    @app.post("/api/traces", status_code=201, response_model=responses.Manifest, tags=["traces"])
    async def trace(body: requests.Explain) -> Response:
        """One pass over a text and its output, kept for a while: the tokens, and the name of every number to ask for.

        With interventions, the model's output under them, and what they changed.
        """
        return await told(lambda answers, clock: answers.trace(body, clock), 201)

    @app.get("/api/traces/{id}", response_model=responses.Manifest, tags=["traces"])
    async def manifest(id: Id) -> Response:
        """What a trace holds."""
        return await told(lambda answers, clock: answers.manifest(id))

    @app.get("/api/traces/{id}/tensors/{name}", response_class=Response, responses=FLOATS, tags=["traces"])
    async def tensor(id: Id, name: In, index: Index = "") -> Response:
        """A quantity of a trace, such as `decoder.1.cross.weights`, or a slice of it."""
        return await numbers(lambda answers, clock: answers.tensor(id, name, index))


def _readings(app: FastAPI, told: Told, numbers: Told) -> None:
    @app.get("/api/traces/{id}/alignment", response_model=responses.Alignment, tags=["readings"])
    async def alignment(
        id: Id, layer: Annotated[int, Query(ge=-1024, le=1024)] = -1,
        head: Annotated[int | None, Query(ge=0, le=1024, description="Without one, the mean of all.")] = None,
    ) -> Response:  # fmt: skip
        """Which word stands for which, by the cross-attention of a layer."""
        return await told(lambda answers, clock: answers.alignment(id, layer, head, clock))

    @app.get("/api/traces/{id}/entropies", response_model=responses.Entropies, tags=["readings"])
    async def entropies(id: Id) -> Response:
        """How widely each head looks."""
        return await told(lambda answers, clock: answers.entropies(id, clock))

    @app.get("/api/traces/{id}/lens", response_model=responses.Lens, tags=["readings"])
    async def lens(id: Id, top: Top = 5) -> Response:
        """What each layer would predict if the model stopped there."""
        return await told(lambda answers, clock: answers.lens(id, top, clock))

    @app.get("/api/traces/{id}/contributions", response_model=responses.Contributions, tags=["readings"])
    async def contributions(id: Id, row: Row, token: Id32 = None, against: Id32 = None) -> Response:
        """What each head and each feed-forward layer adds to a token's logit, or to its lead over another."""
        return await told(lambda answers, clock: answers.contributions(id, row, token, against, clock))

    @app.get("/api/traces/{id}/alternatives", response_model=responses.Alternatives, tags=["readings"])
    async def alternatives(id: Id, row: Row, top: Top = 10) -> Response:
        """What else a row might have written."""
        return await told(lambda answers, clock: answers.alternatives(id, row, top, clock))

    @app.get("/api/traces/{id}/rollout/{stack}", response_class=Response, responses=FLOATS, tags=["readings"])
    async def rollout(id: Id, stack: Literal["encoder", "decoder", "both"], index: Index = "") -> Response:
        """Attention followed down through all layers, [tokens, tokens]; of `both`, [target, source + target tokens]."""
        return await numbers(lambda answers, clock: answers.rollout(id, stack, index, clock))

    @app.get("/api/traces/{id}/ablations/{attention}", response_class=Response, responses=FLOATS, tags=["readings"])
    async def ablations(id: Id, attention: In, index: Index = "") -> Response:
        """What each head of an attention is worth to each token: ln P with it − ln P without, [heads, rows]."""
        return await numbers(lambda answers, clock: answers.ablations(id, attention, index, clock))

    @app.get("/api/traces/{id}/similarities/{place}", response_class=Response, responses=FLOATS, tags=["readings"])
    async def similarities(
        id: Id, place: In, measure: Literal["dot", "cosine", "scaled"] = "cosine", index: Index = ""
    ) -> Response:
        """How near the tokens' vectors are to each other at a place such as `encoder.vectors`, [tokens, tokens]."""
        return await numbers(lambda answers, clock: answers.similarities(id, place, measure, index, clock))

    @app.post("/api/senses", response_model=responses.Senses, tags=["readings"])
    async def senses(body: requests.Senses) -> Response:
        """The vectors of one word in several sentences, layer by layer, and their cosines."""
        return await told(lambda answers, clock: answers.senses(body, clock))


def _lessons(app: FastAPI, told: Told, limits: Limits) -> None:
    @app.get("/api/lessons", response_model=responses.Lessons, tags=["lessons"])
    async def lessons() -> Response:
        """The notes' lessons, in their order, and what can be set in each."""
        return await told(lambda answers, clock: answers.lessons())

    @app.post("/api/lessons/{lesson}", response_model=responses.Lesson, tags=["lessons"])
    async def lesson(lesson: In, body: requests.Lesson, request: Request) -> Response:
        """A lesson computed and told, with the notes' words and tables or with others."""
        trains = lesson in LESSONS and LESSONS[lesson].seconds
        seconds = limits.training_seconds if trains else None
        return await _if_awaited(
            request, told(lambda answers, clock: answers.lesson(lesson, body, clock), 200, seconds)
        )


async def _if_awaited(request: Request, answer: Coroutine[Any, Any, Response]) -> Response:
    """The answer, unless who asked goes away before: then the worker stops at its next look at the clock."""
    working, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal(503, "nobody waits for the answer any more", "ask again", retry=1)
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


def _pages(app: FastAPI, folder: Path) -> None:
    built = files(folder)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(
            document(app.openapi()), media_type="text/html", headers={"content-security-policy": PLAIN_POLICY}
        )

    @app.api_route("/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(path: str) -> Response:
        file = built.get(f"/{path}")
        if file is not None:
            return Response(file.data, media_type=file.kind, headers={"cache-control": "no-cache"})
        if path or built:
            raise HTTPException(404)
        return Response(
            plain("seq2see", MISSING), media_type="text/html", headers={"content-security-policy": PLAIN_POLICY}
        )  # fmt: skip


def _errors(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return problem(error, request.url.path)

    @app.exception_handler(UserError)
    async def user_error(request: Request, error: UserError) -> Response:
        return problem(Refusal(422, str(error), "change the request; /docs tells what it may be"), request.url.path)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return problem(Refusal(422, first["msg"], "/docs tells what it may be", where), request.url.path)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        answer = problem(Refusal(error.status_code, error.detail, "/docs lists what there is"), request.url.path)
        answer.headers.update(error.headers or {})
        return answer
