"""Servers that don't answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Silent:
    """A port, and how many connections it has taken."""

    port: int = 0
    connections: int = 0


@asynccontextmanager
async def silent(*, hangs_up: bool) -> AsyncIterator[Silent]:
    """Take connections and read; with `hangs_up` close each when a request has arrived, else say nothing for ever."""
    made, writers = Silent(), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        writers.append(writer)
        await (reader.readuntil(b"\r\n\r\n") if hangs_up else reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
