"""Timer triggers: one loop a function for the whole host, so a timer is a singleton and never overlaps itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from local.host.bindings import TimerFunction
from local.host.cron import Schedule
from local.host.events import InvocationEnded, Outcome
from local.host.metadata import naive_time
from local.host.pool import Emit, Result, elapsed_since
from local.host.settlement import Ending, decide

_LONGEST_SLEEP_SECONDS: Final = 1.0  # the clock may be one that somebody moves
_MONITORED: Final = timedelta(minutes=1)  # the platform keeps no status of more frequent schedules

Invoke = Callable[[dict[str, object], bytes], Awaitable[Result]]


@dataclass(slots=True)
class TimerStatus:
    """What is remembered of a timer while the host lives: when it ran, and when it should run next."""

    last: datetime | None = None
    due: datetime | None = None


def is_monitored(schedule: Schedule, moment: datetime) -> bool:
    """Whether runs that were missed are made up for: only where runs are at least a minute apart."""
    first = schedule.next_after(moment)
    second = None if first is None else schedule.next_after(first)
    return first is not None and (second is None or second - first >= _MONITORED)


class Timer:
    """Runs one timer function; pausing lets a run end."""

    def __init__(
        self, function: TimerFunction, status: TimerStatus, invoke: Invoke, clock: Callable[[], float], emit: Emit
    ) -> None:
        self._function = function
        self._status = status
        self._invoke = invoke
        self._clock = clock
        self._emit = emit
        self._task: asyncio.Task[None] | None = None
        self._is_running = False
        self._stop = False
        self._runs_at_once = function.run_on_startup

    def resume(self) -> None:
        """Follow the schedule; a run that was missed meanwhile is made up for once, with past_due."""
        self._stop = False
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._loop())

    def pause(self) -> None:
        """Start no new run."""
        self._stop = True
        self._runs_at_once = False
        if self._task is not None and not self._is_running:
            self._task.cancel()
            self._task = None

    async def drain(self, seconds: float) -> None:
        """Wait for a run in hand, then cut it off."""
        self.pause()
        if self._task is None:
            return
        _, late = await asyncio.wait({self._task}, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _loop(self) -> None:
        schedule, status = self._function.schedule, self._status
        missed = status.due is not None and status.due <= self._now() and is_monitored(schedule, self._now())
        if self._runs_at_once or missed:
            await self._run(is_past_due=missed)
        while not self._stop:
            status.due = schedule.next_after(self._now())
            if status.due is None:
                return
            await self._sleep_until(status.due)
            await self._run(is_past_due=False)

    async def _sleep_until(self, moment: datetime) -> None:
        while True:
            wait = (moment - self._now()).total_seconds()
            if wait <= 0:
                return
            await asyncio.sleep(min(wait, _LONGEST_SLEEP_SECONDS))

    async def _run(self, *, is_past_due: bool) -> None:
        self._is_running, start = True, time.monotonic()
        try:
            status = self._status
            status.last = self._now()
            following = self._function.schedule.next_after(status.last)
            payload = {
                "Schedule": {"AdjustForDST": True},
                "ScheduleStatus": {
                    "Last": f"{naive_time(status.last.timestamp())}+00:00",
                    "Next": None if following is None else f"{naive_time(following.timestamp())}+00:00",
                    "LastUpdated": f"{naive_time(status.last.timestamp())}+00:00",
                },
                "IsPastDue": is_past_due,
            }
            header: dict[str, object] = {"function": self._function.name, "kind": "json"}
            result = await self._invoke(header, json.dumps(payload).encode())
        finally:
            self._is_running = False
        self._emit(ended(self._function.name, result, elapsed_since(start)))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def ended(function: str, result: Result, seconds: float) -> InvocationEnded:
    """The event of an invocation without a message: completed, or abandoned to its caller."""
    _, outcome = decide(result.ending, auto_complete=True)
    if result.ending is Ending.FAILED:
        outcome = Outcome.FAILED
    return InvocationEnded(function, None, None, None, None, None, outcome, seconds, error=result.error)
