from __future__ import annotations

from collections.abc import Iterator

import pytest
from cosmos_bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.store.close()
