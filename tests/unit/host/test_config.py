"""host.json and local.settings.json: defaults, .NET's time spans, and refusals that name file and key (R70)."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.config import HostConfig, ServiceBusConfig, read_host_config, read_local_settings, time_span
from local.config_errors import ConfigError


def host_json(folder: Path, content: object) -> Path:
    path = folder / "host.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def service_bus(folder: Path, **values: Any) -> ServiceBusConfig:
    return read_host_config(host_json(folder, {"version": "2.0", "extensions": {"serviceBus": values}})).service_bus


def test_defaults_are_the_platform_s(tmp_path: Path) -> None:
    """functions-platform 4.1."""
    config = read_host_config(host_json(tmp_path, {"version": "2.0"}))
    assert config == HostConfig(1800.0, "api", None, ServiceBusConfig())
    assert config.service_bus.max_concurrent_sessions == 8
    assert config.service_bus.session_idle_seconds == 60.0
    assert config.service_bus.max_auto_lock_renewal_seconds == 300.0
    assert config.service_bus.auto_complete_messages
    assert config.service_bus.prefetch_count == 0
    assert config.service_bus.max_concurrent_calls == 16 * (os.cpu_count() or 1)


def test_values_are_read(tmp_path: Path) -> None:
    config = service_bus(
        tmp_path,
        prefetchCount=3,
        autoCompleteMessages=False,
        maxConcurrentSessions=16,
        maxConcurrentCallsPerSession=1,
        maxAutoLockRenewalDuration="1.00:00:00",
        sessionIdleTimeout="00:00:01",
    )
    assert config.max_auto_lock_renewal_seconds == 86400
    assert (config.session_idle_seconds, config.max_concurrent_sessions, config.prefetch_count) == (1, 16, 3)
    assert not config.auto_complete_messages


def test_the_idle_time_out_falls_back_on_the_try_time_out(tmp_path: Path) -> None:
    assert service_bus(tmp_path, clientRetryOptions={"tryTimeout": "00:00:07"}).session_idle_seconds == 7


def test_infinite_values(tmp_path: Path) -> None:
    assert (
        service_bus(tmp_path, maxAutoLockRenewalDuration="-00:00:00.0010000").max_auto_lock_renewal_seconds == math.inf
    )
    path = host_json(tmp_path, {"version": "2.0", "functionTimeout": "-1"})
    assert read_host_config(path).function_timeout_seconds == math.inf


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:05:00", 300),
        ("1.00:00:00", 86400),
        ("24:00:00", 24 * 86400),
        ("23:59:59", 86399),
        ("6", 6 * 86400),
        ("00:00:01.5", 1.5),
        ("1:2", 3720),
        ("1:2:3:4", 93784),
        ("-00:00:00.0010000", -0.001),
        ("1.02:03", 93780),
        ("10:30:00:00.25", 0),
        (" 00:00:01 ", 1),
    ],
)
def test_time_spans_are_read_as_net_reads_them(text: str, seconds: float) -> None:
    if not seconds:
        with pytest.raises(ValueError, match="out of range"):
            time_span(text)
    else:
        assert time_span(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "x", "1:60:00", "00:00:60", "1.24:00:00", "5 minutes", "24:00:00.5", "PT5M", "1.5"]
)
def test_what_net_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time span"):
        time_span(text)


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_written_time_span_is_read_back(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}.{hours:02}:{minutes:02}:{seconds:02}"
    assert time_span(text) == days * 86400 + hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({}, "version"),
        ({"version": "1.0"}, "version"),
        ({"version": "2.0", "functionTimout": "00:05:00"}, "functionTimout"),
        ({"version": "2.0", "functiontimeout": "00:05:00"}, "did you mean functionTimeout"),
        ({"version": "2.0", "functionTimeout": "5m"}, "functionTimeout"),
        ({"version": "2.0", "functionTimeout": 300}, "functionTimeout"),
        ({"version": "2.0", "functionTimeout": "00:00:00"}, "functionTimeout"),
        ({"version": "2.0", "extensions": []}, "extensions"),
        ({"version": "2.0", "retry": {}}, "retry"),
        ({"version": "2.0", "functions": ["a", 1]}, "functions"),
        ({"version": "2.0", "concurrency": {"dynamicConcurrencyEnabled": True}}, "dynamicConcurrencyEnabled"),
        ({"version": "2.0", "extensions": {"http": {"routePrefix": 1}}}, "extensions.http.routePrefix"),
        ("[]", "must be an object"),
        ("{", "line 1"),
        ('{"version": "2.0"} // note', "line 1"),
        ('{"version": "2.0", "version": "2.0"}', "stands twice"),
    ],
)
def test_a_wrong_host_json_is_refused_by_file_and_key(tmp_path: Path, content: object, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_host_config(host_json(tmp_path, content))
    assert str(caught.value).startswith("host.json: ")
    assert key in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("maxConcurrentSesions", 1),
        ("prefetchCount", -1),
        ("prefetchCount", "0"),
        ("prefetchCount", True),
        ("maxConcurrentSessions", 0),
        ("maxConcurrentSessions", 1_000_000_000),
        ("maxConcurrentCalls", 10_001),
        ("maxConcurrentCallsPerSession", 2),
        ("autoCompleteMessages", "true"),
        ("maxAutoLockRenewalDuration", "-00:01:00"),
        ("sessionIdleTimeout", "00:00:00"),
        ("sessionIdleTimeout", 1),
        ("minMessageBatchSize", 2000),
        ("maxBatchWaitTime", "x"),
        ("clientRetryOptions", {"tries": 1}),
        ("enableCrossEntityTransactions", 1),
    ],
)
def test_a_wrong_service_bus_key_is_named_with_its_path(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        service_bus(tmp_path, **{key: value})
    assert f"host.json: extensions.serviceBus.{key}" in str(caught.value)


def test_a_missing_host_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"host\.json: there is no such file"):
        read_host_config(tmp_path / "host.json")


def settings(folder: Path, text: str | bytes) -> dict[str, str]:
    path = folder / "local.settings.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_local_settings(path)


def test_local_settings_are_read_and_none_is_no_error(tmp_path: Path) -> None:
    assert settings(tmp_path, '{"IsEncrypted": false, "Values": {"A": "1"}, "Host": {"CORS": "*"}}') == {"A": "1"}
    assert settings(tmp_path, b'\xef\xbb\xbf{"Values": {"A": "1"}}') == {"A": "1"}  # a byte-order mark
    assert settings(tmp_path, "{}") == {}
    assert read_local_settings(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"Values": {"X": {"a": 1}}}', "Values.X: must be a string, not an object"),
        ('{"Values": {"OK": "1", "X": true}}', "Values.X: must be a string, not a boolean"),
        ('{"Values": {"X": 5}}', "Values.X: must be a string, not a number"),
        ('{"Values": {"X": null}}', "Values.X: must be a string, not null"),
        ('{"Values": []}', "Values: must be an object"),
        ('{"IsEncrypted": true, "Values": {"X": "abc"}}', "IsEncrypted"),
        ('{\n// a comment\n"Values": {}}', "line 2"),
        ('{"Values": {"X": "1", "X": "2"}}', "X: stands twice"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_a_wrong_local_settings_file_is_named_by_key(tmp_path: Path, text: str | bytes, named: str) -> None:
    """R70."""
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, text)
    assert str(caught.value).startswith("local.settings.json: ")
    assert named in str(caught.value)
