"""The control endpoint: switches functions off and on, and arms faults, while the stack runs.

Any page in the developer's browser can reach loopback, so a request needs the stack's token, a Host header that names
loopback (against DNS rebinding), and no foreign Origin.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from local.faults.control import FaultControl
from local.faults.engine import Faults
from local.host.errors import HostError
from local.host.host import FunctionsHost
from local.host.http_log import SERVER_LOG

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_BODY_LIMIT_BYTES: Final = 64 * 1024


class ControlServer:
    """Answers `GET /control/stack` and `POST /control/functions/<function>` with `Authorization: Bearer <token>`.

    With `faults` it has their routes too.
    """

    def __init__(self, token: str, host: Callable[[], FunctionsHost | None], faults: Faults | None = None) -> None:
        self._token = token
        self._faults = None if faults is None else FaultControl(faults)
        self._host = host
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, port: int) -> None:
        """Listen on loopback; OSError when the port is taken."""
        app = web.Application(middlewares=[self._guard], client_max_size=_BODY_LIMIT_BYTES)
        app.router.add_get("/control/stack", self._stack)
        app.router.add_post("/control/functions/{function}", self._function)
        if self._faults is not None:
            self._faults.add_to(app)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0, logger=SERVER_LOG)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not is_loopback(f"//{request.headers.get('Host', '')}"):
            return _refused(403, "the Host header must name loopback")
        origin = request.headers.get("Origin")
        if origin is not None and not (is_loopback(origin) and urlsplit(origin).port == self.port):
            return _refused(403, "foreign origins are refused")
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return _refused(401, "the stack's control token is missing or wrong")
        return await handler(request)

    async def _stack(self, _: web.Request) -> web.Response:
        host = self._host()
        functions = {} if host is None else {known.name: known.name not in host.disabled for known in host.functions}
        return web.json_response({"status": "running", "functions": functions})

    async def _function(self, request: web.Request) -> web.Response:
        host, function = self._host(), request.match_info["function"]
        if host is None:
            return _refused(404, "this stack runs without the app")
        try:
            body = json.loads(await request.text())
        except ValueError:
            body = None
        wanted = body.get("disabled") if isinstance(body, Mapping) else None
        if not isinstance(wanted, bool):
            return _refused(400, 'the body must be {"disabled": true} or {"disabled": false}')
        try:
            host.set_disabled(function, wanted)
        except HostError as exc:
            return _refused(404, str(exc))
        return web.json_response({"function": function, "disabled": wanted})


def is_loopback(url: str) -> bool:
    """Whether a URL, or the `//host:port` of a Host header, names this machine's loopback."""
    try:
        parts = urlsplit(url)
        return parts.hostname in _LOOPBACK and parts.port != 0
    except ValueError:
        return False


def _refused(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status)
