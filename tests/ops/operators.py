"""The operators' command line, pointed at a stack with the app."""

from __future__ import annotations

import asyncio
import io
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from local.stack import Stack
from ops.cli import Services, run
from ops.environment import read_target
from tests.scenarios.harness import PROJECT, App

BECAUSE = ("--yes", "--because", "the cause is repaired")
REPLAY_MAX = 2
HELD_MAX = 3
SETTINGS = {"HELD_MAX_PER_STREAM": str(HELD_MAX)}


@dataclass(frozen=True, slots=True)
class Told:
    """What a command said."""

    code: int
    text: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def results(self) -> list[tuple[str | None, str]]:
        """The MessageIds and what became of them, in the order of the report."""
        return [(each["messageId"], each["result"]) for each in self.json["messages"]]


class Ops:
    """Calls commands as a person would, in this process."""

    def __init__(self, stack: Stack, services: Services) -> None:
        self._stack = stack
        self._services = services

    @classmethod
    @asynccontextmanager
    async def of(cls, stack: Stack) -> AsyncIterator[Ops]:
        """Commands that share their clients: the SDK takes a second for each opening and closing."""
        environment = {
            "ServiceBusConnection": stack.service_bus_connection,
            "CosmosConnection": stack.cosmos_connection,
        }
        async with Services.of(read_target(PROJECT, environment)) as services:
            yield cls(stack, services)

    def environment(self, **settings: str) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME", "SYSTEMROOT") if name in os.environ},
            "ServiceBusConnection": self._stack.service_bus_connection,
            "CosmosConnection": self._stack.cosmos_connection,
            "REPLAY_MAX": str(REPLAY_MAX),
            **SETTINGS,
            **settings,
        }

    async def __call__(self, *arguments: str, settings: Mapping[str, str] | None = None, text: bool = False) -> Told:
        out, err = io.StringIO(), io.StringIO()
        environment = self.environment(**(settings or {}))
        form = () if text else ("--json",)
        code = await run([*arguments, *form], environment, project=PROJECT, services=self._services, out=out, err=err)
        return Told(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True, slots=True)
class Bench:
    """The app, the commands, and a client for what neither does."""

    app: App
    ops: Ops
    bus: ServiceBusClient

    async def replay_each(self, *sessions: str, more: tuple[str, ...] = ()) -> list[Told]:
        """Replay sessions side by side, as several operators would."""
        calls = [self.ops("parked", "replay", "--session", each, "--wait", "20", *more, *BECAUSE) for each in sessions]
        return list(await asyncio.gather(*calls))

    async def dead_letter(self, queue: str, session_id: str, count: int) -> None:
        """Let the broker dead-letter the first messages of a session; the role must be paused."""
        async with self.bus.get_queue_receiver(queue, session_id=session_id) as receiver:
            done = 0
            while done < count:
                for message in await receiver.receive_messages(count - done, max_wait_time=5):
                    await receiver.dead_letter_message(message, reason="Test", error_description="dead-lettered")
                    done += 1

    def pause(self, function: str = "process_order") -> None:
        assert self.app.stack.host is not None
        self.app.stack.host.set_disabled(function, True)

    def resume(self, function: str = "process_order") -> None:
        assert self.app.stack.host is not None
        self.app.stack.host.set_disabled(function, False)

    async def operations(self, session_id: str) -> list[tuple[str, str]]:
        """Type and status of the operations of a session."""
        found = await self.app.documents("operations", session_id)
        return sorted((each["type"], each["status"]) for each in found if each["type"] != "attempt")

    async def until_operations(self, session_id: str, *wanted: tuple[str, str], seconds: float = 20) -> None:
        """Wait until the audit of a session is this."""
        ends = time.monotonic() + seconds
        while (found := await self.operations(session_id)) != list(wanted):
            assert time.monotonic() < ends, f"operations of {session_id}: {found}, expected {wanted}"
