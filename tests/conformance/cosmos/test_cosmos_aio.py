"""Items, batches, queries and feeds through azure.cosmos.aio, by the service's statuses and sub-statuses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)
from cosmos_served import Served, aio_client, serve


def order(order_id: str = "o1", item_id: str | None = None, **content: Any) -> dict[str, Any]:
    return {"id": item_id or order_id, "orderId": order_id, "type": "order", **content}


async def everything(pages: Any) -> list[Any]:
    return [each async for each in pages]


async def ids(orders: ContainerProxy, order_id: str = "o1") -> set[str]:
    found = await everything(orders.query_items("SELECT VALUE c.id FROM c", partition_key=order_id))
    return set(found)


# aiohttp's advice to its callers, here the SDK.
LARGE = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


class TestItems:
    async def test_life_of_an_item_is_one_request_each(self, orders: ContainerProxy, served: Served) -> None:
        made = await orders.create_item(order(n=1))
        assert made["_ts"] == 1_800_000_000
        assert (await orders.read_item("o1", "o1"))["_etag"] == made["_etag"]
        assert (await orders.replace_item("o1", order(n=2)))["n"] == 2
        assert (await orders.upsert_item(order(n=3)))["n"] == 3
        changed = await orders.patch_item("o1", "o1", [{"op": "incr", "path": "/n", "value": 1}])
        assert changed["n"] == 4
        await orders.delete_item("o1", "o1")
        assert served.asked() == ["Create", "Read", "Replace", "Upsert", "Patch", "Delete"]

    async def test_statuses(self, orders: ContainerProxy) -> None:
        await orders.create_item(order())
        with pytest.raises(CosmosResourceExistsError) as conflict:
            await orders.create_item(order())
        with pytest.raises(CosmosResourceNotFoundError) as missing:
            await orders.read_item("nope", "o1")
        stale: dict[str, Any] = {"etag": '"stale"', "match_condition": MatchConditions.IfNotModified}
        with pytest.raises(CosmosAccessConditionFailedError) as failed:
            await orders.replace_item("o1", order(), **stale)
        found = [each.value for each in (conflict, missing, failed)]
        assert [(each.status_code, each.sub_status) for each in found] == [(409, 0), (404, 0), (412, 0)]

    async def test_every_answer_carries_the_servers_time(self, orders: ContainerProxy, served: Served) -> None:
        made = await orders.create_item(order())
        assert made.get_response_headers()["Date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
        served.wait(60)
        with pytest.raises(CosmosResourceExistsError) as conflict:
            await orders.create_item(order())
        assert conflict.value.headers["Date"] == "Fri, 15 Jan 2027 08:01:00 GMT"

    async def test_headers_that_callers_read(self, orders: ContainerProxy) -> None:
        made = await orders.create_item(order())
        headers = made.get_response_headers()
        assert headers["etag"] == made["_etag"]
        assert float(headers["x-ms-request-charge"]) > 5
        assert headers["x-ms-session-token"].startswith("0:-1#")
        assert headers["x-ms-alt-content-path"] == "dbs/convoy/colls/orders"
        assert headers["x-ms-documentdb-partitionkeyrangeid"] == "0"

    async def test_r31_matching_if_none_match_read_is_304(self, orders: ContainerProxy, served: Served) -> None:
        made = await orders.create_item(order())
        condition: dict[str, Any] = {"etag": made["_etag"], "match_condition": MatchConditions.IfModified}
        assert await orders.read_item("o1", "o1", **condition) == {}
        assert served.records[-1].status == 304

    async def test_item_given_as_a_dict_is_addressed_by_resource_ids(self, orders: ContainerProxy) -> None:
        made = await orders.create_item(order())
        assert await orders.read_item(made, "o1") == made
        await orders.delete_item(made, "o1")

    @pytest.mark.parametrize("item_id", ["a b", "100%", "a+b", "ä日本", "~outbox.x", "a%2Fb", "a=b&c", "o'1", 'o"1'])
    async def test_any_id_that_the_service_takes_is_found_again(self, orders: ContainerProxy, item_id: str) -> None:
        await orders.create_item(order(item_id=item_id))
        assert (await orders.read_item(item_id, "o1"))["id"] == item_id

    async def test_rename_by_replace(self, orders: ContainerProxy) -> None:
        await orders.create_item(order(item_id="a"))
        await orders.replace_item("a", order(item_id="b"))
        assert await ids(orders) == {"b"}

    @pytest.mark.parametrize(
        ("body", "sub_status"),
        [
            (order(ttl=0), 0),
            (order(ttl="60"), 0),
            ({"orderId": "o1", "id": "a", "ttl": None}, 0),
            ({"orderId": ["o1"], "id": "x"}, 1001),
        ],
    )
    async def test_r40_r46_bad_item_is_400(self, orders: ContainerProxy, body: dict[str, Any], sub_status: int) -> None:
        with pytest.raises(CosmosHttpResponseError) as refused:
            await orders.create_item(body)
        assert (refused.value.status_code, refused.value.sub_status) == (400, sub_status)

    @pytest.mark.parametrize("key", ["C7", 7, 7.5, None, True])
    async def test_r46_each_key_value_is_its_own_partition(self, orders: ContainerProxy, key: Any) -> None:
        await orders.create_item({"id": "x", "orderId": key})
        await orders.create_item({"id": "x", "orderId": "other"})
        assert (await orders.read_item("x", key))["orderId"] == key

    @LARGE
    async def test_r31_r48_item_over_2_mib_is_413(self, orders: ContainerProxy) -> None:
        await orders.create_item(order(item_id="fits", text="x" * (2 * 1024 * 1024 - 400)))
        with pytest.raises(CosmosHttpResponseError) as refused:
            await orders.create_item(order(item_id="big", text="x" * 2 * 1024 * 1024))
        assert refused.value.status_code == 413

    async def test_r31_r64_patch_with_11_operations_is_400(self, orders: ContainerProxy) -> None:
        await orders.create_item(order(n=0))
        one = {"op": "incr", "path": "/n", "value": 1}
        assert (await orders.patch_item("o1", "o1", [one] * 10))["n"] == 10
        with pytest.raises(CosmosHttpResponseError) as refused:
            await orders.patch_item("o1", "o1", [one] * 11)
        assert refused.value.status_code == 400

    async def test_patch_with_a_condition(self, orders: ContainerProxy) -> None:
        await orders.create_item(order(state="open"))
        steps = [{"op": "set", "path": "/state", "value": "closed"}]
        condition = "from c where c.state = 'open'"
        await orders.patch_item("o1", "o1", steps, filter_predicate=condition)
        with pytest.raises(CosmosAccessConditionFailedError):
            await orders.patch_item("o1", "o1", steps, filter_predicate=condition)

    async def test_ttl_by_the_servers_clock(self, orders: ContainerProxy, served: Served) -> None:
        await orders.create_item(order(ttl=60))
        served.wait(60)
        with pytest.raises(CosmosResourceNotFoundError):
            await orders.read_item("o1", "o1")
        assert await ids(orders) == set()
        await orders.create_item(order())

    async def test_answer_without_a_body_when_it_is_not_wanted(self, orders: ContainerProxy) -> None:
        made = await orders.create_item(order(), no_response=True)
        assert made == {}
        assert made.get_response_headers()["etag"]

    async def test_all_items_of_a_key_go_at_once(self, orders: ContainerProxy) -> None:
        for order_id, item_id in (("o1", "a"), ("o1", "b"), ("o2", "c")):
            await orders.create_item(order(order_id, item_id))
        await orders.delete_all_items_by_partition_key("o1")
        assert (await ids(orders, "o1"), await ids(orders, "o2")) == (set(), {"c"})

    async def test_many_items_by_id(self, orders: ContainerProxy) -> None:
        keys = [(str(at), str(at)) for at in range(5)]
        for item_id, order_id in keys:
            await orders.create_item(order(order_id, item_id))
        found = await orders.read_items([*keys, ("nope", "nope")])
        assert {each["id"] for each in found} == {item_id for item_id, _ in keys}


class TestBatch:
    async def test_batch_is_one_request_and_answers_every_operation(
        self, orders: ContainerProxy, served: Served
    ) -> None:
        await orders.create_item(order(item_id="old", n=1))
        served.asked()
        answers = await orders.execute_item_batch(
            [
                ("create", (order(item_id="new"),)),
                ("upsert", (order(item_id="up"),)),
                ("replace", ("old", order(item_id="old", n=2))),
                ("patch", ("old", [{"op": "incr", "path": "/n", "value": 1}])),
                ("read", ("old",)),
                ("delete", ("up",)),
            ],
            partition_key="o1",
        )
        assert [each["statusCode"] for each in answers] == [201, 201, 200, 200, 200, 204]
        assert answers[4]["resourceBody"]["n"] == 3
        assert answers[4]["eTag"] == answers[3]["eTag"] == answers[4]["resourceBody"]["_etag"]
        assert [(each.operation, each.batch_operations) for each in served.records] == [("Batch", 6)]

    async def test_r31_stale_if_match_in_a_batch_is_412_and_nothing_is_written(self, orders: ContainerProxy) -> None:
        await orders.create_item(order(item_id="state"))
        with pytest.raises(CosmosBatchOperationError) as failed:
            await orders.execute_item_batch(
                [
                    ("create", (order(item_id="entry"),)),
                    ("replace", ("state", order(item_id="state")), {"if_match_etag": '"stale"'}),
                ],
                partition_key="o1",
            )
        assert (failed.value.status_code, failed.value.error_index) == (412, 1)
        assert [each["statusCode"] for each in failed.value.operation_responses] == [424, 412]
        assert await ids(orders) == {"state"}

    async def test_r31_two_parallel_batches_that_share_an_id(self, orders: ContainerProxy) -> None:
        async def attempt(name: str) -> list[int]:
            operations = [("create", (order(item_id=f"{name}-own"),)), ("create", (order(item_id="shared"),))]
            try:
                answers = await orders.execute_item_batch(operations, partition_key="o1")
            except CosmosBatchOperationError as exc:
                answers = exc.operation_responses
            return [each["statusCode"] for each in answers]

        for round_number in range(5):
            results = await asyncio.gather(attempt(f"a{round_number}"), attempt(f"b{round_number}"))
            assert sorted(results) == [[201, 201], [424, 409]]
            left = await ids(orders)
            assert len(left) == 2
            await orders.delete_all_items_by_partition_key("o1")

    async def test_r31_item_of_another_partition_key_in_a_batch_is_400(self, orders: ContainerProxy) -> None:
        with pytest.raises(CosmosBatchOperationError) as failed:
            await orders.execute_item_batch(
                [("create", (order("o1", "a"),)), ("create", (order("o2", "b"),))], partition_key="o1"
            )
        assert (failed.value.status_code, failed.value.error_index) == (400, 1)
        assert await ids(orders) == set()

    @pytest.mark.parametrize(
        ("operations", "status", "text"),
        [
            ([], 400, "Batch request has no operations"),
            ([("read", (str(at),)) for at in range(101)], 400, "more operations than what is supported"),
            ([("create", (order(item_id=str(at), text="x" * 1_000_000),)) for at in range(3)], 413, "too large"),
        ],
    )
    @LARGE
    async def test_r31_batch_beyond_a_limit_is_refused_as_a_whole(
        self, orders: ContainerProxy, operations: list[Any], status: int, text: str
    ) -> None:
        with pytest.raises(CosmosHttpResponseError, match=text) as refused:
            await orders.execute_item_batch(operations, partition_key="o1")
        assert refused.value.status_code == status

    async def test_r31_hundred_operations_are_one_batch(self, orders: ContainerProxy) -> None:
        creates = [("create", (order(item_id=str(at)),)) for at in range(100)]
        answers = await orders.execute_item_batch(creates, partition_key="o1")
        assert {each["statusCode"] for each in answers} == {201}


class TestQueries:
    @pytest.fixture(autouse=True)
    async def things(self, orders: ContainerProxy, served: Served) -> None:
        for at in range(7):
            status = ("effect", "accepted", "completed")[at % 3]
            record = {"status": status} | ({"effect": {"status": "parked"}} if at == 3 else {})
            await orders.create_item(order(f"o{at}", type=f"t{6 - at}", record=record))
            served.wait(1)
        served.asked()

    async def test_the_sweeps_query_in_pages(self, orders: ContainerProxy, served: Served) -> None:
        text = (
            'SELECT c.id, c.orderId FROM c WHERE c.record.status IN ("effect", "accepted") AND c._ts < @before'
            ' AND (NOT IS_DEFINED(c.record.effect.status) OR c.record.effect.status != "parked")'
        )
        before = [{"name": "@before", "value": 1_800_000_006}]
        pages = [
            [each["id"] async for each in page]
            async for page in orders.query_items(text, parameters=before, max_item_count=2).by_page()
        ]
        assert pages == [["o0", "o1"], ["o4"]]
        assert served.asked() == ["SqlQuery"] * 2

    async def test_order_by_across_partitions_in_pages(self, orders: ContainerProxy) -> None:
        found = orders.query_items("SELECT VALUE c.id FROM c ORDER BY c.type", max_item_count=3)
        assert await everything(found) == [f"o{at}" for at in range(6, -1, -1)]

    async def test_order_by_a_path_without_an_index_is_400(self, orders: ContainerProxy) -> None:
        with pytest.raises(CosmosHttpResponseError, match="order-by item is excluded") as refused:
            await everything(orders.query_items("SELECT * FROM c ORDER BY c.customerId"))
        assert refused.value.status_code == 400

    async def test_continuation_is_taken_up_by_another_client(self, orders: ContainerProxy, served: Served) -> None:
        text = "SELECT VALUE c.id FROM c"
        pages = orders.query_items(text, max_item_count=3).by_page()
        first = [each async for each in await anext(pages)]
        async with aio_client(served) as other:
            again = other.get_database_client("convoy").get_container_client("orders")
            rest = again.query_items(text, max_item_count=3).by_page(pages.continuation_token)
            found = [each async for page in rest async for each in page]
        assert first + found == [f"o{at}" for at in range(7)]

    async def test_continuation_of_one_key_is_400_for_another(self, orders: ContainerProxy) -> None:
        await orders.create_item(order("o1", "second"))
        pages = orders.query_items("SELECT * FROM c", partition_key="o1", max_item_count=1).by_page()
        await anext(pages)
        token = pages.continuation_token
        assert token
        with pytest.raises(CosmosHttpResponseError, match="continuation"):
            await anext(orders.query_items("SELECT * FROM c", partition_key="o2").by_page(token))

    async def test_foreign_continuation_is_400(self, orders: ContainerProxy) -> None:
        with pytest.raises(CosmosHttpResponseError, match="continuation") as refused:
            await anext(orders.query_items("SELECT * FROM c").by_page("not-a-token"))
        assert refused.value.status_code == 400

    async def test_aggregates_and_star(self, orders: ContainerProxy) -> None:
        assert await everything(orders.query_items("SELECT VALUE COUNT(1) FROM c")) == [7]
        assert await everything(orders.query_items("SELECT VALUE MAX(c._ts) FROM c")) == [1_800_000_006]
        one = await everything(orders.query_items("SELECT * FROM c WHERE c.id = 'o3'", partition_key="o3"))
        assert one == [await orders.read_item("o3", "o3")]

    async def test_all_items_in_order_of_insertion(self, orders: ContainerProxy) -> None:
        found = await everything(orders.read_all_items(max_item_count=2))
        assert [each["id"] for each in found] == [f"o{at}" for at in range(7)]

    @pytest.mark.parametrize("text", ["SELEC * FROM c", "SELECT * FROM c WHERE x.id = 1", "SELECT NO(c) FROM c"])
    async def test_bad_query_is_400_with_a_reason(self, orders: ContainerProxy, text: str) -> None:
        with pytest.raises(CosmosHttpResponseError, match="query can't be answered") as refused:
            await everything(orders.query_items(text))
        assert refused.value.status_code == 400


class TestChangeFeed:
    async def test_from_the_beginning_and_on_from_a_stored_continuation(self, orders: ContainerProxy) -> None:
        for name in ("o1", "o2", "o1"):
            await orders.upsert_item(order(name))
        feed = orders.query_items_change_feed(start_time="Beginning")
        assert [each["id"] for each in await everything(feed)] == ["o2", "o1"]
        continuation = orders.client_connection.last_response_headers["etag"]
        assert await everything(orders.query_items_change_feed(continuation=continuation)) == []
        await orders.create_item(order("o3"))
        more = orders.query_items_change_feed(continuation=continuation)
        assert [each["id"] for each in await everything(more)] == ["o3"]

    async def test_of_one_key(self, orders: ContainerProxy) -> None:
        for name in ("o1", "o2", "o3"):
            await orders.create_item(order(name))
        feed = orders.query_items_change_feed(start_time="Beginning", partition_key="o2")
        assert [each["id"] for each in await everything(feed)] == ["o2"]

    async def test_batch_comes_in_one_page_however_small(self, orders: ContainerProxy) -> None:
        creates = [("create", (order(item_id=str(at)),)) for at in range(5)]
        await orders.execute_item_batch(creates, partition_key="o1")
        first = await anext(orders.query_items_change_feed(start_time="Beginning", max_item_count=2).by_page())
        assert len([each async for each in first]) == 5

    async def test_every_range_of_a_container_with_several(self, client: CosmosClient) -> None:
        database = client.get_database_client("convoy")
        wide = await database.create_container("wide", PartitionKey("/orderId"), offer_throughput=30_000)
        names = {f"o{at}" for at in range(40)}
        for name in names:
            await wide.create_item(order(name))
        ranges = await everything(wide.read_feed_ranges())
        assert len(ranges) == 5
        by_range = [await everything(wide.query_items("SELECT VALUE c.id FROM c", feed_range=each)) for each in ranges]
        assert sorted(name for part in by_range for name in part) == sorted(names)
        assert all(by_range)
        feed = wide.query_items_change_feed(start_time="Beginning")
        assert {each["id"] for each in await everything(feed)} == names


    @pytest.mark.parametrize("version", [1, 2])
    async def test_keys_of_both_versions(self, client: CosmosClient, version: int) -> None:
        key: Any = PartitionKey("/orderId", version=version)
        database = client.get_database_client("convoy")
        wide = await database.create_container("wide", key, offer_throughput=30_000)
        names: list[Any] = [*(f"o{at}" for at in range(20)), 7, 1.5, True]
        for name in names:
            await wide.create_item({"id": "x", "orderId": name})
        assert len(await wide.read_items([("x", name) for name in names])) == len(names)
        for name in names:
            feed = wide.query_items_change_feed(start_time="Beginning", partition_key=name)
            assert [each["orderId"] for each in await everything(feed)] == [name]
            part = await wide.feed_range_from_partition_key(name)
            found = wide.query_items("SELECT VALUE c.orderId FROM c", feed_range=part)
            assert name in await everything(found)

    async def test_rows_without_an_order_come_range_by_range(self, client: CosmosClient) -> None:
        database = client.get_database_client("convoy")
        wide = await database.create_container("wide", PartitionKey("/orderId"), offer_throughput=30_000)
        for at in range(30):
            await wide.create_item(order(f"o{at}"))
        text = "SELECT VALUE c.id FROM c"
        expected: list[Any] = []
        async for part in wide.read_feed_ranges():
            expected += await everything(wide.query_items(text, feed_range=part))
        assert await everything(wide.query_items(text, max_item_count=4)) == expected
        same = wide.query_items("SELECT VALUE c.id FROM c ORDER BY c.type", max_item_count=4)
        assert await everything(same) == expected


class TestCatalogue:
    async def test_databases(self, client: CosmosClient) -> None:
        database = await client.create_database_if_not_exists("second")
        await client.create_database_if_not_exists("second")
        with pytest.raises(CosmosResourceExistsError):
            await client.create_database("second")
        assert {each["id"] async for each in client.list_databases()} == {"convoy", "second"}
        found = client.query_databases(
            query="SELECT * FROM c WHERE c.id = @id", parameters=[{"name": "@id", "value": "second"}]
        )
        assert [each["id"] async for each in found] == ["second"]
        await client.delete_database("second")
        with pytest.raises(CosmosResourceNotFoundError):
            await database.read()

    async def test_containers(self, client: CosmosClient) -> None:
        database = client.get_database_client("convoy")
        made = await database.create_container("extra", PartitionKey("/pk"), default_ttl=60)
        assert {each["id"] async for each in database.list_containers()} >= {"extra", "orders", "ledger-entries"}
        assert (await made.read())["defaultTtl"] == 60
        await database.replace_container(made, PartitionKey("/pk"), default_ttl=-1)
        assert (await made.read())["defaultTtl"] == -1
        for other in (PartitionKey("/other"), PartitionKey("/pk", version=1)):
            with pytest.raises(CosmosHttpResponseError, match="can't be changed"):
                await database.replace_container(made, other)
        await database.delete_container("extra")
        with pytest.raises(CosmosResourceNotFoundError):
            await made.read()

    async def test_r40_changed_default_ttl_applies_to_existing_items(
        self, client: CosmosClient, orders: ContainerProxy, served: Served
    ) -> None:
        await orders.create_item(order())
        served.wait(3600)
        assert await ids(orders) == {"o1"}
        await client.get_database_client("convoy").replace_container(
            "orders", PartitionKey("/orderId"), default_ttl=60, indexing_policy={"includedPaths": [{"path": "/*"}]}
        )
        assert await ids(orders) == set()

    async def test_container_made_anew_is_noticed_by_a_client_that_knew_the_old_one(
        self, client: CosmosClient, served: Served
    ) -> None:
        database = client.get_database_client("convoy")
        known = await database.create_container("extra", PartitionKey("/orderId"))
        await known.create_item(order())
        async with aio_client(served) as other:
            await other.get_database_client("convoy").delete_container("extra")
            await other.get_database_client("convoy").create_container("extra", PartitionKey("/orderId"))
        served.records.clear()
        await known.create_item(order())
        answers = [(each.status, each.sub_status) for each in served.records if each.operation == "Create"]
        assert answers == [(400, 1024), (201, 0)]

    @pytest.mark.parametrize("bad", ["a/b", "a?b", "a ", "a\r\nb", "x" * 256])
    async def test_bad_name_is_refused(self, client: CosmosClient, bad: str) -> None:
        with pytest.raises((CosmosHttpResponseError, ValueError)):
            await client.create_database(bad)

    async def test_names_of_any_script(self, client: CosmosClient) -> None:
        database = await client.create_database("Zürich 東京")
        container = await database.create_container("Bücher", PartitionKey("/orderId"))
        await container.create_item(order("ö"))
        assert (await container.read_item("ö", "ö"))["id"] == "ö"
        assert await everything(container.query_items("SELECT VALUE c.id FROM c")) == ["ö"]

    async def test_throughput_can_be_read_and_changed(self, client: CosmosClient) -> None:
        database = client.get_database_client("convoy")
        made = await database.create_container("extra", PartitionKey("/pk"), offer_throughput=500)
        assert (await made.get_throughput()).offer_throughput == 500
        await made.replace_throughput(700)
        assert (await made.get_throughput()).offer_throughput == 700

    async def test_throughput_of_a_database_can_be_read_and_changed(self, client: CosmosClient) -> None:
        database = await client.create_database("shared", offer_throughput=1000)
        assert (await database.get_throughput()).offer_throughput == 1000
        await database.replace_throughput(2000)
        assert (await database.get_throughput()).offer_throughput == 2000
        own = await database.create_container("own", PartitionKey("/pk"), offer_throughput=500)
        assert (await own.get_throughput()).offer_throughput == 500

    async def test_wrong_key_is_401(self, served: Served) -> None:
        client = CosmosClient(served.endpoint, "d3Jvbmc=")
        try:
            with pytest.raises(CosmosHttpResponseError) as refused:
                await client.__aenter__()
            assert refused.value.status_code == 401
        finally:
            await client.close()


@pytest.mark.parametrize("served", ["Session"], indirect=True)
class TestSession:
    async def test_start_up_of_a_session_consistent_client_ends(self, orders: ContainerProxy, served: Served) -> None:
        async with asyncio.timeout(10):
            await orders.create_item(order())
            await orders.read_item("o1", "o1")
            await orders.execute_item_batch([("create", (order(item_id="b"),))], partition_key="o1")
            await orders.read_item("b", "o1")
        ranges = [each.status for each in served.records if each.resource_type == "pkranges"]
        assert ranges == [200, 304]

    async def test_token_from_the_future_is_404_1002(self, orders: ContainerProxy) -> None:
        await orders.create_item(order())
        with pytest.raises(CosmosResourceNotFoundError) as ahead:
            await orders.read_item("o1", "o1", session_token="0:-1#999999")
        assert ahead.value.sub_status == 1002

    async def test_stronger_level_than_the_accounts_is_400(self, served: Served) -> None:
        async with aio_client(served, consistency_level="Strong") as client:
            orders = client.get_database_client("convoy").get_container_client("orders")
            with pytest.raises(CosmosHttpResponseError, match="not stronger than the service") as refused:
                await orders.create_item(order())
        assert refused.value.status_code == 400


class TestSocket:
    """What a fault needs: the point between executing a request and answering it, and the socket."""

    NO_REPEATS: dict[str, Any] = {"retry_connect": 0, "retry_read": 0}  # noqa: RUF012 - read only

    @pytest.mark.parametrize("cut", ["reset", "hang_up", "truncate"])
    async def test_executed_but_never_answered(self, orders: ContainerProxy, served: Served, cut: str) -> None:
        await orders.read()

        def lose(exchange: Any, execute: Any) -> None:
            response = execute()
            if cut == "truncate":
                exchange.truncate(response, 10)
            else:
                getattr(exchange, cut)()

        served.once("Create", lose)
        with pytest.raises(AzureError):
            await orders.create_item(order(), **self.NO_REPEATS)
        assert (await orders.read_item("o1", "o1"))["id"] == "o1"

    async def test_executed_and_answered_late(self, orders: ContainerProxy, served: Served) -> None:
        await orders.read()

        def wait(exchange: Any, execute: Any) -> None:
            asyncio.get_running_loop().call_later(0.05, lambda: exchange.answer(execute()))

        served.once("Create", wait)
        assert (await orders.create_item(order()))["id"] == "o1"

    async def test_stopping_with_open_connections_and_a_held_exchange_ends(self, served: Served) -> None:
        other = serve("Strong")
        await other.server.start()
        is_held = asyncio.Event()
        async with aio_client(other) as client:
            other.server.intercept = lambda *_: is_held.set()
            waiting = asyncio.ensure_future(client.get_database_client("convoy").read(**self.NO_REPEATS))
            await asyncio.wait_for(is_held.wait(), 5)
            await asyncio.wait_for(other.server.stop(), 5)
            with pytest.raises(AzureError):
                await waiting


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
        (b"GET / HTTP/1.1\r\n\r\n", 401),
    ],
)
async def test_what_is_no_request_is_answered_and_closed(served: Served, request_text: bytes, status: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    writer.write(request_text)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert head.startswith(b"HTTP/1.1 %d " % status)
    writer.close()
    await writer.wait_closed()


async def test_requests_that_come_together_on_one_connection_are_answered_in_order(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    writer.write(b"".join(b"GET / HTTP/1.1\r\nx-ms-activity-id: n%d\r\n\r\n" % at for at in range(3)))
    for at in range(3):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert b"x-ms-activity-id: n%d\r\n" % at in head
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        assert json.loads(await reader.readexactly(length))["code"] == "Unauthorized"
    writer.close()
    await writer.wait_closed()
