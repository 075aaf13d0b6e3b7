"""Triggers, settings and connections: what is refused is refused by name (R52, R60, R69)."""

from __future__ import annotations

from typing import Any

import pytest

from local.host.bindings import HttpFunction, ServiceBusFunction, Settings, TimerFunction, read_functions
from local.host.errors import HostError

FLAT = {"Bus": "Endpoint=sb://localhost:5672;SharedAccessKeyName=k;SharedAccessKey=v", "Q": "orders-1"}


def service_bus(settings: dict[str, str] | None = None, *, retry: bool = False, takes_list: bool = False, **keys: Any):  # type: ignore[no-untyped-def]
    trigger = {"type": "serviceBusTrigger", "name": "message", "queueName": "%Q%", "connection": "Bus", **keys}
    description = {"name": "f", "bindings": [trigger], "retry": retry, "takesList": takes_list}
    return read_functions([description], Settings(FLAT if settings is None else settings))[0]


def test_a_queue_trigger_is_read() -> None:
    assert service_bus(isSessionsEnabled=True, dataType="BINARY", autoCompleteMessages=False) == ServiceBusFunction(
        "f", "orders-1", has_sessions=True, is_binary=True, auto_complete=False, namespace="localhost"
    )
    assert service_bus(queueName="x-%q%-y").queue == "x-orders-1-y"  # names of settings in any case


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"cardinality": "MANY"}, "function f: cardinality MANY"),
        ({"topicName": "t"}, "function f: Service Bus topics"),
        ({"dataType": "STREAM"}, "function f: data type STREAM"),
        ({"queueName": "%NONE%"}, "function f: setting 'NONE'"),
        ({"connection": "Other"}, "function f: connection 'Other': neither Other nor Other__fullyQualifiedNamespace"),
        ({"connection": None}, "AzureWebJobsServiceBus"),
        ({"retry": True}, "function f: retry policies"),
        ({"takes_list": True}, "parameter message is a list, but its cardinality is ONE"),
    ],
)
def test_what_the_host_does_not_do_is_refused_by_function(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(HostError) as caught:
        service_bus(**keys)
    assert reason in str(caught.value)


PART = "Bus__fullyQualifiedNamespace"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({PART: "Endpoint=sb://ns.servicebus.windows.net/"}, PART),
        ({PART: "sb://ns.servicebus.windows.net"}, PART),
        ({PART: "ns.servicebus.windows.net/"}, PART),
        ({PART: "ns.servicebus.windows.net:5671"}, PART),
        ({"Bus": "ns.servicebus.windows.net"}, "setting Bus is no connection string"),
        ({"Bus": FLAT["Bus"], PART: "ns"}, f"both Bus and {PART}"),
        ({"Bus": ""}, "neither Bus nor"),
    ],
)
def test_a_wrong_connection_is_named(settings: dict[str, str], named: str) -> None:
    """R69."""
    with pytest.raises(HostError) as caught:
        service_bus({"Q": "q", **settings})
    assert named in str(caught.value)


def test_a_connection_may_be_a_host_name() -> None:
    assert service_bus({"Q": "q", PART: "ns.servicebus.windows.net"}).namespace == "ns.servicebus.windows.net"


@pytest.mark.parametrize(
    ("bindings", "reason"),
    [
        ([{"type": "blobTrigger", "name": "b"}], "function f: triggers of type blobTrigger aren't supported"),
        ([{"type": "cosmosDBTrigger", "name": "b"}], "cosmosDBTrigger"),
        (
            [{"type": "timerTrigger", "name": "t", "schedule": "* * * * * *"}, {"type": "serviceBus", "name": "out"}],
            "function f: binding 'out' of type serviceBus isn't supported",
        ),
        ([{"type": "timerTrigger", "name": "t", "schedule": "1 2"}], "function f: schedule '1 2': has 2 fields"),
        ([{"type": "httpTrigger", "name": "r", "route": "a/{b:int}"}], "function f: route 'a/{b:int}'"),
        ([{"type": "httpTrigger", "name": "r", "authLevel": "system"}], "auth level system"),
    ],
)
def test_other_bindings_are_refused_by_name(bindings: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(HostError) as caught:
        read_functions([{"name": "f", "bindings": bindings}], Settings({}))
    assert reason in str(caught.value)


def test_timers_and_http_are_read() -> None:
    timer, http = read_functions(
        [
            {"name": "t", "bindings": [{"type": "timerTrigger", "name": "t", "schedule": "%S%", "runOnStartup": True}]},
            {"name": "h", "bindings": [{"type": "httpTrigger", "name": "r"}, {"type": "http", "name": "$return"}]},
        ],
        Settings({"S": "0 * * * * *"}),
    )
    assert isinstance(timer, TimerFunction)
    assert timer.run_on_startup
    assert isinstance(http, HttpFunction)
    assert (http.route.template, http.methods, http.auth_level) == ("h", frozenset(), "function")


@pytest.mark.parametrize(
    ("value", "disabled"), [("true", True), ("True", True), ("1", True), ("false", False), ("", False)]
)
def test_the_disabled_setting(value: str, disabled: bool) -> None:
    assert Settings({"azurewebjobs.F.disabled": value}).is_disabled("f") is disabled
    assert not Settings({}).is_disabled("f")
