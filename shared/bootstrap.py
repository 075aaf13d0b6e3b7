"""Builds the object graph: settings → clients → handlers, once per worker process and event loop."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from shared import telemetry
from shared.adapters.cosmos import CosmosDocuments
from shared.adapters.credentials import cosmos_account, service_token
from shared.adapters.exporters import set_up_exporters
from shared.adapters.payments import HttpPayments
from shared.adapters.servicebus import ServiceBusQueues
from shared.adapters.system import SystemClock, SystemTokens
from shared.contracts.documents import LedgerSequence, LedgerState
from shared.domain.verdicts import Policy
from shared.envelope import Envelope, HttpAnswer, Role
from shared.errors import ConfigurationError, InFlightError
from shared.handlers import apply_entry, fan_out_ledger, process_order
from shared.handlers.claim import Claims
from shared.handlers.effect import PaymentEffect
from shared.handlers.guard import Guard, Handler
from shared.handlers.http import OrderApi, healthy, misconfigured
from shared.handlers.intake import Intake
from shared.handlers.ledger_records import LedgerRecords
from shared.handlers.notes import Notes
from shared.handlers.quarantine import Quarantine
from shared.handlers.relay import Relay
from shared.handlers.states import States
from shared.handlers.sweep import Sweep
from shared.handlers.tracing import TracedSender
from shared.ports import Clock, Container, Documents, Payments, Sender, Tokens
from shared.settings import Settings

MISCONFIGURED_SECONDS = 60
"""How long a message is held while the settings are wrong; as long as it would be in an outage."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside, in one of its implementations."""

    documents: Documents
    sender: Sender
    payments: Payments | None
    clock: Clock
    tokens: Tokens


class Services:
    """The use cases of the app, each behind its guard."""

    def __init__(self, settings: Settings, ports: Ports) -> None:
        self.ports = ports
        documents, clock, tokens = ports.documents, ports.clock, ports.tokens
        sender = TracedSender(ports.sender)
        policy, record_ttl = Policy(settings.payments_unknown_outcome), settings.record_ttl_seconds
        intake = Intake(clock, record_ttl)
        claims = Claims(
            documents,
            lease_seconds=settings.claim_lease_seconds,
            policy=policy,
            can_call=ports.payments is not None,
        )
        relay = Relay(claims, sender, record_ttl)
        payment = PaymentEffect(claims, ports.payments, policy, record_ttl) if ports.payments else None
        sequences = States(documents, Container.LEDGERS, LedgerSequence)
        records = LedgerRecords(documents, relay, sequences)
        self._guard = Guard(
            clock,
            tokens,
            Notes(documents, tokens.token()),
            Quarantine(sender),
            budget_seconds=settings.transient_budget_seconds,
            poison_after_deliveries=settings.poison_after_deliveries,
        )
        self._process_order: Handler = process_order.ProcessOrder(
            documents, intake, claims, relay, payment, record_ttl
        )
        self._fan_out_ledger: Handler = fan_out_ledger.FanOutLedger(documents, intake, claims, records, sequences)
        self._apply_entry: Handler = apply_entry.ApplyEntry(
            documents,
            intake,
            States(documents, Container.LEDGER_ENTRIES, LedgerState),
            settings.held_max_per_stream,
        )
        self.sweep = Sweep(
            documents,
            claims,
            relay,
            records,
            payment,
            clock,
            tokens,
            grace_seconds=settings.sweep_grace_seconds,
            gap_alarm_seconds=settings.gap_alarm_seconds,
        )
        self.orders = OrderApi(documents, sender, clock, tokens)

    async def process_order(self, envelope: Envelope) -> None:
        """Handle one message of `orders`. Returning completes it; raising abandons it."""
        await self._guard.run(process_order.CONSUMER, self._process_order, envelope)

    async def fan_out_ledger(self, envelope: Envelope) -> None:
        """Handle one message of `ledger`. Returning completes it; raising abandons it."""
        await self._guard.run(fan_out_ledger.CONSUMER, self._fan_out_ledger, envelope)

    async def apply_entry(self, envelope: Envelope) -> None:
        """Handle one message of `ledger-entries`. Returning completes it; raising abandons it."""
        await self._guard.run(apply_entry.CONSUMER, self._apply_entry, envelope)

    @property
    def handlers(self) -> Mapping[Role, Callable[[Envelope], Awaitable[None]]]:
        """Which of them takes the messages of a queue."""
        return {
            Role.ORDERS: self.process_order,
            Role.LEDGER: self.fan_out_ledger,
            Role.LEDGER_ENTRIES: self.apply_entry,
        }


def build(settings: Settings) -> Services:
    """The services on the real clients. Nothing is opened yet: the clients connect with their first call.

    Raises: ConfigurationError.
    """
    telemetry.use_fingerprints(settings.log_keys == "fingerprint")
    set_up_exporters(settings.telemetry_exporter, telemetry.logger)
    payments = None
    if settings.payments_url is not None:
        token = service_token(settings.cosmos, settings.payments_scope)
        payments = HttpPayments(settings.payments_url, settings.payments_timeout_seconds, token)
    documents = CosmosDocuments(
        cosmos_account(settings.cosmos), settings.database, settings.containers, telemetry.count_request_units
    )
    sender = ServiceBusQueues(settings.service_bus, settings.queues)
    return Services(settings, Ports(documents, sender, payments, SystemClock(), SystemTokens()))


@functools.cache
def services() -> Services:
    """The services of this worker process, built on its first message."""
    return build(Settings.from_env(os.environ))


async def handle(role: Role, read: Callable[[], Envelope]) -> None:
    """Handle one delivery, which `read` gives. Returning completes it.

    What fails before a handler has it (a wrong setting, an exporter that refuses its own) fails for every message. So
    it waits before it raises: an abandoned message comes back at once, and the queues would be in the dead letters
    within seconds.

    Raises: an Exception, which abandons it, and nothing else.
    """
    try:
        try:
            work, envelope = services().handlers[role], read()
        except Exception as error:
            # Of the app's own error the text; another's might hold a connection string.
            described = str(error) if isinstance(error, ConfigurationError) else type(error).__name__
            telemetry.logger.error(telemetry.CONFIGURATION, extra={"description": described})
            await asyncio.sleep(MISCONFIGURED_SECONDS)
            raise
    except asyncio.CancelledError as cancelled:
        raise ConfigurationError("the invocation was ended while it waited for right settings") from cancelled
    await work(envelope)


async def answer(call: Callable[[Services], Awaitable[HttpAnswer]]) -> HttpAnswer:
    """Answer one HTTP request; with wrong settings by their names."""
    try:
        return await call(services())
    except ConfigurationError as error:
        return misconfigured(error.names)
    except asyncio.CancelledError as cancelled:
        raise InFlightError("the request was ended before its answer") from cancelled


def health(env: Mapping[str, str], functions: tuple[str, ...]) -> HttpAnswer:
    """Whether the settings can be read: names in the answer, the rules that they break in the log; no I/O."""
    try:
        Settings.from_env(env)
    except ConfigurationError as error:
        telemetry.logger.error(telemetry.CONFIGURATION, extra={"description": str(error)})
        return misconfigured(error.names)
    return healthy(functions)
