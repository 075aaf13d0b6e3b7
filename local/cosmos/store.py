"""The database file: databases, containers, items and their order, in one SQLite file or in memory.

Every write is one SQLite transaction in WAL mode, so what was acknowledged survives the death of the process, and a
batch is there as a whole or not at all. The file is locked while it is open: a second process is refused.
Two counters give order: `number` (one per written version: ETags and insertion order) and `lsn` (one per transaction:
change feed, session tokens). Neither is ever used twice, whatever is deleted: the file holds a number that both are
below, moved on by a thousand when it is reached, and a file that is opened again goes on from there.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from local.cosmos.catalogue import Container, Database, bytes_of_rid
from local.cosmos.definition import DEFAULT_THROUGHPUT, RU_PER_PARTITION, ContainerSpec, container_spec
from local.cosmos.lag import Lag, Place
from local.cosmos.partition import Range
from local.cosmos.values import Document, dump, parse, parse_stored

_FORMAT = 2
_PURGE_SECONDS = 60
_RESERVE = 1000
_SCHEMA = """
CREATE TABLE counters (reserved INTEGER NOT NULL);
INSERT INTO counters VALUES (0);
CREATE TABLE databases (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, rid BLOB NOT NULL UNIQUE,
    version INTEGER NOT NULL, ts INTEGER NOT NULL, throughput INTEGER NOT NULL);
CREATE TABLE containers (number INTEGER PRIMARY KEY AUTOINCREMENT, database INTEGER NOT NULL, id TEXT NOT NULL,
    body BLOB NOT NULL, partitions INTEGER NOT NULL, throughput INTEGER NOT NULL, version INTEGER NOT NULL,
    ts INTEGER NOT NULL, UNIQUE (database, id));
CREATE TABLE items (sequence INTEGER PRIMARY KEY, container INTEGER NOT NULL, pk TEXT NOT NULL, id TEXT NOT NULL,
    epk TEXT NOT NULL, version INTEGER NOT NULL, ts INTEGER NOT NULL, ttl INTEGER, lsn INTEGER NOT NULL,
    body BLOB NOT NULL, UNIQUE (container, pk, id));
CREATE INDEX items_in_order ON items (container, sequence);
CREATE INDEX items_by_change ON items (container, lsn);
CREATE INDEX items_with_ttl ON items (container, ttl) WHERE ttl > 0;
CREATE TABLE uniques (container INTEGER NOT NULL, pk TEXT NOT NULL, value TEXT NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (container, pk, value)) WITHOUT ROWID;
"""
_ROW = "SELECT sequence, pk, id, epk, version, ts, ttl, lsn, body FROM items "
# TTL: off without a default; an item's own value wins; -1 is for ever (section "TTL" of the service's documentation).
_ALIVE = " AND (:ttl IS NULL OR coalesce(ttl, :ttl) < 0 OR ts + coalesce(ttl, :ttl) > :now) "
_GET = _ROW + "WHERE container = :container AND pk = :pk AND id = :id" + _ALIVE
_SCAN = _ROW + "WHERE container = :container AND sequence >= :from AND epk >= :start AND epk < :end" + _ALIVE
_SCAN += "ORDER BY sequence"
# The + keeps SQLite from walking the whole container in order instead of the items of the key.
_SCAN_KEY = _ROW + "WHERE container = :container AND pk = :pk AND +sequence >= :from" + _ALIVE + "ORDER BY +sequence"
_CHANGES = _ROW + "WHERE container = :container AND lsn > :lsn AND ts >= :since AND epk >= :start AND epk < :end"
_CHANGES += _ALIVE + "ORDER BY lsn, sequence"
_USAGE = "SELECT count(*), coalesce(sum(length(body)), 0) FROM items "
_USAGE += "WHERE container = :container AND epk >= :start AND epk < :end" + _ALIVE
_EXPIRED = "(ttl > 0 AND ts + ttl <= :now)"
_EXPIRED_BY_DEFAULT = "(ts + coalesce(ttl, :ttl) <= :now AND coalesce(ttl, :ttl) > 0)"


class StoreError(Exception):
    """The file can't be used; the text names it and says why."""


class ConflictError(Exception):
    """The id, or a unique key, is taken."""


class Row(NamedTuple):
    """An item as it is kept; `body` is the JSON that clients get, with the system properties."""

    sequence: int
    pk: str
    id: str
    epk: str
    version: int
    ts: int
    ttl: int | None
    lsn: int
    body: bytes


class Store:
    """One writer: all calls come from one thread at a time, and each write is one `with store.write(...)`."""

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._db = _open(path)
        [reserved] = self._db.execute("SELECT reserved FROM counters").fetchone()
        self.reserved: int = reserved
        self.lsn: int = reserved
        self.number: int = reserved
        self.databases: dict[str, Database] = {}
        self.lag: Lag | None = None
        self.load()

    def load(self) -> None:
        """Read the catalogue from the file."""
        self.databases.clear()
        by_number: dict[int, Database] = {}
        databases = "SELECT number, id, rid, version, ts, throughput FROM databases ORDER BY number"
        for row in self._db.execute(databases):
            by_number[row[0]] = self.databases[row[1]] = Database(*row)
        containers = (
            "SELECT number, database, body, partitions, throughput, version, ts FROM containers ORDER BY number"
        )
        for number, database, body, *rest in self._db.execute(containers):
            container = Container(number, by_number[database], container_spec(parse(body, "container")), *rest)
            container.database.containers[container.id] = container

    def close(self) -> None:
        self._db.close()

    def now(self) -> int:
        return int(self._clock())

    def etag(self, version: int, database: Database) -> str:
        """Differs between files and between databases, so a stale one never fits by chance."""
        return f'"{database.rid_bytes.hex()}-0000-0000-{version >> 48:04x}-{version & (1 << 48) - 1:012x}"'

    def write(self, container: Container | None = None) -> Write:
        return Write(self, self._db, container)

    def get(self, container: Container, pk: str, item_id: str) -> Row | None:
        found = self._db.execute(_GET, self._bound(container, pk=pk, id=item_id)).fetchone()
        row = None if found is None else Row._make(found)
        if self.lag is not None and self.lag.is_read:
            return self.lag.read(Place(container.number, pk, item_id), row)
        return row

    def id_of(self, container: Container, rid: str) -> str | None:
        """The id behind an item's resource id."""
        sequence = int.from_bytes((bytes_of_rid(rid) or b"")[8:], "little")
        where = {"container": container.number, "sequence": sequence}
        sql = "SELECT id FROM items WHERE container = :container AND sequence = :sequence"
        row = self._db.execute(sql, where).fetchone()
        return None if row is None else str(row[0])

    def usage(self, container: Container, where: Range) -> tuple[int, int]:
        """How many living items there are in a range of EPKs, and how many bytes they have."""
        bound = self._bound(container, start=where.start, end=where.end)
        count, size = self._db.execute(_USAGE, bound).fetchone()
        return count, size

    def scan(
        self, container: Container, *, start: str = "", end: str = "FF", pk: str | None = None, sequence: int = 0
    ) -> Iterator[Row]:
        """Living items in insertion order, from a sequence on, of one key or of a range of EPKs."""
        bound = self._bound(container, pk=pk, start=start, end=end) | {"from": sequence}
        return map(Row._make, self._db.execute(_SCAN if pk is None else _SCAN_KEY, bound))

    def changes(self, container: Container, *, lsn: int, since: int, start: str, end: str) -> Iterator[Row]:
        """Living items in the order of their last write, behind an lsn and not before a time."""
        bound = self._bound(container, lsn=lsn, since=since, start=start, end=end)
        return map(Row._make, self._db.execute(_CHANGES, bound))

    def _bound(self, container: Container, **values: object) -> dict[str, object]:
        return {"container": container.number, "ttl": container.spec.default_ttl, "now": self._clock(), **values}


class Write:
    """One transaction. Left without an exception it is committed; otherwise nothing of it ever was."""

    def __init__(self, store: Store, db: sqlite3.Connection, container: Container | None) -> None:
        self._store = store
        self._db = db
        self._container = container
        self._changed = False
        self._former: dict[Place, Row | None] = {}
        self.lsn = store.lsn + 1
        self.number = store.number
        self.now = store.now()

    def __enter__(self) -> Write:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            container = self._container
            if container is not None and (self.now >= container.purge_at or container.spec.unique_keys):
                self.purge(container)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._commit()
        finally:
            if self._db.in_transaction:  # refused, failed, or the commit itself failed, such as on a full disk
                self._db.execute("ROLLBACK")
                if self._container is None:
                    self._store.load()

    def _commit(self) -> None:
        store, reserved = self._store, self._store.reserved
        if self._changed and self.number > reserved:
            reserved = self.number + _RESERVE
            self._db.execute("UPDATE counters SET reserved = ?", (reserved,))
        self._db.execute("COMMIT")
        if self._changed:
            store.lsn, store.number, store.reserved = self.lsn, self.number, reserved
        if store.lag is not None:
            for place, row in self._former.items():
                store.lag.note(place, row, self.lsn)

    def next_number(self) -> int:
        self._changed = True
        self.number += 1
        return self.number

    def get(self, container: Container, pk: str, item_id: str) -> Row | None:
        return self._store.get(container, pk, item_id)

    def insert(self, container: Container, row: Row, unique: Sequence[str] = ()) -> None:
        try:
            self._insert(container, row)
        except sqlite3.IntegrityError:
            # An expired item that is still in the file does not hold its id any more.
            if self.get(container, row.pk, row.id) is not None:
                raise ConflictError(row.id) from None
            self._delete_by_id(container, row.pk, row.id)
            self._insert(container, row)
        self._claim(container, row, unique)
        self._note_former(container, row, None)

    def update(self, container: Container, old: Row, row: Row, unique: Sequence[str] = ()) -> None:
        """Write a new version of an item, perhaps under another id."""
        if old.id != row.id and self.get(container, row.pk, row.id) is None:
            self._delete_by_id(container, row.pk, row.id)
        try:
            self._db.execute(
                "UPDATE items SET id = ?, version = ?, ts = ?, ttl = ?, lsn = ?, body = ? WHERE sequence = ?",
                (row.id, row.version, row.ts, row.ttl, row.lsn, row.body, row.sequence),
            )
        except sqlite3.IntegrityError:
            raise ConflictError(row.id) from None
        self._release(container, row)
        self._claim(container, row, unique)
        self._note_former(container, old, old)
        if old.id != row.id:
            self._note_former(container, row, None)

    def delete(self, container: Container, row: Row) -> None:
        self.next_number()  # keeps lsn from overtaking number
        self._db.execute("DELETE FROM items WHERE sequence = ?", (row.sequence,))
        self._release(container, row)
        self._note_former(container, row, row)

    def delete_key(self, container: Container, pk: str) -> None:
        self.next_number()  # keeps lsn from overtaking number
        self._db.execute("DELETE FROM items WHERE container = ? AND pk = ?", (container.number, pk))
        self._db.execute("DELETE FROM uniques WHERE container = ? AND pk = ?", (container.number, pk))

    def purge(self, container: Container) -> None:
        """Take out of the file what has expired. Nobody sees it any more; this is for space and for unique keys."""
        container.purge_at = self.now + _PURGE_SECONDS
        ttl = container.spec.default_ttl
        if ttl is None:
            return
        bound = {"container": container.number, "now": self._store._clock(), "ttl": ttl}
        expired = _EXPIRED if ttl < 0 else _EXPIRED_BY_DEFAULT
        self._db.execute(f"DELETE FROM items WHERE container = :container AND {expired}", bound)  # noqa: S608 - constants
        if container.spec.unique_keys:
            self._db.execute(
                "DELETE FROM uniques WHERE container = :container"
                " AND sequence NOT IN (SELECT sequence FROM items WHERE container = :container)",
                bound,
            )

    def create_database(self, database_id: str, throughput: int = 0) -> Database:
        if database_id in self._store.databases:
            raise ConflictError(database_id)
        rid, version = os.urandom(4), self.next_number()
        made = self._db.execute(
            "INSERT INTO databases (id, rid, version, ts, throughput) VALUES (?, ?, ?, ?, ?)",
            (database_id, rid, version, self.now, throughput),
        )
        database = Database(made.lastrowid or 0, database_id, rid, version, self.now, throughput)
        self._store.databases[database_id] = database
        return database

    def replace_database(self, database: Database, throughput: int) -> None:
        """Change the throughput that the containers share."""
        version = self.next_number()
        sql = "UPDATE databases SET throughput = ?, version = ?, ts = ? WHERE number = ?"
        self._db.execute(sql, (throughput, version, self.now, database.number))
        database.throughput, database.version, database.ts = throughput, version, self.now

    def delete_database(self, database: Database) -> None:
        for container in list(database.containers.values()):
            self.delete_container(container)
        self._db.execute("DELETE FROM databases WHERE number = ?", (database.number,))
        self.next_number()  # keeps lsn from overtaking number
        del self._store.databases[database.id]

    def create_container(
        self, database: Database, spec: ContainerSpec, throughput: int = DEFAULT_THROUGHPUT
    ) -> Container:
        if spec.id in database.containers:
            raise ConflictError(spec.id)
        partitions, version = max(1, -(-throughput // RU_PER_PARTITION)), self.next_number()
        made = self._db.execute(
            "INSERT INTO containers (database, id, body, partitions, throughput, version, ts)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (database.number, spec.id, dump(spec.document), partitions, throughput, version, self.now),
        )
        container = Container(made.lastrowid or 0, database, spec, partitions, throughput, version, self.now)
        database.containers[spec.id] = container
        return container

    def replace_container(self, container: Container, spec: ContainerSpec, throughput: int) -> None:
        version = self.next_number()
        self._db.execute(
            "UPDATE containers SET body = ?, throughput = ?, version = ?, ts = ? WHERE number = ?",
            (dump(spec.document), throughput, version, self.now, container.number),
        )
        container.spec, container.throughput = spec, throughput
        container.version, container.ts, container.purge_at = version, self.now, 0.0

    def delete_container(self, container: Container) -> None:
        self.next_number()  # keeps lsn from overtaking number
        self._db.execute("DELETE FROM items WHERE container = ?", (container.number,))
        self._db.execute("DELETE FROM uniques WHERE container = ?", (container.number,))
        self._db.execute("DELETE FROM containers WHERE number = ?", (container.number,))
        del container.database.containers[container.id]

    def _insert(self, container: Container, row: Row) -> None:
        self._db.execute(
            "INSERT INTO items (sequence, pk, id, epk, version, ts, ttl, lsn, body, container)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, container.number),
        )

    def _delete_by_id(self, container: Container, pk: str, item_id: str) -> None:
        self._db.execute("DELETE FROM items WHERE container = ? AND pk = ? AND id = ?", (container.number, pk, item_id))

    def _note_former(self, container: Container, row: Row, former: Row | None) -> None:
        """Keep what an item was before this transaction, for a replica that lags."""
        if self._store.lag is not None:
            self._former.setdefault(Place(container.number, row.pk, row.id), former)

    def _claim(self, container: Container, row: Row, unique: Sequence[str]) -> None:
        entries = [(container.number, row.pk, value, row.sequence) for value in unique]
        try:
            self._db.executemany("INSERT INTO uniques VALUES (?, ?, ?, ?)", entries)
        except sqlite3.IntegrityError:
            raise ConflictError("unique key") from None

    def _release(self, container: Container, row: Row) -> None:
        if container.spec.unique_keys:
            self._db.execute(
                "DELETE FROM uniques WHERE container = ? AND pk = ? AND sequence = ?",
                (container.number, row.pk, row.sequence),
            )


def document_of(row: Row) -> Document:
    value = parse_stored(row.body)
    if not isinstance(value, dict):
        raise TypeError(f"stored item {row.id} is no object")
    return value


def _open(path: Path | None) -> sqlite3.Connection:
    name = ":memory:" if path is None else str(path)
    # Not bound to one thread: tests build the server here and run its loop in another thread.
    try:
        db = sqlite3.connect(name, isolation_level=None, timeout=0, check_same_thread=False)
    except (sqlite3.Error, ValueError) as exc:  # a folder, a folder that is not there, a NUL in the name
        raise StoreError(f"{name}: {exc}") from exc
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # WAL + NORMAL: durable against the end of the process, without fsync
        db.execute("BEGIN IMMEDIATE")
        [version] = db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {_FORMAT}")
        db.execute("COMMIT")
    except sqlite3.OperationalError as exc:
        db.close()
        reason = "another process has it open" if "locked" in str(exc) else str(exc)
        raise StoreError(f"{name}: {reason}") from exc
    except sqlite3.DatabaseError as exc:
        db.close()
        raise StoreError(f"{name}: {exc}") from exc
    if version not in (0, _FORMAT):
        db.close()
        raise StoreError(f"{name}: format {version}, and this release reads format {_FORMAT}")
    return db
