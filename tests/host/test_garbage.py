"""Bytes that mean nothing, on every port of the stack, while real clients work beside them (D58)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import shutil
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from local.broker.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    SaslInit,
    Transfer,
    encode_frame,
    encode_performative,
)
from local.demo.clients import local_cosmos
from local.host.control import ControlServer
from local.stack import Stack
from tests.host.conftest import APPS

SECONDS = 4.0
OPEN_AT_ONCE = 40


def frame(performative: Performative, payload: bytes = b"", *, is_sasl: bool = False) -> bytes:
    return encode_frame(0, encode_performative(performative) + payload, is_sasl=is_sasl)


AMQP = [
    SASL_HEADER,
    frame(SaslInit(mechanism="ANONYMOUS"), is_sasl=True),
    AMQP_HEADER,
    frame(Open(container_id="x")),
    frame(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10, handle_max=255)),
    frame(Attach("x", 0, role=False)),
    frame(Flow(None, 10, 0, 10, 0, 0, 10)),
    frame(Transfer(0, 0, b"t", 0), b"\x00\x53\x75\xa0\x01x"),
    frame(Disposition(role=True, first=0, last=9, settled=True)),
    frame(Detach(0, closed=True)),
    frame(End()),
    frame(Close()),
]
HTTP = [
    b"POST /dbs/convoy/colls/orders/docs HTTP/1.1\r\nHost: x\r\nx-ms-date: now\r\nContent-Length: 9\r\n\r\n",
    b'{"id":"a"}',
    b"GET /api/orders/1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /control/faults HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"5\r\nabcde\r\n0\r\n\r\n",
    b"\r\n\r\n",
]


def garbage(source: random.Random, known: list[bytes]) -> list[bytes]:
    """A connection's worth: the protocol's own words, in order or not, whole, cut short, with wrong bytes, or none."""
    words = list(known) if source.random() < 0.5 else source.choices(known, k=source.randint(1, 6))
    if source.random() < 0.25:
        words = [source.randbytes(source.randint(1, 2_000))]
    for place in range(len(words)):
        word = bytearray(words[place])
        if source.random() < 0.3:
            for _ in range(source.randint(1, 4)):
                word[source.randrange(len(word))] = source.randrange(256)
        if source.random() < 0.1:
            del word[source.randrange(len(word)) :]
        words[place] = bytes(word)
    return words


async def vandal(port: int, known: list[bytes], source: random.Random, ends: float) -> int:
    """Send garbage until it is over; some connections are left open for a while, some ended in order, some cut."""
    loop = asyncio.get_running_loop()
    opened = 0
    with contextlib.ExitStack() as closing:
        lasting: list[socket.socket] = []
        while time.monotonic() < ends:
            connection = closing.enter_context(socket.socket())
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port))
            opened += 1
            with contextlib.suppress(ConnectionError):
                for word in garbage(source, known):
                    await loop.sock_sendall(connection, word)
                    await asyncio.sleep(source.random() * 0.02)
            if source.random() < 0.3:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
            lasting.append(connection)
            while len(lasting) > source.randint(0, OPEN_AT_ONCE):
                lasting.pop(0).close()
    return opened


async def served(work: Callable[[int], Awaitable[None]], ends: float) -> int:
    """Work again and again until it is over; every time must succeed."""
    done = 0
    while time.monotonic() < ends or done == 0:
        await work(done)
        done += 1
    return done


async def test_garbage_on_every_port_keeps_nobody_from_being_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(APPS / "web" / "function_app.py", tmp_path)
    shutil.copy(APPS / "host.json", tmp_path)
    async with Stack(tmp_path, app=True, ports="free") as stack, contextlib.AsyncExitStack() as closing:
        control = ControlServer("token", lambda: stack.host, stack.faults)
        await control.start(0)
        closing.push_async_callback(control.stop)
        bus = await closing.enter_async_context(ServiceBusClient.from_connection_string(stack.service_bus_connection))
        sender = await closing.enter_async_context(bus.get_queue_sender("quarantine"))
        receiver = await closing.enter_async_context(bus.get_queue_receiver("quarantine", session_id="s"))
        cosmos = await closing.enter_async_context(local_cosmos(stack.cosmos_endpoint, stack.cosmos_key))
        orders = cosmos.get_database_client("convoy").get_container_client("orders")
        http = await closing.enter_async_context(aiohttp.ClientSession())

        async def send_and_receive(number: int) -> None:
            await sender.send_messages(ServiceBusMessage(b"x", session_id="s", message_id=str(number)))
            (message,) = await receiver.receive_messages(1, max_wait_time=10)
            assert message.message_id == str(number)
            await receiver.complete_message(message)
            await receiver.session.renew_lock()

        async def create(number: int) -> None:
            await orders.create_item({"id": str(number), "orderId": str(number)})

        async def get(url: str, status: int) -> None:
            async with http.get(url, headers={"Authorization": "Bearer token"}) as answer:
                assert answer.status == status

        urls = {
            f"{stack.http_url}/api/orders/special": 200,
            f"{stack.admin_url}/health": 200,
            f"http://127.0.0.1:{control.port}/control/stack": 200,
        }
        ends = time.monotonic() + SECONDS
        assert stack.http_url is not None
        functions = int(stack.http_url.rpartition(":")[2])
        ports = dict.fromkeys((stack.broker.admin_port, stack.cosmos.port, control.port, functions), HTTP)
        ports[stack.broker.amqp_port] = AMQP
        seeds = itertools.count(1)  # the same garbage each time
        opened, done = await asyncio.gather(
            asyncio.gather(*(vandal(port, known, random.Random(next(seeds)), ends) for port, known in ports.items())),
            asyncio.gather(
                served(send_and_receive, ends),
                served(create, ends),
                *(served(lambda _, url=url, status=status: get(url, status), ends) for url, status in urls.items()),
            ),
        )
        assert min(opened) > 5
        assert min(done) > 5
    assert [record.getMessage() for record in caplog.records if record.name.split(".")[0] != "azure"] == []
