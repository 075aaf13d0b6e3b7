"""What every implementation of the port Documents must do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.handlers.sweep import HELD, UNFINISHED, UNFINISHED_SINCE
from shared.ports import (
    Committed,
    Conflict,
    Container,
    Create,
    Delete,
    Documents,
    Found,
    PatchSet,
    Rejected,
    Replace,
    Stale,
    Written,
)

ORDERS = Container.ORDERS


def order(document_id: str = "ORD-1", order_id: str = "ORD-1", **members: Any) -> dict[str, Any]:
    return {"id": document_id, "type": "order", "v": 1, "orderId": order_id, **members}


async def created(documents: Documents, document: dict[str, Any]) -> str:
    answer = await documents.create(ORDERS, document)
    assert isinstance(answer, Written)
    return answer.etag


async def found(documents: Documents, document_id: str = "ORD-1", partition: str = "ORD-1") -> Found:
    answer = await documents.read(ORDERS, partition, document_id)
    assert answer is not None
    return answer


class DocumentsContract:
    """Subclasses give the fixture `documents`: an empty database with the containers of the project."""

    async def test_document_that_is_not_there_is_none(self, documents: Documents) -> None:
        assert await documents.read(ORDERS, "ORD-1", "ORD-1") is None

    async def test_created_document_is_read_as_it_was_written(self, documents: Documents) -> None:
        """C36: whatever JSON holds: all of Unicode, large and small numbers, null, nesting, empty containers."""
        text = 'é e\u0301 \U0001f600 \u2028 " \\ /'
        numbers = [0, -1, 2**53 - 1, 0.1, 1e-7]
        document = order(text=text, numbers=numbers, nothing=None, deep={"a": [{}, []]})
        etag = await created(documents, document)
        read = await found(documents)
        assert {name: read.document[name] for name in document} == document
        assert read.etag == etag
        assert abs(read.read_at - read.written_at) <= 2

    async def test_second_create_of_an_id_is_a_conflict_and_changes_nothing(self, documents: Documents) -> None:
        """C16 C17 C37: the only arbiter of who was first."""
        etag = await created(documents, order(state="open"))
        assert await documents.create(ORDERS, order(state="other")) == Conflict()
        read = await found(documents)
        assert (read.etag, read.document["state"]) == (etag, "open")

    async def test_of_concurrent_creates_one_wins(self, documents: Documents) -> None:
        """C16: N at once."""
        answers = await asyncio.gather(*(documents.create(ORDERS, order(n=n)) for n in range(20)))
        assert sum(isinstance(answer, Written) for answer in answers) == 1
        assert sum(isinstance(answer, Conflict) for answer in answers) == 19

    async def test_id_is_unique_in_its_partition_only(self, documents: Documents) -> None:
        """C35 D19: the same id under another partition key is another document."""
        await created(documents, order("same", "A"))
        await created(documents, order("same", "B"))
        assert (await found(documents, "same", "A")).document["orderId"] == "A"

    async def test_containers_are_apart(self, documents: Documents) -> None:
        """C12: what one consumer stores is not seen by another."""
        await created(documents, order())
        assert isinstance(await documents.create(Container.LEDGER_ENTRIES, order()), Written)
        assert await documents.read(Container.OPERATIONS, "ORD-1", "ORD-1") is None

    async def test_replace_needs_the_current_etag(self, documents: Documents) -> None:
        """C47 D32: exactly one record changes, or none."""
        first = await created(documents, order(n=1))
        answer = await documents.replace(ORDERS, order(n=2), first)
        assert isinstance(answer, Written)
        assert answer.etag not in ("", first)
        assert await documents.replace(ORDERS, order(n=3), first) == Stale()
        read = await found(documents)
        assert (read.document["n"], read.etag) == (2, answer.etag)

    async def test_replace_of_what_is_gone_is_stale(self, documents: Documents) -> None:
        etag = await created(documents, order())
        assert isinstance(await documents.delete(ORDERS, "ORD-1", "ORD-1", etag), Written)
        assert await documents.replace(ORDERS, order(), etag) == Stale()
        assert await documents.read(ORDERS, "ORD-1", "ORD-1") is None

    async def test_delete_needs_the_current_etag(self, documents: Documents) -> None:
        """D44: nobody deletes what a newer owner holds."""
        first = await created(documents, order(n=1))
        answer = await documents.replace(ORDERS, order(n=2), first)
        assert isinstance(answer, Written)
        assert await documents.delete(ORDERS, "ORD-1", "ORD-1", first) == Stale()
        assert isinstance(await documents.delete(ORDERS, "ORD-1", "ORD-1", answer.etag), Written)
        assert await documents.delete(ORDERS, "ORD-1", "ORD-1", answer.etag) == Stale()

    async def test_batch_commits_all_operations(self, documents: Documents) -> None:
        """C42: one ETag an operation, in order; empty for a delete."""
        old, gone = await created(documents, order("old", n=1)), await created(documents, order("gone"))
        await created(documents, order("patched", status="held", kept=True))
        answer = await documents.batch(
            ORDERS,
            "ORD-1",
            [
                Create(order("new")),
                PatchSet("patched", {"status": "applied", "position": 7}),
                Replace(order("old", n=2), old),
                Delete("gone"),
            ],
        )
        assert isinstance(answer, Committed)
        assert answer.etags[3] == ""
        for index, name in enumerate(("new", "patched", "old")):
            assert (await found(documents, name)).etag == answer.etags[index]
        patched = (await found(documents, "patched")).document
        assert (patched["status"], patched["position"], patched["kept"]) == ("applied", 7, True)
        assert await documents.read(ORDERS, "ORD-1", "gone") is None
        assert gone

    @pytest.mark.parametrize(
        ("operations", "rejected"),
        [
            ([Create(order("taken")), Create(order("new"))], Rejected(0, 409)),
            ([Create(order("new")), Create(order("taken"))], Rejected(1, 409)),
            ([Create(order("new")), Replace(order("taken"), '"0000"')], Rejected(1, 412)),
            ([Create(order("new")), Replace(order("missing"), '"0000"')], Rejected(1, 404)),
            ([Create(order("new")), PatchSet("missing", {"a": 1})], Rejected(1, 404)),
            ([Create(order("new")), Delete("missing"), Create(order("taken"))], Rejected(1, 404)),
        ],
        ids=str,
    )
    async def test_refused_batch_names_the_operation_and_commits_nothing(
        self, documents: Documents, operations: list[Any], rejected: Rejected
    ) -> None:
        """C14 C42 C49: all or nothing; the first refusal is the cause."""
        etag = await created(documents, order("taken"))
        assert await documents.batch(ORDERS, "ORD-1", operations) == rejected
        assert await documents.read(ORDERS, "ORD-1", "new") is None
        assert (await found(documents, "taken")).etag == etag

    async def test_batch_takes_a_hundred_operations(self, documents: Documents) -> None:
        answer = await documents.batch(ORDERS, "ORD-1", [Create(order(f"d-{n}")) for n in range(100)])
        assert isinstance(answer, Committed)
        assert len(answer.etags) == 100

    async def test_query_of_the_unfinished_goes_over_all_partitions_and_pages(self, documents: Documents) -> None:
        """C15: the sweep finds what is unfinished wherever it is; parked effects and what is too young stay out."""
        for n in range(230):
            status = ("completed", "accepted", "effect")[n % 3]
            effect = {"status": "parked" if n % 2 else "in_progress"} if status == "effect" else None
            await created(documents, order(f"d-{n}", f"ORD-{n}", record={"status": status, "effect": effect}))
        text = UNFINISHED.format(partition="orderId")
        wanted = {f"d-{n}" for n in range(230) if n % 3 == 1 or (n % 3 == 2 and n % 2 == 0)}
        now = (await found(documents, "d-0", "ORD-0")).read_at
        pages = [page async for page in documents.query(ORDERS, text, {"@before": now + 100})]
        rows = [row for page in pages for row in page.items]
        assert {row["id"] for row in rows} == wanted
        assert len(rows) == len(wanted)
        assert all(row == {"id": row["id"], "orderId": str(row["id"]).replace("d-", "ORD-")} for row in rows)
        assert all(page.read_at >= now for page in pages)
        assert [row async for page in documents.query(ORDERS, text, {"@before": now - 100}) for row in page.items] == []

    async def test_query_of_ages_counts_what_is_unfinished(self, documents: Documents) -> None:
        """C55: a parked effect waits for a person, and has an alert of its own."""
        for n, status in enumerate(("completed", "accepted", "effect", "effect")):
            effect = {"status": "parked" if n == 2 else "in_progress"} if status == "effect" else None
            record = {"status": status, "effect": effect, "enqueuedAt": f"2026-11-30T12:00:0{n}.000Z"}
            await created(documents, order(f"d-{n}", record=record))
        rows = [row async for page in documents.query(ORDERS, UNFINISHED_SINCE, {}) for row in page.items]
        assert sorted(str(row["enqueuedAt"])[17:19] for row in rows) == ["01", "03"]

    async def test_query_of_held_entries_says_what_waits_since_when(self, documents: Documents) -> None:
        """C65 D47: order, stream, number and time."""
        for n, status in enumerate(("applied", "held", "refused")):
            entry = order(f"e-{n}", stream="order", sequence=n, status=status)
            assert isinstance(await documents.create(Container.LEDGER_ENTRIES, entry), Written)
        pages = [page async for page in documents.query(Container.LEDGER_ENTRIES, HELD, {})]
        (row,) = [row for page in pages for row in page.items]
        assert (row["orderId"], row["stream"], row["sequence"], type(row["_ts"])) == ("ORD-1", "order", 1, int)

    async def test_query_that_finds_nothing_has_a_page_with_the_time(self, documents: Documents) -> None:
        """D59: the sweep counts from the server's clock."""
        pages = [page async for page in documents.query(Container.LEDGER_ENTRIES, HELD, {})]
        assert pages
        assert all(page.items == () and page.read_at > 0 for page in pages)
