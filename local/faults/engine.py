"""The engine: which rules are armed, which of them meets an operation, what they hold back, and what was asked for.

It lives on one event loop, as the services do. Whether a rule hits depends on the operations that it has seen and on
its seed alone, so the same operations in the same order meet the same faults.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from local.faults.actions import Action, FaultError, Outage, Service, Starts, Throttle
from local.faults.rules import Key, Operation, Rule, fits

HISTORY_ENTRIES: Final = 10_000
_KEYS_AN_ENTRY: Final = 10  # a batch of thousands of messages must not fill the memory


class Plug(Protocol):
    """How the engine takes hold of a service."""

    def check(self, rule: Rule) -> None:
        """Raise FaultError when the service, as it is set up, can't do what the rule wants."""

    def armed(self, rules: Sequence[Rule]) -> None:
        """Hear which rules of the service are armed now."""

    def suspend(self) -> None:
        """Refuse connections and cut those that are open."""

    def resume(self) -> None:
        """Take connections again."""


@dataclass(slots=True)
class Entry:
    """An operation in the history. `result` is what doing it gave; None while, or where, it was not done."""

    number: int
    time: float
    service: Service
    operation: str
    entity: str
    keys: Sequence[Key]
    more_keys: int
    rule: str | None = None
    result: str | None = None


class Held:
    """An operation that a rule holds back: it goes on or is dropped, once."""

    def __init__(self, armed: Armed, go_on: Callable[[], None] | None, drop: Callable[[], None]) -> None:
        self._armed = armed
        self._go_on = go_on
        self._drop = drop
        self.timer: asyncio.TimerHandle | None = None
        armed.held[self] = None

    @property
    def waits_for_release(self) -> bool:
        """Whether it goes on when the rule is released: not by itself in time, not never."""
        return self._go_on is not None and self.timer is None

    def go_on(self) -> None:
        """Let it happen."""
        if self._leave() and self._go_on is not None:
            self._go_on()

    def drop(self) -> None:
        """Let it not happen."""
        if self._leave():
            self._drop()

    def _leave(self) -> bool:
        if self.timer is not None:
            self.timer.cancel()
        return self._armed.held.pop(self, self) is None


class Armed:
    """A rule that is armed. As a context manager it is disarmed at the end of the block."""

    def __init__(self, faults: Faults, rule: Rule) -> None:
        self.rule = rule
        self.seen = 0  # operations that the rule is for
        self.hits = 0
        self.is_armed = True
        self.held: dict[Held, None] = {}
        self.allowance = Allowance(rule.action.ru_per_second) if isinstance(rule.action, Throttle) else None
        self._faults = faults
        self._random = random.Random(f"{faults.seed}/{rule.seed}/{rule.name}")  # noqa: S311 - repeatable on purpose
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disarm()

    def disarm(self) -> None:
        """End the rule: what it holds is dropped, a service that it took away is back."""
        self._faults.disarm(self)

    def release(self) -> int:
        """Let go on what the rule has stalled; gives how many operations that were. The next ones stall again."""
        stalled = [held for held in self.held if held.waits_for_release]
        for held in stalled:
            held.go_on()
        return len(stalled)

    async def until_hit(self, times: int = 1) -> None:
        """Wait until the rule has hit so often."""
        if self.hits < times:
            hit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((times, hit))
            await hit

    def hold(self, go_on: Callable[[], None] | None, drop: Callable[[], None], *, seconds: float | None = None) -> None:
        """Keep an operation until the rule is released, until its time has come, or (no `go_on`) for ever."""
        held = Held(self, go_on, drop)
        if seconds is not None:
            held.timer = asyncio.get_running_loop().call_later(seconds, held.go_on)

    def takes(self) -> bool:
        """Whether the rule hits the next operation that it is for."""
        if self.allowance is not None and not self.allowance.is_spent():
            return False
        self.seen += 1
        rule = self.rule
        if self.seen <= rule.skip or (rule.count is not None and self.hits >= rule.count):
            return False
        return rule.probability >= 1 or self._random.random() < rule.probability

    def count_hit(self) -> None:
        """Note a hit, for those who wait for it."""
        self.hits += 1
        for wanted, hit in self._waiting:
            if self.hits >= wanted and not hit.done():
                hit.set_result(None)
        self._waiting = [(wanted, hit) for wanted, hit in self._waiting if not hit.done()]

    def end(self) -> None:
        """Drop what is held."""
        self.is_armed = False
        for held in list(self.held):
            held.drop()


class Allowance:
    """Request units that may be used: those of one second at most, refilled all the time, overdrawn by one request."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = rate
        self._at = clock()

    def is_spent(self) -> bool:
        """Whether the next request has to wait."""
        self._refill()
        return self._left <= 0

    def spend(self, units: float) -> None:
        """Use units."""
        self._refill()
        self._left -= units

    def wait_ms(self) -> int:
        """How long until there are units again; one millisecond at least."""
        self._refill()
        return max(1, int(-self._left / self._rate * 1000) + 1)

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now


class Faults:
    """The faults of one stack: rules to arm, and the history of what clients asked for.

    `seed` and the rules' names decide what happens with a probability.
    """

    def __init__(
        self, *, seed: int = 0, clock: Callable[[], float] = time.time, history_entries: int = HISTORY_ENTRIES
    ) -> None:
        self.seed = seed
        self._clock = clock
        self._plugs: dict[Service, Plug] = {}
        self._armed: dict[str, Armed] = {}
        self._by_service: dict[Service, list[Armed]] = {service: [] for service in Service}
        self._history: deque[Entry] = deque(maxlen=history_entries)
        self._number = 0
        self._outages: dict[Service, dict[Armed, asyncio.TimerHandle | None]] = {service: {} for service in Service}

    # -------------------------------------------------------------------------------------------------------- rules

    def plug_in(self, service: Service, plug: Plug) -> None:
        """Connect a service."""
        self._plugs[service] = plug

    def add(self, rule: Rule) -> Armed:
        """Arm a rule, behind those that are armed.

        Raises:
            FaultError: its name is taken, or the service can't do it.
        """
        if rule.name in self._armed:
            raise FaultError("name", f"{rule.name!r} is armed already")
        self._plug(rule.service).check(rule)
        armed = self._armed[rule.name] = Armed(self, rule)
        self._by_service[rule.service].append(armed)
        self._tell(rule.service)
        if isinstance(rule.action, Outage) and rule.action.starts is Starts.AT_ONCE:
            armed.count_hit()
            self.begin_outage(armed)
        return armed

    def disarm(self, armed: Armed) -> None:
        """End a rule; one that has ended stays so."""
        if self._armed.get(armed.rule.name) is not armed:
            return
        service = armed.rule.service
        del self._armed[armed.rule.name]
        self._by_service[service].remove(armed)
        self._tell(service)
        armed.end()
        self._end_outage(armed)

    def clear(self) -> None:
        """Disarm every rule."""
        for armed in list(self._armed.values()):
            self.disarm(armed)

    @property
    def armed(self) -> Sequence[Armed]:
        """The rules that are armed, in the order in which they are asked."""
        return list(self._armed.values())

    def named(self, name: str) -> Armed | None:
        """The armed rule of this name."""
        return self._armed.get(name)

    def armed_for(self, service: Service) -> Sequence[Armed]:
        """The service's own."""
        return self._by_service[service]

    # --------------------------------------------------------------------------------------------------- operations

    def meet(self, operation: Operation, can: Callable[[Action], bool]) -> tuple[Entry, Armed | None]:
        """Note an operation; gives the first rule that hits it. `can` says which actions are possible with it."""
        self._number += 1
        keys = operation.keys
        entry = Entry(
            self._number,
            self._clock(),
            operation.service,
            operation.name,
            operation.entity,
            keys[:_KEYS_AN_ENTRY],
            max(0, len(keys) - _KEYS_AN_ENTRY),
        )
        self._history.append(entry)
        for armed in self._by_service[operation.service]:
            if armed.rule.matches(operation) and can(armed.rule.action) and armed.takes():
                entry.rule = armed.rule.name
                armed.count_hit()
                return entry, armed
        return entry, None

    def history(
        self,
        *,
        after: int = 0,
        service: Service | None = None,
        operation: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        id: str | None = None,  # noqa: A002 - the rules' own word
        rule: str | None = None,
    ) -> list[Entry]:
        """The operations that are still remembered, oldest first; patterns are those of rules."""

        def is_wanted(entry: Entry) -> bool:
            return (
                entry.number > after
                and service in (None, entry.service)
                and fits(operation, entry.operation)
                and fits(entity, entry.entity, folds=entry.service is Service.BROKER)
                and fits(rule, entry.rule)
                and (
                    (group is None and id is None)
                    or any(fits(group, key.group) and fits(id, key.id) for key in entry.keys)
                )
            )

        return [entry for entry in self._history if is_wanted(entry)]

    def forget(self) -> None:
        """Empty the history."""
        self._history.clear()

    # ------------------------------------------------------------------------------------------------------ outages

    def begin_outage(self, armed: Armed) -> None:
        """Take the rule's service away; an outage that goes on begins anew."""
        action, service = armed.rule.action, armed.rule.service
        if not isinstance(action, Outage):
            raise TypeError(f"{action.kind} is no outage")
        outages = self._outages[service]
        was_up = not outages
        timer = outages.pop(armed, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        outages[armed] = None if action.seconds is None else loop.call_later(action.seconds, self._end_outage, armed)
        if was_up:
            self._plug(service).suspend()

    def is_out(self, service: Service) -> bool:
        """Whether the service is away."""
        return bool(self._outages[service])

    def _end_outage(self, armed: Armed) -> None:
        outages = self._outages[armed.rule.service]
        if armed not in outages:
            return
        timer = outages.pop(armed)
        if timer is not None:
            timer.cancel()
        if not outages:
            self._plug(armed.rule.service).resume()

    def _plug(self, service: Service) -> Plug:
        plug = self._plugs.get(service)
        if plug is None:
            raise FaultError("service", f"there is no {service.value} to do this to")
        return plug

    def _tell(self, service: Service) -> None:
        self._plug(service).armed([armed.rule for armed in self._by_service[service]])
