"""Payments over HTTP (docs/contracts.md, section 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
from azure.core.exceptions import AzureError, ClientAuthenticationError

from shared.errors import EVENT_CONFIGURATION, TransientError, UnknownCommitError
from shared.ports import Approved, Declined, Refused

REFUSED_STATUSES = frozenset({400, 422})
CONFIGURATION_STATUSES = frozenset({401, 403, 404})


class HttpPayments:
    """A payment provider that knows `Idempotency-Key`."""

    def __init__(self, url: str, timeout_seconds: float, token: Callable[[], Awaitable[str]] | None) -> None:
        self._url = url.rstrip("/") + "/authorizations"
        self._timeout_seconds = timeout_seconds
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def authorize(self, key: str, order_id: str, amount: str, currency: str) -> Approved | Declined | Refused:
        """Ask for the authorisation of an amount.

        Raises: UnknownCommitError for everything that is no answer of the contract; TransientError when there is no
        token to call with.
        """
        headers = {"Idempotency-Key": key}
        body = {"orderId": order_id, "amount": amount, "currency": currency}
        is_called = False
        try:
            async with asyncio.timeout(self._timeout_seconds):  # as a whole, the token included
                if self._token is not None:
                    headers["Authorization"] = f"Bearer {await self._token()}"
                is_called = True
                return await self._ask(headers, body)
        except (aiohttp.ClientError, AzureError, OSError, ValueError) as exc:
            if not is_called:
                event = EVENT_CONFIGURATION if isinstance(exc, ClientAuthenticationError) else None
                raise TransientError(f"payments: no token ({type(exc).__name__})", event=event) from exc
            raise UnknownCommitError(f"payments: no answer ({type(exc).__name__})") from exc

    async def _ask(self, headers: Mapping[str, str], body: Mapping[str, str]) -> Approved | Declined | Refused:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        async with self._session.post(self._url, json=body, headers=headers, allow_redirects=False) as response:
            if response.status in REFUSED_STATUSES:
                return Refused(response.status)
            if response.status not in (200, 201):
                event = EVENT_CONFIGURATION if response.status in CONFIGURATION_STATUSES else None
                raise UnknownCommitError(f"payments: HTTP {response.status}", event=event)
            return _answer(await response.json())

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


def _answer(answer: object) -> Approved | Declined:
    if isinstance(answer, dict):
        authorization, status = answer.get("authorizationId"), answer.get("status")
        if isinstance(authorization, str) and status == "approved":
            return Approved(authorization)
        if isinstance(authorization, str) and status == "declined":
            return Declined(authorization)
    raise UnknownCommitError("payments: an answer that its contract does not know")
