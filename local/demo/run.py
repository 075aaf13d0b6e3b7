"""One run: starts the stack and the app, sends the input, kills the worker on the way, waits, looks and judges."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from azure.cosmos.aio import CosmosClient
from azure.servicebus.aio import ServiceBusClient
from rich.console import Console

from local.demo.clients import local_cosmos
from local.demo.expect import Expectation, expect, must_be_refused
from local.demo.gather import Names, gather, unfinished
from local.demo.lines import ROLES, Line, Sending, plan, total
from local.demo.report import Tally, Watch
from local.demo.sending import QueueSender
from local.demo.verify import EndState, Verdict, verify
from local.host.events import HostEvent, LogLine
from local.stack import PortError, Ports, Stack, check_ports

DUPLICATE_WINDOW_SECONDS = 5.0  # of local/Config.json; the copies of round 1 go out behind it
KILLS = 3
HEALTH = "/api/health"
QUIET_POLLS = 3
POLL_SECONDS = 0.25
STALLED_SECONDS = 150.0  # longer than the sweep's grace, an interval and a back-off together


@dataclass(frozen=True, slots=True)
class Result:
    """What came out, what was demanded, and how they compare."""

    tally: Tally
    verdict: Verdict
    seconds: float
    expectation: Expectation
    end: EndState


async def run(lines: Sequence[Line], seed: int, console: Console, project: Path | None = None) -> Result:
    """Run the input through the app and prove the outcome.

    Raises: ConfigError, HostError (settings or the app are wrong), PortError, OSError (the
    environment is).
    """
    started = time.monotonic()
    tally = Tally()
    foreseen = {line.number for line in lines if must_be_refused(line)}
    expectation = await asyncio.to_thread(expect, lines, foreseen, datetime.now(UTC))
    deliveries = expected_deliveries(expectation)
    killer = _Killer(random.Random(seed), deliveries, tally)  # noqa: S311 (a schedule, no secret)

    def on_event(event: HostEvent) -> None:
        if isinstance(event, LogLine) and event.message == "message.handled":
            session = event.fields.get("session_id")
            tally.handled(
                str(event.fields.get("consumer")),
                str(event.fields.get("outcome")),
                session if isinstance(session, str) else None,
            )
            killer.consider()

    console.print(f"{total(lines)} messages in {len(lines)} lines; starting the stack and the app", markup=False)
    async with AsyncExitStack() as running:
        try:
            stack = await running.enter_async_context(_stack(project, ports_to_use(), on_event))
        except (PortError, OSError):  # somebody took one since it was looked at
            stack = await running.enter_async_context(_stack(project, Ports.free(), on_event))
        killer.stack = stack
        orders = len({line.session_id for line in lines if line.role == "orders" and line.number not in foreseen})
        watch = Watch(console, tally, sent=total(lines) - _copies(lines, foreseen), handled=deliveries, orders=orders)
        killer.note = watch.note
        async with (
            ServiceBusClient.from_connection_string(stack.service_bus_connection) as bus,
            local_cosmos(stack.cosmos_endpoint, stack.cosmos_key) as cosmos,
        ):
            names = Names.of(stack.environment())
            with watch:
                await _send(bus, names, lines, tally, watch, killer)
                await _until_quiet(stack, cosmos, names, tally, watch)
            console.print("quiet; reading the end state", markup=False)
            end = await gather(cosmos, bus, names)
            end.waiting = waiting(stack, names)
    if set(tally.refused) != foreseen:
        expectation = await asyncio.to_thread(expect, lines, set(tally.refused), datetime.now(UTC))
    verdict = await asyncio.to_thread(verify, expectation, end)
    return Result(tally, verdict, time.monotonic() - started, expectation, end)


def _stack(project: Path | None, ports: Ports, on_event: Callable[[HostEvent], None]) -> Stack:
    """Make the stack. The app's payment provider is not part of what the input says; the demo runs without one."""
    return Stack(project, app=True, ports=ports, observers=[on_event], settings={"PAYMENTS_URL": ""}, health=HEALTH)


def ports_to_use() -> Ports:
    """Take the usual ports, and a free one for each that somebody else has."""
    ports = Ports()
    for each in fields(Ports):
        try:
            check_ports(replace(Ports.free(), **{each.name: getattr(ports, each.name)}))
        except PortError:
            ports = replace(ports, **{each.name: 0})
    return ports


def expected_deliveries(expectation: Expectation) -> int:
    """Estimate how many deliveries there will be, for the bars and the kills: the messages, and what they cause."""
    own = sum(park.certain for park in expectation.parked)
    for items in (*expectation.order_items.values(), *expectation.ledger_items.values()):
        own += sum(item.certain for item in items)
    for streams in expectation.entries.values():
        own += sum(item.certain for sources in streams.values() for source in sources for item in source)
    orders = sum(len(ends[0].state.postings) for ends in expectation.orders.values() if ends)
    ledgers = sum(len(ends[0].state.postings) for ends in expectation.ledgers.values() if ends)
    return own + orders + ledgers


def waiting(stack: Stack, names: Names) -> dict[str, int]:
    """Count what is still in the working queues, in hand or not."""
    found = {}
    for role in ROLES:
        counts = stack.service.counts(names.queues[role])
        found[role] = counts.active + counts.scheduled + counts.deferred
    return found


def _copies(lines: Sequence[Line], numbers: set[int]) -> int:
    return sum(line.repeat for line in lines if line.number in numbers)


class _Killer:
    """Kills the worker when a seeded share of the deliveries is done and others are in hand."""

    def __init__(self, random_: random.Random, deliveries: int, tally: Tally) -> None:
        shares = [random_.uniform(low, low + 0.2) for low in (0.1, 0.4, 0.7)]
        self._at = sorted({int(share * deliveries) for share in shares[: KILLS if deliveries > 60 else 1]})
        self._tally = tally
        self.stack: Stack | None = None
        self.note: Callable[[str], None] = print

    def consider(self) -> None:
        """Kill the worker if it is time."""
        if self._at and self.stack is not None and self.stack.host is not None and self._tally.received >= self._at[0]:
            del self._at[0]
            self.stack.host.kill_worker()
            self._tally.worker_kills += 1
            self.note(f"killed the worker after {self._tally.received} deliveries")

    @property
    def is_at_start(self) -> bool:
        """Whether the first kill is due before anything was handled, as with an input of a few lines."""
        return bool(self._at) and self._at[0] == 0


async def _send(
    bus: ServiceBusClient, names: Names, lines: Sequence[Line], tally: Tally, watch: Watch, killer: _Killer
) -> None:
    """Send every queue's messages in order, the queues side by side; late copies behind the duplicate window."""
    sendings = plan(lines)

    def on_sent(count: int) -> None:
        tally.sent += count
        watch.update()
        if killer.is_at_start:
            killer.consider()

    senders = {role: QueueSender(bus, names.queues[role], on_sent) for role in ROLES if any(_of(sendings, role, None))}
    try:
        for round_ in (0, 1):
            if not any(sending.round == round_ for sending in sendings):
                continue
            if round_:
                await _while_counting(watch, DUPLICATE_WINDOW_SECONDS + 0.5)
            await asyncio.gather(*(sender.send(_of(sendings, role, round_)) for role, sender in senders.items()))
    finally:
        await asyncio.gather(*(sender.close() for sender in senders.values()))
    for sender in senders.values():
        tally.refused |= sender.refused


def _of(sendings: Sequence[Sending], role: str, round_: int | None) -> list[Sending]:
    return [one for one in sendings if one.line.role == role and round_ in (None, one.round)]


async def _while_counting(watch: Watch, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        await asyncio.sleep(min(left, POLL_SECONDS))
        watch.update()


async def _until_quiet(stack: Stack, cosmos: CosmosClient, names: Names, tally: Tally, watch: Watch) -> None:
    """Wait until nothing waits or is in hand and every record is completed, or until nothing moves any more.

    What is left then is reported as such, so a hanging app ends in a verdict and not in a hanging demo.
    """
    quiet, seen, since = 0, -1, time.monotonic()
    while quiet < QUIET_POLLS:
        await _while_counting(watch, POLL_SECONDS)
        if tally.received != seen:
            seen, since = tally.received, time.monotonic()
        if time.monotonic() - since > STALLED_SECONDS:
            watch.note(f"nothing has moved for {STALLED_SECONDS:.0f} seconds; going on with what is there")
            return
        is_quiet = not any(waiting(stack, names).values()) and await unfinished(cosmos, names) == 0
        quiet = quiet + 1 if is_quiet else 0
