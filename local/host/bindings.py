"""What the worker's functions are to the host: their triggers, with settings resolved, or a refusal that names them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from local.host.cron import Schedule, parse_schedule
from local.host.errors import HostError
from local.host.routes import Route, parse_route

_SETTING: Final = re.compile(r"%([^%]*)%")
_DISABLED: Final = ("true", "1")


@dataclass(frozen=True, slots=True)
class ServiceBusFunction:
    """A function with a Service Bus queue trigger, one message at a time."""

    name: str
    queue: str
    has_sessions: bool
    is_binary: bool
    auto_complete: bool | None
    namespace: str


@dataclass(frozen=True, slots=True)
class TimerFunction:
    """A function with a timer trigger."""

    name: str
    schedule: Schedule
    run_on_startup: bool


@dataclass(frozen=True, slots=True)
class HttpFunction:
    """A function with an HTTP trigger."""

    name: str
    route: Route
    methods: frozenset[str]  # empty: every method
    auth_level: str


HostFunction: TypeAlias = ServiceBusFunction | TimerFunction | HttpFunction


class Settings:
    """App settings as .NET's configuration looks them up: whatever their case."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in environment.items()}

    def get(self, name: str) -> str | None:
        """A setting's value."""
        return self._values.get(name.lower())

    def is_disabled(self, function: str) -> bool:
        """Whether AzureWebJobs.<function>.Disabled switches the function off."""
        return (self.get(f"AzureWebJobs.{function}.Disabled") or "").lower() in _DISABLED

    def resolve(self, function: str, text: str) -> str:
        """Replace each %SETTING%; one that is missing or empty is refused."""

        def value(match: re.Match[str]) -> str:
            found = self.get(match[1])
            if not found:
                raise HostError(f"function {function}: setting {match[1]!r} (in {text!r}) isn't set")
            return found

        return _SETTING.sub(value, text)


def read_functions(descriptions: Sequence[Mapping[str, object]], settings: Settings) -> list[HostFunction]:
    """Read the worker's descriptions; what the host doesn't do is refused by name, never left out silently."""
    return [_read(description, settings) for description in descriptions]


def _read(description: Mapping[str, object], settings: Settings) -> HostFunction:
    name = str(description["name"])
    if description.get("retry"):
        raise HostError(f"function {name}: retry policies aren't supported; Service Bus triggers must not have one")
    bindings = description["bindings"]
    assert isinstance(bindings, list)  # noqa: S101  # the worker's own message
    trigger: dict[str, object] = {}
    for binding in bindings:
        kind = str(binding["type"])
        if kind.endswith("Trigger"):
            trigger = binding
        elif (binding["name"], kind) != ("$return", "http"):
            raise HostError(f"function {name}: binding {binding['name']!r} of type {kind} isn't supported")
    match trigger["type"]:
        case "serviceBusTrigger":
            return _service_bus(name, trigger, settings, takes_list=bool(description.get("takesList")))
        case "timerTrigger":
            return _timer(name, trigger, settings)
        case "httpTrigger":
            return _http(name, trigger)
        case other:
            raise HostError(f"function {name}: triggers of type {other} aren't supported")


def _service_bus(
    name: str, trigger: Mapping[str, object], settings: Settings, *, takes_list: bool
) -> ServiceBusFunction:
    if "topicName" in trigger:
        raise HostError(f"function {name}: Service Bus topics aren't supported")
    if str(trigger.get("cardinality", "one")).lower() == "many":
        raise HostError(f"function {name}: cardinality MANY (batches) isn't supported")
    if takes_list:
        raise HostError(f"function {name}: parameter {trigger['name']} is a list, but its cardinality is ONE")
    data_type = str(trigger.get("dataType", "UNDEFINED")).upper()
    if data_type not in ("UNDEFINED", "STRING", "BINARY"):
        raise HostError(f"function {name}: data type {data_type} isn't supported")
    auto_complete = trigger.get("autoCompleteMessages")
    return ServiceBusFunction(
        name=name,
        queue=settings.resolve(name, str(trigger["queueName"])),
        has_sessions=trigger.get("isSessionsEnabled") is True,
        is_binary=data_type == "BINARY",
        auto_complete=auto_complete if isinstance(auto_complete, bool) else None,
        namespace=_namespace(name, settings.resolve(name, str(trigger.get("connection") or "")), settings),
    )


def _namespace(function: str, connection: str, settings: Settings) -> str:
    """The namespace of a connection: the flat setting, or the one with the fully qualified name."""
    connection = connection or "AzureWebJobsServiceBus"
    flat = settings.get(connection)
    part = f"{connection}__fullyQualifiedNamespace"
    qualified = settings.get(part)
    if flat and qualified:
        raise HostError(f"function {function}: both {connection} and {part} are set; keep one of them")
    if flat:
        endpoint = re.search(r"(?:^|;)\s*Endpoint\s*=\s*sb://([^;/]+)", flat, re.IGNORECASE)
        if endpoint is None:
            raise HostError(f"function {function}: setting {connection} is no connection string with Endpoint=sb://...")
        return endpoint[1].split(":")[0]
    if not qualified:
        raise HostError(f"function {function}: connection {connection!r}: neither {connection} nor {part} is set")
    if re.search(r"[/:=;\s]", qualified):
        raise HostError(f"function {function}: setting {part} must be a host name only")
    return qualified


def _timer(name: str, trigger: Mapping[str, object], settings: Settings) -> TimerFunction:
    text = settings.resolve(name, str(trigger["schedule"]))
    try:
        schedule = parse_schedule(text)
    except ValueError as exc:
        raise HostError(f"function {name}: schedule {text!r}: {exc}") from None
    return TimerFunction(name, schedule, run_on_startup=trigger.get("runOnStartup") is True)


def _http(name: str, trigger: Mapping[str, object]) -> HttpFunction:
    text = str(trigger.get("route") or name)
    try:
        route = parse_route(text)
    except ValueError as exc:
        raise HostError(f"function {name}: route {text!r}: {exc}") from None
    methods = trigger.get("methods")
    level = str(trigger.get("authLevel") or "FUNCTION").lower()
    if level not in ("anonymous", "function", "admin"):
        raise HostError(f"function {name}: auth level {level} isn't supported")
    return HttpFunction(
        name=name,
        route=route,
        methods=frozenset(str(method).upper() for method in methods) if isinstance(methods, list) else frozenset(),
        auth_level=level,
    )
