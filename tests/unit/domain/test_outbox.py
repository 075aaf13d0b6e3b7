"""shared/domain/outbox.py: messages, their bytes, their proof and the size limits (contracts 7 and 17)."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace

import pytest

from shared.contracts.documents import Outbox
from shared.contracts.ledger import LedgerEntry
from shared.domain import outbox
from shared.domain.payload import payload_hash
from shared.envelope import OutgoingMessage
from shared.errors import PermanentError, Reason

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def entry(transaction_id: str = "T-3", *, order_id: str = "ORD-1", stream: str = "ledger.L-7") -> LedgerEntry:
    return LedgerEntry.model_validate(
        {
            "orderId": order_id,
            "stream": stream,
            "transactionId": transaction_id,
            "sequence": 2,
            "kind": "amend",
            "amount": "-1.50",
            "currency": "EUR",
            "refersTo": "T-1",
        }
    )


def test_the_body_is_the_contracts_example_with_its_source() -> None:
    messages = outbox.outbox_messages(
        [entry("T-1"), entry("T-2"), entry()], consumer="fan_out_ledger", key="L-7:2026-11-30-1"
    )

    assert [message.message_id for message in messages] == [f"ORD-1:ledger.L-7:T-{number}" for number in (1, 2, 3)]
    assert messages[2].body == {
        "type": "ledger.entry", "orderId": "ORD-1", "stream": "ledger.L-7", "transactionId": "T-3", "sequence": 2,
        "kind": "amend", "amount": "-1.50", "currency": "EUR", "refersTo": "T-1",
        "meta": {"source": {"consumer": "fan_out_ledger", "key": "L-7:2026-11-30-1", "index": 2}},
    }  # fmt: skip


def test_the_same_transaction_from_another_batch_has_the_same_hash() -> None:
    """Contracts 4.6: it is a duplicate, not a conflict."""
    (one,) = outbox.outbox_messages([entry()], consumer="fan_out_ledger", key="L-7:a")
    (other,) = outbox.outbox_messages([entry()], consumer="fan_out_ledger", key="L-7:b")

    assert one.body != other.body
    assert payload_hash(one.body) == payload_hash(other.body)


def test_a_close_has_no_amount_and_an_add_refers_to_nothing() -> None:
    close = LedgerEntry.model_validate(
        {"orderId": "O", "stream": "order", "transactionId": "9", "kind": "close", "currency": "EUR", "entryCount": 0}
    )
    (message,) = outbox.outbox_messages([close], consumer="process_order", key="O")

    assert set(message.body) == {"type", "orderId", "stream", "transactionId", "kind", "currency", "entryCount", "meta"}


def test_a_message_is_sent_to_its_orders_session_as_canonical_bytes() -> None:
    """C75: session id = order id."""
    (message,) = outbox.outbox_messages([entry(order_id="ÄÖ/1")], consumer="fan_out_ledger", key="k")
    sent = outbox.outgoing(message, correlation_id="c-1", traceparent=TRACEPARENT)

    assert (sent.session_id, sent.subject, sent.content_type, sent.correlation_id) == (
        "ÄÖ/1",
        "ledger.entry",
        "application/json",
        "c-1",
    )
    assert dict(sent.properties) == {"traceparent": TRACEPARENT}
    assert sent.body == json.dumps(message.body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert sent.message_id == message.message_id
    assert outbox.outgoing(message, correlation_id="c-1", traceparent=TRACEPARENT) == sent


@pytest.mark.parametrize("garbage", [None, "", "garbage", TRACEPARENT + "\n", "x" * 100_000])
def test_a_traceparent_that_is_none_is_left_out(garbage: str | None) -> None:
    (message,) = outbox.outbox_messages([entry()], consumer="fan_out_ledger", key="k")

    assert not outbox.outgoing(message, correlation_id=None, traceparent=garbage).properties


def test_the_proof_has_eight_bytes_a_message_of_its_id_and_its_hash() -> None:
    messages = outbox.outbox_messages([entry("T-1"), entry("T-2")], consumer="fan_out_ledger", key="k")
    expected = b""
    for message in messages:
        body = {name: value for name, value in message.body.items() if name != "meta"}
        digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        expected += hashlib.sha256(f"{message.message_id}\nsha256:jcs:v1:{digest}".encode()).digest()[:8]
    text = outbox.proof(messages)

    assert "=" not in text
    assert base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) == expected
    assert outbox.proof(messages[::-1]) != text
    assert outbox.proof([]) == ""


def test_a_completed_outbox_keeps_the_proof_in_place_of_the_messages() -> None:
    messages = outbox.outbox_messages([entry("T-1"), entry("T-2")], consumer="fan_out_ledger", key="k")

    assert outbox.completed(Outbox(total=2, sent=1, messages=messages), messages) == Outbox(
        total=2, sent=2, proof=outbox.proof(messages)
    )


def test_a_message_that_no_link_takes_is_refused_before_the_first_write() -> None:
    """D05, R48."""
    fits = OutgoingMessage(message_id="m", session_id="s", body=b"x" * 259_000)
    outbox.check_sizes([fits] * 3)

    for large in (replace(fits, body=b"x" * 262_144), replace(fits, properties={"p": "ü" * 2_000})):
        with pytest.raises(PermanentError, match="outgoing message 1: up to") as refused:
            outbox.check_sizes([fits, large])
        assert refused.value.reason is Reason.ITEM_TOO_LARGE


def test_a_message_of_exactly_the_smallest_link_limit_passes() -> None:
    empty = OutgoingMessage(message_id="m", session_id="s", body=b"")
    room = 262_144 - outbox.encoded_bound(empty)
    outbox.check_sizes([replace(empty, body=b"x" * room)])

    with pytest.raises(PermanentError, match="up to 262145 bytes, at most 262144"):
        outbox.check_sizes([replace(empty, body=b"x" * (room + 1))])


def test_the_bound_grows_with_each_part_and_counts_ids_twice() -> None:
    """The envelope of an AMQP batch repeats the ids of its first message."""
    message = OutgoingMessage(message_id="m", session_id="s", body=b"b")
    before = outbox.encoded_bound(message)
    grown = {
        "body": replace(message, body=b"b" * 11),
        "message id": replace(message, message_id="m" * 11),
        "session id": replace(message, session_id="s" + "ü" * 10),
        "correlation id": replace(message, correlation_id="c" * 10),
        "property": replace(message, properties={"name": "v" * 10}),
    }

    assert {part: outbox.encoded_bound(one) - before for part, one in grown.items()} == {
        "body": 10,
        "message id": 20,
        "session id": 40,
        "correlation id": 20,
        "property": len("name") + 10 + 16,
    }


def test_the_bound_is_no_less_than_what_the_sdk_encodes() -> None:
    servicebus = pytest.importorskip("azure.servicebus")
    for text, count in (("x", 1), ("ü", 40), ("漢", 40)):
        (message,) = outbox.outbox_messages(
            [entry(text * count, order_id=text * count, stream="ledger." + text * count)], consumer="c", key="k" * 800
        )
        sent = outbox.outgoing(message, correlation_id="ü" * 128, traceparent=TRACEPARENT)
        batch = servicebus.ServiceBusMessageBatch(max_size_in_bytes=262_144)
        batch.add_message(
            servicebus.ServiceBusMessage(
                sent.body,
                session_id=sent.session_id,
                message_id=sent.message_id,
                subject=sent.subject,
                content_type=sent.content_type,
                correlation_id=sent.correlation_id,
                application_properties=dict(sent.properties),
            )
        )
        bound = outbox.encoded_bound(sent)
        assert batch.size_in_bytes <= bound <= batch.size_in_bytes + 4_096


@pytest.mark.parametrize(("text", "bytes_each"), [("x", 1), ("ü", 6), ("𝄞", 12)])
def test_a_document_is_measured_as_it_is_sent(text: str, bytes_each: int) -> None:
    """R48: the SDK escapes what is not ASCII."""
    frame = len('{"id":""}')
    room = 2_000_000 - frame
    outbox.check_document({"id": text * (room // bytes_each)})

    with pytest.raises(PermanentError, match="at most 2000000 can be stored") as refused:
        outbox.check_document({"id": text * (room // bytes_each + 1)})
    assert refused.value.reason is Reason.ITEM_TOO_LARGE


def test_the_documents_of_a_batch_are_measured_together() -> None:
    half = {"id": "x" * 1_000_001}
    outbox.check_document(half)

    with pytest.raises(PermanentError, match="documents of one write"):
        outbox.check_batch([half, half])
