"""The application: the page, which is there within a second of the start, and the API, which imports torch first."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from seq2see.config import InferencePrecision
from seq2see.server.explore import PAGE_DIRECTORY
from seq2see.server.explore.options import Limits, TrainingOptions
from seq2see.server.explore.static_files import HTML_POLICY, NOT_BUILT, load_files, render_docs, render_html
from seq2see.server.http.errors import ApiError, add_error_handlers
from seq2see.server.http.security import Receive, Scope, SecurityMiddleware, Send
from seq2see.server.http.workers import WorkerPool

if TYPE_CHECKING:
    from seq2see.server.explore.api import ServerState

log = logging.getLogger("seq2see.server.explore")


def create_app(
    models: dict[str, Path],
    limits: Limits | None = None,
    page_directory: Path = PAGE_DIRECTORY,
    device: str = "cpu",
    precision: InferencePrecision = "float32",
    local_only: bool = True,
    training: TrainingOptions | None = None,
) -> FastAPI:
    """Returns the application for models by name.

    `local_only`: answer only requests to this machine's own name and from the page itself; without it, or without
    `training`, the page cannot train.
    """
    limits = limits or Limits()
    workers = WorkerPool(limits.workers, limits.queue_size, limits.timeout)
    api = LazyApi((models, limits, device, precision, training if local_only else None))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=api.preload, daemon=True).start()
        yield
        workers.stop()
        await asyncio.to_thread(api.close)

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.workers, app.state.api = workers, api
    app.add_middleware(SecurityMiddleware, access=limits.access(local_only), respond=error_response)
    add_error_handlers(app, error_response, invalid_request)
    app.router.routes += [Route(path, api) for path in ("/api/{path:path}", "/openapi.json")]
    _add_pages(app, api, page_directory)
    return app


def error_response(error: ApiError, path: str) -> Response:
    body = {"message": error.message, "location": error.location or path, "hint": error.hint or "see /docs"}
    return JSONResponse(body, error.status, error.headers)


def invalid_request(problem: dict[str, Any]) -> ApiError:
    return ApiError(422, problem["msg"], location=".".join(map(str, problem["loc"])))


@dataclass
class LazyApi:
    """The API as an application that is created when the first request needs it, or when `preload` does."""

    arguments: tuple[Any, ...]  # of ServerState
    _api: FastAPI | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        api = self._api if self._api is not None else await asyncio.to_thread(self.create)
        await api.router(scope, receive, send)  # errors are answered by the whole application

    def create(self) -> FastAPI:
        with self._lock:
            if self._api is None:
                from seq2see.server.explore import analyses, endpoints, training_endpoints
                from seq2see.server.explore.api import ServerState, create_api

                routers = (endpoints.router, analyses.router, training_endpoints.router)
                self._api = create_api(ServerState(*self.arguments), routers)
            return self._api

    @property
    def state(self) -> "ServerState":
        state: ServerState = self.create().state.server
        return state

    def preload(self) -> None:
        """Loads all models before the first request needs them."""
        registry = self.state.registry
        for name in registry.names:
            try:
                registry.load(name)
            except ApiError as error:
                log.error("%s", error.message)

    def close(self) -> None:
        if self._api is not None and self.state.training is not None:
            self.state.training.close()


def _add_pages(app: FastAPI, api: LazyApi, directory: Path) -> None:
    files = load_files(directory)

    def html_response(html: bytes) -> Response:
        return Response(html, media_type="text/html", headers={"content-security-policy": HTML_POLICY})

    @app.get("/docs")
    async def docs() -> Response:
        created = await asyncio.to_thread(api.create)
        return html_response(render_docs(created.openapi()))

    @app.api_route("/{path:path}", methods=["GET", "HEAD"])
    async def page(path: str) -> Response:
        file = files.get(f"/{path}")
        if file is not None:
            return Response(file.data, media_type=file.media_type, headers={"cache-control": "no-cache"})
        if path or files:
            raise HTTPException(404)
        return html_response(render_html("seq2see", NOT_BUILT))
