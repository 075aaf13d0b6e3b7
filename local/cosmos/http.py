"""HTTP/1.1 over asyncio, as much as the data plane needs, with a hold on the socket.

An own protocol and not a web framework, for two reasons: an exchange can be cut at any point (reset, closed, answered
in part), and a request costs some tens of microseconds, so the client and not this server decides how fast a test runs.
Requests need Content-Length; connections stay open until the client ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from local.tcp import Listener, reset

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 16 * 1024 * 1024  # above the data plane's own limits, so that those are what a client sees

_REASONS = {status.value: status.phrase for status in HTTPStatus} | {449: "Retry With"}


@dataclass(slots=True)
class Request:
    """`headers` has lower-case names; `target` is the path as sent, still percent-encoded."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encode(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Unknown')}"]
        lines.extend(f"{name}: {value}" for name, value in self.headers.items())
        if self.status not in (204, 304):
            lines.append(f"Content-Length: {len(self.body)}")
        lines.append("\r\n")
        return "\r\n".join(lines).encode() + self.body  # UTF-8: a header may name a container of any script


class Exchange:
    """One request and whatever becomes of it: exactly one of the methods ends it, now or later."""

    def __init__(self, request: Request, connection: _Connection) -> None:
        self.request = request
        self._connection = connection

    def answer(self, response: Response) -> None:
        self._connection.finish(response.encode(), close=False)

    def truncate(self, response: Response, body_bytes: int) -> None:
        """Promise the whole answer, send its head and the first bytes of its body, and close."""
        data = response.encode()
        self._connection.finish(data[: len(data) - len(response.body) + body_bytes], close=True)

    def hang_up(self) -> None:
        """Close in order (FIN) without an answer."""
        self._connection.finish(b"", close=True)

    def reset(self) -> None:
        """Cut the connection (RST) without an answer."""
        self._connection.reset()


class _Connection(asyncio.Protocol):
    def __init__(self, handle: Callable[[Exchange], None], open_ones: set[_Connection]) -> None:
        self._handle = handle
        self._open_ones = open_ones
        self._buffer = bytearray()
        self._head: Request | None = None
        self._length = 0
        self._is_busy = False
        self._closes = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP server makes no other
        self.transport = transport
        self._open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self.transport = None
        self._open_ones.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._go_on()

    def _go_on(self) -> None:
        while not self._is_busy and self.transport is not None:
            if self._head is None and not self._read_head():
                return
            if self._head is None or len(self._buffer) < self._length:
                return
            request, self._head = self._head, None
            request.body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
            self._is_busy = True
            self._handle(Exchange(request, self))

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                self._refuse(431)
            return False
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        parts = lines[0].split(" ")
        length = headers.get("content-length", "0")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not length.isdecimal():
            self._refuse(400)
        elif "transfer-encoding" in headers:
            self._refuse(411)
        elif int(length) > MAX_BODY_BYTES:
            self._refuse(413)
        else:
            self._closes = headers.get("connection", "").lower() == "close" or parts[2] == "HTTP/1.0"
            self._length = int(length)
            self._head = Request(parts[0], parts[1], headers, b"")
            return True
        return False

    def _refuse(self, status: int) -> None:
        """Answer what is not HTTP that this server speaks, and close: what follows can't be told from a body."""
        self._is_busy = True
        self.finish(Response(status, {"Connection": "close"}).encode(), close=True)

    def finish(self, data: bytes, *, close: bool) -> None:
        if self.transport is None:  # the client has gone: nobody waits for the answer
            return
        self.transport.write(data)
        if close or self._closes:
            self.transport.close()
            return
        self._is_busy = False
        if self._buffer:
            asyncio.get_running_loop().call_soon(self._go_on)

    def reset(self) -> None:
        if self.transport is not None:
            reset(self.transport)


class HttpServer:
    """Listens and hands every request to `handle`, which ends the exchange at once or later."""

    def __init__(self, handle: Callable[[Exchange], None]) -> None:
        self._connections: set[_Connection] = set()
        self._listener = Listener(lambda: _Connection(handle, self._connections))

    async def start(self, host: str, port: int) -> int:
        """Returns the port in fact. Raises OSError when it is taken."""
        return await self._listener.start(host, port)

    def suspend(self) -> None:
        """Cut every connection and refuse new ones."""
        self._listener.suspend()
        for connection in list(self._connections):
            connection.reset()

    def resume(self) -> None:
        """Take connections again, on the same port."""
        self._listener.resume()

    async def stop(self) -> None:
        self._listener.close()
        for connection in list(self._connections):
            transport = connection.transport
            if transport is not None:
                # A client that does not read must not hold up the end.
                transport.abort() if transport.get_write_buffer_size() else transport.close()
        await self._listener.stop()
