"""Access control, limits of bodies and security headers for every request.

The server listens on localhost only, but any web page open in a browser can send requests there too. A request must
therefore name this machine as its host (which stops DNS rebinding) and must not come from another origin; responses may
run no scripts but our own and may not be framed.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from seq2see.server.http.errors import ApiError, Respond

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

log = logging.getLogger("seq2see.server")


class BodyPool:
    """The bytes of request bodies that are held at a time, from their arrival to the end of their answers, and the thread
    that parses them: one, because json holds Python's lock, and so delays the event loop by one body at most."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.held = max_bytes, 0
        self._parser = ThreadPoolExecutor(1, "parser")

    def hold(self, size: int) -> None:
        if self.held + size > self.max_bytes:
            raise ApiError(503, "too many request bodies are arriving", "send the request again", retry_after=1)
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size

    async def parse(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._parser, work, *arguments)


@dataclass(frozen=True)
class BodyLimit:
    """How large the body of a request may be, and with which others it shares its room."""

    max_bytes: int
    pool: BodyPool


@dataclass(frozen=True)
class Access:
    """Which requests a server answers."""

    local_only: bool  # those to this machine's own name and from the server's own page or `origins`
    timeout: float  # seconds in which a body must arrive
    body_limit: Callable[[Scope], BodyLimit]  # of a request whose headers have arrived
    origins: tuple[str, ...] = ()  # whose pages may send requests


class SecurityMiddleware:
    """Wraps the whole application. Also turns an unexpected exception into a 500 response and a traceback in the log."""

    def __init__(self, app: App, access: Access, respond: Respond) -> None:
        self.app, self.access, self.respond = app, access, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                present = {name for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in present)]
                if not body.complete:
                    message["headers"].append((b"connection", b"close"))  # rather than read what nobody needs
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        limit = self.access.body_limit(scope)
        scope.setdefault("state", {})["body_pool"] = limit.pool
        body = _Body(receive, headers, limit, self.access.timeout)
        try:
            self._check_origin(headers, scope["path"])
            body.check()
            await self.app(scope, body.receive, send_with_headers)
        except ApiError as error:
            if not started:
                await self.respond(error, scope["path"])(scope, receive, send_with_headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                internal = ApiError(500, "internal server error", "see the traceback in the server's terminal")
                await self.respond(internal, scope["path"])(scope, receive, send_with_headers)
        finally:
            body.release()

    def _check_origin(self, headers: Mapping[str, str], path: str) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.access.local_only and _hostname(host) not in LOCAL_HOSTS:
            raise ApiError(421, f'unknown host name "{host[:80]}"', "use 127.0.0.1 or localhost", "Host")
        # A browser sends the password that it was once given with the requests of any page.
        by_browser = headers.get("authorization", "").lower().startswith("basic")
        if not (self.access.local_only or by_browser) or (
            origin is not None and {origin, "*"} & set(self.access.origins)
        ):
            return
        foreign = origin is not None and origin.partition("://")[2] != host
        # Following a link to the page from another site is allowed.
        navigation = headers.get("sec-fetch-mode") == "navigate" and not path.startswith("/api/")
        same_site = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if foreign or not (same_site or navigation):
            raise ApiError(
                403, "cross-origin requests are not allowed", "use the page that this server serves", "Origin"
            )


class _Body:
    """The body of a request: enforces its limits as it arrives, also if it is longer than announced."""

    def __init__(self, receive: Receive, headers: Mapping[str, str], limit: BodyLimit, timeout: float) -> None:
        self._receive, self._limit, self._timeout = receive, limit, timeout
        self._end = asyncio.get_running_loop().time() + timeout
        self._headers, self._announced = headers, int(headers.get("content-length", 0))  # a number, or h11 refuses it
        self.complete = not (self._announced or "transfer-encoding" in headers)  # whether all of it has arrived
        self._held = 0

    def check(self) -> None:
        if {"content-length", "transfer-encoding"} <= self._headers.keys():
            # A proxy may believe the other one (RFC 9112, section 6.3).
            raise ApiError(400, "a request has either Content-Length or Transfer-Encoding, not both", location="body")
        if self._announced > self._limit.max_bytes:
            raise self._too_large(f"{self._announced:,} bytes")

    async def receive(self) -> MutableMapping[str, Any]:
        try:
            # After the body, this waits for the client to disconnect.
            async with asyncio.timeout_at(None if self.complete else self._end):
                message = await self._receive()
        except TimeoutError:
            text = f"the request body did not arrive within {self._timeout:g} seconds"
            raise ApiError(408, text, "send it at once", "body") from None
        if message["type"] == "http.disconnect" and not self.complete:
            raise ApiError(499, "the client disconnected before the end of its request", "send the request again")
        self.complete = not message.get("more_body", False)
        size = len(message.get("body", b""))
        if self._held + size > self._limit.max_bytes:
            raise self._too_large(f"more than {self._limit.max_bytes:,} bytes")
        self._limit.pool.hold(size)
        self._held += size
        return message

    def release(self) -> None:
        self._limit.pool.release(self._held)

    def _too_large(self, size: str) -> ApiError:
        message = f"the request body has {size}; the maximum is {self._limit.max_bytes:,}"
        return ApiError(413, message, "shorten the request", "body")


def _hostname(host: str) -> str:
    """Returns the name in a Host header without its port and without the brackets of an IPv6 address."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^@:/\[\]]+))(?::[0-9]*)?", host)
    return (found[1] or found[2]).lower() if found else ""
