"""HTTP triggers: routes, methods, keys, requests and responses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
import yarl

from tests.host.conftest import Bench, MakeBench

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def url(b: Bench, path: str) -> str:
    return f"http://127.0.0.1:{b.host.http_port}{path}"


async def test_request_and_response_cross_as_they_are(bench: MakeBench, client: aiohttp.ClientSession) -> None:
    b = await bench("web")
    async with client.post(
        url(b, "/api/echo?a=1&a=2&b=&c=%C3%A9"), data=b"\x00\xff", headers={"X-Thing": "v", "traceparent": PARENT}
    ) as answer:
        assert answer.status == 201
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["X-One"] == "1"
        assert answer.headers.getall("Set-Cookie") == ["a=1; Path=/", "b=2; HttpOnly"]
        told = json.loads(await answer.text())
    assert (told["method"], told["body"], told["trace"]) == ("POST", "00ff", PARENT)
    assert told["params"] == {"a": "1,2", "c": "é"}  # the host drops empty values, joins several
    assert told["headers"]["x-thing"] == "v"
    assert told["url"] == url(b, "/api/echo?a=1&a=2&b=&c=%C3%A9")
    (ended,) = b.ended("echo")
    assert (ended.outcome, ended.queue) == ("completed", None)


@pytest.mark.parametrize("encoding", ["gzip", "br", "nonsense"])
async def test_a_body_is_not_unpacked_by_the_host(
    bench: MakeBench, client: aiohttp.ClientSession, encoding: str
) -> None:
    """Kestrel leaves a request's Content-Encoding to the function; so a broken one is the function's to refuse."""
    b = await bench("web")
    headers = {"Content-Encoding": encoding}
    async with client.post(url(b, "/api/echo"), data=b"none of it", headers=headers) as answer:
        told = json.loads(await answer.text())
    assert (answer.status, bytes.fromhex(told["body"])) == (201, b"none of it")
    assert told["headers"]["content-encoding"] == encoding


async def test_a_catch_all_route_takes_the_rest_of_the_path(bench: MakeBench, client: aiohttp.ClientSession) -> None:
    """The encoded slash stays as it came, as Kestrel leaves it."""
    b = await bench("web")
    for path, value in {
        "ORD-1": "ORD-1",
        "a/b/c": "a/b/c",
        "a%20b": "a b",
        "a%2Fb": "a%2Fb",
        "%C3%A9": "é",
        "a%252Fb": "a%2Fb",
    }.items():
        target = yarl.URL(url(b, f"/api/orders/{path}"), encoded=True)
        async with client.get(target, headers={"x-functions-key": b.host.keys.function}) as answer:
            assert (answer.status, await answer.text()) == (200, value)


async def test_keys_open_what_their_level_allows(bench: MakeBench, client: aiohttp.ClientSession) -> None:
    b = await bench("web")
    function, master = b.host.keys.function, b.host.keys.master

    async def status(path: str, key: str | None = None) -> int:
        headers = {} if key is None else {"x-functions-key": key}
        async with client.get(url(b, path), headers=headers) as answer:
            return answer.status

    assert await status("/api/orders/1") == 401
    assert await status("/api/orders/1", "wrong") == 401
    assert await status("/api/orders/1", function) == 200
    assert await status(f"/api/orders/1?code={function}") == 200
    assert await status("/api/orders/1", master) == 200
    assert await status("/api/admin-only", function) == 401
    assert await status("/api/admin-only", master) == 204
    assert await status("/api/items/1") == 200
    other = await bench("web")
    assert other.host.keys.function != function


async def test_routes_and_methods_that_nobody_has_are_404(bench: MakeBench, client: aiohttp.ClientSession) -> None:
    b = await bench("web")
    for method, path in (("GET", "/api/echo"), ("GET", "/api/none"), ("GET", "/echo"), ("POST", "/"), ("GET", "/api")):
        async with client.request(method, url(b, path)) as answer:
            assert answer.status == 404, (method, path)


async def test_literals_win_over_parameters_in_any_case_and_parameters_may_be_optional(
    bench: MakeBench, client: aiohttp.ClientSession
) -> None:
    b = await bench("web")

    async def text(path: str) -> str:
        async with client.get(url(b, path)) as answer:
            assert answer.status == 200
            return await answer.text()

    assert await text("/api/orders/special") == "special"
    assert await text("/API/Orders/SPECIAL") == "special"
    assert json.loads(await text("/api/items/tea")) == {"item": "tea"}
    assert json.loads(await text("/api/items/tea/big/")) == {"item": "tea", "size": "big"}
    async with client.delete(url(b, "/api/unrouted")) as answer:
        assert await answer.read() == b"\x00\xff"
        assert answer.headers["content-type"] == "application/octet-stream"


async def test_a_failure_is_500_without_details(bench: MakeBench, client: aiohttp.ClientSession) -> None:
    b = await bench("web")
    for path, error in (("/api/fails", "RuntimeError: no luck"), ("/api/nothing", "returned NoneType")):
        async with client.get(url(b, path)) as answer:
            assert (answer.status, await answer.text()) == (500, "")
        ended = b.ended(path.removeprefix("/api/"))[0]
        assert ended.outcome == "failed"
        assert error in str(ended.error)


async def test_a_body_over_the_limit_is_413(bench: MakeBench, client: aiohttp.ClientSession) -> None:
    b = await bench("web", settings={"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "100"})
    for body, status in ((b"x" * 100, 201), (b"x" * 101, 413)):
        async with client.post(url(b, "/api/echo"), data=body) as answer:
            assert answer.status == status

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 10

    async with client.post(url(b, "/api/echo"), data=chunks()) as answer:
        assert answer.status == 413


async def test_the_prefix_is_host_json_s(bench: MakeBench, client: aiohttp.ClientSession) -> None:
    host_json = {"extensions": {"serviceBus": {}, "http": {"routePrefix": ""}}}
    b = await bench("web", host_json=host_json)
    async with client.get(url(b, "/orders/special")) as answer:
        assert answer.status == 200


async def test_a_function_that_is_switched_off_has_no_route(bench: MakeBench, client: aiohttp.ClientSession) -> None:
    b = await bench("web")
    b.host.set_disabled("unrouted", True)
    async with client.get(url(b, "/api/unrouted")) as answer:
        assert answer.status == 404
    b.host.set_disabled("unrouted", False)
    async with client.get(url(b, "/api/unrouted")) as answer:
        assert answer.status == 200


async def test_a_worker_that_is_killed_answers_its_requests_with_500_and_the_next_worker_serves(
    bench: MakeBench, client: aiohttp.ClientSession
) -> None:
    b = await bench("web")
    b.host.kill_worker()
    async with client.get(url(b, "/api/unrouted")) as answer:
        assert answer.status == 200
    assert len(b.starts) == 2
