"""Stacks with the app: one for all tests that only need different orders, and others with two instances."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .harness import App, running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with running(tmp_path_factory.mktemp("app")) as app:
        yield app


@pytest_asyncio.fixture(loop_scope="session")
async def app(shared_app: App) -> AsyncIterator[App]:
    """The app, with nothing in its queues before and after the test, and nothing left in the broker's dead letters."""
    await shared_app.quiet()
    yield shared_app
    await shared_app.quiet()
    assert shared_app.stack.cosmos.intercept is None


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """The app on two host instances, each with its own worker process."""
    async with running(tmp_path_factory.mktemp("pair"), instances=2) as app:
        yield app
