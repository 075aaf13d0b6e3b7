"""From a delivery to a checked message: seven steps in order (C07 to C11, D12, D18 to D22, D50, R17, R26, R45)."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.contracts.orders import OrderAmended, OrderStatus
from shared.domain import identity
from shared.envelope import Envelope, Role
from shared.errors import PermanentError, Reason
from shared.handlers.intake import Facts, Intake

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TTL_SECONDS = 60 * 86400
OLDEST = NOW - timedelta(days=59)

Json = dict[str, Any]

PLACED: Json = {
    "type": "order.placed",
    "orderId": "ORD-1",
    "currency": "EUR",
    "lines": [{"lineId": "1", "sku": "TEA", "quantity": 2, "unitPrice": "3.50"}],
}
AMENDED: Json = {"type": "order.amended", "orderId": "ORD-1", "operationId": "op-7", "lines": PLACED["lines"]}
CANCELLED: Json = {"type": "order.cancelled", "orderId": "ORD-1", "operationId": "op-8"}
STATUS: Json = {"type": "order.status", "orderId": "ORD-1", "status": "shipped", "version": 3}
BATCH: Json = {
    "ledgerId": "L-7",
    "batchId": "b1",
    "currency": "EUR",
    "transactions": [{"transactionId": "T-1", "orderId": "ORD-1", "kind": "add", "amount": "1"}],
}
ENTRY: Json = {
    "orderId": "ORD-1",
    "stream": "ledger.L-7",
    "transactionId": "T-1",
    "kind": "add",
    "amount": "1",
    "currency": "EUR",
    "meta": {"source": {"consumer": "fan_out_ledger", "key": "L-7:b1", "index": 0}},
}


@dataclass
class FixedClock:
    """A clock that stands; intake waits for nothing."""

    moment: datetime = NOW

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("intake does not wait")


INTAKE = Intake(FixedClock(), TTL_SECONDS)
READ = {Role.ORDERS: INTAKE.order, Role.LEDGER: INTAKE.ledger_batch, Role.LEDGER_ENTRIES: INTAKE.entry}


def delivery(body: Json | bytes, **changes: Any) -> Envelope:
    """A delivery as a right producer makes it, but for the changes."""
    value = body if isinstance(body, dict) else json.loads(body)
    addressed = identity.address(value)
    role = {"order": Role.ORDERS, "ledger.batch": Role.LEDGER, "ledger.entry": Role.LEDGER_ENTRIES}[
        "order" if addressed.subject.startswith("order.") else addressed.subject
    ]
    made = Envelope(
        role=role,
        body=body if isinstance(body, bytes) else json.dumps(body).encode(),
        message_id=addressed.message_id,
        session_id=addressed.session_id,
        sequence_number=4711,
        enqueued_at=NOW - timedelta(seconds=1),
        delivery_count=1,
        content_type="application/json",
    )
    return replace(made, **changes)


def read(envelope: Envelope, facts: Facts | None = None) -> Any:
    return READ[envelope.role](envelope, Facts() if facts is None else facts)


def refusal(envelope: Envelope, facts: Facts | None = None) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        read(envelope, facts)
    return caught.value


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (PLACED, "ORD-1"),
        (AMENDED, "ORD-1:op-7"),
        (CANCELLED, "ORD-1:op-8"),
        (STATUS, "ORD-1:status.3"),
        (BATCH, "L-7:b1"),
        (ENTRY, "ORD-1:ledger.L-7:T-1"),
    ],
)
def test_what_a_producer_addressed_is_let_in_under_its_message_id(body: Json, key: str) -> None:
    # C07, C08
    facts = Facts()
    checked = read(delivery(body), facts)
    assert checked.key == checked.document_id == key
    assert checked.payload_hash.startswith("sha256:jcs:v1:")
    assert checked.raw_hash.startswith("sha256:raw:")
    assert checked.replay_count == 0
    assert checked.enqueued_at == "2026-11-30T11:59:59.000Z"
    assert facts == Facts(dedup_key=key, payload_hash=checked.payload_hash)


def test_nothing_that_changes_between_deliveries_is_in_the_key() -> None:
    # C09, C11
    first = read(delivery(AMENDED))
    again = read(
        delivery(
            AMENDED,
            sequence_number=9999,
            delivery_count=7,
            enqueued_at=NOW,
            correlation_id="other",
            subject="other",
            to="other",
            traceparent="00-1-1-01",
        )
    )
    assert (again.key, again.document_id, again.payload_hash) == (first.key, first.document_id, first.payload_hash)


def test_the_subject_is_not_trusted() -> None:
    assert isinstance(read(delivery(AMENDED, subject="order.placed")).body, OrderAmended)


@pytest.mark.parametrize("quantity", ["2", "2.0", "2e0", "20e-1", "0.2E+1"])
def test_numbers_count_by_value_whatever_their_spelling(quantity: str) -> None:
    # R17
    text = json.dumps(PLACED).replace('"quantity": 2', f'"quantity": {quantity}').encode()
    checked = read(delivery(text))
    assert checked.payload_hash == read(delivery(PLACED)).payload_hash
    assert checked.body == read(delivery(PLACED)).body


def test_meta_changes_neither_key_nor_hash() -> None:
    # D12: a send time may differ on a retry.
    first, second = (read(delivery({**PLACED, "meta": {"sentAt": at}})) for at in ("12:00", "12:01"))
    assert first.payload_hash == second.payload_hash
    assert first.raw_hash != second.raw_hash
    assert first.document_id == second.document_id


# -- step by step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message_id", [None, ""])
def test_a_message_without_id_is_refused(message_id: str | None) -> None:
    # R26, D22: never an identity that the consumer makes up.
    facts = Facts()
    assert refusal(delivery(PLACED, message_id=message_id), facts).reason is Reason.MESSAGE_ID_MISSING
    assert facts == Facts()


def test_the_first_step_that_refuses_gives_the_reason() -> None:
    # Each delivery is wrong in this step and in all that follow.
    wrong = delivery(BATCH, enqueued_at=OLDEST - timedelta(days=1), session_id="L-8")
    assert refusal(wrong).reason is Reason.SESSION_KEY_MISMATCH
    wrong = replace(wrong, message_id="L-8:b1")
    assert refusal(wrong).reason is Reason.MESSAGE_KEY_MISMATCH
    wrong = replace(wrong, body=b"{}")
    assert refusal(wrong).reason is Reason.INVALID_MESSAGE
    wrong = replace(wrong, properties={"content-encoding": "br"})
    assert refusal(wrong).reason is Reason.UNSUPPORTED_ENCODING
    wrong = replace(wrong, message_id=None)
    assert refusal(wrong).reason is Reason.MESSAGE_ID_MISSING


def test_a_compressed_body_is_the_same_message() -> None:
    # R45
    plain = delivery(PLACED)
    packed = replace(plain, body=gzip.compress(plain.body), properties={"content-encoding": "gzip"})
    assert read(packed).payload_hash == read(plain).payload_hash
    assert refusal(replace(packed, properties={})).reason is Reason.INVALID_MESSAGE
    for wrong in ("deflate", "", 1, True):
        assert refusal(replace(plain, properties={"content-encoding": wrong})).reason is Reason.UNSUPPORTED_ENCODING


def test_a_body_that_breaks_a_rule_is_refused_with_the_member() -> None:
    wrong = replace(
        delivery(PLACED), body=json.dumps({**PLACED, "lines": [{**PLACED["lines"][0], "quantity": 0}]}).encode()
    )
    facts = Facts()
    refused = refusal(wrong, facts)
    assert (refused.reason, refused.description) == (Reason.INVALID_MESSAGE, "/lines/0/quantity: must be at least 1")
    assert facts.dedup_key == "ORD-1"
    assert facts.payload_hash is not None


def test_facts_are_filled_as_far_as_intake_got() -> None:
    facts = Facts()
    broken = replace(delivery(PLACED), body=b"{", properties={"replay-count": "2", "dedup-id": "ORD-9"})
    refusal(broken, facts)
    assert facts == Facts(dedup_key="ORD-9", replay_count=2)
    facts = Facts()
    refusal(replace(delivery(PLACED), body=b"{", content_type="application/cloudevents+json"), facts)
    assert facts == Facts()  # a CloudEvent's key is not its MessageId


@pytest.mark.parametrize("body", [PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY])
def test_message_id_and_body_must_agree(body: Json) -> None:
    # D19, D21
    assert refusal(delivery(body, message_id="X-1")).reason is Reason.MESSAGE_KEY_MISMATCH


def test_a_status_may_end_its_message_id_as_it_likes() -> None:
    checked = read(delivery(STATUS, message_id="ORD-1:shipped at noon"))
    assert isinstance(checked.body, OrderStatus)
    assert checked.key == "ORD-1:shipped at noon"


@pytest.mark.parametrize("body", [PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY])
@pytest.mark.parametrize("session_id", [None, "", "X-1"])
def test_session_and_body_must_agree(body: Json, session_id: str | None) -> None:
    # D50, R51
    assert refusal(delivery(body, session_id=session_id)).reason is Reason.SESSION_KEY_MISMATCH


def test_a_session_whose_case_the_broker_changed_is_let_in_and_the_partition_is_the_body_s() -> None:
    # D18
    checked = read(delivery(PLACED, session_id="ord-1"))
    assert identity.session_id_of(checked.body) == "ORD-1"


@pytest.mark.parametrize("body", [AMENDED, CANCELLED, BATCH])
def test_a_message_older_than_its_record_lives_is_refused(body: Json) -> None:
    assert read(delivery(body, enqueued_at=OLDEST))
    old = OLDEST - timedelta(milliseconds=1)
    assert refusal(delivery(body, enqueued_at=old)).reason is Reason.DEDUP_EXPIRED
    kept = {"original-enqueued-at": identity.rfc3339(old)}
    assert refusal(delivery(body, properties=kept)).reason is Reason.DEDUP_EXPIRED


@pytest.mark.parametrize("body", [PLACED, STATUS, ENTRY])
def test_a_message_whose_record_never_expires_may_be_of_any_age(body: Json) -> None:
    assert read(delivery(body, enqueued_at=OLDEST - timedelta(days=1000)))


# -- replays ---------------------------------------------------------------------------------------------------------


def test_a_replay_has_the_identity_of_the_first_delivery() -> None:
    first = read(delivery(AMENDED))
    properties = {
        "dedup-id": "ORD-1:op-7",
        "replay-count": "3",
        "original-enqueued-at": "2026-11-01T08:00:00.5Z",
        "original-sequence-number": "17",
    }
    facts = Facts()
    checked = read(delivery(AMENDED, message_id="ORD-1:op-7~r3", properties=properties), facts)
    assert (checked.key, checked.document_id, checked.payload_hash) == (
        first.key,
        first.document_id,
        first.payload_hash,
    )
    assert checked.replay_count == facts.replay_count == 3
    assert checked.enqueued_at == "2026-11-01T08:00:00.500Z"


@pytest.mark.parametrize("count", [None, "0", "-1", "+1", "1.0", " 1", "1 ", "one", "", "١", "9" * 5000, 1, 1.0, True])
def test_a_dedup_id_counts_only_beside_a_replay_count(count: object) -> None:
    # Producers don't set them; what doesn't parse counts as absent.
    properties = {"dedup-id": "ORD-1:op-7"} | ({} if count is None else {"replay-count": count})
    assert refusal(delivery(AMENDED, message_id="X", properties=properties)).reason is Reason.MESSAGE_KEY_MISMATCH
    assert read(delivery(AMENDED, properties={**properties, "dedup-id": "X"})).replay_count == 0


def test_a_dedup_id_that_is_no_text_counts_as_absent() -> None:
    assert read(delivery(AMENDED, properties={"dedup-id": 7, "replay-count": "1"})).key == "ORD-1:op-7"


@pytest.mark.parametrize(
    "moment",
    [
        *("", "yesterday", "2026-13-01T00:00:00Z", "2026-11-01", "2026-11-01T08:00:00", "2026-11-01T08:00:00+01:00", 7),
        *("2026-11-01T08:00:00Z\n", "0000-01-01T00:00:00Z", "2026-11-01t08:00:00z", "٢026-11-01T08:00:00Z"),
    ],
)
def test_an_original_time_that_does_not_parse_counts_as_absent(moment: object) -> None:
    # R44
    checked = read(delivery(AMENDED, properties={"original-enqueued-at": moment}))
    assert checked.enqueued_at == "2026-11-30T11:59:59.000Z"


def test_foreign_properties_are_not_interpreted() -> None:
    properties = {"orderId": "X", "MessageId": "X", "quarantine-reason": "PayloadMismatch", "tenant": 7, "flag": True}
    assert read(delivery(AMENDED, properties=properties)).key == "ORD-1:op-7"


# -- CloudEvents (C10) -----------------------------------------------------------------------------------------------


def event(body: Json, source: str = "/erp", **changes: Any) -> Envelope:
    """A CloudEvent in structured mode; its MessageId is the producer's own."""
    addressed = identity.address(body)
    data = {name: value for name, value in body.items() if name != "type"}
    wrapped = {
        "specversion": "1.0",
        "id": addressed.message_id,
        "source": source,
        "type": addressed.subject,
        "data": data,
        **changes,
    }
    return replace(
        delivery(body),
        message_id="hash-of-source-and-id",
        body=json.dumps(wrapped).encode(),
        content_type="application/cloudevents+json; charset=UTF-8",
    )


@pytest.mark.parametrize("body", [AMENDED, CANCELLED, BATCH, ENTRY])
def test_a_cloud_event_s_key_is_source_and_id(body: Json) -> None:
    first, same, other = (read(event(body, source)) for source in ("/erp", "/erp", "/shop"))
    assert first.key == f'["/erp","{identity.address(body).message_id}"]'
    assert first.document_id.startswith("~c~")
    assert (same.key, same.document_id) == (first.key, first.document_id)
    assert other.document_id != first.document_id
    assert (
        other.payload_hash
        == first.payload_hash
        == read(delivery({**body, "type": identity.address(body).subject})).payload_hash
    )


def test_an_order_has_one_document_whoever_placed_it() -> None:
    assert read(event(PLACED)).document_id == read(delivery(PLACED)).document_id == "ORD-1"
    assert read(event(PLACED)).key == '["/erp","ORD-1"]'
    assert read(delivery({**PLACED, "orderId": "a/b"})).document_id == identity.document_id("a/b")


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_both_modes_of_a_cloud_event_are_the_same_message(prefix: str) -> None:
    attributes = {"specversion": "1.0", "id": "ORD-1:op-7", "source": "/erp", "type": "order.amended", "subject": "x"}
    binary = delivery(
        AMENDED, message_id="any", properties={f"{prefix}{name}": value for name, value in attributes.items()}
    )
    structured = read(event(AMENDED))
    checked = read(binary)
    assert (checked.key, checked.document_id, checked.payload_hash) == (
        structured.key,
        structured.document_id,
        structured.payload_hash,
    )


def test_a_cloud_event_is_checked_like_any_message() -> None:
    facts = Facts()
    assert refusal(event(AMENDED, id="ORD-1:op-8"), facts).reason is Reason.MESSAGE_KEY_MISMATCH
    assert facts.dedup_key == '["/erp","ORD-1:op-8"]'
    assert refusal(replace(event(AMENDED), session_id="X")).reason is Reason.SESSION_KEY_MISMATCH
    assert refusal(replace(event(AMENDED), message_id=None)).reason is Reason.MESSAGE_ID_MISSING
    assert refusal(event(AMENDED, source='a"b')).reason is Reason.INVALID_MESSAGE
    assert refusal(event(AMENDED, data_base64="e30=", data=None)).reason is Reason.INVALID_MESSAGE
    assert refusal(event(AMENDED, id="ORD-1:" + "x" * 200)).reason is Reason.MESSAGE_KEY_MISMATCH


def test_a_replay_of_a_cloud_event_keeps_its_key() -> None:
    replayed = replace(
        event(AMENDED),
        message_id="hash-of-source-and-id~r1",
        properties={"dedup-id": "hash-of-source-and-id", "replay-count": "1"},
    )
    assert read(replayed).key == read(event(AMENDED)).key


ODD_PROPERTIES = ("dedup-id", "replay-count", "original-enqueued-at", "content-encoding", "cloudEvents:specversion")


def test_only_permanent_errors_come_out_whatever_comes_in() -> None:
    odd: list[Any] = ["", "x", "\x00", "a:b", "~state", "\ud800", 7, True, 1.5]
    for value in odd:
        properties = dict.fromkeys(ODD_PROPERTIES, value)
        for name in [*properties, "all"]:
            chosen = properties if name == "all" else {name: properties[name]}
            for body in (b"", b"{", b"[]", json.dumps(AMENDED).encode()):
                for role, admit in READ.items():
                    envelope = replace(
                        delivery(AMENDED), role=role, body=body, message_id=str(value), session_id=str(value)
                    )
                    with pytest.raises(PermanentError):
                        admit(replace(envelope, properties=chosen, content_type=str(value)), Facts())
