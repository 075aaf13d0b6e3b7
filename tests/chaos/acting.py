"""Carries a plan out on a stack that runs, and counts what was done to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from local.faults import Armed, Service
from local.host.host import FunctionsHost
from local.stack import Stack
from tests.chaos.plan import KILL, Act, Away, Break, End, Plan, Point, Reload, Storm, rule_of_outage, rule_of_point
from tests.chaos.traffic import Traffic

MERCY_SECONDS = 30.0  # so long workers are left alone for a message that has met too many deaths
POINT_SECONDS = 8.0  # so long an operation is waited for that comes to a point
STOPPED_SECONDS = 0.3  # so long it stands there while the workers are drained


@dataclass(slots=True)
class Done:
    """What was done, for the table: how often, and how many operations it hit."""

    acts: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    away_seconds: Counter[str] = field(default_factory=Counter)
    ended: set[int] = field(default_factory=set)  # processes that the plan has ended
    deaths: Counter[str] = field(default_factory=Counter)


class Actor:
    """Does what the plan says, each track beside the others."""

    def __init__(self, stack: Stack, traffic: Traffic, all_well: asyncio.Event, note: Callable[[str], None]) -> None:
        self.done = Done()
        self._stack = stack
        self._traffic = traffic
        self._all_well = all_well
        self._note = note
        self._start = time.monotonic()

    @property
    def _host(self) -> FunctionsHost:
        assert self._stack.host is not None
        return self._stack.host

    async def run(self, plan: Plan) -> None:
        """Carry the plan out, from now on; then every fault is off."""
        self._start = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for track in plan.tracks:
                    group.create_task(self._track(track))
        finally:
            self._stack.faults.clear()

    async def _track(self, acts: Sequence[Act]) -> None:
        for act in acts:
            await asyncio.sleep(max(0.0, self._start + act.at - time.monotonic()))
            match act:
                case End():
                    await self._end(act)
                case Reload():
                    await self._reload(act)
                case Break():
                    await self._break(act)
                case Away():
                    await self._away(act)
                case Storm():
                    await self._storm(act)

    # Processes

    async def _is_bearable(self) -> bool:
        """Let a message come through that was in hand at too many deaths; three more would prove it to be poison."""
        try:
            async with asyncio.timeout(MERCY_SECONDS):
                await self._all_well.wait()
        except TimeoutError:
            return False
        return True

    async def _end(self, act: End) -> None:
        if not await self._is_bearable():
            self.done.acts["worker spared"] += 1
            return
        what = "kill -9" if act.signal == KILL else "SIGTERM to a worker"
        if act.point is None:
            self._signal(what, act)
            return
        with self._at(act.point) as armed:
            if not await _is_hit(armed):
                self.done.acts[f"{what} (point not met)"] += 1
                self._signal(what, act)
                return
            self._signal(f"{what} at a point", act)
            self.done.hits[f"point: {act.point}"] += 1

    def _signal(self, what: str, act: End) -> None:
        self.done.acts[what] += 1
        self._note(f"{what}{'' if act.point is None else f', {act.point}'}")
        for instance in act.instances:
            pid = self._host.worker_pids[instance]
            if pid is None:
                continue  # it is just being started
            self.done.deaths[what] += 1
            self.done.ended.add(pid)
            if act.signal == KILL:
                self._host.kill_worker(instance)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    async def _reload(self, act: Reload) -> None:
        what = "drained and reloaded" if act.drain_seconds > 1 else "reloaded, work cut off"
        if act.point is None:
            self._note(what)
            await self._host.reload(drain_seconds=act.drain_seconds)
            self.done.acts[what] += 1
            return
        with self._at(act.point) as armed:
            is_hit = await _is_hit(armed)
            self._note(f"{what}, {act.point}" if is_hit else what)
            reloading = asyncio.create_task(self._host.reload(drain_seconds=act.drain_seconds))
            await asyncio.sleep(STOPPED_SECONDS)
            armed.release()
            await reloading
            self.done.acts[f"{what} at a point" if is_hit else f"{what} (point not met)"] += 1
            self.done.hits[f"point: {act.point}"] += is_hit

    @contextlib.contextmanager
    def _at(self, point: Point) -> Iterator[Armed]:
        """Hold the next operation at a point; at the end, one that was not done yet never is."""
        with self._stack.faults.add(rule_of_point(point)) as armed:
            yield armed

    # Services

    async def _break(self, act: Break) -> None:
        self._note(act.title)
        self.done.acts[act.title] += 1
        armed = [self._stack.faults.add(rule) for rule in act.rules]
        await asyncio.sleep(act.seconds)
        for each in armed:
            self.done.hits[act.title] += each.hits
            each.release()
            each.disarm()

    async def _away(self, act: Away) -> None:
        what = f"outage of {'the database' if act.service is Service.COSMOS else 'the broker'}"
        self._note(f"{what}, {act.seconds:.0f} s")
        with self._stack.faults.add(rule_of_outage(act)):
            await asyncio.sleep(act.seconds)
        self.done.acts[what] += 1
        self.done.away_seconds[what] += round(act.seconds)

    async def _storm(self, act: Storm) -> None:
        self._note(f"{act.copies} copies")
        self.done.acts["duplicate storm"] += 1
        await self._traffic.storm(act.copies)


async def _is_hit(armed: Armed) -> bool:
    try:
        async with asyncio.timeout(POINT_SECONDS):
            await armed.until_hit()
    except TimeoutError:
        return False
    return True
