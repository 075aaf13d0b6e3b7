"""How an invocation's end settles its message (functions-platform 3.4 and 4.2)."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest

from local.broker import codec
from local.broker.messages import build_message
from local.broker.model import QueueOptions
from tests.host.conftest import Bench, MakeBench


def starts(b: Bench) -> list[tuple[object, object]]:
    """(message id, delivery count) of each start of the function, in order."""
    return [(line.fields["message_id"], line.fields["delivery"]) for line in b.told("start")]


async def test_success_completes(bench: MakeBench) -> None:
    b = await bench()
    b.send("ok", message_id="m1")
    await b.until(lambda: bool(b.ended()))
    (ended,) = b.ended()
    assert (ended.outcome, ended.queue, ended.session_id, ended.message_id) == ("completed", "orders", "s1", "m1")
    assert (ended.sequence_number, ended.delivery_count, ended.error) == (1, 1, None)
    assert b.service.counts("orders").active == 0


async def test_an_exception_abandons_and_the_message_comes_again_first_and_at_once_in_the_kept_session(
    bench: MakeBench,
) -> None:
    b = await bench(service_bus={"sessionIdleTimeout": "00:00:20"})
    b.send("fail-once", message_id="m1")
    b.send("ok", message_id="m2")
    await b.until(lambda: len(b.told("start")) >= 1)
    owner = b.service.broker.queue("orders").sessions(time.time())[0].locked_by
    await b.until(lambda: len(b.ended()) >= 3)
    assert b.outcomes() == ["abandoned", "completed", "completed"]
    assert starts(b) == [("m1", 1), ("m1", 2), ("m2", 1)]
    error = b.ended()[0].error
    assert error is not None
    assert "RuntimeError: no luck" in error
    # The first holder has the session still: its idle time-out of 20 s has not passed.
    (lock,) = b.service.broker.queue("orders").sessions(time.time())
    assert lock.locked_by == owner


async def test_a_message_that_always_fails_is_dead_lettered_and_its_session_goes_on(bench: MakeBench) -> None:
    b = await bench(queues=[QueueOptions("orders", requires_session=True, max_delivery_count=3)])
    b.send("fail", message_id="m1")
    b.send("ok", message_id="m2")
    await b.until(lambda: "completed" in b.outcomes())
    assert starts(b) == [("m1", 1), ("m1", 2), ("m1", 3), ("m2", 1)]
    assert b.service.counts("orders").dead_letter == 1


@pytest.mark.parametrize("section", [(0x77, {"k": 1}), (0x77, 7), (0x77, None), (0x76, ["a"])], ids=str)
async def test_a_body_that_no_trigger_can_bind_is_dead_lettered_whole_and_its_session_goes_on(
    bench: MakeBench, section: tuple[int, object]
) -> None:
    """R27: handed over as nothing it would be parked as nothing, and what was sent would be gone."""
    code, value = section
    b = await bench(queues=[QueueOptions("orders", requires_session=True, max_delivery_count=3)])
    body = codec.described(code, codec.encode(value))
    made = build_message(body=b"", session_id="s1", message_id="m1")
    b.service.send("orders", [dataclasses.replace(made, body_sections=body)])
    b.send("ok", message_id="m2")
    await b.until(lambda: "completed" in b.outcomes())
    assert starts(b) == [("m2", 1)]
    assert b.outcomes() == ["abandoned", "abandoned", "abandoned", "completed"]
    (dead,) = b.service.broker.queue("orders/$DeadLetterQueue").peek(0, 10, time.time())
    assert dead.message.body_sections == body


async def test_a_returned_value_without_a_return_binding_is_a_failure(bench: MakeBench) -> None:
    b = await bench()
    b.send("return")
    await b.until(lambda: bool(b.ended()))
    (ended, *_) = b.ended()
    assert ended.outcome == "abandoned"
    assert "without a $return binding returned a non-None value" in str(ended.error)


async def test_without_auto_complete_the_successor_of_a_handled_message_overtakes_it(bench: MakeBench) -> None:
    b = await bench(service_bus={"autoCompleteMessages": False})
    b.send("ok", message_id="m1")
    b.send("ok", message_id="m2")
    await b.until(lambda: len(b.ended()) >= 3)
    assert b.outcomes()[:3] == ["unsettled"] * 3
    # m1 comes again when the session has been closed, behind m2: the order is broken, as on the platform (4.2)
    assert [message for message, _ in starts(b)][:3] == ["m1", "m2", "m1"]


async def test_the_trigger_s_own_auto_complete_wins_over_host_json(bench: MakeBench) -> None:
    source = (
        "import azure.functions as func\napp = func.FunctionApp()\n"
        "@app.function_name('work')\n"
        "@app.service_bus_queue_trigger(arg_name='message', queue_name='orders', connection='Bus',\n"
        "    is_sessions_enabled=True, auto_complete_messages=False)\n"
        "def work(message: func.ServiceBusMessage): pass\n"
    )
    b = await bench(source=source)
    b.send("x")
    await b.until(lambda: bool(b.ended()))
    assert b.outcomes()[0] == "unsettled"


async def test_a_cancelled_error_is_never_answered_until_function_timeout_which_restarts_the_worker(
    bench: MakeBench,
) -> None:
    b = await bench(host_json={"functionTimeout": "00:00:01"})
    b.send("cancelled", message_id="m1")
    await b.until(lambda: "completed" in b.outcomes())
    assert b.outcomes() == ["timed-out", "completed"]
    assert b.ended()[0].seconds >= 1
    assert starts(b) == [("m1", 1), ("m1", 2)]
    assert len(b.starts) == 2


async def test_a_function_over_its_timeout_takes_the_other_invocations_of_its_worker_along(bench: MakeBench) -> None:
    b = await bench(host_json={"functionTimeout": "00:00:01"})
    b.send("sleep-once 15", "a", "m1")
    await b.until(lambda: len(b.told("start")) >= 1)
    await asyncio.sleep(0.4)  # the second one must be younger than its own time-out; the test's subject, not a wait
    b.send("sleep-once 15", "b", "m2")
    await b.until(lambda: b.outcomes().count("completed") == 2)
    assert sorted(b.outcomes()) == ["completed", "completed", "timed-out", "worker-died"]


@pytest.mark.parametrize(("order", "code"), [("exit", 3), ("kill", 9)])
async def test_a_worker_that_ends_abandons_its_messages_and_is_started_again(
    bench: MakeBench, order: str, code: int
) -> None:
    b = await bench()
    b.send(order, message_id="m1")
    b.send("ok", message_id="m2")
    await b.until(lambda: b.outcomes().count("completed") == 2)
    assert b.outcomes() == ["worker-died", "completed", "completed"]
    assert starts(b) == [("m1", 1), ("m1", 2), ("m2", 1)]
    assert [death.exit_code for death in b.deaths] == [code]
    assert len({line.fields["pid"] for line in b.told("start")}) == 2


async def test_system_exit_of_a_synchronous_function_ends_the_worker_too(bench: MakeBench) -> None:
    source = (
        "import sys, azure.functions as func\napp = func.FunctionApp()\n"
        "@app.function_name('work')\n"
        "@app.service_bus_queue_trigger(arg_name='message', queue_name='orders', connection='Bus',"
        " is_sessions_enabled=True)\n"
        "def work(message: func.ServiceBusMessage):\n"
        "    if message.delivery_count == 1: sys.exit(3)\n"
    )
    b = await bench(source=source)
    b.send("x")
    await b.until(lambda: "completed" in b.outcomes())
    assert b.outcomes() == ["worker-died", "completed"]
    assert [death.exit_code for death in b.deaths] == [3]


async def test_kill_worker_fails_every_invocation_in_hand_and_no_message_is_lost(bench: MakeBench) -> None:
    b = await bench()
    for session in "abcd":
        b.send("sleep-once 15", session, f"m-{session}")
    await b.until(lambda: len(b.told("start")) >= 4)
    b.host.kill_worker()
    await b.until(lambda: b.outcomes().count("completed") == 4)
    assert sorted(b.outcomes()) == ["completed"] * 4 + ["worker-died"] * 4
    assert b.service.counts("orders").active == 0


async def test_a_lock_lost_while_working_is_told_and_the_message_comes_again(bench: MakeBench) -> None:
    """C72 too short: the work is done twice. Auto renewal is counted from the session's accept, not per message."""
    b = await bench(
        queues=[QueueOptions("orders", requires_session=True, lock_seconds=1)],
        service_bus={"maxAutoLockRenewalDuration": "00:00:00"},
    )
    b.send("sleep-once 2", message_id="m1")
    await b.until(lambda: len(b.ended()) >= 2)
    # Another slot took the session over and was done while the first run still worked (R55).
    assert b.outcomes() == ["completed", "lock-lost"]
    assert starts(b) == [("m1", 1), ("m1", 2)]


async def test_renewal_ends_although_a_later_message_of_the_session_is_young(bench: MakeBench) -> None:
    b = await bench(
        queues=[QueueOptions("orders", requires_session=True, lock_seconds=1)],
        service_bus={"maxAutoLockRenewalDuration": "00:00:01.5"},
    )
    for number in range(8):
        b.send("sleep 0.4", message_id=f"m{number}")
    await b.until(lambda: "lock-lost" in b.outcomes())
    # Each message is shorter than the lock; the session as a whole outlived the renewals.
    assert b.outcomes().index("lock-lost") >= 3


async def test_the_lock_is_renewed_in_the_background_even_while_the_handler_blocks_its_loop(bench: MakeBench) -> None:
    b = await bench(queues=[QueueOptions("orders", requires_session=True, lock_seconds=1)])
    b.send("block 2.5", message_id="m1")
    await b.until(lambda: bool(b.ended()))
    assert b.outcomes() == ["completed"]
    assert starts(b) == [("m1", 1)]


async def test_an_observer_that_fails_costs_no_message(bench: MakeBench) -> None:
    b = await bench()

    def fail(_: object) -> None:
        raise RuntimeError("an observer's own fault")

    b.host.observers.insert(0, fail)
    b.send("ok")
    await b.until(lambda: bool(b.ended()))
    assert b.outcomes() == ["completed"]
