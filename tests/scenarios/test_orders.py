"""The order messages, from the queue to the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from .harness import App, enc
from .messages import amended, cancelled, fresh, line, message_id_of, placed, status

pytestmark = pytest.mark.asyncio(loop_scope="session")


def shape(entries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(e["sequence"], e["kind"], e["amount"], e["refersTo"], e["status"], e["position"]) for e in entries]


async def test_order_is_created_fanned_out_applied_and_settled(app: App) -> None:
    """C34 C36 C05 C08 C35: MessageId = order id = document id = partition key; completed on success only."""
    order_id = fresh()
    message_id = await app.send(placed(order_id), correlation_id="corr-1")
    assert await app.outcomes(message_id) == ["created"]
    assert await app.outcomes(f"{order_id}:order:1") == ["applied"]
    assert await app.outcomes(f"{order_id}:order:2") == ["applied"]
    order = await app.order(order_id)
    assert order is not None
    assert (order["id"], order["orderId"], order["state"], order["total"]) == (order_id, order_id, "open", "19.00")
    assert (order["sequenced"], order["nextCommand"], order["nextEntry"], order["revision"]) == (False, None, 3, 1)
    record = order["record"]
    assert (record["key"], record["messageId"], record["status"]) == (order_id, order_id, "completed")
    assert record["outbox"] == {"queue": "ledger-entries", "total": 2, "sent": 2, "proof": record["outbox"]["proof"]}
    assert "ttl" not in order
    assert shape(await app.entries(order_id)) == [
        (1, "add", "7.00", None, "applied", 1),
        (2, "add", "12", None, "applied", 2),
    ]
    assert (await app.state(order_id))["balances"] == {"EUR": "19.00"}
    fields = app.fields_of(message_id)
    assert (fields["dedup_key"], fields["session_id"], fields["correlation_id"]) == (order_id, order_id, "corr-1")
    await app.quiet()
    assert app.stack.service.counts("orders").dead_letter == 0


async def test_commit_comes_before_the_send_and_the_settlement_last(app: App) -> None:
    """C05 C14: create, send, completion of the record, settlement, in this order."""
    order_id, steps = fresh(), []
    stack = app.stack

    def on_request(record: Any) -> None:
        if record.partition_key == f'["{order_id}"]' and record.container == "orders":
            steps.append(record.operation)

    def on_broker(event: Any) -> None:
        if type(event).__name__ == "Sent" and event.queue == "ledger-entries":
            steps.append("send")
        elif type(event).__name__ == "Settled" and event.queue == "orders" and event.message_id == order_id:
            steps.append(event.outcome.value)

    stack.cosmos.observers.append(on_request)
    stack.broker.observers.append(on_broker)
    try:
        assert await app.outcome(placed(order_id)) == "created"
    finally:
        stack.cosmos.observers.remove(on_request)
        stack.broker.observers.remove(on_broker)
    assert steps == ["Create", "send", "Replace", "completed"]


async def test_life_of_a_sequenced_order(app: App) -> None:
    """C21 C42 C56: amended, confirmed, shipped and refused from then on; entries in line order, without holes."""
    order_id = fresh()
    bodies = [
        placed(order_id, sequence=1),
        amended(order_id, "op-7", line("1", 5), line("2", 0, "0", "CUP"), line("3", 1, "0.25"), sequence=2),
        status(order_id, "confirmed", 1),
        status(order_id, "shipped", 2),
        cancelled(order_id, "op-8", sequence=3),
    ]
    await app.send_all(bodies)
    expected = ["created", "applied", "applied", "applied", "rejected"]
    assert [(await app.outcomes(message_id_of(body)))[0] for body in bodies] == expected
    await app.quiet()
    order = await app.order(order_id)
    assert order is not None
    assert [(each["lineId"], each["amount"]) for each in order["lines"]] == [("1", "17.50"), ("3", "0.25")]
    assert (order["total"], order["fulfilment"]) == ("17.75", {"status": "shipped", "version": 2})
    assert (order["nextCommand"], order["nextEntry"], order["state"]) == (4, 6, "open")
    assert shape(await app.entries(order_id)) == [
        (1, "add", "7.00", None, "applied", 1),
        (2, "add", "12", None, "applied", 2),
        (3, "amend", "10.50", "1", "applied", 3),
        (4, "void", "-12", "2", "applied", 4),
        (5, "add", "0.25", None, "applied", 5),
    ]
    assert (await app.state(order_id))["balances"] == {"EUR": "17.75"}
    rejected = await app.document("orders", order_id, f"{order_id}:op-8")
    assert rejected is not None
    assert rejected["record"]["result"] == {"outcome": "rejected", "reason": "OrderShipped"}
    assert rejected["ttl"] == 5_184_000


async def test_cancelled_order_voids_each_line_and_closes_its_stream(app: App) -> None:
    """C66: the last entry is the end of the sequence, with the number of entries before it."""
    order_id = fresh()
    lines = (line("1", 2), line("2", 1, "12"), line("3", 1, "1"))
    await app.send_all([placed(order_id, *lines), cancelled(order_id, "op-1")])
    assert await app.outcomes(f"{order_id}:op-1") == ["applied"]
    await app.outcomes(f"{order_id}:order:7")
    assert [(e["kind"], e["amount"], e["entryCount"]) for e in (await app.entries(order_id))[3:]] == [
        ("void", "-7.00", None),
        ("void", "-12", None),
        ("void", "-1", None),
        ("close", None, 6),
    ]
    state = await app.state(order_id)
    assert state["balances"] == {"EUR": "0.00"}
    assert state["streams"]["order"]["closed"] == {"entryCount": 6, "complete": True}
    order = await app.order(order_id)
    assert order is not None
    assert (order["state"], order["total"], len(order["lines"])) == ("cancelled", "20.00", 3)  # what was cancelled


async def test_rejected_command_answers_its_duplicate_with_the_recorded_result(app: App) -> None:
    """C06: what was recorded is the answer to every copy."""
    order_id = fresh()
    await app.send_all([placed(order_id), cancelled(order_id, "op-1")])
    late = amended(order_id, "op-2")
    assert await app.outcome(late) == "rejected"
    assert await app.outcome(late) == "duplicate"
    found = await app.document("orders", order_id, f"{order_id}:op-2")
    assert found is not None
    assert found["record"]["result"] == {"outcome": "rejected", "reason": "OrderCancelled"}


async def test_status_goes_by_its_version(app: App) -> None:
    """C21 C28: an absolute state with a version; older ones are stale, equal ones duplicates, others conflicts."""
    order_id = fresh()
    await app.send(placed(order_id))
    assert await app.outcome(status(order_id, "shipped", 3)) == "applied"
    assert await app.outcome(status(order_id, "shipped", 3)) == "duplicate"
    assert await app.outcome(status(order_id, "confirmed", 1)) == "stale"
    assert await app.outcome(status(order_id, "returned", 3)) == "conflict"
    order = await app.order(order_id)
    assert order is not None
    assert order["fulfilment"] == {"status": "shipped", "version": 3}
    assert (await app.only_parked(order_id)).reason == "PayloadMismatch"


@pytest.mark.parametrize("build", [lambda order: amended(order, "op-1"), lambda order: status(order, "shipped", 1)])
async def test_command_for_an_unknown_order_is_parked_at_once(app: App, build: Any) -> None:
    """C41 C67: no redelivery can help, so the first delivery parks it."""
    order_id = fresh()
    assert await app.outcome(build(order_id)) == "quarantined"
    copy = await app.only_parked(order_id)
    assert (copy.reason, copy.properties["quarantine-delivery-count"]) == ("OrderUnknown", "1")
    assert await app.documents("orders", order_id) == []


async def test_successors_of_a_parked_command_park_behind_it(app: App) -> None:
    """C28 C65 R21: a gap in the numbers of commands is found, and nothing overtakes what is missing."""
    order_id = fresh()
    await app.send_all([placed(order_id, sequence=1), amended(order_id, "op-3", sequence=3)])
    assert await app.outcomes(f"{order_id}:op-3") == ["quarantined"]
    assert (await app.only_parked(order_id)).reason == "SequenceGap"
    assert await app.outcome(amended(order_id, "op-2", line("1", 4), sequence=2)) == "applied"
    assert await app.outcome(amended(order_id, "op-9", line("1", 9), sequence=2)) == "quarantined"
    assert [copy.reason for copy in app.parked(order_id)] == ["SequenceGap", "SequenceConflict"]


@pytest.mark.parametrize(
    "order_id",
    [
        "a/b",
        "a\\b",
        "a?b",
        "a#b",
        'q"q"',
        "Bestellung für Jörg",
        "注文-1",
        "é",
        "e\u0301",
        "x" * 63,
        "%2F",
        "a+b @=;,",
        "~state",
    ],
)
async def test_ids_are_kept_exactly_whatever_they_hold(app: App, order_id: str) -> None:
    """R25 R43 D16 D17 C07: every id is stored safely, found again, and equal to nothing but itself."""
    own = f"{order_id[:50]}{fresh('')[:12]}" if len(order_id) < 60 else fresh("x" * 40)
    body = placed(own)
    assert await app.outcome(body) == "created"
    assert await app.outcome(body) == "duplicate"
    await app.outcomes(f"{own}:order:2")
    order = await app.document("orders", own, enc(own))
    assert order is not None
    assert order["orderId"] == order["record"]["key"] == own
    assert (await app.state(own))["balances"] == {"EUR": "19.00"}


async def test_ids_in_two_unicode_forms_are_two_orders(app: App) -> None:
    """R43 D16: nothing is normalised, on no path."""
    suffix = fresh("-")
    composed, decomposed = "\u00e9" + suffix, "e\u0301" + suffix
    assert await app.outcome(placed(composed)) == "created"
    assert await app.outcome(placed(decomposed, line("1", 1, "5"))) == "created"
    first, second = await app.order(composed), await app.order(decomposed)
    assert first is not None
    assert second is not None
    assert (first["total"], second["total"]) == ("19.00", "5")
