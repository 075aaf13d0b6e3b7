"""The app settings of Azure, compared with what the app reads and what the platform refuses (R69, R70, R73)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from checks.bicep.evaluate import Runtime
from checks.facts import Fact, Profile
from checks.settings import Finding
from shared.settings import ConfigurationError, Settings  # type: ignore[attr-defined]  # the error, beside its raiser

CONNECTIONS: Final = {
    "AzureWebJobsStorage": "accountName",
    "ServiceBusConnection": "fullyQualifiedNamespace",
    "CosmosConnection": "accountEndpoint",
}
"""Connections by identity, with the member that holds the address."""

REFUSED: Final = frozenset(
    {
        "FUNCTIONS_WORKER_RUNTIME", "FUNCTIONS_WORKER_RUNTIME_VERSION", "FUNCTIONS_EXTENSION_VERSION",
        "FUNCTIONS_WORKER_PROCESS_COUNT", "FUNCTIONS_MAX_HTTP_CONCURRENCY",
        "FUNCTIONS_WORKER_DYNAMIC_CONCURRENCY_ENABLED", "SCM_DO_BUILD_DURING_DEPLOYMENT", "ENABLE_ORYX_BUILD",
        "WEBSITE_RUN_FROM_PACKAGE", "WEBSITE_CONTENTAZUREFILECONNECTIONSTRING", "WEBSITE_CONTENTSHARE",
        "WEBSITE_SKIP_CONTENTSHARE_VALIDATION", "WEBSITE_CONTENTOVERVNET", "WEBSITE_VNET_ROUTE_ALL",
        "WEBSITE_DNS_SERVER", "WEBSITE_MAX_DYNAMIC_APPLICATION_SCALE_OUT", "WEBSITE_NODE_DEFAULT_VERSION",
        "WEBSITE_TIME_ZONE", "TZ",
    }
)  # fmt: skip
"""Flex Consumption answers these with 400, or ignores them."""

PLATFORM: Final = frozenset(
    {"AZURE_CLIENT_ID", "APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING"}
)
"""Read by SDKs, not by the app's own settings."""

_OF_THE_IDENTITY: Final[Mapping[str, tuple[str, ...]]] = {
    "AZURE_CLIENT_ID": (),
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING": ("ClientId=", ";Authorization=AAD"),
}
"""Settings of SDKs that name the identity, with what else stands in them."""

LOCAL_ONLY: Final = frozenset({"FUNCTIONS_WORKER_RUNTIME", "AzureWebJobsStorage"})


class _Recorder(Mapping[str, str]):
    """Settings that remember which names were asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def read_by_the_app() -> frozenset[str]:
    """Every name that `Settings` looks up."""
    recorder = _Recorder({})
    with contextlib.suppress(ConfigurationError):  # without any value all are missing, so it asks for each
        Settings.from_env(recorder)
    return frozenset(recorder.asked)


def check(azure: Profile, local: Profile) -> Iterator[Finding]:
    """All findings about names and forms of settings."""
    yield from known(azure)
    yield from known(local)
    yield from read_everywhere(azure, local)
    yield from by_identity(azure)
    yield from of_one_identity(azure)
    yield from accepted(azure)
    yield from accepted(local)
    yield from strings_only(local)


def known(profile: Profile) -> Iterator[Finding]:
    """No setting that nobody reads, none that Flex Consumption refuses."""
    storage = {f"AzureWebJobsStorage__{member}" for member in ("accountName", "credential", "clientId")}
    read = read_by_the_app() | PLATFORM | storage | (LOCAL_ONLY if profile.name == "local" else frozenset())
    for name, fact in _settings(profile).items():
        refused = profile.name == "Azure" and name in REFUSED
        yield Finding(
            profile.name, "setting (R73)" if refused else "setting", f"{name} is read by the app",
            name in read and not refused, fact.place,
            "Flex Consumption refuses it" if refused else "shared/settings.py doesn't read it",
        )  # fmt: skip


def read_everywhere(azure: Profile, local: Profile) -> Iterator[Finding]:
    """What the app needs is given on both sides; what is optional may be absent."""
    optional = {"PAYMENTS_URL", "PAYMENTS_SCOPE"}
    for name in sorted(read_by_the_app() - optional):
        prefix = name.partition("__")[0]
        for profile in (azure, local):
            if prefix in CONNECTIONS:
                continue
            given = _settings(profile).get(name)
            yield Finding(
                profile.name, "setting", f"{name} is given", given is not None,
                given.place if given else f"{profile.name}: absent", "shared/settings.py reads it",
            )  # fmt: skip


def by_identity(azure: Profile) -> Iterator[Finding]:
    """Address, credential and client id, and never the flat name beside them (R69)."""
    settings = _settings(azure)
    for prefix, member in CONNECTIONS.items():
        flat = settings.get(prefix)
        yield Finding(
            "Azure", "identity (R69)", f"{prefix} itself is absent", flat is None, flat.place if flat else "",
            f"{prefix}__{member} is set",
        )  # fmt: skip
        for part in (member, "credential", "clientId"):
            fact = settings.get(f"{prefix}__{part}")
            holds = fact is not None and fact.value not in ("", None)
            if part == "credential":
                holds = fact is not None and fact.value == "managedidentity"
            yield Finding(
                "Azure", "identity (R69)", f"{prefix}__{part} = {_shown(fact)}", holds,
                fact.place if fact else "infra/app/function.bicep: absent", "docs/contracts.md section 11",
            )  # fmt: skip


def of_one_identity(azure: Profile) -> Iterator[Finding]:
    """Every part that names the identity has its client id; object and resource id look alike and are refused (R69)."""
    settings = _settings(azure)
    for name in (*(f"{prefix}__clientId" for prefix in CONNECTIONS), *_OF_THE_IDENTITY):
        fact = settings.get(name)
        text = fact.value.text if fact and isinstance(fact.value, Runtime) else str(fact.value) if fact else ""
        missing = [part for part in (".clientId", *_OF_THE_IDENTITY.get(name, ())) if part not in text]
        yield Finding(
            "Azure", "identity (R69)", f"{name} is made of the identity's clientId", not missing,
            fact.place if fact else "infra/app/function.bicep: absent",
            f"missing in it: {', '.join(missing) or 'nothing'}",
        )  # fmt: skip


def accepted(profile: Profile) -> Iterator[Finding]:
    """The app starts with these values: whatever it refuses is named by it."""
    values = {name: _plausible(name, fact.value) for name, fact in _settings(profile).items()}
    try:
        Settings.from_env(values)
    except ConfigurationError as error:
        yield Finding(
            profile.name, "start (R69)", f"the app refuses its settings: {error}", False, f"{profile.name} settings",
            "shared/settings.py",
        )  # fmt: skip
    else:
        yield Finding(profile.name, "start (R69)", "the app accepts its settings", True, "", "")


def strings_only(local: Profile) -> Iterator[Finding]:
    """Core Tools drops the whole file for one value that isn't a string (R70)."""
    for name, fact in _settings(local).items():
        if not isinstance(fact.value, str):
            yield Finding(
                "local", "strings (R70)", f"{name} is {fact.value!r}, must be a string", False, fact.place,
                "Core Tools ignores the file",
            )  # fmt: skip
    encrypted = local.fact("local.settings.IsEncrypted")
    yield Finding(
        "local", "strings (R70)", f"IsEncrypted is {encrypted.value!r}, must be False", encrypted.value is False,
        encrypted.place, "Core Tools",
    )  # fmt: skip


def _settings(profile: Profile) -> dict[str, Fact]:
    return {
        key.removeprefix("setting."): fact for key, fact in profile.facts.items() if key.startswith("setting.")
    }


def _plausible(name: str, value: object) -> str:
    """The value, or one of its form where only the deployment knows it."""
    if isinstance(value, str) and not value.startswith("["):
        return value
    return "https://account.documents.azure.com:443/" if name.endswith("accountEndpoint") else "known-once-deployed"


def _shown(fact: Fact | None) -> str:
    if fact is None:
        return "absent"
    return fact.value if isinstance(fact.value, str) and not fact.value.startswith("[") else "(known once deployed)"
