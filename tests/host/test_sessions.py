"""Which messages the host takes, and when it lets go (functions-platform 3.3, 4.2; R54 to R58)."""

from __future__ import annotations

import asyncio
import time

from local.broker.model import QueueOptions
from tests.host.conftest import Bench, MakeBench

RECEIVER = """
import asyncio, logging, azure.functions as func
app = func.FunctionApp()
@app.function_name('work')
@app.service_bus_queue_trigger(arg_name='message', queue_name='plain', connection='Bus')
async def work(message: func.ServiceBusMessage):
    logging.info('start', extra={'message_id': message.message_id})
    await asyncio.sleep(float(message.get_body()))
"""
SYNCHRONOUS = """
import time, azure.functions as func
app = func.FunctionApp()
@app.function_name('work')
@app.service_bus_queue_trigger(arg_name='message', queue_name='orders', connection='Bus', is_sessions_enabled=True)
def work(message: func.ServiceBusMessage):
    time.sleep(0.5)
"""


def handled(b: Bench) -> list[str | None]:
    return [event.message_id for event in b.ended() if event.outcome == "completed"]


async def test_sessions_run_side_by_side_and_each_in_order(bench: MakeBench) -> None:
    b = await bench()
    for number in range(3):
        for session in "abcd":
            b.send("sleep 0.2", session, f"{session}{number}")
    start = time.monotonic()
    await b.until(lambda: len(b.ended()) >= 12)
    assert time.monotonic() - start < 2.0  # one after the other would take 2.4 s
    for session in "abcd":
        assert [m for m in handled(b) if str(m).startswith(session)] == [f"{session}{n}" for n in range(3)]


async def test_no_more_sessions_are_open_than_max_concurrent_sessions(bench: MakeBench) -> None:
    b = await bench(service_bus={"maxConcurrentSessions": 2})
    for session in "abc":
        b.send("sleep 0.5", session, session)
    await b.until(lambda: len(b.told("start")) >= 2)
    locked = [view for view in b.service.broker.queue("orders").sessions(time.time()) if view.locked_by]
    assert len(locked) == 2
    assert len(b.told("start")) == 2
    await b.until(lambda: len(b.ended()) >= 3)


async def test_the_idle_time_out_counts_waiting_only_not_a_running_handler(bench: MakeBench) -> None:
    """R57: the real host's client lets a session go after waiting, not after receiving."""
    b = await bench()  # idle 0.1 s
    b.send("sleep 0.6", message_id="m1")
    b.send("ok", message_id="m2")
    await b.until(lambda: len(b.ended()) >= 2)
    assert [(event.message_id, event.delivery_count) for event in b.ended()] == [("m1", 1), ("m2", 1)]


async def test_an_idle_session_keeps_its_slot_for_the_idle_time_out(bench: MakeBench) -> None:
    """R56: one-message sessions and a long idle time-out starve the others."""
    b = await bench(service_bus={"maxConcurrentSessions": 1, "sessionIdleTimeout": "00:00:01"})
    b.send("ok", "a", "m1")
    b.send("ok", "b", "m2")
    await b.until(lambda: len(b.ended()) >= 1)
    start = time.monotonic()
    await b.until(lambda: len(b.ended()) >= 2)
    assert time.monotonic() - start > 0.8


async def test_two_hundred_sessions_of_one_message_are_done_in_less_than_a_minute(bench: MakeBench) -> None:
    """R56."""
    b = await bench(service_bus={"maxConcurrentSessions": 16, "sessionIdleTimeout": "00:00:00.05"})
    for number in range(200):
        b.send("ok", f"session-{number}", f"m{number}")
    await b.until(lambda: len(b.ended()) >= 200, seconds=60)
    assert b.outcomes() == ["completed"] * 200


async def test_without_prefetch_an_abandoned_message_comes_before_its_successors(bench: MakeBench) -> None:
    b = await bench()
    for number in range(6):
        b.send("fail-once" if number == 2 else "ok", message_id=f"m{number}")
    await b.until(lambda: len(handled(b)) == 6)
    assert handled(b) == [f"m{number}" for number in range(6)]


async def test_with_prefetch_an_abandoned_message_comes_behind_its_successors(bench: MakeBench) -> None:
    """R54: the reason for prefetchCount 0."""
    b = await bench(service_bus={"prefetchCount": 10})
    for number in range(6):
        b.send("fail-once" if number == 2 else "ok", message_id=f"m{number}")
    await b.until(lambda: len(handled(b)) == 6)
    assert handled(b) == ["m0", "m1", "m3", "m4", "m5", "m2"]


async def test_prefetched_messages_of_a_session_that_is_given_up_go_back_uncounted(bench: MakeBench) -> None:
    b = await bench(service_bus={"prefetchCount": 10})
    b.send("sleep 0.3", message_id="m1")
    b.send("ok", message_id="m2")
    await b.until(lambda: len(b.told("start")) >= 1)
    b.host.set_disabled("work", True)
    await b.until(lambda: len(b.ended()) >= 1)
    b.host.set_disabled("work", False)
    await b.until(lambda: len(b.ended()) >= 2)
    assert [(event.message_id, event.delivery_count) for event in b.ended()] == [("m1", 1), ("m2", 1)]


async def test_synchronous_functions_run_in_a_pool_of_threads_of_the_setting_s_size(bench: MakeBench) -> None:
    """functions-platform 3.3: locks tick while messages queue for a thread."""
    settings = {"Bus": "Endpoint=sb://localhost;UseDevelopmentEmulator=true", "PYTHON_THREADPOOL_THREAD_COUNT": "1"}
    b = await bench(source=SYNCHRONOUS, settings=settings)
    for session in "abc":
        b.send("x", session)
    await b.until(lambda: len(b.ended()) >= 3)
    assert max(event.seconds for event in b.ended()) > 1.2  # the third waited for two others
    wide = await bench(source=SYNCHRONOUS, settings={**settings, "PYTHON_THREADPOOL_THREAD_COUNT": "4"})
    for session in "abc":
        wide.send("x", session)
    await wide.until(lambda: len(wide.ended()) == 3)
    assert max(event.seconds for event in wide.ended()) < 1.2


async def test_a_blocking_call_in_an_asynchronous_function_holds_up_all_others(bench: MakeBench) -> None:
    b = await bench()
    for session in "abc":
        b.send("block 0.4", session)
    await b.until(lambda: len(b.ended()) >= 3)
    assert max(event.seconds for event in b.ended()) > 1.0


async def test_several_instances_share_the_sessions_and_no_message_runs_twice(bench: MakeBench) -> None:
    b = await bench(instances=2, service_bus={"maxConcurrentSessions": 2})
    for session in "abcdefgh":
        b.send("sleep 0.2", session, session)
    await b.until(lambda: len(b.ended()) >= 8)
    assert sorted(map(str, handled(b))) == list("abcdefgh")
    assert {event.instance for event in b.ended()} == {0, 1}
    assert len({line.fields["pid"] for line in b.told("start")}) == 2


async def test_a_killed_instance_leaves_its_messages_to_the_session_it_keeps(bench: MakeBench) -> None:
    b = await bench(instances=2)
    for session in "abcd":
        b.send("sleep-once 15", session, session)
    await b.until(lambda: len(b.told("start")) >= 4)
    b.host.kill_worker(0)
    b.host.kill_worker(1)
    await b.until(lambda: b.outcomes().count("completed") == 4)
    assert sorted(handled(b), key=str) == list("abcd")


async def test_a_function_that_is_switched_off_finishes_what_it_has_and_takes_no_more(bench: MakeBench) -> None:
    """C11 pause and resume: AzureWebJobs.<function>.Disabled at run time."""
    b = await bench()
    b.send("sleep 0.5", "a", "m1")
    b.send("ok", "a", "m2")
    await b.until(lambda: len(b.told("start")) >= 1)
    b.host.set_disabled("work", True)
    b.send("ok", "b", "m3")
    await b.until(lambda: len(b.ended()) >= 1)
    assert b.outcomes() == ["completed"]
    await b.host.reload()  # a reload doesn't switch it on
    assert b.service.counts("orders").active == 2
    assert len(b.told("start")) == 1
    b.host.set_disabled("work", False)
    await b.until(lambda: len(b.ended()) >= 3)
    assert [event.delivery_count for event in b.ended()] == [1, 1, 1]


async def test_pausing_and_resuming_at_once_keeps_the_number_of_slots(bench: MakeBench) -> None:
    b = await bench(service_bus={"maxConcurrentSessions": 2})
    b.send("sleep 1", "a")
    await b.until(lambda: len(b.told("start")) >= 1)
    for _ in range(5):
        b.host.set_disabled("work", True)
        b.host.set_disabled("work", False)
    for session in "bcd":
        b.send("sleep 0.5", session)
    await b.until(lambda: len(b.ended()) >= 1)
    locked = [view for view in b.service.broker.queue("orders").sessions(time.time()) if view.locked_by]
    assert len(locked) == 2
    await b.until(lambda: len(b.ended()) >= 4)


async def test_the_disabled_setting_switches_a_function_off_from_the_start(bench: MakeBench) -> None:
    connection = "Endpoint=sb://localhost;UseDevelopmentEmulator=true"
    settings = {"ORDERS_QUEUE": "orders", "Bus": connection, "AzureWebJobs.work.Disabled": "true"}
    b = await bench(settings=settings)
    assert b.host.disabled == {"work"}
    b.send("ok")
    b.host.set_disabled("work", False)
    await b.until(lambda: len(b.ended()) >= 1)


async def test_stop_drains_in_flight_work_and_gives_the_rest_back(bench: MakeBench) -> None:
    """R58: no new work, current work finished, locks given back."""
    b = await bench()
    b.send("sleep 0.5", "a", "m1")
    b.send("ok", "a", "m2")
    await b.until(lambda: len(b.told("start")) >= 1)
    await b.host.stop()
    assert b.outcomes() == ["completed"]
    assert b.service.counts("orders").active == 1
    assert not [view for view in b.service.broker.queue("orders").sessions(time.time()) if view.locked_by]
    assert b.host.worker_pids == [None]


async def test_stop_gives_back_what_is_not_done_in_time_with_its_delivery_count_unchanged(bench: MakeBench) -> None:
    b = await bench()
    b.send("sleep 15", message_id="m1")
    await b.until(lambda: len(b.told("start")) >= 1)
    await b.host.stop(drain_seconds=0.2)
    assert b.outcomes() == []
    lock = await b.service.accept_session("orders", "s1", owner="test", wait_seconds=1)
    assert lock is not None
    delivery = await b.service.receive_from_session(lock, wait_seconds=1)
    assert delivery is not None
    assert delivery.delivery_count == 0


async def test_an_idle_host_lets_go_at_once(bench: MakeBench) -> None:
    b = await bench(service_bus={"sessionIdleTimeout": "00:01:00"})
    b.send("ok")
    await b.until(lambda: len(b.ended()) >= 1)
    async with asyncio.timeout(10):
        await b.host.stop()


async def test_a_queue_without_sessions_is_served_with_its_locks_renewed(bench: MakeBench) -> None:
    b = await bench(source=RECEIVER, queues=[QueueOptions("plain", lock_seconds=1)])
    b.send("1.6", None, "m1", queue="plain")
    b.send("0", None, "m2", queue="plain")
    await b.until(lambda: len(b.ended()) >= 2)
    assert sorted(b.outcomes()) == ["completed", "completed"]
    assert {(event.message_id, event.delivery_count) for event in b.ended()} == {("m1", 1), ("m2", 1)}
    assert b.service.counts("plain").active == 0
