"""One handler at a time, in memory, with the faults that a test names.

A test says: these calls fail so often, that one is never answered, the worker dies here, somebody else writes there
first. Time passes in the handlers' own waits only. The queues are lists; a message that is abandoned waits at the head
of its own.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from shared.bootstrap import Ports, Services
from shared.envelope import Envelope, OutgoingMessage, PropertyValue, Role
from shared.errors import TransientError, UnknownCommitError
from shared.ports import Approved, Container, Declined, Payments, Refused
from shared.settings import Settings
from tests.unit.handlers.ports_in_memory import Io, SeededTokens, SimulatedDocuments, Sleep, Store, VirtualClock

WORKING = (Role.ORDERS, Role.LEDGER, Role.LEDGER_ENTRIES)
FOR_EVER = 10**9
GRAVES: list[Coroutine[Any, Any, Any]] = []

# As in local.settings.json, which a fork keeps.
ENV = {
    "ServiceBusConnection": "Endpoint=sb://localhost;UseDevelopmentEmulator=true;",
    "CosmosConnection": "AccountEndpoint=http://localhost:8081/;AccountKey=a2V5;",
    "ORDERS_QUEUE": "orders",
    "LEDGER_QUEUE": "ledger",
    "LEDGER_ENTRIES_QUEUE": "ledger-entries",
    "QUARANTINE_QUEUE": "quarantine",
    "COSMOS_DATABASE": "convoy",
    "ORDERS_CONTAINER": "orders",
    "LEDGERS_CONTAINER": "ledgers",
    "LEDGER_ENTRIES_CONTAINER": "ledger-entries",
    "OPERATIONS_CONTAINER": "operations",
    "POISON_AFTER_DELIVERIES": "5",
    "TRANSIENT_BUDGET_SECONDS": "60",
    "CLAIM_LEASE_SECONDS": "90",
    "RECORD_TTL_SECONDS": "5184000",
    "REPLAY_HORIZON_SECONDS": "2592000",
    "REPLAY_MAX": "5",
    "SWEEP_SCHEDULE": "*/15 * * * * *",
    "SWEEP_GRACE_SECONDS": "70",
    "HELD_MAX_PER_STREAM": "95",
    "GAP_ALARM_SECONDS": "60",
    "PAYMENTS_TIMEOUT_SECONDS": "10",
    "PAYMENTS_UNKNOWN_OUTCOME": "retry",
    "TELEMETRY_EXPORTER": "none",
    "LOG_KEYS": "plain",
}


class DiedError(Exception):
    """The worker was killed at this call: nothing of it runs on."""


def bury() -> None:
    """Take down the frames of the workers that died. What they say to that is nobody's: the killed say nothing."""
    while GRAVES:
        with suppress(Exception):
            GRAVES.pop().close()


@dataclass(slots=True)
class Fault:
    """What happens to the next calls whose label begins so: `error` in place of an answer, whether the call is made
    all the same, and what somebody else does before it."""

    label: str
    error: BaseException | None = None
    commits: bool = False
    times: int = 1
    first: Callable[[], object] | None = None
    seen: int = 0


class ScriptedPayments:
    """A provider that answers by turns: an answer, or the error that stands for none. It decides once for each key."""

    def __init__(self, *script: Approved | Declined | Refused | Exception, seconds: float = 0.0) -> None:
        self.script = list(script)
        self.seconds = seconds
        self.keys: list[str] = []
        self.decided: dict[str, Approved | Declined] = {}

    async def authorize(self, key: str, order_id: str, amount: str, currency: str) -> Approved | Declined | Refused:
        def perform() -> Approved | Declined | Refused:
            self.keys.append(key)
            answer = self.script.pop(0) if self.script else self.decided.get(key, Approved(f"A-{key}"))
            if isinstance(answer, Exception):
                raise answer
            return answer if isinstance(answer, Refused) else self.decided.setdefault(key, answer)

        if self.seconds:
            await Sleep(self.seconds)
        return await Io(f"pay {key}", perform, write=True)


@dataclass(slots=True)
class Waiting:
    """A message in a queue."""

    message: OutgoingMessage
    sequence_number: int
    enqueued_at: float
    delivery_count: int = 0


@dataclass
class Bench:
    """Everything that outlives a worker, and the faults to come."""

    payments: Payments | None = None
    policy: str = "retry"
    overrides: dict[str, Any] = field(default_factory=dict)
    worker_clock_off: float = 0.0
    batch_messages: int = 100
    page_items: int = 1000

    def __post_init__(self) -> None:
        source = random.Random(11)
        self.clock = VirtualClock()
        self.settings = dataclasses.replace(
            Settings.from_env(ENV), payments_unknown_outcome=self.policy, **self.overrides
        )
        self.store = Store(self.clock.monotonic)
        self.tokens = SeededTokens(source)
        self.documents = SimulatedDocuments(self.store, self.clock.monotonic, self.page_items)
        self.queues: defaultdict[Role, list[Waiting]] = defaultdict(list)
        self.faults: list[Fault] = []
        self.labels: list[str] = []
        self.waits: list[float] = []
        self._numbers = 0

    # ------------------------------------------------------------------------------------------------------- workers

    def worker(self, *, payments: Payments | None = None, can_pay: bool = True) -> Services:
        """A new worker process: nothing is remembered. Its own clock may be off; the servers' never is."""
        chosen = (payments or self.payments) if can_pay else None
        return Services(self.settings, Ports(self.documents, _Sender(self), chosen, self.worker_clock(), self.tokens))

    def worker_clock(self) -> VirtualClock | _Off:
        """The clock of a worker."""
        return _Off(self.clock, self.worker_clock_off) if self.worker_clock_off else self.clock

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run to the end. Raises what it raises, and DiedError when it was killed on its way."""
        try:
            step = coroutine.send(None)
            while True:
                if isinstance(step, Sleep):
                    self.waits.append(step.seconds)
                    self.clock.seconds += step.seconds
                    step = coroutine.send(None)
                    continue
                assert isinstance(step, Io)
                self.labels.append(step.label)
                try:
                    answer = self._answer(step)
                except DiedError:
                    GRAVES.append(coroutine)
                    raise
                except BaseException as error:
                    step = coroutine.throw(error)
                else:
                    step = coroutine.send(answer)
        except StopIteration as ended:
            return ended.value

    def _answer(self, io: Io[Any]) -> object:
        fault = next((each for each in self.faults if each.times and io.label.startswith(each.label)), None)
        if fault is None:
            return io.perform()
        fault.times -= 1
        fault.seen += 1
        if fault.first is not None:
            fault.first()
        if fault.error is None:
            return io.perform()
        if fault.commits:
            io.perform()
        raise fault.error

    # -------------------------------------------------------------------------------------------------------- faults

    def fails(self, label: str, error: BaseException | None = None, times: int = FOR_EVER) -> Fault:
        """These calls don't happen, and raise."""
        return self._add(Fault(label, error or TransientError("scripted: refused"), times=times))

    def loses_answer(self, label: str, times: int = 1) -> Fault:
        """These calls happen, and nobody hears of it."""
        return self._add(Fault(label, UnknownCommitError("scripted: no answer"), commits=True, times=times))

    def dies(self, label: str, *, behind: bool = False) -> Fault:
        """The worker is killed before this call, or behind it."""
        return self._add(Fault(label, DiedError(label), commits=behind))

    def before(self, label: str, first: Callable[[], object], times: int = 1) -> Fault:
        """Somebody else does something first."""
        return self._add(Fault(label, first=first, times=times))

    def _add(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    # ---------------------------------------------------------------------------------------------------- deliveries

    def send(self, role: Role, message: OutgoingMessage) -> None:
        self._numbers += 1
        self.queues[role].append(Waiting(message, self._numbers, self.clock.seconds))

    def deliver(self, services: Services, role: Role = Role.ORDERS, *, counts: bool = True) -> Exception | None:
        """Hand the first message to its handler and settle it; gives what the handler raised.

        `counts`: whether the broker counts a delivery that was not completed.
        """
        queue = self.queues[role]
        waiting = queue[0]
        waiting.delivery_count += 1
        handler = {
            Role.ORDERS: services.process_order,
            Role.LEDGER: services.fan_out_ledger,
            Role.LEDGER_ENTRIES: services.apply_entry,
        }[role]
        try:
            self.run(handler(envelope_of(role, waiting)))
        except Exception as error:
            if not counts:
                waiting.delivery_count -= 1
            return error
        queue.remove(waiting)
        return None

    def drain(self, services: Services) -> None:
        """Deliver until the working queues are empty."""
        while busy := [role for role in WORKING if self.queues[role]]:
            for role in busy:
                assert self.deliver(services, role) is None

    # -------------------------------------------------------------------------------------------------- what is left

    def document(self, container: Container, partition: str, document_id: str) -> dict[str, Any]:
        row = self.store.find(container, partition, document_id)
        assert row is not None, f"no document {container}/{document_id}"
        return row.document

    def order(self, order_id: str = "O") -> dict[str, Any]:
        return self.document(Container.ORDERS, order_id, order_id)

    def change(self, container: Container, partition: str, document_id: str, **members: Any) -> None:
        """Write a document as somebody else would; members of its record by `record`."""
        document = json.loads(json.dumps(self.document(container, partition, document_id)))
        document["record"].update(members.pop("record", {}))
        self.store.put(container, {**document, **members})

    def parked(self) -> list[OutgoingMessage]:
        """The parked messages; copies under one MessageId are one."""
        return list({each.message.message_id: each.message for each in self.queues[Role.QUARANTINE]}.values())

    def reasons(self) -> list[str]:
        return [str(each.properties["quarantine-reason"]) for each in self.parked()]

    def sent(self) -> list[str]:
        """MessageIds of what waits in `ledger-entries`."""
        return [each.message.message_id for each in self.queues[Role.LEDGER_ENTRIES]]


@dataclass(frozen=True, slots=True)
class _Sender:
    """Sends a few messages at a time."""

    bench: Bench

    async def send(self, role: Role, messages: Sequence[OutgoingMessage]) -> int:
        first = list(messages[: self.bench.batch_messages])

        def perform() -> int:
            for message in first:
                self.bench.send(role, message)
            return len(first)

        return await Io(f"send {role}", perform, write=True)


@dataclass(frozen=True, slots=True)
class _Off:
    """A worker's clock that is wrong about the time of day."""

    clock: VirtualClock
    by: float

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.seconds + self.by, UTC)

    def monotonic(self) -> float:
        return self.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)


def envelope_of(role: Role, waiting: Waiting) -> Envelope:
    """A delivery as the trigger hands it over."""
    message = waiting.message
    return Envelope(
        role=role,
        body=message.body,
        message_id=message.message_id,
        session_id=message.session_id,
        sequence_number=waiting.sequence_number,
        enqueued_at=datetime.fromtimestamp(waiting.enqueued_at, UTC),
        delivery_count=waiting.delivery_count,
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        properties=message.properties,
    )


def message(
    message_id: str, session_id: str, body: dict[str, Any] | bytes, properties: dict[str, PropertyValue] | None = None
) -> OutgoingMessage:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return OutgoingMessage(message_id=message_id, session_id=session_id, body=data, properties=properties or {})


def placed(order_id: str = "O", lines: int = 2, *, replay: int = 0, **members: Any) -> OutgoingMessage:
    """A new order, or a replay of it."""
    rows = [{"lineId": str(n), "sku": "S", "quantity": 2, "unitPrice": "1.5"} for n in range(1, lines + 1)]
    body = {"type": "order.placed", "orderId": order_id, "sequence": 1, "currency": "EUR", "lines": rows, **members}
    if not replay:
        return message(order_id, order_id, body)
    properties: dict[str, PropertyValue] = {"dedup-id": order_id, "replay-count": str(replay)}
    return message(f"{order_id}~r{replay}", order_id, body, properties)


def amended(number: int = 2, order_id: str = "O") -> OutgoingMessage:
    lines = [{"lineId": "1", "sku": "S", "quantity": 9, "unitPrice": "1.5"}]
    return _command("amended", number, order_id, lines=lines)


def cancelled(number: int = 2, order_id: str = "O") -> OutgoingMessage:
    return _command("cancelled", number, order_id)


def _command(kind: str, number: int, order_id: str, **members: Any) -> OutgoingMessage:
    body = {"type": f"order.{kind}", "orderId": order_id, "operationId": f"op{number}", "sequence": number, **members}
    return message(f"{order_id}:op{number}", order_id, body)


def status(value: str, version: int, order_id: str = "O") -> OutgoingMessage:
    body = {"type": "order.status", "orderId": order_id, "status": value, "version": version}
    return message(f"{order_id}:status.{version}", order_id, body)


def ledger_batch(number: int = 1, *, count: int = 3, ledger_id: str = "L", order_id: str = "O") -> OutgoingMessage:
    first = (number - 1) * count + 1
    transactions = [
        {"transactionId": f"T{n}", "orderId": order_id, "kind": "add", "amount": "1.25", "sequence": n}
        for n in range(first, first + count)
    ]
    body = {
        "ledgerId": ledger_id,
        "batchId": f"B{number}",
        "batchSequence": number,
        "currency": "EUR",
        "transactions": transactions,
    }
    return message(f"{ledger_id}:B{number}", ledger_id, body)


def entry(number: int, order_id: str = "O") -> OutgoingMessage:
    body = {
        "orderId": order_id,
        "stream": "ledger.L",
        "transactionId": f"T{number}",
        "sequence": number,
        "kind": "add",
        "amount": "2",
        "currency": "EUR",
    }
    return message(f"{order_id}:ledger.L:T{number}", order_id, body)
