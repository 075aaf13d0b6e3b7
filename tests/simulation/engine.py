"""Runs the real handlers step by step, in an order that a seed decides, with faults that the seed decides.

A worker's tasks are coroutines that stop at every call of a port. The scheduler picks one, and lets its call happen,
fail before it happens, happen without an answer, happen twice (the database client's own repetition), or kills the
worker before or behind it. Hosts abandon what their dead worker had in hand, or die with it and let the locks run out;
session locks get lost under running handlers. When the faults are used up, the rest runs to quiet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from local.broker.machine import BrokerError
from local.broker.model import Delivery, SessionLock
from shared.bootstrap import Ports, Services
from shared.envelope import OutgoingMessage, Role
from shared.errors import TransientError, UnknownCommitError
from shared.settings import Settings
from tests.simulation.world import SimulatedPayments, SimulatedSender, envelope_of, new_broker, received
from tests.unit.handlers.ports_in_memory import (
    EPOCH,
    Io,
    SeededTokens,
    SimulatedDocuments,
    Sleep,
    Store,
    VirtualClock,
)

WORKING = (Role.ORDERS, Role.LEDGER, Role.LEDGER_ENTRIES)
CONCURRENT_SESSIONS = 3
SWEEP_EVERY_SECONDS = 15
LONGEST_RUN_SECONDS = 4 * 3600
MOST_STEPS = 60_000


class StuckError(AssertionError):
    """A run that does not come to rest."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How much goes wrong, and how often: probabilities per call, and how many of the costly kinds at most."""

    fail_before: float = 0.02
    lost_answer: float = 0.04
    repeated: float = 0.02
    crash: float = 0.01
    most_crashes: int = 4
    message_gone: float = 0.3
    lost_lock: float = 0.005
    most_lost_locks: int = 4
    for_steps: int = 1500


ROUGH = Faults(
    fail_before=0.03, lost_answer=0.08, repeated=0.05, crash=0.03, lost_lock=0.03, most_lost_locks=8
)


@dataclass(slots=True, eq=False)
class Task:
    """A coroutine, and what it waits for."""

    label: str
    coroutine: Coroutine[Any, Any, Any]
    worker: Worker
    waits_for: Io | None = None
    wakes_at: float | None = None
    started: bool = False
    lock: SessionLock | None = None
    delivery: Delivery | None = None
    role: Role | None = None


@dataclass(slots=True, eq=False)
class Worker:
    """One host instance with its worker process; a restart gives it new services, so an empty memory."""

    number: int
    services: Services
    is_alive: bool = True
    sessions: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(WORKING, 0))
    restarts_at: float | None = None


class Simulation:
    """One run."""

    sweep_every_seconds: float = SWEEP_EVERY_SECONDS
    longest_run_seconds: float = LONGEST_RUN_SECONDS
    most_steps = MOST_STEPS

    def __init__(
        self,
        seed: int,
        settings: Settings,
        messages: Sequence[Sequence[tuple[Role, OutgoingMessage]]],
        *,
        faults: Faults | None = None,
        workers: int = 2,
        duplicate_detection: bool = True,
        payments: SimulatedPayments | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.settings = settings
        self.clock = VirtualClock()
        self.store = Store(self.clock.monotonic)
        self.detects_duplicates = duplicate_detection
        self.broker = new_broker(self.random, duplicate_detection=duplicate_detection)
        self.history: list[str] = []
        self.tokens = SeededTokens(self.random)
        self.payments = payments
        self.sources = [list(source) for source in messages]
        self.tasks: list[Task] = []
        self.dead: list[Task] = []
        self.crashes = self.lost_locks = self.steps = 0
        self.next_sweep = self.clock.seconds + self.sweep_every_seconds
        self.workers = [Worker(number, self._services()) for number in range(workers)]

    def run(self) -> Simulation:
        """Run until nothing is left to do.

        Raises: StuckError when that does not come.
        """
        try:
            while not self._is_quiet():
                self.steps += 1
                if self.steps > self.most_steps or self.clock.seconds > EPOCH + self.longest_run_seconds:
                    raise StuckError("the run does not come to rest")
                self._step()
        finally:
            for task in (*self.dead, *self.tasks):
                # A killed process never runs on; its frames are taken down here, and what they say to that is nobody's.
                with suppress(Exception):
                    task.coroutine.close()
        return self

    def note(self, text: str) -> None:
        """One line of the history that a failing seed prints."""
        self.history.append(f"{self.clock.seconds - EPOCH:9.3f} {text}")

    @property
    def faulty(self) -> bool:
        """Whether things may still go wrong."""
        return self.steps < self.faults.for_steps

    def _services(self) -> Services:
        documents = SimulatedDocuments(self.store, self.clock.monotonic)
        sender = SimulatedSender(self.broker, self.clock.monotonic)
        return Services(self.settings, Ports(documents, sender, self.payments, self.clock, self.tokens))

    def _is_quiet(self) -> bool:
        if any(self.sources) or self.tasks:
            return False
        now = self.clock.seconds
        if any(self.broker.queue(role.value).counts(now).active for role in WORKING):
            return False
        unfinished = [
            row
            for row in self.store.rows.values()
            if row.document.get("record", {}).get("status") in ("effect", "accepted")
            and (row.document["record"].get("effect") or {}).get("status") != "parked"
        ]
        return not unfinished

    def _step(self) -> None:
        choices: list[Callable[[], None]] = []
        ready = [task for task in self.tasks if task.waits_for is not None or not task.started]
        choices += [lambda task=task: self._advance(task) for task in ready for _ in range(4)]
        sources = [source for source in self.sources if source]
        choices += [lambda source=source: self._send(source) for source in sources]
        for worker in self.workers:
            if worker.is_alive:
                choices += [
                    lambda worker=worker, role=role: self._accept(worker, role)
                    for role in WORKING
                    if worker.sessions[role] < CONCURRENT_SESSIONS
                ]
        if self.random.random() < 0.1 or not ready:
            choices += [self._pass_time] * max(1, len(choices) // (8 if ready else 1))
        self.random.choice(choices)()

    def _pass_time(self) -> None:
        """To the next moment at which something is due, or a little further."""
        due = [task.wakes_at for task in self.tasks if task.wakes_at is not None]
        due += [worker.restarts_at for worker in self.workers if worker.restarts_at is not None]
        due += [self.next_sweep]
        self._go_to(min([max(min(due), self.clock.seconds), self.clock.seconds + self.random.choice((0.3, 6.0, 20.0))]))

    def _go_to(self, moment: float) -> None:
        for task in self.tasks:
            if task.lock is not None and not task.lock.is_lost and task.role is not None:
                self._renew(task)
        self.clock.seconds = max(moment, self.clock.seconds + 0.001)
        now = self.clock.seconds
        self.broker.advance(now)
        for task in self.tasks:
            if task.wakes_at is not None and task.wakes_at <= now:
                task.wakes_at = None
                self._resume(task, None)
        for worker in self.workers:
            if worker.restarts_at is not None and worker.restarts_at <= now:
                worker.restarts_at = None
                worker.is_alive = True
                worker.services = self._services()
                self.note(f"worker {worker.number} starts")
        if self.next_sweep <= now:
            self.next_sweep = now + self.sweep_every_seconds
            alive = [worker for worker in self.workers if worker.is_alive]
            count = self.random.choice((1, 1, 1, 2)) if self.faulty else 1
            for worker in self.random.sample(alive, min(count, len(alive))):
                self.tasks.append(Task("sweep", worker.services.sweep(), worker))

    def _renew(self, task: Task) -> None:
        assert task.lock is not None
        assert task.role is not None
        try:
            self.broker.queue(task.role.value).renew_session(task.lock, self.clock.seconds)
        except BrokerError:
            return

    def _send(self, source: list[tuple[Role, OutgoingMessage]]) -> None:
        role, message = source.pop(0)
        self.note(f"producer sends {role} {message.message_id}")
        self.broker.queue(role.value).send([received(message)], self.clock.seconds)

    def _accept(self, worker: Worker, role: Role) -> None:
        lock = self.broker.queue(role.value).accept_next(f"worker {worker.number}", self.clock.seconds)
        if lock is not None:
            worker.sessions[role] += 1
            self._receive(worker, role, lock)

    def _receive(self, worker: Worker, role: Role, lock: SessionLock) -> None:
        """The next message of the session, or the end of the session."""
        queue = self.broker.queue(role.value)
        try:
            delivery = queue.receive_from_session(lock, self.clock.seconds)
        except BrokerError:
            delivery = None
        if delivery is None:
            worker.sessions[role] -= 1
            if not lock.is_lost:
                queue.release_session(lock, self.clock.seconds)
            return
        envelope = envelope_of(role, delivery)
        handler = {
            Role.ORDERS: worker.services.process_order,
            Role.LEDGER: worker.services.fan_out_ledger,
            Role.LEDGER_ENTRIES: worker.services.apply_entry,
        }[role]
        label = f"worker {worker.number} {envelope.message_id} (delivery {envelope.delivery_count})"
        self.note(f"{label} starts")
        self.tasks.append(
            Task(label, handler(envelope), worker, lock=lock, delivery=delivery, role=role)
        )

    def _advance(self, task: Task) -> None:
        if not task.started:
            task.started = True
            self._resume(task, None)
            return
        io = task.waits_for
        assert io is not None
        self.clock.seconds += 0.001 + 0.01 * self.random.random()
        self.broker.advance(self.clock.seconds)
        fault = self._fault(io, task)
        if fault != "ok":
            self.note(f"{task.label}: {io.label}: {fault}")
        if fault == "crash before":
            self._crash(task.worker)
            return
        if fault == "fail":
            self._resume(task, TransientError("simulated: refused"))
            return
        answer = io.perform()
        if fault == "ok":
            self.note(f"{task.label}: {io.label} -> {_short(answer)}")
        if fault == "repeated":
            answer = io.perform()
        if fault == "crash behind":
            self._crash(task.worker)
        elif fault == "answer lost":
            error = UnknownCommitError if io.write else TransientError
            self._resume(task, error("simulated: no answer"))
        else:
            self._resume(task, answer)

    def _fault(self, io: Io, task: Task) -> str:
        if not self.faulty:
            return "ok"
        faults, dice = self.faults, self.random.random()
        may_lose = task.lock is not None and self.lost_locks < faults.most_lost_locks
        if may_lose and self.random.random() < faults.lost_lock:
            self._lose_lock(task)
        if dice < faults.crash and self.crashes < faults.most_crashes:
            return self.random.choice(("crash before", "crash behind"))
        dice = self.random.random()
        for kind, chance in (("fail", faults.fail_before), ("answer lost", faults.lost_answer)):
            if dice < chance:
                return kind
            dice -= chance
        return "repeated" if io.write and not io.label.startswith(("send", "pay")) and dice < faults.repeated else "ok"

    def _lose_lock(self, task: Task) -> None:
        """The session goes to whoever asks next, while the handler goes on as a zombie."""
        assert task.lock is not None
        assert task.role is not None
        if task.lock.is_lost:
            return
        self.lost_locks += 1
        self.note(f"{task.label}: its session lock is lost")
        self.broker.queue(task.role.value).release_session(task.lock, self.clock.seconds)

    def _crash(self, worker: Worker) -> None:
        """Kill the worker process. Its host abandons what it had in hand, or dies too and lets the locks run out."""
        self.crashes += 1
        worker.is_alive = False
        worker.sessions = dict.fromkeys(WORKING, 0)
        worker.restarts_at = self.clock.seconds + 0.5
        host_dies = self.random.random() < 0.3
        self.note(f"worker {worker.number} is killed" + (" with its host" if host_dies else ""))
        for task in [task for task in self.tasks if task.worker is worker]:
            self.tasks.remove(task)
            self.dead.append(task)
            if task.lock is not None and not host_dies:
                self._settle(task, completed=self._is_gone(task))
                if not task.lock.is_lost:
                    self.broker.queue(task.role.value).release_session(task.lock, self.clock.seconds)

    def _is_gone(self, task: Task) -> bool:
        """Whether the message of a killed handler is lost to its queue (expired, dead-lettered, purged) although it was
        accepted: from then on only the record knows what is left to send. A second body under the id is never taken
        away, since no record stands for it: only the delivery that holds the record's claim is."""
        record = next(
            (
                row.document["record"]
                for row in self.store.rows.values()
                if row.document.get("record", {}).get("messageId") == task.delivery.message.message_id
                and row.document["record"].get("status") == "accepted"
                and row.document["record"]["claim"]["sequenceNumber"] == str(task.delivery.sequence_number)
            ),
            None,
        )
        gone = record is not None and self.random.random() < self.faults.message_gone
        if gone:
            self.note(f"{task.label}: its message is gone")
        return gone

    def _resume(self, task: Task, answer: object) -> None:
        """Let the coroutine run to its next call."""
        task.waits_for, task.wakes_at = None, None
        try:
            failed = isinstance(answer, Exception)
            waits_for = task.coroutine.throw(answer) if failed else task.coroutine.send(answer)
        except StopIteration:
            self._ended(task, completed=True)
        except Exception as error:
            self.note(f"{task.label} raises {type(error).__name__}: {error}")
            self._ended(task, completed=False)
        else:
            if isinstance(waits_for, Sleep):
                task.wakes_at = self.clock.seconds + waits_for.seconds
            else:
                task.waits_for = waits_for

    def _ended(self, task: Task, *, completed: bool) -> None:
        self.tasks.remove(task)
        if task.lock is None or task.role is None:
            return
        self._settle(task, completed=completed)
        self._receive(task.worker, task.role, task.lock)

    def _settle(self, task: Task, *, completed: bool) -> None:
        assert task.role is not None
        assert task.delivery is not None
        queue = self.broker.queue(task.role.value)
        self.note(f"{task.label} is {'completed' if completed else 'abandoned'}")
        try:
            if completed:
                queue.complete(task.delivery.lock_token, self.clock.seconds, lock=task.lock)
            else:
                queue.abandon(task.delivery.lock_token, self.clock.seconds, lock=task.lock)
        except BrokerError as error:
            self.note(f"{task.label}: settlement refused, {error.condition}")


def _short(answer: object) -> str:
    name = type(answer).__name__
    return f"{name} {answer}"[:60] if name in ("Rejected", "int") else name
