"""Every fault of Cosmos DB as the real SDK sees it, and what the SDK repeats on its own (D38, D39, C44, R47).

The numbers of requests are those measured with azure-cosmos 4.17 in one region.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceResponseError,
    ServiceResponseTimeoutError,
)
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)
from faulty_stack import FaultyStack

from local.faults import (
    Answer,
    Cut,
    Delay,
    FaultError,
    LoseReply,
    LoseRequest,
    Loss,
    Outage,
    Rule,
    Service,
    Stage,
    StaleRead,
    Stall,
    Starts,
    Throttle,
)


def rule(action: Any, operation: str | tuple[str, ...] | None = "Create", **given: Any) -> Rule:
    return Rule(name="r", service=Service.COSMOS, operation=operation, action=action, **given)


def order(item_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": item_id, "orderId": "o", **more}


def in_thread(stack: FaultyStack, call: Any, **options: Any) -> asyncio.Future[Any]:
    """Let the synchronous client do something while the loop serves it."""

    def run() -> Any:
        with stack.sync_orders(**options) as orders:
            return call(orders)

    return asyncio.ensure_future(asyncio.to_thread(run))


async def test_delayed_request_happens_late(stack: FaultyStack) -> None:
    async with stack.orders() as orders:
        with stack.faults.add(rule(Delay(0.2))):
            begin = time.monotonic()
            await orders.create_item(order())
            assert time.monotonic() - begin >= 0.2
        begin = time.monotonic()
        await orders.create_item(order("b"))
    assert stack.results() == [("Create", "201", "r"), ("Create", "201", None)]


async def test_stalled_write_is_committed_or_not_by_its_stage(stack: FaultyStack) -> None:
    async with stack.orders() as orders:
        for stage, is_there in ((Stage.BEFORE, False), (Stage.AFTER, True)):
            with stack.faults.add(rule(Stall(stage))) as armed:
                creating = asyncio.create_task(orders.create_item(order(stage.value)))
                await armed.until_hit()
                found = [item["id"] async for item in orders.query_items("SELECT * FROM c", partition_key="o")]
                assert (stage.value in found) is is_there
                assert not creating.done()
                assert armed.release() == 1
                assert (await creating)["id"] == stage.value


async def test_disarming_drops_what_is_held(stack: FaultyStack) -> None:
    """Else the delayed write of one test happens in the next."""
    async with stack.orders(retry_connect=0, retry_read=0) as orders:
        for action in (Delay(60), Stall(), LoseRequest()):
            with stack.faults.add(rule(action)) as armed:
                creating = asyncio.create_task(orders.create_item(order()))
                await armed.until_hit()
            with pytest.raises(AzureError):
                await creating
        with pytest.raises(CosmosResourceNotFoundError):
            await orders.read_item("a", "o")


@pytest.mark.parametrize(
    ("status", "sub_status", "requests"),
    [(408, 0, 1), (449, 0, 1), (500, 0, 1), (503, 0, 2), (410, 1002, 1), (400, 0, 1)],
)
async def test_answered_status_and_the_requests_that_a_write_makes_of_it(
    stack: FaultyStack, status: int, sub_status: int, requests: int
) -> None:
    async with stack.orders() as orders:
        with stack.faults.add(rule(Answer(status, sub_status))) as armed:
            with pytest.raises(CosmosHttpResponseError) as caught:
                await orders.create_item(order())
            assert (caught.value.status_code, caught.value.sub_status or 0) == (status, sub_status)
            assert armed.hits == requests
    assert stack.results() == [("Create", None, "r")] * requests


async def test_429_is_repeated_after_the_time_that_it_names(stack: FaultyStack) -> None:
    async with stack.orders() as orders:
        with stack.faults.add(rule(Answer(429, 3200, retry_after_ms=60), count=3)):
            begin = time.monotonic()
            await orders.create_item(order())
            assert time.monotonic() - begin >= 0.18
    assert stack.results() == [("Create", None, "r")] * 3 + [("Create", "201", None)]


async def test_rules_in_a_row_script_the_answers(stack: FaultyStack) -> None:
    """R47: 449 twice, 412 once, then as usual; a rule does not see what an earlier one has hit."""
    async with stack.orders() as orders:
        await orders.create_item(order())
        for name, status, count in (("first", 449, 2), ("second", 412, 1)):
            action = Answer(status)
            stack.faults.add(Rule(name=name, service=Service.COSMOS, operation="Replace", action=action, count=count))
        seen = []
        for _ in range(4):
            try:
                await orders.replace_item("a", order())
            except CosmosHttpResponseError as exc:
                seen.append((exc.status_code, isinstance(exc, CosmosAccessConditionFailedError)))
    assert seen == [(449, False), (449, False), (412, True)]


@pytest.mark.parametrize("how", [Loss.RESET, Loss.CLOSE, Loss.STATUS])
async def test_lost_answer_of_a_create_is_repeated_by_the_async_client(stack: FaultyStack, how: Loss) -> None:
    """D38 D39: the item is there, by the client's own first request, and the client is told of a conflict."""
    async with stack.orders() as orders:
        with stack.faults.add(rule(LoseReply(how), count=1)), pytest.raises(CosmosResourceExistsError):
            await orders.create_item(order())
    assert stack.results() == [("Create", "201", "r"), ("Create", "409", None)]


async def test_number_of_requests_when_every_answer_is_lost(stack: FaultyStack) -> None:
    """aiohttp repeats a PUT below the SDK; a create makes 4 requests, as below for the answer that never comes."""
    async with stack.orders() as orders:
        await orders.create_item(order())
        armed = stack.faults.add(rule(LoseReply(), "Replace"))
        with pytest.raises(ServiceRequestError):
            await orders.replace_item("a", order())
        assert armed.hits == 8


async def test_repetition_is_off_with_the_settings_of_the_calls(stack: FaultyStack) -> None:
    async with stack.orders() as orders:
        with stack.faults.add(rule(LoseReply())) as armed:
            with pytest.raises(ServiceRequestError):
                await orders.create_item(order(), retry_connect=0, retry_read=0)
            assert armed.hits == 1


@pytest.mark.parametrize("how", [Loss.RESET, Loss.CLOSE])
async def test_lost_answer_of_a_write_is_not_repeated_by_the_sync_client(stack: FaultyStack, how: Loss) -> None:
    with stack.faults.add(rule(LoseReply(how))), pytest.raises(ServiceResponseError):
        await in_thread(stack, lambda orders: orders.create_item(order()))
    assert stack.results() == [("Create", "201", "r")]


async def test_truncated_answer_is_not_repeated(stack: FaultyStack) -> None:
    async with stack.orders() as orders:
        with stack.faults.add(rule(LoseReply(Loss.TRUNCATE), count=1)), pytest.raises(IncompleteReadError):
            await orders.create_item(order())
    with stack.faults.add(rule(LoseReply(Loss.TRUNCATE), count=1)), pytest.raises(IncompleteReadError):
        await in_thread(stack, lambda orders: orders.create_item(order("b")))
    assert stack.results() == [("Create", "201", "r")] * 2


async def test_lost_batch_is_told_as_a_conflict_of_its_first_operation(stack: FaultyStack) -> None:
    async with stack.orders() as orders:
        stack.faults.add(rule(LoseReply(), "Batch", count=1))
        with pytest.raises(CosmosBatchOperationError) as caught:
            await orders.execute_item_batch([("create", (order(),)), ("create", (order("b"),))], "o")
    assert (caught.value.status_code, caught.value.error_index) == (409, 0)
    assert stack.results() == [("Batch", "200", "r"), ("Batch", "207", None)]
    assert stack.faults.history(operation="Batch")[0].keys == [("o", "a"), ("o", "b")]


async def test_answer_that_never_comes_is_a_time_out(stack: FaultyStack) -> None:
    with stack.faults.add(rule(LoseReply(Loss.NEVER))), pytest.raises(ServiceResponseTimeoutError):
        await in_thread(stack, lambda orders: orders.create_item(order(), read_timeout=0.2))
    with stack.faults.add(rule(LoseRequest())), pytest.raises(ServiceResponseTimeoutError):
        await in_thread(stack, lambda orders: orders.create_item(order("b"), read_timeout=0.2))
    async with stack.orders() as orders:
        with stack.faults.add(rule(LoseReply(Loss.NEVER))) as armed:
            with pytest.raises(AzureError):
                await orders.create_item(order("c"), read_timeout=0.1)
            assert armed.hits == 4
    assert stack.results() == [("Create", "201", "r"), ("Create", None, "r"), ("Create", "201", "r")] + [
        ("Create", "409", "r")
    ] * 3


async def test_cut_connection_leaves_nothing_done(stack: FaultyStack) -> None:
    for how in (Loss.RESET, Loss.CLOSE):
        with stack.faults.add(rule(Cut(how))), pytest.raises(ServiceResponseError):
            await in_thread(stack, lambda orders: orders.create_item(order()))
    async with stack.orders() as orders:
        with stack.faults.add(rule(Cut(), count=1)):
            await orders.create_item(order())
    assert stack.results() == [("Create", None, "r")] * 3 + [("Create", "201", None)]


async def test_throttle_answers_429_beyond_the_rate(stack: FaultyStack) -> None:
    """14 creates cost 75 RU; 50 are there at once, and the client waits for the others as it is told to."""
    async with stack.orders() as orders:
        with stack.faults.add(rule(Throttle(50), ("Create", "Batch"))) as armed:
            begin = time.monotonic()
            for number in range(14):
                await orders.create_item(order(str(number)))
            assert time.monotonic() - begin >= 0.3
            assert armed.hits >= 1
            await orders.read_item("0", "o")
    results = stack.results()
    assert results[0] == ("Create", "201", None)
    assert [result for _, result, _ in results].count("201") == 14
    assert ("Create", None, "r") in results


@pytest.mark.parametrize("stack", ["Session"], indirect=True)
async def test_stale_read_gives_the_version_before_the_last_write(stack: FaultyStack) -> None:
    async with stack.orders() as writer, stack.orders() as reader:
        stack.faults.add(rule(StaleRead(), None))
        await writer.create_item(order(step=1))
        with pytest.raises(CosmosResourceNotFoundError):
            await reader.read_item("a", "o")
        await writer.replace_item("a", order(step=2))
        assert (await reader.read_item("a", "o"))["step"] == 1
        assert (await writer.read_item("a", "o"))["step"] == 2  # its session token has the write
        old = (await reader.read_item("a", "o"))["_etag"]
        with pytest.raises(CosmosAccessConditionFailedError):  # writes are not stale
            await reader.replace_item("a", order(), etag=old, match_condition=MatchConditions.IfNotModified)
        await writer.delete_item("a", "o")
        assert (await reader.read_item("a", "o"))["step"] == 2
        stack.faults.clear()
        with pytest.raises(CosmosResourceNotFoundError):
            await reader.read_item("a", "o")


async def test_stale_read_is_refused_where_the_account_is_strong(stack: FaultyStack) -> None:
    with pytest.raises(FaultError, match="Strong"):
        stack.faults.add(rule(StaleRead(), None))
    assert stack.faults.armed == []


async def test_outage_refuses_connections_and_ends(stack: FaultyStack) -> None:
    """R23: an outage switch; the data is there afterwards, on the same port."""
    async with stack.orders() as orders:
        await orders.create_item(order())
        port = stack.cosmos.port
        with stack.faults.add(rule(Outage(), None)):
            with pytest.raises(ServiceRequestError):
                await orders.create_item(order("b"), retry_connect=0)
            with pytest.raises(OSError, match=r"."):
                await asyncio.open_connection("127.0.0.1", port)
        assert (await orders.read_item("a", "o"))["id"] == "a"
        with stack.faults.add(rule(Outage(0.3, Starts.ON_HIT), "Read", count=1)) as armed:
            assert (await orders.read_item("a", "o"))["id"] == "a"  # repeated by the client until it is over
            assert armed.hits == 1
        assert stack.cosmos.port == port


async def test_probability_draws_the_same_lots_each_time(stack: FaultyStack) -> None:
    async def hits(seed: int) -> list[bool]:
        stack.faults.forget()
        async with stack.orders() as orders:
            with stack.faults.add(rule(Answer(449), "Read", probability=0.5, seed=seed)):
                for _ in range(24):
                    try:
                        await orders.read_item("none", "o")
                    except CosmosHttpResponseError:
                        continue
        return [name is not None for _, _, name in stack.results()]

    first = await hits(1)
    assert first == await hits(1)
    assert first != await hits(2)
    assert {True, False} == set(first)


async def test_operations_have_the_names_that_the_sdk_gives_them(stack: FaultyStack) -> None:
    seen: list[tuple[str, str]] = []
    stack.cosmos.observers.append(lambda each: seen.append((each.resource_type, each.operation)))
    async with stack.orders() as orders:
        await orders.create_item(order())
        await orders.upsert_item(order())
        await orders.patch_item("a", "o", [{"op": "set", "path": "/x", "value": 1}])
        await orders.execute_item_batch([("read", ("a",))], "o")
        _ = [item async for item in orders.query_items("SELECT * FROM c", partition_key="o")]
        _ = [item async for item in orders.read_all_items()]
        await orders.replace_item("a", order())
        await orders.delete_item("a", "o")
        await orders.read()
    ours = [entry.operation for entry in stack.faults.history()]
    theirs = [("" if kind == "docs" else f"{kind}.") + name for kind, name in seen]
    renamed = {"SqlQuery": "Query", "colls.Read": "Container.Read", "pkranges.ReadFeed": "PartitionKeyRanges.ReadFeed"}
    assert ours == [renamed.get(name, "Account.Read" if name.startswith(".") else name) for name in theirs]
    assert {"Create", "Upsert", "Patch", "Batch", "Query", "ReadFeed", "Replace", "Delete"} <= set(ours)
