"""Builds the object graph: settings → clients → handlers, once per worker process and event loop."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping
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
from shared.envelope import Envelope, HttpAnswer
from shared.errors import ConfigurationError
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


async def ready() -> Services:
    """The services, for a message. With wrong settings it waits before it raises: an abandoned message comes back at
    once, and a deployment without a setting would lose its queues to the dead letters within seconds.

    Raises: ConfigurationError.
    """
    try:
        return services()
    except ConfigurationError as error:
        telemetry.logger.error(telemetry.CONFIGURATION, extra={"description": str(error)})
        await asyncio.sleep(MISCONFIGURED_SECONDS)
        raise


def health(env: Mapping[str, str], functions: tuple[str, ...]) -> HttpAnswer:
    """Whether the settings can be read, by name; no I/O."""
    try:
        cosmos_account(Settings.from_env(env).cosmos)
    except ConfigurationError as error:
        return misconfigured(error.names)
    return healthy(functions)
