"""uvicorn's HTTP protocol with a time limit for request headers, which uvicorn itself does not have.

Without it, clients that send one byte a minute could hold all connections. The body has its limit in the middleware.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
_HEADERS = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
_BODY = b'{"error": "the request headers did not arrive in time"}'


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection on which a request does not begin, or its headers do not end, in time."""

    header_seconds = HEADER_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # IDLE: the headers of the request are incomplete.
        if self.conn.their_state is h11.IDLE:
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.header_seconds, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\n" + _HEADERS % len(_BODY) + _BODY)
            self.transport.close()
