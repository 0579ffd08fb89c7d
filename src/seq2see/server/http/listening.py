"""The socket that a server listens at, and uvicorn's settings.

uvicorn has no time limit for request headers, so clients that send one byte a minute could hold all connections: its
protocol gets one here. The body has its limit in `security`.
"""

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2see.errors import UserError

KEEP_ALIVE = 60  # seconds; if shorter than the client's, connections close just as the next request is sent
HEADER_SECONDS = 10.0
_HEADERS = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
_BODY = b'{"error": "the request headers did not arrive in time"}'


def listen(host: str, port: int, attempts: int = 1) -> socket.socket:
    """Returns a socket that listens at this port or, with more attempts, at the next free one; port 0 is any free port."""
    last = min(port + attempts, 1 << 16) - 1
    for number in range(port, last + 1):
        # Unless the protocol is named, asyncio does not set TCP_NODELAY, and an answer takes 40 ms more.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, proto=socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(1024)
            return listener
        except OSError as error:
            listener.close()
            if number == last:
                where, options = f"port {port}", "--host or --port"
                if attempts > 1:
                    where, options = f"any port from {port} to {last}", "--port"
                raise UserError(f"cannot listen at {host}, {where}: {error}: choose another with {options}") from error
    raise AssertionError


def server_config(app: Any, max_connections: int, shutdown_seconds: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=shutdown_seconds,
        limit_concurrency=max_connections,
        http=HeaderTimeoutProtocol,
    )


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
