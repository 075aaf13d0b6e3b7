"""What is stored (docs/contracts.md, section 7). Amounts are decimal strings, times the server's.

`record` is the protocol's part of an order, a command or a ledger batch: inbox and outbox in one.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from shared.contracts.ledger import EntryKind
from shared.contracts.values import Listed, Stored

DOCUMENT_VERSION = 1
STATE_ID: Final = "~state"

RecordStatus = Literal["effect", "accepted", "completed"]
EffectStatus = Literal["in_progress", "completed", "parked"]


class Claim(Stored):
    """An attempt's hold on a record. Alive until the server's clock passes the write by `lease_seconds` + 5 s."""

    token: str
    attempts: int
    sequence_number: str
    lease_seconds: int
    sweeps: int = 0


class EffectResult(Stored):
    """The payment provider's answer."""

    status: Literal["approved", "declined"]
    authorization_id: str


class Effect(Stored):
    """One external call: stored as in_progress before it, with its answer after it."""

    name: Literal["payment"] = "payment"
    status: EffectStatus
    key: str
    replay_count: int
    reason: str | None = None
    result: EffectResult | None = None


class OutboxMessage(Stored):
    """One message to send, exactly as it will be sent; the session id is the body's orderId."""

    message_id: str
    body: dict[str, object]


class Outbox(Stored):
    """The messages that a decision causes, and how many of them the broker has accepted (`sent`, the watermark).

    On completion `proof` takes the place of `messages`. A ledger batch keeps its messages in a document beside it.
    """

    queue: Literal["ledger-entries"] = "ledger-entries"
    total: int
    sent: int = 0
    messages: Annotated[tuple[OutboxMessage, ...] | None, Listed] = None
    proof: str | None = None

    @model_serializer(mode="wrap")
    def _without_the_other(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without_null(write(self), "messages", "proof")


class Result(Stored):
    """What a duplicate is answered with."""

    outcome: Literal["created", "applied", "rejected"]
    reason: str | None = None

    @model_serializer(mode="wrap")
    def _without_a_reason(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without_null(write(self), "reason")


class Record(Stored):
    """The protocol's part of a document."""

    key: str
    message_id: str
    consumer: str
    schema_version: int
    handler_version: int
    payload_hash: str
    raw_hash: str
    correlation_id: str | None = None
    traceparent: str | None = None
    enqueued_at: str
    status: RecordStatus
    claim: Claim
    effect: Effect | None = None
    outbox: Outbox | None = None
    result: Result | None = None


class OrderLine(Stored):
    """One line of an order; `entry` is the transactionId of the line's `add`, None until it was posted."""

    line_id: str
    sku: str
    quantity: int
    unit_price: str
    amount: str
    entry: str | None = None


class Fulfilment(Stored):
    """An absolute state with a version."""

    status: Literal["confirmed", "shipped", "delivered", "returned"]
    version: int


class Order(Stored):
    """An order: its own inbox marker and outbox."""

    id: str
    type: Literal["order"] = "order"
    v: int = DOCUMENT_VERSION
    order_id: str
    customer_id: str | None = None
    currency: str
    state: Literal["pending_payment", "open", "declined", "cancelled"]
    fulfilment: Fulfilment | None = None
    lines: Annotated[tuple[OrderLine, ...], Listed]
    total: str
    sequenced: bool
    next_command: int | None
    next_entry: int
    revision: int
    record: Record


class Command(Stored):
    """The inbox record of an amendment or a cancellation, with the outbox of what it causes."""

    id: str
    type: Literal["command"] = "command"
    v: int = DOCUMENT_VERSION
    order_id: str
    operation_id: str
    kind: Literal["order.amended", "order.cancelled"]
    sequence: int | None = None
    record: Record
    ttl: int | None = None


class LedgerBatchRecord(Stored):
    """The inbox record of a ledger batch; its messages are in the `ledgerOutbox` beside it."""

    id: str
    type: Literal["ledgerBatch"] = "ledgerBatch"
    v: int = DOCUMENT_VERSION
    ledger_id: str
    batch_id: str
    batch_sequence: int | None = None
    currency: str
    record: Record
    ttl: int | None = None


class LedgerOutbox(Stored):
    """The messages of a ledger batch: immutable, deleted on completion, so that watermarks stay cheap."""

    id: str
    type: Literal["ledgerOutbox"] = "ledgerOutbox"
    v: int = DOCUMENT_VERSION
    ledger_id: str
    batch: str
    messages: Annotated[tuple[OutboxMessage, ...], Listed]


class LedgerSequence(Stored):
    """A ledger's state: the batch number expected next, and the batch that is not completed yet."""

    id: Literal["~state"] = STATE_ID
    type: Literal["ledgerSequence"] = "ledgerSequence"
    v: int = DOCUMENT_VERSION
    ledger_id: str
    next_batch: int | None = None
    unfinished: str | None = None


class EntrySource(Stored):
    """Which message caused an entry, and at which place of its outbox."""

    consumer: str
    key: str
    index: int


class EntryRecord(Stored):
    """The protocol's part of an entry."""

    key: str
    message_id: str
    payload_hash: str
    raw_hash: str
    token: str
    schema_version: int
    handler_version: int
    correlation_id: str | None = None
    traceparent: str | None = None
    source: EntrySource | None = None


class LedgerEntryDocument(Stored):
    """One posting; `position` is its place in the order of application over all streams of its order."""

    id: str
    type: Literal["ledgerEntry"] = "ledgerEntry"
    v: int = DOCUMENT_VERSION
    order_id: str
    stream: str
    transaction_id: str
    sequence: int | None = None
    kind: EntryKind
    amount: str | None = None
    currency: str
    refers_to: str | None = None
    entry_count: int | None = None
    status: Literal["held", "applied", "refused", "discarded"]
    position: int | None = None
    record: EntryRecord


class HeldEntry(Stored):
    """What a release needs, so that it reads no entries."""

    sequence: int
    id: str
    kind: EntryKind
    amount: str | None = None
    currency: str
    entry_count: int | None = None


class Closed(Stored):
    """A stream's end: what `close` promised, and whether it came true."""

    entry_count: int
    complete: bool


class StreamState(Stored):
    """One stream of an order. `next` is None on an unsequenced stream; `applied` does not count the close."""

    sequenced: bool
    next: int | None
    applied: int = 0
    closed: Closed | None = None
    held: Annotated[tuple[HeldEntry, ...], Listed] = ()


class LedgerState(Stored):
    """An order's ledger: balances by currency, and the state of each stream."""

    id: Literal["~state"] = STATE_ID
    type: Literal["ledgerState"] = "ledgerState"
    v: int = DOCUMENT_VERSION
    order_id: str
    applied: int = 0
    balances: dict[str, str] = Field(default_factory=dict)
    streams: dict[str, StreamState] = Field(default_factory=dict)


class Skip(Stored):
    """Numbers that will never come, by an operator's word."""

    id: str
    type: Literal["skip"] = "skip"
    v: int = DOCUMENT_VERSION
    order_id: str | None = None
    ledger_id: str | None = None
    what: str
    from_: int = Field(alias="from")
    to: int
    actor: str
    reason: str


class AttemptNote(Stored):
    """A note per message that failed again and again: which worker process is at it, and how often it ended badly."""

    id: str
    type: Literal["attempt"] = "attempt"
    v: int = DOCUMENT_VERSION
    session_id: str
    worker: str | None
    crashes: int = 0
    exceptions: int = 0


def _without_null(members: dict[str, object], *names: str) -> dict[str, object]:
    """Leave out members that are absent rather than null where they have no value."""
    return {name: value for name, value in members.items() if value is not None or name not in names}
