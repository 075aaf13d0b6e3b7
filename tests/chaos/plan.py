"""What is done to the app, and when: a plan, made of a seed. Pure; the same seed makes the same plan.

Four tracks run side by side, each one act after the other: the worker processes, the faults of the database, those of
the broker, and the storms of copies. An outage is on its service's track. While a service is away few workers are
ended, since a message then waits inside one delivery, and each death takes one of the ten that the queues allow.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from local.faults import (
    Answer,
    Cut,
    Delay,
    DeliverTwice,
    ExpireLock,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Rule,
    Service,
    Stage,
    Stall,
    Throttle,
)
from local.faults.actions import Action

INSTANCES = 2
KILL = 9  # Windows has no such name; there both end a process at once
TERMINATE: int = signal.SIGTERM

SHORTEST_OUTAGE_SECONDS = 20.0  # of a run that is long enough for them
LONGEST_OUTAGE_SECONDS = 450.0  # the local queues' ten deliveries, of a minute's back-off each, allow 8 minutes
DEATHS_IN_AN_OUTAGE = 2
CALM_SECONDS = 1.0  # at the start and at the end

T = TypeVar("T")

WRITES = ("Create", "Replace", "Delete", "Batch")


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of the protocol: an operation that has arrived, or that is done and not answered."""

    service: Service
    operation: str
    entity: str
    stage: Stage

    def __str__(self) -> str:
        return f"{self.stage.value} {self.operation} on {self.entity}"


POINTS = tuple(
    Point(service, operation, entity, stage)
    for service, operation, entity in (
        (Service.COSMOS, "Create", "orders"),
        (Service.COSMOS, "Read", "orders"),
        (Service.COSMOS, "Replace", "orders"),
        (Service.COSMOS, "Batch", "orders"),
        (Service.COSMOS, "Batch", "ledgers"),
        (Service.COSMOS, "Batch", "ledger-entries"),
        (Service.BROKER, "send", "ledger-entries"),
        (Service.BROKER, "send", "quarantine"),
    )
    for stage in Stage
)


@dataclass(frozen=True, slots=True)
class End:
    """End the workers of these instances by a signal, at this moment or when an operation is at a point."""

    at: float
    instances: tuple[int, ...]
    signal: int
    point: Point | None = None


@dataclass(frozen=True, slots=True)
class Reload:
    """Drain both instances and start them anew; what isn't done in time is cut off. At a point: with work in hand."""

    at: float
    drain_seconds: float
    point: Point | None = None


@dataclass(frozen=True, slots=True)
class Break:
    """Arm rules for a while."""

    at: float
    seconds: float
    title: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Away:
    """Take a service away for a while."""

    at: float
    seconds: float
    service: Service


@dataclass(frozen=True, slots=True)
class Storm:
    """Send copies of what was sent before, some of it long ago, one message many times."""

    at: float
    copies: int


Act: TypeAlias = End | Reload | Break | Away | Storm


@dataclass(frozen=True, slots=True)
class Plan:
    """All acts, by track."""

    seed: int
    seconds: float
    processes: tuple[End | Reload, ...] = ()
    cosmos: tuple[Break | Away, ...] = ()
    broker: tuple[Break | Away, ...] = ()
    storms: tuple[Storm, ...] = ()

    @property
    def tracks(self) -> tuple[Sequence[Act], ...]:
        """The acts of each track, in their order."""
        return (self.processes, self.cosmos, self.broker, self.storms)

    @property
    def longest_outage(self) -> float:
        """In seconds; 0 without any."""
        return max((act.seconds for act in (*self.cosmos, *self.broker) if isinstance(act, Away)), default=0.0)


def make_plan(seed: int, seconds: float) -> Plan:
    """Make the plan of a run of that length."""
    random_ = random.Random(f"chaos/{seed}")
    outages = _outages(random_, seconds)
    return Plan(
        seed,
        seconds,
        processes=tuple(_processes(random_, seconds, outages)),
        cosmos=tuple(_breaks(random_, seconds, Service.COSMOS, COSMOS_FAULTS, outages)),
        broker=tuple(_breaks(random_, seconds, Service.BROKER, BROKER_FAULTS, outages)),
        storms=tuple(_storms(random_, seconds)),
    )


def _outages(random_: random.Random, seconds: float) -> list[Away]:
    """Take the services away by turns, one in each part of the time, so never both at once."""
    slot = max(150.0, seconds / 8)
    count = max(2, int(seconds / slot))
    slot = seconds / count
    longest = min(LONGEST_OUTAGE_SECONDS, 0.45 * slot)
    shortest = min(SHORTEST_OUTAGE_SECONDS, 0.7 * longest)
    services = random_.sample(list(Service), k=2)
    outages = []
    for number in range(count):
        length = random_.uniform(shortest, longest)
        start = number * slot + random_.uniform(CALM_SECONDS, slot - length - CALM_SECONDS)
        outages.append(Away(start, length, services[number % 2]))
    return outages


def _processes(random_: random.Random, seconds: float, outages: Sequence[Away]) -> Iterator[End | Reload]:
    deck = _Deck(random_, _PROCESS_ACTS)
    points = _Deck(random_, POINTS)
    deaths: dict[Away, int] = {}
    at = CALM_SECONDS + random_.uniform(0, 2)
    while at < seconds - CALM_SECONDS:
        outage = next((each for each in outages if each.at - 2 <= at <= each.at + each.seconds + 1), None)
        if outage is None:
            yield deck.next()(random_, at, points)
        elif deaths.get(outage, 0) < DEATHS_IN_AN_OUTAGE:
            deaths[outage] = deaths.get(outage, 0) + 1
            yield _kill(random_, at, points)
        at += random_.uniform(1.5, 5.0)


def _breaks(
    random_: random.Random,
    seconds: float,
    service: Service,
    faults: Sequence[tuple[str, tuple[Action, ...], dict[str, object]]],
    outages: Sequence[Away],
) -> Iterator[Break | Away]:
    waiting = [outage for outage in outages if outage.service is service]
    deck = _Deck(random_, faults)
    at, number = CALM_SECONDS, 0
    most = min(7.0, max(1.5, seconds / 15))
    while True:
        length = random_.uniform(most / 2, most)
        if waiting and waiting[0].at < at + length + 0.5:
            yield waiting[0]
            at = waiting[0].at + waiting.pop(0).seconds + 0.5
            continue
        if at + length > seconds - CALM_SECONDS:
            yield from waiting
            return
        title, actions, chosen = deck.next()
        number += 1
        rules = tuple(
            Rule(name=f"{service.value}-{number}-{place}", service=service, action=action, seed=number, **chosen)  # type: ignore[arg-type]
            for place, action in enumerate(actions)
        )
        yield Break(at, length, title, rules)
        at += length + random_.uniform(0.3, 2.0)


def _storms(random_: random.Random, seconds: float) -> Iterator[Storm]:
    at = random_.uniform(4, 8)
    while at < seconds - CALM_SECONDS:
        yield Storm(at, random_.randrange(30, 150))
        at += random_.uniform(8, 20)


class _Deck(Generic[T]):
    """Draws by turns from all that there is, so that nothing is left out by chance."""

    def __init__(self, random_: random.Random, cards: Sequence[T]) -> None:
        self._random, self._cards = random_, list(cards)
        self._left: list[T] = []

    def next(self) -> T:
        """Draw one."""
        if not self._left:
            self._left = self._random.sample(self._cards, k=len(self._cards))
        return self._left.pop()


# What can be done to the processes

_Points = _Deck[Point]


def _kill(random_: random.Random, at: float, _: _Points) -> End:
    return End(at, (random_.randrange(INSTANCES),), KILL)


def _kill_all(_: random.Random, at: float, __: _Points) -> End:
    return End(at, tuple(range(INSTANCES)), KILL)


def _terminate(random_: random.Random, at: float, _: _Points) -> End:
    return End(at, (random_.randrange(INSTANCES),), TERMINATE)


def _kill_at_point(_: random.Random, at: float, points: _Points) -> End:
    return End(at, tuple(range(INSTANCES)), KILL, points.next())


def _terminate_at_point(_: random.Random, at: float, points: _Points) -> End:
    return End(at, tuple(range(INSTANCES)), TERMINATE, points.next())


def _drain(_: random.Random, at: float, __: _Points) -> Reload:
    return Reload(at, 60.0)


def _cut_off(random_: random.Random, at: float, _: _Points) -> Reload:
    return Reload(at, random_.uniform(0, 0.3))


def _drain_at_point(_: random.Random, at: float, points: _Points) -> Reload:
    return Reload(at, 60.0, points.next())


_ProcessAct: TypeAlias = Callable[[random.Random, float, _Points], "End | Reload"]
_PROCESS_ACTS: tuple[_ProcessAct, ...] = (
    *(_kill, _kill, _kill_all, _terminate, _terminate),
    *(_kill_at_point, _kill_at_point, _kill_at_point, _terminate_at_point),
    *(_drain, _cut_off, _drain_at_point),
)

# What can be done to the services. Of the broker's operations some are those of the sender that feeds the queues: these
# are never held back, since a message that arrives late, behind those that were sent after it, is out of order for good
# reason and not by a fault of the app.

_ITEMS: dict[str, object] = {"operation": (*WRITES, "Read", "Query")}
_WRITTEN: dict[str, object] = {"operation": WRITES}
_APP_SENDS: dict[str, object] = {"operation": "send", "entity": "ledger-entries"}
_Fault: TypeAlias = tuple[str, tuple[Action, ...], dict[str, object]]

COSMOS_FAULTS: tuple[_Fault, ...] = (
    ("reply lost by reset", (LoseReply(Loss.RESET),), {**_WRITTEN, "probability": 0.15}),
    ("reply lost by close", (LoseReply(Loss.CLOSE),), {**_WRITTEN, "probability": 0.15}),
    ("reply cut in half", (LoseReply(Loss.TRUNCATE),), {**_WRITTEN, "probability": 0.15}),
    ("committed and 503", (LoseReply(Loss.STATUS, 503),), {**_WRITTEN, "probability": 0.15}),
    ("reply never", (LoseReply(Loss.NEVER),), {**_WRITTEN, "count": 4}),
    ("request lost", (LoseRequest(),), {**_ITEMS, "count": 4}),
    ("connections cut", (Cut(Loss.RESET), Cut(Loss.CLOSE)), {**_ITEMS, "probability": 0.1}),
    ("429", (Answer(429, 3200, 40),), {**_ITEMS, "probability": 0.4}),
    ("503 and 500", (Answer(503), Answer(500)), {**_ITEMS, "probability": 0.25}),
    ("449 and 408", (Answer(449), Answer(408)), {**_ITEMS, "probability": 0.25}),
    ("410", (Answer(410, 1002),), {**_ITEMS, "probability": 0.3}),
    ("throttled", (Throttle(150),), _ITEMS),
    ("slow", (Delay(0.3), Delay(0.8, Stage.AFTER)), {**_ITEMS, "probability": 0.3}),
    ("stalled", (Stall(), Stall(Stage.AFTER)), {**_ITEMS, "count": 3}),
)

BROKER_FAULTS: tuple[_Fault, ...] = (
    ("settlement lost", (LoseSettlement(),), {"operation": "complete", "probability": 0.1}),
    ("delivered twice", (DeliverTwice(),), {"operation": "complete", "probability": 0.15}),
    ("lock lost at completion", (ExpireLock(),), {"operation": "complete", "probability": 0.06}),
    ("lock lost at work", (ExpireLock(0.05),), {"operation": "receive", "probability": 0.06}),
    ("completion refused", (Refuse("com.microsoft:timeout"),), {"operation": "complete", "probability": 0.1}),
    ("renewal refused", (Refuse(),), {"operation": "renew-session-lock"}),
    ("handing over cut", (Cut(),), {"operation": ("accept", "receive"), "probability": 0.1}),
    ("send: reply lost", (LoseReply(Loss.RESET),), {"operation": "send", "probability": 0.1}),
    ("send: reply never", (LoseReply(Loss.NEVER),), {**_APP_SENDS, "count": 3}),
    ("send: cut", (Cut(Loss.CLOSE),), {"operation": "send", "probability": 0.1}),
    ("send: busy", (Refuse(),), {"operation": "send", "probability": 0.3}),
    ("send: stalled", (Stall(), Stall(Stage.AFTER)), {**_APP_SENDS, "count": 3}),
    ("links refused", (Refuse(), Cut()), {"operation": "attach-sender", "probability": 0.4}),
)


def rule_of_outage(act: Away) -> Rule:
    """The rule that takes a service away."""
    return Rule(name=f"outage-{act.service.value}-{act.at:.0f}", service=act.service, action=Outage(act.seconds))


def rule_of_point(point: Point) -> Rule:
    """The rule that stops one operation there."""
    return Rule(
        name="point",
        service=point.service,
        operation=point.operation,
        entity=point.entity,
        count=1,
        action=Stall(point.stage),
    )
