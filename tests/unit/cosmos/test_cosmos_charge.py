"""Request charges: the same for the same request, by size, index and consistency."""

from __future__ import annotations

import pytest
from cosmos_bench import Bench

from local.cosmos import charge
from local.cosmos.items import Items
from local.cosmos.partition import key_of


@pytest.mark.parametrize(("size", "units"), [(1, 1), (1024, 1), (1025, 2), (10_240, 10)])
def test_read_costs_one_per_kib_and_twice_that_with_strong_consistency(size: int, units: int) -> None:
    assert charge.read(size, "Session") == units
    assert charge.read(size, "Strong") == charge.read(size, "BoundedStaleness") == 2 * units


def test_write_costs_by_size_and_index_and_twice_over_an_older_version() -> None:
    assert charge.write(1000, 0) == 5
    assert charge.write(2000, 3) == 10.6
    assert charge.write(2000, 3, overwrites=True) == 21.2


def test_query_costs_by_what_it_looked_at_and_gave_out() -> None:
    assert charge.query(0, 0, "Session") == 2.3
    assert charge.query(100, 1024, "Session") == 5.4
    assert charge.query(100, 1024, "Strong") == 10.8


@pytest.mark.parametrize(
    ("policy", "cost"),
    [
        ({"indexingMode": "none"}, 5.0),
        ({"includedPaths": [{"path": "/status/?"}], "excludedPaths": [{"path": "/*"}]}, 5.6),
        ({"includedPaths": [{"path": "/*"}]}, 5.8),
    ],
)
def test_create_costs_what_the_indexing_policy_puts_in_the_index(
    bench: Bench, policy: dict[str, object], cost: float
) -> None:
    container = bench.container(indexingPolicy=policy)
    items = Items(bench.store, "Strong", container, key_of("p"))
    assert items.create({"id": "a", "pk": "p", "status": "x", "n": 1}).charge == cost
