"""HTTP triggers: routes, keys, and requests and responses as they cross the channel."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from aiohttp import web

from local.host.bindings import HttpFunction
from local.host.http_log import SERVER_LOG
from local.host.metadata import trace_context
from local.host.pool import Emit, Result, elapsed_since
from local.host.routes import decode_path
from local.host.settlement import Ending
from local.host.timers import ended

BODY_LIMIT_BYTES: Final = 104_857_600  # FUNCTIONS_REQUEST_BODY_SIZE_LIMIT's default

Invoke = Callable[[dict[str, object], bytes], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Keys:
    """The host's keys: one opens functions, the other everything."""

    function: str
    master: str

    def for_level(self, auth_level: str) -> str:
        """The least key that opens a level."""
        return self.master if auth_level == "admin" else self.function

    def open(self, auth_level: str, given: str) -> bool:
        """Whether the given key satisfies a function's level."""
        wanted = {"anonymous": (), "function": (self.function, self.master), "admin": (self.master,)}[auth_level]
        return auth_level == "anonymous" or any(hmac.compare_digest(given.encode(), key.encode()) for key in wanted)


class HttpFront:
    """Serves the HTTP functions of whatever app is loaded."""

    def __init__(self, keys: Keys, invoke: Invoke, emit: Emit, *, body_limit: int = BODY_LIMIT_BYTES) -> None:
        self._keys = keys
        self._invoke = invoke
        self._emit = emit
        self._body_limit = body_limit
        self._prefix = "api"
        self._functions: Sequence[HttpFunction] = ()
        self._disabled: set[str] = set()
        self._is_broken = False
        self._serving = asyncio.Event()  # closed while the app is loaded anew: requests wait
        self._in_hand: set[asyncio.Task[Any]] = set()
        self._runner: web.ServerRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; OSError when the port is taken."""
        server = web.Server(self._handle, logger=SERVER_LOG, auto_decompress=False)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def serve(self, functions: Sequence[HttpFunction] | None, prefix: str) -> None:
        """Serve these functions from now on, literal routes before those with parameters. None: the app is broken."""
        self._is_broken = functions is None
        self._functions = sorted(functions or (), key=lambda function: function.route.rank)
        self._prefix = prefix
        self._serving.set()

    def hold(self) -> None:
        """Let new requests wait."""
        self._serving.clear()

    def set_disabled(self, function: str, *, disabled: bool) -> None:
        """A disabled function has no route."""
        (self._disabled.add if disabled else self._disabled.discard)(function)

    async def drain(self, seconds: float) -> None:
        """Wait for the requests in hand, for so long."""
        if self._in_hand:
            await asyncio.wait(self._in_hand, timeout=seconds)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._serving.wait()
        if self._is_broken:
            return web.Response(status=503, text="The function app can't be loaded; the host's log says why.")
        path = decode_path(request.path_qs.partition("?")[0])
        found = self._find(path, request.method)
        if found is None:
            return web.Response(status=404)
        function, parameters = found
        given = request.headers.get("x-functions-key") or request.query.get("code") or ""
        if not self._keys.open(function.auth_level, given):
            return web.Response(status=401)
        try:
            body = await _read_body(request, self._body_limit)
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # aiohttp runs handlers in tasks
        self._in_hand.add(task)
        start = time.monotonic()
        try:
            result = await self._invoke(_header(function, request, parameters), body)
        finally:
            self._in_hand.discard(task)
        response = _response(result)
        self._emit(replace(ended(function.name, result, elapsed_since(start)), status=response.status))
        return response

    def _find(self, path: str, method: str) -> tuple[HttpFunction, Mapping[str, str]] | None:
        rest = _behind_prefix(path, self._prefix)
        if rest is None:
            return None
        for function in self._functions:
            if function.name in self._disabled or (function.methods and method.upper() not in function.methods):
                continue
            if (parameters := function.route.match(rest)) is not None:
                return function, parameters
        return None


def _behind_prefix(path: str, prefix: str) -> str | None:
    if not prefix:
        return path
    head = f"/{prefix}/"
    return path[len(head) - 1 :] if path.lower().startswith(head.lower()) else None


async def _read_body(request: web.BaseRequest, limit: int) -> bytes:
    """The whole body; one that is too large is refused before it is read where its length is announced."""
    if (request.content_length or 0) > limit:
        raise web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=request.content_length or 0)
    body = bytearray()
    async for chunk in request.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > limit:
            raise web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=len(body))
    return bytes(body)


def _header(function: HttpFunction, request: web.BaseRequest, parameters: Mapping[str, str]) -> dict[str, object]:
    def joined(pairs: Any) -> dict[str, str]:
        result: dict[str, str] = {}
        for name, value in pairs:
            result[name] = f"{result[name]},{value}" if name in result else value
        return result

    headers = joined((name.lower(), value) for name, value in request.headers.items())
    return {
        "function": function.name,
        "kind": "http",
        "http": {
            "method": request.method,
            "url": f"http://{request.host}{request.path_qs}",
            "headers": headers,
            "query": {name: value for name, value in joined(request.query.items()).items() if value},
            "params": dict(parameters),
        },
        "trace": trace_context(headers),
    }


def _response(result: Result) -> web.Response:
    if result.ending is not Ending.SUCCEEDED or result.http is None:
        return web.Response(status=500)
    response = web.Response(status=result.http["status"], body=result.body)
    response.headers.popall("Content-Type", None)
    for name, value in result.http["headers"]:
        if name.lower() not in ("content-length", "transfer-encoding", "connection"):
            response.headers[name] = value
    for cookie in result.http["cookies"]:
        response.headers.add("Set-Cookie", cookie)
    return response
