"""A server that answers what the embedded one answered once, and does nothing else: how fast a client can be at all.

Prints its address and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from typing import cast

from local.cosmos.containers import read_containers
from local.cosmos.http import Exchange, Response
from local.cosmos.server import EMULATOR_KEY, CosmosServer
from local.demo.clients import local_cosmos
from local.stack import HERE

LENGTH = re.compile(rb"content-length: *(\d+)\r\n", re.IGNORECASE)
Answers = dict[tuple[bytes, bytes], bytes]


async def recorded() -> tuple[Answers, int]:
    """The answers to all that one client asks to create one document, by method and target; and the port they name."""
    answers: Answers = {}

    def record(exchange: Exchange, answer: Callable[[], Response]) -> None:
        response, request = answer(), exchange.request
        answers[request.method.encode(), request.target.encode()] = response.encode()
        exchange.answer(response)

    server = CosmosServer()
    server.ensure(read_containers(HERE / "containers.json"))
    server.intercept = record
    await server.start()
    async with local_cosmos(f"http://127.0.0.1:{server.port}/", EMULATOR_KEY) as client:
        orders = client.get_database_client("convoy").get_container_client("orders")
        await orders.create_item({"id": "A", "orderId": "A", "text": "x" * 400})
    await server.stop()
    return answers, server.port


class Constant(asyncio.Protocol):
    """A connection: reads as much of a request as tells where it ends."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (head := self._read.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(self._read, 0, head + 2)
            end = head + 4 + (int(length[1]) if length else 0)
            if len(self._read) < end:
                return
            method, target, _ = self._read[:head].split(b" ", 2)
            self._read = self._read[end:]
            self._transport.write(self._answers[method, target])


async def main() -> None:
    """Serve until the process is ended."""
    answers, port = await recorded()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Constant(answers), "127.0.0.1", port)
    sys.stdout.write(f"http://127.0.0.1:{port}/\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
