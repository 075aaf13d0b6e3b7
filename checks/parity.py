"""What differs between Azure and the local stack (D58): printed with its reason, and refused without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from checks.bicep.evaluate import Runtime
from checks.facts import CONTAINERS, ROLES, FactError, Profile, seconds_of
from checks.settings import Finding

_CREDENTIALS = "Azure: by identity; local: the emulators' public keys"
_EMULATOR_TTL = "the emulator keeps messages for an hour at most"

REASONS: Final[Mapping[str, str]] = {
    "queue.*.name": "Azure: with a generation, since fixed properties need a new queue to change",
    "queue.*.enablePartitioning": "the emulator has no partitions",
    "queue.*.maxSizeInMegabytes": "the emulator has no such property",
    "queue.*.duplicateDetectionHistoryTimeWindow": "local: short, so that copies reach the app within a demo",
    "queue.*.maxDeliveryCount": "the emulator takes at most 10",
    "queue.*.defaultMessageTimeToLive": _EMULATOR_TTL,
    "setting.FUNCTIONS_WORKER_RUNTIME": "Flex Consumption sets it and refuses it as a setting",
    "setting.AzureWebJobsStorage": _CREDENTIALS,
    "setting.ServiceBusConnection": _CREDENTIALS,
    "setting.CosmosConnection": _CREDENTIALS,
    "setting.AzureWebJobsStorage__accountName": _CREDENTIALS,
    "setting.AzureWebJobsStorage__credential": _CREDENTIALS,
    "setting.AzureWebJobsStorage__clientId": _CREDENTIALS,
    "setting.ServiceBusConnection__fullyQualifiedNamespace": _CREDENTIALS,
    "setting.ServiceBusConnection__credential": _CREDENTIALS,
    "setting.ServiceBusConnection__clientId": _CREDENTIALS,
    "setting.CosmosConnection__accountEndpoint": _CREDENTIALS,
    "setting.CosmosConnection__credential": _CREDENTIALS,
    "setting.CosmosConnection__clientId": _CREDENTIALS,
    "setting.AZURE_CLIENT_ID": _CREDENTIALS,
    "setting.APPLICATIONINSIGHTS_CONNECTION_STRING": "no Application Insights locally",
    "setting.APPLICATIONINSIGHTS_AUTHENTICATION_STRING": "no Application Insights locally",
    "setting.ORDERS_QUEUE": "Azure: with a generation",
    "setting.LEDGER_QUEUE": "Azure: with a generation",
    "setting.LEDGER_ENTRIES_QUEUE": "Azure: with a generation",
    "setting.QUARANTINE_QUEUE": "Azure: with a generation",
    "setting.SWEEP_SCHEDULE": "local: often, so that a demo sees it",
    "setting.SWEEP_GRACE_SECONDS": "local: just above the budget, so that a demo sees the sweep",
    "setting.GAP_ALARM_SECONDS": "local: short, so that a demo sees the alarm",
    "setting.TELEMETRY_EXPORTER": "no exporter locally",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that isn't the same; none stands for absent."""

    key: str
    azure: object
    local: object
    reason: str | None


def differences(azure: Profile, local: Profile) -> Iterator[Difference]:
    """All that differs, in the order of the names."""
    for key in sorted({*azure.facts, *local.facts}):
        if not key.startswith(("queue.", "setting.", "container.")):
            continue
        here, there = azure.facts.get(key), local.facts.get(key)
        if here is not None and there is not None and _same(here.value, there.value):
            continue
        yield Difference(key, here and here.value, there and there.value, REASONS.get(_pattern(key)))


def unexplained(azure: Profile, local: Profile) -> Iterator[Finding]:
    """A difference that nobody has given a reason for: the local tests would then test something else."""
    for difference in differences(azure, local):
        if difference.reason is None:
            yield Finding(
                "both", "parity (D58)", f"{difference.key}: {difference.azure!r} and {difference.local!r}", False,
                _place(azure, difference.key), _place(local, difference.key),
            )  # fmt: skip


def complete(profile: Profile) -> Iterator[Finding]:
    """Both sides have all queues and containers."""
    for kind, names, key in (("queue", ROLES, "name"), ("container", CONTAINERS, "partitionKey")):
        for name in names:
            try:
                fact = profile.fact(f"{kind}.{name}.{key}")
            except FactError as error:
                yield Finding(profile.name, "parity (D58)", str(error), False, kind, "docs/contracts.md section 2")
            else:
                yield Finding(profile.name, "parity (D58)", f"{kind} {name} is there", True, fact.place, "")


def report(azure: Profile, local: Profile) -> list[str]:
    """The differences as a table."""
    rows = [("", "Azure", "local", "why")]
    for item in differences(azure, local):
        if not item.key.startswith("queue.") or item.key.split(".")[1] in ("orders", "quarantine"):
            rows.append((item.key, _shown(item.azure), _shown(item.local), item.reason or "NO REASON"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]).rstrip() for row in rows]


def _place(profile: Profile, key: str) -> str:
    return profile.facts[key].place if key in profile.facts else f"{profile.name}: absent"


def _pattern(key: str) -> str:
    kind, _, rest = key.partition(".")
    return f"queue.*.{rest.partition('.')[2]}" if kind == "queue" else key


def _same(one: object, other: object) -> bool:
    if one == other:
        return True
    try:
        return str(one).startswith("P") and seconds_of(one) == seconds_of(other)
    except ValueError:
        return False


def _shown(value: object) -> str:
    if isinstance(value, Runtime) or str(value).startswith("[reference("):
        return "(known once deployed)"
    text = "-" if value is None else str(value)
    return text if len(text) <= 38 else text[:35] + "..."
