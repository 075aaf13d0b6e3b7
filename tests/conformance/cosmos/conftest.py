"""One server per test: each is up in milliseconds and shares nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from azure.cosmos import CosmosClient as SyncClient
from azure.cosmos.aio import ContainerProxy, CosmosClient
from cosmos_served import Served, aio_client, serve

from local.cosmos.server import EMULATOR_KEY


@pytest.fixture(params=["Strong"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    made = serve(request.param)
    await made.server.start()
    yield made
    await made.server.stop()


@pytest.fixture
async def client(served: Served) -> AsyncIterator[CosmosClient]:
    async with aio_client(served) as made:
        yield made


@pytest.fixture
async def orders(client: CosmosClient) -> ContainerProxy:
    return client.get_database_client("convoy").get_container_client("orders")


@pytest.fixture
def thread_served() -> Iterator[Served]:
    """The server in a thread of its own, for the blocking client."""
    made = serve("Session")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(made.server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield made
    asyncio.run_coroutine_threadsafe(made.server.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def sync_client(thread_served: Served) -> Iterator[SyncClient]:
    with SyncClient(thread_served.endpoint, EMULATOR_KEY) as made:
        yield made
