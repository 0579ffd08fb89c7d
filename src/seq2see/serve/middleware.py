"""The door: who may ask at all, how much, and the headers that every answer carries.

The server listens on this machine only, but every web page that a browser shows can send requests there too. So a request
must name this machine as its host (a foreign name that was made to point here is refused) and must not come from another
origin; what is served may run no script but our own and be framed by nobody.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse, Response

from seq2see.serve.workers import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HERE = frozenset({"127.0.0.1", "localhost", "::1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

log = logging.getLogger("seq2see.serve")


def problem(refusal: Refusal, path: str) -> Response:
    body = {"what": refusal.what, "where": refusal.where or path, "remedy": refusal.remedy}
    headers = {} if refusal.retry is None else {"retry-after": str(refusal.retry)}
    return JSONResponse(body, refusal.status, headers)


class Guard:
    """Around the whole application; also the place where a fault of ours becomes one line."""

    def __init__(self, app: App, body_bytes: int) -> None:
        self.app, self.body_bytes = app, body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def send_hardened(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                present = {name for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in present)]
            await send(message)

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._admit(headers, scope["path"])
            await self.app(scope, self._counted(receive), send_hardened)
        except Refusal as refusal:
            if not begun:
                await problem(refusal, scope["path"])(scope, receive, send_hardened)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not begun:
                fault = Refusal(
                    500, "the server failed at this request", "its terminal tells how; other requests go on"
                )
                await problem(fault, scope["path"])(scope, receive, send_hardened)

    def _admit(self, headers: dict[str, str], path: str) -> None:
        host = headers.get("host", "")
        if _name(f"//{host}") not in HERE:
            raise Refusal(421, f'this server is not called "{host[:80]}"', "ask 127.0.0.1 or localhost", "Host")
        origin = headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2] != host
        # Following a link to the page, from wherever, is no request of the other page's.
        follows = headers.get("sec-fetch-mode") == "navigate" and not path.startswith("/api/")
        own = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if foreign or not (own or follows):
            raise Refusal(403, "a page from elsewhere may not ask this server", "use the page that it serves", "Origin")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.body_bytes:
            raise self._too_large(f"{length[:20]} bytes")

    def _counted(self, receive: Receive) -> Receive:
        """A body that was not announced, or is longer than that, ends where it is too long."""
        received = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.body_bytes:
                raise self._too_large(f"more than {self.body_bytes:,} bytes")
            return message

        return counted

    def _too_large(self, size: str) -> Refusal:
        return Refusal(413, f"a request of {size}, where {self.body_bytes:,} are the most", "shorten it", "body")


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
