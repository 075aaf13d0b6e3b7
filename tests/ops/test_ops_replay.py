"""Replay and discard through the real clients: in order, once, without loss, after each reason that can be repaired."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from local.broker.service import BrokerEvent, Sent
from local.faults import Delay, Rule, Service
from local.payments import PaymentProvider, answers
from ops.audit import operation_id
from tests.ops.operators import BECAUSE, HELD_MAX, REPLAY_MAX, SETTINGS, Bench, Ops
from tests.scenarios.harness import PROJECT, running
from tests.scenarios.messages import amended, batch, cancelled, entry, fresh, line, placed, status, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUICK = ("--wait", "20")


async def test_replay_inside_the_window_is_not_swallowed_and_completes_the_copy_behind_its_record(bench: Bench) -> None:
    """C71 D26 D27 R37: an amendment without its order is parked, and applied once the order is there."""
    order = fresh()
    await bench.app.send(amended(order, "op-1"))
    await bench.app.only_parked(order)
    await bench.app.outcome(placed(order))

    plan = await bench.ops("parked", "replay", "--session", order)
    assert (plan.code, plan.results) == (0, [(f"{order}:op-1", "planned")])
    assert len(bench.app.parked(order)) == 1
    assert await bench.operations(order) == []

    done = await bench.ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
    assert (done.code, done.results) == (0, [(f"{order}:op-1", "verified")])
    assert bench.app.outcomes_of(f"{order}:op-1~r1") == ["applied"]
    assert bench.app.parked(order) == []
    (operation,) = [each for each in await bench.app.documents("operations", order) if each["type"] == "replay"]
    assert operation["status"] == "verified"
    assert operation["old"]["messageId"] == operation["new"]["dedupId"] == f"{order}:op-1"
    assert operation["new"]["messageId"] == f"{order}:op-1~r1"
    assert operation["reason"] == "the cause is repaired"
    record = await bench.app.document("orders", order, f"{order}:op-1")
    assert record is not None
    assert record["record"]["payloadHash"] == operation["new"]["payloadHash"]


async def test_session_is_replayed_in_original_order_and_its_followers_come_along(bench: Bench, tmp_path: Path) -> None:
    """D28 D47 R21: a wrong 2 parks 3 and 4 behind it; corrected, all three are applied in order."""
    order, other = fresh(), fresh()
    await bench.app.outcome(placed(order, sequence=1))
    wrong = amended(order, "op-2", line("1", 5), sequence=2) | {"colour": "red"}
    await bench.app.send_all([wrong, amended(order, "op-3", line("1", 6), sequence=3)])
    await bench.app.send_all([cancelled(order, "op-4", sequence=4), placed(other)])
    await bench.app.outcomes(f"{order}:op-4")
    assert [copy.reason for copy in bench.app.parked(order)] == ["InvalidMessage", "SequenceGap", "SequenceGap"]
    assert await bench.app.outcomes(other) == ["created"]  # another session goes on

    corrected = tmp_path / "body.json"
    corrected.write_text(json.dumps(amended(order, "op-2", line("1", 5), sequence=2)))
    listed = (await bench.ops("parked", "list", "--session", order)).json["messages"]
    refused = await bench.ops("parked", "replay", "--session", order, "--body", str(corrected), *BECAUSE)
    assert refused.code == 2  # three messages, one body

    first = ("--id", listed[0]["id"], "--body", str(corrected))
    done = await bench.ops("parked", "replay", *first, *BECAUSE, *QUICK)
    assert done.results == [(f"{order}:op-2", "verified")]
    again = await bench.ops("parked", "replay", *first, *BECAUSE, *QUICK)
    assert again.code == 2 or again.results == []

    rest = await bench.ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
    assert rest.results == [(f"{order}:op-3", "verified"), (f"{order}:op-4", "verified")]
    document = await bench.app.order(order)
    assert document is not None
    assert (document["state"], document["nextCommand"]) == ("cancelled", 5)
    await bench.app.quiet()
    amounts = [each["amount"] for each in await bench.app.entries(order)]
    assert amounts == ["7.00", "12", "10.50", "3.50", "-21.00", "-12", None]


async def test_replay_stops_the_session_at_the_first_that_fails(bench: Bench) -> None:
    """D28 R36: 2 is still wrong, so 3 is not sent; what failed lies parked again, once, and counts."""
    order = fresh()
    await bench.app.outcome(placed(order, sequence=1))
    wrong = amended(order, "op-2", sequence=2) | {"colour": "red"}
    await bench.app.send_all([wrong, amended(order, "op-3", sequence=3)])
    await bench.app.outcomes(f"{order}:op-3")

    for round_ in range(1, REPLAY_MAX + 1):
        done = await bench.ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
        number = f"{order}:op-2" if round_ == 1 else f"{order}:op-2~r{round_ - 1}"
        assert (done.code, done.results) == (1, [(number, "failed"), (f"{order}:op-3", "left")])
        first = next(copy for copy in bench.app.parked(order) if copy.reason == "InvalidMessage")
        assert first.properties["replay-failures"] == str(round_)
        assert first.properties["dedup-id"] == f"{order}:op-2"
        assert len(bench.app.parked(order)) == 2

    capped = await bench.ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
    assert (capped.code, capped.results[0]) == (1, (f"{order}:op-2~r{REPLAY_MAX}", "refused"))
    assert "REPLAY_MAX" in capped.json["messages"][0]["detail"]
    assert len(bench.app.parked(order)) == 2  # nothing is lost


async def test_identity_is_made_anew_where_it_was_the_fault(bench: Bench) -> None:
    """R26 D18 D50: no MessageId, another's, another session: each gets what its body says."""
    missing, key, session, elsewhere = fresh(), fresh(), fresh(), fresh()
    await bench.app.send(placed(missing), raw_id=True, message_id="")
    await bench.app.send(placed(key), message_id="random-1")
    await bench.app.send(placed(session), session=elsewhere)
    reasons = []
    for each in (missing, key, elsewhere):
        reasons.append((await bench.app.only_parked(each)).reason)
    assert reasons == ["MessageIdMissing", "MessageKeyMismatch", "SessionKeyMismatch"]

    for done in await bench.replay_each(missing, key, elsewhere):
        assert (done.code, [result for _, result in done.results]) == (0, ["verified"])
    for each in (missing, key, session):
        document = await bench.app.order(each)
        assert document is not None
        assert document["record"]["key"] == each
        assert document["record"]["messageId"] == f"{each}~r1"
        assert bench.app.parked(each) == []


async def test_cloud_event_is_corrected_at_its_id(bench: Bench) -> None:
    """C71: structured mode in the body, binary mode in the property; the key keeps the source."""
    structured, binary = fresh(), fresh()
    event = {"specversion": "1.0", "id": "wrong", "source": "/erp", "type": "order.placed"}
    data = {name: value for name, value in placed(structured).items() if name != "type"}
    await bench.app.send(
        json.dumps({**event, "data": data}),
        role="orders",
        message_id=f"E-{structured}",
        session=structured,
        content_type="application/cloudevents+json",
    )
    properties = {f"cloudEvents:{name}": value for name, value in event.items()}
    await bench.app.send(placed(binary), message_id=f"E-{binary}", properties=properties)
    for order in (structured, binary):
        assert (await bench.app.only_parked(order)).reason == "MessageKeyMismatch"
    for order, done in zip((structured, binary), await bench.replay_each(structured, binary), strict=True):
        assert [result for _, result in done.results] == ["verified"], done.text
        document = await bench.app.order(order)
        assert document is not None
        assert document["record"]["key"] == f'["/erp","{order}"]'


async def test_known_key_with_other_content_can_only_be_discarded(bench: Bench, tmp_path: Path) -> None:
    """C24 R41: neither as it is nor with another body."""
    order = fresh()
    await bench.app.outcome(placed(order))
    bench.app.clock.ahead += 10  # inside the broker's window the second would vanish
    await bench.app.send(placed(order, line("1", 99)))
    assert (await bench.app.only_parked(order)).reason == "PayloadMismatch"
    body = tmp_path / "body.json"
    body.write_text(json.dumps(placed(order)))

    for done in (await bench.replay_each(order)) + (await bench.replay_each(order, more=("--body", str(body)))):
        assert (done.code, [result for _, result in done.results]) == (1, ["refused"])
    shown = (await bench.ops("parked", "show", "--session", order)).json["messages"][0]
    assert shown["stored"]["record"]["payloadHash"] == shown["notes"]["stored-hash"] != shown["notes"]["payload-hash"]
    assert json.loads(shown["body"])["lines"][0]["quantity"] == 99

    plan = await bench.ops("parked", "discard", "--session", order)
    assert (plan.code, len(bench.app.parked(order))) == (0, 1)
    gone = await bench.ops("parked", "discard", "--session", order, *BECAUSE)
    assert (gone.code, bench.app.parked(order)) == (0, [])
    assert await bench.operations(order) == [("discard", "completed")]


async def test_too_old_and_out_of_order_are_refused(bench: Bench) -> None:
    """R40: beyond the horizon its record may be gone; an older amendment would turn the order back."""
    order, old = fresh(), fresh()
    await bench.app.send_all([amended(order, "op-1", line("1", 1))])
    long_ago = (datetime.now(UTC) - timedelta(days=40)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await bench.app.send(amended(old, "op-1"), properties={"original-enqueued-at": long_ago})
    for each in (order, old):
        await bench.app.only_parked(each)
    await bench.app.outcome(placed(order))
    await bench.app.outcome(amended(order, "op-2", line("1", 2)))

    expired, behind = await bench.replay_each(old, order)
    assert (expired.code, expired.results) == (1, [(f"{old}:op-1", "refused")])
    assert "REPLAY_HORIZON_SECONDS" in expired.json["messages"][0]["detail"]
    assert (behind.code, behind.results) == (1, [(f"{order}:op-1", "refused")])
    assert f"{order}:op-2" in behind.json["messages"][0]["detail"]
    forced = await bench.ops("parked", "replay", "--session", order, "--out-of-order", *BECAUSE, *QUICK)
    assert forced.results == [(f"{order}:op-1", "verified")]
    (operation,) = [each for each in await bench.app.documents("operations", order) if each["type"] == "replay"]
    assert operation["outOfOrder"] is True


async def test_entry_beyond_the_limit_of_held_ones_is_replayed(bench: Bench) -> None:
    """D47: the stream held as many as it may; when its gap is closed, the parked one finds its place."""
    order = fresh()
    entries = [entry(order, f"T-{n}", sequence=n) for n in range(1, HELD_MAX + 3)]
    await bench.app.send_all(entries[1:])
    assert (await bench.app.only_parked(order)).reason == "HeldLimitExceeded"
    await bench.app.outcome(entries[0])
    done = await bench.ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
    assert [result for _, result in done.results] == ["verified"]
    assert [each["sequence"] for each in await bench.app.entries(order)] == list(range(1, HELD_MAX + 3))


async def test_batch_behind_a_gap_and_a_status_are_replayed(bench: Bench) -> None:
    """A ledger's batch is proven by its record; a status leaves none, so the broker's word is enough."""
    ledger, order, other = fresh("L"), fresh(), fresh()
    await bench.app.send(batch(ledger, "B-2", transaction(2, order), batchSequence=2))
    assert (await bench.app.only_parked(ledger)).reason == "SequenceGap"
    await bench.app.send(status(other, "confirmed", 1))
    assert (await bench.app.only_parked(other)).reason == "OrderUnknown"
    await bench.app.outcome(batch(ledger, "B-1", transaction(1, order), batchSequence=1))
    await bench.app.outcome(placed(other))
    for done in await bench.replay_each(ledger, other):
        assert [result for _, result in done.results] == ["verified"]
    assert await bench.app.outcomes(f"{other}:status.1~r1") == ["applied"]
    assert bench.app.parked(ledger) == bench.app.parked(other) == []


async def test_properties_and_fields_make_the_round_trip_on_the_wire(bench: Bench) -> None:
    """R28 R29 R30: names, values and types as they were, the reason of the dead letter gone, gzip kept."""
    order = fresh()
    bench.pause()
    properties: dict[str | bytes, Any] = {
        "tenant": "t1",
        "flag": True,
        "ratio": 1.5,
        "small": 7,
        "long": {"TYPE": "LONG", "VALUE": 7},
        "unsigned": {"TYPE": "ULONG", "VALUE": 2**63},
        "binary": {"TYPE": "BINARY", "VALUE": b"text"},
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "uuid": UUID("00000000-0000-0000-0000-000000000005"),
        "content-encoding": "gzip",
        **{f"p{n:02}": f"v{n}" for n in range(30)},
    }
    body = gzip.compress(json.dumps(placed(order)).encode())
    sent = ServiceBusMessage(
        body,
        message_id=order,
        session_id=order,
        application_properties=properties,
        content_type="application/json",
        correlation_id="corr-1",
        subject="order.placed",
        to="to-1",
        reply_to="reply-1",
        reply_to_session_id="rs-1",
    )
    async with bench.bus.get_queue_sender("orders") as sender:
        await sender.send_messages(sent)
    (before,) = bench.app.stack.service.broker.queue("orders").peek(0, 10, bench.app.clock(), session_id=order)
    await bench.dead_letter("orders", order, 1)

    other = await bench.ops("parked", "list", "--property", "tenant=t2")
    assert other.json["count"] == 0
    chosen = ("--property", "tenant=t1", "--session", order)
    assert (await bench.ops("parked", "list", *chosen)).json["messages"][0]["reason"] == "Test"
    waits = await bench.ops("parked", "replay", *chosen, *BECAUSE, "--wait", "0")
    assert (waits.code, waits.results) == (1, [(order, "sent")])

    (after,) = bench.app.stack.service.broker.queue("orders").peek(0, 10, bench.app.clock(), session_id=order)
    reserved = {"dedup-id", "replay-count", "original-sequence-number", "original-enqueued-at"}
    old, new = before.message, after.message
    assert dict(new.application_properties).keys() - dict(old.application_properties).keys() == reserved
    kept = {name: value for name, value in new.application_properties.items() if name not in reserved}
    assert [(name, type(value), value) for name, value in kept.items()] == [
        (name, type(value), value) for name, value in old.application_properties.items()
    ]
    for field in ("body", "session_id", "content_type", "correlation_id", "subject", "to", "reply_to"):
        assert getattr(new, field) == getattr(old, field), field
    assert new.reply_to_session_id == old.reply_to_session_id
    assert new.message_id == f"{order}~r1"

    sends = len(bench.app.sends)
    bench.resume()
    done = await bench.ops("parked", "replay", *chosen, *BECAUSE, *QUICK)  # goes on waiting, sends nothing
    assert (done.code, done.results) == (0, [(order, "verified")])
    assert [each for each in bench.app.sends[sends:] if each.queue == "orders"] == []
    assert bench.app.peek("orders/$DeadLetterQueue") == []


async def test_message_at_the_limit_is_replayed_although_it_grows(bench: Bench) -> None:
    """R29: the replay's properties don't fit beside the body any more, so it goes compressed."""
    order = fresh()
    bench.pause()
    body = json.dumps(placed(order)).encode()
    await bench.app.send(body.ljust(262_144 - 200), role="orders", message_id=order, session=order)
    await bench.dead_letter("orders", order, 1)
    bench.resume()
    (done,) = await bench.replay_each(order)
    assert done.results == [(order, "verified")]
    document = await bench.app.order(order)
    assert document is not None
    (operation,) = await bench.app.documents("operations", order)
    assert document["record"]["payloadHash"] == operation["new"]["payloadHash"]
    assert document["record"]["rawHash"] != f"sha256:raw:{hashlib.sha256(body.ljust(262_144 - 200)).hexdigest()}"


async def test_dead_letters_of_one_session_are_replayed_and_others_left_as_they_were(bench: Bench) -> None:
    """D29 R33: read without session, filtered by the message's own, in the order of first enqueuing."""
    first, second = fresh(), fresh()
    bench.pause()
    await bench.app.send_all([placed(first), placed(second), status(first, "confirmed", 1)])
    await bench.dead_letter("orders", second, 1)
    await bench.dead_letter("orders", first, 2)
    bench.resume()
    done = await bench.ops("parked", "replay", "--session", first, *BECAUSE, *QUICK)
    assert done.results == [(first, "verified"), (f"{first}:status.1", "verified")]
    dead = bench.app.stack.service.broker.queue("orders/$DeadLetterQueue").peek(0, 10, bench.app.clock())
    assert [(each.message.message_id, each.delivery_count) for each in dead] == [(second, 0)]
    assert await bench.app.order(second) is None
    gone = await bench.ops("parked", "discard", "--session", second, "--role", "orders", *BECAUSE)
    assert (gone.code, bench.app.peek("orders/$DeadLetterQueue")) == (0, [])


@pytest.mark.parametrize("content", [{"value_body": {"orderId": "in a map"}}, {"sequence_body": [[1, "two"]]}])
async def test_dead_letter_whose_body_is_no_text_is_kept_until_its_body_is_given(
    bench: Bench, tmp_path: Path, content: dict[str, Any]
) -> None:
    """R29: of a map or a list the client gives an impression only; a replay of that would lose what was sent."""
    order, queue = fresh(), "orders/$DeadLetterQueue"
    bench.pause()
    async with bench.bus.get_queue_sender("orders") as sender:
        properties = AmqpMessageProperties(message_id=order, group_id=order)
        await sender.send_messages(AmqpAnnotatedMessage(properties=properties, **content))
    await bench.dead_letter("orders", order, 1)
    bench.resume()
    kept = await bench.ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
    assert (kept.code, kept.results) == (1, [(order, "refused")])
    assert "--body" in kept.json["messages"][0]["detail"]
    assert [copy.message_id for copy in bench.app.peek(queue)] == [order]
    corrected = tmp_path / "body.json"
    corrected.write_text(json.dumps(placed(order)))
    done = await bench.ops("parked", "replay", "--session", order, "--body", str(corrected), *BECAUSE, *QUICK)
    assert (done.code, done.results, bench.app.peek(queue)) == (0, [(order, "verified")], [])


async def test_dead_letter_whose_body_is_a_text_value_is_replayed(bench: Bench) -> None:
    """R29: text is text, in whichever kind of body it came."""
    order = fresh()
    bench.pause()
    async with bench.bus.get_queue_sender("orders") as sender:
        properties = AmqpMessageProperties(message_id=order, group_id=order)
        await sender.send_messages(AmqpAnnotatedMessage(value_body=json.dumps(placed(order)), properties=properties))
    await bench.dead_letter("orders", order, 1)
    bench.resume()
    (done,) = await bench.replay_each(order)
    assert done.results == [(order, "verified")]


async def test_no_message_is_left_behind_an_empty_page(bench: Bench) -> None:
    """R34: 250 dead letters; once the broker has nothing to hand over although there is."""
    order, count = fresh(), 250
    await bench.app.outcome(placed(order))
    bench.pause()
    for start in range(1, count + 1, 125):
        await bench.app.send_all([status(order, "confirmed", n) for n in range(start, start + 125)])
    await bench.dead_letter("orders", order, count)
    bench.resume()
    late = bench.app.stack.faults.add(
        Rule(
            name="late",
            service=Service.BROKER,
            action=Delay(2.5),
            operation="receive",
            entity="orders/$DeadLetterQueue",
            count=1,
        )
    )
    done = await bench.ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
    assert (done.code, done.json["counts"]) == (0, {"verified": count})
    assert late.hits == 1
    assert bench.app.peek("orders/$DeadLetterQueue") == []
    await bench.app.quiet()
    document = await bench.app.order(order)
    assert document is not None
    assert document["fulfilment"]["version"] == count
    handled = [each["message_id"] for each in bench.app.handled if str(each["message_id"]).endswith("~r1")]
    assert [each for each in handled if order in each] == [f"{order}:status.{n}~r1" for n in range(1, count + 1)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT] if sys.platform != "win32" else [signal.SIGTERM])
async def test_killed_replay_loses_nothing_and_the_next_run_ends_it(bench: Bench, how: signal.Signals) -> None:
    """R35: killed at a send that the broker has, before the tool knows."""
    order, count, stop_at = fresh(), 20, 7
    await bench.app.send_all([status(order, "confirmed", n) for n in range(1, count + 1)])
    await bench.app.until(lambda: len(bench.app.parked(order)) == count, "all are parked")
    await bench.app.outcome(placed(order))

    arguments = ("parked", "replay", "--session", order, *BECAUSE, *QUICK)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ops",
        *arguments,
        cwd=PROJECT,
        env=bench.ops.environment(),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    seen = 0

    def kill(event: BrokerEvent) -> None:
        nonlocal seen
        seen += isinstance(event, Sent) and event.queue == "orders"
        if seen == stop_at and process.returncode is None:
            process.send_signal(how)

    bench.app.stack.broker.observers.append(kill)
    try:
        code = await process.wait()
    finally:
        bench.app.stack.broker.observers.remove(kill)
    assert code != 0
    left = {copy.properties["quarantine-message-id"] for copy in bench.app.parked(order)}
    assert len(left) > 0

    done = await bench.ops(*arguments)
    assert done.code == 0, done.text
    await bench.app.quiet()
    handled = {str(each["message_id"]) for each in bench.app.handled}
    assert {f"{order}:status.{n}~r1" for n in range(1, count + 1)} <= handled
    assert bench.app.parked(order) == []
    assert await bench.operations(order) == [("replay", "verified")] * count


async def test_replay_killed_while_it_waits_is_ended_without_a_second_send(bench: Bench) -> None:
    """R35 D26: the operation says `sent`, so the next run waits for the same replay."""
    order = fresh()
    await bench.app.send(amended(order, "op-1"))
    await bench.app.only_parked(order)
    await bench.app.outcome(placed(order))
    bench.pause()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ops",
        "parked",
        "replay",
        "--session",
        order,
        *BECAUSE,
        cwd=PROJECT,
        env=bench.ops.environment(),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await bench.until_operations(order, ("replay", "sent"))
    process.kill()
    await process.wait()
    sends = len(bench.app.sends)
    plan = await bench.ops("parked", "replay", "--session", order)
    assert "sent" in plan.json["messages"][0]["detail"]
    bench.resume()
    done = await bench.ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
    assert done.results == [(f"{order}:op-1", "verified")]
    assert [each for each in bench.app.sends[sends:] if each.queue == "orders"] == []
    assert bench.app.outcomes_of(f"{order}:op-1~r1") == ["applied"]


async def test_copies_with_one_id_are_one_parked_message(bench: Bench) -> None:
    """Contracts 8: a lost answer left two; they are listed, replayed and discarded together."""
    order = fresh()
    await bench.app.send(amended(order, "op-1"))
    copy = await bench.app.only_parked(order)
    bench.app.clock.ahead += 10  # beyond the broker's window
    async with bench.bus.get_queue_sender("quarantine") as sender:
        await sender.send_messages(
            ServiceBusMessage(
                copy.body,
                message_id=str(copy.message_id),
                session_id=order,
                application_properties=dict(copy.properties),
                content_type=copy.content_type,
            )
        )
    assert len(bench.app.parked(order)) == 2
    listed = (await bench.ops("parked", "list", "--session", order)).json
    assert (listed["count"], listed["messages"][0]["copies"]) == (1, 2)
    gone = await bench.ops("parked", "discard", "--session", order, *BECAUSE)
    assert (gone.code, bench.app.parked(order)) == (0, [])


async def test_discard_closes_its_books_after_a_crash_and_names_the_skip(bench: Bench) -> None:
    """D47: the discarded number is still to come, so its successors wait: the command for it is named."""
    order = fresh()
    await bench.app.outcome(placed(order, sequence=1))
    wrong = amended(order, "op-2", sequence=2) | {"colour": "red"}
    await bench.app.send_all([amended(order, "op-3", sequence=3), wrong])
    await bench.app.outcomes(f"{order}:op-2")
    gone = await bench.ops("parked", "discard", "--session", order, "--reason", "SequenceGap", *BECAUSE)
    assert "ops gaps skip commands" in gone.err
    (operation,) = [each for each in await bench.app.documents("operations", order) if each["type"] == "discard"]
    # As a crash behind the completion of the copy leaves it:
    await bench.app.container("operations").upsert_item({**operation, "status": "planned"})
    await bench.ops("parked", "discard", "--session", order, "--reason", "InvalidMessage", *BECAUSE)
    assert await bench.operations(order) == [("discard", "completed"), ("discard", "completed")]


async def test_verified_replay_whose_copy_is_still_there_is_not_sent_again(bench: Bench) -> None:
    """R35: a crash behind the last write of the audit, before the copy is completed."""
    order = fresh()
    await bench.app.send(amended(order, "op-1"))
    await bench.app.only_parked(order)
    (listed,) = (await bench.ops("parked", "list", "--session", order)).json["messages"]
    identity = {"messageId": f"{order}:op-1", "dedupId": f"{order}:op-1", "sessionId": order, "payloadHash": None}
    await bench.app.container("operations").create_item(
        {
            "id": operation_id("replay", listed["id"], 1),
            "type": "replay",
            "v": 1,
            "sessionId": order,
            "role": "orders",
            "key": f"{order}:op-1",
            "originalSequenceNumber": "1",
            "count": 1,
            "old": identity,
            "new": identity,
            "outOfOrder": False,
            "actor": "a",
            "reason": "r",
            "status": "verified",
        }
    )
    sends = len(bench.app.sends)
    (done,) = await bench.replay_each(order)
    assert done.results == [(f"{order}:op-1", "verified")]
    assert [each for each in bench.app.sends[sends:] if each.queue == "orders"] == []
    assert bench.app.parked(order) == []


async def test_message_of_the_empty_session_is_brought_to_its_own(bench: Bench) -> None:
    """D50: the empty string is a session like any other, and the wrong one."""
    order = fresh()
    await bench.app.send(placed(order), session="")
    assert (await bench.app.only_parked("")).reason == "SessionKeyMismatch"
    (done,) = await bench.replay_each("")
    assert [result for _, result in done.results] == ["verified"]
    assert bench.app.parked("") == []


async def test_parked_payment_is_called_again_by_a_replay(tmp_path: Path) -> None:
    """C71: the provider refused; it is asked again, under the same key, only by the replay."""
    async with PaymentProvider() as provider:
        provider.script(answers(422))
        async with running(tmp_path, settings={**SETTINGS, "PAYMENTS_URL": provider.url}) as app:
            order = fresh()
            await app.send(placed(order))
            await app.send(amended(order, "op-1"))
            await app.until(lambda: len(app.parked(order)) == 2, "both are parked")
            assert [copy.reason for copy in app.parked(order)] == ["EffectRefused", "OrderNotReady"]
            async with Ops.of(app.stack) as ops:
                done = await ops("parked", "replay", "--session", order, *BECAUSE, *QUICK)
            assert done.results == [(order, "verified"), (f"{order}:op-1", "verified")]
            document = await app.order(order)
            assert document is not None
            assert (document["state"], document["total"]) == ("open", "29.50")
            assert provider.count(order) == 2
