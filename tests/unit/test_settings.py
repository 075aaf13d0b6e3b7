"""Settings: read once, everything that is wrong named in one message (docs/contracts.md, section 11)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shared.bootstrap import health
from shared.envelope import Role
from shared.errors import ConfigurationError
from shared.ports import Container
from shared.settings import Settings

ROOT = Path(__file__).parents[2]
VALUES: dict[str, str] = json.loads((ROOT / "local.settings.json").read_text(encoding="utf-8"))["Values"]
PLATFORM = {"FUNCTIONS_WORKER_RUNTIME", "AzureWebJobsStorage"}
"""Settings of the host; the app reads none of them."""
AZURE_ONLY = {
    "AZURE_CLIENT_ID",
    "APPLICATIONINSIGHTS_CONNECTION_STRING",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
}
OPTIONAL = {"PAYMENTS_URL", "PAYMENTS_SCOPE"}
NUMBERS = [
    "POISON_AFTER_DELIVERIES",
    "TRANSIENT_BUDGET_SECONDS",
    "CLAIM_LEASE_SECONDS",
    "RECORD_TTL_SECONDS",
    "REPLAY_HORIZON_SECONDS",
    "REPLAY_MAX",
    "SWEEP_GRACE_SECONDS",
    "HELD_MAX_PER_STREAM",
    "GAP_ALARM_SECONDS",
    "PAYMENTS_TIMEOUT_SECONDS",
]
CHOICES = ["PAYMENTS_UNKNOWN_OUTCOME", "TELEMETRY_EXPORTER", "LOG_KEYS"]
READ = sorted(set(VALUES) - PLATFORM)

SERVICE_BUS = {
    "ServiceBusConnection__fullyQualifiedNamespace": "ns.servicebus.windows.net",
    "ServiceBusConnection__credential": "managedidentity",
    "ServiceBusConnection__clientId": "id-1",
}
COSMOS = {
    "CosmosConnection__accountEndpoint": "https://account.documents.azure.com:443/",
    "CosmosConnection__credential": "managedidentity",
    "CosmosConnection__clientId": "id-2",
}


def env(**changes: str | None) -> dict[str, str]:
    """The shipped settings with changes; None takes one away."""
    merged: dict[str, str | None] = {**VALUES, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def in_azure(**changes: str | None) -> dict[str, str]:
    """Settings as Bicep sets them: no connection strings."""
    return env(ServiceBusConnection=None, CosmosConnection=None, **{**SERVICE_BUS, **COSMOS, **changes})


def faults(values: Mapping[str, str]) -> tuple[str, ...]:
    """The names that an error gives, and its text holds each of them."""
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_env(values)
    assert all(name in str(caught.value) for name in caught.value.names)
    return caught.value.names


class Recorded(Mapping[str, str]):
    """An environment that notes what is asked for, by name only, as Windows needs it."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name.upper(): value for name, value in values.items()}
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self._values[name.upper()]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("set arithmetic over names fails on Windows, which upper-cases them")

    def __len__(self) -> int:
        return len(self._values)


def test_shipped_settings_are_complete() -> None:
    settings = Settings.from_env(VALUES)
    assert settings.queues == {role: role.value for role in Role}
    assert settings.containers == {container: container.value for container in Container}
    assert settings.database == "convoy"
    assert (settings.transient_budget_seconds, settings.claim_lease_seconds) == (60, 90)
    assert (settings.record_ttl_seconds, settings.replay_horizon_seconds, settings.replay_max) == (
        5_184_000,
        2_592_000,
        5,
    )
    assert (settings.payments_url, settings.payments_scope, settings.payments_unknown_outcome) == (None, None, "retry")
    assert settings.service_bus.connection_string == VALUES["ServiceBusConnection"]
    assert settings.cosmos.connection_string == VALUES["CosmosConnection"]


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("value", [None, ""], ids=["missing", "empty"])
def test_missing_setting_is_named(name: str, value: str | None) -> None:
    assert faults(env(**{name: value})) == (name,)


def test_all_that_is_missing_is_named_at_once() -> None:
    assert set(faults({})) == set(READ)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "sixty", " 60", "1e3", "6_0", "٦٠", "0x10"])
def test_number_that_is_none_is_named(name: str, value: str) -> None:
    assert faults(env(**{name: value})) == (name,)


@pytest.mark.parametrize("name", CHOICES)
def test_word_that_is_no_choice_is_named_with_the_choices(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name}: must be one of ") as caught:
        Settings.from_env(env(**{name: "Plain "}))
    assert caught.value.names == (name,)


@pytest.mark.parametrize("value", ["pay", "ftp://pay", "http://", "https:///x", "https://pay /x", "https://pay?key=1"])
def test_payments_url_that_can_not_be_called_is_named(value: str) -> None:
    assert faults(env(PAYMENTS_URL=value)) == ("PAYMENTS_URL",)


@pytest.mark.parametrize("value", ["http://127.0.0.1:8099", "https://pay.example.com/v1/"])
def test_payments_url_switches_payments_on(value: str) -> None:
    assert Settings.from_env(env(PAYMENTS_URL=value)).payments_url == value


def test_everything_wrong_is_in_one_message() -> None:
    wrong = {"REPLAY_MAX": "many", "LOG_KEYS": "loud", "ORDERS_QUEUE": None, "CosmosConnection": "nonsense"}
    assert set(faults(env(**wrong))) == set(wrong)


def test_values_are_not_in_the_message() -> None:
    """What is wrong may be a secret in the wrong place."""
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_env(
            env(ServiceBusConnection="SharedAccessKey=TOPSECRET", CosmosConnection="AccountKey=TOPSECRET")
        )
    assert "TOPSECRET" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------- connections


def test_addresses_and_identity_take_the_place_of_connection_strings() -> None:
    settings = Settings.from_env(in_azure())
    bus, cosmos = settings.service_bus, settings.cosmos
    assert (bus.connection_string, bus.namespace, bus.credential, bus.client_id) == (
        None,
        "ns.servicebus.windows.net",
        "managedidentity",
        "id-1",
    )
    assert (cosmos.connection_string, cosmos.endpoint, cosmos.credential, cosmos.client_id) == (
        None,
        "https://account.documents.azure.com:443/",
        "managedidentity",
        "id-2",
    )


def test_address_alone_is_for_a_developer_against_azure() -> None:
    values = in_azure(
        ServiceBusConnection__credential=None,
        ServiceBusConnection__clientId=None,
        CosmosConnection__credential=None,
        CosmosConnection__clientId=None,
    )
    assert Settings.from_env(values).service_bus.credential is None


@pytest.mark.parametrize("parts", [SERVICE_BUS, COSMOS], ids=["ServiceBusConnection", "CosmosConnection"])
def test_both_forms_of_a_connection_are_refused_naming_both(parts: dict[str, str]) -> None:
    """R69: which one the host would take is nobody's to guess."""
    for name, value in parts.items():
        assert faults(env(**{name: value})) == (name.partition("__")[0], name)


@pytest.mark.parametrize(
    "value",
    [
        "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b",
        "Endpoint=sb://ns.servicebus.windows.net",
        "sb://ns.servicebus.windows.net",
        "https://ns.servicebus.windows.net",
        "ns.servicebus.windows.net/",
        "ns.servicebus.windows.net:5671",
        "ns.servicebus.windows.net ",
        "-ns.servicebus.windows.net",
    ],
)
def test_namespace_is_a_host_name_alone(value: str) -> None:
    """R69: a scheme, a port, a slash or a whole connection string is refused by name."""
    assert faults(in_azure(ServiceBusConnection__fullyQualifiedNamespace=value)) == (
        "ServiceBusConnection__fullyQualifiedNamespace",
    )


@pytest.mark.parametrize("prefix", ["ServiceBusConnection", "CosmosConnection"])
def test_credential_is_the_managed_identity_or_none(prefix: str) -> None:
    assert faults(in_azure(**{f"{prefix}__credential": "ManagedIdentity"})) == (f"{prefix}__credential",)


def test_account_endpoint_is_https() -> None:
    assert faults(in_azure(CosmosConnection__accountEndpoint="account.documents.azure.com")) == (
        "CosmosConnection__accountEndpoint",
    )


@pytest.mark.parametrize(
    "value", ["AccountEndpoint=https://a/", "AccountKey=x", "https://a/", "Endpoint=sb://x;SharedAccessKey=y"]
)
def test_database_connection_string_has_endpoint_and_key(value: str) -> None:
    assert faults(env(CosmosConnection=value)) == ("CosmosConnection",)


@pytest.mark.parametrize(
    "value", ["sb://localhost", "ns.servicebus.windows.net", "AccountEndpoint=https://a/;AccountKey=x"]
)
def test_broker_connection_string_begins_as_one(value: str) -> None:
    assert faults(env(ServiceBusConnection=value)) == ("ServiceBusConnection",)


def test_neither_form_of_a_connection_is_named_with_both() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_env(env(CosmosConnection=None))
    assert "CosmosConnection: missing (or CosmosConnection__accountEndpoint)" in str(caught.value)


# ------------------------------------------------------------------------------------------------------ inequalities


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"CLAIM_LEASE_SECONDS": "89"}, "CLAIM_LEASE_SECONDS"),
        ({"PAYMENTS_TIMEOUT_SECONDS": "11"}, "CLAIM_LEASE_SECONDS"),
        ({"TRANSIENT_BUDGET_SECONDS": "61"}, "CLAIM_LEASE_SECONDS"),
        ({"SWEEP_GRACE_SECONDS": "60"}, "SWEEP_GRACE_SECONDS"),
        ({"HELD_MAX_PER_STREAM": "98"}, "HELD_MAX_PER_STREAM"),
        ({"RECORD_TTL_SECONDS": str(2_592_000 + 86_399)}, "RECORD_TTL_SECONDS"),
    ],
    ids=str,
)
def test_inequality_that_does_not_hold_is_named(changes: dict[str, str], name: str) -> None:
    """C22 D23 D33: the bounds that the protocol rests on."""
    assert faults(env(**changes)) == (name,)


def test_inequalities_hold_at_their_borders() -> None:
    values = env(
        CLAIM_LEASE_SECONDS="90",
        SWEEP_GRACE_SECONDS="61",
        HELD_MAX_PER_STREAM="97",
        RECORD_TTL_SECONDS=str(2_592_000 + 86_400),
    )
    assert Settings.from_env(values).held_max_per_stream == 97


# ----------------------------------------------------------------------------------------------- one list of names


@pytest.mark.parametrize("values", [env(), in_azure()], ids=["connection strings", "addresses"])
def test_names_are_read_one_by_one_in_any_case(values: dict[str, str]) -> None:
    """Windows upper-cases the names in os.environ."""
    assert Settings.from_env(Recorded(values)) == Settings.from_env(values)


def test_names_in_code_file_and_contracts_are_the_same() -> None:
    """Adding a setting changes all of them."""
    recorded = Recorded(env())
    Settings.from_env(recorded)
    flat = {name for name in recorded.asked if "__" not in name}
    assert flat - OPTIONAL == set(READ)
    assert flat >= OPTIONAL
    assert flat | PLATFORM | AZURE_ONLY == documented()


def documented() -> set[str]:
    """The names in the table of docs/contracts.md, section 11; those with a placeholder are the platform's."""
    text = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
    section = re.split(r"(?m)^## ", text)
    (settings,) = [part for part in section if part.startswith("11. ")]
    rows = [line.split("|")[1] for line in settings.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([A-Za-z_]+)`", row)}


def test_shipped_settings_are_texts_of_this_machine() -> None:
    """The file is tracked, so it holds nothing but what opens emulators."""
    whole: dict[str, Any] = json.loads((ROOT / "local.settings.json").read_text(encoding="utf-8"))
    assert whole["IsEncrypted"] is False
    assert all(isinstance(value, str) for value in whole["Values"].values())
    assert "localhost" in VALUES["ServiceBusConnection"]
    assert "UseDevelopmentEmulator=true" in VALUES["ServiceBusConnection"]
    assert "localhost" in VALUES["CosmosConnection"]


# ------------------------------------------------------------------------------------------------------------ health


def test_health_names_what_is_wrong_and_no_value() -> None:
    answer = health(env(REPLAY_MAX="many", ORDERS_QUEUE=None), ("process_order",))
    assert answer.status == 503
    body = json.loads(answer.body)
    assert body["status"] == "misconfigured"
    assert set(body["missing"]) == {"REPLAY_MAX", "ORDERS_QUEUE"}
    assert b"many" not in answer.body


def test_health_is_well_with_the_shipped_settings() -> None:
    answer = health(env(), ("process_order",))
    assert answer.status == 200
    assert json.loads(answer.body)["functions"] == ["process_order"]
