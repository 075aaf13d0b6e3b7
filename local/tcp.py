"""What asyncio leaves to do about TCP: a listening port that can be away for a while, and connections cut by reset."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

_BACKLOG = 100
_LINGER_FORMAT = "hh" if sys.platform == "win32" else "ii"


class Listener:
    """Serves TCP connections on one port."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None  # bound and not listening: clients are refused, the number is kept
        self._resuming: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the port in fact. Raises OSError when it is taken."""
        self._server = await asyncio.get_running_loop().create_server(self._factory, host, port)
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    def suspend(self) -> None:
        """Refuse connections from now on; those that are open are the owner's to cut."""
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        if self._server is not None:
            served = self._server.sockets[0]
            family, address = served.family, served.getsockname()
            self._server.close()
            self._server = None
        elif self._reserved is not None:
            family, address = self._reserved.family, self._reserved.getsockname()
            self._reserved.close()
        else:
            return
        self._reserved = _bound(family, address)

    def resume(self) -> None:
        """Take connections again from now on."""
        if self._reserved is not None and self._resuming is None:
            self._reserved.listen(_BACKLOG)  # clients get in line at once, whenever the loop comes to serve them
            self._resuming = asyncio.get_running_loop().create_task(self._serve(self._reserved))

    async def stop(self) -> None:
        """Give the port up; connections are the owner's to close, and are waited for."""
        self.close()
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.gather(self._resuming, return_exceptions=True)
            self._resuming = None
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def close(self) -> None:
        """Take no more connections; `stop` waits for those that are open."""
        if self._server is not None:
            self._server.close()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def _serve(self, reserved: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._factory, sock=reserved, start_serving=False)
        self._reserved = None
        await self._server.start_serving()
        self._resuming = None


def reset(transport: asyncio.Transport) -> None:
    """Cut a connection without a word: the peer gets a RST."""
    raw: socket.socket = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(_LINGER_FORMAT, 1, 0))
    transport.abort()


def _bound(family: int, address: Any) -> socket.socket:  # an address has as many parts as its family wants
    made = socket.socket(family)
    try:
        if os.name == "posix":  # the connections just cut may linger; on Windows the option would share the port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
