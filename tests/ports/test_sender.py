"""Sender: ServiceBusQueues on the embedded broker."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from local.broker.model import QueueOptions
from local.broker.server import BrokerServer
from local.broker.service import BrokerEvent, BrokerService, Sent
from shared.adapters import servicebus
from shared.adapters.servicebus import ServiceBusQueues
from shared.envelope import Role
from shared.errors import PermanentError, TransientError, UnknownCommitError
from shared.settings import ServiceBusConnection

from .sender_contract import LIMIT, Arrived, Look, SenderContract, message
from .silent import silent

NAMES = {role: role.value for role in Role}

# The SDK leaves the stream of a connection that was cut off to the garbage collector, which complains.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def swept_up() -> Iterator[None]:
    """Let the collector complain here, and not in some other test."""
    yield
    gc.collect()


class Bus:
    """A broker, and what was sent to it."""

    def __init__(self) -> None:
        queues = [QueueOptions(role.value, requires_session=True, max_message_bytes=LIMIT) for role in Role]
        self.service = BrokerService(queues)
        self.server = BrokerServer(self.service)
        self.sends: list[Sent] = []
        self.server.observers.append(self._note)

    def _note(self, event: BrokerEvent) -> None:
        if isinstance(event, Sent):
            self.sends.append(event)

    def connection(self, key: str = "SAS_KEY_VALUE", port: int | None = None) -> ServiceBusConnection:
        text = (
            f"Endpoint=sb://127.0.0.1:{port or self.server.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
            f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
        )
        return ServiceBusConnection(text, "", None, None)

    def drop_connections(self) -> int:
        connections = list(self.server._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def look(self, role: Role) -> list[Arrived]:
        found = self.service.broker.queue(role.value).peek(0, 10_000, time.time())
        return [
            Arrived(
                message_id=each.message.message_id,
                session_id=each.message.session_id,
                body=each.message.body,
                subject=each.message.subject,
                content_type=each.message.content_type,
                correlation_id=each.message.correlation_id,
                to=each.message.to,
                reply_to=each.message.reply_to,
                reply_to_session_id=each.message.reply_to_session_id,
                properties=dict(each.message.application_properties),
            )
            for each in found
        ]


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    made = Bus()
    await made.server.start()
    yield made
    await made.server.stop()


@pytest.fixture
async def sender(bus: Bus) -> AsyncIterator[ServiceBusQueues]:
    made = ServiceBusQueues(bus.connection(), NAMES)
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[tuple[Bus, ServiceBusQueues]]:
    bus = Bus()
    await bus.server.start()
    sender = ServiceBusQueues(bus.connection(), NAMES)
    yield bus, sender
    await sender.close()
    await bus.server.stop()


@pytest.mark.asyncio(loop_scope="module")
class TestServiceBusQueues(SenderContract):
    """The contract. All of it on one client: opening and closing a link costs the SDK a second."""

    @pytest.fixture
    def sender(self, shared: tuple[Bus, ServiceBusQueues]) -> ServiceBusQueues:
        bus, sender = shared
        for role in Role:
            bus.service.broker.queue(role.value).delete_batch(10_000, time.time() + 1, time.time())
        return sender

    @pytest.fixture
    def look(self, shared: tuple[Bus, ServiceBusQueues]) -> Look:
        return shared[0].look


async def refused(sender: ServiceBusQueues, role: Role = Role.ORDERS) -> TransientError:
    try:
        with pytest.raises(TransientError) as caught:
            await sender.send(role, [message()])
        return caught.value
    finally:
        await sender.close()


async def test_one_call_is_one_transfer_on_one_connection(bus: Bus, sender: ServiceBusQueues) -> None:
    """R65 C61: clients and links are kept; nothing is opened per message."""
    for number in range(30):
        await sender.send(Role.LEDGER_ENTRIES, [message(number), message(100 + number)])
    await asyncio.gather(*(sender.send(Role.LEDGER_ENTRIES, [message(200 + number)]) for number in range(20)))
    assert [each.messages for each in bus.sends] == [2] * 30 + [1] * 20
    assert len(bus.server._connections) <= servicebus.SENDERS_PER_ROLE


async def test_missing_queue_is_a_matter_of_configuration(bus: Bus) -> None:
    """Nothing is parked for a wrong deployment."""
    error = await refused(ServiceBusQueues(bus.connection(), {**NAMES, Role.ORDERS: "missing"}))
    assert error.event == "configuration"
    assert not isinstance(error, UnknownCommitError)


async def test_wrong_key_is_a_matter_of_configuration(bus: Bus) -> None:
    error = await refused(ServiceBusQueues(bus.connection(key="d3Jvbmc="), NAMES))
    assert error.event == "configuration"
    assert not isinstance(error, UnknownCommitError)


async def test_broker_that_is_away_is_transient(bus: Bus) -> None:
    """C41: no message is to blame."""
    error = await refused(ServiceBusQueues(bus.connection(port=1), NAMES))
    assert error.event is None


async def test_broker_that_comes_back_is_found_again(bus: Bus, sender: ServiceBusQueues) -> None:
    """C54 R65: the next call opens what it needs."""
    await sender.send(Role.ORDERS, [message(1)])
    port = bus.server.amqp_port
    service = bus.service
    await bus.server.stop()
    with pytest.raises(TransientError):
        await sender.send(Role.ORDERS, [message(2)])
    bus.server = BrokerServer(service)
    await bus.server.start(amqp_port=port)
    assert await sender.send(Role.ORDERS, [message(2)]) == 1
    assert [each.message_id for each in bus.look(Role.ORDERS)] == ["M-1", "M-2"]


async def test_link_that_was_dropped_between_two_sends_is_opened_again(bus: Bus, sender: ServiceBusQueues) -> None:
    """R65: the second send works, or its caller sends again, and it is not doubled."""
    await sender.send(Role.ORDERS, [message(1)])
    assert bus.drop_connections() >= 1
    for _ in range(2):  # what was open may turn out to be dead; then the call says so
        try:
            await sender.send(Role.ORDERS, [message(2)])
        except TransientError:
            continue
        break
    assert [each.message_id for each in bus.look(Role.ORDERS)] == ["M-1", "M-2"]


async def test_lost_answer_of_a_send_is_unknown_and_not_repeated(bus: Bus, sender: ServiceBusQueues) -> None:
    """C44 C45 D03: accepted, and the connection is gone before the client hears; it sends nothing again by itself."""
    await sender.send(Role.ORDERS, [message(1)])
    dropped: list[int] = []

    def drop(event: BrokerEvent) -> None:
        if isinstance(event, Sent) and not dropped:
            dropped.append(bus.drop_connections())

    bus.server.observers.append(drop)
    with pytest.raises(UnknownCommitError):
        await sender.send(Role.ORDERS, [message(2)])
    assert [each.message_id for each in bus.look(Role.ORDERS)] == ["M-1", "M-2"]
    assert await sender.send(Role.ORDERS, [message(3)]) == 1
    assert [each.message_id for each in bus.look(Role.ORDERS)] == ["M-1", "M-2", "M-3"]


async def test_call_is_bounded_as_a_whole(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that accepts connections and says nothing holds nobody up for minutes."""
    monkeypatch.setattr(servicebus, "CALL_SECONDS", 0.3)
    async with silent(hangs_up=False) as nobody:
        sender = ServiceBusQueues(bus.connection(port=nobody.port), NAMES)
        start = time.monotonic()
        with pytest.raises(TransientError):
            await sender.send(Role.ORDERS, [message()])
        assert time.monotonic() - start < 3
        await sender.close()


async def test_sends_that_wait_for_a_sender_are_bounded_too(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicebus, "CALL_SECONDS", 0.3)
    async with silent(hangs_up=False) as nobody:
        sender = ServiceBusQueues(bus.connection(port=nobody.port), NAMES)
        start = time.monotonic()
        errors = await asyncio.gather(
            *(sender.send(Role.ORDERS, [message(n)]) for n in range(12)), return_exceptions=True
        )
        assert all(isinstance(error, TransientError) for error in errors)
        assert time.monotonic() - start < 3
        await sender.close()


async def test_message_that_is_too_large_leaves_the_link_as_good_as_before(
    sender: ServiceBusQueues,
) -> None:
    await sender.send(Role.ORDERS, [message(1)])
    (used,) = sender._idle[Role.ORDERS]
    with pytest.raises(PermanentError):
        await sender.send(Role.ORDERS, [message(2, size=300_000)])
    assert sender._idle[Role.ORDERS] == [used]


async def test_failed_sender_is_not_used_again(bus: Bus, sender: ServiceBusQueues) -> None:
    """What its link still had in flight must not be taken for the next call's answer."""
    await sender.send(Role.ORDERS, [message(1)])
    (used,) = sender._idle[Role.ORDERS]
    bus.drop_connections()
    outcome: Any = None
    try:
        outcome = await sender.send(Role.ORDERS, [message(2)])
    except TransientError:
        assert used not in sender._idle[Role.ORDERS]
    else:
        assert outcome == 1
