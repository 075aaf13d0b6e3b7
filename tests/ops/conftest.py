"""The app on a stack, and the operators' command line pointed at it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from azure.servicebus.aio import ServiceBusClient

from tests.ops.operators import SETTINGS, Bench, Ops
from tests.scenarios.harness import running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    folder: Path = tmp_path_factory.mktemp("ops")
    async with (
        running(folder, duplicate_detection=True, settings=SETTINGS) as app,
        ServiceBusClient.from_connection_string(app.stack.service_bus_connection) as bus,
        Ops.of(app.stack) as ops,
    ):
        yield Bench(app, ops, bus)


@pytest_asyncio.fixture(loop_scope="session")
async def bench(_bench: Bench) -> AsyncIterator[Bench]:
    """The app with empty queues, no role paused."""
    await _bench.app.quiet()
    yield _bench
    assert _bench.app.stack.host is not None
    for function in ("process_order", "fan_out_ledger", "apply_entry"):
        _bench.resume(function)
    _bench.app.stack.faults.clear()
    await _bench.app.quiet()
