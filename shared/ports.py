"""What the handlers need from the outside, and the values that cross that border.

Answers that a handler decides on (conflict, stale ETag, missing document) are values. Errors are those of
`shared.errors`: TransientError and UnknownCommitError for anything that a later call may heal, PermanentError for
what no call can heal (a document that is too large).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from shared.envelope import OutgoingMessage, Role

Json = Mapping[str, object]


class Container(StrEnum):
    """The logical name of a container; the partition key of each is in docs/contracts.md, section 2."""

    ORDERS = "orders"
    LEDGERS = "ledgers"
    LEDGER_ENTRIES = "ledger-entries"
    OPERATIONS = "operations"


@dataclass(frozen=True, slots=True)
class Found:
    """A document as read. `written_at` is its `_ts`, `read_at` the response's Date: both the server's clock, in Unix
    seconds."""

    document: Json
    etag: str
    written_at: int
    read_at: int


@dataclass(frozen=True, slots=True)
class Written:
    """The write is committed; `etag` is the document's new one."""

    etag: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A document with this id is there already (409)."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The document has another ETag by now, or is gone (412, 404)."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a document, as part of a transactional batch."""

    document: Json


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace a document whose ETag must still be this one."""

    document: Json
    etag: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a document."""

    id: str


@dataclass(frozen=True, slots=True)
class PatchSet:
    """Set these top-level members of a document."""

    id: str
    members: Json


Operation = Create | Replace | Delete | PatchSet


@dataclass(frozen=True, slots=True)
class Committed:
    """All operations are committed; one ETag each, in order (empty for a delete)."""

    etags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing is committed; `index` is the operation that was refused, with this status (409, 412 or 404)."""

    index: int
    status: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a query, and the server's clock (Unix seconds) when they were answered."""

    items: tuple[Json, ...]
    read_at: int


class Documents(Protocol):
    """The database. Every call is one request, bounded in time as a whole."""

    async def read(self, container: Container, partition: str, document_id: str) -> Found | None:
        """Read a document; None if there is none."""
        ...

    async def create(self, container: Container, document: Json) -> Written | Conflict:
        """Create a document unless its id is taken: the only arbiter of who was first."""
        ...

    async def replace(self, container: Container, document: Json, etag: str) -> Written | Stale:
        """Replace a document whose ETag is still `etag`."""
        ...

    async def delete(self, container: Container, partition: str, document_id: str, etag: str) -> Written | Stale:
        """Delete a document whose ETag is still `etag`."""
        ...

    async def batch(
        self, container: Container, partition: str, operations: Sequence[Operation]
    ) -> Committed | Rejected:
        """Commit all operations or none."""
        ...

    def query(self, container: Container, text: str, parameters: Json) -> AsyncIterator[Page]:
        """Run a query over all partitions, page by page; there is at least one page."""
        ...


class Sender(Protocol):
    """The broker, as far as this app sends."""

    async def send(self, role: Role, messages: Sequence[OutgoingMessage]) -> int:
        """Send as many of the first messages as fit into one AMQP batch; says how many the broker accepted (>= 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Approved:
    """The payment is authorised."""

    authorization_id: str


@dataclass(frozen=True, slots=True)
class Declined:
    """The provider said no: a business answer."""

    authorization_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider says that the request itself is wrong."""

    status: int


class Payments(Protocol):
    """The payment provider.

    Whatever is no answer of its contract raises UnknownCommitError; a call that was surely not made, TransientError.
    """

    async def authorize(self, key: str, order_id: str, amount: str, currency: str) -> Approved | Declined | Refused:
        """Ask for the authorisation of an amount under an idempotency key (ASCII)."""
        ...


class Clock(Protocol):
    """The worker's own clock: for budgets, waits and refusals of what is too old. Leases use the server's."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Tokens(Protocol):
    """Randomness."""

    def token(self) -> str:
        """A claim token that no other attempt has: 32 hex digits."""
        ...

    def fraction(self) -> float:
        """A number from 0 to 1, for jitter."""
        ...
