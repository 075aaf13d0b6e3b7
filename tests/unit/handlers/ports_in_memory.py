"""Database, clock and randomness without I/O: each call of a port is one `Io` that whoever drives the handlers lets
happen, or not, or happen without an answer.

Nothing here knows of faults or of order; nothing here waits.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from shared.handlers.sweep import HELD, PARTITIONS, UNFINISHED, UNFINISHED_SINCE
from shared.ports import (
    Committed,
    Conflict,
    Container,
    Create,
    Delete,
    Found,
    Json,
    Operation,
    Page,
    PatchSet,
    Rejected,
    Replace,
    Stale,
    Written,
)

T = TypeVar("T")

EPOCH = 1_800_000_000.0
PARTITION_KEYS = {
    Container.ORDERS: "orderId",
    Container.LEDGERS: "ledgerId",
    Container.LEDGER_ENTRIES: "orderId",
    Container.OPERATIONS: "sessionId",
}


@dataclass(frozen=True, slots=True)
class Io(Generic[T]):
    """One call of a port. `perform` makes it happen and gives its answer; `write`: it changes something."""

    label: str
    perform: Callable[[], T]
    write: bool

    def __await__(self) -> Generator[Io[T], T, T]:
        return (yield self)


@dataclass(frozen=True, slots=True)
class Sleep:
    """A wait of the handlers."""

    seconds: float

    def __await__(self) -> Generator[Sleep, None, None]:
        yield self


@dataclass(slots=True)
class Row:
    """A stored document."""

    document: dict[str, Any]
    etag: str
    ts: int


class Store:
    """Documents by container, partition and id; every write is atomic and gives a new ETag."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._version = 0
        self.rows: dict[tuple[Container, str, str], Row] = {}

    def find(self, container: Container, partition: str, document_id: str) -> Row | None:
        row = self.rows.get((container, partition, document_id))
        if row is None:
            return None
        ttl = row.document.get("ttl")
        if ttl is not None and self._clock() > row.ts + ttl:
            del self.rows[container, partition, document_id]
            return None
        return row

    def put(self, container: Container, document: Mapping[str, object]) -> str:
        self._version += 1
        partition = str(document[PARTITION_KEYS[container]])
        etag = f'"{self._version}"'
        copy = json.loads(json.dumps(document))
        self.rows[container, partition, str(document["id"])] = Row(copy, etag, int(self._clock()))
        return etag

    def batch(
        self, container: Container, partition: str, operations: Sequence[Operation]
    ) -> Committed | Rejected:
        before = dict(self.rows)
        etags = []
        for index, operation in enumerate(operations):
            status, etag = self._apply(container, partition, operation)
            if status >= 400:
                self.rows = before
                return Rejected(index, status)
            etags.append(etag)
        return Committed(tuple(etags))

    def _apply(self, container: Container, partition: str, operation: Operation) -> tuple[int, str]:
        document_id = (
            str(operation.document["id"]) if isinstance(operation, Create | Replace) else operation.id
        )
        row = self.find(container, partition, document_id)
        match operation:
            case Create(document=document):
                return (409, "") if row else (201, self.put(container, document))
            case Replace(document=document, etag=etag):
                if row is None or row.etag != etag:
                    return (412 if row else 404), ""
                return 200, self.put(container, document)
            case Delete():
                if row is None:
                    return 404, ""
                del self.rows[container, partition, document_id]
                return 204, ""
            case PatchSet(members=members):
                if row is None:
                    return 404, ""
                return 200, self.put(container, {**row.document, **members})

    def select(self, container: Container, text: str, parameters: Json) -> list[Json]:
        """The sweep's queries, by what they ask."""
        rows = [row for (name, _, _), row in list(self.rows.items()) if name is container]
        if text == HELD:
            return [{**row.document, "_ts": row.ts} for row in rows if row.document.get("status") == "held"]
        partition = PARTITIONS[container]
        unfinished = [
            row
            for row in rows
            if row.document.get("record", {}).get("status") in ("effect", "accepted")
            and (row.document["record"].get("effect") or {}).get("status") != "parked"
        ]
        if text == UNFINISHED_SINCE:
            records = [row.document["record"] for row in unfinished]
            # As the database does, a row leaves out a member that is not there.
            return [{name: record[name] for name in ("enqueuedAt",) if name in record} for record in records]
        if text != UNFINISHED.format(partition=partition):
            raise AssertionError(f"a query that the simulation does not know: {text}")
        before = parameters["@before"]
        return [
            {"id": row.document["id"], partition: row.document[partition]}
            for row in unfinished
            if row.ts < int(str(before))
        ]


class SimulatedDocuments:
    """Documents on a Store."""

    def __init__(self, store: Store, clock: Callable[[], float], page_items: int = 1000) -> None:
        self._store = store
        self._clock = clock
        self._page_items = page_items

    async def read(self, container: Container, partition: str, document_id: str) -> Found | None:
        def perform() -> Found | None:
            row = self._store.find(container, partition, document_id)
            return None if row is None else Found(row.document, row.etag, row.ts, int(self._clock()))

        return await Io(f"read {container}/{document_id}", perform, write=False)

    async def create(self, container: Container, document: Json) -> Written | Conflict:
        def perform() -> Written | Conflict:
            answer = self._store.batch(container, _partition(container, document), [Create(document)])
            return Written(answer.etags[0]) if isinstance(answer, Committed) else Conflict()

        return await Io(f"create {container}/{document['id']}", perform, write=True)

    async def replace(self, container: Container, document: Json, etag: str) -> Written | Stale:
        def perform() -> Written | Stale:
            answer = self._store.batch(container, _partition(container, document), [Replace(document, etag)])
            return Written(answer.etags[0]) if isinstance(answer, Committed) else Stale()

        return await Io(f"replace {container}/{document['id']}", perform, write=True)

    async def delete(self, container: Container, partition: str, document_id: str, etag: str) -> Written | Stale:
        def perform() -> Written | Stale:
            row = self._store.find(container, partition, document_id)
            if row is None or row.etag != etag:
                return Stale()
            self._store.batch(container, partition, [Delete(document_id)])
            return Written("")

        return await Io(f"delete {container}/{document_id}", perform, write=True)

    async def batch(
        self, container: Container, partition: str, operations: Sequence[Operation]
    ) -> Committed | Rejected:
        def perform() -> Committed | Rejected:
            return self._store.batch(container, partition, operations)

        return await Io(f"batch {container}/{partition} ({len(operations)})", perform, write=True)

    async def query(self, container: Container, text: str, parameters: Json) -> AsyncIterator[Page]:
        told: set[str] = set()
        more = True

        def perform() -> Page:
            """The next rows, as they are now."""
            nonlocal more
            rows = [row for row in self._store.select(container, text, parameters) if json.dumps(row) not in told]
            more = len(rows) > self._page_items
            items = tuple(rows[: self._page_items])
            told.update(json.dumps(row) for row in items)
            return Page(items, int(self._clock()))

        while more:
            yield await Io(f"query {container}", perform, write=False)


@dataclass(slots=True)
class VirtualClock:
    """Time that passes when the scheduler says so."""

    seconds: float = EPOCH

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await Sleep(seconds)


@dataclass(slots=True)
class SeededTokens:
    """Tokens and fractions from a seed."""

    source: random.Random = field(default_factory=random.Random)

    def token(self) -> str:
        return f"{self.source.getrandbits(128):032x}"

    def fraction(self) -> float:
        return self.source.random()


def _partition(container: Container, document: Json) -> str:
    return str(document[PARTITION_KEYS[container]])
