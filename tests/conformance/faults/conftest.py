"""One stack per test: each is up in milliseconds and shares nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from faulty_stack import FaultyStack


@pytest.fixture(params=["Strong"])
async def stack(request: pytest.FixtureRequest) -> AsyncIterator[FaultyStack]:
    made = FaultyStack(request.param)
    await made.start()
    yield made
    await made.stop()
