"""A port that goes away and comes back: clients are refused meanwhile, and its number stays."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from local.tcp import Listener


class Echo(asyncio.Protocol):
    """Answers what it hears."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


async def is_served(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    try:
        writer.write(b"x")
        return await asyncio.wait_for(reader.read(), 5) == b"x"
    finally:
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    made = Listener(Echo)
    yield made
    await made.stop()


async def test_suspended_port_refuses_keeps_its_number_and_comes_back(listener: Listener) -> None:
    port = await listener.start("127.0.0.1", 0)
    assert await is_served(port)
    for _ in range(3):
        listener.suspend()
        assert not await is_served(port)
        with socket.socket() as other, pytest.raises(OSError, match=r"."):
            other.bind(("127.0.0.1", port))
        listener.resume()
        assert await is_served(port)


async def test_clients_are_taken_from_the_moment_of_resuming(listener: Listener) -> None:
    port = await listener.start("127.0.0.1", 0)
    listener.suspend()
    listener.resume()
    with socket.create_connection(("127.0.0.1", port)):  # blocking: the loop has not run since
        pass


async def test_suspending_and_resuming_in_any_order_does_no_harm(listener: Listener) -> None:
    listener.suspend()
    listener.resume()
    port = await listener.start("127.0.0.1", 0)
    for step in "rssrsrrsr":
        (listener.suspend if step == "s" else listener.resume)()
    assert await is_served(port)
    listener.suspend()
    listener.resume()
    await asyncio.sleep(0)
    listener.suspend()
    assert not await is_served(port)


@pytest.mark.parametrize("state", ["s", "sr"])
async def test_stop_gives_the_port_up_whatever_its_state(state: str) -> None:
    listener = Listener(Echo)
    port = await listener.start("127.0.0.1", 0)
    for step in state:
        (listener.suspend if step == "s" else listener.resume)()
    await listener.stop()
    assert not await is_served(port)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    again = Listener(Echo)
    assert await again.start("127.0.0.1", port) == port
    await again.stop()
