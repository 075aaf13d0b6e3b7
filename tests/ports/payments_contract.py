"""What every implementation of the port Payments must do, and a provider to do it with."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from shared.errors import UnknownCommitError
from shared.ports import Approved, Declined, Payments, Refused


class Provider:
    """A payment provider that knows `Idempotency-Key`: a repeated key gets its first answer. Counts calls per key."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.charged: dict[str, Mapping[str, Any]] = {}
        self.headers: list[Mapping[str, str]] = []
        self.status: dict[str, str] = {}  # order id -> "declined"
        self.answers: list[web.Response] = []  # given instead, in turn
        self.url = ""

    async def authorize(self, request: web.Request) -> web.Response:
        key, body = request.headers["Idempotency-Key"], await request.json()
        self.calls[key] += 1
        self.headers.append(dict(request.headers))
        if self.answers:
            return self.answers.pop(0)
        known = self.charged.setdefault(key, body)
        status = self.status.get(known["orderId"], "approved")
        answer = {"authorizationId": f"A-{sorted(self.charged).index(key)}", "status": status}
        return web.json_response(answer, status=201 if self.calls[key] == 1 else 200)


@asynccontextmanager
async def serving(provider: Provider) -> AsyncIterator[Provider]:
    """Serve the provider on a free port."""
    app = web.Application()
    app.router.add_post("/authorizations", provider.authorize)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()


class PaymentsContract:
    """Subclasses give the fixtures `provider` and `payments`, which asks it."""

    async def test_approval_is_an_answer(self, provider: Provider, payments: Payments) -> None:
        assert await payments.authorize("ORD-1", "ORD-1", "19.00", "EUR") == Approved("A-0")
        assert provider.charged == {"ORD-1": {"orderId": "ORD-1", "amount": "19.00", "currency": "EUR"}}

    async def test_key_goes_with_every_call(self, provider: Provider, payments: Payments) -> None:
        """C32 C46: the same key gets the same answer, and one charge."""
        first = await payments.authorize("~x~w6Q", "ä", "1", "EUR")
        assert await payments.authorize("~x~w6Q", "ä", "1", "EUR") == first
        assert (provider.calls, len(provider.charged)) == ({"~x~w6Q": 2}, 1)

    async def test_refusal_by_business_is_an_answer(self, provider: Provider, payments: Payments) -> None:
        provider.status["ORD-1"] = "declined"
        assert await payments.authorize("ORD-1", "ORD-1", "19.00", "EUR") == Declined("A-0")

    @pytest.mark.parametrize("status", [400, 422])
    async def test_refusal_of_the_request_is_an_answer(
        self, provider: Provider, payments: Payments, status: int
    ) -> None:
        provider.answers.append(web.Response(status=status))
        assert await payments.authorize("ORD-1", "ORD-1", "19.00", "EUR") == Refused(status)

    @pytest.mark.parametrize("status", [202, 204, 302, 401, 403, 404, 409, 429, 500, 503])
    async def test_every_other_status_is_unknown_and_not_repeated(
        self, provider: Provider, payments: Payments, status: int
    ) -> None:
        """C45 D45: who calls again is decided above, by the policy."""
        provider.answers.append(web.Response(status=status, headers={"Location": "/authorizations"}))
        with pytest.raises(UnknownCommitError) as caught:
            await payments.authorize("ORD-1", "ORD-1", "19.00", "EUR")
        assert caught.value.event == ("configuration" if status in (401, 403, 404) else None)
        assert provider.calls["ORD-1"] == 1

    @pytest.mark.parametrize(
        "text",
        ["", "no json", "[]", "{}", '{"status":"approved"}', '{"authorizationId":1,"status":"approved"}',
         '{"authorizationId":"A","status":"maybe"}'],
    )  # fmt: skip
    async def test_answer_that_is_none_is_unknown(self, provider: Provider, payments: Payments, text: str) -> None:
        provider.answers.append(web.Response(status=200, text=text, content_type="application/json"))
        with pytest.raises(UnknownCommitError):
            await payments.authorize("ORD-1", "ORD-1", "19.00", "EUR")
        assert provider.calls["ORD-1"] == 1
