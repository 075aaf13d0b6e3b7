"""A host on a real broker service, with small function apps, short times and no ports but free ones."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from local.broker.messages import build_message
from local.broker.model import QueueOptions
from local.broker.service import BrokerService
from local.host.events import HostEvent, InvocationEnded, LogLine, WorkerDied, WorkerStarted
from local.host.host import FunctionsHost

APPS = Path(__file__).parent / "apps"
CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true;"
SETTINGS = {"ORDERS_QUEUE": "orders", "Bus": CONNECTION}
WAIT_SECONDS = 30.0


class Bench:
    """A broker, a host, and what the host told."""

    def __init__(self, project: Path, queues: list[QueueOptions], settings: Mapping[str, str], **options: Any) -> None:
        self.service = BrokerService(queues)
        self.project = project
        self.host = FunctionsHost(project, self.service, environment=settings, http_port=0, **options)
        self.host.observers.append(self._note)
        self.events: list[HostEvent] = []
        self._news = asyncio.Event()

    def send(
        self,
        body: bytes | str,
        session: str | None = "s1",
        message_id: str | None = None,
        queue: str = "orders",
        **fields: Any,
    ) -> None:
        content = body.encode() if isinstance(body, str) else body
        message = build_message(body=content, session_id=session, message_id=message_id, **fields)
        self.service.send(queue, [message])

    async def until(self, holds: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        """Wait for the host's news to make something true."""
        async with asyncio.timeout(seconds):
            while not holds():
                self._news.clear()
                await self._news.wait()

    def ended(self, function: str = "work") -> list[InvocationEnded]:
        return [event for event in self.events if isinstance(event, InvocationEnded) and event.function == function]

    def told(self, message: str) -> list[LogLine]:
        return [event for event in self.events if isinstance(event, LogLine) and event.message == message]

    def outcomes(self, function: str = "work") -> list[str]:
        return [str(event.outcome) for event in self.ended(function)]

    @property
    def deaths(self) -> list[WorkerDied]:
        return [event for event in self.events if isinstance(event, WorkerDied) and not event.expected]

    @property
    def starts(self) -> list[WorkerStarted]:
        return [event for event in self.events if isinstance(event, WorkerStarted)]

    def _note(self, event: HostEvent) -> None:
        self.events.append(event)
        self._news.set()


MakeBench = Callable[..., Awaitable[Bench]]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[MakeBench]:
    """Make a started bench: an app's name or source, and what its host.json has otherwise."""
    made: list[Bench] = []

    async def make(
        app: str = "orders",
        *,
        source: str | None = None,
        queues: list[QueueOptions] | None = None,
        settings: Mapping[str, str] | None = None,
        service_bus: Mapping[str, object] | None = None,
        host_json: Mapping[str, object] | None = None,
        start: bool = True,
        **options: Any,
    ) -> Bench:
        project = tmp_path / f"app{len(made)}"
        project.mkdir()
        if source is None:
            shutil.copy(APPS / app / "function_app.py", project)
        else:
            (project / "function_app.py").write_text(source)
        config: dict[str, Any] = {**json.loads((APPS / "host.json").read_text()), **(host_json or {})}
        config["extensions"]["serviceBus"] |= service_bus or {}
        (project / "host.json").write_text(json.dumps(config))
        queues = queues or [QueueOptions("orders", requires_session=True, lock_seconds=30, max_delivery_count=10)]
        result = Bench(project, queues, SETTINGS if settings is None else settings, **options)
        made.append(result)
        if start:
            await result.host.start()
        return result

    yield make
    for each in made:
        await each.host.stop(drain_seconds=0)
        each.service.close()
