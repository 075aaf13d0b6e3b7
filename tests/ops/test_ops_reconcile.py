"""Reconciliation proves a good state, and finds each kind of tampering."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ops.invariants import Elsewhere, Finding, Kind, check_ledger, check_order, digest_of_entry
from tests.ops.operators import Bench
from tests.scenarios.messages import amended, batch, cancelled, entry, fresh, line, placed, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")

Documents = list[dict[str, Any]]
Tamper = Callable[[dict[str, dict[str, Any]]], object]


@pytest.fixture(scope="session")
def kept() -> dict[str, Any]:
    """The documents of one order and one ledger, read once from the database."""
    return {}


async def _read(bench: Bench, kept: dict[str, Any]) -> dict[str, Any]:
    if kept:
        return kept
    order, ledger = fresh(), fresh("L")
    await bench.app.outcome(placed(order, line("1", 2), line("2", 1, "12"), sequence=1))
    await bench.app.outcome(amended(order, "op-2", line("1", 5), sequence=2))
    await bench.app.outcome(batch(ledger, "B-1", transaction(1, order, sequence=1), batchSequence=1))
    await bench.app.outcome(batch(ledger, "B-2", transaction(2, order, "2.00", sequence=2), batchSequence=2))
    await bench.app.quiet()
    kept |= {
        "order": order,
        "ledger": ledger,
        "orders": await bench.app.documents("orders", order),
        "entries": await bench.app.documents("ledger-entries", order),
        "ledgers": await bench.app.documents("ledgers", ledger),
    }
    return kept


def _rules(found: list[Finding]) -> set[str]:
    return {one.rule for one in found if one.kind is Kind.VIOLATION}


def _by_id(documents: Documents) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in documents}


TAMPERINGS: dict[str, tuple[str, str]] = {
    # what is done: the rule that finds it
    "an entry is deleted": ("entries", "entry"),
    "an entry has another amount": ("entries", "balances"),
    "an entry has another hash": ("entries", "entry"),
    "a position is used twice": ("entries", "positions"),
    "two entries of a stream have changed places": ("entries", "sequence"),
    "the balance is changed": ("entries", "balances"),
    "the state counts too few": ("entries", "applied"),
    "the state is deleted": ("entries", "state"),
    "a held entry is forgotten by the state": ("entries", "held"),
    "the total is changed": ("orders", "total"),
    "the order posted more than came": ("orders", "order stream"),
    "a command's number is used twice": ("orders", "commands"),
    "a command is of the future": ("orders", "commands"),
    "a proof is cut": ("orders", "proof"),
    "an order expires": ("orders", "ttl"),
    "a document is of a newer release": ("orders", "document"),
    "the order is deleted": ("orders", "document"),
    "a batch is unfinished and nobody knows": ("ledgers", "unfinished"),
    "a ledger's outbox is left behind": ("ledgers", "outbox"),
    "a batch's number is ahead": ("ledgers", "batches"),
    "a batch's entry is gone": ("stored", "entry"),
}


def _tampered(name: str, kept: dict[str, Any]) -> list[Finding]:
    """Do it to a copy, and check that."""
    world = copy.deepcopy(kept)
    order, ledger = world["order"], world["ledger"]
    orders, entries, ledgers = _by_id(world["orders"]), _by_id(world["entries"]), _by_id(world["ledgers"])
    state, placed_, command = entries["~state"], orders[order], orders[f"{order}:op-2"]
    first, second = entries[f"{order}:order:1"], entries[f"{order}:order:2"]
    of_ledger = entries[f"{order}:ledger.{ledger}:T-1"]
    batch_ = ledgers[f"{ledger}:B-2"]
    tamper: dict[str, Callable[[], object]] = {
        "an entry is deleted": lambda: entries.pop(first["id"]),
        "an entry has another amount": lambda: first.update(amount="7.01"),
        "an entry has another hash": lambda: first["record"].update(payloadHash="sha256:jcs:v1:" + "0" * 64),
        "a position is used twice": lambda: first.update(position=second["position"]),
        "two entries of a stream have changed places": lambda: (first.update(position=2), second.update(position=1)),
        "the balance is changed": lambda: state["balances"].update(EUR="1"),
        "the state counts too few": lambda: state.update(applied=1),
        "the state is deleted": lambda: entries.pop("~state"),
        "a held entry is forgotten by the state": lambda: of_ledger.update(status="held", position=None),
        "the total is changed": lambda: placed_.update(total="1.00"),
        "the order posted more than came": lambda: placed_.update(nextEntry=9),
        "a command's number is used twice": lambda: orders.update(x={**command, "id": "x"}),
        "a command is of the future": lambda: command.update(sequence=7),
        "a proof is cut": lambda: command["record"]["outbox"].update(proof=""),
        "an order expires": lambda: placed_.update(ttl=60),
        "a document is of a newer release": lambda: placed_.update(v=2),
        "the order is deleted": lambda: orders.pop(order),
        "a batch is unfinished and nobody knows": lambda: batch_["record"].update(status="accepted"),
        "a ledger's outbox is left behind": lambda: ledgers.update(
            o={"id": f"~outbox.{batch_['id']}", "type": "ledgerOutbox", "v": 1, "messages": []}
        ),
        "a batch's number is ahead": lambda: batch_.update(batchSequence=9),
        "a batch's entry is gone": lambda: entries.pop(of_ledger["id"]),
    }
    if name:
        tamper[name]()
    stored = {digest_of_entry(each) for each in entries.values() if each["type"] == "ledgerEntry"}
    return [
        *check_order(order, list(orders.values()), list(entries.values()), Elsewhere()),
        *check_ledger(ledger, list(ledgers.values()), stored, Elsewhere()),
    ]


async def test_good_state_has_no_findings(bench: Bench, kept: dict[str, Any]) -> None:
    assert _tampered("", await _read(bench, kept)) == []


@pytest.mark.parametrize("name", TAMPERINGS)
async def test_tampering_is_found(bench: Bench, kept: dict[str, Any], name: str) -> None:
    assert TAMPERINGS[name][1] in _rules(_tampered(name, await _read(bench, kept)))


async def test_database_and_queues_are_reconciled(bench: Bench) -> None:
    """Contracts 7: what is parked and what waits is left over, what contradicts itself is a violation."""
    order, open_, gone = fresh(), fresh(), fresh()
    await bench.app.outcome(placed(order))
    await bench.app.outcome(cancelled(order, "op-1"))
    await bench.app.send(entry(open_, "T-2", sequence=2))
    await bench.app.outcomes(f"{open_}:ledger.L-1:T-2")
    await bench.app.outcome(placed(gone))
    await bench.app.quiet()
    container = bench.app.container("ledger-entries")
    (first, *_) = await bench.app.entries(gone)
    await container.delete_item(first["id"], partition_key=gone)

    found = await bench.ops("reconcile", "--wait", "0")
    assert found.code == 1
    mine = {(each["owner"], each["kind"], each["rule"]) for each in found.json["findings"]}
    assert not [each for each in mine if each[0] == order]
    assert (open_, "left over", "held") in mine
    assert (gone, "violation", "entry") in mine
    assert (gone, "violation", "positions") in mine
    restored = {name: value for name, value in first.items() if not name.startswith("_")}
    await container.create_item(restored)
    again = await bench.ops("reconcile", "--wait", "0")
    assert not [each for each in again.json["findings"] if each["owner"] == gone]


async def test_entry_on_its_way_is_no_violation(bench: Bench) -> None:
    """A message in the queue is waited for, and is left over if it stays there."""
    order = fresh()
    bench.pause("apply_entry")
    await bench.app.outcome(placed(order))
    found = await bench.ops("reconcile", "--wait", "0")
    mine = {(each["kind"], each["rule"]) for each in found.json["findings"] if each["owner"] == order}
    assert mine == {("left over", "waiting")}
    bench.resume("apply_entry")
