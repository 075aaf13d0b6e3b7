"""The control endpoint: pause and resume, and who may (contracts 11)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from local.host.control import ControlServer, is_loopback
from local.host.host import FunctionsHost
from tests.host.conftest import Bench, MakeBench

TOKEN = "the-token"


class Control:
    """A control endpoint with a client."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self.host: FunctionsHost | None = None
        self.server = ControlServer(TOKEN, lambda: self.host)
        self._client = client

    async def call(
        self, method: str, path: str, body: object = None, *, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        url = f"http://127.0.0.1:{self.server.port}{path}"
        async with self._client.request(method, url, json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None) if answer.status != 405 else None


@pytest.fixture
async def control() -> AsyncIterator[Control]:
    async with aiohttp.ClientSession() as client:
        result = Control(client)
        await result.server.start(0)
        yield result
        await result.server.stop()


async def test_a_function_is_paused_and_resumed(control: Control, bench: MakeBench) -> None:
    b: Bench = await bench()
    control.host = b.host
    assert await control.call("GET", "/control/stack") == (200, {"status": "running", "functions": {"work": True}})
    assert (await control.call("POST", "/control/functions/work", {"disabled": True}))[0] == 200
    b.send("ok")
    assert await control.call("GET", "/control/stack") == (200, {"status": "running", "functions": {"work": False}})
    assert not b.told("start")
    assert await control.call("POST", "/control/functions/work", {"disabled": False}) == (
        200,
        {"function": "work", "disabled": False},
    )
    await b.until(lambda: bool(b.ended()))


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", "ü"])
async def test_a_missing_or_wrong_token_is_401(control: Control, token: str | None) -> None:
    token = token if token is None or token.isascii() else None
    assert (await control.call("GET", "/control/stack", token=token))[0] == 401
    assert (await control.call("GET", "/none", token=token))[0] == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "evil.example:7073", ""])
async def test_a_foreign_host_header_is_refused(control: Control, host: str) -> None:
    """DNS rebinding: the page's own name resolves to loopback."""
    status, answer = await control.call("GET", "/control/stack", Host=host)
    assert status == 403
    assert "Host" in answer["error"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", "https://127.0.0.1"])
async def test_a_foreign_origin_is_refused(control: Control, origin: str) -> None:
    assert (await control.call("POST", "/control/functions/work", {"disabled": True}, Origin=origin))[0] == 403


async def test_the_endpoint_s_own_page_may_call_it(control: Control) -> None:
    for name in ("127.0.0.1", "localhost"):
        origin = f"http://{name}:{control.server.port}"
        assert (await control.call("GET", "/control/stack", Origin=origin, Host=origin[7:]))[0] == 200


async def test_a_wrong_body_is_400(control: Control, bench: MakeBench) -> None:
    control.host = (await bench()).host
    for body in (None, [], {}, {"disabled": 1}, {"disabled": "true"}, "x"):
        assert (await control.call("POST", "/control/functions/work", body))[0] == 400, body


async def test_unknown_functions_and_a_stack_without_the_app_are_404(control: Control, bench: MakeBench) -> None:
    assert (await control.call("POST", "/control/functions/work", {"disabled": True}))[0] == 404
    control.host = (await bench()).host
    status, answer = await control.call("POST", "/control/functions/none", {"disabled": True})
    assert (status, answer) == (404, {"error": "there is no function none; the app has work"})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("//127.0.0.1:1", True),
        ("//[::1]:1", True),
        ("//LOCALHOST", True),
        ("//127.0.0.1:x", False),
        ("//127.0.0.1:1@evil", False),
        ("//evil", False),
        ("//", False),
        ("//[::1", False),
    ],
)
def test_what_names_loopback(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected
