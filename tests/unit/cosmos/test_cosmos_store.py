"""The file: what was acknowledged stays, whatever happens to the process; one process at a time."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cosmos_bench import Bench, Clock

from local.cosmos.definition import DatabaseSpec, container_spec
from local.cosmos.feed import read_changes
from local.cosmos.items import Items
from local.cosmos.partition import Range, key_of
from local.cosmos.resources import Resources
from local.cosmos.store import Store, StoreError

ROOT = Path(__file__).parents[3]
KEY = key_of("p")
WHOLE = Range("", "", "FF")
SPEC = DatabaseSpec("db", (container_spec({"id": "things", "partitionKey": {"paths": ["/pk"], "version": 2}}),))


def opened(path: Path) -> Store:
    store = Store(path, Clock())
    Resources(store).ensure([SPEC])
    return store


def test_acknowledged_write_survives_kill_minus_nine(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_cosmos_store import KEY, opened
        from local.cosmos.items import Items
        store = opened(Path(sys.argv[1]))
        items = Items(store, "Session", store.databases["db"].containers["things"], KEY)
        for number in range(100000):
            items.create({{"id": str(number), "pk": "p"}})
            print(number, flush=True)
    """)
    path = tmp_path / "cosmos.db"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(200)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    store = opened(path)
    kept = [int(row.id) for row in store.scan(store.databases["db"].containers["things"])]
    store.close()
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) <= len(acknowledged) + 1


def test_second_process_on_one_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cosmos.db"
    store = opened(path)
    with pytest.raises(StoreError, match=r"cosmos\.db: another process has it open"):
        Store(path, Clock())
    store.close()
    opened(path).close()


def test_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cosmos.db"
    path.write_text("something else " * 100, encoding="utf-8")
    with pytest.raises(StoreError, match=r"cosmos\.db"):
        Store(path, Clock())


@pytest.mark.parametrize("name", ["", "missing/cosmos.db", "a\0b"])
def test_a_place_where_no_file_can_be_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match=re.escape(str(tmp_path / name))):
        Store(tmp_path / name, Clock())


def test_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cosmos.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="format 99"):
        Store(path, Clock())


def test_catalogue_and_items_are_there_again_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "cosmos.db"
    store = opened(path)
    container = store.databases["db"].containers["things"]
    made = Items(store, "Session", container, KEY).create({"id": "a", "pk": "p"})
    store.close()
    again = opened(path)
    found = again.databases["db"].containers["things"]
    assert (found.rid, found.spec) == (container.rid, container.spec)
    assert Items(again, "Session", found, KEY).read("a").etag == made.etag
    again.close()


def test_throughput_of_a_database_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "cosmos.db"
    store = opened(path)
    assert store.databases["db"].throughput == 0
    with store.write() as write:
        write.create_database("shared", 1000)
        write.replace_database(store.databases["shared"], 2000)
    store.close()
    again = opened(path)
    assert again.databases["shared"].throughput == 2000
    again.close()


def test_numbers_and_lsns_are_never_used_twice(tmp_path: Path) -> None:
    path = tmp_path / "cosmos.db"
    seen: set[str | None] = set()
    last = 0
    for _ in range(2):
        store = opened(path)
        items = Items(store, "Session", store.databases["db"].containers["things"], KEY)
        etag = items.create({"id": "a", "pk": "p"}).etag
        items.delete("a")
        assert etag not in seen
        assert store.lsn > last
        seen.add(etag)
        for _ in range(1100):
            items.create({"id": "a", "pk": "p"})
            items.delete("a")
        last = store.lsn
        store.close()


def test_catalogue_that_was_not_committed_is_forgotten(bench: Bench) -> None:
    def fail_half_way() -> None:
        with bench.store.write() as write:
            write.create_database("lost")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert list(bench.store.databases) == []


def test_query_of_one_key_does_not_walk_the_container(bench: Bench) -> None:
    container = bench.container()
    seen: list[str] = []
    bench.store._db.set_trace_callback(seen.append)
    list(bench.store.scan(container, pk=KEY.text))
    bench.store._db.set_trace_callback(None)
    [plan] = bench.store._db.execute(f"EXPLAIN QUERY PLAN {seen[0]}").fetchall()[:1]
    assert "(container=? AND pk=?)" in plan[3]


def test_container_made_anew_has_another_rid_and_no_items(bench: Bench) -> None:
    container = bench.container()
    bench.items(container, KEY).create({"id": "a", "pk": "p"})
    Resources(bench.store).delete_container(container)
    anew = bench.container()
    assert anew.rid != container.rid
    assert list(bench.store.scan(anew)) == []


def test_change_feed_gives_each_item_once_at_its_last_write(bench: Bench) -> None:
    container = bench.container()
    for name in ("a", "b", "c", "a"):
        bench.items(container, KEY).upsert({"id": name, "pk": "p"})
    bench.items(container, KEY).delete("b")
    changes = read_changes(bench.store, container, WHOLE, size=10, if_none_match=None, if_modified_since=None)
    assert [body.split(b",")[0] for body in changes.items] == [b'{"id":"c"', b'{"id":"a"']
    nothing = read_changes(bench.store, container, WHOLE, size=10, if_none_match=changes.etag, if_modified_since=None)
    assert nothing.items == []
    assert nothing.etag == changes.etag


def test_change_feed_page_never_ends_within_a_batch(bench: Bench) -> None:
    container = bench.container()
    bench.items(container, KEY).create({"id": "first", "pk": "p"})
    creates = [{"operationType": "Create", "resourceBody": {"id": str(at), "pk": "p"}} for at in range(5)]
    bench.items(container, KEY).batch(creates)  # type: ignore[arg-type]
    sizes, etag = [], None
    while True:
        page = read_changes(bench.store, container, WHOLE, size=2, if_none_match=etag, if_modified_since=None)
        if not page.items:
            break
        sizes.append(len(page.items))
        etag = page.etag
    assert sizes == [6]


def test_change_feed_starts_now_or_at_a_time(bench: Bench) -> None:
    container = bench.container()
    bench.items(container, KEY).create({"id": "old", "pk": "p"})
    now = read_changes(bench.store, container, WHOLE, size=9, if_none_match="*", if_modified_since=None)
    assert now.items == []
    bench.clock.now += 100
    bench.items(container, KEY).create({"id": "new", "pk": "p"})
    for start in ({"if_none_match": now.etag, "if_modified_since": None},
                  {"if_none_match": None, "if_modified_since": "Fri, 15 Jan 2027 08:00:30 GMT"}):  # fmt: skip
        page = read_changes(bench.store, container, WHOLE, size=9, **start)
        assert [b'"id":"new"' in body for body in page.items] == [True]
