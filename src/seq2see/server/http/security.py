"""Access control, size limits and security headers for every request.

The server listens on localhost only, but any web page open in a browser can send requests there too. A request must
therefore name this machine as its host (which stops DNS rebinding) and must not come from another origin; responses may
run no scripts but our own and may not be framed.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from seq2see.server.http.errors import ApiError, Respond

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


@dataclass(frozen=True)
class Access:
    """Which requests a server answers."""

    local_only: bool  # those to this machine's own name and from the server's own page or `origins`
    timeout: float  # seconds in which a body must arrive
    max_body_bytes: int
    max_bytes_of: Mapping[str, int] = field(default_factory=dict)  # of the bodies at other paths
    origins: tuple[str, ...] = ()


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
            await send(message)

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            if self.access.local_only:
                self._check_origin(headers, scope["path"])
            max_bytes = self.access.max_bytes_of.get(scope["path"], self.access.max_body_bytes)
            self._check_size(headers, max_bytes)
            await self.app(scope, self._limited(receive, max_bytes), send_with_headers)
        except ApiError as error:
            if not started:
                await self.respond(error, scope["path"])(scope, receive, send_with_headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                internal = ApiError(500, "internal server error", "see the traceback in the server's terminal")
                await self.respond(internal, scope["path"])(scope, receive, send_with_headers)

    def _check_origin(self, headers: dict[str, str], path: str) -> None:
        host = headers.get("host", "")
        if _hostname(f"//{host}") not in LOCAL_HOSTS:
            raise ApiError(421, f'unknown host name "{host[:80]}"', "use 127.0.0.1 or localhost", "Host")
        origin = headers.get("origin")
        if origin is not None and {origin, "*"} & set(self.access.origins):
            return
        foreign = origin is not None and origin.partition("://")[2] != host
        # Following a link to the page from another site is allowed.
        navigation = headers.get("sec-fetch-mode") == "navigate" and not path.startswith("/api/")
        same_site = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if foreign or not (same_site or navigation):
            raise ApiError(
                403, "cross-origin requests are not allowed", "use the page that this server serves", "Origin"
            )

    def _check_size(self, headers: dict[str, str], max_bytes: int) -> None:
        length = headers.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,18}", length) or int(length) > max_bytes:
            raise self._too_large(f"{length[:20]} bytes", max_bytes)

    def _limited(self, receive: Receive, max_bytes: int) -> Receive:
        """Enforces the limits on bodies without a content length, longer than announced, or sent too slowly."""
        received, complete = 0, False
        end = asyncio.get_running_loop().time() + self.access.timeout

        async def limited() -> MutableMapping[str, Any]:
            nonlocal received, complete
            try:
                # After the body, this waits for the client to disconnect.
                async with asyncio.timeout_at(None if complete else end):
                    message = await receive()
            except TimeoutError:
                text = f"the request body did not arrive within {self.access.timeout:g} seconds"
                raise ApiError(408, text, "send it at once", "body") from None
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > max_bytes:
                raise self._too_large(f"more than {max_bytes:,} bytes", max_bytes)
            return message

        return limited

    def _too_large(self, size: str, max_bytes: int) -> ApiError:
        message = f"the request body has {size}; the maximum is {max_bytes:,}"
        return ApiError(413, message, "shorten the request", "body")


def _hostname(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
