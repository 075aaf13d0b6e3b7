"""Reads `host.json` and `local.settings.json` by the platform's rules, and refuses what the platform would misread.

Every refusal names the file and the key: the real host answers a typo with a default, and a nested value in
`local.settings.json` with a message about another setting (Azure/azure-functions-core-tools#223).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.config_errors import ConfigError
from local.json_file import Json, kind_of, read_object

# Defaults of the extension's ServiceBusOptions and of Azure.Messaging.ServiceBus.
TRY_TIMEOUT_SECONDS: Final = 60.0
_CALLS: Final = 16 * (os.cpu_count() or 1)
INFINITE_SECONDS: Final = math.inf
_INFINITE_TIME_SPAN: Final = -0.001  # Timeout.InfiniteTimeSpan, "-00:00:00.0010000"


@dataclass(frozen=True, slots=True)
class ServiceBusConfig:
    """`extensions.serviceBus` of host.json, as far as single dispatch reads it."""

    prefetch_count: int = 0
    auto_complete_messages: bool = True
    max_auto_lock_renewal_seconds: float = 300.0
    max_concurrent_calls: int = _CALLS
    max_concurrent_sessions: int = 8
    session_idle_seconds: float = TRY_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class HostConfig:
    """host.json with the platform's defaults in place."""

    function_timeout_seconds: float = 1800.0
    route_prefix: str = "api"
    functions: frozenset[str] | None = None
    service_bus: ServiceBusConfig = ServiceBusConfig()


_TOP_LEVEL: Final = frozenset(
    {
        "$schema", "version", "functionTimeout", "functions", "extensions", "extensionBundle", "logging",
        "telemetryMode", "aggregator", "concurrency", "customHandler", "healthMonitor", "id", "managedDependency",
        "retry", "singleton", "watchDirectories", "watchFiles", "tracing", "sendCanceledInvocationsToWorker",
        "applicationInsights",
    }
)
_SERVICE_BUS: Final = frozenset(
    {
        "clientRetryOptions", "prefetchCount", "transportType", "webProxy", "autoCompleteMessages",
        "maxAutoLockRenewalDuration", "maxConcurrentCalls", "maxConcurrentSessions", "maxConcurrentCallsPerSession",
        "maxMessageBatchSize", "minMessageBatchSize", "maxBatchWaitTime", "sessionIdleTimeout",
        "enableCrossEntityTransactions",
    }
)
_MOST_SLOTS: Final = 10_000  # each is a task of the embedded host, whether or not anything waits for it
_RETRY: Final = frozenset({"mode", "tryTimeout", "delay", "maxDelay", "maxRetries"})


def read_host_config(path: Path) -> HostConfig:
    """Read host.json; a key that the platform doesn't know is refused, since there it would silently do nothing."""
    top = _Section(path.name, "", read_object(path))
    top.only(_TOP_LEVEL)
    if top.text("version", "") != "2.0":
        top.refuse("version", 'must be "2.0"')
    if top.section("concurrency").flag("dynamicConcurrencyEnabled", default=False):
        top.refuse("concurrency.dynamicConcurrencyEnabled", "dynamic concurrency isn't supported by the embedded host")
    if top.present("retry"):
        top.refuse("retry", "retry policies aren't supported by Service Bus triggers; remove it")
    timeout = top.text("functionTimeout", "00:30:00")
    seconds = INFINITE_SECONDS if timeout == "-1" else top.time_span("functionTimeout", 1800.0)
    if seconds <= 0:
        top.refuse("functionTimeout", "must be longer than zero, or -1 for no limit")
    extensions = top.section("extensions")
    return HostConfig(
        function_timeout_seconds=seconds,
        route_prefix=extensions.section("http").text("routePrefix", "api").strip("/"),
        functions=top.names("functions"),
        service_bus=_service_bus(extensions.section("serviceBus")),
    )


def _service_bus(section: _Section) -> ServiceBusConfig:
    section.only(_SERVICE_BUS)
    retry = section.section("clientRetryOptions")
    retry.only(_RETRY)
    try_timeout = retry.time_span("tryTimeout", TRY_TIMEOUT_SECONDS)
    if section.integer("maxConcurrentCallsPerSession", 1, least=1) != 1:
        section.refuse("maxConcurrentCallsPerSession", "must be 1: more than one call per session breaks its order")
    batch = section.integer("maxMessageBatchSize", 1000, least=1)
    if section.integer("minMessageBatchSize", 1, least=1) > batch:
        section.refuse("minMessageBatchSize", "must not be more than maxMessageBatchSize")
    section.time_span("maxBatchWaitTime", 30.0)
    section.flag("enableCrossEntityTransactions", default=False)
    renewal = section.time_span("maxAutoLockRenewalDuration", 300.0)
    if renewal == _INFINITE_TIME_SPAN:
        renewal = INFINITE_SECONDS
    if renewal < 0:
        section.refuse("maxAutoLockRenewalDuration", 'must not be negative ("-00:00:00.0010000" means no limit)')
    idle = section.time_span("sessionIdleTimeout", try_timeout)
    if idle <= 0:
        section.refuse("sessionIdleTimeout", "must be longer than zero")
    return ServiceBusConfig(
        prefetch_count=section.integer("prefetchCount", 0, least=0),
        auto_complete_messages=section.flag("autoCompleteMessages", default=True),
        max_auto_lock_renewal_seconds=renewal,
        max_concurrent_calls=section.integer("maxConcurrentCalls", _CALLS, least=1, most=_MOST_SLOTS),
        max_concurrent_sessions=section.integer("maxConcurrentSessions", 8, least=1, most=_MOST_SLOTS),
        session_idle_seconds=idle,
    )


def read_local_settings(path: Path) -> dict[str, str]:
    """Read `Values`; a file that isn't there means no values, as for Core Tools.

    Refuses an encrypted file, and every value that isn't a string: Core Tools drops the whole file for one of them.
    """
    if not path.exists():
        return {}
    top = _Section(path.name, "", read_object(path))
    if top.flag("IsEncrypted", default=False):
        top.refuse("IsEncrypted", "encrypted settings can't be read here; run `func settings decrypt`")
    values = top.section("Values").content
    for name, value in values.items():
        if not isinstance(value, str):
            top.refuse(f"Values.{name}", f"must be a string, not {kind_of(value)}")
    return {name: value for name, value in values.items() if isinstance(value, str)}


_TIME_SPAN: Final = re.compile(
    r"\s*(?P<minus>-)?(?:(?P<days>\d{1,8})\.(?=\d+:))?(?P<parts>\d{1,8}(?::\d{1,8}){0,3})(?:\.(?P<fraction>\d{1,7}))?\s*"
)


def time_span(text: str) -> float:
    """Seconds that .NET's TimeSpan.Parse reads from a text.

    A plain number is days, and `24:00:00` is 24 *days*: hours beyond 23 make .NET read the text as d:hh:mm.
    """
    match = _TIME_SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time span (d.hh:mm:ss)")
    parts = [int(part) for part in match["parts"].split(":")]
    fraction = float(f"0.{match['fraction'] or 0}")
    if match["days"] is not None and len(parts) in (2, 3):
        days, hours, minutes, seconds = int(match["days"]), *parts, *([0] * (3 - len(parts)))
    elif len(parts) == 1 and not match["fraction"]:
        days, hours, minutes, seconds = parts[0], 0, 0, 0
    elif len(parts) == 3 and parts[0] > 23 and not match["fraction"]:
        days, hours, minutes, seconds = *parts, 0
    elif len(parts) in (2, 3):
        days, hours, minutes, seconds = 0, *parts, *([0] * (3 - len(parts)))
    elif len(parts) == 4:
        days, hours, minutes, seconds = parts
    else:
        raise ValueError(f"{text!r} is not a time span (d.hh:mm:ss)")
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{text!r} is not a time span: hours, minutes or seconds are out of range")
    total = days * 86400.0 + hours * 3600 + minutes * 60 + seconds + fraction
    return -total if match["minus"] else total


@dataclass(frozen=True, slots=True)
class _Section:
    """A JSON object inside a file, which knows the way to itself for error messages."""

    file: str
    path: str
    content: Mapping[str, Json]

    def refuse(self, key: str, reason: str) -> None:
        raise ConfigError(self.file, f"{self.path}{key}", reason)

    def only(self, known: frozenset[str]) -> None:
        for key in self.content:
            if key not in known:
                close = [name for name in known if name.lower() == key.lower()]
                self.refuse(key, f"unknown; did you mean {close[0]}?" if close else "unknown to the Functions host")

    def present(self, key: str) -> bool:
        return self.content.get(key) is not None

    def section(self, key: str) -> _Section:
        value = self.content.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise ConfigError(self.file, f"{self.path}{key}", f"must be an object, not {kind_of(value)}")
        return _Section(self.file, f"{self.path}{key}.", value)

    def text(self, key: str, default: str) -> str:
        value = self.content.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigError(self.file, f"{self.path}{key}", f"must be a string, not {kind_of(value)}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.content.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(self.file, f"{self.path}{key}", f"must be true or false, not {kind_of(value)}")
        return value

    def integer(self, key: str, default: int, *, least: int, most: int = 2**31 - 1) -> int:
        value = self.content.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(self.file, f"{self.path}{key}", f"must be an integer, not {kind_of(value)}")
        if value < least:
            self.refuse(key, f"must be at least {least}")
        if value > most:
            self.refuse(key, f"must be at most {most}")
        return value

    def time_span(self, key: str, default: float) -> float:
        if not self.present(key):
            return default
        try:
            return time_span(self.text(key, ""))
        except ValueError as exc:
            raise ConfigError(self.file, f"{self.path}{key}", str(exc)) from None

    def names(self, key: str) -> frozenset[str] | None:
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ConfigError(self.file, f"{self.path}{key}", f"must be an array of names, not {kind_of(value)}")
        names = [name for name in value if isinstance(name, str)]
        if len(names) != len(value):
            self.refuse(key, "must hold names only")
        return frozenset(names)
