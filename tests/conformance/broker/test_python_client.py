"""The real azure-servicebus client, async and sync, against the broker.

Closing a receiver costs about a second in the client whatever the broker does, so each test goes a long way.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from running_broker import RunningBroker

from local.broker.messages import build_message
from local.broker.service import Outcome, QueueOptions, Sent, Settled

Start = Callable[..., RunningBroker]


@contextlib.asynccontextmanager
async def client_of(broker: RunningBroker, **options: Any) -> AsyncIterator[AsyncClient]:
    options = {"retry_total": 0, "keep_alive": 0, **options}  # 0: a closing sender spares itself a second's sleep
    async with AsyncClient.from_connection_string(broker.connection_string(), **options) as client:
        yield client


def body_of(message: ServiceBusReceivedMessage) -> bytes:
    return b"".join(message.body)


async def one(receiver: ServiceBusReceiver, seconds: float = 5) -> ServiceBusReceivedMessage:
    (message,) = await receiver.receive_messages(1, max_wait_time=seconds)
    return message


def reason_of(message: ServiceBusReceivedMessage) -> tuple[str | None, str | None]:
    return message.dead_letter_reason, message.dead_letter_error_description


async def test_a_message_comes_back_with_every_property(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain", default_ttl_seconds=3600))
    properties = {"text": "t", "whole": 7, "real": 1.5, "flag": True, "id": uuid.UUID(int=5), "raw": b"r"}
    sent = ServiceBusMessage(
        b"\x00\xff",
        message_id="m1",
        correlation_id="c1",
        subject="s1",
        to="t1",
        reply_to="r1",
        reply_to_session_id="rs1",
        content_type="application/json",
        partition_key="p1",
        time_to_live=dt.timedelta(minutes=5),
        application_properties=dict(properties),
    )
    async with client_of(broker) as client:
        async with client.get_queue_sender("plain") as sender:
            await sender.send_messages(sent)
        async with client.get_queue_receiver("PLAIN") as receiver:
            got = await one(receiver)
            assert got.locked_until_utc is not None  # the client forgets it with the settlement, and the token
            assert str(got.lock_token) == str(got.raw_amqp_message.delivery_annotations[b"x-opt-lock-token"])
            await receiver.complete_message(got)
    assert body_of(got) == b"\x00\xff"
    assert (got.message_id, got.correlation_id, got.subject, got.to) == ("m1", "c1", "s1", "t1")
    assert (got.reply_to, got.reply_to_session_id, got.content_type) == ("r1", "rs1", "application/json")
    assert (got.partition_key, got.time_to_live) == ("p1", dt.timedelta(minutes=5))
    # R28: the client gives keys and strings as bytes; on the wire names, values and types are unchanged
    assert got.application_properties == {
        key.encode(): value.encode() if isinstance(value, str) else value for key, value in properties.items()
    }
    assert (got.sequence_number, got.delivery_count, got.state) == (1, 0, ServiceBusMessageState.ACTIVE)
    assert got.enqueued_time_utc is not None
    assert got.expires_at_utc == got.enqueued_time_utc + dt.timedelta(minutes=5)
    assert [type(event) for event in broker.events] == [Sent, Settled]


async def test_a_received_message_can_be_sent_on(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True))
    sent = ServiceBusMessage("x", session_id="s", partition_key="s")
    sent.raw_amqp_message.delivery_annotations = {b"own": 3}
    async with client_of(broker) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(sent)
        async with client.get_queue_receiver("orders", session_id="s") as receiver:
            first = await one(receiver)
            await receiver.complete_message(first)
            await sender.send_messages(first)
            second = await one(receiver)
            await receiver.complete_message(second)
    assert [(got.partition_key, got.sequence_number) for got in (first, second)] == [("s", 1), ("s", 2)]
    for got in (first, second):
        assert got.raw_amqp_message.delivery_annotations is not None
        assert got.raw_amqp_message.delivery_annotations[b"own"] == 3


async def test_settlements_of_a_plain_queue(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain", max_delivery_count=3))
    dead = ServiceBusSubQueue.DEAD_LETTER
    async with client_of(broker) as client:
        async with client.get_queue_sender("plain") as sender:
            batch = await sender.create_message_batch()
            for number in range(4):
                batch.add_message(ServiceBusMessage(f"b{number}", message_id=str(number)))
            await sender.send_messages(batch)
        assert [event for event in broker.events if isinstance(event, Sent)] == [Sent("plain", 4)]
        async with (
            client.get_queue_receiver("plain") as receiver,
            client.get_queue_receiver("plain", sub_queue=dead) as dead_letters,
        ):
            # abandon: comes back in its place, counted; at the maximum it is dead-lettered
            for count in range(3):
                message = await one(receiver)
                assert (message.message_id, message.delivery_count) == ("0", count)
                await receiver.abandon_message(message)
            buried = await one(dead_letters)
            assert reason_of(buried) == (
                "MaxDeliveryCountExceeded",
                "Message could not be consumed after 3 delivery attempts.",
            )
            await dead_letters.complete_message(buried)
            # dead-letter: with reason and description
            message = await one(receiver)
            await receiver.dead_letter_message(message, reason="Bad", error_description="Very bad")
            buried = await one(dead_letters)
            assert (buried.message_id, *reason_of(buried)) == ("1", "Bad", "Very bad")
            await dead_letters.abandon_message(buried)  # no maximum in here: it stays
            assert (await one(dead_letters)).message_id == "1"
            # defer: found by number only
            message = await one(receiver)
            await receiver.defer_message(message)
            number = message.sequence_number
            assert number is not None
            (deferred,) = await receiver.receive_deferred_messages(number)
            assert (deferred.message_id, deferred.state) == ("2", ServiceBusMessageState.DEFERRED)
            await receiver.complete_message(deferred)
            with pytest.raises(MessageNotFoundError):
                await receiver.receive_deferred_messages(number)
            # complete twice: the second is refused, and so is a renewal, by the broker itself
            message = await one(receiver)
            assert await receiver.renew_message_lock(message) > dt.datetime.now(dt.UTC)
            await receiver.complete_message(message)
            with pytest.raises(ValueError, match="already settled"):
                await receiver.complete_message(message)
    assert broker.counts("plain").active == 0
    assert broker.counts("plain").locked == 0


async def test_a_lost_message_lock_is_told_and_counted(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain", lock_seconds=30))
    broker.send("plain", build_message(b"x", message_id="1"))
    async with client_of(broker) as client, client.get_queue_receiver("plain") as receiver:
        message = await one(receiver)
        broker.pass_time(31)
        with pytest.raises(MessageLockLostError):
            await receiver.renew_message_lock(message)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        again = await one(receiver)
        assert again.delivery_count == 1
        await receiver.complete_message(again)


async def test_sessions_named_and_next_with_state_renewal_and_loss(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True, lock_seconds=30, max_delivery_count=5))
    broker.send("orders", *(build_message(f"{n}".encode(), session_id="A", message_id=f"a{n}") for n in range(3)))
    broker.send("orders", build_message(b"z", session_id="", message_id="z"))  # "" is a session id like any other
    async with client_of(broker) as client:
        async with client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            assert receiver.session.session_id == "A"  # the one that waited longest
            first = await one(receiver)
            await receiver.abandon_message(first)
            messages = await receiver.receive_messages(3, max_wait_time=2)
            assert [m.message_id for m in messages] == ["a0", "a1", "a2"]
            assert [m.delivery_count for m in messages] == [1, 0, 0]
            await receiver.complete_message(messages[0])
            assert await receiver.session.get_state() is None
            await receiver.session.set_state(b"\x01\x02")
            assert bytes(await receiver.session.get_state()) == b"\x01\x02"
            broker.pass_time(20)
            assert await receiver.session.renew_lock() == receiver.session.locked_until_utc
            broker.pass_time(20)
            await receiver.complete_message(messages[1])  # the renewed lock holds
            with pytest.raises(SessionCannotBeLockedError):  # C58, R32: one holder at a time
                async with client.get_queue_receiver("orders", session_id="A"):
                    pass
            broker.pass_time(31)
            with pytest.raises(SessionLockLostError):
                await receiver.complete_message(messages[2])
        async with client.get_queue_receiver("orders", session_id="A") as receiver:
            message = await one(receiver)  # counted, because the lock ran out with the message in hand
            assert (message.message_id, message.delivery_count) == ("a2", 1)
            assert bytes(await receiver.session.get_state()) == b"\x01\x02"
            await receiver.session.set_state(None)
            # closed with the message in hand: back at once, count unchanged
        async with client.get_queue_receiver("orders", session_id="A") as receiver:
            message = await one(receiver)
            assert (message.message_id, message.delivery_count) == ("a2", 1)
            await receiver.complete_message(message)
        async with client.get_queue_receiver("orders", session_id="") as receiver:
            assert (await one(receiver)).message_id == "z"
        async with client.get_queue_receiver("orders", session_id="empty") as receiver:  # granted though empty
            assert receiver.session.session_id == "empty"
            assert await receiver.receive_messages(1, max_wait_time=0.3) == []
            broker.send("orders", build_message(b"new", session_id="empty", message_id="n"))
            await receiver.complete_message(await one(receiver))
    settled = [(e.message_id, e.outcome) for e in broker.events if isinstance(e, Settled)]
    assert settled == [
        ("a0", Outcome.ABANDONED),
        ("a0", Outcome.COMPLETED),
        ("a1", Outcome.COMPLETED),
        ("a2", Outcome.COMPLETED),
        ("n", Outcome.COMPLETED),
    ]


async def test_next_session_waits_for_one_and_times_out(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True))
    async with client_of(broker) as client:
        with pytest.raises(OperationTimeoutError):
            async with client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.5):
                pass

        async def wait_for_session() -> str:
            next_one = NEXT_AVAILABLE_SESSION
            async with client.get_queue_receiver("orders", session_id=next_one, max_wait_time=20) as receiver:
                await receiver.complete_message(await one(receiver))
                return receiver.session.session_id

        waiting = asyncio.create_task(wait_for_session())
        async with asyncio.timeout(5):
            while not broker.call(lambda: broker.service.waiting_for_sessions("orders")):  # noqa: ASYNC110 - another loop's
                await asyncio.sleep(0.01)
        broker.send("orders", build_message(b"x", session_id="late"))
        assert await waiting == "late"


async def test_scheduled_deferred_and_active_messages_are_peeked_in_order(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=60)
    async with client_of(broker) as client:
        async with client.get_queue_sender("plain") as sender:
            late, never = await sender.schedule_messages(
                [ServiceBusMessage("late", message_id="late"), ServiceBusMessage("never", message_id="never")], soon
            )
            await sender.send_messages(ServiceBusMessage("now", message_id="now"))
            scheduled = ServiceBusMessage("x", message_id="plain-scheduled", scheduled_enqueue_time_utc=soon)
            await sender.send_messages(scheduled)
            await sender.cancel_scheduled_messages(never)
            with pytest.raises(MessageNotFoundError):
                await sender.cancel_scheduled_messages(never)
        async with client.get_queue_receiver("plain") as receiver:
            seen = await receiver.peek_messages(10)
            waiting, active = ServiceBusMessageState.SCHEDULED, ServiceBusMessageState.ACTIVE
            assert [(m.message_id, m.state) for m in seen] == [
                ("late", waiting),
                ("now", active),
                ("plain-scheduled", waiting),
            ]
            assert [m.message_id for m in await receiver.peek_messages(1, sequence_number=late + 1)] == ["now"]
            await receiver.defer_message(await one(receiver))
            broker.pass_time(61)
            messages = await receiver.receive_messages(2, max_wait_time=2)
            assert [m.message_id for m in messages] == ["late", "plain-scheduled"]
            assert messages[0].sequence_number not in (None, late)  # appended as if just sent
            seen = await receiver.peek_messages(10, sequence_number=1)
            assert [(m.message_id, m.state) for m in seen] == [
                ("now", ServiceBusMessageState.DEFERRED),
                ("late", active),
                ("plain-scheduled", active),
            ]


async def test_duplicates_are_accepted_and_dropped_within_the_window(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("dup", duplicate_detection=True, duplicate_window_seconds=20))
    async with client_of(broker) as client:
        async with client.get_queue_sender("dup") as sender:
            await sender.send_messages(ServiceBusMessage("first", message_id="1"))
            again = [ServiceBusMessage("again", message_id="1"), ServiceBusMessage("b", message_id="2")]
            await sender.send_messages(again)
            broker.pass_time(21)
            await sender.send_messages(ServiceBusMessage("later", message_id="1"))
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with client.get_queue_receiver("dup", receive_mode=mode) as receiver:
            messages = await receiver.receive_messages(3, max_wait_time=2)
            assert [body_of(m) for m in messages] == [b"first", b"b", b"later"]
    counts = broker.counts("dup")
    assert (counts.active, counts.locked) == (0, 0)


async def test_expired_messages_are_dead_lettered_with_the_reason(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("ttl", requires_session=True, dead_letter_on_expiration=True))
    message = ServiceBusMessage("x", message_id="1", session_id="s", time_to_live=dt.timedelta(seconds=30))
    async with client_of(broker) as client:
        async with client.get_queue_sender("ttl") as sender:
            await sender.send_messages(message)
        broker.pass_time(31)
        # R33: the dead-letter queue of a session queue is read without a session
        async with client.get_queue_receiver("ttl", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            buried = await one(receiver)
            assert reason_of(buried) == ("TTLExpiredException", "The message expired and was dead lettered.")
            assert (buried.session_id, buried.enqueued_sequence_number) == ("s", 1)


async def test_one_batch_may_hold_messages_of_several_sessions(start_broker: Start) -> None:  # R49: unpartitioned
    broker = start_broker(QueueOptions("orders", requires_session=True, max_message_bytes=20_000))
    async with client_of(broker) as client, client.get_queue_sender("orders") as sender:
        assert (await sender.create_message_batch()).max_size_in_bytes == 20_000  # the client keeps to the link's limit
        await sender.send_messages([ServiceBusMessage("x", session_id=s, message_id=s) for s in ("A", "B", "A2")])
        with pytest.raises(ServiceBusError, match="SessionId was not set"):
            await sender.send_messages([ServiceBusMessage("x", session_id="C"), ServiceBusMessage("x")])
    views = broker.call(lambda: broker.service.broker.queue("orders").sessions(0))
    assert [(view.session_id, view.waiting) for view in views] == [("A", 1), ("B", 1), ("A2", 1)]  # all or nothing


async def test_wrong_use_is_refused_as_the_service_does(start_broker: Start) -> None:  # R32
    broker = start_broker(QueueOptions("orders", requires_session=True), QueueOptions("plain"))
    async with client_of(broker) as client:
        async with client.get_queue_sender("orders") as sender:
            with pytest.raises(ServiceBusError, match="SessionId was not set"):
                await sender.send_messages(ServiceBusMessage("x"))
            # the client checks the lengths itself, so the test goes round it
            too_long = ServiceBusMessage("x", session_id="s", message_id="m")
            too_long.raw_amqp_message.properties.message_id = "i" * 129
            with pytest.raises(ServiceBusError, match="MessageId has 129 characters"):
                await sender.send_messages(too_long)
            too_long.raw_amqp_message.properties.message_id = "i" * 127 + "\U0001f600"  # two units of UTF-16
            with pytest.raises(ServiceBusError, match="MessageId has 129 characters"):
                await sender.send_messages(too_long)
            too_long = ServiceBusMessage("x", session_id="s")
            too_long.raw_amqp_message.properties.group_id = "s" * 129
            with pytest.raises(ServiceBusError, match="SessionId has 129 characters"):
                await sender.send_messages(too_long)
            await sender.send_messages(ServiceBusMessage("x", session_id="s" * 128, message_id="i" * 128))
            mismatch = ServiceBusMessage("x", session_id="s")
            mismatch.raw_amqp_message.annotations = {b"x-opt-partition-key": "other"}
            with pytest.raises(ServiceBusError, match="PartitionKey 'other' must equal the SessionId 's'"):
                await sender.send_messages(mismatch)
            with pytest.raises(MessageSizeExceededError):
                await sender.send_messages(ServiceBusMessage(b"x" * 262145, session_id="s"))
            await sender.send_messages(ServiceBusMessage(b"x" * 200_000, session_id="large", message_id="large"))

        async def refused(error: type[Exception], text: str, queue: str, **options: Any) -> None:
            with pytest.raises(error, match=text):
                async with client.get_queue_receiver(queue, **options):
                    pass

        async def unknown_sender() -> None:
            with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
                async with client.get_queue_sender("nowhere"):
                    pass

        await asyncio.gather(
            refused(ServiceBusError, "non-sessionful message receiver", "orders"),
            refused(ServiceBusError, "sessionful message receiver cannot be created", "plain", session_id="x"),
            refused(MessagingEntityNotFoundError, "nowhere", "nowhere"),
            unknown_sender(),
        )
        async with client.get_queue_receiver("orders", session_id="large") as receiver:
            large = await one(receiver)
            assert body_of(large) == b"x" * 200_000  # several frames each way
            await receiver.complete_message(large)


async def test_a_wrong_key_is_refused(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    text = broker.connection_string(key="d3JvbmcgOy0p")
    async with AsyncClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            async with client.get_queue_sender("plain"):
                pass


def test_the_sync_client_with_a_lock_renewer_and_a_full_session(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True, lock_seconds=4))
    with ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(f"{n}", session_id="A", message_id=f"{n}") for n in range(50)])
        with (
            AutoLockRenewer() as renewer,
            client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver,
        ):
            locked_until = receiver.session.locked_until_utc
            renewer.register(receiver, receiver.session, max_lock_renewal_duration=60)
            seen = []
            while len(seen) < 50 or receiver.session.locked_until_utc == locked_until:
                for message in receiver.receive_messages(10, max_wait_time=0.2):
                    seen.append(str(message))
                    receiver.complete_message(message)
            assert seen == [str(n) for n in range(50)]
            assert [m.message_id for m in receiver.peek_messages(5)] == []
    assert broker.counts("orders").active == 0
