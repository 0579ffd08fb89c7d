"""The socket that a server listens at, and uvicorn's settings.

uvicorn has no time limit for request headers, so clients that send one byte a minute could hold all connections, and it reads
the whole body of a request that is refused: its protocol gets limits here. Bodies that are accepted have theirs in `security`.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2see.errors import UserError

WAITING_CONNECTIONS = 1024  # in the kernel, until they are accepted
KEEP_ALIVE = 60  # seconds; if shorter than the client's, connections close just as the next request is sent
HEADER_SECONDS = 10.0
LINGER_SECONDS = 1.0  # in which a client can read the answer to a request whose body has not arrived completely
# Per turn of the event loop: connections that are accepted, and bytes that are read from each. However many clients arrive at
# once, a turn stays short, and those that are connected already are answered in between.
MAX_ACCEPTED, MAX_READ = 2, 1 << 16
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
            listener.listen(WAITING_CONNECTIONS)
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
        backlog=MAX_ACCEPTED,
        limit_concurrency=max_connections,
        http=BoundedProtocol,
    )


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():  # asyncio has set it to the number of connections that are accepted per turn
            listener.listen(WAITING_CONNECTIONS)


class LingeringTransport:
    """A connection that, if it is to be closed while a body still arrives, is no longer read, but closed a moment later:
    closing it resets it, often before the client has read the answer."""

    def __init__(self, transport: Any, is_receiving: Callable[[], bool]) -> None:
        self._transport, self._is_receiving, self._closing = transport, is_receiving, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._closing or bool(self._transport.is_closing())

    def close(self) -> None:
        if self._closing or not self._is_receiving():
            self._transport.close()
            return
        self._closing = True
        self._transport.pause_reading()
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.close)


class BoundedProtocol(H11Protocol):
    """Closes a connection on which a request does not begin, or its headers do not end, in time."""

    header_seconds = HEADER_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        transport.max_size = MAX_READ
        super().connection_made(LingeringTransport(transport, self._is_receiving))  # type: ignore[arg-type]
        self._start_timer()

    def _is_receiving(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # IDLE: the headers of the request are incomplete.
        if self.conn.their_state is h11.IDLE:
            self._start_timer()
        else:
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_receiving():
            self.cycle.body = bytearray()  # nobody will read it

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
