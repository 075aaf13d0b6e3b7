"""Faults over HTTP, at run time. Who may ask is the control endpoint's business.

    GET    /control/faults                  the rules that are armed, with what they have seen and hit
    POST   /control/faults                  arm a rule, or {"rules": [...]}: all or none
    DELETE /control/faults                  disarm all
    DELETE /control/faults/NAME             disarm one
    POST   /control/faults/NAME/release     let go on what a rule has stalled
    GET    /control/history                 operations, by after=N, limit=N, service=, operation=, entity=, group=, id=, rule=
"""  # noqa: E501 - a table

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from local.config_errors import ConfigError
from local.faults.actions import Service
from local.faults.engine import Armed, Faults
from local.faults.reading import Plan, armed_as_json, entry_as_json, plan_of, rule_of
from local.json_file import Json

_BODY: Final = "body"  # what errors call it, where a file would have its name
_MOST_DIGITS: Final = 16
_QUERY: Final = frozenset({"after", "limit", "service", "operation", "entity", "group", "id", "rule"})


class FaultControl:
    """The routes of the control endpoint that are about faults."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def add_to(self, app: web.Application) -> None:
        """Serve the routes."""
        app.router.add_get("/control/faults", self._list)
        app.router.add_post("/control/faults", self._arm)
        app.router.add_delete("/control/faults", self._disarm_all)
        app.router.add_delete("/control/faults/{name}", self._disarm)
        app.router.add_post("/control/faults/{name}/release", self._release)
        app.router.add_get("/control/history", self._history)

    async def _list(self, _: web.Request) -> web.Response:
        out = [service.value for service in Service if self._faults.is_out(service)]
        rules = [armed_as_json(armed) for armed in self._faults.armed]
        return web.json_response({"seed": self._faults.seed, "rules": rules, "out": out})

    async def _arm(self, request: web.Request) -> web.Response:
        try:
            content: Json = json.loads(await request.text())
            armed = _plan(content).arm(self._faults)
        except (ValueError, RecursionError) as exc:
            return _refused(400, f"{_BODY}: is not JSON: {exc}")
        except ConfigError as exc:
            return web.json_response({"error": str(exc), "key": exc.key, "reason": exc.reason}, status=400)
        return web.json_response({"rules": [armed_as_json(each) for each in armed]}, status=201)

    async def _disarm_all(self, _: web.Request) -> web.Response:
        ended = [armed_as_json(armed) for armed in self._faults.armed]
        self._faults.clear()
        return web.json_response({"rules": ended})

    async def _disarm(self, request: web.Request) -> web.Response:
        armed = self._named(request)
        if armed is None:
            return _unknown(request)
        ended = armed_as_json(armed)
        armed.disarm()
        return web.json_response(ended)

    async def _release(self, request: web.Request) -> web.Response:
        armed = self._named(request)
        return _unknown(request) if armed is None else web.json_response({"released": armed.release()})

    async def _history(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        for name in query:
            if name not in _QUERY:
                return _refused(400, f"{name}: unknown; there are {', '.join(sorted(_QUERY))}")
        numbers = {name: query.pop(name, default) for name, default in (("after", "0"), ("limit", "1000"))}
        for name, text in numbers.items():
            if not (text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS):
                return _refused(400, f"{name}: must be a whole number, not {text!r}")
        service = query.pop("service", None)
        if service is not None and service not in {each.value for each in Service}:
            return _refused(400, f"service: must be one of {', '.join(each.value for each in Service)}")
        found = self._faults.history(
            after=int(numbers["after"]), service=None if service is None else Service(service), **query
        )
        return web.json_response({"entries": [entry_as_json(each) for each in found[: int(numbers["limit"])]]})

    def _named(self, request: web.Request) -> Armed | None:
        return self._faults.named(request.match_info["name"])


def _plan(content: Json) -> Plan:
    if isinstance(content, Mapping) and "rules" in content:
        if "seed" in content:
            raise ConfigError(_BODY, "seed", "belongs to the start of the stack; a rule may have its own")
        return plan_of(_BODY, content)
    return Plan(_BODY, 0, (rule_of(_BODY, "", content),), at="")


def _unknown(request: web.Request) -> web.Response:
    return _refused(404, f"no rule {request.match_info['name']} is armed")


def _refused(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status)
