"""Builds and sends the parked copy of a message that no redelivery can help (docs/contracts.md, section 8).

The copy goes out before its source is completed. A crash in between parks it twice, under one message id: one parked
message.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from functools import partial

from shared.domain import reserved
from shared.domain.identity import quarantine_message_id, rfc3339
from shared.envelope import Envelope, OutgoingMessage, PropertyValue, Role
from shared.errors import PermanentError, Reason
from shared.handlers.attempt import Attempt
from shared.handlers.intake import Facts
from shared.ports import Sender
from shared.telemetry import VERSION

DESCRIPTION_BYTES = 1024


class Quarantine:
    """Parks messages."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def park(
        self, attempt: Attempt, envelope: Envelope, facts: Facts, consumer: str, error: PermanentError
    ) -> None:
        """Send the copy: in full, or the largest form of it that the broker takes.

        Raises: TransientError when the broker can't be reached; PermanentError, ItemTooLarge, when no form fits.
        """
        refused: PermanentError | None = None
        for form in copies(envelope, facts, consumer, error):
            try:
                await attempt.io(partial(self._sender.send, Role.QUARANTINE, [form]))
                return
            except PermanentError as too_large:
                if too_large.reason is not Reason.ITEM_TOO_LARGE:
                    raise
                refused = too_large
        if refused is not None:
            raise refused


def note_id(envelope: Envelope) -> str:
    """The message id of the copy, and the id of the message's note: the same on each redelivery."""
    return quarantine_message_id(
        envelope.role, envelope.sequence_number, rfc3339(envelope.enqueued_at), envelope.message_id
    )


def copies(
    envelope: Envelope, facts: Facts, consumer: str, error: PermanentError
) -> Iterator[OutgoingMessage]:
    """The copy in the forms that are tried, from the fullest on."""
    own = {name: value for name, value in envelope.properties.items() if not name.startswith("quarantine-")}
    if reserved.original_sequence_number(own) is None:
        own[reserved.ORIGINAL_SEQUENCE_NUMBER] = str(envelope.sequence_number)
    if reserved.original_enqueued_at(own) is None:
        own[reserved.ORIGINAL_ENQUEUED_AT] = rfc3339(envelope.enqueued_at)
    if facts.replay_count > 0 and error.reason is not Reason.SEQUENCE_GAP:
        own[reserved.REPLAY_FAILURES] = str(reserved.replay_failures(own) + 1)
    short: dict[str, PropertyValue | None] = {
        "quarantine-reason": error.reason.value,
        "quarantine-role": envelope.role.value,
        "quarantine-message-id": envelope.message_id,
    }
    full: dict[str, PropertyValue | None] = {
        **short,
        "quarantine-consumer": consumer,
        "quarantine-dedup-key": facts.dedup_key,
        "quarantine-sequence-number": str(envelope.sequence_number),
        "quarantine-enqueued-at": rfc3339(envelope.enqueued_at),
        "quarantine-delivery-count": str(envelope.delivery_count),
        "quarantine-payload-hash": facts.payload_hash,
        "quarantine-stored-hash": facts.stored_hash if error.reason is Reason.PAYLOAD_MISMATCH else None,
        "quarantine-app-version": VERSION,
        "quarantine-trace": envelope.traceparent,
    }
    described = {**full, "quarantine-description": cut(error.description, DESCRIPTION_BYTES)}
    zipped = {**short, "quarantine-body": "gzip"}
    yield _copy(envelope, envelope.body, {**own, **_present(described)})
    yield _copy(envelope, envelope.body, {**own, **_present(full)})
    yield _copy(envelope, envelope.body, {**own, **_present(short)})
    yield _copy(envelope, gzip.compress(envelope.body, mtime=0), {**own, **_present(zipped)})


def cut(text: str, limit: int) -> str:
    """The beginning of a text, at most so many bytes of UTF-8, cut on a character border."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _present(properties: Mapping[str, PropertyValue | None]) -> dict[str, PropertyValue]:
    return {name: value for name, value in properties.items() if value is not None}


def _copy(envelope: Envelope, body: bytes, properties: Mapping[str, PropertyValue]) -> OutgoingMessage:
    return OutgoingMessage(
        message_id=note_id(envelope),
        session_id=envelope.session_id or "",
        body=body,
        subject=envelope.subject,
        content_type=envelope.content_type,
        correlation_id=envelope.correlation_id,
        to=envelope.to,
        reply_to=envelope.reply_to,
        reply_to_session_id=envelope.reply_to_session_id,
        properties=properties,
    )
