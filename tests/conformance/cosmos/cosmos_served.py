"""The embedded server under the real SDK. One server per test: each is up in milliseconds and shares nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import CosmosClient

from local.cosmos.containers import read_containers
from local.cosmos.gateway import RequestRecord
from local.cosmos.http import Exchange, Response
from local.cosmos.server import EMULATOR_KEY, CosmosServer, Intercept

CONTAINERS = Path(__file__).parents[3] / "local" / "containers.json"


@dataclass
class Served:
    """A running server with the stack's containers, its clock, and what it was asked."""

    server: CosmosServer
    seconds: list[float]
    records: list[RequestRecord] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/"

    def wait(self, seconds: float) -> None:
        self.seconds[0] += seconds

    def once(self, operation: str, react: Intercept) -> None:
        """Let the next request of this kind meet `react`; others, such as the SDK's health checks, pass."""

        def intercept(exchange: Exchange, execute: Callable[[], Response]) -> None:
            if exchange.request.headers.get("x-ms-thinclient-proxy-operation-type") != operation:
                exchange.answer(execute())
                return
            self.server.intercept = None
            react(exchange, execute)

        self.server.intercept = intercept

    def asked(self) -> list[str]:
        """The operations on items since the last time, in order."""
        names = [each.operation for each in self.records if each.resource_type == "docs"]
        self.records.clear()
        return names


def serve(consistency: str) -> Served:
    seconds = [1_800_000_000.0]
    server = CosmosServer(clock=lambda: seconds[0], consistency=consistency)
    server.ensure(read_containers(CONTAINERS))
    served = Served(server, seconds)
    server.observers.append(served.records.append)
    return served


def aio_client(served: Served, **settings: object) -> CosmosClient:
    return CosmosClient(served.endpoint, EMULATOR_KEY, transport=AioHttpTransport(use_env_settings=False), **settings)
