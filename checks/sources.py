"""Reads the files into profiles: what holds in Azure, and what holds locally."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, cast

from checks import compiler
from checks.bicep import evaluate
from checks.code import Trigger, constant, triggers
from checks.facts import Fact, FactError, Profile

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

PARAMETERS: Final = {"environmentName": "check", "location": "westeurope"}
"""The two parameters without a default; all others are as a deployment has them that sets nothing."""

_EMULATOR_NAMES: Final = {
    "RequiresSession": "requiresSession",
    "RequiresDuplicateDetection": "requiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow": "duplicateDetectionHistoryTimeWindow",
    "DeadLetteringOnMessageExpiration": "deadLetteringOnMessageExpiration",
    "DefaultMessageTimeToLive": "defaultMessageTimeToLive",
    "LockDuration": "lockDuration",
    "MaxDeliveryCount": "maxDeliveryCount",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that the checks of settings look at."""

    azure: Profile
    local: Profile
    triggers: tuple[Trigger, ...]
    resources: tuple[Mapping[str, object], ...]
    """Resources of the default deployment: type, name, scope, properties."""
    read_by: str


def read(root: Path, *, use_compiler: bool = True) -> Sources:
    """Read all files below the root.

    Raises: FactError, and the errors of the Bicep reader.
    """
    found = compiler.find(root) if use_compiler else None
    parsed = tuple(_parsed_resources(root))
    compiled = compiler.snapshot(found, root, PARAMETERS) if found is not None else None
    resources = parsed if compiled is None else tuple(_joined(parsed, compiled))
    shared = {**_host(root), **_code(root)}
    return Sources(
        azure=Profile("Azure", {**shared, **_azure(root, resources)}),
        local=Profile("local", {**shared, **_local(root)}),
        triggers=triggers(root / "function_app.py"),
        resources=resources,
        read_by=f"Bicep compiler {found}" if found is not None else "the parser of checks/bicep",
    )


def _parsed_resources(root: Path) -> Iterator[Mapping[str, object]]:
    for resource in evaluate.deployment(root, cast("Mapping[str, evaluate.Value]", PARAMETERS)).resources():
        yield {
            "type": resource.type,
            "name": resource.name,
            "scope": resource.scope,
            "properties": resource.properties,
            "tags": resource.body.get("tags"),
            "place": resource.place.partition(":")[0],
        }


def _joined(
    parsed: Sequence[Mapping[str, object]], compiled: Sequence[Mapping[str, object]]
) -> Iterator[Mapping[str, object]]:
    """The compiler's values at the parser's places; both list the resources in the order of the files.

    Raises: FactError, when they don't list the same ones.
    """
    if [resource["type"] for resource in parsed] != [resource["type"] for resource in compiled]:
        raise FactError("infra/main.bicep: the compiler and checks/bicep don't list the same resources")
    for place, resource in zip(parsed, compiled, strict=True):
        yield {**resource, "place": place["place"]}


def _azure(root: Path, resources: Sequence[Mapping[str, object]]) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for resource in resources:
        place, name = str(resource["place"]), str(resource["name"]).rpartition("/")[2]
        properties = _mapping(resource.get("properties") or {})
        match resource["type"]:
            case "Microsoft.ServiceBus/namespaces":
                facts["namespace.premiumMessagingPartitions"] = _fact(
                    root, place, "premiumMessagingPartitions", properties.get("premiumMessagingPartitions")
                )
            case "Microsoft.ServiceBus/namespaces/queues":
                role = re.sub(r"-\d+$", "", name)
                facts[f"queue.{role}.name"] = Fact(name, f"{place} (name)")
                for key, value in properties.items():
                    facts[f"queue.{role}.{key}"] = _fact(root, place, key, value)
            case "Microsoft.DocumentDB/databaseAccounts":
                for key in ("enableMultipleWriteLocations", "locations", "consistencyPolicy"):
                    facts[f"account.{key}"] = _fact(root, place, key, properties.get(key))
            case "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers":
                for key, value in _mapping(properties["resource"]).items():
                    facts[f"container.{name}.{key}"] = _fact(root, place, key, value)
            case "Microsoft.Web/sites/config" if name == "appsettings":
                for key, value in properties.items():
                    where = "infra/main.bicep" if _line(root / "infra/main.bicep", key) else place
                    facts[f"setting.{key}"] = _fact(root, where, key, value)
    return facts


def _local(root: Path) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    settings = _mapping(_json(root / "local.settings.json"))
    for key, value in _mapping(settings["Values"]).items():
        facts[f"setting.{key}"] = _fact(root, "local.settings.json", key, value)
    facts["local.settings.IsEncrypted"] = Fact(settings.get("IsEncrypted"), "local.settings.json (IsEncrypted)")
    for queue in _queues(_json(root / "local" / "Config.json")):
        name = str(queue["Name"])
        facts[f"queue.{name}.name"] = Fact(name, "local/Config.json (Name)")
        for theirs, ours in _EMULATOR_NAMES.items():
            properties = _mapping(queue["Properties"])
            if theirs in properties:
                facts[f"queue.{name}.{ours}"] = Fact(properties[theirs], f"local/Config.json ({name}: {theirs})")
    for container in _containers(_json(root / "local" / "containers.json")):
        name = str(container["id"])
        for key, value in container.items():
            facts[f"container.{name}.{key}"] = Fact(value, f"local/containers.json ({name}: {key})")
    return facts


def _host(root: Path) -> dict[str, Fact]:
    document = _mapping(_json(root / "host.json"))
    service_bus = _mapping(_mapping(document["extensions"])["serviceBus"])
    facts = {f"host.{key}": _fact(root, "host.json", key, value) for key, value in service_bus.items()}
    facts["host.functionTimeout"] = _fact(root, "host.json", "functionTimeout", document.get("functionTimeout"))
    facts["host.retry"] = Fact(document.get("retry"), "host.json (retry)")
    for key in ("version", "telemetryMode", "extensionBundle"):
        facts[f"host.{key}"] = _fact(root, "host.json", key, document.get(key))
    logging = document.get("logging")
    own = logging.get("applicationInsights") if isinstance(logging, dict) else None
    facts["host.applicationInsights"] = Fact(own, "host.json (logging: applicationInsights)")
    return facts


def _code(root: Path) -> dict[str, Fact]:
    return {
        "code.REQUEST_SECONDS": constant(root / "shared" / "settings.py", "REQUEST_SECONDS"),
        "code.LARGEST_HELD": constant(root / "shared" / "settings.py", "LARGEST_HELD"),
        "code.LONGEST_RUN_SECONDS": constant(root / "shared" / "handlers" / "sweep.py", "LONGEST_RUN_SECONDS"),
    }


def _queues(config: Json) -> Iterator[Mapping[str, Json]]:
    for namespace in _list(_mapping(_mapping(config)["UserConfig"])["Namespaces"]):
        yield from (_mapping(queue) for queue in _list(_mapping(namespace)["Queues"]))


def _containers(document: Json) -> Iterator[Mapping[str, Json]]:
    for database in _list(_mapping(document)["databases"]):
        yield from (_mapping(container) for container in _list(_mapping(database)["containers"]))


def _fact(root: Path, place: str, key: str, value: object) -> Fact:
    line = _line(root / place, key)
    return Fact(value, f"{place}:{line} ({key})" if line else f"{place} ({key})")


def _line(path: Path, key: str) -> int | None:
    """The first line that gives a key a value."""
    given = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*:""")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if given.match(line):
            return number
    return None


def _json(path: Path) -> Json:
    try:
        return cast("Json", json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise FactError(f"{path.name}: {error}") from error


def _mapping(value: object) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise FactError(f"an object was expected, not {value!r}")
    return cast("Mapping[str, Json]", value)


def _list(value: object) -> Sequence[Json]:
    if not isinstance(value, list):
        raise FactError(f"a list was expected, not {value!r}")
    return cast("Sequence[Json]", value)
