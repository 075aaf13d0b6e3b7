"""Where a command looks: environment over `.stack.json` over `local.settings.json`.

`.stack.json` is written by a running embedded stack. Its format is all that this package knows of the stack.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ops.errors import EnvironmentProblemError, UsageError
from shared.errors import ConfigurationError
from shared.settings import CosmosConnection, ServiceBusConnection, Settings

STACK_FILE: Final = ".stack.json"
SETTINGS_FILE: Final = "local.settings.json"
PROBE_SECONDS: Final = 2.0
START: Final = "start one with `python3 dev.py start`, or name another in the environment"

_CONNECTIONS: Final = {"ServiceBusConnection": "serviceBusConnection", "CosmosConnection": "cosmosConnection"}
_OPTIONAL: Final = frozenset({"PAYMENTS_URL", "PAYMENTS_SCOPE", "AZURE_CLIENT_ID"})
_BROKER: Final = re.compile(r"^Endpoint=sb://([^/;:]+)(?::(\d+))?", re.IGNORECASE)
_DATABASE: Final = re.compile(r"AccountEndpoint=([^;]+)", re.IGNORECASE)
_EMULATOR: Final = re.compile(r"UseDevelopmentEmulator=true", re.IGNORECASE)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class RunningStack:
    """What `.stack.json` says."""

    control_url: str
    control_token: str
    functions_url: str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting's value, and where it comes from."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """The environment that a command works on."""

    settings: Settings
    values: Mapping[str, Setting]
    stack: RunningStack | None

    @property
    def name(self) -> str:
        """The namespace's host, for people."""
        bus = self.settings.service_bus
        found = _BROKER.search(bus.connection_string or "")
        return bus.namespace or (found[0].removeprefix("Endpoint=sb://") if found else "?")


def project_folder(here: Path) -> Path:
    """The project: the current folder if it is one, else the one that this package is in."""
    return here if (here / "host.json").is_file() else Path(__file__).resolve().parent.parent


def read_target(project: Path, environment: Mapping[str, str]) -> Target:
    """Put the settings together.

    Raises: UsageError, which names each missing or malformed setting.
    """
    stack = _read(project / STACK_FILE) or {}
    values = _layered(project, stack, environment)
    try:
        settings = Settings.from_env({name: setting.value for name, setting in values.items()})
    except ConfigurationError as wrong:
        raise UsageError(f"settings: {wrong}") from wrong
    return Target(settings, values, _running(stack, values))


def require_reachable(target: Target) -> None:
    """Say at once that no emulator runs where the settings point to one, instead of waiting for a client's retries.

    Raises: EnvironmentProblemError.
    """
    for what, host, port in (*_broker_address(target.settings.service_bus), *_database_address(target.settings.cosmos)):
        if host not in _LOOPBACK:
            continue
        try:
            socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
        except OSError:
            stale = f"; {STACK_FILE} is of a stack that is gone" if target.stack is not None else ""
            raise EnvironmentProblemError(f"no {what} answers at {host}:{port}{stale}: {START}") from None


def _layered(project: Path, stack: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, Setting]:
    content = _read(project / SETTINGS_FILE)
    if content is None and (project / SETTINGS_FILE).exists():
        raise UsageError(f"{SETTINGS_FILE}: not a JSON object")
    found = (content or {}).get("Values")
    file = {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}
    values = {name: Setting(value, SETTINGS_FILE) for name, value in file.items()}
    for name, member in _CONNECTIONS.items():
        if isinstance(stack.get(member), str):
            values[name] = Setting(str(stack[member]), STACK_FILE)
    for name in _CONNECTIONS:  # an address in the environment takes the place of a file's connection string
        if any(key.upper().startswith(f"{name}__".upper()) for key in environment):
            values.pop(name, None)
    known = {name.upper(): name for name in (*values, *_CONNECTIONS)}
    for name, value in environment.items():
        if value and _is_setting(name, known):
            values[known.get(name.upper(), name)] = Setting(value, "environment")
    _check_one_world(values)
    return values


def _is_setting(name: str, known: Mapping[str, str]) -> bool:
    upper = name.upper()
    return upper in known or upper in _OPTIONAL or upper.startswith(tuple(f"{each}__".upper() for each in _CONNECTIONS))


def _check_one_world(values: Mapping[str, Setting]) -> None:
    """Refuse a broker of one environment beside the database of another: nothing said about both would be true."""
    sources = {
        prefix: next((setting.source for name, setting in values.items() if name.partition("__")[0] == prefix), None)
        for prefix in _CONNECTIONS
    }
    if None not in sources.values() and len(set(sources.values())) > 1:
        told = ", ".join(f"{prefix} from {source}" for prefix, source in sources.items())
        raise UsageError(f"settings: {told}; name both in the environment, or neither")


def _running(stack: Mapping[str, object], values: Mapping[str, Setting]) -> RunningStack | None:
    """The stack, as long as nothing in the environment points away from it."""
    url, token, functions = (stack.get(name) for name in ("controlUrl", "controlToken", "functionsUrl"))
    if not (isinstance(url, str) and isinstance(token, str)) or urlsplit(url).hostname != "127.0.0.1":
        return None
    bus = values.get("ServiceBusConnection")
    if bus is None or bus.value != stack.get("serviceBusConnection"):
        return None
    return RunningStack(url, token, functions if isinstance(functions, str) else None)


def _read(path: Path) -> dict[str, object] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _broker_address(connection: ServiceBusConnection) -> list[tuple[str, str, int]]:
    text = connection.connection_string or ""
    found = _BROKER.search(text)
    if found is None or not _EMULATOR.search(text):
        return []
    return [("Service Bus emulator", found[1], int(found[2] or 5672))]


def _database_address(connection: CosmosConnection) -> list[tuple[str, str, int]]:
    found = _DATABASE.search(connection.connection_string or "")
    address = urlsplit(found[1] if found else connection.endpoint)
    return [("Cosmos DB emulator", address.hostname, address.port or 443)] if address.hostname else []
