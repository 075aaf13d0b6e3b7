"""The messages that a decision causes: made once, stored, sent from there, proven (docs/contracts.md, section 7)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from shared.contracts.documents import Outbox, OutboxMessage
from shared.contracts.ledger import LedgerEntry
from shared.domain.identity import entry_id
from shared.domain.payload import canonical, payload_hash
from shared.envelope import OutgoingMessage
from shared.errors import PermanentError, Reason

LARGEST_MESSAGE_BYTES: Final = 262_144  # a link of the Standard tier; every other tier's is larger
LARGEST_DOCUMENT_BYTES: Final = 2_000_000

_PROOF_BYTES = 8
# Sections, field headers, and the trace properties that the SDK adds.
_MESSAGE_OVERHEAD_BYTES = 2_048
# https://www.w3.org/TR/trace-context/#traceparent-header
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def outbox_messages(entries: Sequence[LedgerEntry], *, consumer: str, key: str) -> tuple[OutboxMessage, ...]:
    """The messages for these entries. Each says which message caused it (consumer, dedup key), and at which place."""
    return tuple(
        OutboxMessage(
            message_id=entry_id(entry.order_id, entry.stream, entry.transaction_id),
            body={**_body(entry), "meta": {"source": {"consumer": consumer, "key": key, "index": index}}},
        )
        for index, entry in enumerate(entries)
    )


def outgoing(message: OutboxMessage, *, correlation_id: str | None, traceparent: str | None) -> OutgoingMessage:
    """A stored message as it is sent: the same bytes each time. A traceparent that is none is left out."""
    properties = {"traceparent": traceparent} if traceparent and _TRACEPARENT.fullmatch(traceparent) else {}
    return OutgoingMessage(
        message_id=message.message_id,
        session_id=_text(message.body, "orderId"),
        body=canonical(message.body),
        subject=_text(message.body, "type"),
        content_type="application/json",
        correlation_id=correlation_id,
        properties=properties,
    )


def proof(messages: Sequence[OutboxMessage]) -> str:
    """Eight bytes a message, in order: enough to find each among the entries, and to see another content."""
    digests = (
        hashlib.sha256(f"{message.message_id}\n{payload_hash(message.body)}".encode()).digest()[:_PROOF_BYTES]
        for message in messages
    )
    return base64.urlsafe_b64encode(b"".join(digests)).rstrip(b"=").decode()


def completed(outbox: Outbox, messages: Sequence[OutboxMessage]) -> Outbox:
    """The outbox once the broker has accepted all of its messages: the proof takes their place."""
    return outbox.model_copy(update={"sent": outbox.total, "messages": None, "proof": proof(messages)})


def check_sizes(messages: Sequence[OutgoingMessage]) -> None:
    """Refuse, before the first write, a message that no link would take.

    Raises: PermanentError.
    """
    for index, message in enumerate(messages):
        size = encoded_bound(message)
        if size > LARGEST_MESSAGE_BYTES:
            raise PermanentError(
                Reason.ITEM_TOO_LARGE,
                f"outgoing message {index}: up to {size} bytes, at most {LARGEST_MESSAGE_BYTES} can be sent",
            )


def encoded_bound(message: OutgoingMessage) -> int:
    """An upper bound of a message's size on the wire, alone in its batch."""
    texts = (
        message.message_id,
        message.session_id,
        message.subject,
        message.content_type,
        message.correlation_id,
        message.to,
        message.reply_to,
        message.reply_to_session_id,
    )
    # Twice: the envelope of an AMQP batch repeats ids of its first message.
    fields = 2 * sum(len(text.encode()) for text in texts if text)
    properties = sum(len(name.encode()) + len(str(value).encode()) + 16 for name, value in message.properties.items())
    return len(message.body) + fields + properties + _MESSAGE_OVERHEAD_BYTES


def check_document(document: Mapping[str, object]) -> None:
    """Refuse, before the first write, a document that the database would not take.

    Raises: PermanentError.
    """
    check_batch((document,))


def check_batch(documents: Iterable[Mapping[str, object]]) -> None:
    """Refuse, before the first write, documents that are too large together for one transactional batch.

    Raises: PermanentError.
    """
    size = sum(_stored_size(document) for document in documents)
    if size > LARGEST_DOCUMENT_BYTES:
        raise PermanentError(
            Reason.ITEM_TOO_LARGE,
            f"documents of one write: {size} bytes, at most {LARGEST_DOCUMENT_BYTES} can be stored",
        )


def _body(entry: LedgerEntry) -> dict[str, object]:
    # `schemaVersion` 1 is said by its absence, as producers do: the same entry has the same payload hash.
    return entry.model_dump(by_alias=True, exclude_none=True, exclude={"schema_version", "meta"})


def _text(body: Mapping[str, object], member: str) -> str:
    value = body.get(member)
    if not isinstance(value, str):
        raise TypeError(f"outbox message: {member} is no text")
    return value


def _stored_size(document: Mapping[str, object]) -> int:
    # As azure-cosmos sends it: compact, everything outside ASCII as \uXXXX.
    return len(json.dumps(document, separators=(",", ":")))
