"""Broker and Cosmos DB with an engine of faults, and the real SDKs as their clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos import ContainerProxy as SyncContainer
from azure.cosmos import CosmosClient as SyncCosmosClient
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.servicebus.aio import ServiceBusClient

from local.broker.model import QueueOptions
from local.broker.server import BrokerServer
from local.broker.service import BrokerService
from local.cosmos.containers import read_containers
from local.cosmos.server import EMULATOR_KEY, CosmosServer
from local.faults import Faults, Service
from local.faults.broker import BrokerPlug
from local.faults.cosmos import CosmosPlug

CONTAINERS = Path(__file__).parents[3] / "local" / "containers.json"
QUEUES = [
    QueueOptions("plain", lock_seconds=60),
    QueueOptions("orders", requires_session=True, lock_seconds=60),
    QueueOptions("short", requires_session=True, lock_seconds=1),
]


class FaultyStack:
    """What the tests' clients talk to, in the tests' own event loop."""

    def __init__(self, consistency: str = "Strong") -> None:
        self.service = BrokerService(QUEUES)
        self.broker = BrokerServer(self.service)
        self.cosmos = CosmosServer(consistency=consistency)
        self.faults = Faults()
        BrokerPlug(self.faults, self.broker)
        CosmosPlug(self.faults, self.cosmos)

    async def start(self) -> None:
        self.cosmos.ensure(read_containers(CONTAINERS))
        await self.cosmos.start()
        await self.broker.start()

    async def stop(self) -> None:
        self.faults.clear()
        await self.broker.stop()
        await self.cosmos.stop()

    # ---------------------------------------------------------------------------------------------------------- clients

    @contextlib.asynccontextmanager
    async def bus(self, **options: Any) -> AsyncIterator[ServiceBusClient]:
        """A client that repeats nothing, unless it is told to."""
        options = {"retry_total": 0, "keep_alive": 0, **options}  # 0: a closing sender spares itself a second's sleep
        connection = (
            f"Endpoint=sb://127.0.0.1:{self.broker.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
        async with ServiceBusClient.from_connection_string(connection, **options) as client:
            yield client

    @contextlib.asynccontextmanager
    async def orders(self, **options: Any) -> AsyncIterator[ContainerProxy]:
        """The asynchronous client's hold on the container `orders`."""
        transport = AioHttpTransport(use_env_settings=False)
        async with CosmosClient(self.endpoint, EMULATOR_KEY, transport=transport, **options) as client:
            yield client.get_database_client("convoy").get_container_client("orders")

    @contextlib.contextmanager
    def sync_orders(self, **options: Any) -> Iterator[SyncContainer]:
        """The synchronous client's: for another thread than the loop's."""
        with SyncCosmosClient(self.endpoint, EMULATOR_KEY, **options) as client:
            yield client.get_database_client("convoy").get_container_client("orders")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.cosmos.port}/"

    # --------------------------------------------------------------------------------------------------------- evidence

    def results(
        self, service: Service = Service.COSMOS, operation: str = "*"
    ) -> list[tuple[str, str | None, str | None]]:
        """What the clients asked for about items or messages: operation, what doing it gave, the rule that hit it."""
        items = [
            entry
            for entry in self.faults.history(service=service, operation=operation)
            if "." not in entry.operation and not entry.operation.startswith("attach-")
        ]
        return [(entry.operation, entry.result, entry.rule) for entry in items]
