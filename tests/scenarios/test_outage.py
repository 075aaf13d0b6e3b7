"""The database goes away and comes back: no delivery is burnt, nothing is parked, nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from local.cosmos.http import Response
from local.cosmos.server import CosmosServer

from .harness import App, running
from .messages import batch, entry, fresh, message_id_of, placed, status, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stored(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[App, Path]]:
    """The app on a database in a file."""
    folder = tmp_path_factory.mktemp("stored")
    async with running(folder, data=folder / "cosmos.db") as app:
        yield app, folder / "cosmos.db"


async def test_stopped_database_burns_no_delivery(stored: tuple[App, Path]) -> None:
    """C41 C54 D31 R23 R24: 50 messages in 10 sessions wait inside their first delivery, and keep their order."""
    app, path = stored
    await app.outcome(placed(fresh()))  # clients are open, as they are when a service goes away
    orders = [fresh() for _ in range(10)]
    ledgers = [fresh("L") for _ in range(2)]
    bodies = [placed(order) for order in orders]
    bodies += [status(order, "confirmed", n) for n in range(1, 4) for order in orders]
    batches = [
        batch(ledger, f"B-{n}", transaction(n, orders[0]), batchSequence=n) for ledger in ledgers for n in range(1, 6)
    ]
    old = app.stack.cosmos
    port = old.port
    await old.stop()
    await app.send_all(bodies)
    await app.send_all(batches)
    await app.until(lambda: app.stack.service.counts("orders").locked >= 10, "the app has every session in hand")
    await asyncio.sleep(1.5)  # the length of the outage
    new = CosmosServer(path=path, clock=app.clock)
    new.observers.append(app.on_request)
    await new.start(port=port)
    app.stack.cosmos = new
    try:
        for body in [*bodies, *batches]:
            await app.outcomes(message_id_of(body))
        await app.quiet()
        ends = [end for body in [*bodies, *batches] for end in app.ends_of(message_id_of(body))]
        assert {(end.outcome.value, end.delivery_count) for end in ends} == {("completed", 1)}
        outcomes = Counter(app.fields_of(message_id_of(body))["outcome"] for body in bodies)
        assert outcomes == {"created": 10, "applied": 30}
        for order in orders:
            found = await app.order(order)
            assert found is not None
            assert found["fulfilment"] == {"status": "confirmed", "version": 3}
            assert [e["sequence"] for e in await app.entries(order) if e["stream"] == "order"] == [1, 2]
        for queue in ("orders", "ledger", "ledger-entries"):
            assert app.stack.service.counts(queue).dead_letter == 0
        assert app.peek("quarantine") == []
    finally:
        await new.stop()


@pytest.mark.parametrize(
    ("status_code", "sub_status"), [(503, 0), (429, 3200), (408, 0), (500, 0), (449, 0), (410, 1002)]
)
async def test_answer_of_trouble_is_waited_out_inside_the_delivery(app: App, status_code: int, sub_status: int) -> None:
    """C41 C45 D40 R23: no such answer is a duplicate or a poison; the failed call is made again, not the handler."""
    order_id, refused = fresh(), 0

    def intercept(exchange, execute):  # type: ignore[no-untyped-def]
        nonlocal refused
        if order_id in exchange.request.headers.get("x-ms-documentdb-partitionkey", "") and refused < 2:
            refused += 1
            headers = {"x-ms-substatus": str(sub_status), "x-ms-retry-after-ms": "1"}
            exchange.answer(Response(status_code, headers, b'{"code":"x","message":"trouble"}'))
        else:
            exchange.answer(execute())

    app.stack.cosmos.intercept = intercept
    try:
        assert await app.outcome(placed(order_id)) == "created"
    finally:
        app.stack.cosmos.intercept = None
    assert refused == 2
    assert [end.delivery_count for end in app.ends_of(order_id)] == [1]
    assert app.parked(order_id) == []


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("ending", ["reset", "hang_up", "503"])
async def test_lost_answer_of_a_write_is_found_by_its_token(app: App, nth: int, ending: str) -> None:
    """C44 C45 C46 D38 D39: committed, and nobody told; the attempt meets its own write and goes on as its owner."""
    order_id, writes = fresh(), 0

    def intercept(exchange, execute):  # type: ignore[no-untyped-def]
        nonlocal writes
        is_write = exchange.request.method in ("POST", "PUT") and "/colls/orders/" in exchange.request.target
        if order_id in exchange.request.headers.get("x-ms-documentdb-partitionkey", "") and is_write:
            writes += 1
            if writes == nth:
                execute()
                if ending == "503":
                    exchange.answer(Response(503, {}, b'{"code":"x","message":"too late"}'))
                else:
                    getattr(exchange, ending)()
                return
        exchange.answer(execute())

    app.stack.cosmos.intercept = intercept
    try:
        outcome = await app.outcome(placed(order_id))
    finally:
        app.stack.cosmos.intercept = None
    assert outcome == "mine"
    await app.quiet()
    assert [(e["sequence"], e["position"]) for e in await app.entries(order_id)] == [(1, 1), (2, 2)]
    order = await app.order(order_id)
    assert order is not None
    assert (order["revision"], order["record"]["status"]) == (1, "completed")
    assert app.parked(order_id) == []


async def test_lost_answer_of_an_entry_is_found_by_its_token(app: App) -> None:
    """C44 C46 D38: the entry's own token tells its lost answer from another's entry."""
    order_id, dropped = fresh(), 0

    def intercept(exchange, execute):  # type: ignore[no-untyped-def]
        nonlocal dropped
        if (
            exchange.request.method == "POST"
            and order_id in exchange.request.headers.get("x-ms-documentdb-partitionkey", "")
            and not dropped
        ):
            dropped += 1
            execute()
            exchange.reset()
        else:
            exchange.answer(execute())

    app.stack.cosmos.intercept = intercept
    try:
        assert await app.outcome(entry(order_id, "T-1", sequence=1)) == "mine"
    finally:
        app.stack.cosmos.intercept = None
    assert await app.outcome(entry(order_id, "T-2", sequence=2)) == "applied"
    assert (await app.state(order_id))["balances"] == {"EUR": "2.00"}
