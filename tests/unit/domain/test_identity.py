"""Identity: keys, document ids, MessageIds, sessions (C07 to C12, D16 to D22, D50, R25 to R27, R43, R51)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from shared.contracts.ledger import LedgerBatch, LedgerEntry
from shared.contracts.orders import OrderAmended, OrderCancelled, OrderPlaced, OrderStatus
from shared.contracts.values import ID_PATTERN
from shared.domain import identity, payload, validation
from shared.errors import PermanentError, Reason

# A machine may be slow, and that proves nothing.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

PLACED: dict[str, object] = {
    "type": "order.placed",
    "orderId": "ORD-1",
    "currency": "EUR",
    "lines": [{"lineId": "1", "sku": "TEA", "quantity": 2, "unitPrice": "3.50"}],
}
AMENDED: dict[str, object] = {**PLACED, "type": "order.amended", "operationId": "op-7"}
del AMENDED["currency"]
CANCELLED: dict[str, object] = {"type": "order.cancelled", "orderId": "ORD-1", "operationId": "op-8"}
STATUS: dict[str, object] = {"type": "order.status", "orderId": "ORD-1", "status": "shipped", "version": 3}
BATCH: dict[str, object] = {
    "type": "ledger.batch",
    "ledgerId": "L-7",
    "batchId": "b1",
    "currency": "EUR",
    "transactions": [{"transactionId": "T-1", "orderId": "ORD-1", "kind": "add", "amount": "1"}],
}
ENTRY: dict[str, object] = {
    "type": "ledger.entry",
    "orderId": "ORD-1",
    "stream": "ledger.L-7",
    "transactionId": "T-1",
    "kind": "add",
    "amount": "1",
    "currency": "EUR",
}

keys = st.text(max_size=128).filter(lambda key: len(key.encode("utf-16-le")) <= 256)
sources = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters='"\\'), min_size=1, max_size=255
)
ids = st.text(
    st.characters(max_codepoint=0xFFFF, exclude_categories=["Cc", "Cs"], exclude_characters=":"),
    min_size=1,
    max_size=63,
).filter(lambda text: re.fullmatch(ID_PATTERN, text) is not None)


def decoded(document_id: str) -> tuple[str, bool]:
    """The key of a document id, and whether it is a CloudEvent's: written from the contract, not from the code."""
    if not document_id.startswith("~"):
        return document_id, False
    prefix, text = document_id[:3], document_id[3:]
    assert prefix in {"~x~", "~c~"}
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode(), prefix == "~c~"


# -- document ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ORD-1", "ORD-1"),
        ("ORD-1:op-7", "ORD-1:op-7"),
        ("a.b_c:d@e+f=g-h", "a.b_c:d@e+f=g-h"),
        ("a/b", "~x~YS9i"),
        ("a\\b", "~x~YVxi"),
        ("a?b", "~x~YT9i"),
        ("a#b", "~x~YSNi"),
        ("a ", "~x~YSA"),
        (" a", "~x~IGE"),
        ("a\n", "~x~YQo"),
        ("-a", "~x~LWE"),
        ("~state", "~x~fnN0YXRl"),
        ("é", "~x~w6k"),
        ("e\u0301", "~x~ZcyB"),
        ('"q"', "~x~InEi"),
    ],
)
def test_a_key_that_cosmos_db_may_not_take_is_encoded(key: str, expected: str) -> None:
    # R25, D17; R43: two forms of é are two keys, on every path.
    assert identity.document_id(key) == expected


@steady
@given(keys)
@example("~state")
@example("~outbox.ORD-1")
@example("~skip.order.1")
@example("~x~YS9i")
def test_a_document_id_is_reversible_safe_and_none_of_our_own(key: str) -> None:
    for is_event in (False, True):
        made = identity.document_id(key, cloud_event=is_event)
        assert decoded(made) == (key, is_event)
        assert re.fullmatch(r"[A-Za-z0-9._:@+=~-]+", made)
        assert len(made) <= 1023
        for own in ("~state", "~skip.", "~outbox."):
            assert not made.startswith(own)


@steady
@given(keys, keys)
def test_two_keys_never_share_a_document(one: str, other: str) -> None:
    assume(one != other)
    assert identity.document_id(one) != identity.document_id(other)
    assert identity.document_id(one, cloud_event=True) != identity.document_id(other, cloud_event=True)
    assert identity.document_id(one) != identity.document_id(other, cloud_event=True)
    assert identity.outbox_id(identity.document_id(one)) == "~outbox." + identity.document_id(one)


def test_case_and_white_space_make_another_key() -> None:
    # D16: exactly one spelling.
    made = {identity.document_id(key) for key in ("ORD-1", "ord-1", "ORD-1 ", "ORD-1\u00a0")}
    assert len(made) == 4


def test_the_longest_document_id_is_known() -> None:
    widest = "\uffff" * 63
    event = identity.CloudEvent(f"{widest}:{widest}", "s" * 255, {})
    assert len(identity.outbox_id(identity.document_id(event.key, cloud_event=True))) == 866


@steady
@given(st.sampled_from(["order", "command", "batch", "ledger.L-7", "ledger.é"]), st.integers(1, 2147483647))
def test_a_skip_has_an_id_of_its_own(what: str, first: int) -> None:
    made = identity.skip_id(what, first)
    assert made.startswith("~skip.")
    assert decoded(made.removeprefix("~skip.")) == (f"{what}.{first}", False)


# -- entry ids -------------------------------------------------------------------------------------------------------


def test_an_entry_id_is_plain_up_to_128_characters_and_hashed_beyond() -> None:
    assert identity.entry_id("ORD-1", "order", "3") == "ORD-1:order:3"
    order, ledger = "o" * 63, "l" * 50
    fits = f"{order}:ledger.{ledger}:{'t' * 6}"
    assert len(fits) == 128
    assert identity.entry_id(order, f"ledger.{ledger}", "t" * 6) == fits
    digest = hashlib.sha256(f"ledger.{ledger}:{'t' * 7}".encode()).digest()
    expected = f"{order}:~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
    assert identity.entry_id(order, f"ledger.{ledger}", "t" * 7) == expected


@steady
@given(st.tuples(ids, ids, ids), st.tuples(ids, ids, ids))
def test_entry_ids_are_bounded_distinct_and_begin_with_their_partition(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    made = identity.entry_id(one[0], f"ledger.{one[1]}", one[2])
    assert len(made.encode("utf-16-le")) // 2 <= 128
    assert made.partition(":")[0] == one[0]  # D19: one key, one partition
    if one != other:
        assert made != identity.entry_id(other[0], f"ledger.{other[1]}", other[2])


# -- MessageIds and sessions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message_id", "session_id"),
    [
        (PLACED, "ORD-1", "ORD-1"),
        (AMENDED, "ORD-1:op-7", "ORD-1"),
        (CANCELLED, "ORD-1:op-8", "ORD-1"),
        (STATUS, "ORD-1:status.3", "ORD-1"),
        (BATCH, "L-7:b1", "L-7"),
        ({name: value for name, value in BATCH.items() if name != "type"}, "L-7:b1", "L-7"),
        (ENTRY, "ORD-1:ledger.L-7:T-1", "ORD-1"),
        ({name: value for name, value in ENTRY.items() if name != "type"}, "ORD-1:ledger.L-7:T-1", "ORD-1"),
    ],
)
def test_a_producer_gets_identity_bytes_and_subject(body: dict[str, object], message_id: str, session_id: str) -> None:
    # C08, D22: the identity is the business operation's, so a producer's retry has the same one.
    addressed = identity.address(body)
    assert (addressed.message_id, addressed.session_id) == (message_id, session_id)
    assert json.loads(addressed.body) == body
    assert b": " not in addressed.body
    assert addressed.subject == body.get("type", "ledger.batch" if "batchId" in body else "ledger.entry")
    assert payload.payload_hash(payload.read(addressed.body, None).value) == payload.payload_hash(body)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (None, "body"),
        ([PLACED], "body"),
        ("text", "body"),
        ({}, "/type"),
        ({**PLACED, "type": "order.lost"}, "/type"),
        ({**PLACED, "type": None}, "/type"),
        ({**PLACED, "type": ["order.placed"]}, "/type"),
        ({**PLACED, "orderId": "a:b"}, "/orderId"),
        ({**PLACED, "orderId": 7}, "/orderId"),  # R46
        ({**PLACED, "orderId": "\ud800"}, "/orderId: lone surrogate"),
        ({**PLACED, "note": 1}, "/note: unknown member"),
        ({**PLACED, "lines": [{**PLACED["lines"][0], "quantity": float("nan")}]}, "/lines/0/quantity: NaN"),  # type: ignore[index]
        ({**PLACED, "meta": {"big": 2**53}}, "/meta/big: number"),
        ({**PLACED, "meta": {"at": datetime(2026, 1, 1, tzinfo=UTC)}}, "body: must be a JSON value"),
        ({**PLACED, "meta": {b"at": 1}}, "body: must be a JSON value"),
        ({**STATUS, "version": 0}, "/version"),
        ({**BATCH, "transactions": []}, "/transactions"),
        ({**ENTRY, "stream": "L-7"}, "/stream"),
    ],
)
def test_a_producer_is_told_which_member_is_wrong(body: object, named: str) -> None:
    with pytest.raises(PermanentError) as caught:
        identity.address(body)
    assert caught.value.reason is Reason.INVALID_MESSAGE
    assert caught.value.description.startswith(named)


def test_a_producer_s_endless_or_deep_value_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["meta"] = endless
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, {**PLACED, "meta": {"deep": deep}}, {**PLACED, "meta": {"int": 10**5000}}):
        with pytest.raises(PermanentError, match="InvalidMessage"):
            identity.address(value)


@pytest.mark.parametrize(
    ("body", "right", "wrong"),
    [
        (PLACED, ["ORD-1"], ["ord-1", "ORD-1 ", "ORD-1:", "ORD-2", "", "ORD-1~r1"]),
        (AMENDED, ["ORD-1:op-7"], ["ORD-1", "ORD-1:op-8", "ORD-1:OP-7", "ORD-2:op-7", "op-7"]),
        (CANCELLED, ["ORD-1:op-8"], ["ORD-1:op-7", "ORD-1:status.1"]),
        (STATUS, ["ORD-1:status.3", "ORD-1:anything", "ORD-1:"], ["ORD-1", "ORD-11:status.3", "ORD-1:" + "x" * 123]),
        (BATCH, ["L-7:b1"], ["L-7", "L-7:b2", "l-7:b1"]),
        (ENTRY, ["ORD-1:ledger.L-7:T-1"], ["ORD-1:order:T-1", "ORD-1", "T-1"]),
    ],
)
def test_a_message_id_must_be_what_the_body_says(body: dict[str, object], right: list[str], wrong: list[str]) -> None:
    # D19, D21
    message = identity._message(body)
    for message_id in right:
        identity.check_message_id(message_id, message)
    for message_id in wrong:
        with pytest.raises(PermanentError) as caught:
            identity.check_message_id(message_id, message)
        assert caught.value.reason is Reason.MESSAGE_KEY_MISMATCH
        assert "ORD-1" not in caught.value.description


@pytest.mark.parametrize("session_id", ["Straße-1", "STRAßE-1", "straße-1"])
def test_a_session_may_differ_in_the_case_of_ascii_letters(session_id: str) -> None:
    # D18
    identity.check_session_id(session_id, validation.order_message({**PLACED, "orderId": "Straße-1"}))


@pytest.mark.parametrize("session_id", [None, "", "ORD-1 ", "ORD-2", "None", "É-1", "strasse-1", "\u212a-1"])
@pytest.mark.parametrize("order_id", ["ORD-1", "é-1", "straße-1", "K-1"])
def test_any_other_session_is_refused(order_id: str, session_id: str | None) -> None:
    # D50, R51; no Unicode case folding: É is not é, the Kelvin sign is no K.
    with pytest.raises(PermanentError) as caught:
        identity.check_session_id(session_id, validation.order_message({**PLACED, "orderId": order_id}))
    assert caught.value.reason is Reason.SESSION_KEY_MISMATCH


def test_a_ledger_s_session_is_the_ledger() -> None:
    batch = validation.ledger_batch(BATCH)
    identity.check_session_id("l-7", batch)
    with pytest.raises(PermanentError, match="ledgerId"):
        identity.check_session_id("ORD-1", batch)


def test_every_message_type_has_an_identity() -> None:
    bodies = [OrderPlaced, OrderAmended, OrderCancelled, OrderStatus, LedgerBatch, LedgerEntry]
    made = [type(identity._message(body)) for body in (PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY)]
    assert made == bodies


# -- CloudEvents (C10) -----------------------------------------------------------------------------------------------

EVENT: dict[str, object] = {
    "specversion": "1.0",
    "id": "ORD-1:op-7",
    "source": "/erp",
    "type": "order.amended",
    "time": "2026-11-30T12:00:00Z",
    "data": {"orderId": "ORD-1", "operationId": "op-7"},
}


def test_a_structured_event_carries_its_body_in_data() -> None:
    for content_type in ("application/cloudevents+json", "Application/CloudEvents+JSON; charset=utf-8"):
        event = identity.cloud_event(EVENT, content_type, {})
        assert event is not None
        assert event.key == '["/erp","ORD-1:op-7"]'
        assert event.body == {"orderId": "ORD-1", "operationId": "op-7", "type": "order.amended"}


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_a_binary_event_carries_its_attributes_in_properties(prefix: str) -> None:
    properties = {f"{prefix}{name}": str(EVENT[name]) for name in ("specversion", "id", "source", "type")}
    event = identity.cloud_event({"orderId": "ORD-1", "type": "other"}, "application/json", properties)
    assert event is not None
    assert event.key == '["/erp","ORD-1:op-7"]'
    assert event.body == {"orderId": "ORD-1", "type": "order.amended"}


@pytest.mark.parametrize("content_type", [None, "", "application/json", "application/cloudevents-batch+json"])
def test_anything_else_is_no_event(content_type: str | None) -> None:
    assert identity.cloud_event(EVENT, content_type, {"cloudEvents:id": "x", "ce_specversion": "1.0"}) is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"specversion": "0.3"}, "specversion"),
        ({"specversion": 1}, "specversion"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"id": None}, "id"),
        ({"type": None}, "type"),
        ({"type": ""}, "type"),
        ({"source": None}, "source"),
        ({"source": ""}, "source"),
        ({"source": "s" * 256}, "source"),
        ({"source": 'a"b'}, "source"),
        ({"source": "a\\b"}, "source"),
        ({"source": "é"}, "source"),
        ({"source": "a\n"}, "source"),
        ({"data": None}, "data"),
        ({"data": "text"}, "data"),
        ({"data": [1]}, "data"),
    ],
)
def test_an_event_that_is_none_by_the_standard_is_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(PermanentError) as caught:
        identity.cloud_event({**EVENT, **change}, "application/cloudevents+json", {})
    assert caught.value.reason is Reason.INVALID_MESSAGE
    assert caught.value.description.startswith(f"CloudEvents {named}:")


def test_an_event_id_longer_than_a_message_id_is_refused() -> None:
    with pytest.raises(PermanentError) as caught:
        identity.cloud_event({**EVENT, "id": "😀" * 65}, "application/cloudevents+json", {})
    assert caught.value.reason is Reason.MESSAGE_KEY_MISMATCH


@steady
@given(st.tuples(sources, keys.filter(bool)), st.tuples(sources, keys.filter(bool)))
def test_two_events_share_a_document_only_with_source_and_id(one: tuple[str, str], other: tuple[str, str]) -> None:
    made = [
        identity.document_id(identity.CloudEvent(event_id, source, {}).key, cloud_event=True)
        for source, event_id in (one, other)
    ]
    assert (made[0] == made[1]) == (one == other)
    assert made[0].startswith("~c~")


# -- quarantine, times -----------------------------------------------------------------------------------------------


def test_a_parked_copy_s_id_is_that_of_one_broker_message() -> None:
    made = identity.quarantine_message_id("orders", 4711, "2026-11-30T12:00:00.123Z", "ORD-1")
    text = b'["orders","4711","2026-11-30T12:00:00.123Z","ORD-1"]'
    assert made == "q~" + base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
    others = {
        identity.quarantine_message_id("ledger", 4711, "2026-11-30T12:00:00.123Z", "ORD-1"),
        identity.quarantine_message_id("orders", 4712, "2026-11-30T12:00:00.123Z", "ORD-1"),
        identity.quarantine_message_id("orders", 4711, "2026-11-30T12:00:00.124Z", "ORD-1"),
        identity.quarantine_message_id("orders", 4711, "2026-11-30T12:00:00.123Z", "null"),
        identity.quarantine_message_id("orders", 4711, "2026-11-30T12:00:00.123Z", None),
        made,
    }
    assert len(others) == 6
    assert identity.quarantine_message_id("orders", 4711, "2026-11-30T12:00:00.123Z", "ORD-1") == made


def test_times_are_utc_to_the_millisecond() -> None:
    moment = datetime(2026, 11, 30, 13, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=1)))
    assert identity.rfc3339(moment) == "2026-11-30T12:00:00.123Z"
    assert identity.rfc3339(datetime(2026, 11, 30, tzinfo=UTC)) == "2026-11-30T00:00:00.000Z"
    with pytest.raises(ValueError, match="time zone"):
        identity.rfc3339(datetime(2026, 11, 30))  # noqa: DTZ001 - the point of the test
