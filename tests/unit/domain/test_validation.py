"""From a body to a message: schema and rules (C77, D11, R42, R46)."""

from __future__ import annotations

import copy
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.domain import validation
from shared.domain.validation import MAX_VIOLATIONS, InvalidBody, order_message

# A machine may be slow, and that proves nothing.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

Json = dict[str, Any]

LINE: Json = {"lineId": "1", "sku": "TEA", "quantity": 2, "unitPrice": "3.50"}
PLACED: Json = {
    "type": "order.placed",
    "schemaVersion": 1,
    "orderId": "ORD-1",
    "sequence": 1,
    "customerId": "C-9",
    "currency": "EUR",
    "lines": [LINE, {**LINE, "lineId": "2"}],
    "meta": {"sentAt": None},
}
AMENDED: Json = {"type": "order.amended", "orderId": "ORD-1", "operationId": "op-7", "sequence": 2, "lines": [LINE]}
CANCELLED: Json = {
    "type": "order.cancelled",
    "orderId": "ORD-1",
    "operationId": "op-8",
    "sequence": 3,
    "reason": "changed their mind",
}
STATUS: Json = {"type": "order.status", "orderId": "ORD-1", "status": "confirmed", "version": 1}
ADD: Json = {"transactionId": "T-1", "orderId": "ORD-1", "kind": "add", "amount": "19.00", "sequence": 1}
AMEND: Json = {**ADD, "transactionId": "T-2", "kind": "amend", "refersTo": "T-1", "sequence": 2}
CLOSE: Json = {"transactionId": "T-3", "orderId": "ORD-1", "kind": "close", "entryCount": 2, "sequence": 3}
BATCH: Json = {
    "type": "ledger.batch",
    "ledgerId": "L-7",
    "batchId": "b1",
    "batchSequence": 1,
    "currency": "EUR",
    "transactions": [ADD, AMEND, CLOSE, {"transactionId": "T-4", "orderId": "ORD-2", "kind": "add", "amount": "7.5"}],
}
ENTRY: Json = {**ADD, "type": "ledger.entry", "stream": "ledger.L-7", "currency": "EUR"}


def check(body: Json) -> object:
    if body.get("type") == "ledger.batch":
        return validation.ledger_batch(body)
    return validation.ledger_entry(body) if body.get("type") == "ledger.entry" else validation.order_message(body)


def violations(body: Json) -> dict[str, str]:
    with pytest.raises(InvalidBody) as caught:
        check(body)
    return {violation.pointer: violation.reason for violation in caught.value.violations}


def changed(body: Json, path: str, value: object) -> Json:
    copied = copy.deepcopy(body)
    *holders, last = [int(part) if part.isdigit() else part for part in path.split("/")[1:]]
    holder: Any = copied
    for part in holders:
        holder = holder[part]
    holder[last] = value
    return copied


def without(body: Json, name: str) -> Json:
    return {member: value for member, value in body.items() if member != name}


@pytest.mark.parametrize("body", [PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY], ids=lambda body: body["type"])
def test_a_valid_message_passes_and_null_fields_stay_absent(body: Json) -> None:
    message = check(body)
    assert message.model_dump(by_alias=True, exclude_unset=True, mode="json") == body  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (PLACED, "/schemaVersion"),
        (PLACED, "/sequence"),
        (PLACED, "/lines/0/quantity"),
        (AMENDED, "/sequence"),
        (STATUS, "/version"),
        (BATCH, "/batchSequence"),
        (BATCH, "/transactions/2/entryCount"),
        (BATCH, "/transactions/0/sequence"),
        (ENTRY, "/sequence"),
    ],
)
def test_an_integer_is_a_number_with_an_integral_value_and_nothing_else(body: Json, path: str) -> None:
    holder: Any = body
    for part in path.split("/")[1:]:
        holder = holder[int(part) if part.isdigit() else part]
    assert check(changed(body, path, float(holder))) == check(body)
    for wrong in (str(holder), True, holder + 0.5, None, [holder], {}, 0.1, float("inf")):
        assert path in violations(changed(body, path, wrong))


@pytest.mark.parametrize(
    ("body", "path", "least", "most"),
    [
        (PLACED, "/sequence", 1, 1),
        (PLACED, "/lines/0/quantity", 1, 999_999),
        (AMENDED, "/lines/0/quantity", 0, 999_999),
        (AMENDED, "/sequence", 2, 2147483647),
        (CANCELLED, "/sequence", 2, 2147483647),
        (STATUS, "/version", 1, 2147483647),
        (BATCH, "/batchSequence", 1, 2147483647),
        (ENTRY, "/sequence", 1, 2147483647),
    ],
)
def test_an_integer_has_its_range(body: Json, path: str, least: int, most: int) -> None:
    assert check(changed(body, path, least))
    assert check(changed(body, path, most))
    for wrong in (least - 1, most + 1, -1, 2**53):
        assert path in violations(changed(body, path, wrong))


@pytest.mark.parametrize("body", [PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY], ids=lambda body: body["type"])
def test_null_is_refused_everywhere_but_in_meta(body: Json) -> None:
    # R42: null and absent would hash differently, so there is only one of them.
    for name in body:
        assert f"/{name}" in violations({**body, name: None})
    assert check({**body, "meta": {"note": None, "deep": [None]}})


@pytest.mark.parametrize(
    ("body", "optional"),
    [
        (PLACED, {"schemaVersion", "sequence", "customerId", "meta"}),
        (AMENDED, {"sequence"}),
        (CANCELLED, {"sequence", "reason"}),
        (STATUS, set()),
        (BATCH, {"type", "batchSequence"}),
        (ENTRY, {"type", "sequence"}),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_what_is_required_is_required(body: Json, optional: set[str]) -> None:
    read = {"ledger.batch": validation.ledger_batch, "ledger.entry": validation.ledger_entry}.get(
        body["type"], validation.order_message
    )
    for name in body:
        if name in optional:
            assert read(without(body, name))
            continue
        with pytest.raises(InvalidBody) as caught:
            read(without(body, name))
        reasons = {found.pointer: found.reason for found in caught.value.violations}
        assert reasons[f"/{name}"].startswith("required")


@pytest.mark.parametrize("body", [PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY], ids=lambda body: body["type"])
def test_an_unknown_member_is_refused_by_name_and_its_value_is_not_shown(body: Json) -> None:
    # D11: what changes without notice belongs in `meta`.
    assert violations({**body, "sentAt": "4111"}) == {"/sentAt": "unknown member"}
    assert violations({**body, "order_id": "ORD-1"}) == {"/order_id": "unknown member"}
    assert violations({**body, "x" * 1000: 1}) == {"/" + "x" * 64 + "…": "unknown member"}


def test_from_outside_a_member_has_its_camel_case_name_only() -> None:
    for body, name, ours in (
        (PLACED, "orderId", "order_id"),
        (BATCH, "ledgerId", "ledger_id"),
        (ENTRY, "orderId", "order_id"),
    ):
        assert violations({**without(body, name), ours: body[name]}) == {
            f"/{name}": "required",
            f"/{ours}": "unknown member",
        }


def test_a_transaction_names_one_order() -> None:
    # C77
    assert "/transactions/0/orderId" in violations(changed(BATCH, "/transactions/0/orderId", ["ORD-1", "ORD-2"]))
    assert violations(changed(BATCH, "/transactions/0/orderIds", ["ORD-2"])) == {
        "/transactions/0/orderIds": "unknown member"
    }


def test_an_unknown_version_is_refused_by_name() -> None:
    for body in (PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY):
        for version in (0, 2, 1.5, "1", True):
            found = violations({**body, "schemaVersion": version})
            assert found["/schemaVersion"] == "a version that this release does not know; it knows 1"


@pytest.mark.parametrize("wrong", [None, 1, "", "order", "ORDER.PLACED", "ledger.entry", ["order.placed"], {}])
def test_an_order_message_has_one_of_four_types(wrong: object) -> None:
    with pytest.raises(InvalidBody, match=r"/type: must be one of order\.placed, order\.amended"):
        validation.order_message({**PLACED, "type": wrong})
    with pytest.raises(InvalidBody, match="/type: required"):
        validation.order_message({})


def test_a_ledger_s_types_are_checked_where_they_are_given() -> None:
    for read, body in ((validation.ledger_batch, BATCH), (validation.ledger_entry, ENTRY)):
        with pytest.raises(InvalidBody, match="/type: must be 'ledger"):
            read({**body, "type": "order.placed"})


@pytest.mark.parametrize(
    "text",
    [
        "ORD-1",
        "a",
        "A b",
        "é",
        "e\u0301",
        "日本",
        "a/b\\c?d#e",
        "#",
        '"',
        "~state",
        "x" * 63,
        "\uffff",
        "a\u00a0b",
        "7",
    ],
)
def test_an_id_may_hold_any_character_of_the_basic_plane(text: str) -> None:
    assert check({**PLACED, "orderId": text, "customerId": text})


@pytest.mark.parametrize(
    "text",
    ["", " ", " a", "a ", "a\n", "a\tb", "a:b", ":", "x" * 64, "😀", "a😀b", "\ud800", "a\u0000", "\u0085", "a\u0085b"]
    + [f"{space}a" for space in "\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"],
)
def test_an_id_has_no_colon_control_character_or_white_space_at_its_ends(text: str) -> None:
    assert "/orderId" in violations({**PLACED, "orderId": text})
    assert "/stream" in violations({**ENTRY, "stream": f"ledger.{text}"})


def test_an_id_is_a_string() -> None:
    # R46: 7 and "7" can't be two orders under one id.
    for wrong in (7, 7.0, True, ["ORD-1"], {"id": 1}):
        assert violations({**PLACED, "customerId": wrong}) == {"/customerId": "must be a string"}


@pytest.mark.parametrize("stream", ["order", "ledger.L-7", "ledger.a.b", "ledger.é"])
def test_a_stream_is_the_order_s_or_a_ledger_s(stream: str) -> None:
    assert check({**ENTRY, "stream": stream})
    for wrong in ("", "orders", "order\n", "ledger", "ledger.", "Ledger.L", "ledger.a:b", "ledger. L"):
        assert "/stream" in violations({**ENTRY, "stream": wrong})


@pytest.mark.parametrize("amount", ["0", "-0", "10", "10.0", "0.0001", "-1.50", "9" * 15 + ".9999", "-0.0"])
def test_an_amount_is_a_decimal_text(amount: str) -> None:
    assert check(changed(BATCH, "/transactions/0/amount", amount))


@pytest.mark.parametrize(
    "amount", ["", "1e3", "+1", "01", "1.", ".5", "1.00000", "9" * 16, "1,5", " 1", "1\n", "١", "NaN", "--1", 1, 1.5]
)
def test_anything_else_is_no_amount(amount: object) -> None:
    assert "/transactions/0/amount" in violations(changed(BATCH, "/transactions/0/amount", amount))
    assert "/lines/0/unitPrice" in violations(changed(PLACED, "/lines/0/unitPrice", amount))


def test_a_price_has_no_sign() -> None:
    assert "/lines/0/unitPrice" in violations(changed(PLACED, "/lines/0/unitPrice", "-1"))


def test_a_currency_is_three_capital_letters() -> None:
    for wrong in ("eur", "EU", "EURO", "ÉUR", "EUR\n", " EUR", 978):
        assert "/currency" in violations({**PLACED, "currency": wrong})


@pytest.mark.parametrize("body", [PLACED, AMENDED], ids=lambda body: body["type"])
def test_an_order_has_1_to_2000_lines(body: Json) -> None:
    lines = [{**LINE, "lineId": str(number)} for number in range(2001)]
    assert check({**body, "lines": lines[:2000]})
    for wrong in (lines, [], {}, "lines", LINE):
        assert list(violations({**body, "lines": wrong})) == ["/lines"]


def test_a_faulty_item_is_not_called_a_missing_one() -> None:
    with pytest.raises(InvalidBody) as caught:
        validation.order_message({**PLACED, "lines": [{**LINE, "unitPrice": "1e3"}]})
    assert [violation.pointer for violation in caught.value.violations] == ["/lines/0/unitPrice"]
    with pytest.raises(InvalidBody) as caught:
        validation.order_message({**PLACED, "lines": []})
    assert [violation.pointer for violation in caught.value.violations] == ["/lines"]


def test_a_batch_has_1_to_2000_transactions() -> None:
    many = [{**without(ADD, "sequence"), "transactionId": str(number)} for number in range(2001)]
    assert check({**BATCH, "transactions": many[:2000]})
    for wrong in (many, []):
        assert list(violations({**BATCH, "transactions": wrong})) == ["/transactions"]


@pytest.mark.parametrize("body", [PLACED, AMENDED], ids=lambda body: body["type"])
def test_a_message_names_a_line_once(body: Json) -> None:
    assert list(violations({**body, "lines": [LINE, {**LINE, "sku": "CUP"}]})) == ["/lines/1/lineId"]
    assert check({**body, "lines": [{**LINE, "lineId": "a"}, {**LINE, "lineId": "A"}]})


@pytest.mark.parametrize("body", [PLACED, AMENDED], ids=lambda body: body["type"])
def test_quantity_times_price_must_fit_an_amount(body: Json) -> None:
    assert check({**body, "lines": [{**LINE, "quantity": 9, "unitPrice": "111111111111111.1111"}]})
    for quantity, price in ((2, "500000000000000"), (999_999, "999999999999999.9999"), (10, "100000000000000")):
        assert list(violations({**body, "lines": [{**LINE, "quantity": quantity, "unitPrice": price}]})) == ["/lines/0"]


def test_an_operation_id_does_not_begin_as_a_status_s_message_id() -> None:
    for body in (AMENDED, CANCELLED):
        assert list(violations({**body, "operationId": "status.1"})) == ["/operationId"]
        assert check({**body, "operationId": "Status.1"})
        assert check({**body, "operationId": "status"})


def test_a_reason_has_at_most_200_characters() -> None:
    assert check({**CANCELLED, "reason": "😀" * 200})
    assert check({**CANCELLED, "reason": ""})
    assert list(violations({**CANCELLED, "reason": "x" * 201})) == ["/reason"]


@pytest.mark.parametrize("body", [PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY], ids=lambda body: body["type"])
def test_meta_is_free_but_an_object_of_at_most_8_kib(body: Json) -> None:
    room = 8192 - len('{"x":""}')
    assert check({**body, "meta": {"x": "a" * room}})
    assert check({**body, "meta": {}})
    assert list(violations({**body, "meta": {"x": "a" * (room + 1)}})) == ["/meta"]
    assert list(violations({**body, "meta": {"x": "é" * (room // 2 + 1)}})) == ["/meta"]
    for wrong in ([], "x", 1, True):
        assert list(violations({**body, "meta": wrong})) == ["/meta"]


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        ("add", {"amount"}),
        ("amend", {"amount", "refersTo"}),
        ("void", {"amount", "refersTo"}),
        ("close", {"entryCount"}),
    ],
)
def test_each_kind_has_its_own_members(kind: str, required: set[str]) -> None:
    every: Json = {"amount": "1", "refersTo": "T-0", "entryCount": 0}
    base = {"transactionId": "T-1", "orderId": "ORD-1", "kind": kind}
    entry = {**base, "type": "ledger.entry", "stream": "order", "currency": "EUR"}
    for mask in range(8):
        members = {name: value for bit, (name, value) in enumerate(every.items()) if mask & (1 << bit)}
        wrong = {f"/{name}" for name in required ^ set(members)}
        if wrong:
            assert set(violations({**entry, **members})) == wrong
            batch = {**BATCH, "transactions": [{**base, **members}]}
            assert set(violations(batch)) == {f"/transactions/0{place}" for place in wrong}
        else:
            assert check({**entry, **members})
            assert check({**BATCH, "transactions": [{**base, **members}]})


def test_a_kind_is_one_of_four() -> None:
    found = violations({**ENTRY, "kind": "credit"})
    assert found["/kind"] == "must be 'add', 'amend', 'void' or 'close'"


def test_a_batch_names_a_transaction_once() -> None:
    again = [ADD, {**ADD, "sequence": 2}]
    assert list(violations({**BATCH, "transactions": again})) == ["/transactions/1/transactionId"]
    other_order = [ADD, {**ADD, "orderId": "ORD-2"}]
    assert list(violations({**BATCH, "transactions": other_order})) == ["/transactions/1/transactionId"]


def test_of_one_order_all_transactions_of_a_batch_have_a_sequence_or_none() -> None:
    second = {**without(ADD, "sequence"), "transactionId": "T-2"}
    assert list(violations({**BATCH, "transactions": [ADD, second]})) == ["/transactions/1/sequence"]
    assert check({**BATCH, "transactions": [ADD, {**second, "orderId": "ORD-2"}]})


@pytest.mark.parametrize(("count", "sequence"), [(2, 3), (0, 1), (2147483646, 2147483647)])
def test_a_close_comes_right_behind_the_entries_that_it_counts(count: int, sequence: int) -> None:
    entry = {**CLOSE, "type": "ledger.entry", "stream": "order", "currency": "EUR", "entryCount": count}
    assert check({**entry, "sequence": sequence})
    assert check(without(entry, "sequence"))
    for wrong in {1, sequence - 1, sequence + 1, 7} - {sequence, 0, 2147483648}:
        assert violations({**entry, "sequence": wrong}) == {"/sequence": "must be entryCount + 1 on a close"}
    batch = {**BATCH, "transactions": [{**CLOSE, "entryCount": count, "sequence": 8}]}
    assert list(violations(batch)) == ["/transactions/0/sequence"]


def test_violations_and_their_description_are_bounded() -> None:
    lines = [{"lineId": "a:b" * 100, "x" * 1000: 1} for _ in range(2000)]
    with pytest.raises(InvalidBody) as caught:
        check({**PLACED, "lines": lines})
    assert len(caught.value.violations) == validation.MAX_VIOLATIONS
    assert len(str(caught.value).encode()) <= 1024
    assert "a:b" not in str(caught.value)
    assert caught.value.__cause__ is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@steady
@given(st.sampled_from([PLACED, AMENDED, CANCELLED, STATUS, BATCH, ENTRY]), st.data())
def test_whatever_stands_in_a_member_is_taken_or_refused_as_a_violation(body: Json, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*sorted(set(body) - {"type"}), "other"]))
    try:
        check({**body, name: data.draw(anything.filter(lambda value: not isinstance(value, dict)))})
    except InvalidBody as refused:
        assert refused.violations  # noqa: PT017 - both endings are right


@pytest.mark.parametrize(
    "body",
    [
        {"lines": [{}] * 400_000},
        {"lines": [], **{f"x{number}": 1 for number in range(200_000)}},
        {"lines": [{f"x{number}": 1 for number in range(50)}] * 8_000},
        {"lines": [{f"x{number}": 1 for number in range(50)}] * 2_000},
        {"lines": [{"lineId": 1, "sku": 1, "quantity": "1", "unitPrice": 1}] * 2_000},
    ],
    ids=["many lines", "many members", "many of both", "many members in lines", "all lines wrong"],
)
def test_a_body_of_a_million_faults_costs_no_more_than_the_first(body: dict[str, object]) -> None:  # D05 R45
    """A few kilobytes of gzip may hold them; noting each would take gigabytes, and with them the worker."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBody) as caught:
            order_message({"type": "order.placed", "orderId": "O", "currency": "EUR", **body})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(caught.value.violations) <= MAX_VIOLATIONS
    assert most < 20_000_000
