"""A running broker for clients: it lives in a thread of its own, so that sync and async clients use it alike."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from local.broker.server import BrokerServer
from local.broker.service import BrokerEvent, BrokerService, Counts, QueueOptions, ReceivedMessage

KEY = "SAS_KEY_VALUE"
_T = TypeVar("_T")


class RunningBroker:
    """A broker whose clock is the wall clock plus what the test adds: clients compare lock times with their own."""

    def __init__(self, queues: list[QueueOptions], idle_seconds: float = 240.0) -> None:
        self._offset = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.service = self.call(lambda: BrokerService(queues, clock=lambda: time.time() + self._offset))
        self.server = self.call(lambda: BrokerServer(self.service, idle_seconds=idle_seconds))
        self.events: list[BrokerEvent] = []
        self.server.observers.append(self.events.append)
        asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(5)

    def call(self, function: Callable[[], _T]) -> _T:
        """Run something in the broker's loop."""

        async def run() -> _T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def pass_time(self, seconds: float) -> None:
        """Let the broker's clock jump."""

        def jump() -> None:
            self._offset += seconds
            self.service.tick()

        self.call(jump)

    def counts(self, queue: str) -> Counts:
        return self.call(lambda: self.service.counts(queue))

    def send(self, queue: str, *messages: ReceivedMessage) -> None:
        self.call(lambda: self.service.send(queue, messages))

    def connection_string(self, key: str = KEY) -> str:
        credentials = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key}"
        return f"Endpoint=sb://127.0.0.1:{self.server.amqp_port};{credentials};UseDevelopmentEmulator=true;"

    def restart(self) -> None:
        """Stop the server, keep its queues, and listen again on the same port."""

        async def again() -> None:
            port = self.server.amqp_port
            await self.server.stop()
            await self.server.start(amqp_port=port)

        asyncio.run_coroutine_threadsafe(again(), self._loop).result(10)

    def stop(self) -> set[asyncio.Task[object]]:
        """Stop it; gives the tasks that were left in its loop."""
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(10)

        async def others() -> set[asyncio.Task[object]]:
            return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

        left = asyncio.run_coroutine_threadsafe(others(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
        return left
