"""What happens before a handler has the message: wrong settings wait, and nothing but an Exception leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared import bootstrap
from shared.envelope import Envelope, HttpAnswer, Role
from shared.errors import ConfigurationError, InFlightError
from tests.unit.handlers.handler_bench import ENV

ROOT = Path(__file__).resolve().parents[2]
SECRET = "InstrumentationKey=secret"


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    bootstrap.services.cache_clear()
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    yield
    bootstrap.services.cache_clear()


def never_read() -> Envelope:
    raise AssertionError("nothing may be read before the settings are right")


async def waited(coroutine: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[BaseException, list[float]]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(bootstrap.asyncio, "sleep", sleep)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - looked at by the caller
        await coroutine
    return caught.value, waits


async def test_a_wrong_setting_holds_the_message_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # R69 D31
    monkeypatch.setenv("REPLAY_MAX", "many")
    error, waits = await waited(bootstrap.handle(Role.ORDERS, never_read), monkeypatch)
    assert isinstance(error, ConfigurationError)
    assert waits == [bootstrap.MISCONFIGURED_SECONDS]
    assert "REPLAY_MAX" in vars(caplog.records[-1])["description"]


async def test_an_exporter_that_refuses_its_setting_holds_the_message_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A setting of telemetry must not empty the queues into the dead letters; and its text is a secret."""
    monkeypatch.setenv("TELEMETRY_EXPORTER", "azuremonitor")
    monkeypatch.setenv("APPLICATIONINSIGHTS_CONNECTION_STRING", SECRET)
    error, waits = await waited(bootstrap.handle(Role.ORDERS, never_read), monkeypatch)
    assert isinstance(error, Exception)
    assert waits == [bootstrap.MISCONFIGURED_SECONDS]
    line = caplog.records[-1]
    assert (line.message, vars(line)["description"]) == ("configuration", type(error).__name__)
    assert SECRET not in caplog.text


async def test_a_delivery_that_can_not_be_read_holds_the_message_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> Envelope:
        raise AttributeError("a host that hands over something else")

    error, waits = await waited(bootstrap.handle(Role.ORDERS, read), monkeypatch)
    assert isinstance(error, AttributeError)
    assert waits == [bootstrap.MISCONFIGURED_SECONDS]


async def test_a_cancelled_wait_leaves_as_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """R51: a BaseException out of a trigger is never answered by the worker."""
    monkeypatch.setenv("REPLAY_MAX", "many")
    task = asyncio.ensure_future(bootstrap.handle(Role.ORDERS, never_read))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ConfigurationError):
        await task


async def test_a_request_with_wrong_settings_is_answered_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAY_MAX", "")

    async def call(_: bootstrap.Services) -> HttpAnswer:
        raise AssertionError("there is nobody to ask")

    answer = await bootstrap.answer(call)
    assert (answer.status, json.loads(answer.body)["missing"]) == (503, ["REPLAY_MAX"])


async def test_a_cancelled_request_leaves_as_an_exception() -> None:
    async def call(_: bootstrap.Services) -> HttpAnswer:
        raise asyncio.CancelledError

    with pytest.raises(InFlightError):
        await bootstrap.answer(call)
