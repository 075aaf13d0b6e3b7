"""The HTTP port: health, and the administration API in so far as it reads."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import hmac
import json
from collections.abc import Callable
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from running_broker import KEY, RunningBroker

from local.broker.messages import build_message
from local.broker.server import BrokerServer
from local.broker.service import BrokerService, QueueOptions

Start = Callable[..., RunningBroker]
ATOM = "{http://www.w3.org/2005/Atom}"
CONNECT = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
COUNTS = "{http://schemas.microsoft.com/netservices/2011/06/servicebus}"


def token(resource: str = "https://127.0.0.1/", key: str = KEY) -> str:
    signed = quote(resource, safe="")
    digest = hmac.new(key.encode(), f"{signed}\n{2**33}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={signed}&sig={signature}&se={2**33}&skn=RootManageSharedAccessKey"


async def http(port: int, head: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    length = next(int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.startswith(b"Content-Length"))
    body = await reader.readexactly(length)
    writer.close()
    return int(answer.split()[1]), body.decode()


async def get(broker: RunningBroker, path: str, authorization: str | None = None) -> tuple[int, str]:
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{broker.server.admin_port}"]
    lines.append(f"Authorization: {token() if authorization is None else authorization}")
    return await http(broker.server.admin_port, "\r\n".join([*lines, "", ""]))


def names(feed: str) -> list[str | None]:
    return [entry.findtext(f"{ATOM}title") for entry in ET.fromstring(feed).iter(f"{ATOM}entry")]  # noqa: S314 - ours


async def test_health_needs_no_token(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    status, body = await get(broker, "/health", "")
    assert (status, json.loads(body)) == (200, {"status": "healthy", "message": "Service is healthy."})


async def test_queues_are_listed_page_by_page_and_described_with_their_counts(start_broker: Start) -> None:
    broker = start_broker(
        QueueOptions("a&b", requires_session=True, lock_seconds=90, max_delivery_count=4, default_ttl_seconds=3600),
        *(QueueOptions(f"q{number}") for number in range(3)),
    )
    broker.send("a&b", build_message(b"x", session_id="s"), build_message(b"x", session_id="s"))
    status, body = await get(broker, "/$Resources/queues?api-version=2024-05&enrich=False&$skip=0&$top=100")
    assert (status, names(body)) == (200, ["a&b", "q0", "q1", "q2"])
    assert names((await get(broker, "/$Resources/queues?$skip=1&$top=2"))[1]) == ["q0", "q1"]
    assert names((await get(broker, "/$Resources/topics"))[1]) == []
    for enrich in ("True", "False"):
        status, body = await get(broker, f"/A%26b?api-version=2024-05&enrich={enrich}")
        queue = ET.fromstring(body).find(f"{ATOM}content/{CONNECT}QueueDescription")  # noqa: S314 - ours
        assert queue is not None
        assert [queue.findtext(f"{CONNECT}{name}") for name in ("LockDuration", "MaxDeliveryCount")] == ["PT1M30S", "4"]
        assert queue.findtext(f"{CONNECT}RequiresSession") == "true"
        assert queue.findtext(f"{CONNECT}DefaultMessageTimeToLive") == "PT1H"
        assert queue.findtext(f"{CONNECT}CountDetails/{COUNTS}ActiveMessageCount") == "2"


@pytest.mark.parametrize(
    ("path", "authorization", "status", "word"),
    [
        ("/nowhere", None, 404, "'nowhere'"),
        ("/plain", "", 401, "shared access signature"),
        ("/plain", token(key="wrong"), 401, "InvalidSignature"),
        ("/plain", token("https://127.0.0.1/other"), 401, "does not cover"),
        ("/$Resources/queues?$top=x", None, 400, "$top"),
    ],
)
async def test_what_is_wrong_is_said(
    start_broker: Start, path: str, authorization: str | None, status: int, word: str
) -> None:
    broker = start_broker(QueueOptions("plain"))
    found, body = await get(broker, path, authorization)
    assert found == status
    assert word in body


async def test_other_methods_and_nonsense_do_no_harm(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    port = broker.server.admin_port
    assert (await http(port, "PUT /plain HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"))[0] == 405
    assert (await http(port, "nonsense\r\n\r\n"))[0] == 400
    assert (await http(port, "GET /health HTTP/1.1\r\nno colon\r\n\r\n"))[0] == 400
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /" + b"x" * 200_000)  # more than a head may have: answered or cut off, as the socket has it
    writer.close()
    assert (await get(broker, "/health"))[0] == 200


async def test_a_port_in_use_is_reported_and_nothing_listens(unused_tcp_port: int) -> None:
    first, second = (BrokerServer(BrokerService([QueueOptions("q")])) for _ in range(2))
    await first.start()
    try:
        for ports in (
            {"amqp_port": first.amqp_port},
            {"amqp_port": unused_tcp_port, "admin_port": first.admin_port},
        ):
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the text differs by platform, the number doesn't
                await second.start(**ports)
            assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", unused_tcp_port)
    finally:
        await first.stop()
