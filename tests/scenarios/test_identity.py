"""Identity comes from the broker's metadata and must agree with the body; what does not is parked before any write."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient

from .harness import App
from .messages import Body, amended, batch, entry, fresh, line, placed, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_metadata_in_the_body_changes_nothing(app: App) -> None:
    """C08 C11 R59: the triggers are binary, so the host's rule that lets JSON overwrite metadata finds no text."""
    order_id = fresh()
    spoofed = {"messageId": "SPOOFED", "sessionId": "other", "deliveryCount": 99, "sequenceNumber": "A-1"}
    body = {**placed(order_id), **spoofed}
    assert await app.outcome(body) == "quarantined"  # unknown members, but reported under the true identity
    copy = await app.only_parked(order_id)
    assert copy.reason == "InvalidMessage"
    assert copy.properties["quarantine-message-id"] == order_id
    assert copy.properties["quarantine-delivery-count"] == "1"
    fields = app.fields_of(order_id)
    assert (fields["message_id"], fields["session_id"], fields["delivery_count"]) == (order_id, order_id, 1)


async def test_metadata_in_meta_changes_nothing(app: App) -> None:
    """C08 C11: the same in a member that is allowed to hold anything."""
    order_id = fresh()
    body = placed(order_id, meta={"messageId": "SPOOFED", "SessionId": "other", "deliveryCount": 99})
    assert await app.outcome(body) == "created"
    assert app.fields_of(order_id)["delivery_count"] == 1


async def test_message_without_an_id_is_never_given_an_identity(app: App) -> None:
    """R26 D22: two raw AMQP messages without a message id make no order, and both are parked."""
    order_id = fresh()
    await app.send_all([placed(order_id), placed(order_id)], raw_id=True)
    await app.until(lambda: len(app.parked(order_id)) == 2, "both are parked")
    # The broker fills a missing id in, since receivers settle by it; it can't match what the body says.
    assert {copy.reason for copy in app.parked(order_id)} == {"MessageKeyMismatch"}
    assert await app.documents("orders", order_id) == []


async def test_message_with_an_empty_id_is_parked(app: App) -> None:
    """R26: the empty text identifies nothing."""
    order_id = fresh()
    await app.send_all([placed(order_id), placed(order_id)], raw_id=True, message_id="")
    await app.until(lambda: len(app.parked(order_id)) == 2, "both are parked")
    copies = app.parked(order_id)
    assert {copy.reason for copy in copies} == {"MessageIdMissing"}
    assert len({copy.message_id for copy in copies}) == 2
    assert all("quarantine-dedup-key" not in copy.properties for copy in copies)
    assert await app.documents("orders", order_id) == []


@pytest.mark.parametrize(
    "build",
    [
        placed,
        lambda order: amended(order, "op-1"),
        lambda order: batch(order, "B-1", transaction(1, "ORD-x")),
        lambda order: entry(order, "T-1"),
    ],
)
async def test_wrong_message_id_is_parked(app: App, build: Any) -> None:
    """C08 D19 D21: the id is a function of the body, so one key can't make documents in two partitions."""
    own = fresh()
    message_id = await app.send(build(own), message_id=f"{own}:wrong")
    assert await app.outcomes(message_id) == ["quarantined"]
    assert (await app.only_parked(own)).reason == "MessageKeyMismatch"
    assert not any(each.partition_key == f'["{own}"]' for each in app.requests)


@pytest.mark.parametrize("session", ["other", "", None])
async def test_wrong_session_is_parked_in_that_session_before_any_write(app: App, session: str | None) -> None:
    """C69 D50: nothing is read or written for a message in the wrong session."""
    order_id = fresh()
    wrong = f"{order_id}-{session}" if session is None or session else ""
    before = len(app.parked(wrong))
    message_id = await app.send(placed(order_id), session=wrong)
    assert await app.outcomes(message_id) == ["quarantined"]
    copy = app.parked(wrong)[before]
    assert (copy.reason, copy.session_id) == ("SessionKeyMismatch", wrong)
    assert not any(each.partition_key == f'["{order_id}"]' for each in app.requests)


async def test_session_in_another_case_is_the_same_order(app: App) -> None:
    """D18: the broker may change the case of ASCII letters; the partition key comes from the body."""
    order_id = fresh("Mixed")
    assert await app.outcome(placed(order_id), session=order_id.lower()) == "created"
    assert await app.outcome(placed(order_id)) == "duplicate"
    assert len(await app.documents("orders", order_id)) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"orderId": 7}, "orderId"),
        ({"orderId": None}, "orderId"),
        ({"currency": "eur"}, "currency"),
        ({"lines": []}, "lines"),
        ({"lines": [line("1", 0)]}, "quantity"),
        ({"lines": [{**line("1"), "quantity": "2"}]}, "quantity"),
        ({"lines": [line("1"), line("1")]}, "lineId"),
        ({"lines": [{**line("1"), "unitPrice": 3.5}]}, "unitPrice"),
        ({"sequence": 2}, "sequence"),
        ({"colour": "red"}, "colour"),
        ({"schemaVersion": 2}, "schemaVersion"),
        ({"type": "order.teleported"}, "type"),
    ],
)
async def test_invalid_body_is_parked_with_the_field_named(app: App, change: Body, named: str) -> None:
    """R46 C39 C67: a permanent fault takes one delivery, and its description names what is wrong, without values."""
    order_id = fresh()
    body = {**placed(order_id), **change}
    await app.send(json.dumps(body), role="orders", message_id=order_id, session=order_id)
    assert await app.outcomes(order_id) == ["quarantined"]
    copy = await app.only_parked(order_id)
    assert copy.reason == "InvalidMessage"
    assert named in str(copy.properties["quarantine-description"])
    assert json.loads(copy.body) == body
    assert await app.documents("orders", order_id) == []


@pytest.mark.parametrize(
    ("data", "properties", "reason"),
    [
        (b"", {}, "InvalidMessage"),
        (b"not json", {}, "InvalidMessage"),
        (b"[1]", {}, "InvalidMessage"),
        (b'{"a":1,"a":2}', {}, "InvalidMessage"),
        (b'{"a":NaN}', {}, "InvalidMessage"),
        (b'{"a":"\\ud800"}', {}, "InvalidMessage"),
        (b"\xff\xfe{\x00}\x00", {}, "InvalidMessage"),
        (b"@\x06string\x083http://schemas.microsoft.com/", {}, "InvalidMessage"),
        (b"[" * 100_000, {}, "InvalidMessage"),
        (b"{}", {"content-encoding": "br"}, "UnsupportedEncoding"),
        (b"{}", {"content-encoding": "gzip"}, "InvalidMessage"),
    ],
    ids=str,
)
async def test_unreadable_body_is_parked_byte_for_byte(
    app: App, data: bytes, properties: dict[str, str], reason: str
) -> None:
    """R42 R45 R59 C67: whatever the bytes are, they are kept, and the session goes on."""
    order_id = fresh()
    await app.send(data, role="orders", message_id=order_id, session=order_id, properties=properties)
    await app.send(placed(order_id), message_id=order_id)
    outcomes = await app.outcomes(order_id, 2)
    assert outcomes == ["quarantined", "created"]
    copy = await app.only_parked(order_id)
    assert (copy.reason, copy.body) == (reason, data)


async def test_gzip_bomb_is_parked_and_the_worker_lives(app: App) -> None:
    """R45: output is bounded, whatever the input promises."""
    order_id, starts = fresh(), app.starts
    data = gzip.compress(b" " * 200_000_000, compresslevel=9)
    await app.send(data, role="orders", message_id=order_id, session=order_id, properties={"content-encoding": "gzip"})
    assert await app.outcomes(order_id) == ["quarantined"]
    assert app.starts == starts


async def test_copy_of_a_message_that_fills_the_link_is_shortened_until_it_fits(app: App) -> None:
    """R59 D05: the parked copy must fit beside a body that took all of the limit."""
    order_id = fresh()
    room = 262_144 - 400
    data = b"x" * room
    await app.send(data, role="orders", message_id=order_id, session=order_id)
    assert await app.outcomes(order_id) == ["quarantined"]
    copy = await app.only_parked(order_id)
    assert copy.reason == "InvalidMessage"
    assert copy.properties["quarantine-message-id"] == order_id
    assert "original-sequence-number" in copy.properties


async def test_quarantine_can_be_read_with_the_real_client(app: App) -> None:
    """C39 C71: an operator reads the parked copy of a session with a session receiver, in peek-lock."""
    order_id = fresh()
    await app.send("broken", role="orders", message_id=order_id, session=order_id)
    await app.outcomes(order_id)
    async with (
        ServiceBusClient.from_connection_string(app.stack.service_bus_connection) as client,
        client.get_queue_receiver("quarantine", session_id=order_id) as receiver,
    ):
        (received,) = await receiver.receive_messages(max_message_count=1, max_wait_time=10)
        assert b"".join(received.body) == b"broken"
        assert received.application_properties is not None
        assert received.application_properties[b"quarantine-reason"] == b"InvalidMessage"
        await receiver.complete_message(received)
    assert app.parked(order_id) == []
