"""Ledgers: walked transaction by transaction, each to its order's session; entries applied in order, or held."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from .harness import App
from .messages import amended, batch, entry, fresh, line, message_id_of, placed, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")


@contextlib.contextmanager
def nobody_applies(app: App) -> Iterator[None]:
    """Leave entries in their queue, to look at them."""
    assert app.stack.host is not None
    app.stack.host.set_disabled("apply_entry", disabled=True)
    try:
        yield
    finally:
        app.stack.host.set_disabled("apply_entry", disabled=False)


async def test_each_transaction_goes_to_its_orders_session_in_the_order_received(app: App) -> None:
    """C74 C75 C76 C09 R61: SessionId = order id, deterministic MessageIds, correlation and content type."""
    ledger_id, first, second = fresh("L"), fresh(), fresh()
    body = batch(
        ledger_id,
        "B-1",
        transaction(1, first, "19.00", sequence=1),
        transaction(2, second, "7.5"),
        transaction(3, first, "-1.50", kind="amend", refersTo="T-1", sequence=2),
        {"transactionId": "T-4", "orderId": first, "kind": "close", "entryCount": 2, "sequence": 3},
        transaction(5, second, "-7.5", kind="void", refersTo="T-2"),
        batchSequence=1,
    )
    stream = f"ledger.{ledger_id}"
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with nobody_applies(app):
        assert await app.outcome(body, correlation_id="corr-7", properties={"traceparent": trace}) == "created"
        sent = app.peek("ledger-entries")
    assert [(each.session_id, each.message_id) for each in sent] == [
        (first, f"{first}:{stream}:T-1"),
        (second, f"{second}:{stream}:T-2"),
        (first, f"{first}:{stream}:T-3"),
        (first, f"{first}:{stream}:T-4"),
        (second, f"{second}:{stream}:T-5"),
    ]
    assert {each.correlation_id for each in sent} == {"corr-7"}
    assert {each.content_type for each in sent} == {"application/json"}
    assert {each.subject for each in sent} == {"ledger.entry"}
    assert all(str(each.properties["traceparent"]).split("-")[1] == trace.split("-")[1] for each in sent)
    assert json.loads(sent[2].body) == {
        "type": "ledger.entry",
        "orderId": first,
        "stream": stream,
        "transactionId": "T-3",
        "sequence": 2,
        "kind": "amend",
        "amount": "-1.50",
        "currency": "EUR",
        "refersTo": "T-1",
        "meta": {"source": {"consumer": "fan_out_ledger", "key": f"{ledger_id}:B-1", "index": 2}},
    }
    await app.outcomes(f"{first}:{stream}:T-4")
    await app.outcomes(f"{second}:{stream}:T-5")
    assert [(e["transactionId"], e["position"]) for e in await app.entries(first)] == [
        ("T-1", 1),
        ("T-3", 2),
        ("T-4", 3),
    ]
    state = await app.state(first)
    assert state["balances"] == {"EUR": "17.50"}
    assert state["streams"][stream]["closed"] == {"entryCount": 2, "complete": True}
    assert (await app.state(second))["balances"] == {"EUR": "0.0"}


async def test_order_messages_carry_the_same_to_the_ledger(app: App) -> None:
    """C75 C76 R61: entries of an order; without a correlation id the dedup key takes its place."""
    order_id = fresh()
    with nobody_applies(app):
        await app.outcome(placed(order_id))
        sent = app.peek("ledger-entries", order_id)
    assert [each.message_id for each in sent] == [f"{order_id}:order:1", f"{order_id}:order:2"]
    assert {(each.correlation_id, each.subject) for each in sent} == {(order_id, "ledger.entry")}


async def test_completed_batch_leaves_a_proof_and_no_messages(app: App) -> None:
    """C14 C42 C74: record, outbox and ledger state change together."""
    ledger_id, order_id = fresh("L"), fresh()
    assert await app.outcome(batch(ledger_id, "B-1", transaction(1, order_id), batchSequence=1)) == "created"
    documents = {each["id"]: each for each in await app.documents("ledgers", ledger_id)}
    assert set(documents) == {"~state", f"{ledger_id}:B-1"}
    state, record = documents["~state"], documents[f"{ledger_id}:B-1"]
    assert (state["nextBatch"], state["unfinished"]) == (2, None)
    assert (record["record"]["status"], record["ttl"], record["batchSequence"]) == ("completed", 5_184_000, 1)
    outbox = record["record"]["outbox"]
    assert (outbox["total"], outbox["sent"], len(outbox["proof"])) == (1, 1, 11)
    assert "messages" not in outbox
    assert (await app.entries(order_id))[0]["record"]["source"] == {
        "consumer": "fan_out_ledger",
        "key": f"{ledger_id}:B-1",
        "index": 0,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"orderId": ["A", "B"]},
        {"orderIds": ["A", "B"]},
        {"secondOrderId": "B"},
        {"orderId": None},
    ],
)
async def test_transaction_that_spans_orders_is_refused(app: App, change: dict[str, Any]) -> None:
    """C77: one order a transaction; the whole batch is parked before anything is sent."""
    ledger_id, order_id = fresh("L"), fresh()
    body = batch(ledger_id, "B-1", transaction(1, order_id), {**transaction(2, order_id), **change})
    await app.send(json.dumps(body), role="ledger", message_id=f"{ledger_id}:B-1", session=ledger_id)
    assert await app.outcomes(f"{ledger_id}:B-1") == ["quarantined"]
    assert (await app.only_parked(ledger_id)).reason == "InvalidMessage"
    assert await app.documents("ledgers", ledger_id) == []
    assert await app.documents("ledger-entries", order_id) == []


async def test_batches_of_a_ledger_are_handled_in_the_order_received(app: App) -> None:
    """C74 C56 C78: entries of a later batch come behind those of an earlier one, in every order's session."""
    ledger_id, orders = fresh("L"), [fresh() for _ in range(3)]
    bodies = [
        batch(
            ledger_id,
            f"B-{b}",
            *(transaction(10 * b + n, order, f"{b}.00") for n, order in enumerate(orders)),
            batchSequence=b,
        )
        for b in range(1, 6)
    ]
    await app.send_all(bodies)
    assert [(await app.outcomes(message_id_of(body)))[0] for body in bodies] == ["created"] * 5
    await app.quiet()
    for n, order in enumerate(orders):
        assert [e["transactionId"] for e in await app.entries(order)] == [f"T-{10 * b + n}" for b in range(1, 6)]


async def test_batch_that_comes_too_early_is_parked_and_too_late_is_a_conflict(app: App) -> None:
    """C65 R21: numbers of batches are checked like numbers of commands."""
    ledger_id, order_id = fresh("L"), fresh()
    assert await app.outcome(batch(ledger_id, "B-2", transaction(2, order_id), batchSequence=2)) == "quarantined"
    assert await app.outcome(batch(ledger_id, "B-1", transaction(1, order_id), batchSequence=1)) == "created"
    assert await app.outcome(batch(ledger_id, "B-0", transaction(9, order_id), batchSequence=1)) == "quarantined"
    assert await app.outcome(batch(ledger_id, "B-x", transaction(8, order_id))) == "quarantined"
    reasons = [copy.reason for copy in app.parked(ledger_id)]
    assert reasons == ["SequenceGap", "SequenceConflict", "SequenceConflict"]


async def test_same_transaction_in_another_batch_is_a_duplicate(app: App) -> None:
    """C07 C38: where an entry came from is evidence, not content."""
    ledger_id, order_id = fresh("L"), fresh()
    entry_id = f"{order_id}:ledger.{ledger_id}:T-1"
    await app.outcome(batch(ledger_id, "B-1", transaction(1, order_id)))
    assert await app.outcomes(entry_id) == ["applied"]
    await app.outcome(batch(ledger_id, "B-2", transaction(1, order_id)))
    assert await app.outcomes(entry_id, 2) == ["applied", "duplicate"]


async def test_entries_behind_a_gap_are_held_and_released_at_once(app: App) -> None:
    """C28 C65 C78 D47 D48 R22: held durably, released in order by the one that closes the gap, in one batch."""
    order_id, stream = fresh(), "ledger.L-9"
    assert await app.outcome(entry(order_id, "T-1", stream, sequence=1)) == "applied"
    for number in (4, 3, 10, 9):
        assert await app.outcome(entry(order_id, f"T-{number}", stream, sequence=number)) == "held"
    assert await app.outcome(entry(order_id, "T-3", stream, sequence=3)) == "duplicate"
    state = await app.state(order_id)
    assert (state["applied"], state["balances"], state["streams"][stream]["next"]) == (1, {"EUR": "1.00"}, 2)
    assert [held["sequence"] for held in state["streams"][stream]["held"]] == [3, 4, 9, 10]
    assert await app.outcome(entry(order_id, "T-2", stream, sequence=2)) == "applied"
    state = await app.state(order_id)
    assert (state["applied"], state["balances"], state["streams"][stream]["next"]) == (4, {"EUR": "4.00"}, 5)
    found = [(e["sequence"], e["status"], e["position"]) for e in await app.entries(order_id)]
    assert found == [
        (1, "applied", 1),
        (2, "applied", 2),
        (3, "applied", 3),
        (4, "applied", 4),
        (9, "held", None),
        (10, "held", None),
    ]
    for number in range(5, 9):
        assert await app.outcome(entry(order_id, f"T-{number}", stream, sequence=number)) == "applied"
    assert [(e["sequence"], e["position"]) for e in await app.entries(order_id)] == [(n, n) for n in range(1, 11)]
    assert app.parked(order_id) == []


async def test_held_entries_survive_the_worker(app: App) -> None:
    """R22: what is held is in the database; a worker that never saw it releases it."""
    order_id = fresh()
    assert await app.outcome(entry(order_id, "T-2", sequence=2)) == "held"
    starts = app.starts
    assert app.stack.host is not None
    app.stack.host.kill_worker()
    await app.until(lambda: app.starts > starts, "the next worker is up")
    assert await app.outcome(entry(order_id, "T-1", sequence=1)) == "applied"
    assert [(e["sequence"], e["position"]) for e in await app.entries(order_id)] == [(1, 1), (2, 2)]


async def test_number_that_is_known_with_another_entry_is_parked(app: App) -> None:
    """D47 C39: below the expected number only the entry that was applied is a duplicate."""
    order_id = fresh()
    await app.outcome(entry(order_id, "T-1", sequence=1))
    assert await app.outcome(entry(order_id, "T-9", sequence=1)) == "quarantined"
    await app.outcome(entry(order_id, "T-3", sequence=3))
    assert await app.outcome(entry(order_id, "T-8", sequence=3)) == "quarantined"
    assert await app.outcome(entry(order_id, "T-7")) == "quarantined"
    assert [copy.reason for copy in app.parked(order_id)] == ["SequenceConflict"] * 3
    assert [e["transactionId"] for e in await app.entries(order_id)] == ["T-1", "T-3"]


async def test_closed_stream_takes_nothing_more(app: App) -> None:
    """C66 D51: the flag, the count and a stream without gap make it complete; what was held above it is refused."""
    order_id = fresh()
    await app.outcome(entry(order_id, "T-4", sequence=4))
    await app.outcome(entry(order_id, "T-3", sequence=3, kind="close", entryCount=2))
    await app.outcome(entry(order_id, "T-1", sequence=1))
    assert await app.outcome(entry(order_id, "T-2", sequence=2)) == "applied"
    state = await app.state(order_id)
    assert state["streams"]["ledger.L-1"]["closed"] == {"entryCount": 2, "complete": True}
    assert [e["status"] for e in await app.entries(order_id)] == ["applied", "applied", "applied", "refused"]
    assert any(line.fields.get("session_id") == order_id for line in app.told("entry.refused"))
    assert await app.outcome(entry(order_id, "T-5", sequence=5)) == "quarantined"
    assert (await app.only_parked(order_id)).reason == "SequenceClosed"


async def test_unsequenced_stream_is_complete_when_the_count_is_reached(app: App) -> None:
    """C66 D51: before that it is reported, and entries are taken."""
    order_id = fresh()
    await app.outcome(entry(order_id, "T-1"))
    assert await app.outcome(entry(order_id, "T-c", kind="close", entryCount=2)) == "applied"
    assert (await app.state(order_id))["streams"]["ledger.L-1"]["closed"] == {"entryCount": 2, "complete": False}
    assert any(line.fields.get("session_id") == order_id for line in app.told("stream.incomplete"))
    assert await app.outcome(entry(order_id, "T-2")) == "applied"
    assert (await app.state(order_id))["streams"]["ledger.L-1"]["closed"]["complete"] is True
    assert await app.outcome(entry(order_id, "T-3")) == "quarantined"
    assert (await app.only_parked(order_id)).reason == "SequenceClosed"


async def test_full_stream_parks_what_it_can_not_hold(app: App) -> None:
    """R22: what waits is bounded in number."""
    order_id = fresh()
    numbers = list(range(2, 97))
    await app.send_all([entry(order_id, f"T-{n}", sequence=n) for n in numbers])
    await app.outcomes(f"{order_id}:ledger.L-1:T-96")
    assert await app.outcome(entry(order_id, "T-97", sequence=97)) == "quarantined"
    assert (await app.only_parked(order_id)).reason == "HeldLimitExceeded"
    assert await app.outcome(entry(order_id, "T-1", sequence=1)) == "applied"
    assert (await app.state(order_id))["streams"]["ledger.L-1"]["next"] == 97


async def test_ledger_and_order_entries_of_one_order_share_its_session_and_balance(app: App) -> None:
    """C78 D49: positions run over all streams of an order."""
    ledger_id, order_id = fresh("L"), fresh()
    await app.outcome(placed(order_id))
    await app.outcome(batch(ledger_id, "B-1", transaction(1, order_id, "-19.00")))
    await app.outcome(amended(order_id, "op-1", line("1", 4)))
    await app.outcomes(f"{order_id}:order:3")
    await app.quiet()
    entries = await app.entries(order_id)
    assert [e["position"] for e in entries] == [1, 2, 3, 4]
    assert [e["transactionId"] for e in entries if e["stream"] == "order"] == ["1", "2", "3"]
    assert (await app.state(order_id))["balances"] == {"EUR": "7.00"}
