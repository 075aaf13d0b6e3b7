"""Whatever is dropped, doubled, swapped or changed in a good end state is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from local.demo.expect import Expectation
from local.demo.verify import Copy, EndState, verify
from tests.unit.demo.ideal import (
    amended,
    batch,
    cancelled,
    entry,
    expected,
    line,
    perfect,
    placed,
    posting,
    status,
)


def day() -> Expectation:
    """Make a small day with a bit of everything."""
    return expected(
        placed("ORD-1", "10.00", "5.50", sequenced=True),
        amended("ORD-1", "op-1", ("1", 2, "10.00"), ("2", 0, "0"), ("3", 1, "1.25"), sequence=2),
        status("ORD-1", "shipped", 1),
        amended("ORD-1", "op-2", ("1", 1, "1"), sequence=3),
        placed("ORD/2", "3.00"),
        cancelled("ORD/2", "op-1"),
        line("orders", "ORD-3", "ORD-4", {"type": "order.placed", "orderId": "ORD-3"}),
        batch("L", "1", posting("T-1", sequence=1), posting("T-3", amount="4", sequence=3), batchSequence=1),
        batch("L", "2", posting("T-2", amount="2", sequence=2), posting("T-9", "ORD/2", "-7"), batchSequence=2),
        entry("E-1"),
        entry("E-2", amount="8"),
        entry("E-5", "ORD-9", sequence=2),
    )


def test_a_perfect_end_is_proven() -> None:
    expectation = day()
    verdict = verify(expectation, perfect(expectation))
    assert verdict.violations == []
    assert verdict.is_proven
    assert (verdict.applied, verdict.held) == (14, 1)
    assert verdict.quarantined == {"InvalidMessage": 1}


def _named(documents: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(document for document in documents if document["id"] == name)


def _entry(end: EndState, name: str) -> dict[str, Any]:
    return _named(end.entries, name)


def drop_an_entry(end: EndState) -> None:
    end.entries.remove(_entry(end, "ORD-1:order:2"))


def drop_an_order(end: EndState) -> None:
    end.orders.remove(_named(end.orders, "ORD-1"))


def drop_a_command(end: EndState) -> None:
    end.orders.remove(_named(end.orders, "ORD-1:op-1"))


def drop_a_batch(end: EndState) -> None:
    end.ledgers.remove(_named(end.ledgers, "L:2"))


def drop_a_state(end: EndState) -> None:
    end.entries.remove(next(one for one in end.entries if one["id"] == "~state" and one["orderId"] == "ORD-1"))


def drop_a_parked_copy(end: EndState) -> None:
    end.quarantine.clear()


def double_an_entry(end: EndState) -> None:
    end.entries.append(dict(_entry(end, "ORD-1:order:2")))


def double_an_entry_under_another_id(end: EndState) -> None:
    extra = copy.deepcopy(_entry(end, "ORD-1:order:2"))
    extra["id"] = extra["record"]["key"] = "ORD-1:order:2b"
    end.entries.append(extra)


def double_an_order(end: EndState) -> None:
    end.orders.append(dict(_named(end.orders, "ORD-1")))


def park_a_good_message(end: EndState) -> None:
    end.quarantine.append(Copy("q~x", "orders", "ord-1", "ORD-1", "", "InvalidMessage"))


def swap_two_positions(end: EndState) -> None:
    first, second = _entry(end, "ORD-1:order:1"), _entry(end, "ORD-1:order:2")
    first["position"], second["position"] = second["position"], first["position"]


def swap_two_unnumbered_entries(end: EndState) -> None:
    first, second = _entry(end, "ORD-1:ledger.D:E-1"), _entry(end, "ORD-1:ledger.D:E-2")
    first["position"], second["position"] = second["position"], first["position"]


def swap_two_amounts(end: EndState) -> None:
    first, second = _entry(end, "ORD-1:order:1"), _entry(end, "ORD-1:order:2")
    first["amount"], second["amount"] = second["amount"], first["amount"]


def change_an_amount(end: EndState) -> None:
    _entry(end, "ORD-1:ledger.L:T-2")["amount"] = "2.01"


def change_a_balance(end: EndState) -> None:
    next(one for one in end.entries if one["id"] == "~state" and one["orderId"] == "ORD-1")["balances"]["EUR"] = "1"


def change_a_total(end: EndState) -> None:
    _named(end.orders, "ORD-1")["total"] = "21.26"


def change_an_order_line(end: EndState) -> None:
    _named(end.orders, "ORD-1")["lines"][0]["quantity"] = 3


def change_what_was_sent(end: EndState) -> None:
    record = _named(end.orders, "ORD-1")["record"]
    record["outbox"]["proof"] = "A" * len(record["outbox"]["proof"])


def change_the_order_of_what_was_sent(end: EndState) -> None:
    outbox = _named(end.orders, "~x~T1JELzI")["record"]["outbox"]
    assert outbox["total"] == 1
    first, second = (_named(end.orders, name)["record"]["outbox"] for name in ("ORD-1", "ORD-1:op-1"))
    first["proof"], second["proof"] = second["proof"], first["proof"]


def change_a_payload_hash(end: EndState) -> None:
    _named(end.orders, "ORD-1")["record"]["payloadHash"] = "sha256:jcs:v1:" + 64 * "0"


def apply_what_is_held(end: EndState) -> None:
    _entry(end, "ORD-9:ledger.D:E-5")["status"] = "applied"


def undo_a_rejection(end: EndState) -> None:
    _named(end.orders, "ORD-1:op-2")["record"]["result"] = {"outcome": "applied"}


def leave_an_outbox_unfinished(end: EndState) -> None:
    _named(end.orders, "ORD-1:op-1")["record"]["status"] = "accepted"


def leave_a_ledger_unfinished(end: EndState) -> None:
    next(one for one in end.ledgers if one["id"] == "~state")["unfinished"] = "L:2"


def leave_a_ledger_outbox(end: EndState) -> None:
    end.ledgers.append({"id": "~outbox.L:2", "type": "ledgerOutbox", "ledgerId": "L"})


def leave_a_message_waiting(end: EndState) -> None:
    end.waiting["orders"] = 1


def leave_a_dead_letter(end: EndState) -> None:
    end.dead_letters.append(Copy("orders 7", "orders", "ORD-1", "ORD-1", "", "MaxDeliveryCountExceeded"))


def let_an_order_expire(end: EndState) -> None:
    _named(end.orders, "ORD-1")["ttl"] = 60


def park_with_another_reason(end: EndState) -> None:
    old = end.quarantine[0]
    end.quarantine[0] = Copy(old.copy_id, old.role, old.session, old.message_id, old.body, "PayloadMismatch")


def add_a_strange_document(end: EndState) -> None:
    end.orders.append({"id": "ORD-77", "type": "order", "orderId": "ORD-77"})


TAMPERING: list[tuple[Callable[[EndState], None], set[str]]] = [
    (drop_an_entry, {"lost", "position", "balance"}),
    (drop_an_order, {"lost"}),
    (drop_a_command, {"lost"}),
    (drop_a_batch, {"lost"}),
    (drop_a_state, {"state"}),
    (drop_a_parked_copy, {"quarantine"}),
    (double_an_entry, {"double", "position", "balance"}),
    (double_an_entry_under_another_id, {"double", "position", "balance"}),
    (double_an_order, {"order"}),
    (park_a_good_message, {"quarantine"}),
    (swap_two_positions, {"order"}),
    (swap_two_unnumbered_entries, {"order"}),
    (swap_two_amounts, {"amount"}),
    (change_an_amount, {"amount", "balance"}),
    (change_a_balance, {"balance"}),
    (change_a_total, {"total"}),
    (change_an_order_line, {"order"}),
    (change_what_was_sent, {"outbox"}),
    (change_the_order_of_what_was_sent, {"outbox"}),
    (change_a_payload_hash, {"record"}),
    (apply_what_is_held, {"entry"}),
    (undo_a_rejection, {"command"}),
    (leave_an_outbox_unfinished, {"unfinished"}),
    (leave_a_ledger_unfinished, {"unfinished"}),
    (leave_a_ledger_outbox, {"unfinished"}),
    (leave_a_message_waiting, {"left-over"}),
    (leave_a_dead_letter, {"dead-letter"}),
    (let_an_order_expire, {"order"}),
    (park_with_another_reason, {"quarantine"}),
    (add_a_strange_document, {"order"}),
]


@pytest.mark.parametrize(("tamper", "rules"), TAMPERING, ids=[tamper.__name__ for tamper, _ in TAMPERING])
def test_tampering_is_found(tamper: Callable[[EndState], None], rules: set[str]) -> None:
    expectation = day()
    end = perfect(expectation)
    tamper(end)
    verdict = verify(expectation, end)
    assert not verdict.is_proven
    assert rules <= {violation.rule for violation in verdict.violations}


def test_every_allowed_end_is_accepted() -> None:
    first = line("orders", "ORD-1", "WRONG", {"type": "order.placed", "orderId": "ORD-1"})
    expectation = expected(first, placed("ORD-1"))  # the second may vanish in the window, and then there is no order
    endings = expectation.orders["ORD-1"]
    assert endings is not None
    assert len(endings) == 2
    for ending in range(2):
        verdict = verify(expectation, perfect(expectation, ending=ending))
        assert verdict.is_proven, verdict.violations
        assert verdict.alternatives == 1


def test_the_end_that_explains_the_parked_copies_is_chosen() -> None:
    twin = entry("1", stream="order", amount="99", sequence=1)
    expectation = expected(placed("ORD-1", "10"), twin)
    order = expectation.orders["ORD-1"]
    assert order is not None
    endings = expectation.streams("ORD-1", [order[0].state.postings])["order"]
    assert endings is not None
    for ending in range(len(endings)):  # the loser vanished, or was parked
        verdict = verify(expectation, perfect(expectation, ending=ending))
        assert verdict.is_proven, verdict.violations
    assert any(ending.parked for ending in endings)
    assert any(not ending.parked for ending in endings)


def test_a_copy_left_twice_by_a_crash_counts_once() -> None:
    expectation = day()
    end = perfect(expectation)
    end.quarantine.append(end.quarantine[0])
    verdict = verify(expectation, end)
    assert verdict.is_proven
    assert verdict.quarantined == {"InvalidMessage": 1}


def test_an_empty_input_is_proven() -> None:
    verdict = verify(expected(), EndState())
    assert verdict.is_proven
    assert verdict.orders_checked == 0
