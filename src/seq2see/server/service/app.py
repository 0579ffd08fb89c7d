"""The application of `seq2see serve`: both APIs, health, metrics, and our own API for looking inside where it is on."""

import json
import sys
import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.middleware.cors import CORSMiddleware

from seq2see import __version__
from seq2see.server.http.errors import ApiError, add_error_handlers
from seq2see.server.http.security import Access, App, Receive, Scope, SecurityMiddleware, Send
from seq2see.server.service import libretranslate, openai
from seq2see.server.service.service import Authenticated, Service, ServiceOf

DESCRIPTION = "Translation by LibreTranslate's API; chat, completions and embeddings by OpenAI's."


def create_app(service: Service, explore: App | None = None) -> FastAPI:
    """Returns the application; `explore` is our own page and API, offered to clients with a key."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.supervisor.stop()

    app = FastAPI(
        title="seq2see", version=__version__, description=DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    settings = service.settings
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["retry-after"],
        )
    # Without keys, the checks of a local server protect it from other web pages.
    local_only = settings.local_only and service.keys is None
    access = Access(local_only, settings.timeout, service.body_limit, settings.origins)
    app.add_middleware(SecurityMiddleware, access=access, respond=error_response)
    app.add_middleware(AccessLog, service=service)
    add_error_handlers(app, error_response, openai.validation_error)
    app.state.service = service
    for router in (libretranslate.router, openai.router, operation):
        app.include_router(router)

    if explore is not None:
        app.mount("/", KeyRequired(explore, service))
    return app


operation = APIRouter(tags=["operation"])


@operation.get("/health")
async def health(service: ServiceOf) -> Response:
    """Says whether a worker is ready."""
    if service.supervisor.workers:
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "no worker process is ready"}, 503, {"retry-after": "2"})


@operation.get("/metrics", response_class=Response, responses=libretranslate.ERRORS)
async def metrics(client: Authenticated, service: ServiceOf) -> Response:
    """Returns metrics for Prometheus."""
    supervisor = service.supervisor
    text = service.metrics.render(service.running, supervisor.restarts, await supervisor.statistics())
    return Response(text, media_type="text/plain; version=0.0.4")


def error_response(error: ApiError, path: str) -> Response:
    """Returns an error in the form of the API that the path belongs to."""
    shape = openai.error_response if path.startswith("/v1/") else libretranslate.error_response
    return shape(error)


class KeyRequired:
    """Lets only clients with a key pass; a browser asks for it as a password."""

    def __init__(self, app: App, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self.service.authenticate(Request(scope))
            except ApiError as error:
                challenge = {
                    "www-authenticate": 'Basic realm="seq2see: any user name, and your API key as the password"'
                }
                response = JSONResponse({"error": error.message}, 401, challenge)
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)


class AccessLog:
    """Counts every request, and writes a line of JSON about it: who, what, how long; never its texts."""

    def __init__(self, app: App, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, size = time.monotonic(), 500, 0

        async def counting_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, counting_send)
        finally:
            seconds = time.monotonic() - start
            route = scope.get("route")
            path = getattr(route, "path", "other")  # not the path itself, which anybody can make up
            self.service.metrics.count_request(path, status, seconds)
            if self.service.settings.access_log:
                self._write(scope, path, status, size, seconds)

    def _write(self, scope: Scope, path: str, status: int, size: int, seconds: float) -> None:
        state = scope.get("state", {})
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "client": state.get("client"),
            "address": scope["client"][0] if scope.get("client") else None,
            "method": scope["method"],
            "path": path,
            "status": status,
            "milliseconds": round(seconds * 1000, 1),
            "bytes": size,
            "model": state.get("model"),
            "tokens": state.get("tokens"),
        }
        with suppress(OSError):  # a full disk or a closed pipe is no reason to stop serving
            print(json.dumps(line), file=sys.stdout, flush=True)
