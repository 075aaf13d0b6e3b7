"""Sends an outbox from its watermark on and completes the record.

One AMQP batch is in flight at a time. A crash after a send and before the watermark sends the same messages again,
with the same message ids: the consumer's inbox recognises them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shared.contracts.documents import OutboxMessage, Record
from shared.domain import outbox
from shared.envelope import OutgoingMessage, Role
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Access, Claimed, Claims, D, Seen, Settled, dump, finished, read_as, with_record
from shared.ports import Container, Documents, Sender, Stale, Written


def access_to(
    documents: Documents, model: type[D], container: Container, partition: str, document_id: str
) -> Access[D]:
    """Access to a record whose document is all there is to write: an order or a command."""

    async def read() -> Seen[D] | None:
        return await read_as(documents, model, container, partition, document_id)

    async def write(document: D, etag: str) -> Written | Stale:
        return await documents.replace(container, dump(document), etag)

    return Access(read, write, write)


def check_outgoing(record: Record, messages: Sequence[OutboxMessage]) -> None:
    """Refuse an outbox whose messages the broker would refuse, before anything is written.

    One message stands for all: the bound that it is held to counts a body more than once, and bodies differ by ids and
    amounts alone, so what can be too large is what all share, the correlation id.

    Raises: PermanentError, ItemTooLarge.
    """
    outbox.check_sizes([_outgoing(record, message) for message in messages[:1]])


def messages_of(record: Record) -> Sequence[OutboxMessage]:
    """The messages that a record keeps itself."""
    return (record.outbox.messages or ()) if record.outbox else ()


def _outgoing(record: Record, message: OutboxMessage) -> OutgoingMessage:
    return outbox.outgoing(
        message, correlation_id=record.correlation_id or record.key, traceparent=record.traceparent
    )


class Relay:
    """Brings an accepted record to its end."""

    def __init__(self, claims: Claims, sender: Sender, record_ttl_seconds: int) -> None:
        self._claims = claims
        self._sender = sender
        self._record_ttl_seconds = record_ttl_seconds

    async def finish(
        self,
        attempt: Attempt,
        claimed: Claimed[D],
        access: Access[D],
        messages: Sequence[OutboxMessage],
    ) -> Settled | None:
        """Send what the broker has not accepted yet, then complete the record. None when this attempt completed it.

        The write of the last watermark is the completion: a record is never left "all sent" and unfinished by an
        orderly attempt.
        """
        outgoing = [_outgoing(claimed.record, message) for message in messages]
        sent = claimed.record.outbox.sent if claimed.record.outbox else 0
        while sent < len(outgoing):
            sent += await attempt.io(partial(self._sender.send, Role.LEDGER_ENTRIES, outgoing[sent:]))
            if sent < len(outgoing):
                written = await self._advance(attempt, claimed, access, sent)
                if isinstance(written, Settled):
                    return written
                claimed = written
        return await self._complete(attempt, claimed, access, messages)

    async def _advance(
        self, attempt: Attempt, claimed: Claimed[D], access: Access[D], sent: int
    ) -> Claimed[D] | Settled:
        def change(document: D) -> D:
            box = document.record.outbox
            return with_record(document, outbox=box.model_copy(update={"sent": sent}) if box else None)

        def holds(record: Record) -> bool:
            return record.outbox is not None and record.outbox.sent >= sent

        return await self._claims.update(attempt, claimed, change, holds, access)

    async def _complete(
        self, attempt: Attempt, claimed: Claimed[D], access: Access[D], messages: Sequence[OutboxMessage]
    ) -> Settled | None:
        def change(document: D) -> D:
            box = document.record.outbox
            return finished(
                document, self._record_ttl_seconds, outbox=outbox.completed(box, messages) if box else None
            )

        written = await self._claims.update(attempt, claimed, change, lambda _: False, access, completing=True)
        return written if isinstance(written, Settled) else None
