"""Requests as bytes, without a socket: every one is answered, also garbage, and none with 500."""

from __future__ import annotations

import json
import logging
import random
import time
from email.utils import formatdate
from urllib.parse import quote

import pytest
from cosmos_bench import Bench

from local.cosmos import auth
from local.cosmos.gateway import Gateway, RequestRecord
from local.cosmos.http import Request, Response
from local.cosmos.server import EMULATOR_KEY, CosmosServer

DOCS = "/dbs/db/colls/things/docs"
CREATE = {"id": "a", "pk": "p"}


class Asker:
    """Signs requests and puts them to a gateway."""

    def __init__(self, bench: Bench) -> None:
        bench.container()
        self.gateway = Gateway(
            bench.store, key=EMULATOR_KEY, consistency="Session", clock=bench.clock, wall_clock=time.time
        )

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Response:
        kind, link = auth.signed_link([part for part in path.strip("/").split("/") if part])
        date = formatdate(usegmt=True)
        token = f"type=master&ver=1.0&sig={auth.signature(auth.decoded_key(EMULATOR_KEY), method, kind, link, date)}"
        signed = {"authorization": quote(token), "x-ms-date": date, "x-ms-documentdb-partitionkey": '["p"]'}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.gateway.answer(Request(method, path, signed | named, data))


@pytest.fixture
def ask(bench: Bench) -> Asker:
    return Asker(bench)


def test_observers_get_a_record_of_every_request(ask: Asker) -> None:
    seen: list[RequestRecord] = []
    ask.gateway.observers.append(seen.append)
    ask("POST", DOCS, CREATE, x_ms_thinclient_proxy_operation_type="Create")
    ask("POST", DOCS, CREATE)
    operations = [{"operationType": "Read", "id": "a"}] * 3
    ask("POST", DOCS, operations, x_ms_cosmos_is_batch_request="True")
    ask("POST", DOCS, {"id": "b", "pk": "other"})
    assert [(each.operation, each.item_id, each.status, each.sub_status, each.batch_operations) for each in seen] == [
        ("Create", "a", 201, 0, 0),
        ("POST", "a", 409, 0, 0),
        ("POST", None, 200, 0, 3),
        ("POST", "b", 400, 1001, 0),
    ]
    assert {(each.resource_type, each.container, each.partition_key) for each in seen} == {("docs", "things", '["p"]')}
    assert seen[0].charge > seen[1].charge == 1


def test_data_has_the_given_clock_and_signatures_the_machines(ask: Asker, bench: Bench) -> None:
    bench.clock.now += 365 * 86_400
    response = ask("POST", DOCS, CREATE)
    assert json.loads(response.body)["_ts"] == int(bench.clock.now)
    assert response.headers["Date"] == formatdate(bench.clock.now, usegmt=True)


def test_failure_inside_is_a_500_with_a_log_record_and_no_details(
    ask: Asker, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.close()
    with caplog.at_level(logging.ERROR):
        response = ask("GET", f"{DOCS}/a")
    assert response.status == 500
    assert "closed database" not in response.body.decode()
    assert "request failed" in caplog.text


def test_account_document_names_the_host_that_the_client_used(ask: Asker) -> None:
    account = json.loads(ask("GET", "/", host="localhost:1234").body)
    for key in ("writableLocations", "readableLocations"):
        assert [each["databaseAccountEndpoint"] for each in account[key]] == ["http://localhost:1234/"]
    assert account["userConsistencyPolicy"] == {"defaultConsistencyLevel": "Session"}


def test_partition_key_ranges_end_at_304(ask: Asker) -> None:
    path = "/dbs/db/colls/things/pkranges"
    first = ask("GET", path, a_im="Incremental Feed")
    assert [(each["minInclusive"], each["maxExclusive"]) for each in json.loads(first.body)["PartitionKeyRanges"]] == [
        ("", "FF")
    ]
    again = ask("GET", path, a_im="Incremental Feed", if_none_match=first.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/dbs/none", 404),
        ("GET", "/dbs/db/colls/none/docs/a", 404),
        ("POST", "/dbs/db/colls/things/nothing", 404),
        ("GET", "/dbs/db/colls/things/conflicts/none", 404),
        ("PUT", "/dbs/db/colls/things/conflicts", 405),
        ("PUT", "/dbs", 405),
        ("DELETE", DOCS, 405),
        ("GET", "/offers/none", 404),
    ],
)
def test_what_is_not_served_is_refused_with_a_reason(ask: Asker, method: str, path: str, status: int) -> None:
    response = ask(method, path)
    assert response.status == status
    assert json.loads(response.body)["message"]


@pytest.mark.parametrize(
    ("path", "feature"),
    [
        ("/dbs/db/users", "users and permissions"),
        ("/dbs/db/users/u/permissions/p", "users and permissions"),
        ("/dbs/db/colls/things/sprocs", "stored procedures"),
        ("/dbs/db/colls/things/triggers/t", "triggers"),
        ("/dbs/db/colls/things/udfs", "user-defined functions"),
    ],
)
def test_feature_that_is_not_served_is_refused_by_name(ask: Asker, path: str, feature: str) -> None:
    response = ask("POST", path, {"id": "x"})
    assert response.status == 400
    assert json.loads(response.body)["message"] == f"This server does not serve {feature}."


def test_one_region_has_no_conflicts(ask: Asker) -> None:
    path = "/dbs/db/colls/things/conflicts"
    query = {"query": "SELECT * FROM c WHERE c.resourceType = 'x'"}
    for response in (ask("GET", path), ask("POST", path, query, x_ms_documentdb_isquery="true")):
        assert (response.status, json.loads(response.body)["Conflicts"]) == (200, [])


def test_container_says_what_it_holds_when_asked(ask: Asker) -> None:
    ask("POST", DOCS, CREATE)
    path = DOCS.removesuffix("/docs")
    plain = ask("GET", path)
    assert "statistics" not in json.loads(plain.body)
    assert "x-ms-resource-usage" not in plain.headers
    both = {"x_ms_documentdb_populatequotainfo": "True", "x_ms_documentdb_populatepartitionstatistics": "True"}
    full = ask("GET", path, **both)
    [part] = json.loads(full.body)["statistics"]
    assert (part["id"], part["documentCount"]) == ("0", 1)
    assert full.headers["x-ms-resource-usage"].startswith("documentsCount=1;")
    assert full.headers["x-ms-documentdb-collection-index-transformation-progress"] == "100"


def test_container_without_its_own_throughput_shares_that_of_its_database(ask: Asker) -> None:
    ask("POST", "/dbs", {"id": "shared"}, x_ms_offer_throughput="1000")
    body = {"id": "without", "partitionKey": {"paths": ["/pk"], "version": 2}}
    own = json.loads(ask("POST", "/dbs/shared/colls", body | {"id": "own"}, x_ms_offer_throughput="500").body)["_self"]
    shared = json.loads(ask("POST", "/dbs/shared/colls", body).body)["_self"]
    offers = json.loads(ask("GET", "/offers").body)["Offers"]
    found = {each["resource"]: each["content"]["offerThroughput"] for each in offers}
    assert shared not in found
    assert sorted(found.values()) == [400, 500, 1000]
    assert found[own] == 500
    assert len({each["id"] for each in offers}) == 3
    assert ask("POST", "/dbs", {"id": "less"}, x_ms_offer_throughput="100").status == 400


def test_every_write_moves_the_lsn_on_by_one_a_batch_too(ask: Asker) -> None:
    first = ask("POST", DOCS, CREATE)
    operations = [{"operationType": "Upsert", "resourceBody": {"id": str(at), "pk": "p"}} for at in range(3)]
    batch = ask("POST", DOCS, operations, x_ms_cosmos_is_batch_request="True")
    assert int(batch.headers["lsn"]) == int(first.headers["lsn"]) + 1
    assert ask("GET", f"{DOCS}/a").headers["lsn"] == batch.headers["lsn"]


def test_query_metrics_come_when_asked_for(ask: Asker) -> None:
    query = {"query": "SELECT * FROM c"}
    plain = ask("POST", DOCS, query, x_ms_documentdb_isquery="true")
    assert "x-ms-documentdb-query-metrics" not in plain.headers
    asked = ask("POST", DOCS, query, x_ms_documentdb_isquery="true", x_ms_documentdb_populatequerymetrics="True")
    assert "outputDocumentCount=0" in asked.headers["x-ms-documentdb-query-metrics"].split(";")


def test_limits_of_ids_are_named_in_the_words_of_the_service(ask: Asker) -> None:
    start = "Ensure to provide a unique non-empty string less than "
    for path, limit in (("/dbs", 255), ("/dbs/db/colls", 255), (DOCS, 1024)):
        body = {"id": "x" * 1024, "pk": "p", "partitionKey": {"paths": ["/pk"], "version": 2}}
        response = ask("POST", path, body)
        assert response.status == 400
        assert f"{start}'{limit}' characters." in json.loads(response.body)["message"]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"x_ms_max_item_count": "0"}, "x-ms-max-item-count"),
        ({"a_im": "Full-Fidelity Feed"}, "change feed mode"),
        ({"a_im": "Incremental Feed", "if_none_match": "x"}, "continuation"),
        ({"a_im": "Incremental Feed", "if_modified_since": "yesterday"}, "if-modified-since"),
        ({"x_ms_consistency_level": "Strong"}, "not stronger"),
    ],
)
def test_bad_header_is_400_and_named(ask: Asker, headers: dict[str, str], text: str) -> None:
    response = ask("GET", DOCS, **headers)
    assert response.status == 400
    assert text in json.loads(response.body)["message"]


SEEDS: list[object] = [
    CREATE,
    {"query": "SELECT * FROM c WHERE c.id = @x", "parameters": [{"name": "@x", "value": "a"}]},
    {"operations": [{"op": "add", "path": "/n", "value": 1}], "condition": "from c where c.n = 1"},
    [{"operationType": "Create", "resourceBody": CREATE, "ifMatch": "x"}],
    {"id": "more", "partitionKey": {"paths": ["/a"], "version": 2}, "uniqueKeyPolicy": {"uniqueKeys": [{"paths": []}]}},
    {"id": "x", "indexingPolicy": {"includedPaths": [{"path": "/*"}], "compositeIndexes": [[{"path": "/a"}]]}},
]
JUNK: list[object] = [None, True, 0, -1, 1.5, 2**70, "", "\ud800", "a/b", "/id", [], {}, [[]], [{}], {"id": {}}, "@x"]
TARGETS = [
    ("POST", DOCS, {}),
    ("POST", DOCS, {"x_ms_documentdb_isquery": "true"}),
    ("POST", DOCS, {"x_ms_cosmos_is_batch_request": "True"}),
    ("POST", DOCS, {"x_ms_documentdb_is_upsert": "True"}),
    ("PUT", f"{DOCS}/a", {}),
    ("PATCH", f"{DOCS}/a", {}),
    ("POST", "/dbs", {}),
    ("POST", "/dbs/db/colls", {}),
    ("PUT", "/dbs/db/colls/things", {}),
    ("POST", "/offers", {"x_ms_documentdb_isquery": "true"}),
]


@pytest.mark.parametrize("seed", range(5))
def test_garbage_is_never_answered_with_500(ask: Asker, seed: int) -> None:
    chance = random.Random(seed)

    def mutated(value: object) -> object:
        if chance.random() < 0.25:
            return chance.choice(JUNK)
        if isinstance(value, dict):
            return {name: mutated(inner) if chance.random() < 0.5 else inner for name, inner in value.items()}
        return [mutated(inner) for inner in value] if isinstance(value, list) else value

    for _ in range(300):
        method, path, headers = chance.choice(TARGETS)
        body = mutated(chance.choice(SEEDS))
        response = ask(method, path, body, **headers)
        assert response.status < 500, (method, path, body)
        assert not response.body or json.loads(response.body) is not None


def test_unknown_consistency_level_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="not Strongest"):
        CosmosServer(consistency="Strongest")
