"""Timer triggers: schedule, singleton, past_due, run_on_startup."""

from __future__ import annotations

import asyncio
import time

from tests.host.conftest import MakeBench

EVERY_SECOND = {"TICK": "* * * * * *"}
NEVER = {"TICK": "0 0 0 1 1 *"}


class Clock:
    """The time, which a test moves on."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


async def test_a_timer_runs_by_its_schedule_once_for_all_instances(bench: MakeBench) -> None:
    b = await bench("timers", settings=EVERY_SECOND, instances=2)
    await b.until(lambda: len(b.told("tick")) >= 3)
    seconds = [event.seconds for event in b.ended("tick")]
    assert all(second < 1 for second in seconds)
    assert [line.fields["past_due"] for line in b.told("tick")] == [False] * len(b.told("tick"))
    assert b.outcomes("tick")[0] == "completed"
    assert {line.fields["pid"] for line in b.told("tick")} == set(b.host.worker_pids)  # by turns
    assert len(b.told("tick")) <= 4


async def test_a_run_longer_than_the_schedule_is_never_overlapped(bench: MakeBench) -> None:
    b = await bench("timers", settings={**EVERY_SECOND, "TICK_SECONDS": "1.3"})
    await b.until(lambda: len(b.told("tock")) >= 2)
    order = [event.message for event in b.events if getattr(event, "message", "") in ("tick", "tock")]
    assert order[:4] == ["tick", "tock", "tick", "tock"]


async def test_run_on_startup_runs_at_once_and_not_past_due(bench: MakeBench) -> None:
    b = await bench("timers", settings={**NEVER, "RUN_ON_STARTUP": "1"})
    await b.until(lambda: bool(b.told("tock")))
    assert b.told("tick")[0].fields["past_due"] is False
    await b.until(lambda: bool(b.ended("tick")))
    b.host.set_disabled("tick", True)
    b.host.set_disabled("tick", False)
    await asyncio.sleep(0.3)
    assert len(b.told("tick")) == 1  # resuming is no start


async def test_a_run_that_was_missed_while_switched_off_is_made_up_for_once_with_past_due(bench: MakeBench) -> None:
    clock = Clock()
    b = await bench("timers", settings={"TICK": "0 0 * * * *"}, clock=clock)
    b.host.set_disabled("tick", True)
    clock.ahead = 3 * 3600.0
    b.host.set_disabled("tick", False)
    await b.until(lambda: bool(b.ended("tick")))
    (line,) = b.told("tick")
    assert line.fields["past_due"] is True
    status = line.fields["status"]
    assert isinstance(status, dict)
    assert status["Last"] < status["Next"]


async def test_a_timer_that_comes_due_by_the_stack_s_clock_runs(bench: MakeBench) -> None:
    clock = Clock()
    b = await bench("timers", settings={"TICK": "0 0 * * * *"}, clock=clock)
    clock.ahead = 3600.0
    await b.until(lambda: bool(b.ended("tick")))
    assert b.told("tick")[0].fields["past_due"] is False


async def test_a_stop_waits_for_the_run_in_hand(bench: MakeBench) -> None:
    b = await bench("timers", settings={**EVERY_SECOND, "TICK_SECONDS": "0.8"})
    await b.until(lambda: bool(b.told("tick")))
    await b.host.stop()
    assert b.outcomes("tick") == ["completed"]
    assert len(b.told("tick")) == len(b.told("tock"))
