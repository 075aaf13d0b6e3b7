"""The audit: a document for each replay, discard and skip (docs/contracts.md, section 7: operation).

Its id is made from what is done to what, so the create decides who does it, and a later run finds what an earlier one
left behind:

    replay    planned -> sent -> verified | failed      then the parked copy is completed
    discard   planned -> completed                      the copy is completed in between
    skip      planned -> completed                      the batch is committed in between
"""

from __future__ import annotations

import getpass
import platform
import uuid
from typing import Final, Literal

from ops.errors import OpsError
from shared.adapters.cosmos import CosmosDocuments
from shared.contracts.documents import DOCUMENT_VERSION
from shared.contracts.values import Stored
from shared.handlers.claim import dump, read_as
from shared.ports import Container, Stale, Written

OperationType = Literal["replay", "discard", "skip"]
Status = Literal["planned", "sent", "verified", "completed", "failed"]

_NAMES: Final = uuid.UUID("6d1f6a2e-4c0b-5a53-9d55-0d8a3b6f2c41")


class Identity(Stored):
    """What a message was, or is, known by."""

    message_id: str | None
    dedup_id: str | None
    session_id: str
    payload_hash: str | None


class Operation(Stored):
    """One thing that an operator did."""

    id: str
    type: OperationType
    v: int = DOCUMENT_VERSION
    session_id: str
    role: str
    key: str | None
    original_sequence_number: str | None
    count: int
    old: Identity | None
    new: Identity | None
    out_of_order: bool = False
    actor: str
    reason: str
    status: Status


class Seen:
    """An operation as it is stored, with the ETag that the next write rests on."""

    def __init__(self, operation: Operation, etag: str) -> None:
        self.operation = operation
        self.etag = etag


def operation_id(kind: OperationType, *what: object) -> str:
    """The id of doing this to that."""
    return str(uuid.uuid5(_NAMES, "\n".join([kind, *map(str, what)])))


def default_actor() -> str:
    """Who is at the keyboard."""
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (OSError, KeyError):
        return f"unknown@{platform.node()}"


class Audit:
    """The container `operations`."""

    def __init__(self, documents: CosmosDocuments) -> None:
        self._documents = documents

    async def begin(self, operation: Operation) -> Seen:
        """Write down what is going to be done, or find that it was begun before."""
        written = await self._documents.create(Container.OPERATIONS, dump(operation))
        if isinstance(written, Written):
            return Seen(operation, written.etag)
        there = await self.find(operation.session_id, operation.id)
        if there is None:
            raise OpsError(f"operation {operation.id} was deleted while it was begun; run the command again")
        return there

    async def find(self, session_id: str, operation: str) -> Seen | None:
        """What an earlier run wrote down."""
        seen = await read_as(self._documents, Operation, Container.OPERATIONS, session_id, operation)
        return None if seen is None else Seen(seen.document, seen.etag)

    async def advance(self, seen: Seen, status: Status) -> Seen:
        """Write down how far it is. Another run that did so too is no fault: its word stands."""
        operation = seen.operation.model_copy(update={"status": status})
        written = await self._documents.replace(Container.OPERATIONS, dump(operation), seen.etag)
        if isinstance(written, Stale):
            there = await self.find(operation.session_id, operation.id)
            if there is None:
                raise OpsError(f"operation {operation.id} was deleted; what it did stands")
            return there
        return Seen(operation, written.etag)
