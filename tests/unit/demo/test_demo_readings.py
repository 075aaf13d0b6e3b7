"""The demo's own reading of contracts 1 to 4: what is taken, and what is parked for which reason."""

from __future__ import annotations

import contextlib
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from local.demo.lines import Line
from local.demo.readings import Fault, Message, entry_id, readings
from shared.domain import payload
from shared.errors import PermanentError
from tests.unit.demo.ideal import NOW

ORDER: dict[str, Any] = {
    "type": "order.placed",
    "orderId": "ORD-1",
    "currency": "EUR",
    "lines": [{"lineId": "1", "sku": "TEA", "quantity": 2, "unitPrice": "3.50"}],
}
AMENDED = {"type": "order.amended", "orderId": "ORD-1", "operationId": "op-1", "lines": ORDER["lines"]}
ROW = {"transactionId": "T-1", "orderId": "ORD-1", "kind": "add", "amount": "1"}
BATCH = {"ledgerId": "L", "batchId": "1", "currency": "EUR", "transactions": [ROW]}
ENTRY = {"orderId": "ORD-1", "stream": "order", "transactionId": "1", "kind": "add", "amount": "1", "currency": "EUR"}


def read(
    body: Any, role: str = "orders", message_id: str | None = "ORD-1", session: str = "ORD-1", **more: Any
) -> tuple[Message | Fault, ...]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return readings(Line(1, role, message_id, session, data, **more), NOW)


def reasons(*arguments: Any, **more: Any) -> set[str]:
    (only,) = read(*arguments, **more)
    assert isinstance(only, Fault)
    return set(only.reasons)


def message(*arguments: Any, **more: Any) -> Message:
    (only,) = read(*arguments, **more)
    assert isinstance(only, Message)
    return only


def test_a_good_order_has_its_key_and_owner() -> None:
    found = message(ORDER)
    assert (found.kind, found.owner, found.key) == ("order.placed", "ORD-1", "ORD-1")


@pytest.mark.parametrize(
    "changes",
    [
        {"colour": 1},
        {"currency": "eur"},
        {"currency": "EURO"},
        {"currency": "EUR\n"},
        {"lines": []},
        {"lines": ORDER["lines"] * 2},
        {"lines": [{**ORDER["lines"][0], "quantity": 0}]},
        {"lines": [{**ORDER["lines"][0], "quantity": 1.5}]},
        {"lines": [{**ORDER["lines"][0], "quantity": True}]},
        {"lines": [{**ORDER["lines"][0], "quantity": "2"}]},
        {"lines": [{**ORDER["lines"][0], "unitPrice": 3.5}]},
        {"lines": [{**ORDER["lines"][0], "unitPrice": "-1"}]},
        {"lines": [{**ORDER["lines"][0], "unitPrice": "01"}]},
        {"lines": [{**ORDER["lines"][0], "unitPrice": "1.23456"}]},
        {"lines": [{**ORDER["lines"][0], "quantity": 10, "unitPrice": "999999999999999"}]},
        {"lines": [{**ORDER["lines"][0], "sku": " x"}]},
        {"lines": [{**ORDER["lines"][0], "sku": "x:y"}]},
        {"lines": [{**ORDER["lines"][0], "sku": "x" * 64}]},
        {"lines": [{**ORDER["lines"][0], "sku": "\U0001f600"}]},
        {"lines": [{"lineId": str(number), "sku": "A", "quantity": 1, "unitPrice": "1"} for number in range(2001)]},
        {"schemaVersion": 2},
        {"schemaVersion": True},
        {"sequence": 2},
        {"customerId": None},
        {"meta": []},
        {"meta": {"a": "x" * 9000}},
        {"type": "order.unknown"},
        {"type": None},
    ],
)
def test_a_body_that_breaks_the_schema_is_invalid(changes: dict[str, Any]) -> None:
    assert reasons({**ORDER, **changes}) == {"InvalidMessage"}


@pytest.mark.parametrize("spelling", [b"2", b"2.0", b"2e0", b"20e-1"])
def test_a_whole_number_may_be_spelt_in_any_way(spelling: bytes) -> None:
    plain = message(ORDER)
    assert message(json.dumps(ORDER).encode().replace(b'"quantity": 2', b'"quantity": ' + spelling)) == plain


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"null", b"[]", b"7", json.dumps(ORDER).encode("utf-16"), json.dumps(ORDER).encode() + b"x"]
)
def test_what_is_no_object_is_invalid(body: bytes) -> None:
    assert reasons(body) == {"InvalidMessage"}


def test_a_byte_order_mark_is_stripped() -> None:
    assert message(b"\xef\xbb\xbf" + json.dumps(ORDER).encode()) == message(ORDER)


def test_gzip_is_undone_only_where_it_is_announced() -> None:
    zipped = gzip.compress(json.dumps(ORDER).encode())
    assert message(zipped, properties={"content-encoding": "gzip"}) == message(ORDER)
    assert reasons(zipped) == {"InvalidMessage"}
    assert reasons(ORDER, properties={"content-encoding": "br"}) == {"UnsupportedEncoding"}
    assert "InvalidMessage" in reasons(ORDER, properties={"content-encoding": "gzip"})
    bomb = gzip.compress(b" " * (5 * 1024 * 1024))
    assert "InvalidMessage" in reasons(bomb, properties={"content-encoding": "gzip"})


@pytest.mark.parametrize(
    ("members", "behind", "is_taken"), [(64, b"", True), (65, b"", False), (1, b"\0", False), (2, b"x", False)]
)
def test_the_app_and_its_oracle_take_the_same_gzip(members: int, behind: bytes, is_taken: bool) -> None:
    data = gzip.compress(json.dumps(ORDER).encode()) + gzip.compress(b"") * (members - 1) + behind
    assert (read(data, properties={"content-encoding": "gzip"}) == read(ORDER)) is is_taken
    with contextlib.nullcontext() if is_taken else pytest.raises(PermanentError):
        assert payload.read(data, "gzip").value == ORDER


def test_a_missing_id_is_its_own_fault() -> None:
    assert reasons(ORDER, message_id="") == {"MessageIdMissing"}
    assert reasons(ORDER, message_id=None) == {"MessageIdMissing", "MessageKeyMismatch"}


def test_the_id_must_fit_the_body_and_the_session_its_owner_in_that_order() -> None:
    assert reasons(ORDER, message_id="ord-1") == {"MessageKeyMismatch"}
    assert reasons(ORDER, session="ORD-2") == {"SessionKeyMismatch"}
    assert reasons(ORDER, session="") == {"SessionKeyMismatch"}
    assert reasons(ORDER, message_id="ORD-2", session="ORD-2") == {"MessageKeyMismatch"}
    assert message(ORDER, session="ord-1").owner == "ORD-1"
    assert reasons({**ORDER, "orderId": "É"}, message_id="É", session="é") == {"SessionKeyMismatch"}


def test_each_kind_has_its_own_message_id() -> None:
    assert message(AMENDED, message_id="ORD-1:op-1").key == "ORD-1:op-1"
    assert reasons(AMENDED, message_id="ORD-1") == {"MessageKeyMismatch"}
    assert reasons({**AMENDED, "operationId": "status.1"}, message_id="ORD-1:status.1") == {"InvalidMessage"}
    status = {"type": "order.status", "orderId": "ORD-1", "status": "shipped", "version": 3}
    assert message(status, message_id="ORD-1:anything").kind == "order.status"
    assert reasons(status, message_id="ORD-1") == {"MessageKeyMismatch"}
    assert message(BATCH, "ledger", "L:1", "l").kind == "ledger.batch"
    assert message(ENTRY, "ledger-entries", "ORD-1:order:1").kind == "ledger.entry"


def test_a_long_entry_id_is_hashed() -> None:
    order, stream, transaction = "o" * 60, f"ledger.{'l' * 60}", "t" * 20
    assert entry_id("a", "order", "1") == "a:order:1"
    hashed = entry_id(order, stream, transaction)
    assert hashed.startswith(f"{order}:~")
    assert len(hashed) == 60 + 2 + 43
    body = {**ENTRY, "orderId": order, "stream": stream, "transactionId": transaction}
    assert message(body, "ledger-entries", hashed, order).key == hashed


def test_a_replay_goes_by_its_first_id() -> None:
    properties = {"dedup-id": "ORD-1", "replay-count": "1"}
    assert message(ORDER, message_id="ORD-1~r1", properties=properties).key == "ORD-1"
    assert reasons(ORDER, message_id="ORD-1~r1", properties={"dedup-id": "ORD-1"}) == {"MessageKeyMismatch"}
    for none in ("0", "1" * 10):
        assert reasons(ORDER, message_id="x", properties={**properties, "replay-count": none}) == {"MessageKeyMismatch"}


def test_an_old_copy_of_what_expires_is_refused() -> None:
    old = {"original-enqueued-at": "2026-09-01T00:00:00Z"}
    assert reasons(AMENDED, message_id="ORD-1:op-1", properties=old) == {"DedupExpired"}
    assert message(ORDER, properties=old).kind == "order.placed"
    assert message(AMENDED, message_id="ORD-1:op-1", properties={"original-enqueued-at": "yesterday"})


def test_a_cloud_event_goes_by_source_and_id_in_both_modes() -> None:
    data = {name: value for name, value in ORDER.items() if name != "type"}
    event = {"specversion": "1.0", "id": "ORD-1", "source": "/erp", "type": "order.placed", "data": data}
    structured = message(event, message_id="any", content_type="application/cloudevents+json")
    assert structured.key == '["/erp","ORD-1"]'
    properties = {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": "ORD-1",
        "cloudEvents:source": "/erp",
        "cloudEvents:type": "order.placed",
    }
    assert message(data, message_id="any", properties=properties) == structured
    assert structured.digest == message(ORDER).digest


@pytest.mark.parametrize("changes", [{"source": 'a"b'}, {"source": ""}, {"source": "ü"}, {"type": 1}, {"data": []}])
def test_a_bad_cloud_event_is_invalid(changes: dict[str, Any]) -> None:
    event = {"specversion": "1.0", "id": "ORD-1", "source": "/erp", "type": "order.placed", "data": ORDER, **changes}
    assert reasons(event, message_id="any", content_type="application/cloudevents+json") == {"InvalidMessage"}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "amend"},
        {"kind": "void", "refersTo": None},
        {"kind": "close"},
        {"kind": "add", "refersTo": "T-0"},
        {"amount": "+1"},
        {"amount": "1e3"},
        {"amount": 1},
        {"sequence": 0},
        {"orderIds": ["ORD-1", "ORD-2"]},
    ],
)
def test_a_transaction_that_breaks_the_table_of_kinds_is_invalid(changes: dict[str, Any]) -> None:
    assert reasons({**BATCH, "transactions": [{**ROW, **changes}]}, "ledger", "L:1", "L") == {"InvalidMessage"}


def test_a_close_counts_what_came_before_it() -> None:
    close = {"transactionId": "T-9", "orderId": "ORD-1", "kind": "close", "entryCount": 2, "sequence": 3}
    first = {**ROW, "sequence": 1}
    assert message({**BATCH, "transactions": [first, close]}, "ledger", "L:1", "L")
    wrong = {**BATCH, "transactions": [first, {**close, "sequence": 2}]}
    assert reasons(wrong, "ledger", "L:1", "L") == {"InvalidMessage"}


def test_of_one_order_all_transactions_carry_a_sequence_or_none_does() -> None:
    mixed = {**BATCH, "transactions": [ROW, {**ROW, "transactionId": "T-2", "sequence": 1}]}
    assert reasons(mixed, "ledger", "L:1", "L") == {"InvalidMessage"}
    assert reasons({**BATCH, "transactions": [ROW, ROW]}, "ledger", "L:1", "L") == {"InvalidMessage"}


def test_64_levels_are_taken_and_66_are_not() -> None:
    def nested(levels: int) -> dict[str, Any]:
        value: Any = 1
        for _ in range(levels - 2):  # the body and `meta` are two
            value = [value]
        return {**ORDER, "meta": {"a": value}}

    assert len(read(nested(64))) == 1
    assert isinstance(read(nested(64))[0], Message)
    assert {type(one) for one in read(nested(65))} == {Message, Fault}  # the contracts leave open which levels count
    assert reasons(nested(66)) == {"InvalidMessage"}


def test_meta_changes_neither_identity_nor_hash() -> None:
    assert message({**ORDER, "meta": {"sent": 1}}).digest == message(ORDER).digest
    assert replace(message(ORDER), body={}) == replace(message({**ORDER, "meta": {}}), body={})
