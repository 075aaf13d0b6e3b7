"""One run: stack, app and traffic under a plan; then quiet, and the end state against what the input demands."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from azure.cosmos.aio import CosmosClient
from azure.servicebus.aio import ServiceBusClient

from local.demo.clients import local_cosmos
from local.demo.expect import Expectation, expect
from local.demo.gather import Names, gather, unfinished
from local.demo.report import Tally
from local.demo.run import HEALTH, waiting
from local.demo.verify import EndState, Verdict, Violation, verify
from local.faults import Service
from local.host.events import HostEvent, InvocationEnded, LogLine, Outcome, WorkerDied
from local.stack import Stack
from tests.chaos.acting import Actor, Done
from tests.chaos.plan import INSTANCES, Plan
from tests.chaos.traffic import Traffic

PROJECT = Path(__file__).parents[2]
QUIET_POLLS = 3
POLL_SECONDS = 0.25
STALLED_SECONDS = 200.0  # a lock, a claim's lease, the sweep's grace and its interval together
MOST_TOLD = 10
HARD_HIT_DELIVERIES = 5  # POISON_AFTER_DELIVERIES; above it each death counts towards a message's being poison
GIVEN_BACK = 2  # by a handler that met another attempt's claim, and by one whose service came back too late
BACK_OFF_SECONDS = 60.0  # TRANSIENT_BUDGET_SECONDS: so long a delivery waits for a service


@dataclass(slots=True)
class Watched:
    """What the host told."""

    tally: Tally = field(default_factory=Tally)
    outcomes: Counter[str] = field(default_factory=Counter)  # of deliveries, as the host settled them
    deliveries: dict[tuple[str, int], int] = field(default_factory=dict)  # highest count by queue and sequence number
    given_back: Counter[tuple[str, int]] = field(default_factory=Counter)  # by the handler itself, alive and in time
    hard_hit: set[tuple[str, int]] = field(default_factory=set)  # not done after so many deliveries
    all_well: asyncio.Event = field(default_factory=asyncio.Event)  # nothing is hard hit
    died: set[int] = field(default_factory=set)  # processes that nobody of the host has ended
    errors: list[str] = field(default_factory=list)  # exceptions that the app did not foresee
    error_count: int = 0

    def __post_init__(self) -> None:
        self.all_well.set()

    def __call__(self, event: HostEvent) -> None:
        match event:
            case LogLine(message="message.handled"):
                session = event.fields.get("session_id")
                outcome = str(event.fields.get("outcome"))
                text = session if isinstance(session, str) else None
                self.tally.handled(str(event.fields.get("consumer")), outcome, text)
                if outcome == "failed":
                    self._error(f"{event.fields.get('message_id')}: {event.exception or event.fields}")
            case InvocationEnded(queue=str(queue), sequence_number=int(number), delivery_count=int(count)):
                self.outcomes[event.outcome.value] += 1
                key = (queue, number)
                self.deliveries[key] = max(count, self.deliveries.get(key, 0))
                self.given_back[key] += event.outcome is Outcome.ABANDONED
                if event.outcome is Outcome.COMPLETED:
                    self.hard_hit.discard(key)
                elif count >= HARD_HIT_DELIVERIES:
                    self.hard_hit.add(key)
                (self.all_well.clear if self.hard_hit else self.all_well.set)()
            case InvocationEnded(outcome=Outcome.FAILED) if event.queue is None:
                self._error(f"{event.function}: {event.error}")
            case WorkerDied(expected=False):
                self.tally.worker_kills += 1
                self.died.add(event.pid)

    def _error(self, text: str) -> None:
        self.error_count += 1
        if len(self.errors) < MOST_TOLD:
            self.errors.append(text)

    @property
    def delivery_counts(self) -> dict[int, int]:
        """How many messages had that many deliveries at most."""
        return dict(sorted(Counter(self.deliveries.values()).items()))


@dataclass(frozen=True, slots=True)
class Result:
    """What was done, and what came of it."""

    plan: Plan
    done: Done
    watched: Watched
    traffic: Traffic
    expectation: Expectation
    end: EndState
    verdict: Verdict
    seconds: float
    quiet_seconds: float


@dataclass(frozen=True, slots=True)
class Now:
    """How far a run is."""

    seconds: float
    sent: int
    handled: int
    waiting: int


async def run(
    plan: Plan,
    *,
    note: Callable[[str], None] = lambda _: None,
    progress: Callable[[Now], None] = lambda _: None,
    settings: Mapping[str, str] | None = None,
    project: Path = PROJECT,
) -> Result:
    """Run the app under the plan, and prove what came out.

    Raises: ConfigError, HostError (settings or the app are wrong), PortError, OSError (the environment is).
    """
    started = time.monotonic()
    watched = Watched()
    stack = Stack(
        project,
        app=True,
        ports="free",
        instances=INSTANCES,
        observers=[watched],
        settings={"PAYMENTS_URL": "", **(settings or {})},  # the expectation is that of an app without a provider
        health=HEALTH,
    )
    async with stack:
        names = Names.of(stack.environment())

        def backlog() -> int:
            return sum(waiting(stack, names).values())

        def bus(retries: int = 0) -> ServiceBusClient:  # without the SDK's own repeats each send is in the notes
            return ServiceBusClient.from_connection_string(stack.service_bus_connection, retry_total=retries)

        traffic = Traffic(
            bus, names, plan.seed, waiting=backlog, is_away=lambda: stack.faults.is_out(Service.BROKER)
        )  # fmt: skip
        actor = Actor(stack, traffic, watched.all_well, note)

        def tell() -> None:
            progress(Now(time.monotonic() - started, traffic.sent, watched.tally.received, backlog()))

        telling = asyncio.create_task(_every(POLL_SECONDS, tell))
        try:
            ends = time.monotonic() + plan.seconds
            async with asyncio.TaskGroup() as group:
                group.create_task(traffic.run(lambda: time.monotonic() > ends))
                group.create_task(actor.run(plan))
            await traffic.close()
            note("all faults are off; waiting until it is quiet")
            calm = time.monotonic()
            async with local_cosmos(stack.cosmos_endpoint, stack.cosmos_key) as cosmos:
                is_quiet = await _until_quiet(cosmos, names, watched, backlog)
                quiet_seconds = time.monotonic() - calm
                note(f"{'quiet' if is_quiet else 'nothing moves'}; reading the end state")
                async with bus(3) as reading:
                    end = await gather(cosmos, reading, names)
            end.waiting = waiting(stack, names)
        finally:
            telling.cancel()
    watched.tally.sent = traffic.sent
    expectation = await asyncio.to_thread(expect, traffic.tried, (), datetime.now(UTC))
    verdict = await asyncio.to_thread(verify, expectation, end)
    verdict.violations += besides(plan, watched, actor.done)
    seconds = time.monotonic() - started
    return Result(plan, actor.done, watched, traffic, expectation, end, verdict, seconds, quiet_seconds)


def besides(plan: Plan, watched: Watched, done: Done) -> Iterable[Violation]:
    """What else must not have happened, whatever the end state."""
    most = GIVEN_BACK + math.floor(plan.longest_outage / BACK_OFF_SECONDS)
    for (queue, number), count in watched.given_back.items():
        if count > most:
            yield Violation("given-back", None, f"message {number} of {queue} was given back {count} times")
    for pid in watched.died - done.ended:
        yield Violation("worker", None, f"the worker {pid} died, and nobody had ended it")
    if watched.outcomes[Outcome.TIMED_OUT.value]:
        count = watched.outcomes[Outcome.TIMED_OUT.value]
        yield Violation("time-out", None, f"{count} deliveries took longer than functionTimeout")
    for text in watched.errors:
        yield Violation("unexpected", None, text)


async def _every(seconds: float, call: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        call()


async def _until_quiet(cosmos: CosmosClient, names: Names, watched: Watched, backlog: Callable[[], int]) -> bool:
    """Wait until nothing waits and every record is completed; False when nothing moves any more."""
    quiet, seen, since = 0, -1, time.monotonic()
    while quiet < QUIET_POLLS:
        await asyncio.sleep(POLL_SECONDS)
        if watched.tally.received != seen:
            seen, since = watched.tally.received, time.monotonic()
        if time.monotonic() - since > STALLED_SECONDS:
            return False
        quiet = quiet + 1 if backlog() == 0 and await unfinished(cosmos, names) == 0 else 0
    return True
