"""Rules of items on the store: identity, TTL by a clock that is given, unique keys, atomic batches."""

from __future__ import annotations

import json
import math

import pytest
from cosmos_bench import START, Bench

from local.cosmos.catalogue import Container
from local.cosmos.errors import CosmosError
from local.cosmos.items import Outcome, Precondition
from local.cosmos.partition import key_of
from local.cosmos.patch import Patch
from local.cosmos.values import Document, Json, parse_object

KEY = key_of("p")


def item(item_id: str = "a", **content: Json) -> Document:
    return {"id": item_id, "pk": "p", **content}


def stored(outcome: Outcome) -> Document:
    return parse_object(outcome.body, "item")


def ids(bench: Bench, container: Container) -> list[str]:
    return [row.id for row in bench.store.scan(container)]


def status_of(error: pytest.ExceptionInfo[CosmosError]) -> tuple[int, int]:
    return error.value.status, error.value.sub_status


def test_system_properties_are_the_servers_whatever_the_client_sends(bench: Bench) -> None:
    container = bench.container()
    made = stored(bench.items(container, KEY).create(item(_etag="mine", _ts=1, _rid="x", _self="y")))
    assert made["_ts"] == START
    assert str(made["_etag"]).startswith('"')
    assert str(made["_self"]).startswith(container.self_link)
    assert made["_rid"] != "x"


def test_every_version_has_its_own_etag_and_one_rid(bench: Bench) -> None:
    container = bench.container()
    made = bench.items(container, KEY).create(item())
    again = bench.items(container, KEY).replace("a", item())
    assert made.etag != again.etag
    assert stored(made)["_rid"] == stored(again)["_rid"]
    bench.items(container, KEY).delete("a")
    assert stored(bench.items(container, KEY).create(item()))["_rid"] != stored(made)["_rid"]


def test_identity_is_partition_key_and_id(bench: Bench) -> None:
    container = bench.container()
    bench.items(container, KEY).create(item())
    bench.items(container, key_of("q")).create({"id": "a", "pk": "q"})
    with pytest.raises(CosmosError) as conflict:
        bench.items(container, KEY).create(item())
    assert status_of(conflict) == (409, 0)


@pytest.mark.parametrize("bad", [None, "", 7, "a/b", "a\\b", "a?b", "a#b", "x" * 1024, "é" * 512])
def test_bad_id_is_refused_with_400(bench: Bench, bad: Json) -> None:
    with pytest.raises(CosmosError) as refused:
        bench.items(bench.container(), KEY).create({"id": bad, "pk": "p"})
    assert status_of(refused) == (400, 0)


def test_id_of_1023_bytes_with_spaces_and_any_script_is_taken(bench: Bench) -> None:
    container = bench.container()
    for name in ("x" * 1023, "a b", "100%", "日本", "~state", "a+b"):
        bench.items(container, KEY).create(item(name))
    assert len(ids(bench, container)) == 6


def test_r41_numbers_come_back_as_doubles(bench: Bench) -> None:
    container = bench.container()
    body = parse_object(b'{"id":"a","pk":"p","ref":9223372036854775807,"one":1.0,"rate":3.224598188088982e+76}', "item")
    made = bench.items(container, KEY).create(body).body
    assert b'"ref":9223372036854775808,' in made
    assert b'"one":1,' in made
    assert json.loads(made)["rate"] == 3.224598188088982e76


@pytest.mark.parametrize(
    "text", [b'{"n":1e999}', b'{"n":NaN}', b"{", b"[1]", b'{"n":"\xff"}', b"9" * 5000, rb'{"n":"\ud800"}']
)
def test_what_is_no_json_object_of_doubles_is_refused_with_400(text: bytes) -> None:
    with pytest.raises(CosmosError) as refused:
        parse_object(text, "item")
    assert refused.value.status == 400


class TestPreconditions:
    def test_if_match_lets_the_current_version_and_star_through(self, bench: Bench) -> None:
        container = bench.container()
        etag = bench.items(container, KEY).create(item()).etag
        assert bench.items(container, KEY).replace("a", item(), Precondition(etag)).status == 200
        assert bench.items(container, KEY).upsert(item(), Precondition("*")).status == 200

    def test_stale_if_match_is_412_for_every_write_and_changes_nothing(self, bench: Bench) -> None:
        container = bench.container()
        stale = Precondition(bench.items(container, KEY).create(item()).etag)
        current = bench.items(container, KEY).replace("a", item(n=1))
        patch = Patch.read([{"op": "incr", "path": "/n", "value": 1}])
        for write in (
            lambda: bench.items(container, KEY).replace("a", item(n=2), stale),
            lambda: bench.items(container, KEY).upsert(item(n=2), stale),
            lambda: bench.items(container, KEY).patch("a", patch, stale),
            lambda: bench.items(container, KEY).delete("a", stale),
        ):
            with pytest.raises(CosmosError) as failed:
                write()
            assert status_of(failed) == (412, 0)
        assert bench.items(container, KEY).read("a").body == current.body

    def test_missing_item_is_404_also_with_if_match(self, bench: Bench) -> None:
        container = bench.container()
        with pytest.raises(CosmosError) as missing:
            bench.items(container, KEY).replace("a", item(), Precondition('"x"'))
        assert status_of(missing) == (404, 0)

    @pytest.mark.parametrize("etag", ['"x"', "*"])
    def test_upsert_of_a_missing_item_creates_it_whatever_if_match_says(self, bench: Bench, etag: str) -> None:
        assert bench.items(bench.container(), KEY).upsert(item(), Precondition(etag)).status == 201

    def test_if_none_match_of_the_current_version_is_304_without_a_body(self, bench: Bench) -> None:
        container = bench.container()
        etag = bench.items(container, KEY).create(item()).etag
        same = bench.items(container, KEY).read("a", Precondition(if_none_match=etag))
        assert (same.status, same.body) == (304, b"")
        assert bench.items(container, KEY).read("a", Precondition(if_none_match='"other"')).status == 200

    def test_false_patch_condition_is_412(self, bench: Bench) -> None:
        container = bench.container()
        bench.items(container, KEY).create(item(n=1))
        steps: Json = [{"op": "incr", "path": "/n", "value": 1}]
        fits = Patch.read({"operations": steps, "condition": "from c where c.n = 1"})
        assert stored(bench.items(container, KEY).patch("a", fits))["n"] == 2
        with pytest.raises(CosmosError) as failed:
            bench.items(container, KEY).patch("a", fits)
        assert status_of(failed) == (412, 0)


def test_replace_with_another_id_renames_and_frees_the_old_one(bench: Bench) -> None:
    container = bench.container()
    bench.items(container, KEY).create(item("a"))
    bench.items(container, KEY).create(item("b"))
    assert stored(bench.items(container, KEY).replace("a", item("c")))["id"] == "c"
    with pytest.raises(CosmosError) as taken:
        bench.items(container, KEY).replace("c", item("b"))
    assert status_of(taken) == (409, 0)
    bench.items(container, KEY).create(item("a"))
    assert ids(bench, container) == ["c", "b", "a"]


def test_partition_key_can_not_be_patched(bench: Bench) -> None:
    container = bench.container()
    bench.items(container, KEY).create(item())
    with pytest.raises(CosmosError) as refused:
        bench.items(container, KEY).patch("a", Patch.read([{"op": "set", "path": "/pk", "value": "q"}]))
    assert refused.value.status == 400


class TestTtl:
    def test_item_vanishes_at_once_from_reads_scans_feed_and_conflicts(self, bench: Bench) -> None:
        container = bench.container(defaultTtl=-1)
        bench.items(container, KEY).create(item(ttl=10))
        bench.clock.now += 9.5
        assert bench.items(container, KEY).read("a").status == 200
        bench.clock.now += 0.5
        with pytest.raises(CosmosError) as missing:
            bench.items(container, KEY).read("a")
        assert status_of(missing) == (404, 0)
        assert ids(bench, container) == []
        assert list(bench.store.changes(container, lsn=0, since=0, start="", end="FF")) == []
        assert bench.items(container, KEY).create(item()).status == 201

    def test_without_a_default_an_items_ttl_is_ignored(self, bench: Bench) -> None:
        container = bench.container()
        bench.items(container, KEY).create(item(ttl=1))
        bench.clock.now += 1e6
        assert ids(bench, container) == ["a"]

    def test_default_counts_unless_the_item_says_otherwise(self, bench: Bench) -> None:
        container = bench.container(defaultTtl=10)
        for name, own in (("default", None), ("longer", 20), ("for ever", -1)):
            bench.items(container, KEY).create(item(name, **({} if own is None else {"ttl": own})))
        bench.clock.now += 10
        assert ids(bench, container) == ["longer", "for ever"]
        bench.clock.now += 10
        assert ids(bench, container) == ["for ever"]

    def test_every_write_starts_it_again(self, bench: Bench) -> None:
        container = bench.container(defaultTtl=10)
        bench.items(container, KEY).create(item())
        bench.clock.now += 9
        bench.items(container, KEY).patch("a", Patch.read([{"op": "set", "path": "/n", "value": 1}]))
        bench.clock.now += 9
        assert ids(bench, container) == ["a"]

    def test_expired_item_does_not_hold_the_id_of_a_rename(self, bench: Bench) -> None:
        container = bench.container(defaultTtl=-1)
        bench.items(container, KEY).create(item("old", ttl=1))
        bench.items(container, KEY).create(item("new"))
        bench.clock.now += 2
        assert bench.items(container, KEY).replace("new", item("old")).status == 200

    def test_expired_items_leave_the_file_with_a_later_write(self, bench: Bench) -> None:
        container = bench.container(defaultTtl=-1)
        bench.items(container, KEY).create(item(ttl=1))
        bench.clock.now += 100
        bench.items(container, KEY).create(item("b"))
        assert bench.store._db.execute("SELECT id FROM items").fetchall() == [("b",)]

    @pytest.mark.parametrize("ttl", [0, -2, None, "60", 1.5, True, 2**31])
    def test_r40_ttl_that_is_no_positive_integer_or_minus_one_is_400(self, bench: Bench, ttl: Json) -> None:
        with pytest.raises(CosmosError) as refused:
            bench.items(bench.container(defaultTtl=-1), KEY).create(item(ttl=ttl))
        assert refused.value.status == 400


UNIQUE_MAIL = {"defaultTtl": -1, "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/mail"]}]}}


class TestUniqueKeys:
    def test_value_is_taken_within_its_partition_key_only(self, bench: Bench) -> None:
        container = bench.container(**UNIQUE_MAIL)
        bench.items(container, KEY).create(item("a", mail="x"))
        bench.items(container, key_of("q")).create({"id": "b", "pk": "q", "mail": "x"})
        with pytest.raises(CosmosError) as conflict:
            bench.items(container, KEY).create(item("b", mail="x"))
        assert status_of(conflict) == (409, 0)
        assert ids(bench, container) == ["a", "b"]

    def test_missing_path_counts_as_null(self, bench: Bench) -> None:
        container = bench.container(**UNIQUE_MAIL)
        bench.items(container, KEY).create(item("a"))
        with pytest.raises(CosmosError):
            bench.items(container, KEY).create(item("b", mail=None))

    def test_change_deletion_and_expiry_free_the_value(self, bench: Bench) -> None:
        container = bench.container(**UNIQUE_MAIL)
        bench.items(container, KEY).create(item("a", mail="x"))
        bench.items(container, KEY).replace("a", item("a", mail="y"))
        bench.items(container, KEY).create(item("b", mail="x"))
        bench.items(container, KEY).delete("b")
        bench.items(container, KEY).create(item("c", mail="x", ttl=1))
        bench.clock.now += 2
        assert bench.items(container, KEY).create(item("d", mail="x")).status == 201


class TestBatch:
    def test_all_kinds_of_operations_see_the_ones_before(self, bench: Bench) -> None:
        container = bench.container()
        patch: Json = {"operations": [{"op": "incr", "path": "/n", "value": 1}], "condition": "from c where c.n = 1"}
        outcome = bench.items(container, KEY).batch(
            [
                {"operationType": "Create", "resourceBody": item("a", n=1)},
                {"operationType": "Upsert", "resourceBody": item("b")},
                {"operationType": "Upsert", "resourceBody": item("b", n=2)},
                {"operationType": "Replace", "id": "b", "resourceBody": item("b", n=3)},
                {"operationType": "Patch", "id": "a", "resourceBody": patch},
                {"operationType": "Read", "id": "a"},
                {"operationType": "Delete", "id": "b"},
            ],
        )
        assert [result.status for result in outcome.results] == [201, 201, 200, 200, 200, 200, 204]
        assert stored(outcome.results[5])["n"] == 2
        assert outcome.charge == round(math.fsum(result.charge for result in outcome.results), 2)
        assert ids(bench, container) == ["a"]

    @pytest.mark.parametrize(
        ("operation", "status"),
        [
            ({"operationType": "Create", "resourceBody": item("there")}, 409),
            ({"operationType": "Replace", "id": "there", "resourceBody": item("there"), "ifMatch": '"stale"'}, 412),
            ({"operationType": "Delete", "id": "there", "ifMatch": '"stale"'}, 412),
            ({"operationType": "Read", "id": "missing"}, 404),
            ({"operationType": "Create", "resourceBody": {"id": "x", "pk": "other"}}, 400),
            ({"operationType": "Create", "resourceBody": item("x", ttl=0)}, 400),
            ({"operationType": "Create", "id": "x"}, 400),
            ({"operationType": "Delete"}, 400),
            ({"operationType": "Drop", "id": "there"}, 400),
            ("Create", 400),
        ],
    )
    def test_r31_failing_operation_has_its_status_others_424_and_nothing_is_left(
        self, bench: Bench, operation: Json, status: int
    ) -> None:
        container = bench.container()
        bench.items(container, KEY).create(item("there"))
        first: Json = {"operationType": "Create", "resourceBody": item("new")}
        last: Json = {"operationType": "Create", "resourceBody": item("newer")}
        outcome = bench.items(container, KEY).batch([first, operation, last])
        assert [result.status for result in outcome.results] == [424, status, 424]
        assert all(not result.body for result in outcome.results)
        assert ids(bench, container) == ["there"]

    def test_failed_batch_leaves_no_trace_in_the_change_feed(self, bench: Bench) -> None:
        container = bench.container()
        bench.items(container, KEY).create(item("there"))
        before = bench.store.lsn
        create: Json = {"operationType": "Create", "resourceBody": item("there")}
        bench.items(container, KEY).batch([create])
        assert bench.store.lsn == before

    @pytest.mark.parametrize(
        ("operations", "text"),
        [
            ([], "no operations"),
            ({}, "no operations"),
            ([{"operationType": "Read", "id": "a"}] * 101, "more operations than what is supported"),
        ],
    )
    def test_r31_batch_of_no_or_101_operations_is_refused_as_a_whole(
        self, bench: Bench, operations: Json, text: str
    ) -> None:
        with pytest.raises(CosmosError, match=text) as refused:
            bench.items(bench.container(), KEY).batch(operations)
        assert refused.value.status == 400

    def test_all_writes_of_a_batch_have_one_lsn(self, bench: Bench) -> None:
        container = bench.container()
        creates: Json = [{"operationType": "Create", "resourceBody": item(str(at))} for at in range(5)]
        bench.items(container, KEY).batch(creates)
        assert len({row.lsn for row in bench.store.scan(container)}) == 1


def test_document_that_grows_over_2_mib_is_413(bench: Bench) -> None:
    container = bench.container()
    bench.items(container, KEY).create(item(text="x" * 1_500_000))
    patch = Patch.read([{"op": "add", "path": "/more", "value": "x" * 700_000}])
    with pytest.raises(CosmosError) as refused:
        bench.items(container, KEY).patch("a", patch)
    assert status_of(refused) == (413, 0)
