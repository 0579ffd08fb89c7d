"""What the endpoints of both APIs share: keys, limits, language pairs, and requests to the workers."""

import asyncio
import json
import logging
import math
import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from starlette.datastructures import Headers

from seq2see.errors import did_you_mean
from seq2see.server.http.errors import ApiError
from seq2see.server.http.security import BodyLimit, BodyPool, Scope
from seq2see.server.http.workers import until_disconnected
from seq2see.server.service.keys import Client, Keys, RateLimiter, read_keys
from seq2see.server.service.languages import Detector
from seq2see.server.service.prometheus import Metrics
from seq2see.server.service.supervisor import Message, Supervisor

log = logging.getLogger("seq2see.server.service")

# A body may have as many bytes as its text needs at most: 12 for a character as two \\uXXXX, with room for other parameters.
BYTES_PER_CHARACTER, OTHER_BYTES = 16, 64 << 10
# Of all bodies at a time. Whoever has no key in a header cannot take the room of those who have one.
POOL_BYTES, POOL_BYTES_WITHOUT_KEY = 64 << 20, 32 << 20


@dataclass(frozen=True)
class Settings:
    """Options and limits of the service."""

    key_file: Path | None = None
    local_only: bool = True  # the address is this machine's own
    beam: int = 4  # of translations
    max_characters: int = 10_000  # in a request
    max_texts: int = 100  # in a request
    max_requests: int = 1000  # running and waiting
    max_new_tokens: int = 4096
    timeout: float = 60.0  # seconds to send a request, and from its arrival to its answer
    origins: tuple[str, ...] = ()  # whose pages may use the service (CORS)
    access_log: bool = True


class Service:
    def __init__(self, supervisor: Supervisor, settings: Settings) -> None:
        self.supervisor, self.settings = supervisor, settings
        self.keys = self._read_keys()
        self.limiter, self.metrics, self.detector = RateLimiter(), Metrics(), Detector()
        self.files: OrderedDict[str, tuple[str, bytes]] = OrderedDict()  # that wait for their download, by token
        self.running, self.started = 0, now()
        self._pools = {True: BodyPool(POOL_BYTES), False: BodyPool(POOL_BYTES_WITHOUT_KEY)}

    def _read_keys(self) -> Keys | None:
        return read_keys(self.settings.key_file) if self.settings.key_file else None

    async def reload(self) -> None:
        """Reads the keys and the models again, without dropping requests."""
        try:
            self.keys = self._read_keys()
        except Exception as error:
            log.error("the keys were not reloaded: %s", error)
        await self.supervisor.reload()
        self.check_glossaries()

    def check_glossaries(self) -> None:
        """Warns of glossaries into languages that no model translates into."""
        targets = sorted({target for _, target in self.pairs})
        for client in self.keys.clients.values() if self.keys else ():
            for language in client.glossary:
                if language not in targets:
                    hint = did_you_mean(language, targets)
                    log.warning(
                        'key "%s": no model translates into "%s" of its glossary: %s', client.name, language, hint
                    )

    def models(self, shape: str) -> list[str]:
        return [name for name, model in self.supervisor.models.items() if model["shape"] == shape]

    @property
    def pairs(self) -> dict[tuple[str, str], str]:
        """The model of each pair of languages; a translator's name is `source-target`."""
        return {split_pair(name): name for name in self.models("encoder-decoder")}

    def authenticate(self, request: Request, key: str | None = None) -> Client:
        """Returns who sends a request, by a key in its body or its Authorization header; raises a 401 or 403 without one."""
        if self.keys is None:
            client = Client(request.client.host if request.client else "unknown")
        else:
            key = key or _header_key(request.headers)
            if not key:
                raise ApiError(401, "an API key is required", "ask the operator of this server for one", "api_key")
            found = self.keys.find(key)
            if found is None:
                raise ApiError(403, "Invalid API key", "", "api_key")
            client = found
        request.state.client = client.name
        return client

    def body_limit(self, scope: Scope) -> BodyLimit:
        """Returns how large a body may be, as far as the headers tell who sends it."""
        client = self.keys.find(_header_key(Headers(scope=scope))) if self.keys else None
        characters = self._max_characters(client) if client else self.settings.max_characters
        known = client is not None or self.keys is None
        if known and scope["path"].startswith("/api/"):  # explore has limits of its own
            return BodyLimit(POOL_BYTES, self._pools[known])
        return BodyLimit(OTHER_BYTES + BYTES_PER_CHARACTER * characters, self._pools[known])

    def _max_characters(self, client: Client) -> int:
        return client.max_characters or self.settings.max_characters

    @contextmanager
    def admit(self, client: Client, characters: int) -> Iterator[None]:
        """Counts a request while it runs; raises an error if it exceeds a limit."""
        limit = self._max_characters(client)
        if characters > limit:
            raise ApiError(400, f"Invalid request: request ({characters}) exceeds text limit ({limit})", "", "q")
        if wait := self.limiter.wait(client):
            message = f"Slowdown: {client.requests_per_minute} per 1 minute"
            raise ApiError(429, message, "", retry_after=math.ceil(wait))
        if self.running >= self.settings.max_requests:
            raise ApiError(503, f"{self.running} requests are already running or waiting", "", retry_after=1)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    async def call(self, request: Request, client: Client, message: Message) -> Message:
        """Returns the result of a worker; cancels it when the client goes away."""
        seconds = self.settings.timeout
        try:
            async with asyncio.timeout(seconds + 5):  # the worker has stopped before
                result = await until_disconnected(request, self.supervisor.call(self._complete(client, message)))
        except TimeoutError:
            raise ApiError(504, f"not finished within {seconds:g} seconds", "shorten the text") from None
        self._count(request, message, result)
        return result

    async def stream(self, request: Request, client: Client, message: Message) -> AsyncGenerator[Message]:
        """Yields the pieces of a worker's answer, then its result."""
        async with aclosing(self.supervisor.stream(self._complete(client, message))) as pieces:
            async for piece in pieces:
                yield piece
        self._count(request, message, piece)

    def _complete(self, client: Client, message: Message) -> Message:
        return {"client": client.name, "seconds": self.settings.timeout, **message}

    def _count(self, request: Request, message: Message, result: Message) -> None:
        request.state.model, request.state.tokens = message["model"], result["tokens"]
        self.metrics.count_tokens(message["model"], *result["tokens"])


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service)]  # parameters of endpoints


async def _authenticate(request: Request, service: ServiceOf) -> Client:
    return service.authenticate(request)


Authenticated = Annotated[Client, Depends(_authenticate)]


def split_pair(name: str) -> tuple[str, str]:
    """Returns the languages in a translator's name."""
    source, _, target = name.partition("-")
    return source, target


def _header_key(headers: Headers) -> str:
    """Returns the key in the Authorization header: a bearer token, or the password that a browser asks for."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return ""


def server_sent_event(data: object) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode(errors="replace")


def now() -> int:
    return int(time.time())
