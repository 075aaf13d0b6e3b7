"""The crash matrix: for every handler, a crash before and behind every I/O operation ends as no crash at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.envelope import OutgoingMessage, Role
from tests.crash.matrix import Case, end_of, end_without, message, operations_of, points_of

Sent = tuple[Role, OutgoingMessage]


def placed(lines: int = 3, **members: Any) -> Sent:
    body = {
        "type": "order.placed",
        "orderId": "O",
        "sequence": 1,
        "currency": "EUR",
        "lines": [
            {"lineId": str(line), "sku": "S", "quantity": 2, "unitPrice": "1.5"} for line in range(1, lines + 1)
        ],
        **members,
    }
    return message(Role.ORDERS, "O", "O", body)


def command(kind: str, number: int, **members: Any) -> Sent:
    body = {"type": f"order.{kind}", "orderId": "O", "operationId": f"op{number}", "sequence": number, **members}
    return message(Role.ORDERS, f"O:op{number}", "O", body)


def amended(number: int = 2) -> Sent:
    lines = [{"lineId": "1", "sku": "S", "quantity": 9, "unitPrice": "1.5"}]
    return command("amended", number, lines=lines)


def status(value: str, version: int) -> Sent:
    body = {"type": "order.status", "orderId": "O", "status": value, "version": version}
    return message(Role.ORDERS, f"O:status.{version}", "O", body)


def ledger(batch: int, first: int, count: int) -> Sent:
    transactions = [
        {"transactionId": f"T{number}", "orderId": "O", "kind": "add", "amount": "1.25", "sequence": number}
        for number in range(first, first + count)
    ]
    body = {
        "ledgerId": "L",
        "batchId": f"B{batch}",
        "batchSequence": batch,
        "currency": "EUR",
        "transactions": transactions,
    }
    return message(Role.LEDGER, f"L:B{batch}", "L", body)


def entry(number: int, kind: str = "add", **members: Any) -> Sent:
    body = {
        "orderId": "O",
        "stream": "ledger.L",
        "transactionId": f"T{number}",
        "sequence": number,
        "kind": kind,
        "currency": "EUR",
        **({"amount": "2"} if kind != "close" else {}),
        **members,
    }
    return message(Role.LEDGER_ENTRIES, f"O:ledger.L:T{number}", "O", body)


CASES = [
    Case("order.placed", (), placed()),
    Case("order.placed, several AMQP batches", (), placed(lines=12)),
    Case("order.placed, duplicate", (placed(),), placed()),
    Case("order.placed, conflict", (placed(),), placed(currency="USD")),
    Case("order.placed, resumed", (placed(lines=12),), placed(lines=12), unfinished=3),
    Case("order.placed, paid", (), placed(), pays=True),
    Case("order.amended", (placed(),), amended()),
    Case("order.amended, duplicate", (placed(), amended()), amended()),
    Case("order.amended, rejected", (placed(), status("shipped", 1)), amended()),
    Case("order.amended, gap", (placed(),), amended(4)),
    Case("order.cancelled", (placed(lines=2),), command("cancelled", 2)),
    Case("order.status", (placed(),), status("confirmed", 1)),
    Case("order.status, stale", (placed(), status("shipped", 3)), status("confirmed", 1)),
    Case("order.amended, unknown order", (), amended()),
    Case("ledger.batch", (), ledger(1, 1, 3)),
    Case("ledger.batch, several AMQP batches", (), ledger(1, 1, 12)),
    Case("ledger.batch, duplicate", (ledger(1, 1, 3),), ledger(1, 1, 3)),
    Case("ledger.batch, predecessor unfinished", (ledger(1, 1, 12),), ledger(2, 13, 3), unfinished=3),
    Case("entry, applied", (), entry(1)),
    Case("entry, duplicate", (entry(1),), entry(1)),
    Case("entry, held", (entry(1),), entry(3)),
    Case("entry, releasing", (entry(3), entry(4), entry(2)), entry(1)),
    Case("entry, close with refused", (entry(3), entry(1)), entry(2, "close", entryCount=1)),
    Case("entry, after the close", (entry(1), entry(2, "close", entryCount=1)), entry(3)),
    Case("sweep, order", (placed(lines=12),), None, unfinished=3),
    Case("sweep, command", (placed(), amended()), None, unfinished=2),
    Case("sweep, ledger batch", (ledger(1, 1, 12),), None, unfinished=4),
    Case("sweep, payment", (placed(),), None, pays=True, unfinished=1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_crash_at_any_point_ends_like_none(case: Case) -> None:  # C02 C03 C14 C42 C46 R11 R39 D01 D02 D03 D53
    without = end_of(case, None)
    for point in points_of(case):
        assert end_of(case, point) == without, f"{case.name}: crash {point}: {operations_of(case)}"


@pytest.mark.parametrize("case", [case for case in CASES if case.message], ids=lambda case: case.name)
def test_whatever_a_crash_left_is_finished_by_the_sweep_alone(case: Case) -> None:  # C15 C46 D01 D02 D03
    """The message never comes again: from the first write on that says so, its documents are enough."""
    without, never = end_of(case, None), end_without(case)
    has_begun = False
    for point in points_of(case):
        end = end_of(case, point, is_redelivered=False)
        has_begun = has_begun or end == without
        assert end == (without if has_begun else never), f"{case.name}: crash {point}: {operations_of(case)}"


def test_the_matrix_covers_the_operations_of_the_cost_table(record_property: Callable[[str, object], None]) -> None:
    """Requests and sends of each case, shown at the end of the run; the servers count the same in tests/scenarios."""
    counts = {}
    for case in CASES:
        operations = operations_of(case)
        sends = sum(operation.startswith("send ledger-entries") for operation in operations)
        calls = sum(operation.startswith("pay") for operation in operations)
        parks = sum(operation.startswith("send quarantine") for operation in operations)
        counts[case.name] = (len(operations) - sends - calls - parks, sends)
    lines = [f"  {name:40} {requests} requests, {sends} sends" for name, (requests, sends) in counts.items()]
    record_property("table", "\n".join(["the crash matrix: operations of each case", *lines]))
    expected = {
        "order.placed": (2, 1),
        "order.placed, several AMQP batches": (5, 4),
        "order.placed, duplicate": (2, 0),
        "order.placed, paid": (3, 1),
        "order.amended": (3, 1),
        "order.amended, duplicate": (2, 0),
        "order.amended, rejected": (3, 0),
        "order.cancelled": (3, 1),
        "order.status": (2, 0),
        "entry, applied": (2, 0),
        "entry, held": (2, 0),
        "entry, releasing": (2, 0),
        "ledger.batch": (3, 1),
    }
    assert {name: counts[name] for name in expected} == expected
