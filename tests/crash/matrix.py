"""Kills a handler before or behind each of its I/O operations, delivers again, and looks at what is left.

The operations are not listed anywhere: a first run without a crash finds them. So a new call in a handler is a new row
here by itself.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from shared.bootstrap import Ports, Services
from shared.envelope import OutgoingMessage, Role
from shared.settings import Settings
from tests.simulation.cases import settings
from tests.simulation.world import SimulatedPayments, SimulatedSender, envelope_of, new_broker, received
from tests.unit.handlers.ports_in_memory import (
    Io,
    SeededTokens,
    SimulatedDocuments,
    Sleep,
    Store,
    VirtualClock,
)

BEHIND_EVERY_LEASE_SECONDS = 200.0
WORKING = (Role.ORDERS, Role.LEDGER, Role.LEDGER_ENTRIES)


@dataclass(frozen=True, slots=True)
class Case:
    """A handler's work to be crashed: what is there before, and the message (None: the sweep)."""

    name: str
    before: tuple[tuple[Role, OutgoingMessage], ...]
    message: tuple[Role, OutgoingMessage] | None
    pays: bool = False
    policy: str = "retry"
    unfinished: int = 0
    """So many I/O operations of the last message of `before` happen, then its worker dies and its message is gone."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place of a crash: the number of the operation, from 1 on, and the side of it."""

    operation: int
    behind: bool

    def __str__(self) -> str:
        return f"{'behind' if self.behind else 'before'} {self.operation}"


@dataclass
class World:
    """Everything that outlives a worker."""

    settings: Settings
    clock: VirtualClock = field(default_factory=VirtualClock)
    payments: SimulatedPayments | None = None
    labels: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        source = random.Random(7)
        self.store = Store(self.clock.monotonic)
        self.broker = new_broker(source, duplicate_detection=False)
        self.tokens = SeededTokens(source)
        self.graves: list[Any] = []

    def services(self) -> Services:
        """A new worker: nothing is remembered."""
        documents = SimulatedDocuments(self.store, self.clock.monotonic)
        sender = SimulatedSender(self.broker, self.clock.monotonic)
        return Services(self.settings, Ports(documents, sender, self.payments, self.clock, self.tokens))

    def send(self, role: Role, message: OutgoingMessage) -> None:
        self.broker.queue(role.value).send([received(message)], self.clock.seconds)

    def handle_all(self) -> None:
        """Run deliveries until the working queues are empty."""
        services = self.services()
        while True:
            busy = [role for role in WORKING if self.broker.queue(role.value).counts(self.clock.seconds).active]
            if not busy:
                return
            for role in busy:
                self.handle_one(services, role)

    def handle_one(self, services: Services, role: Role, stop: Point | None = None) -> bool:
        """Handle the next message of a queue, up to a crash. False when the worker died with it."""
        queue, now = self.broker.queue(role.value), self.clock.seconds
        lock = queue.accept_next("worker", now)
        assert lock is not None
        delivery = queue.receive_from_session(lock, now)
        assert delivery is not None
        handler = {
            Role.ORDERS: services.process_order,
            Role.LEDGER: services.fan_out_ledger,
            Role.LEDGER_ENTRIES: services.apply_entry,
        }[role]
        try:
            ended = self.drive(handler(envelope_of(role, delivery)), stop)
        except Exception:
            ended = False
        if ended:
            queue.complete(delivery.lock_token, self.clock.seconds, lock=lock)
        else:
            queue.abandon(delivery.lock_token, self.clock.seconds, lock=lock)
        queue.release_session(lock, self.clock.seconds)
        return ended

    def drive(self, coroutine: Any, stop: Point | None = None) -> bool:
        """Run a coroutine, up to a crash; notes the operations that it started."""
        self.labels = []
        answer: object = None
        while True:
            try:
                step = coroutine.send(answer)
            except StopIteration:
                return True
            if isinstance(step, Sleep):
                self.clock.seconds += step.seconds
                self.broker.advance(self.clock.seconds)
                answer = None
                continue
            assert isinstance(step, Io)
            self.labels.append(step.label)
            at_stop = stop is not None and len(self.labels) == stop.operation
            if at_stop and stop is not None and not stop.behind:
                self.graves.append(coroutine)
                return False
            answer = step.perform()
            if at_stop:
                self.graves.append(coroutine)
                return False

    def bury(self) -> None:
        """Take down the frames of the dead workers."""
        for coroutine in self.graves:
            with suppress(Exception):
                coroutine.close()


def operations_of(case: Case) -> list[str]:
    """The I/O operations of a case, in order, found by running it."""
    with quiet():
        world = prepared(case)
        run(world, case, None)
        labels = list(world.labels)
        world.bury()
    return labels


def end_of(case: Case, point: Point | None, *, is_redelivered: bool = True) -> dict[str, Any]:
    """What is left when the case was crashed at a point, delivered again (or not) and swept."""
    with quiet():
        world = prepared(case)
        ended = run(world, case, point)
        assert ended is (point is None)
        if not ended:
            if not is_redelivered:
                lose(world, case)
            world.clock.seconds += BEHIND_EVERY_LEASE_SECONDS
            if case.message is None:
                world.drive(world.services().sweep())
        return swept(world)


def end_without(case: Case) -> dict[str, Any]:
    """What is left when the case's message never arrives."""
    with quiet():
        world = prepared(case)
        lose(world, case)
        return swept(world)


def lose(world: World, case: Case) -> None:
    """Take the case's message out of its queue."""
    assert case.message is not None
    gone = world.broker.queue(case.message[0].value).delete_batch(1, world.clock.seconds + 1, world.clock.seconds)
    assert gone == 1


def swept(world: World) -> dict[str, Any]:
    """What is left when the queues have been emptied and the sweep has been there."""
    world.handle_all()
    world.clock.seconds += BEHIND_EVERY_LEASE_SECONDS
    world.drive(world.services().sweep())
    world.handle_all()
    world.bury()
    return left(world)


def points_of(case: Case) -> Iterator[Point]:
    """Before and behind each operation."""
    for operation in range(1, len(operations_of(case)) + 1):
        yield Point(operation, behind=False)
        yield Point(operation, behind=True)


def prepared(case: Case) -> World:
    """The world in which the case's message arrives."""
    world = World(
        dataclasses.replace(settings(), payments_unknown_outcome=case.policy),
        payments=SimulatedPayments() if case.pays else None,
    )
    last = len(case.before) - 1
    for place, (role, message) in enumerate(case.before):
        world.send(role, message)
        if place == last and case.unfinished:
            world.handle_one(world.services(), role, Point(case.unfinished, behind=True))
            queue = world.broker.queue(role.value)
            queue.delete_batch(1, world.clock.seconds + 1, world.clock.seconds)
            world.clock.seconds += BEHIND_EVERY_LEASE_SECONDS
        else:
            world.handle_all()
    if case.message is not None:
        world.send(*case.message)
    return world


def run(world: World, case: Case, point: Point | None) -> bool:
    """The case's own work."""
    services = world.services()
    if case.message is None:
        return world.drive(services.sweep(), point)
    return world.handle_one(services, case.message[0], point)


def left(world: World) -> dict[str, Any]:
    """Documents and parked copies, without what differs from attempt to attempt."""
    documents = {
        f"{container}/{partition}/{document_id}": _plain(row.document)
        for (container, partition, document_id), row in sorted(world.store.rows.items())
    }
    queue = world.broker.queue(Role.QUARANTINE.value)
    parked = sorted(
        {
            (str(stored.message.message_id), str(stored.message.application_properties["quarantine-reason"]))
            for stored in queue.peek(1, 10_000, world.clock.seconds)
        }
    )
    return {"documents": documents, "parked": parked}


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    record = copy.get("record", {})
    for member in ("claim", "token", "messageId"):
        record.pop(member, None)
    if record.get("effect"):
        record["effect"].pop("result", None)
    return copy


@contextmanager
def quiet() -> Iterator[None]:
    """Without the log lines of thousands of attempts."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def message(role: Role, message_id: str, session_id: str, body: dict[str, Any]) -> tuple[Role, OutgoingMessage]:
    """A message of a producer."""
    return role, OutgoingMessage(message_id=message_id, session_id=session_id, body=json.dumps(body).encode())
