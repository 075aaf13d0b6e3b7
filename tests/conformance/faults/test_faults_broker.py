"""Every fault of the broker as the real client sees it (R23, R39, R55)."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from faulty_stack import FaultyStack

from local.broker.messages import build_message
from local.faults import (
    Armed,
    Cut,
    Delay,
    DeliverTwice,
    ExpireLock,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Rule,
    Service,
    Stage,
    Stall,
)

# Of a connection that is cut while it is being used, the client leaves the socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed:ResourceWarning")


@pytest.fixture(autouse=True)
def swept_up() -> Iterator[None]:
    """Let the collector complain here, and not in some other test."""
    yield
    gc.collect()


def arm(stack: FaultyStack, action: Any, operation: str | None = None, **given: Any) -> Armed:
    return stack.faults.add(Rule(name="r", service=Service.BROKER, operation=operation, action=action, **given))


def put(stack: FaultyStack, *ids: str, queue: str = "plain", session: str | None = None) -> None:
    """Messages that are there without a client having sent them."""
    stack.service.store(queue, [build_message(b"x", message_id=each, session_id=session) for each in ids])


async def one(receiver: ServiceBusReceiver, seconds: float = 3) -> ServiceBusReceivedMessage:
    (message,) = await receiver.receive_messages(1, max_wait_time=seconds)
    return message


def active(stack: FaultyStack, queue: str = "plain") -> int:
    return stack.service.counts(queue).active


async def deliveries(stack: FaultyStack, queue: str) -> int:
    """How many deliveries of its first message the queue has counted; it must be there for another one."""
    if queue == "plain":
        delivery = await stack.service.receive(queue, owner="test", wait_seconds=1)
    else:
        lock = await stack.service.accept_session(queue, None, owner="test", wait_seconds=1)
        assert lock is not None
        delivery = await stack.service.receive_from_session(lock, wait_seconds=1)
    assert delivery is not None
    return delivery.delivery_count


def results(stack: FaultyStack, operation: str) -> list[tuple[str | None, str | None]]:
    return [(result, rule) for _, result, rule in stack.results(Service.BROKER, operation)]


# ---------------------------------------------------------------------------------------------------------------- send


async def test_send_is_late(stack: FaultyStack) -> None:
    async with stack.bus() as bus, bus.get_queue_sender("plain") as sender:
        for stage in Stage:
            with arm(stack, Delay(0.2, stage), "send", entity="PLAIN"):
                begin = time.monotonic()
                await sender.send_messages(ServiceBusMessage(b"x"))
                assert time.monotonic() - begin >= 0.2
    assert active(stack) == 2


async def test_send_is_refused_with_a_condition(stack: FaultyStack) -> None:
    async with stack.bus() as bus, bus.get_queue_sender("plain") as sender:
        with arm(stack, Refuse("com.microsoft:server-busy"), "send"), pytest.raises(ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage(b"x"))
    assert active(stack) == 0


async def test_connection_cut_behind_a_stored_transfer_makes_a_second_copy(stack: FaultyStack) -> None:
    """R39: the message is in the queue, and the client sends it once more under the same id."""
    async with stack.bus(retry_total=1, retry_backoff_factor=0.01) as bus, bus.get_queue_sender("plain") as sender:
        for how in (Loss.RESET, Loss.CLOSE):
            with arm(stack, LoseReply(how), "send", id="m*", count=1):
                await sender.send_messages(ServiceBusMessage(b"x", message_id="m1"))
    assert results(stack, "send") == [("done", "r"), ("done", None)] * 2
    assert active(stack) == 4


async def test_connection_cut_before_the_transfer_is_stored_makes_none(stack: FaultyStack) -> None:
    async with stack.bus() as bus, bus.get_queue_sender("plain") as sender:
        with arm(stack, Cut(), "send", count=1), pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage(b"x"))
        await sender.send_messages(ServiceBusMessage(b"x"))
    assert results(stack, "send") == [(None, "r"), ("done", None)]


async def test_disposition_that_never_comes_is_a_time_out(stack: FaultyStack) -> None:
    async with stack.bus() as bus, bus.get_queue_sender("plain") as sender:
        for action in (LoseReply(Loss.NEVER), LoseRequest()):
            with arm(stack, action, "send", count=1), pytest.raises(OperationTimeoutError):
                await sender.send_messages(ServiceBusMessage(b"x"), timeout=0.3)
            assert active(stack) == 1  # stored by the first one


async def test_batch_is_hit_by_the_key_of_one_of_its_messages(stack: FaultyStack) -> None:
    async with stack.bus() as bus, bus.get_queue_sender("orders") as sender:
        with arm(stack, Refuse(), "send", group="s2", id="b"):
            batch = [ServiceBusMessage(b"x", message_id=i, session_id=s) for i, s in (("a", "s1"), ("b", "s2"))]
            with pytest.raises(ServiceBusServerBusyError):
                await sender.send_messages(batch)
            await sender.send_messages([ServiceBusMessage(b"x", message_id="b", session_id="s1")])
    assert active(stack, "orders") == 1
    assert stack.faults.history(operation="send")[0].keys == [("s1", "a"), ("s2", "b")]


# -------------------------------------------------------------------------------------------------- attach and receive


async def test_attach_is_refused_late_or_cut(stack: FaultyStack) -> None:
    put(stack, "m1")
    async with stack.bus() as bus:
        with arm(stack, Refuse("amqp:unauthorized-access"), "attach-sender"), pytest.raises(ServiceBusError):
            await bus.get_queue_sender("plain").send_messages(ServiceBusMessage(b"x"))
        with arm(stack, Cut(), "attach-receiver"), pytest.raises(ServiceBusError):
            await bus.get_queue_receiver("plain").receive_messages(1, max_wait_time=1)
        with arm(stack, Delay(0.2), "attach-*"):
            async with bus.get_queue_receiver("plain") as receiver:
                await receiver.complete_message(await one(receiver))
    assert active(stack) == 0


async def test_accepted_session_is_held_back_and_refused(stack: FaultyStack) -> None:
    put(stack, "m1", queue="orders", session="s")
    async with stack.bus() as bus:
        refused = arm(stack, Refuse("com.microsoft:session-cannot-be-locked"), "accept")
        with pytest.raises(SessionCannotBeLockedError):
            await bus.get_queue_receiver("orders", session_id="s").receive_messages(1, max_wait_time=1)
        refused.disarm()
        with arm(stack, Stall(), "accept", group="s") as armed:
            receiver = bus.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
            receiving = asyncio.create_task(one(receiver))
            await armed.until_hit()
            armed.release()
            assert (await receiving).session_id == "s"
    assert active(stack, "orders") == 1


async def test_nothing_overtakes_a_delivery_that_is_held(stack: FaultyStack) -> None:
    put(stack, "m1", "m2", queue="orders", session="s")
    async with stack.bus() as bus, bus.get_queue_receiver("orders", session_id="s") as receiver:
        with arm(stack, Stall(), "receive", id="m1") as armed:
            receiving = asyncio.create_task(receiver.receive_messages(2, max_wait_time=3))
            await armed.until_hit()
            assert armed.release() == 1
            got = await receiving
            got += await receiver.receive_messages(1, max_wait_time=2) if len(got) < 2 else []
    assert [message.message_id for message in got] == ["m1", "m2"]


async def test_receiver_loses_its_connection_before_a_delivery(stack: FaultyStack) -> None:
    put(stack, "m1", queue="orders", session="s")
    async with stack.bus() as bus:
        with arm(stack, Cut(), "receive", count=1), pytest.raises(ServiceBusConnectionError):
            await bus.get_queue_receiver("orders", session_id="s").receive_messages(1, max_wait_time=3)
    assert await deliveries(stack, "orders") == 0  # the session was closed: the message had not been received


async def test_receive_is_refused_by_a_detach_that_the_client_survives(stack: FaultyStack) -> None:
    put(stack, "m1")
    async with stack.bus(retry_total=1, retry_backoff_factor=0.01) as bus, bus.get_queue_receiver("plain") as receiver:
        with arm(stack, Refuse("amqp:link:detach-forced"), "receive", count=1) as armed:
            message = await one(receiver)
            assert armed.hits == 1
        assert message.delivery_count == 0
        await receiver.complete_message(message)


# ---------------------------------------------------------------------------------------------------------- settlement


async def test_lost_settlement_looks_done_and_the_message_comes_again(stack: FaultyStack) -> None:
    put(stack, "m1", queue="orders", session="s")
    async with stack.bus() as bus:
        with arm(stack, LoseSettlement(), "complete", count=1):
            async with bus.get_queue_receiver("orders", session_id="s") as receiver:
                await receiver.complete_message(await one(receiver))
        assert results(stack, "complete") == [(None, "r")]
    assert await deliveries(stack, "orders") == 0


async def test_completed_message_is_delivered_twice(stack: FaultyStack) -> None:
    put(stack, "m1", "m2", queue="orders", session="s")
    async with stack.bus() as bus, bus.get_queue_receiver("orders", session_id="s") as receiver:
        with arm(stack, DeliverTwice(), count=1):
            seen = []
            for _ in range(3):
                message = await one(receiver)
                seen.append((message.message_id, message.delivery_count))
                await receiver.complete_message(message)
    assert seen == [("m1", 0), ("m1", 1), ("m2", 0)]
    assert active(stack, "orders") == 0


async def test_settlement_is_refused(stack: FaultyStack) -> None:
    put(stack, "m1")
    async with stack.bus() as bus, bus.get_queue_receiver("plain") as receiver:
        message = await one(receiver)
        arm(stack, Refuse("com.microsoft:message-lock-lost"), "abandon")
        with pytest.raises(MessageLockLostError):
            await receiver.abandon_message(message)
    assert stack.service.counts("plain").locked == 1


async def test_connection_cut_behind_a_settlement_leaves_it_done(stack: FaultyStack) -> None:
    put(stack, "m1", queue="orders", session="s")
    async with stack.bus() as bus:
        receiver = bus.get_queue_receiver("orders", session_id="s")
        message = await one(receiver)
        with arm(stack, LoseReply(), "complete", id="m1"), pytest.raises(ServiceBusError):
            await receiver.complete_message(message)
    assert active(stack, "orders") == 0


async def test_stalled_settlement_is_dropped_when_the_rule_is_disarmed(stack: FaultyStack) -> None:
    put(stack, "m1", queue="orders", session="s")
    async with stack.bus() as bus:
        receiver = bus.get_queue_receiver("orders", session_id="s")
        message = await one(receiver)
        with arm(stack, Stall(), "dead-letter") as armed:
            settling = asyncio.create_task(receiver.dead_letter_message(message, reason="r"))
            await armed.until_hit()
        with pytest.raises(ServiceBusError):
            await settling
    assert stack.service.counts("orders").dead_letter == 0
    assert active(stack, "orders") == 1


@pytest.mark.parametrize("queue", ["orders", "plain"])
async def test_lock_runs_out_before_the_settlement(stack: FaultyStack, queue: str) -> None:
    """R55: the session's lock, or the message's own."""
    session, error = ("s", SessionLockLostError) if queue == "orders" else (None, MessageLockLostError)
    put(stack, "m1", queue=queue, session=session)
    options = {} if session is None else {"session_id": session}
    async with stack.bus() as bus:
        receiver = bus.get_queue_receiver(queue, **options)
        message = await one(receiver)
        with arm(stack, ExpireLock(), "complete", entity=queue), pytest.raises(error):
            await receiver.complete_message(message)
    assert await deliveries(stack, queue) == 1


async def test_lock_runs_out_while_the_message_is_handled(stack: FaultyStack) -> None:
    put(stack, "m1", queue="orders", session="s")
    async with stack.bus() as bus:
        receiver = bus.get_queue_receiver("orders", session_id="s")
        with arm(stack, ExpireLock(0.1), "receive", count=1) as armed:
            message = await one(receiver)
            assert armed.held  # the lock is there until then
            await asyncio.sleep(0.15)
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(message)
        await receiver.close()
    assert active(stack, "orders") == 1


# ---------------------------------------------------------------------------------------------------------- management


async def test_renewal_is_refused_expired_and_late(stack: FaultyStack) -> None:
    put(stack, "m1", queue="orders", session="s")
    async with stack.bus() as bus:
        receiver = bus.get_queue_receiver("orders", session_id="s")
        await one(receiver)
        with arm(stack, Delay(0.2), "renew-session-lock", group="s"):
            begin = time.monotonic()
            await receiver.session.renew_lock()
            assert time.monotonic() - begin >= 0.2
        with arm(stack, Refuse(), "renew-session-lock"), pytest.raises(ServiceBusServerBusyError):
            await receiver.session.renew_lock()
        with arm(stack, LoseReply(Loss.NEVER), "get-session-state"), pytest.raises(ServiceBusError):
            await receiver.session.get_state(timeout=0.5)
        with arm(stack, ExpireLock(), "renew-session-lock"), pytest.raises(SessionLockLostError):
            await receiver.session.renew_lock()
        await receiver.close()


async def test_settlement_over_the_management_node_is_hit_too(stack: FaultyStack) -> None:
    """The client settles there what it holds when its link is gone; deferred messages come from there."""
    put(stack, "m1", "m2")
    async with stack.bus() as bus, bus.get_queue_receiver("plain") as receiver:
        for message in await receiver.receive_messages(2, max_wait_time=2):
            await receiver.defer_message(message)
        with arm(stack, DeliverTwice(), id="m1"):
            (deferred,) = await receiver.receive_deferred_messages(1)
            await receiver.complete_message(deferred)
        (again,) = await receiver.receive_deferred_messages(1)
        await receiver.complete_message(again)
        arm(stack, Refuse("com.microsoft:message-not-found"), "receive-by-sequence-number")
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(2)
    assert stack.service.counts("plain").deferred == 1


# -------------------------------------------------------------------------------------------------------------- outage


async def test_outage_cuts_and_refuses_and_ends(stack: FaultyStack) -> None:
    port = stack.broker.amqp_port
    async with stack.bus() as bus, bus.get_queue_sender("plain") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
        with arm(stack, Outage()):
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage(b"x"))
            for each in (port, stack.broker.admin_port):
                with pytest.raises(OSError, match=r"."):
                    await asyncio.open_connection("127.0.0.1", each)
        await sender.send_messages(ServiceBusMessage(b"x"))
    assert active(stack) == 2
    async with stack.bus(retry_total=5, retry_backoff_factor=0.1) as bus, bus.get_queue_sender("plain") as sender:
        with arm(stack, Outage(0.3)):
            await sender.send_messages(ServiceBusMessage(b"x"))
    assert stack.broker.amqp_port == port
    assert active(stack) == 3
