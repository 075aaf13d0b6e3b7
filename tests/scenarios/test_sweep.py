"""The sweep: what is accepted is sent even if its message is gone, and what waits too long is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from .harness import App, running
from .messages import batch, entry, fresh, placed, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def swept(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    settings = {"SWEEP_SCHEDULE": "*/1 * * * * *", "TRANSIENT_BUDGET_SECONDS": "60", "SWEEP_GRACE_SECONDS": "70"}
    async with running(tmp_path_factory.mktemp("swept"), settings=settings) as app:
        yield app


async def leave_unfinished(app: App, body: dict[str, object], container: str, partition: str) -> None:
    """Accept a message, die before it is sent, and lose the message."""
    assert app.stack.host is not None
    function = "process_order" if container == "orders" else "fan_out_ledger"
    queue = app.stack.service.broker.queue("orders" if container == "orders" else "ledger")
    pause = partial(app.stack.host.set_disabled, function, disabled=True)
    with app.crashing_when_all_are_at({(container, partition): (1, True)}, then=pause) as crash:
        await app.send(body)
        await app.until(lambda: crash.happened, "the worker died behind the commit")
    await app.until(lambda: queue.counts(app.clock()).locked == 0, "the message is back in its queue")
    assert queue.delete_batch(1, app.clock() + 1, app.clock()) == 1
    app.stack.host.set_disabled(function, disabled=False)


async def test_order_whose_message_is_gone_is_sent_after_the_grace_period(swept: App) -> None:
    """C15 C53 D01 R38: an accepted order's ledger messages are sent, once, with the stored ids."""
    order_id = fresh()
    await leave_unfinished(swept, placed(order_id), "orders", order_id)
    order = await swept.order(order_id)
    assert order is not None
    assert (order["record"]["status"], order["record"]["outbox"]["sent"]) == ("accepted", 0)
    runs = len(swept.told("sweep.finished"))
    await swept.until(lambda: len(swept.told("sweep.finished")) > runs, "a sweep has left it alone")
    assert await swept.entries(order_id) == []
    swept.clock.ahead += 200
    await swept.outcomes(f"{order_id}:order:1")
    await swept.outcomes(f"{order_id}:order:2")
    order = await swept.order(order_id)
    assert order is not None
    assert (order["record"]["status"], order["record"]["claim"]["sweeps"]) == ("completed", 0)
    assert [e["position"] for e in await swept.entries(order_id)] == [1, 2]
    assert any(line.fields.get("record") == order_id for line in swept.told("outbox.swept"))
    assert await swept.outcome(placed(order_id)) == "duplicate"


async def test_next_batch_of_a_ledger_finishes_its_predecessor_first(swept: App) -> None:
    """C74 D04: no batch overtakes the rest of its predecessor, even if that one's message is gone."""
    ledger_id, order_id = fresh("L"), fresh()
    first = batch(ledger_id, "B-1", transaction(1, order_id, sequence=1), batchSequence=1)
    await leave_unfinished(swept, first, "ledgers", ledger_id)
    assert (
        await swept.outcome(batch(ledger_id, "B-2", transaction(2, order_id, sequence=2), batchSequence=2)) == "created"
    )
    await swept.quiet()
    assert [(e["transactionId"], e["position"]) for e in await swept.entries(order_id)] == [("T-1", 1), ("T-2", 2)]
    record = await swept.document("ledgers", ledger_id, f"{ledger_id}:B-1")
    assert record is not None
    assert record["record"]["status"] == "completed"
    assert await swept.outcome(first) == "duplicate"


async def test_gap_that_is_too_old_is_reported(swept: App) -> None:
    """C65 D47 R21 R22: held entries alarm after a while; nothing is released for it."""
    order_id = fresh()
    assert await swept.outcome(entry(order_id, "T-2", sequence=2)) == "held"
    swept.clock.ahead += 61
    await swept.until(
        lambda: any(line.fields.get("session_id") == order_id for line in swept.told("gap.open")), "the gap is reported"
    )
    (line,) = [line for line in swept.told("gap.open") if line.fields.get("session_id") == order_id][:1]
    assert (line.fields["stream"], line.fields["lowest_held"]) == ("ledger.L-1", 2)
    assert [e["status"] for e in await swept.entries(order_id)] == ["held"]
