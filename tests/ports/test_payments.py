"""Payments: HttpPayments against a provider on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.identity import CredentialUnavailableError

from shared.adapters.payments import HttpPayments
from shared.errors import TransientError, UnknownCommitError
from shared.ports import Approved

from .payments_contract import PaymentsContract, Provider, serving
from .silent import silent


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with serving(Provider()) as made:
        yield made


@pytest.fixture
async def payments(provider: Provider) -> AsyncIterator[HttpPayments]:
    made = HttpPayments(provider.url + "/", 2, None)
    yield made
    await made.close()


class TestHttpPayments(PaymentsContract):
    """The contract."""


async def test_other_content_type_is_no_answer(provider: Provider, payments: HttpPayments) -> None:
    """A login page with status 200 is no approval."""
    provider.answers.append(web.Response(status=200, text="<html>", content_type="text/html"))
    with pytest.raises(UnknownCommitError):
        await payments.authorize("ORD-1", "ORD-1", "1", "EUR")


async def test_provider_that_is_away_is_unknown() -> None:
    payments = HttpPayments("http://127.0.0.1:1", 2, None)
    with pytest.raises(UnknownCommitError):
        await payments.authorize("ORD-1", "ORD-1", "1", "EUR")
    await payments.close()


async def test_connection_that_ends_without_an_answer_is_one_call() -> None:
    """C45: aiohttp repeats no POST."""
    async with silent(hangs_up=True) as nobody:
        payments = HttpPayments(f"http://127.0.0.1:{nobody.port}", 2, None)
        with pytest.raises(UnknownCommitError):
            await payments.authorize("ORD-1", "ORD-1", "1", "EUR")
        assert nobody.connections == 1
        await payments.close()


async def test_call_is_bounded() -> None:
    """PAYMENTS_TIMEOUT_SECONDS holds for the call as a whole."""
    async with silent(hangs_up=False) as nobody:
        payments = HttpPayments(f"http://127.0.0.1:{nobody.port}", 0.2, None)
        start = time.monotonic()
        with pytest.raises(UnknownCommitError):
            await payments.authorize("ORD-1", "ORD-1", "1", "EUR")
        assert time.monotonic() - start < 2
        await payments.close()


async def test_token_goes_with_the_call(provider: Provider) -> None:
    async def token() -> str:
        return "secret"

    payments = HttpPayments(provider.url, 2, token)
    assert await payments.authorize("ORD-1", "ORD-1", "1", "EUR") == Approved("A-0")
    assert provider.headers[0]["Authorization"] == "Bearer secret"
    await payments.close()


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ClientAuthenticationError("who"), "configuration"),
        (CredentialUnavailableError("no identity"), "configuration"),
        (ServiceRequestError("no endpoint"), None),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_missing_token_is_transient_and_calls_nobody(
    provider: Provider, error: Exception, event: str | None
) -> None:
    async def token() -> str:
        raise error

    payments = HttpPayments(provider.url, 2, token)
    with pytest.raises(TransientError) as caught:
        await payments.authorize("ORD-1", "ORD-1", "1", "EUR")
    assert not isinstance(caught.value, UnknownCommitError), "nobody was called"
    assert caught.value.event == event
    assert not provider.calls
    await payments.close()


async def test_token_that_does_not_come_is_bounded_too() -> None:
    """PAYMENTS_TIMEOUT_SECONDS holds for the token as well."""

    async def token() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    payments = HttpPayments("http://127.0.0.1:1", 0.1, token)
    with pytest.raises(TransientError):
        await payments.authorize("ORD-1", "ORD-1", "1", "EUR")
    await payments.close()
