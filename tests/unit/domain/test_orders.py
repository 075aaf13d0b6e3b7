"""shared/domain/orders.py: states, commands and entries of contracts 5, over the whole input space.

The oracles are written from the contract's text. Amounts are checked with fractions, which share nothing with the code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.contracts.documents import Claim, Effect, Fulfilment, Order, OrderLine, Record, Result
from shared.contracts.ledger import LedgerEntry
from shared.contracts.orders import OrderAmended, OrderCancelled, OrderCommand, OrderPlaced, OrderStatus
from shared.domain import effects, orders
from shared.domain.orders import (
    TABLE,
    Apply,
    Park,
    Reject,
    Rejection,
    Ruling,
    Situation,
    StatusConflict,
    StatusDuplicate,
    StatusSet,
    StatusStale,
    decide_command,
    decide_status,
    situation,
)
from shared.domain.streams import SkipRefused
from shared.errors import PermanentError, Reason

Line = tuple[str, int, str]
TWO_LINES: Sequence[Line] = (("1", 2, "3.50"), ("2", 1, "12"))
LARGEST_PRICE = "9" * 15 + ".9999"


def record(status: Literal["effect", "accepted", "completed"] = "completed", effect: Effect | None = None) -> Record:
    return Record(
        key="ORD-1",
        message_id="ORD-1",
        consumer="process_order",
        schema_version=1,
        handler_version=1,
        payload_hash="sha256:jcs:v1:" + "0" * 64,
        raw_hash="sha256:raw:" + "0" * 64,
        enqueued_at="2026-11-30T12:00:00.123Z",
        status=status,
        claim=Claim(token="0" * 32, attempts=1, sequence_number="1", lease_seconds=90),
        effect=effect,
    )


def lines_of(lines: Sequence[Line], sku: str = "TEA") -> list[dict[str, object]]:
    return [{"lineId": name, "sku": sku, "quantity": quantity, "unitPrice": price} for name, quantity, price in lines]


def placed(lines: Sequence[Line] = TWO_LINES, sequence: int | None = 1) -> OrderPlaced:
    body: dict[str, object] = {"type": "order.placed", "orderId": "ORD-1", "customerId": "C-9", "currency": "EUR"}
    return OrderPlaced.model_validate(
        {**body, "lines": lines_of(lines)} | ({} if sequence is None else {"sequence": sequence})
    )


def amended(*lines: Line, sequence: int | None = 2, sku: str = "TEA") -> OrderAmended:
    body: dict[str, object] = {"type": "order.amended", "orderId": "ORD-1", "operationId": "op"}
    return OrderAmended.model_validate(
        {**body, "lines": lines_of(lines, sku)} | ({} if sequence is None else {"sequence": sequence})
    )


def cancelled(sequence: int | None = 2) -> OrderCancelled:
    body: dict[str, object] = {"type": "order.cancelled", "orderId": "ORD-1", "operationId": "op"}
    return OrderCancelled.model_validate(body | ({} if sequence is None else {"sequence": sequence}))


def status(name: str, version: int) -> OrderStatus:
    return OrderStatus.model_validate({"type": "order.status", "orderId": "ORD-1", "status": name, "version": version})


def open_order(lines: Sequence[Line] = TWO_LINES, sequence: int | None = 1) -> Order:
    body = placed(lines, sequence)
    return orders.new_order(body, orders.place(body), record(), pending_payment=False)


def pending_order(lines: Sequence[Line] = TWO_LINES, sequence: int | None = 1, *, parked: bool = False) -> Order:
    body = placed(lines, sequence)
    effect = effects.start("ORD-1", 0)
    if parked:
        effect = effects.parked(effect, Reason.EFFECT_REFUSED, 0)
    return orders.new_order(body, orders.place(body), record("effect", effect), pending_payment=True)


def applied(order: Order, body: OrderCommand) -> Apply:
    verdict = decide_command(order, body)
    assert isinstance(verdict, Apply), verdict
    return verdict


def written(entry: LedgerEntry) -> dict[str, object]:
    return entry.model_dump(by_alias=True, exclude_none=True, exclude={"type", "schema_version", "order_id", "stream"})


# --- Placing ----------------------------------------------------------------------------------------------------------


def test_placing_posts_one_add_a_line_in_line_order() -> None:
    placement = orders.place(placed())

    assert [written(entry) for entry in placement.entries] == [
        {"transactionId": "1", "sequence": 1, "kind": "add", "amount": "7.00", "currency": "EUR"},
        {"transactionId": "2", "sequence": 2, "kind": "add", "amount": "12", "currency": "EUR"},
    ]
    assert {(entry.order_id, entry.stream) for entry in placement.entries} == {("ORD-1", "order")}
    assert (placement.total, placement.next_entry) == ("19.00", 3)
    assert [line.entry for line in placement.lines] == ["1", "2"]


def test_a_new_order_is_the_contracts_document() -> None:
    document = open_order().model_dump(mode="json", by_alias=True)
    document.pop("record")

    assert document == {
        "id": "ORD-1", "type": "order", "v": 1, "orderId": "ORD-1", "customerId": "C-9", "currency": "EUR",
        "state": "open", "fulfilment": None, "total": "19.00", "sequenced": True, "nextCommand": 2, "nextEntry": 3,
        "revision": 1,
        "lines": [
            {"lineId": "1", "sku": "TEA", "quantity": 2, "unitPrice": "3.50", "amount": "7.00", "entry": "1"},
            {"lineId": "2", "sku": "TEA", "quantity": 1, "unitPrice": "12", "amount": "12", "entry": "2"},
        ],
    }  # fmt: skip


def test_an_order_without_a_sequence_keeps_no_command_number() -> None:
    order = open_order(sequence=None)

    assert (order.sequenced, order.next_command) == (False, None)


def test_the_document_id_is_encoded_where_the_order_id_needs_it() -> None:
    body = placed().model_copy(update={"order_id": "a/b"})

    assert orders.new_order(body, orders.place(body), record(), pending_payment=False).id.startswith("~x~")


def test_an_amount_that_no_message_carries_is_refused_by_place() -> None:
    body = placed([("1", 1, "1"), ("2", 2, LARGEST_PRICE)])

    with pytest.raises(PermanentError, match=r"^InvalidMessage: /lines/1: quantity times unitPrice"):
        orders.place(body)


def test_a_total_may_be_longer_than_an_amount() -> None:
    assert orders.place(placed([("1", 1, LARGEST_PRICE), ("2", 1, LARGEST_PRICE)])).total == "1999999999999999.9998"


def test_the_largest_order_is_placed() -> None:
    placement = orders.place(placed([(str(number), 1, "0.01") for number in range(2000)]))

    assert (placement.total, placement.next_entry) == ("20.00", 2001)


# --- Payments ---------------------------------------------------------------------------------------------------------


def test_an_order_that_waits_for_its_payment_has_posted_nothing() -> None:
    order = pending_order()

    assert (order.state, order.next_entry, order.next_command, order.total) == ("pending_payment", 1, 2, "19.00")
    assert [line.entry for line in order.lines] == [None, None]


def test_an_approved_order_is_the_order_that_was_placed() -> None:
    opened, entries = orders.open_order(pending_order())

    assert entries == orders.place(placed()).entries
    assert opened.model_copy(update={"record": record(), "revision": 1}) == open_order()
    assert opened.revision == 2
    assert opened.record == pending_order().record


def test_a_declined_order_changes_nothing_but_its_state() -> None:
    declined = orders.decline_order(pending_order())

    assert declined == pending_order().model_copy(update={"state": "declined", "revision": 2})


@pytest.mark.parametrize("answer", [orders.open_order, orders.decline_order])
def test_an_answer_for_an_order_that_does_not_wait_is_a_fault(answer: object) -> None:
    assert callable(answer)
    with pytest.raises(ValueError, match="meets an order that is open"):
        answer(open_order())


# --- The states table -------------------------------------------------------------------------------------------------


def every_order() -> Iterator[tuple[str, Order]]:
    """Each state with each fulfilment, numbered commands and not; the name is the column of contracts 5."""
    fulfilments = (None, "confirmed", "shipped", "delivered", "returned")
    for sequence, name in itertools.product((1, None), fulfilments):
        fulfilment = None if name is None else Fulfilment.model_validate({"status": name, "version": 1})
        set_to = {"fulfilment": fulfilment}
        shipped = name in ("shipped", "delivered", "returned")
        order = open_order(sequence=sequence).model_copy(update=set_to)
        yield "shipped" if shipped else "open", order
        yield "cancelled", order.model_copy(update={"state": "cancelled"})
        yield "declined", order.model_copy(update={"state": "declined"})
        yield "pending_payment", pending_order(sequence=sequence).model_copy(update=set_to)
        yield "parked", pending_order(sequence=sequence, parked=True).model_copy(update=set_to)


EXPECTED: Mapping[tuple[str, str], object] = {
    ("order.amended", "pending_payment"): Reason.ORDER_NOT_READY,
    ("order.amended", "parked"): Reason.ORDER_NOT_READY,
    ("order.amended", "open"): "open",
    ("order.amended", "shipped"): Rejection.ORDER_SHIPPED,
    ("order.amended", "cancelled"): Rejection.ORDER_CANCELLED,
    ("order.amended", "declined"): Rejection.ORDER_DECLINED,
    ("order.cancelled", "pending_payment"): Reason.ORDER_NOT_READY,
    ("order.cancelled", "parked"): "cancelled",
    ("order.cancelled", "open"): "cancelled",
    ("order.cancelled", "shipped"): Rejection.ORDER_SHIPPED,
    ("order.cancelled", "cancelled"): Rejection.ORDER_CANCELLED,
    ("order.cancelled", "declined"): Rejection.ORDER_DECLINED,
}


def sequence_oracle(order: Order, number: int | None) -> Reason | None:
    if order.next_command is None:
        return None if number is None else Reason.INVALID_MESSAGE
    if number is None:
        return Reason.INVALID_MESSAGE
    if number == order.next_command:
        return None
    return Reason.SEQUENCE_GAP if number > order.next_command else Reason.SEQUENCE_CONFLICT


def test_every_command_on_every_order_is_the_contracts() -> None:
    for (column, order), number, is_amendment in itertools.product(every_order(), (None, 2, 3, 4, 9), (True, False)):
        waiting = order.model_copy(update={"next_command": 3 if order.sequenced else None})
        body = amended(("1", 3, "1"), sequence=number) if is_amendment else cancelled(number)
        verdict = decide_command(waiting, body)
        out_of_turn = sequence_oracle(waiting, number)
        expected = EXPECTED[body.type, column] if out_of_turn is None else out_of_turn
        case = (column, body.type, number)
        if isinstance(expected, Reason):
            assert isinstance(verdict, Park), case
            assert verdict.reason is expected, case
            continue
        after_next = None if waiting.next_command is None else 4
        if isinstance(expected, Rejection):
            numbered = waiting.model_copy(update={"next_command": after_next})
            assert verdict == Reject(numbered, expected), case
            continue
        assert isinstance(verdict, Apply), case
        assert (verdict.order.state, verdict.order.next_command) == (expected, after_next), case
        assert verdict.order.revision == waiting.revision + 1, case
        assert verdict.order.fulfilment == waiting.fulfilment, case


def test_the_states_table_has_a_ruling_for_every_message_and_column() -> None:
    assert set(TABLE) == {"order.placed", "order.amended", "order.cancelled", "order.status"}
    assert all(set(columns) == set(Situation) for columns in TABLE.values())
    assert {columns[Situation.NONE] for name, columns in TABLE.items() if name != "order.placed"} == {Ruling.UNKNOWN}
    assert TABLE["order.placed"] == dict.fromkeys(Situation, Ruling.RECORD) | {Situation.NONE: Ruling.CREATE}
    assert situation(None) is Situation.NONE


def test_out_of_turn_names_expected_and_found() -> None:
    gap, conflict = (
        decide_command(open_order(), cancelled(4)),
        decide_command(open_order().model_copy(update={"next_command": 5}), cancelled(2)),
    )

    assert gap == Park(Reason.SEQUENCE_GAP, "sequence: expected 2, found 4")
    assert isinstance(conflict, Park)
    assert conflict.description.startswith("sequence: expected 5, found 2;")


@pytest.mark.parametrize(
    ("placed_with", "sequence", "description"),
    [
        (1, None, "sequence: expected a number: the order is sequenced"),
        (None, 2, "sequence: expected none: the order is not sequenced"),
    ],
)
def test_a_number_where_none_belongs_is_named(placed_with: int | None, sequence: int | None, description: str) -> None:
    verdict = decide_command(open_order(sequence=placed_with), cancelled(sequence))

    assert verdict == Park(Reason.INVALID_MESSAGE, description)


def test_a_command_with_an_amount_that_does_not_fit_is_invalid_in_any_state() -> None:
    for _, order in every_order():
        verdict = decide_command(order, amended(("1", 1, "1"), ("9", 2, LARGEST_PRICE), sequence=7))
        assert isinstance(verdict, Park)
        assert verdict.reason is Reason.INVALID_MESSAGE
        assert verdict.description.startswith("/lines/1:")


def test_a_rejection_uses_up_its_number() -> None:
    """The successor of a rejected command is next, so nothing waits for it."""
    order = open_order().model_copy(update={"state": "cancelled"})
    rejected = decide_command(order, amended(("1", 1, "1")))
    assert isinstance(rejected, Reject)

    assert isinstance(decide_command(rejected.order, cancelled(3)), Reject)


# --- Amendments -------------------------------------------------------------------------------------------------------


def test_an_amendment_posts_only_what_changes_and_refers_to_the_lines_add() -> None:
    """The example of contracts 4.2 on that of 4.1, and a new line."""
    body = amended(("1", 5, "3.50"), ("2", 0, "0"), ("3", 1, "0.25"))
    verdict = applied(open_order(), body)

    assert [written(entry) for entry in verdict.entries] == [
        {"transactionId": "3", "sequence": 3, "kind": "amend", "amount": "10.50", "currency": "EUR", "refersTo": "1"},
        {"transactionId": "4", "sequence": 4, "kind": "void", "amount": "-12", "currency": "EUR", "refersTo": "2"},
        {"transactionId": "5", "sequence": 5, "kind": "add", "amount": "0.25", "currency": "EUR"},
    ]
    assert [(line.line_id, line.amount, line.entry) for line in verdict.order.lines] == [
        ("1", "17.50", "1"),
        ("3", "0.25", "5"),
    ]
    assert (verdict.order.total, verdict.order.next_entry, verdict.order.revision) == ("17.75", 6, 2)


def test_a_second_amendment_still_refers_to_the_add() -> None:
    once = applied(open_order(), amended(("1", 5, "3.50")))
    twice = applied(once.order, amended(("1", 1, "1.00"), sequence=3))
    removed = applied(twice.order, amended(("1", 0, "0"), sequence=4))

    assert [written(entry)["amount"] for entry in (*twice.entries, *removed.entries)] == ["-16.50", "-1.00"]
    assert {entry.refers_to for entry in (*twice.entries, *removed.entries)} == {"1"}


@pytest.mark.parametrize(
    "line", [("1", 2, "3.5"), ("1", 7, "1"), ("1", 1, "7.0000")], ids=["text only", "other factors", "more digits"]
)
def test_an_equal_amount_posts_nothing_and_replaces_the_line(line: Line) -> None:
    verdict = applied(open_order(), amended(line, sku="COFFEE"))

    assert verdict.entries == ()
    first = verdict.order.lines[0]
    assert (first.sku, first.quantity, first.unit_price, first.entry) == ("COFFEE", line[1], line[2], "1")
    assert (verdict.order.next_entry, verdict.order.revision) == (3, 2)


def test_a_line_that_comes_back_is_a_new_posting_at_the_end() -> None:
    removed = applied(open_order(), amended(("1", 0, "0")))
    again = applied(removed.order, amended(("1", 1, "1"), sequence=3))

    assert [written(entry)["kind"] for entry in again.entries] == ["add"]
    assert [(line.line_id, line.entry) for line in again.order.lines] == [("2", "2"), ("1", "4")]


def test_removing_an_unknown_line_rejects_the_whole_command() -> None:
    rejected = decide_command(open_order(), amended(("1", 9, "1"), ("no such", 0, "0")))

    assert rejected == Reject(open_order().model_copy(update={"next_command": 3}), Rejection.LINE_UNKNOWN)


def test_more_lines_than_an_order_holds_reject_the_whole_command() -> None:
    full = open_order([(str(number), 1, "1") for number in range(2000)])

    assert decide_command(full, amended(("new", 1, "1"))) == Reject(
        full.model_copy(update={"next_command": 3}), Rejection.TOO_MANY_LINES
    )
    assert isinstance(decide_command(full, amended(("new", 1, "1"), ("7", 0, "0"))), Apply)


def test_the_last_line_can_be_removed() -> None:
    verdict = applied(open_order([("1", 1, "0.50")]), amended(("1", 0, "0")))

    assert (verdict.order.lines, verdict.order.total, verdict.order.state) == ((), "0", "open")


def test_a_line_of_an_open_order_without_its_posting_is_a_fault() -> None:
    order = open_order().model_copy(
        update={"lines": (OrderLine(line_id="1", sku="TEA", quantity=1, unit_price="1", amount="1"),)}
    )

    with pytest.raises(ValueError, match="never posted"):
        decide_command(order, cancelled())


# --- Cancellations ----------------------------------------------------------------------------------------------------


def test_a_cancellation_takes_each_open_line_back_and_closes_the_stream() -> None:
    """C66: the close counts all entries before it, the cancellation's own too."""
    order = applied(open_order(), amended(("1", 5, "3.50"), ("2", 0, "0"), ("3", 1, "0"))).order
    verdict = applied(order, cancelled(3))

    assert [written(entry) for entry in verdict.entries] == [
        {"transactionId": "6", "sequence": 6, "kind": "void", "amount": "-17.50", "currency": "EUR", "refersTo": "1"},
        {"transactionId": "7", "sequence": 7, "kind": "void", "amount": "0", "currency": "EUR", "refersTo": "5"},
        {"transactionId": "8", "sequence": 8, "kind": "close", "currency": "EUR", "entryCount": 7},
    ]
    assert (verdict.order.state, verdict.order.next_entry, verdict.order.revision) == ("cancelled", 9, 3)
    assert (verdict.order.lines, verdict.order.total) == (order.lines, order.total)


def test_a_cancellation_of_an_order_without_lines_only_closes() -> None:
    order = applied(open_order([("1", 1, "1")]), amended(("1", 0, "0"))).order

    assert [(entry.kind, entry.entry_count) for entry in applied(order, cancelled(3)).entries] == [("close", 2)]


def test_an_unpaid_order_with_a_parked_effect_is_cancelled_without_entries() -> None:
    order = pending_order(parked=True)
    verdict = applied(order, cancelled())

    assert verdict.entries == ()
    assert (verdict.order.state, verdict.order.next_entry, verdict.order.next_command) == ("cancelled", 1, 3)
    after = verdict.order.record
    assert (after.status, after.effect, after.outbox) == ("completed", order.record.effect, None)
    assert after.result == Result(outcome="created")


# --- Skips and status -------------------------------------------------------------------------------------------------


def test_commands_that_will_never_come_are_passed_over() -> None:
    skipped = orders.skip_commands(open_order(), first=2, last=4)

    assert skipped == open_order().model_copy(update={"next_command": 5})


@pytest.mark.parametrize(
    ("sequence", "first", "last", "names"),
    [(1, 3, 3, "expected number, 2, not with 3"), (1, 2, 1, "1, is below the first, 2"), (None, 2, 2, "no numbers")],
)
def test_a_skip_of_commands_is_refused_by_name(sequence: int | None, first: int, last: int, names: str) -> None:
    refused = orders.skip_commands(open_order(sequence=sequence), first=first, last=last)

    assert isinstance(refused, SkipRefused)
    assert names in refused.description


def test_a_status_is_set_by_the_higher_version_in_any_state() -> None:
    """C21, C28: natural idempotency."""
    for _, order in every_order():
        stored = order.fulfilment
        for name, version in itertools.product(("confirmed", "shipped", "delivered", "returned"), (1, 2)):
            verdict = decide_status(order, status(name, version))
            if stored is None or version > stored.version:
                fulfilment = Fulfilment.model_validate({"status": name, "version": version})
                assert verdict == StatusSet(order.model_copy(update={"fulfilment": fulfilment}))
            elif name == stored.status:
                assert verdict == StatusDuplicate()
            else:
                assert verdict == StatusConflict()


def test_a_lower_version_is_stale_whatever_its_status() -> None:
    order = open_order().model_copy(update={"fulfilment": Fulfilment(status="shipped", version=5)})

    assert [decide_status(order, status(name, 4)) for name in ("shipped", "confirmed")] == [StatusStale()] * 2


# --- Properties -------------------------------------------------------------------------------------------------------

PRICES = st.sampled_from(["0", "0.00", "1", "3.50", "0.0001", "12", "7.10", "99999.9999"])
LINE_IDS = st.sampled_from("abcde")
CHANGES = st.lists(
    st.tuples(LINE_IDS, st.integers(0, 3), PRICES), min_size=1, max_size=5, unique_by=lambda line: line[0]
)


@given(
    st.lists(st.tuples(LINE_IDS, st.integers(1, 3), PRICES), min_size=1, max_size=5, unique_by=lambda line: line[0]),
    st.lists(CHANGES, max_size=6),
    st.booleans(),
)
@settings(max_examples=200)
def test_the_entries_of_an_order_always_add_up_to_its_lines(
    first: list[Line], changes: list[list[Line]], paid: bool
) -> None:
    """Numbered without holes, one add a line, and no entry for nothing; a cancellation leaves zero."""
    if paid:
        order, opening = orders.open_order(pending_order(first))
        entries = list(opening)
    else:
        order, entries = open_order(first), list(orders.place(placed(first)).entries)
    content = {name: Fraction(price) * quantity for name, quantity, price in first}
    for number, change in enumerate(changes, start=2):
        verdict = decide_command(order, amended(*change, sequence=number))
        if any(quantity == 0 and name not in content for name, quantity, _ in change):
            assert isinstance(verdict, Reject)
            order = verdict.order
            continue
        assert isinstance(verdict, Apply)
        assert all(entry.kind != "amend" or Fraction(entry.amount or 0) != 0 for entry in verdict.entries)
        order = verdict.order
        entries += verdict.entries
        for name, quantity, price in change:
            content[name] = Fraction(price) * quantity
            if quantity == 0:
                del content[name]
        check(order, entries, content)
    check(order, entries, content)
    end = applied(order, cancelled(order.next_command))
    entries += end.entries
    assert sum(Fraction(entry.amount or 0) for entry in entries) == 0
    assert [entry.sequence for entry in entries] == list(range(1, end.order.next_entry))
    assert entries[-1].entry_count == len(entries) - 1


def check(order: Order, entries: Sequence[LedgerEntry], content: Mapping[str, Fraction]) -> None:
    assert {line.line_id: Fraction(line.amount) for line in order.lines} == content
    assert Fraction(order.total) == sum(content.values())
    assert [entry.sequence for entry in entries] == list(range(1, order.next_entry))
    assert [entry.transaction_id for entry in entries] == [str(number) for number in range(1, order.next_entry)]
    balances: dict[str, Fraction] = {}
    for entry in entries:
        of = entry.transaction_id if entry.kind == "add" else entry.refers_to or ""
        balances[of] = balances.get(of, Fraction(0)) + Fraction(entry.amount or 0)
        assert not (entry.amount or "").startswith("-0") or Fraction(entry.amount or 0) != 0
    assert {line.entry: Fraction(line.amount) for line in order.lines if Fraction(line.amount)} == {
        name: balance for name, balance in balances.items() if balance
    }
