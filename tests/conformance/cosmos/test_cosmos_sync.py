"""The blocking client: another transport, another start-up, the same rules."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import ServiceResponseError
from azure.cosmos import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)
from cosmos_served import Served


@pytest.fixture
def orders(sync_client: CosmosClient) -> ContainerProxy:
    return sync_client.get_database_client("convoy").get_container_client("orders")


def order(order_id: str = "o1", item_id: str | None = None, **content: Any) -> dict[str, Any]:
    return {"id": item_id or order_id, "orderId": order_id, **content}


def test_items_batches_queries_and_session_reads(orders: ContainerProxy, thread_served: Served) -> None:
    made = orders.create_item(order(n=1))
    assert orders.read_item("o1", "o1") == made
    orders.execute_item_batch([("create", (order(item_id="b"),)), ("delete", ("b",))], partition_key="o1")
    with pytest.raises(CosmosResourceExistsError):
        orders.create_item(order())
    with pytest.raises(CosmosResourceNotFoundError):
        orders.read_item("b", "o1")
    assert list(orders.query_items("SELECT VALUE c.n FROM c", partition_key="o1")) == [1]
    assert thread_served.asked() == ["Create", "Read", "Batch", "Create", "Read", "SqlQuery"]


def test_failed_batch_names_the_operation(orders: ContainerProxy) -> None:
    orders.create_item(order())
    with pytest.raises(CosmosBatchOperationError) as failed:
        orders.execute_item_batch([("create", (order(item_id="b"),)), ("create", (order(),))], partition_key="o1")
    assert (failed.value.status_code, failed.value.error_index) == (409, 1)


def test_query_over_all_partitions_has_to_be_asked_for(orders: ContainerProxy) -> None:
    for name in ("o1", "o2"):
        orders.create_item(order(name))
    found = orders.query_items("SELECT VALUE c.id FROM c", enable_cross_partition_query=True, max_item_count=1)
    assert list(found) == ["o1", "o2"]
    with pytest.raises(CosmosHttpResponseError, match="Cross partition query is required but disabled") as refused:
        list(orders.query_items("SELECT VALUE c.id FROM c"))
    assert refused.value.status_code == 400


def test_query_whose_filter_names_one_key_crosses_nothing(orders: ContainerProxy) -> None:
    for name in ("o1", "o2"):
        orders.create_item(order(name))
    parameters: list[dict[str, object]] = [{"name": "@key", "value": "o2"}]
    found = orders.query_items("SELECT VALUE c.id FROM c WHERE c.orderId = @key", parameters)
    assert list(found) == ["o2"]
    with pytest.raises(CosmosHttpResponseError, match="Cross partition query is required but disabled"):
        list(orders.query_conflicts("SELECT * FROM c WHERE c.resourceType = 'x'"))
    assert list(orders.query_conflicts("SELECT * FROM c", enable_cross_partition_query=True)) == []


def test_a_thousand_items_are_read_at_once(orders: ContainerProxy) -> None:
    for name in ("o1", "o2"):
        for at in range(0, 600, 100):
            batch = [("create", (order(name, item_id=f"{at + n}"),)) for n in range(100)]
            orders.execute_item_batch(batch, partition_key=name)
    wanted = [(str(at), name) for at in range(600) for name in ("o1", "o2")]
    assert len(orders.read_items(wanted)) == 1200


def test_change_feed(orders: ContainerProxy) -> None:
    orders.create_item(order())
    assert [each["id"] for each in orders.query_items_change_feed(start_time="Beginning")] == ["o1"]


def test_answer_that_is_lost_leaves_a_write_that_was_made_once(orders: ContainerProxy, thread_served: Served) -> None:
    orders.read()

    def lose(exchange: Any, execute: Any) -> None:
        execute()
        exchange.reset()

    thread_served.once("Create", lose)
    with pytest.raises(ServiceResponseError):
        orders.create_item(order())
    assert orders.read_item("o1", "o1")["id"] == "o1"
