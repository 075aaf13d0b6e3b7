"""An hour without the database, or without the broker, with the numbers of the cloud (docs/contracts.md, section 12).

A delivery costs about `TRANSIENT_BUDGET_SECONDS` of an outage, so an hour costs some sixty of the thousand that the
queues allow; nothing is parked, and no session gets out of order.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from local.broker.model import SessionLock
from local.demo.expect import expect
from local.demo.lines import Line
from local.demo.verify import verify
from shared.envelope import OutgoingMessage, Role
from shared.errors import TransientError, UnknownCommitError
from tests.simulation.cases import end_state, settings, sources_of
from tests.simulation.engine import Faults, Simulation, Task, Worker
from tests.simulation.world import SimulatedPayments
from tests.unit.handlers.ports_in_memory import EPOCH, Io

HOUR = 3600.0
IN_THE_MIDDLE_OF_WORK = 100
"""Calls of ports."""
DATABASE = ("read ", "create ", "replace ", "delete ", "batch ", "query ")
QUIET = Faults(for_steps=0)
UNQUIET = Faults(most_crashes=3, message_gone=0.0, for_steps=4000)
LOCAL_MAX_DELIVERY_COUNT = 10


@pytest.fixture(autouse=True)
def _no_logs() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Outage(Simulation):
    """A run in which something is away for a while.

    `broker`: nobody can send, receive, settle or renew, and the locks run out all the same. `sends`: its queues are
    full or disabled for sending, and the rest works.
    """

    sweep_every_seconds = 60.0
    longest_run_seconds = 6 * HOUR
    most_steps = 400_000

    def __init__(self, kind: str, *arguments: Any, seconds: float = HOUR, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.kind = kind
        self.seconds = seconds
        self.calls = 0
        self.starts: float | None = None
        self.most_deliveries = 0
        self.refused = 0
        self.completed: defaultdict[tuple[Role, str], list[int]] = defaultdict(list)

    @property
    def is_out(self) -> bool:
        return self.starts is not None and self.clock.seconds < self.starts + self.seconds

    def _lost(self, kind: str) -> bool:
        return self.is_out and self.kind == kind

    def _advance(self, task: Task) -> None:
        io = task.waits_for
        self.calls += 1
        if self.calls == IN_THE_MIDDLE_OF_WORK:
            self.note("the outage begins")
            self.starts = self.clock.seconds
        if io is not None and self.is_out and io.label.startswith(self._away()):
            self.clock.seconds += 0.001 + 0.01 * self.random.random()
            self.broker.advance(self.clock.seconds)
            self.refused += 1
            self._resume(task, self._error(io))
            return
        super()._advance(task)

    def _away(self) -> tuple[str, ...]:
        return DATABASE if self.kind == "database" else ("send ",)

    def _error(self, io: Io[Any]) -> TransientError:
        """In its first second an outage may still commit what it does not answer any more."""
        if io.write and self.starts is not None and self.clock.seconds < self.starts + 1 and self.random.random() < 0.5:
            io.perform()
            return UnknownCommitError("simulated: no answer")
        return (UnknownCommitError if io.write else TransientError)("simulated: away")

    def _accept(self, worker: Worker, role: Role) -> None:
        if not self._lost("broker"):
            super()._accept(worker, role)

    def _send(self, source: list[tuple[Role, OutgoingMessage]]) -> None:
        if not self._lost("broker") and not self._lost("sends"):
            super()._send(source)

    def _renew(self, task: Task) -> None:
        if not self._lost("broker"):
            super()._renew(task)

    def _receive(self, worker: Worker, role: Role, lock: SessionLock) -> None:
        if self._lost("broker"):
            worker.sessions[role] -= 1
            return
        super()._receive(worker, role, lock)

    def _settle(self, task: Task, *, completed: bool) -> None:
        assert task.delivery is not None
        assert task.role is not None
        self.most_deliveries = max(self.most_deliveries, task.delivery.delivery_count + 1)
        if self._lost("broker"):
            self.note(f"{task.label}: nobody hears how it was settled")
            return
        before = self.broker.queue(task.role.value).counts(self.clock.seconds).active
        super()._settle(task, completed=completed)
        if completed and self.broker.queue(task.role.value).counts(self.clock.seconds).active < before:
            session = task.delivery.message.session_id or ""
            self.completed[task.role, session].append(task.delivery.sequence_number)


def lines() -> list[Line]:
    """Orders and ledgers with nothing in them that would be parked."""
    made: list[Line] = []

    def add(role: str, message_id: str, session_id: str, body: dict[str, object], repeat: int = 1) -> None:
        made.append(Line(len(made) + 1, role, message_id, session_id, json.dumps(body).encode(), repeat=repeat))

    orders = [f"O{number}" for number in range(4)]
    for order in orders:
        rows = [{"lineId": str(n), "sku": "S", "quantity": 2, "unitPrice": "1.5"} for n in range(1, 4)]
        placed = {"type": "order.placed", "orderId": order, "sequence": 1, "currency": "EUR", "lines": rows}
        add("orders", order, order, placed, repeat=2)
        for number in range(2, 5):
            row = {"lineId": str(number), "sku": "S", "quantity": number, "unitPrice": "2.25"}
            amended = {"type": "order.amended", "orderId": order, "operationId": f"op{number}", "lines": [row]}
            add("orders", f"{order}:op{number}", order, {**amended, "sequence": number})
            status = {"type": "order.status", "orderId": order, "status": "confirmed", "version": number}
            add("orders", f"{order}:status.{number}", order, status)
    for ledger in ("L0", "L1"):
        for batch in range(1, 5):
            transactions = [
                {"transactionId": f"T{batch}.{n}", "orderId": order, "kind": "add", "amount": "1.25", "sequence": batch}
                for n, order in enumerate(orders)
            ]
            add(
                "ledger",
                f"{ledger}:B{batch}",
                ledger,
                {
                    "ledgerId": ledger,
                    "batchId": f"B{batch}",
                    "batchSequence": batch,
                    "currency": "EUR",
                    "transactions": transactions,
                },
            )
    return made


def outage_of(
    kind: str, seed: int, faults: Faults = QUIET, *, payments: SimulatedPayments | None = None, seconds: float = HOUR
) -> Outage:
    cloud = dataclasses.replace(settings(), sweep_grace_seconds=120, gap_alarm_seconds=900)
    sources = sources_of(lines())
    return Outage(kind, seed, cloud, sources, faults=faults, payments=payments, seconds=seconds)


def check(run: Outage) -> None:
    """All is done, in order; nothing is parked, and nothing reached a dead-letter queue."""
    history = "\n".join(run.history[-60:])
    end = end_state(run)
    assert not end.dead_letters, history
    assert not end.quarantine, f"{end.quarantine}\n{history}"
    assert not any(end.waiting.values()), end.waiting
    verdict = verify(expect(lines(), (), datetime.fromtimestamp(run.clock.seconds, UTC)), end)
    # An approval is a business change of its own, of which the check knows nothing.
    violations = [each for each in verdict.violations if run.payments is None or "revision" not in each.detail]
    assert not violations, f"{violations}\n{history}"
    for (role, session), numbers in run.completed.items():
        assert numbers == sorted(numbers), f"{role} {session}: completed out of order, {numbers}\n{history}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["database", "broker", "sends"])
def test_an_hour_without_a_service_loses_and_parks_nothing(kind: str, seed: int) -> None:  # C41 C54 D31 R23 R24
    run = outage_of(kind, seed)
    run.run()
    check(run)
    assert run.refused > 0
    assert run.clock.seconds > EPOCH + HOUR
    # What an hour costs: sixty seconds each, so far from 1000. With the emulator's ten it would be lost.
    assert run.most_deliveries <= 75
    if kind == "database":
        assert run.most_deliveries > LOCAL_MAX_DELIVERY_COUNT


@pytest.mark.parametrize("kind", ["database", "broker"])
def test_an_hour_without_a_service_with_crashes_and_lost_answers_around_it(kind: str) -> None:
    for seed in range(3):
        run = outage_of(kind, 100 + seed, UNQUIET)
        run.run()
        check(run)


def test_an_hour_without_the_database_pays_each_order_under_one_key() -> None:  # C46 D45
    payments = SimulatedPayments()
    run = outage_of("database", 7, payments=payments)
    run.run()
    check(run)
    assert set(payments.calls) == {f"O{number}" for number in range(4)}


@pytest.mark.parametrize("kind", ["database", "sends"])
def test_twenty_seconds_without_a_service_cost_no_delivery(kind: str) -> None:
    """Waited out inside the invocation."""
    run = outage_of(kind, 1, seconds=20.0)
    run.run()
    check(run)
    assert run.most_deliveries == 1
