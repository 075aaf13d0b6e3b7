"""One checked delivery, and the record that it starts with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shared import telemetry
from shared.contracts.documents import Claim, Effect, Outbox, Record, RecordStatus, Result
from shared.contracts.ledger import LedgerBatch, LedgerEntry
from shared.contracts.orders import OrderMessage
from shared.envelope import Envelope
from shared.handlers.attempt import Attempt
from shared.handlers.intake import Checked, Facts

B = TypeVar("B", OrderMessage, LedgerBatch, LedgerEntry)

HANDLER_VERSION = 1
"""Which rules decided a record; raised when a handler decides differently."""


@dataclass(frozen=True, slots=True)
class Delivery(Generic[B]):
    """What a handler works on: the delivery, what the checks found, and the attempt."""

    envelope: Envelope
    checked: Checked[B]
    facts: Facts
    attempt: Attempt

    @property
    def body(self) -> B:
        """The checked message."""
        return self.checked.body


def new_record(
    delivery: Delivery[Any],
    consumer: str,
    claim: Claim,
    status: RecordStatus,
    result: Result,
    *,
    effect: Effect | None = None,
    outbox: Outbox | None = None,
) -> Record:
    """The record of a message that is claimed for the first time."""
    envelope, checked = delivery.envelope, delivery.checked
    return Record(
        key=checked.key,
        message_id=envelope.message_id or checked.key,
        consumer=consumer,
        schema_version=checked.body.schema_version,
        handler_version=HANDLER_VERSION,
        payload_hash=checked.payload_hash,
        raw_hash=checked.raw_hash,
        correlation_id=envelope.correlation_id,
        traceparent=telemetry.current_traceparent() or envelope.traceparent,
        enqueued_at=checked.enqueued_at,
        status=status,
        claim=claim,
        effect=effect,
        outbox=outbox,
        result=result,
    )
