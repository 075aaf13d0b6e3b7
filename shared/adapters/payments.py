"""Payments over HTTP (docs/contracts.md, section 5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp

from shared.errors import EVENT_CONFIGURATION, TransientError
from shared.ports import Approved, Declined, Refused

REFUSED_STATUSES = frozenset({400, 422})
CONFIGURATION_STATUSES = frozenset({401, 403, 404})


class HttpPayments:
    """A payment provider that knows `Idempotency-Key`."""

    def __init__(self, url: str, timeout_seconds: float, token: Callable[[], Awaitable[str]] | None) -> None:
        self._url = url.rstrip("/") + "/authorizations"
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def authorize(self, key: str, order_id: str, amount: str, currency: str) -> Approved | Declined | Refused:
        """Ask for the authorisation of an amount.

        Raises: TransientError for everything that is no answer of the contract: the outcome is unknown.
        """
        headers = {"Idempotency-Key": key}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {await self._token()}"
        body = {"orderId": order_id, "amount": amount, "currency": currency}
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        try:
            async with self._session.post(self._url, json=body, headers=headers, allow_redirects=False) as response:
                if response.status in REFUSED_STATUSES:
                    return Refused(response.status)
                if response.status not in (200, 201):
                    event = EVENT_CONFIGURATION if response.status in CONFIGURATION_STATUSES else None
                    raise TransientError(f"payments: HTTP {response.status}", event=event)
                answer = await response.json()
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise TransientError(f"payments: no answer ({type(exc).__name__})") from exc
        return _answer(answer)

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
    raise TransientError("payments: an answer that its contract does not know")
