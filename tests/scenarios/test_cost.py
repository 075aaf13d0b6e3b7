"""What a message costs: requests to the database and AMQP batches sent, counted at the servers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from .harness import App
from .messages import Body, amended, batch, cancelled, entry, fresh, line, placed, session_of, status, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass(frozen=True)
class Budget:
    """Requests / sends of a first delivery and of a duplicate."""

    first: tuple[int, int]
    duplicate: tuple[int, int]


BUDGETS = {
    "placed": Budget((2, 1), (2, 0)),
    "amended": Budget((3, 1), (3, 0)),
    "amended, sequenced": Budget((3, 1), (2, 0)),
    "cancelled": Budget((3, 1), (2, 0)),  # the order says no today, so its record is read before a batch is tried
    "cancelled, sequenced": Budget((3, 1), (2, 0)),
    "rejected": Budget((3, 0), (2, 0)),
    "status": Budget((2, 0), (1, 0)),  # the order itself says that the version is known
    "entry, cold": Budget((2, 0), (2, 0)),
    "entry, warm": Budget((1, 0), (2, 0)),
    "entry, held, warm": Budget((1, 0), (2, 0)),
    "entry, held, cold": Budget((2, 0), (2, 0)),
    "entry that releases, warm": Budget((1, 0), (2, 0)),
    "entry without number, warm": Budget((1, 0), (2, 0)),
    "ledger batch, cold": Budget((3, 1), (2, 0)),
    "ledger batch, warm": Budget((2, 1), (2, 0)),
    "ledger batch without number, warm": Budget((2, 1), (2, 0)),
}


def scene(name: str, order: str, ledger: str) -> tuple[list[Body], Body]:
    """What comes before, and the message that is counted."""
    stream = "ledger.L-1"
    held = [entry(order, f"T-{n}", stream, sequence=n) for n in (3, 4)]
    scenes: dict[str, tuple[list[Body], Body]] = {
        "placed": ([], placed(order)),
        "amended": ([placed(order)], amended(order, "op-1")),
        "amended, sequenced": ([placed(order, sequence=1)], amended(order, "op-1", sequence=2)),
        "cancelled": ([placed(order)], cancelled(order, "op-1")),
        "cancelled, sequenced": ([placed(order, sequence=1)], cancelled(order, "op-1", sequence=2)),
        "rejected": ([placed(order), cancelled(order, "op-1")], amended(order, "op-2")),
        "status": ([placed(order)], status(order, "shipped", 1)),
        "entry, cold": ([], entry(order, "T-1", stream, sequence=1)),
        "entry, warm": ([entry(order, "T-1", stream, sequence=1)], entry(order, "T-2", stream, sequence=2)),
        "entry, held, warm": ([entry(order, "T-1", stream, sequence=1)], entry(order, "T-3", stream, sequence=3)),
        "entry, held, cold": ([], entry(order, "T-3", stream, sequence=3)),
        "entry that releases, warm": (
            [entry(order, "T-1", stream, sequence=1), *held],
            entry(order, "T-2", stream, sequence=2),
        ),
        "entry without number, warm": ([entry(order, "T-1", stream)], entry(order, "T-2", stream)),
        "ledger batch, cold": ([], batch(ledger, "B-1", transaction(1, order), batchSequence=1)),
        "ledger batch, warm": (
            [batch(ledger, "B-1", transaction(1, order), batchSequence=1)],
            batch(ledger, "B-2", transaction(2, order), batchSequence=2),
        ),
        "ledger batch without number, warm": (
            [batch(ledger, "B-1", transaction(1, order))],
            batch(ledger, "B-2", transaction(2, order)),
        ),
    }
    return scenes[name]


@pytest.mark.parametrize("name", BUDGETS)
async def test_message_costs_what_the_budget_says(app: App, name: str) -> None:
    """D54 R38 C61: round trips are what a session's throughput is made of."""
    before, body = scene(name, fresh(), fresh("L"))
    for each in before:
        await app.outcome(each)
        await app.quiet()
    container = {"orders": "orders", "ledger": "ledgers", "ledger-entries": "ledger-entries"}
    where = container["ledger" if "batchId" in body else "ledger-entries" if "stream" in body else "orders"]
    with app.counting(session_of(body), where) as first:
        await app.outcome(body)
        await app.quiet()
    with app.counting(session_of(body), where) as duplicate:
        assert await app.outcome(body) == "duplicate"
        await app.quiet()
    assert Budget((first.requests, first.sends), (duplicate.requests, duplicate.sends)) == BUDGETS[name]


async def test_submitting_costs_a_read_and_a_send(app: App) -> None:
    """The order's own cost comes on top when it is handled."""
    order = fresh()
    with app.counting(order, "orders") as first:
        code, _, _ = await app.request("POST", "/api/orders", body=placed(order))
        assert code == 202
        await app.outcomes(order)
        await app.quiet()
    with app.counting(order, "orders") as again:
        await app.request("POST", "/api/orders", body=placed(order))
    handling = BUDGETS["placed"].first
    assert (first.requests - handling[0], first.sends - handling[1]) == (1, 1)
    assert (again.requests, again.sends) == (1, 0)


async def test_order_of_many_lines_is_still_one_batch(app: App) -> None:
    """D05: a batch of AMQP holds what fits; nothing is sent one by one."""
    order = fresh()
    with app.counting(order, "orders") as cost:
        await app.outcome(placed(order, *(line(str(n)) for n in range(1, 201))))
    assert (cost.requests, cost.sends) == (2, 1)
    await app.quiet()
