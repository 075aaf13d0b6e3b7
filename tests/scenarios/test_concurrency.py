"""Two host instances with a worker process each: who is first is decided by the database, order by the sessions."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError

from .harness import App
from .messages import Body, batch, entry, fresh, line, message_id_of, placed, status, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")

LETTERS = 5
COPIES = 2**LETTERS  # more than the 16 sessions that one instance takes at a time


def spellings(text: str) -> list[str]:
    """Session ids that differ in case only: sessions of their own to the broker, one order to the app."""
    letters = text[:LETTERS]
    cases = itertools.product(*((letter.lower(), letter.upper()) for letter in letters))
    return ["".join(case) + text[LETTERS:] for case in cases]


async def race(pair: App, body: Body, session: str) -> list[str]:
    """Deliver copies of a message at once, each in a session of its own; gives the outcomes of all deliveries."""
    with pair.slow(0.02):
        for spelling in spellings(session):
            await pair.send(body, session=spelling)
        return await pair.outcomes(message_id_of(body), COPIES)


async def test_of_concurrent_copies_exactly_one_creates_the_order(pair: App) -> None:
    """C16 C17 C36 C38 C41: the insert is the only arbiter; who loses finds the other's record."""
    order_id = fresh("copies")
    outcomes = Counter(await race(pair, placed(order_id), order_id))
    await pair.quiet()
    assert outcomes["created"] + outcomes["resumed"] >= 1
    assert outcomes["created"] <= 1
    assert set(outcomes) <= {"created", "resumed", "duplicate", "in_flight"}
    assert {each.instance for each in pair.ends_of(order_id)} == {0, 1}
    # Who lost its claim waits before it comes again: 32 attempts would go on taking the record from each other.
    assert max(each.delivery_count or 0 for each in pair.ends_of(order_id)) <= 4
    (order,) = await pair.documents("orders", order_id)
    assert (order["revision"], order["record"]["status"]) == (1, "completed")
    assert [(e["sequence"], e["position"]) for e in await pair.entries(order_id)] == [(1, 1), (2, 2)]
    assert (await pair.state(order_id))["balances"] == {"EUR": "19.00"}
    assert pair.parked(order_id) == []


async def test_of_concurrent_copies_exactly_one_accepts_the_ledger_batch(pair: App) -> None:
    """C16 C42: a batch with record, outbox and state is an insert too."""
    ledger_id, order_id = fresh("ledger"), fresh()
    body = batch(ledger_id, "B-1", *(transaction(n, order_id, sequence=n) for n in range(1, 6)), batchSequence=1)
    outcomes = Counter(await race(pair, body, ledger_id))
    await pair.quiet()
    assert outcomes["created"] <= 1
    assert set(outcomes) <= {"created", "resumed", "duplicate", "in_flight"}
    assert max(each.delivery_count or 0 for each in pair.ends_of(f"{ledger_id}:B-1")) <= 4
    assert [(e["sequence"], e["position"]) for e in await pair.entries(order_id)] == [(n, n) for n in range(1, 6)]
    state = await pair.document("ledgers", ledger_id, "~state")
    assert state is not None
    assert (state["nextBatch"], state["unfinished"]) == (2, None)


async def test_of_concurrent_copies_exactly_one_applies_the_entry(pair: App) -> None:
    """C16 C17: each loser reads what the winner wrote."""
    order_id = fresh("entry")
    outcomes = await race(pair, entry(order_id, "T-1", sequence=1), order_id)
    assert Counter(outcomes) == {"applied": 1, "duplicate": COPIES - 1}
    assert (await pair.state(order_id))["balances"] == {"EUR": "1.00"}


async def test_concurrent_entries_of_one_order_lose_no_update(pair: App) -> None:
    """C16 C42 D32: the state is replaced under its ETag, whoever writes."""
    order_id = fresh("updates")
    sessions = spellings(order_id)[::4]
    with pair.slow(0.01):
        for number, session in enumerate(sessions, 1):
            await pair.send(entry(order_id, f"T-{number}", f"ledger.{number}", sequence=1), session=session)
        for number in range(1, len(sessions) + 1):
            await pair.outcomes(f"{order_id}:ledger.{number}:T-{number}")
    state = await pair.state(order_id)
    assert (state["applied"], state["balances"]) == (len(sessions), {"EUR": f"{len(sessions)}.00"})
    assert [e["position"] for e in await pair.entries(order_id)] == list(range(1, len(sessions) + 1))


async def test_messages_of_a_session_run_one_by_one_and_sessions_in_parallel(pair: App) -> None:
    """C56 C57 C58 C78: strictly in order within a session; several sessions at a time, on both instances."""
    orders = [fresh() for _ in range(10)]
    states = ("confirmed", "shipped", "delivered", "returned")
    first = len(pair.spans)
    bodies = [placed(order) for order in orders]
    bodies += [status(order, state, n) for n, state in enumerate(states, 1) for order in orders]
    with pair.slow(0.03):
        await pair.send_all(bodies)
        for body in bodies:
            assert await pair.outcomes(message_id_of(body)) == ["created" if "lines" in body else "applied"]
    await pair.quiet()
    spans = [span for span in pair.spans[first:] if span[2].function == "process_order"]
    for order in orders:
        own = sorted((span for span in spans if span[2].session_id == order), key=lambda span: span[0])
        assert [span[2].message_id for span in own] == [order, *(f"{order}:status.{n}" for n in range(1, 5))]
        assert all(earlier[1] <= later[0] + 0.005 for earlier, later in itertools.pairwise(own))
    at_once = max(sum(other[0] <= span[0] < other[1] for other in spans) for span in spans)
    assert at_once >= 4
    assert {span[2].instance for span in spans} == {0, 1}
    entries = [span for span in pair.spans[first:] if span[2].function == "apply_entry"]
    for order in orders:
        own = sorted((span for span in entries if span[2].session_id == order), key=lambda span: span[0])
        assert [span[2].message_id for span in own] == [f"{order}:order:1", f"{order}:order:2"]


async def test_session_in_work_belongs_to_its_consumer_alone(pair: App) -> None:
    """C58: another receiver can't lock it meanwhile."""
    order_id = fresh()
    with pair.slow(1.0):
        await pair.send(placed(order_id))
        first = len(pair.requests)
        await pair.until(
            lambda: any(view.session_id == order_id and view.locked_by for view in sessions(pair)), "the app has it"
        )
        async with ServiceBusClient.from_connection_string(pair.stack.service_bus_connection, retry_total=0) as client:
            receiver = client.get_queue_receiver("orders", session_id=order_id)
            with pytest.raises((SessionCannotBeLockedError, OperationTimeoutError)):
                await receiver.receive_messages(max_wait_time=1)
            await receiver.close()
        assert pair.outcomes_of(order_id) == []
    assert first >= 0
    assert await pair.outcomes(order_id) == ["created"]


def sessions(pair: App) -> list[object]:
    return list(pair.stack.service.broker.queue("orders").sessions(pair.clock()))


async def test_slow_session_holds_up_nobody_else(pair: App) -> None:
    """C57: a session waits for its own messages only."""
    slow, quick = fresh(), fresh()
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Task[None]] = []

    def intercept(exchange, execute):  # type: ignore[no-untyped-def]
        if slow not in exchange.request.headers.get("x-ms-documentdb-partitionkey", ""):
            exchange.answer(execute())
            return

        async def later() -> None:
            await release.wait()
            exchange.answer(execute())

        waiting.append(loop.create_task(later()))

    pair.stack.cosmos.intercept = intercept
    try:
        await pair.send(placed(slow))
        await pair.until(lambda: bool(waiting), "the slow order is in work")
        assert await pair.outcome(placed(quick, line("1"))) == "created"
        assert pair.outcomes_of(slow) == []
        release.set()
        assert await pair.outcomes(slow) == ["created"]
    finally:
        release.set()
        pair.stack.cosmos.intercept = None
