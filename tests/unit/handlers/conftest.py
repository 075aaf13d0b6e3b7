"""What tests of the handlers leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.handlers.handler_bench import bury


@pytest.fixture(autouse=True)
def _dead_workers() -> Iterator[None]:
    yield
    bury()
