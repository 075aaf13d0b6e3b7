"""What only bare frames can show: the rules of the wire that keep clients alive, and how the broker takes abuse."""

from __future__ import annotations

import asyncio
import random
import struct
import uuid
from collections.abc import Callable

import pytest
from raw_client import RawClient, error_of, request, source, target
from running_broker import RunningBroker

from local.broker import codec
from local.broker.codec import Described, Encoded, Symbol, Timestamp
from local.broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_HEADER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Frame,
    Open,
    Performative,
    SaslOutcome,
    Transfer,
    decode_composite,
    encode_frame,
    encode_performative,
)
from local.broker.messages import BATCH_FORMAT, ReceivedMessage, build_message, parse_message
from local.broker.service import QueueOptions

Start = Callable[..., RunningBroker]
ACCEPTED, REJECTED, RELEASED, MODIFIED = (codec.described(code, b"\x45") for code in (0x24, 0x25, 0x26, 0x27))
SESSION_FILTER = Symbol("com.microsoft:session-filter")


def encoded(body: bytes = b"x", **fields: object) -> bytes:
    """The sections of a message as a client writes them: properties by position, then a data section."""
    properties = [codec.encode(fields.get("message_id")), *[codec.NULL] * 9, codec.encode(fields.get("session_id"))]
    return codec.described(0x73, codec.encode_list(properties)) + codec.described(0x75, codec.encode(body))


async def healthy(broker: RunningBroker) -> bool:
    """Whether another client can still send."""
    async with await RawClient.authorised(broker, "plain") as client:
        await client.attach_sender("plain")
        return (await client.send_message(encoded())).state == ACCEPTED


# ------------------------------------------------------------------------------------------------- abuse of the port


async def test_random_bytes_end_their_own_connection_only(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    dice = random.Random(7)
    async with await RawClient.authorised(broker, "plain") as bystander:
        await bystander.attach_sender("plain")
        opened = AMQP_HEADER + encode_frame(0, encode_performative(Open("x")))
        for trial in range(60):
            prefix = (b"", SASL_HEADER, AMQP_HEADER, opened)[trial % 4]
            async with await RawClient.connect(broker) as client:
                client.writer.write(prefix + dice.randbytes(dice.randrange(1, 200)))
                client.writer.write_eof()
                assert await client.ended()
            assert (await bystander.send_message(encoded())).state == ACCEPTED
    assert await healthy(broker)


async def test_damaged_frames_end_their_own_connection_with_an_error(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    dice = random.Random(11)
    attach = encode_performative(Attach("a", 7, role=True, source=source("plain"), target=target("me")))
    flow = encode_performative(Flow(0, 100, 0, 100, 7, 0, 5))
    transfer = encode_performative(Transfer(7, 0, b"t", 0)) + encoded()
    disposition = encode_performative(Disposition(role=True, first=0, last=2**31, settled=False, state=MODIFIED))
    for body in (attach, flow, transfer, disposition):
        for _ in range(40):
            damaged = bytearray(body)
            for _ in range(dice.randrange(1, 4)):
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            async with await RawClient.authorised(broker, "plain") as client:
                client.writer.write(encode_frame(0, bytes(damaged)))
                client.send(Close())
                while not isinstance(await client.expect_any(), Close):
                    pass
    assert await healthy(broker)


@pytest.mark.parametrize(
    ("frame", "condition"),
    [
        (struct.pack(">IBBH", 7, 2, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 2**31, 2, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 8, 1, 0, 0), "amqp:connection:framing-error"),
        (encode_frame(0, b"\x00\x53\x99\x45"), "amqp:decode-error"),
        (encode_frame(0, b"\x00\x53\x12\xc0\x02\x01"), "amqp:decode-error"),
        (encode_frame(0, b"\x00" * 5000), "amqp:decode-error"),
        (encode_frame(0, encode_performative(Open("x"))), "amqp:connection:framing-error"),
    ],
    ids=["short", "huge", "offset", "unknown", "cut", "deep", "second-open"],
)
async def test_a_broken_frame_closes_the_connection_with_all_three_error_fields(
    start_broker: Start, frame: bytes, condition: str
) -> None:
    broker = start_broker(QueueOptions("plain"))
    async with await RawClient.begun(broker) as client:
        client.writer.write(frame)
        assert error_of((await client.expect(Close)).error)[0] == condition
        client.send(Close())
        assert await client.ended()


async def test_a_failure_inside_the_broker_ends_one_connection_and_is_logged(
    start_broker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_broker(QueueOptions("plain"))

    def fail(_: object) -> None:
        broker.server.observers.remove(fail)
        raise RuntimeError("an observer fails")

    broker.server.observers.append(fail)
    async with await RawClient.authorised(broker) as client:
        await client.attach_sender("plain")
        client.send(Transfer(0, 0, b"t", 0), encoded())
        assert error_of((await client.expect(Close)).error)[0] == "amqp:internal-error"
    assert "an observer fails" in caplog.text
    assert await healthy(broker)


@pytest.mark.parametrize(
    ("performative", "condition"),
    [
        (Transfer(100, None, b"t", 0), "amqp:invalid-field"),
        (Attach("again", 100, role=True, source=source("$cbs")), "amqp:session:handle-in-use"),
        (Attach("high", 256, role=True, source=source("$cbs")), "amqp:session:handle-in-use"),
        (Begin(None, 0, 1, 1), "amqp:connection:framing-error"),
        (SaslOutcome(), "amqp:not-allowed"),
    ],
    ids=["no-delivery-id", "handle-in-use", "handle-too-high", "channel-in-use", "no-frame-of-a-client"],
)
async def test_a_breach_of_protocol_closes_the_connection(
    start_broker: Start, performative: Performative, condition: str
) -> None:
    broker = start_broker(QueueOptions("plain"))
    async with await RawClient.begun(broker) as client:
        await client.attach_node("$cbs", 100)
        client.send(performative)
        assert error_of((await client.expect(Close)).error)[0] == condition


async def test_answers_wait_for_credit_but_not_without_end(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    async with await RawClient.begun(broker) as client:
        client.send(Attach("out", 0, role=False, source=source("me"), target=target("$cbs")))
        await client.expect(Attach)
        client.send(Transfer(0, 0, b"", 0), request("nonsense", None))
        assert (await client.expect(Disposition)).state == ACCEPTED  # there is no link yet to answer on
        client.send(Attach("in", 1, role=True, source=source("$cbs"), target=target("reply")))
        await client.expect(Attach)
        client.send(Transfer(0, 1, b"", 0, settled=True), request("nonsense", None, "mine"))
        client.flow(1, credit=1)
        await client.expect(Transfer)
        answer = parse_message(client.payload)
        assert (answer.correlation_id, answer.application_properties["status-code"]) == ("mine", 400)
        for _ in range(1001):
            client.send(Transfer(0, 2, b"", 0, settled=True), request("nonsense", None))
        assert error_of((await client.expect(Close)).error)[0] == "amqp:resource-limit-exceeded"


# --------------------------------------------------------------------------------------------- opening and time-outs


async def test_sasl_offers_what_each_client_needs_and_plain_checks_the_key(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    for mechanism in ("MSSBCBS", "ANONYMOUS", "EXTERNAL"):
        async with await RawClient.connect(broker) as client:
            assert await client.authenticate(mechanism) == 0
    async with await RawClient.connect(broker) as client:
        assert await client.authenticate("PLAIN", b"\x00RootManageSharedAccessKey\x00SAS_KEY_VALUE") == 0
    async with await RawClient.connect(broker) as client:
        assert await client.authenticate("PLAIN", b"\x00RootManageSharedAccessKey\x00wrong") == 1
        assert await client.ended()
    async with await RawClient.connect(broker) as client:
        assert await client.authenticate("SCRAM-SHA-256") == 1


async def test_nothing_is_heard_from_who_skips_sasl(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    async with await RawClient.connect(broker) as client:
        client.writer.write(SASL_HEADER)
        assert await client.raw() == SASL_HEADER
        await client.raw()
        client.send(Open("x"))
        assert await client.ended()


async def test_an_idle_peer_is_kept_alive_and_a_silent_one_is_closed(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"), idle_seconds=0.2)
    async with await RawClient.begun(broker, idle_time_out=250) as client:
        assert await client.raw() == Frame(is_sasl=False, channel=0, body=b"")
        client.writer.write(EMPTY_FRAME)
        condition, text = error_of((await client.expect(Close)).error)
        assert (condition, text[:17]) == ("amqp:resource-limit-exceeded", "Nothing was heard")


async def test_tokens_open_what_they_are_for_and_nothing_else(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"), QueueOptions("plain2"))
    async with await RawClient.begun(broker) as client:
        wanted = Attach("a", 5, role=True, source=source("plain"), target=target("me"))
        assert (await client.refused(wanted))[0] == "amqp:unauthorized-access"
        assert await client.put_token("sb://127.0.0.1/plain", key="wrong") == 401
        assert await client.put_token("sb://127.0.0.1/plain", expires=1) == 401
        assert await client.put_token("sb://127.0.0.1/plain", signed="sb://127.0.0.1/plai") == 401
        assert await client.put_token("sb://127.0.0.1/plain", signed="sb://elsewhere/plain") == 401
        assert (await client.refused(wanted))[0] == "amqp:unauthorized-access"
        # .NET: the whole namespace, another scheme, no port, other case
        assert await client.put_token("amqp://LOCALHOST:1/Plain", signed="amqps://localhost/") == 202
        client.send(wanted)
        assert (await client.expect(Attach)).source == wanted.source
        other = Attach("b", 6, role=True, source=source("plain2"), target=target("me"))
        assert (await client.refused(other))[0] == "amqp:unauthorized-access"


# ------------------------------------------------------------------------------------------------------------ links


async def test_links_are_refused_by_name_with_the_services_conditions(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"), QueueOptions("orders", requires_session=True))
    coordinator = codec.described(0x30, codec.encode_list([]))
    dead = "orders/$DeadLetterQueue"
    next_session = {SESSION_FILTER: None}
    async with await RawClient.authorised(broker) as client:
        for terminus, condition, word in (
            ({"target": coordinator}, "amqp:not-implemented", "Transactions"),
            ({}, "amqp:decode-error", "terminus"),
            ({"target": target("topic")}, "amqp:not-found", "'topic'"),
            ({"target": target(dead)}, "amqp:not-allowed", "dead-letter queue"),
            ({"source": source("t/Subscriptions/s")}, "amqp:not-found", "'t/Subscriptions/s'"),
            ({"source": source("nowhere/$management")}, "amqp:not-found", "'nowhere'"),
            ({"source": source(dead, next_session)}, "amqp:not-allowed", "A sessionful message receiver cannot"),
            ({"source": source("plain", {SESSION_FILTER: "x"})}, "amqp:not-allowed", "A sessionful message receiver"),
            ({"source": source("orders")}, "amqp:not-allowed", "non-sessionful message receiver"),
            ({"source": source("orders", {})}, "amqp:not-allowed", "non-sessionful message receiver"),
            ({"source": source("orders", {SESSION_FILTER: 7})}, "com.microsoft:argument-error", "no string"),
        ):
            refusal = await client.refused(Attach("a", 1, role="source" in terminus, **terminus))
            assert refusal[0] == condition
            assert word in refusal[1]


async def test_a_session_link_answers_with_the_session_and_its_lock(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True, lock_seconds=30))
    address = "amqps://127.0.0.1:1/Orders"
    async with await RawClient.authorised(broker) as client:
        for handle, given in enumerate((codec.encode("S"), codec.encode(Described(Symbol("x:filter"), "T")))):
            answer = await client.attach_receiver(address, handle, filters={SESSION_FILTER: Encoded(given)})
            fields = decode_composite(answer.source or b"")[1]
            assert codec.decode_one(fields[0]) == address  # byte for byte, or Python never learns its session
            assert fields[7] == codec.encode_map({SESSION_FILTER: "ST"[handle]})  # undescribed
            assert answer.initial_delivery_count == 0
            ticks = (answer.properties or {})["com.microsoft:locked-until-utc"]
            assert isinstance(ticks, int)
            views = broker.call(lambda: broker.service.broker.queue("orders").sessions(0))
            assert abs(ticks - 621355968000000000 - (views[handle].locked_until or 0) * 1e7) < 1e5
        broker.pass_time(31)
        assert error_of((await client.expect(Detach)).error)[0] == "com.microsoft:session-lock-lost"


async def test_a_wait_for_the_next_session_ends_by_detach_or_time_out(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True))
    wanted = Attach("a", 1, role=True, source=source("orders", {SESSION_FILTER: None}), target=target("me"))
    async with await RawClient.authorised(broker) as client:
        client.send(wanted)
        client.send(Detach(1, closed=True))
        assert (await client.expect(Attach)).source is None
        assert (await client.expect(Detach)).error is None
        wanted.properties = {Symbol("com.microsoft:timeout"): codec.uint(50)}
        assert (await client.refused(wanted))[0] == "com.microsoft:timeout"
        # credit that is given before the answer counts
        wanted.properties = None
        client.send(wanted)
        client.flow(1, credit=1)
        broker.send("orders", build_message(b"x", session_id="s"))
        assert (await client.expect(Attach)).source is not None
        assert (await received(client)).session_id == "s"
    # the connection is gone: the session is free at once
    async with await RawClient.authorised(broker) as client:
        answer = await client.attach_receiver("orders", filters={SESSION_FILTER: "s"})
        assert answer.source is not None
        # a second link waits for the next session; ending the session withdraws it
        wanted.handle = 2
        client.send(wanted)
        client.send(End())
        await client.expect(End)
        client.send(Detach(1, closed=True))  # Python detaches links of a session that it ended already
        client.send(Close())
        await client.expect(Close)


async def received(client: RawClient) -> ReceivedMessage:
    await client.expect(Transfer)
    return parse_message(client.payload)


# ---------------------------------------------------------------------------------------------------------- sending


async def test_messages_without_an_id_or_with_any_type_of_id(start_broker: Start) -> None:  # R26, R27
    broker = start_broker(QueueOptions("plain", duplicate_detection=True))
    ids = [uuid.UUID(int=5), codec.ulong(7), b"raw", "", str(uuid.UUID(int=5))]
    async with await RawClient.authorised(broker) as client:
        await client.attach_sender("plain")
        for _ in range(2):
            assert (await client.send_message(encoded(b"none"))).state == ACCEPTED
            for message_id in ids:
                assert (await client.send_message(encoded(message_id=message_id))).state == ACCEPTED
        await client.attach_receiver("plain", mode=1)
        client.flow(1, credit=100)
        seen = []
        for _ in range(8):
            transfer = await client.expect(Transfer)
            assert (transfer.settled, len(transfer.delivery_tag or b"")) == (True, 16)
            seen.append(parse_message(client.payload))
    assert all(message.message_id is not None for message in seen)  # JavaScript can't settle a message without one
    assert len({message.message_id for message in seen if message.body == b"none"}) == 2
    assert [message.message_id for message in seen if message.body == b"x"] == [
        *(uuid.UUID(int=5), 7, b"raw", "", str(uuid.UUID(int=5))),
        "",  # an empty id identifies nothing, so its copy is no duplicate
    ]


async def test_bare_sections_come_out_byte_for_byte(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    wide_id = b"\xb1\x00\x00\x00\x01i"  # a longer form than needed, which re-encoding would lose
    properties = codec.described(0x73, codec.encode_list([wide_id, b"\xa0\x01u"]))
    applications = codec.described(0x74, b"\xd1" + struct.pack(">II", 4 + 3 + 9, 2) + b"\xa1\x01k" + codec_long(7))
    value = codec.described(0x77, b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00")
    footer = codec.described(0x78, codec.encode_map({Symbol("f"): 1}))
    ours = codec.described(0x72, codec.encode_map({Symbol("x-opt-custom"): 1, Symbol("x-opt-sequence-number"): 99}))
    async with await RawClient.authorised(broker) as client:
        await client.attach_sender("plain")
        message = ours + properties + applications + value + footer
        assert (await client.send_message(message)).state == ACCEPTED
        await client.attach_receiver("plain")
        client.flow(1, credit=1)
        transfer = await client.expect(Transfer)
        assert client.payload.endswith(properties + applications + value + footer)
        got = parse_message(client.payload)
        assert set(got.annotations) == {"x-opt-custom"}  # the service's own are its own
        assert uuid.UUID(bytes_le=transfer.delivery_tag).bytes in client.payload  # and as the delivery annotation


def codec_long(value: int) -> bytes:
    return struct.pack(">Bq", 0x81, value)


async def test_transfers_in_many_frames_settled_aborted_too_large_or_twice_under_one_id(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain", max_message_bytes=5000))
    async with await RawClient.authorised(broker, max_frame_size=512) as client:
        await client.attach_sender("plain")
        whole = encoded(b"a" * 3000, message_id="large")
        client.send(Transfer(0, 0, b"t", 0, more=True), whole[:1000])
        client.send(Transfer(0, more=True), whole[1000:2000])
        client.send(Transfer(0), whole[2000:])
        assert (await client.expect(Disposition)).state == ACCEPTED
        client.send(Transfer(0, 1, b"t", 0, more=True), whole[:1000])
        client.send(Transfer(0, aborted=True))
        client.send(Transfer(0, 2, b"t", 0, settled=True), encoded(message_id="settled"))  # no answer to this one
        for _ in range(2):  # two threads of a Python client
            disposition = await client.send_message(encoded(message_id="twice"), number=3)
            assert (disposition.role, disposition.settled, disposition.first) == (True, True, 3)
        refused = await client.send_message(encoded(b"a" * 6000), number=4)
        code, fields = decode_composite(refused.state or b"")
        assert (code, error_of(fields[0])[0]) == (0x25, "amqp:link:message-size-exceeded")
        refused = await client.send_message(b"\x00\x53\x75\xa1\x01x", number=5)
        assert error_of(decode_composite(refused.state or b"")[1][0])[0] == "amqp:decode-error"
        await client.attach_receiver("plain")
        client.flow(1, credit=10)
        payload, transfer = b"", await client.expect(Transfer)
        while True:
            payload += client.payload
            assert len(client.payload) <= 512
            if not transfer.more:
                break
            transfer = await client.expect(Transfer)
        assert parse_message(payload).body == b"a" * 3000
        assert [(await received(client)).message_id for _ in range(3)] == ["settled", "twice", "twice"]


async def test_a_batch_is_told_by_its_format_and_is_all_or_nothing(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True))
    good, bad = encoded(session_id="s", message_id="1"), encoded()
    async with await RawClient.authorised(broker) as client:
        await client.attach_sender("orders")

        async def send(*messages: bytes) -> Encoded | None:
            batch = b"".join(codec.described(0x75, codec.encode(message)) for message in messages)
            return (await client.send_message(batch, kind=BATCH_FORMAT)).state

        assert await send(good, good) == ACCEPTED
        assert decode_composite(await send(good, bad) or b"")[0] == 0x25
        assert decode_composite(await send() or b"")[0] == 0x25
    assert broker.counts("orders").active == 2


# -------------------------------------------------------------------------------------------------------- receiving


async def test_credit_window_and_drain_are_honoured(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    broker.send("plain", *(build_message(b"%d" % number) for number in range(6)))
    async with await RawClient.authorised(broker, incoming_window=2) as client:
        await client.attach_receiver("plain")
        client.flow(1, credit=4, window=2, seen=1)  # one answer of $cbs has come
        for _ in range(2):
            await client.expect(Transfer)
        assert broker.counts("plain").locked == 2  # what the window keeps back is not locked either
        client.flow(1, credit=4, window=2, seen=3)
        client.flow(1, credit=4, window=2, seen=3)  # absolute: said twice it counts once
        for _ in range(2):
            await client.expect(Transfer)
        client.flow(1, credit=4, window=10, seen=5, drain=True)  # finds no credit left, and is answered all the same
        answer = await client.expect(Flow)
        assert (answer.drain, answer.delivery_count, answer.link_credit) == (True, 4, 0)
        client.flow(1, credit=9, window=10, seen=5, drain=True)
        for _ in range(2):
            await client.expect(Transfer)
        answer = await client.expect(Flow)
        assert (answer.drain, answer.delivery_count, answer.link_credit) == (True, 9, 0)
        broker.send("plain", build_message(b"later"))
        assert broker.counts("plain").locked == 6


async def test_a_client_that_does_not_read_is_handed_no_more_than_the_socket_takes(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain"))
    count = 3000
    broker.send("plain", *(build_message(bytes(10_000)) for _ in range(count)))
    async with await RawClient.authorised(broker, incoming_window=2**31 - 1) as client:
        await client.attach_receiver("plain", mode=1)
        client.flow(1, credit=count, window=2**31 - 1)
        await client.expect(Transfer)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a read transport too
        before, left = count + 1, count
        async with asyncio.timeout(5):
            while left != before:
                await asyncio.sleep(0.05)
                before, left = left, broker.counts("plain").active
        assert left > count / 4
        assert await healthy(broker)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count - 1):
            await client.expect(Transfer)


async def test_a_broker_that_stops_says_so_and_can_start_again_with_its_queues(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True, lock_seconds=30))
    broker.send("orders", build_message(b"x", session_id="s"))
    async with await RawClient.authorised(broker) as client:
        await client.attach_receiver("orders", filters={SESSION_FILTER: "s"})
        client.flow(1, credit=1)
        await client.expect(Transfer)
        stopping = asyncio.create_task(asyncio.to_thread(broker.restart))
        assert error_of((await client.expect(Close)).error)[0] == "amqp:connection:forced"
        client.send(Close())
        assert await client.ended()
        await stopping
    async with await RawClient.authorised(broker) as client:
        await client.attach_receiver("orders", filters={SESSION_FILTER: "s"})
        client.flow(1, credit=1)
        assert (await received(client)).session_id == "s"
        broker.pass_time(31)
        assert error_of((await client.expect(Detach)).error)[0] == "com.microsoft:session-lock-lost"


async def test_settlement_names_the_outcome_asked_for_and_ends_with_the_link(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("plain", lock_seconds=30))
    broker.send("plain", *(build_message(b"x", message_id=f"{number}") for number in range(5)))
    async with await RawClient.authorised(broker) as client:
        await client.attach_receiver("plain")
        client.flow(1, credit=5)
        first = (await client.expect(Transfer)).delivery_id or 0
        for _ in range(4):
            await client.expect(Transfer)
        for step, state in enumerate((RELEASED, MODIFIED, REJECTED, ACCEPTED)):
            client.send(Disposition(role=True, first=first + step, settled=False, state=state))
            answer = await client.expect(Disposition)
            assert (answer.role, answer.settled, answer.state, answer.first) == (False, True, state, first + step)
        client.send(Disposition(role=True, first=first, last=first + 3, settled=False, state=ACCEPTED))  # all known
        broker.pass_time(31)
        client.send(Disposition(role=True, first=first, last=2**31 - 1, settled=False, state=ACCEPTED))
        answer = await client.expect(Disposition)
        assert (answer.first, decode_composite(answer.state or b"")[0]) == (first + 4, 0x25)
        assert error_of(decode_composite(answer.state or b"")[1][0])[0] == "com.microsoft:message-lock-lost"
        client.flow(1, credit=10, seen=6)
        last = (await client.expect(Transfer)).delivery_id or 0
        client.send(Detach(1, closed=True))
        await client.expect_past(Transfer, Detach)
        client.send(Disposition(role=True, first=last, settled=True, state=ACCEPTED))  # too late: the link is gone
        client.send(Close())
        await client.expect(Close)
    counts = broker.counts("plain")
    assert (counts.active, counts.locked, counts.dead_letter) == (3, 3, 1)


# ------------------------------------------------------------------------------------------------------- management


async def test_management_answers_every_request_with_its_id_and_a_status(start_broker: Start) -> None:
    broker = start_broker(QueueOptions("orders", requires_session=True), QueueOptions("plain"))
    broker.send("plain", *(build_message(b"x", message_id=f"{number}") for number in range(3)))
    broker.send("orders", *(build_message(b"x", session_id=f"s{number}") for number in range(130)))
    async with await RawClient.authorised(broker) as client:
        await client.attach_node("orders/$management", 10)
        await client.attach_node("plain/$management", 20)

        async def ask(handle: int, operation: str, body: object, **properties: object) -> tuple[object, object, object]:
            identity = uuid.uuid4()
            answer = await client.ask(handle, request(f"com.microsoft:{operation}", body, identity, **properties))
            assert answer.correlation_id == identity
            facts = answer.application_properties
            return facts["statusCode"], facts.get("errorCondition"), codec.decode_one(answer.value or codec.NULL)

        assert (await ask(20, "add-rule", {}))[:2] == (501, "amqp:not-implemented")
        assert (await ask(20, "renew-lock", {"lock-tokens": [1]}))[:2] == (400, "com.microsoft:argument-error")
        assert (await ask(20, "renew-lock", "no map"))[:2] == (400, "com.microsoft:argument-error")
        tokens = {"lock-tokens": codec.array(uuid.UUID, [uuid.uuid4()])}
        assert (await ask(20, "renew-lock", tokens))[:2] == (410, "com.microsoft:message-lock-lost")
        settle = {"disposition-status": "completed", **tokens}
        assert (await ask(20, "update-disposition", settle))[:2] == (410, "com.microsoft:message-lock-lost")
        assert (await ask(10, "update-disposition", settle))[:2] == (410, "com.microsoft:session-lock-lost")
        unheld = await ask(10, "get-session-state", {"session-id": "s1"})
        assert unheld[:2] == (410, "com.microsoft:session-lock-lost")
        # a session's state is for the link that holds it
        await client.attach_receiver("orders", 1, filters={SESSION_FILTER: "s1"})
        held = {"session-id": "s1", "session-state": b"state"}
        assert (await ask(10, "set-session-state", held, **{"associated-link-name": "receiver"}))[0] == 200
        status, _, body = await ask(10, "get-session-state", held, **{"associated-link-name": "receiver"})
        assert (status, body) == (200, {"session-state": b"state"})
        assert (await ask(10, "get-session-state", held, **{"associated-link-name": "other"}))[0] == 410
        # sessions: a full page, a short one, none
        page = {"last-updated-time": Timestamp(253402300800000), "skip": 0, "top": 200}
        status, _, body = await ask(10, "get-message-sessions", page)
        assert isinstance(body, dict)
        assert (status, body["skip"], len(body["sessions-ids"])) == (200, 100, 100)
        _, _, body = await ask(10, "get-message-sessions", {**page, "skip": 100})
        assert isinstance(body, dict)
        assert len(body["sessions-ids"]) == 30
        assert (await ask(10, "get-message-sessions", {**page, "skip": 130}))[0] == 204
        since_epoch = {**page, "last-updated-time": Timestamp(0)}
        assert (await ask(10, "get-message-sessions", since_epoch))[2] == {"skip": 1, "sessions-ids": ["s1"]}
        # messages
        assert (await ask(20, "peek-message", {"from-sequence-number": 9, "message-count": 5}))[0] == 204
        before = {"message-count": 2, "enqueued-time-utc": Timestamp(2**45)}
        assert (await ask(20, "batch-delete-messages", before))[2] == {"message-count": 2}
        assert (await ask(20, "batch-delete-messages", before))[2] == {"message-count": 1}
        assert (await ask(20, "batch-delete-messages", before))[0] == 204
        missing = {"sequence-numbers": codec.array(int, [1]), "receiver-settle-mode": codec.uint(0)}
        assert (await ask(20, "receive-by-sequence-number", missing))[:2] == (404, "com.microsoft:message-not-found")
