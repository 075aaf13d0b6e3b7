"""Item operations and the transactional batch: the service's rules, on top of one store transaction each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from local.cosmos import charge
from local.cosmos.catalogue import Container
from local.cosmos.definition import MAX_TTL
from local.cosmos.errors import CosmosError
from local.cosmos.partition import PartitionKey, refuse_mismatch
from local.cosmos.patch import Patch
from local.cosmos.query.condition import holds
from local.cosmos.store import ConflictError, Row, Store, Write, document_of
from local.cosmos.values import UNDEFINED, Document, Json, canonical, dump, lookup

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_BATCH_OPERATIONS = 100
MAX_ID_BYTES = 1023
_FORBIDDEN_IN_ID = re.compile(r"[/\\#?]")


@dataclass(frozen=True, slots=True)
class Precondition:
    """If-Match and If-None-Match: an ETag with its quotes, or *."""

    if_match: str | None = None
    if_none_match: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation. `body` is the item as stored, or empty."""

    status: int
    charge: float
    etag: str | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """`failed` is the index of the operation that undid the others, or None."""

    results: tuple[Outcome, ...]
    failed: CosmosError | None = None

    @property
    def charge(self) -> float:
        return round(sum(result.charge for result in self.results), 2)


NO_CONDITION = Precondition()


class Items:
    """The items of one partition key. Refusals are CosmosError, and then nothing was written."""

    def __init__(self, store: Store, consistency: str, container: Container, key: PartitionKey) -> None:
        self._store = store
        self._consistency = consistency
        self._container = container
        self._key = key
        self._write: Write  # the transaction that is open; every public method but `read` opens one

    def read(self, item_id: str, condition: Precondition = NO_CONDITION) -> Outcome:
        row = self._store.get(self._container, self._key.text, item_id)
        if row is None:
            raise _not_found(item_id)
        etag = self._etag(row)
        if condition.if_none_match in ("*", etag):
            return Outcome(304, charge.FLAT, etag)
        return Outcome(200, charge.read(len(row.body), self._consistency), etag, row.body)

    def create(self, document: Document) -> Outcome:
        with self._store.write(self._container) as self._write:
            return self._create(document)

    def upsert(self, document: Document, condition: Precondition = NO_CONDITION) -> Outcome:
        with self._store.write(self._container) as self._write:
            return self._upsert(document, condition)

    def replace(self, item_id: str, document: Document, condition: Precondition = NO_CONDITION) -> Outcome:
        """The document may carry another id: that renames the item."""
        with self._store.write(self._container) as self._write:
            return self._replace(item_id, document, condition)

    def patch(self, item_id: str, patch: Patch, condition: Precondition = NO_CONDITION) -> Outcome:
        with self._store.write(self._container) as self._write:
            return self._patch(item_id, patch, condition)

    def delete(self, item_id: str, condition: Precondition = NO_CONDITION) -> Outcome:
        with self._store.write(self._container) as self._write:
            return self._delete(item_id, condition)

    def delete_all(self) -> None:
        with self._store.write(self._container) as write:
            write.delete_key(self._container, self._key.text)

    def batch(self, operations: Json) -> BatchOutcome:
        """All operations or none. The failing one has its own status, every other one 424."""
        if not isinstance(operations, list) or not operations:
            raise CosmosError(400, "Batch request has no operations.")
        if len(operations) > MAX_BATCH_OPERATIONS:
            raise CosmosError(400, "Batch request has more operations than what is supported.")
        results: list[Outcome] = []
        try:
            with self._store.write(self._container) as self._write:
                for operation in operations:
                    results.append(self._operation(operation))
        except CosmosError as exc:
            undone = [Outcome(424, result.charge) for result in results]
            undone.append(Outcome(exc.status, charge.FLAT))
            undone.extend(Outcome(424, 0.0) for _ in operations[len(undone) :])
            return BatchOutcome(tuple(undone), exc)
        return BatchOutcome(tuple(results))

    def _operation(self, operation: Json) -> Outcome:
        if not isinstance(operation, dict):
            raise CosmosError(400, "A batch operation must be a JSON object.")
        kind, name, body = (operation.get(each) for each in ("operationType", "id", "resourceBody"))
        condition = Precondition(_text(operation, "ifMatch"), _text(operation, "ifNoneMatch"))
        match kind, name, body:
            case "Create", _, dict():
                return self._create(body)
            case "Upsert", _, dict():
                return self._upsert(body, condition)
            case "Replace", str(), dict():
                return self._replace(name, body, condition)
            case "Patch", str(), _:
                return self._patch(name, Patch.read(body), condition)
            case "Read", str(), _:
                return self.read(name, condition)
            case "Delete", str(), _:
                return self._delete(name, condition)
        raise CosmosError(400, f"The batch operation {kind!r} is not known, or lacks its id or resourceBody.")

    def _create(self, document: Document) -> Outcome:
        self._check(document)
        number = self._write.next_number()
        row = self._row(document, sequence=number, version=number)
        try:
            self._write.insert(self._container, row, _unique_values(self._container, document))
        except ConflictError:
            raise _conflict() from None
        return self._written(201, row, document, overwrites=False)

    def _upsert(self, document: Document, condition: Precondition) -> Outcome:
        item_id = checked_id(document)
        if self._write.get(self._container, self._key.text, item_id) is not None:
            return self._replace(item_id, document, condition)
        return self._create(document)  # whatever If-Match says: the service asks it of an item that is there only

    def _replace(self, item_id: str, document: Document, condition: Precondition) -> Outcome:
        self._check(document)
        return self._overwrite(self._current(item_id, condition), document)

    def _patch(self, item_id: str, patch: Patch, condition: Precondition) -> Outcome:
        old = self._current(item_id, condition)
        document = document_of(old)
        if patch.condition is not None and not holds(patch.condition, document):
            raise _precondition_failed()
        patched = patch.apply(document)
        self._check(patched)
        return self._overwrite(old, patched)

    def _delete(self, item_id: str, condition: Precondition) -> Outcome:
        row = self._current(item_id, condition)
        self._write.delete(self._container, row)
        return Outcome(204, charge.write(len(row.body), self._container.spec.indexing.terms(document_of(row))))

    def _check(self, document: Document) -> None:
        checked_id(document)
        refuse_mismatch(self._key, document, self._container.spec.key_path)

    def _current(self, item_id: str, condition: Precondition) -> Row:
        row = self._write.get(self._container, self._key.text, item_id)
        if row is None:
            raise _not_found(item_id)
        if condition.if_match not in (None, "*", self._etag(row)):
            raise _precondition_failed()
        return row

    def _overwrite(self, old: Row, document: Document) -> Outcome:
        row = self._row(document, sequence=old.sequence, version=self._write.next_number())
        try:
            self._write.update(self._container, old, row, _unique_values(self._container, document))
        except ConflictError:
            raise _conflict() from None
        return self._written(200, row, document, overwrites=True)

    def _row(self, document: Document, *, sequence: int, version: int) -> Row:
        container, now = self._container, self._write.now
        rid = container.item_rid(sequence)
        stored = document | {
            "_rid": rid,
            "_self": f"{container.self_link}docs/{rid}/",
            "_etag": self._store.etag(version, container.database),
            "_attachments": "attachments/",
            "_ts": now,
        }
        body = dump(stored)
        if len(body) > MAX_BODY_BYTES:
            raise CosmosError(413, "Request size is too large.")
        key, lsn = self._key, self._write.lsn
        return Row(sequence, key.text, checked_id(document), key.epk, version, now, _ttl(document), lsn, body)

    def _written(self, status: int, row: Row, document: Document, *, overwrites: bool) -> Outcome:
        cost = charge.write(len(row.body), self._container.spec.indexing.terms(document), overwrites=overwrites)
        return Outcome(status, cost, self._etag(row), row.body)

    def _etag(self, row: Row) -> str:
        return self._store.etag(row.version, self._container.database)


def checked_id(document: Document) -> str:
    """The item's id. Refuses what is no text, empty, too long or holds / \\ # ?."""
    item_id = document.get("id")
    if item_id is None:
        raise CosmosError(400, "The input content is invalid because the required properties - 'id; ' - are missing")
    if not isinstance(item_id, str) or not item_id or _FORBIDDEN_IN_ID.search(item_id):
        raise CosmosError(400, "The input name is invalid: an id is non-empty text without '/', '\\', '?' and '#'.")
    if len(item_id.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES:
        raise CosmosError(
            400,
            "The input name is invalid. Ensure to provide a unique non-empty string less than "
            f"'{MAX_ID_BYTES + 1}' characters.",
        )
    return item_id


def _ttl(document: Document) -> int | None:
    if "ttl" not in document:
        return None
    value = document["ttl"]
    if not isinstance(value, int) or isinstance(value, bool) or not (value == -1 or 0 < value <= MAX_TTL):
        raise CosmosError(
            400, f"The input ttl '{value}' is invalid. Ensure to provide a nonzero positive integer or -1."
        )
    return value


def _unique_values(container: Container, document: Document) -> list[str]:
    """One text per unique key of the container; a missing path counts as null."""
    values = []
    for at, paths in enumerate(container.spec.unique_keys):
        found = [lookup(document, path) for path in paths]
        values.append(canonical([at, *(None if value is UNDEFINED else value for value in found)]))
    return values


def _text(operation: Mapping[str, Json], name: str) -> str | None:
    value = operation.get(name)
    return value if isinstance(value, str) else None


def _conflict() -> CosmosError:
    return CosmosError(409, "Entity with the specified id already exists in the system.")


def _not_found(item_id: str) -> CosmosError:
    return CosmosError(404, f"Entity with the specified id does not exist in the system. Id: {item_id}")


def _precondition_failed() -> CosmosError:
    return CosmosError(412, "Operation cannot be performed because one of the specified precondition is not met.")
