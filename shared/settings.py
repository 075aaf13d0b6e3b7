"""The app's settings: read once, all faults named in one message (docs/contracts.md, section 11).

The only code that knows setting names. Values are read by name, never by sets of keys: Windows upper-cases the names in
os.environ.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from shared.envelope import Role
from shared.errors import ConfigurationError
from shared.ports import Container

T = TypeVar("T")

REQUEST_SECONDS = 10
"""How long one call to a service may take, the SDK's own repetitions included."""

QUEUE_SETTINGS = {
    Role.ORDERS: "ORDERS_QUEUE",
    Role.LEDGER: "LEDGER_QUEUE",
    Role.LEDGER_ENTRIES: "LEDGER_ENTRIES_QUEUE",
    Role.QUARANTINE: "QUARANTINE_QUEUE",
}
CONTAINER_SETTINGS = {
    Container.ORDERS: "ORDERS_CONTAINER",
    Container.LEDGERS: "LEDGERS_CONTAINER",
    Container.LEDGER_ENTRIES: "LEDGER_ENTRIES_CONTAINER",
    Container.OPERATIONS: "OPERATIONS_CONTAINER",
}
EXPORTERS = ("none", "otlp", "azuremonitor")
LARGEST_HELD = 97
"""Held entries, the entry that releases them and the state fit into one transactional batch of 100."""

_HTTP_URL = re.compile(r"https?://[^/?#\s]+[^?#\s]*")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class ServiceBusConnection:
    """Either a connection string, or a namespace's host name and an identity."""

    connection_string: str | None
    namespace: str
    credential: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True)
class CosmosConnection:
    """Either a connection string, or an account's endpoint and an identity."""

    connection_string: str | None
    endpoint: str
    credential: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting that the app reads."""

    service_bus: ServiceBusConnection
    cosmos: CosmosConnection
    queues: Mapping[Role, str]
    database: str
    containers: Mapping[Container, str]
    poison_after_deliveries: int
    transient_budget_seconds: int
    claim_lease_seconds: int
    record_ttl_seconds: int
    replay_horizon_seconds: int
    replay_max: int
    sweep_grace_seconds: int
    held_max_per_stream: int
    gap_alarm_seconds: int
    payments_url: str | None
    payments_scope: str | None
    payments_timeout_seconds: int
    payments_unknown_outcome: str
    telemetry_exporter: str
    log_keys: str

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read every setting.

        Raises: ConfigurationError, which names all that are missing or wrong at once.
        """
        reader = _Reader(env)
        settings = cls(
            service_bus=_service_bus(reader),
            cosmos=_cosmos(reader),
            queues={role: reader.text(name) for role, name in QUEUE_SETTINGS.items()},
            database=reader.text("COSMOS_DATABASE"),
            containers={container: reader.text(name) for container, name in CONTAINER_SETTINGS.items()},
            poison_after_deliveries=reader.number("POISON_AFTER_DELIVERIES"),
            transient_budget_seconds=reader.number("TRANSIENT_BUDGET_SECONDS"),
            claim_lease_seconds=reader.number("CLAIM_LEASE_SECONDS"),
            record_ttl_seconds=reader.number("RECORD_TTL_SECONDS"),
            replay_horizon_seconds=reader.number("REPLAY_HORIZON_SECONDS"),
            replay_max=reader.number("REPLAY_MAX"),
            sweep_grace_seconds=reader.number("SWEEP_GRACE_SECONDS"),
            held_max_per_stream=reader.number("HELD_MAX_PER_STREAM"),
            gap_alarm_seconds=reader.number("GAP_ALARM_SECONDS"),
            payments_url=_payments_url(reader),
            payments_scope=reader.optional("PAYMENTS_SCOPE"),
            payments_timeout_seconds=reader.number("PAYMENTS_TIMEOUT_SECONDS"),
            payments_unknown_outcome=reader.choice("PAYMENTS_UNKNOWN_OUTCOME", ("retry", "park")),
            telemetry_exporter=reader.choice("TELEMETRY_EXPORTER", EXPORTERS),
            log_keys=reader.choice("LOG_KEYS", ("plain", "fingerprint")),
        )
        reader.text("SWEEP_SCHEDULE")
        if settings.telemetry_exporter == "azuremonitor":
            reader.text("APPLICATIONINSIGHTS_CONNECTION_STRING")
        if not reader.faults:
            reader.faults.extend(unmet_inequalities(settings))
        if reader.faults:
            raise ConfigurationError(*reader.faults)
        return settings


def unmet_inequalities(settings: Settings) -> list[str]:
    """Relations among settings that must hold, or the bounds that the protocol rests on bound nothing."""
    budget, request = settings.transient_budget_seconds, REQUEST_SECONDS
    lease = budget + settings.payments_timeout_seconds + 2 * request
    checks = [
        (
            settings.claim_lease_seconds >= lease,
            f"CLAIM_LEASE_SECONDS: {settings.claim_lease_seconds} is below {lease}"
            " (TRANSIENT_BUDGET_SECONDS + PAYMENTS_TIMEOUT_SECONDS + two requests)",
        ),
        (
            settings.sweep_grace_seconds > budget,
            f"SWEEP_GRACE_SECONDS: {settings.sweep_grace_seconds} is not above TRANSIENT_BUDGET_SECONDS, {budget}",
        ),
        (
            1 <= settings.held_max_per_stream <= LARGEST_HELD,
            f"HELD_MAX_PER_STREAM: {settings.held_max_per_stream} is not between 1 and {LARGEST_HELD}",
        ),
        (
            settings.record_ttl_seconds - 86_400 >= settings.replay_horizon_seconds,
            f"RECORD_TTL_SECONDS: {settings.record_ttl_seconds} less one day is below REPLAY_HORIZON_SECONDS,"
            f" {settings.replay_horizon_seconds}",
        ),
    ]
    return [fault for holds, fault in checks if not holds]


class _Reader:
    """Reads settings and gathers what is wrong with them."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.faults: list[str] = []

    def optional(self, name: str) -> str | None:
        return self._env.get(name) or None

    def text(self, name: str) -> str:
        return self._read(name, str, "")

    def number(self, name: str) -> int:
        return self._read(name, _positive, 1)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        def chosen(text: str) -> str:
            if text not in allowed:
                raise ValueError(f"must be one of {', '.join(allowed)}")
            return text

        return self._read(name, chosen, allowed[0])

    def _read(self, name: str, convert: Callable[[str], T], instead: T) -> T:
        text = self._env.get(name)
        if not text:
            self.faults.append(f"{name}: missing")
            return instead
        try:
            return convert(text)
        except ValueError as error:
            self.faults.append(f"{name}: {error}")
            return instead


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ValueError("must be a whole number from 1 on")
    return int(text)


def _connection(reader: _Reader, prefix: str, address: str) -> tuple[str | None, str, str | None, str | None]:
    flat = reader.optional(prefix)
    parts = {name: reader.optional(f"{prefix}__{name}") for name in (address, "credential", "clientId")}
    given = [f"{prefix}__{name}" for name, value in parts.items() if value is not None]
    if flat is not None and given:
        reader.faults.append(f"{prefix} and {given[0]}: only one of them may be set")
    elif flat is None and parts[address] is None:
        reader.faults.append(f"{prefix}: missing (or {prefix}__{address})")
    if parts["credential"] not in (None, "managedidentity"):
        reader.faults.append(f"{prefix}__credential: must be managedidentity or absent")
    return flat, parts[address] or "", parts["credential"], parts["clientId"]


def _service_bus(reader: _Reader) -> ServiceBusConnection:
    flat, namespace, credential, client_id = _connection(reader, "ServiceBusConnection", "fullyQualifiedNamespace")
    if namespace and not _HOST_NAME.fullmatch(namespace):
        reader.faults.append(
            "ServiceBusConnection__fullyQualifiedNamespace: a host name alone is expected,"
            " without scheme, port, slash or Endpoint="
        )
    if flat is not None and not flat.startswith("Endpoint=sb://"):
        reader.faults.append("ServiceBusConnection: a connection string begins with Endpoint=sb://")
    return ServiceBusConnection(flat, namespace, credential, client_id)


def _cosmos(reader: _Reader) -> CosmosConnection:
    flat, endpoint, credential, client_id = _connection(reader, "CosmosConnection", "accountEndpoint")
    if endpoint and not endpoint.startswith("https://"):
        reader.faults.append("CosmosConnection__accountEndpoint: must begin with https://")
    if flat is not None and not ("AccountEndpoint=" in flat and "AccountKey=" in flat):
        reader.faults.append("CosmosConnection: a connection string has AccountEndpoint= and AccountKey=")
    elif flat is not None and not _is_key(flat.partition("AccountKey=")[2].partition(";")[0]):
        reader.faults.append("CosmosConnection: its AccountKey is no base64 text")
    return CosmosConnection(flat, endpoint, credential, client_id)


def _payments_url(reader: _Reader) -> str | None:
    url = reader.optional("PAYMENTS_URL")
    if url is not None and not _HTTP_URL.fullmatch(url):
        reader.faults.append("PAYMENTS_URL: must be http:// or https:// with a host, and no query")
    return url


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) > 0
    except ValueError:
        return False
