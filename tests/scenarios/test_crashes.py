"""kill -9 of the worker at every point of the protocol: the next delivery goes on, and the end is the same.

The worker dies when a write has arrived at the database, before or after its commit, or when the broker has accepted
messages; in both cases it never hears the answer. The link is narrow, so an order or a ledger takes several AMQP
batches with a watermark after each but the last.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from .harness import App, running
from .messages import (
    Body,
    amended,
    batch,
    cancelled,
    entry,
    fresh,
    line,
    message_id_of,
    placed,
    session_of,
    status,
    transaction,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONTAINERS = {"ledger": "ledgers", "entry": "ledger-entries", "held": "ledger-entries"}
TWO_BATCHES = tuple(line(str(number), number) for number in range(1, 6))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def narrow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with running(tmp_path_factory.mktemp("narrow"), largest_entry=2000) as app:
        yield app


def messages(kind: str, order_id: str) -> tuple[list[Body], Body]:
    """What comes before, and the message whose worker dies."""
    ledger_id = order_id.replace("ORD", "L")
    match kind:
        case "placed":
            return [], placed(order_id, *TWO_BATCHES)
        case "amended":
            changed = tuple(line(str(number), number + 2) for number in range(1, 6))
            return [placed(order_id)], amended(order_id, "op-1", *changed)
        case "cancelled":
            return [placed(order_id)], cancelled(order_id, "op-1")
        case "rejected":
            return [placed(order_id), cancelled(order_id, "op-1")], amended(order_id, "op-2")
        case "status":
            return [placed(order_id)], status(order_id, "shipped", 1)
        case "entry":
            stream = f"ledger.{ledger_id}"
            waiting = [entry(order_id, f"T-{n}", stream, sequence=n) for n in (2, 3)]
            return waiting, entry(order_id, "T-1", stream, sequence=1)
        case "held":
            return [], entry(order_id, "T-2", f"ledger.{ledger_id}", sequence=2)
        case _:
            rows = [transaction(n, order_id, f"{n}.00", sequence=n) for n in range(1, 7)]
            return [], batch(ledger_id, "B-1", *rows, batchSequence=1)


async def end_state(app: App, order_id: str) -> dict[str, Any]:
    """All documents of an order and its ledger, without what tells one attempt or order from another."""
    await app.quiet()
    ledger_id = order_id.replace("ORD", "L")
    found = {
        "orders": await app.documents("orders", order_id),
        "entries": await app.entries(order_id),
        "ledgers": await app.documents("ledgers", ledger_id),
        "state": await app.document("ledger-entries", order_id, "~state"),
    }
    return {name: _plain(documents, order_id[3:]) for name, documents in found.items()}


VOLATILE = re.compile(
    "_rid|_self|_etag|_attachments|_ts|token|claim|sequenceNumber|traceparent|enqueuedAt|.*[hH]ash|proof"
)


def _plain(value: Any, own: str) -> Any:
    if isinstance(value, dict):
        return {name.replace(own, ""): _plain(v, own) for name, v in value.items() if not VOLATILE.fullmatch(name)}
    if isinstance(value, list):
        return [_plain(item, own) for item in value]
    return value.replace(own, "") if isinstance(value, str) else value


async def run(app: App, kind: str, order_id: str) -> Body:
    """Bring an order to where the worker is to die; gives the message at which it dies."""
    before, last = messages(kind, order_id)
    for body in before:
        await app.outcome(body)
    await app.quiet()
    return last


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def undisturbed(narrow: App) -> dict[str, Any]:
    """How each kind ends without a crash, by kind."""
    ends = {}
    for kind in ("placed", "amended", "cancelled", "rejected", "status", "entry", "held", "ledger"):
        order_id = fresh()
        await narrow.outcome(await run(narrow, kind, order_id))
        ends[kind] = await end_state(narrow, order_id)
    return ends


@dataclass(frozen=True)
class Point:
    """A write of a message's handler, by its number, and whether the worker dies before or after it is committed."""

    kind: str
    write: int
    committed: bool
    outcome: str

    def __str__(self) -> str:
        return f"{self.kind}, write {self.write} {'committed' if self.committed else 'not committed'}"


POINTS = [
    # create, watermark, completion
    Point("placed", 1, False, "created"),
    Point("placed", 1, True, "resumed"),
    Point("placed", 2, False, "resumed"),
    Point("placed", 2, True, "resumed"),
    Point("placed", 3, False, "resumed"),
    Point("placed", 3, True, "duplicate"),
    # batch of record and order, watermark, completion
    Point("amended", 1, False, "applied"),
    Point("amended", 1, True, "resumed"),
    Point("amended", 2, True, "resumed"),
    Point("amended", 3, False, "resumed"),
    Point("amended", 3, True, "duplicate"),
    Point("cancelled", 1, True, "resumed"),
    Point("rejected", 1, False, "rejected"),
    Point("rejected", 1, True, "duplicate"),
    Point("status", 1, False, "applied"),
    Point("status", 1, True, "duplicate"),
    # entry, those that it releases, and state in one batch
    Point("entry", 1, False, "applied"),
    Point("entry", 1, True, "duplicate"),
    Point("held", 1, False, "held"),
    Point("held", 1, True, "duplicate"),
    # batch of record, outbox and state; watermark; batch of completion
    Point("ledger", 1, False, "created"),
    Point("ledger", 1, True, "resumed"),
    Point("ledger", 2, True, "resumed"),
    Point("ledger", 3, False, "resumed"),
    Point("ledger", 3, True, "duplicate"),
]


@dataclass(frozen=True)
class Died:
    """What came of a point: the order, and the message whose worker died there."""

    order_id: str
    message_id: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def deaths(narrow: App) -> dict[Point, Died]:
    """One death of the worker, with one message at each of the points."""
    bodies = {point: await run(narrow, point.kind, fresh()) for point in POINTS}
    with narrow.crashing_when_all_are_at(
        {
            (CONTAINERS.get(point.kind, "orders"), session_of(body)): (point.write, point.committed)
            for point, body in bodies.items()
        }
    ) as crash:
        for body in bodies.values():
            await narrow.send(body)
        await narrow.until(lambda: crash.happened, f"each message is at its point; {crash.seen} of {len(bodies)} are")
    died = {}
    for point, body in bodies.items():
        await narrow.outcomes(message_id_of(body))
        died[point] = Died(
            body["transactions"][0]["orderId"] if point.kind == "ledger" else body["orderId"], message_id_of(body)
        )
    await narrow.quiet()
    return died


@pytest.mark.parametrize("point", POINTS, ids=str)
async def test_worker_that_dies_at_a_write_costs_nothing(
    narrow: App, undisturbed: dict[str, Any], deaths: dict[Point, Died], point: Point
) -> None:
    """C02 C03 C14 C42 C51 D01 D02 D03 R11: marker and effect exist both or neither, and the next delivery goes on."""
    died = deaths[point]
    assert narrow.outcomes_of(died.message_id) == [point.outcome]  # the first delivery did not live to report one
    ends = narrow.ends_of(died.message_id)
    assert [(each.outcome.value, each.delivery_count) for each in ends] == [("worker-died", 1), ("completed", 2)]
    assert await end_state(narrow, died.order_id) == undisturbed[point.kind]
    assert narrow.parked(died.order_id) == []


async def test_worker_that_dies_behind_a_send_sends_the_same_again(narrow: App, undisturbed: dict[str, Any]) -> None:
    """C01 C02 D03 R11 R38: the broker has the messages, the watermark does not; doubles carry the same ids."""
    order_id = fresh()
    with narrow.crashing_after_send(2) as crash:
        assert await narrow.outcome(placed(order_id, *TWO_BATCHES)) == "resumed"
    assert crash.happened
    assert await end_state(narrow, order_id) == undisturbed["placed"]
    entries = [each for each in narrow.handled if str(each["message_id"]).startswith(f"{order_id}:")]
    assert {each["outcome"] for each in entries} == {"applied", "duplicate"}
    assert narrow.parked(order_id) == []


async def test_copy_of_a_message_whose_worker_died_resumes_it(narrow: App, undisturbed: dict[str, Any]) -> None:
    """C03 C06 D01: an equal hash is a duplicate only when the record is completed."""
    order_id = fresh()
    body = placed(order_id, *TWO_BATCHES)
    with narrow.crashing_when_all_are_at({("orders", order_id): (1, True)}) as crash:
        await narrow.send_all([body, body])
        assert await narrow.outcomes(order_id, 2) == ["resumed", "duplicate"]
    assert crash.happened
    assert await end_state(narrow, order_id) == undisturbed["placed"]


async def test_worker_that_dies_again_and_again_under_load_loses_and_doubles_nothing(narrow: App) -> None:
    """C02 C03 C16 C41 C55: kill -9 at moments nobody chose, while many sessions are in work."""
    orders = [fresh() for _ in range(12)]
    bodies = [placed(order, *TWO_BATCHES) for order in orders] + [cancelled(order, "op-1") for order in orders]
    starts = narrow.starts
    await narrow.send_all(bodies)
    assert narrow.stack.host is not None
    for share in (8, 60):
        seen = len(narrow.requests) + share
        await narrow.until(lambda seen=seen: len(narrow.requests) >= seen, "the worker is in the middle of it")
        narrow.stack.host.kill_worker()
        await narrow.until(lambda starts=starts: narrow.starts > starts, "the next worker is up")
        starts = narrow.starts
    for body in bodies:
        await narrow.outcomes(message_id_of(body))
    await narrow.quiet()
    for order in orders:
        entries = await narrow.entries(order)
        assert [each["sequence"] for each in entries] == list(range(1, 12))
        assert [each["position"] for each in entries] == list(range(1, 12))
        assert (await narrow.state(order))["balances"] == {"EUR": "0.00"}
        assert narrow.parked(order) == []
    assert narrow.stack.service.counts("orders").dead_letter == 0
