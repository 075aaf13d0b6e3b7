"""From a delivery to a checked message: seven steps, all before the first write (docs/contracts.md, "From delivery to
identity")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from shared.contracts.ledger import LedgerBatch, LedgerEntry
from shared.contracts.orders import OrderCommand, OrderMessage, OrderPlaced
from shared.domain import identity, payload, reserved, validation
from shared.envelope import Envelope
from shared.errors import PermanentError, Reason
from shared.ports import Clock

CONTENT_ENCODING = "content-encoding"

_MARGIN = timedelta(days=1)  # a record must outlive the message that it recognises

B = TypeVar("B", OrderMessage, LedgerBatch, LedgerEntry)


@dataclass(frozen=True, slots=True)
class Checked(Generic[B]):
    """A message that passed all checks. `enqueued_at` is the first enqueuing, also of a replay."""

    body: B
    key: str
    document_id: str
    payload_hash: str
    raw_hash: str
    replay_count: int
    enqueued_at: str


@dataclass(slots=True)
class Facts:
    """What is known of a delivery so far, for log and parked copy; filled also where intake raises."""

    dedup_key: str | None = None
    payload_hash: str | None = None
    stored_hash: str | None = None
    replay_count: int = 0


class Intake:
    """Checks deliveries. Identity comes from the broker's metadata, and must agree with the body."""

    def __init__(self, clock: Clock, record_ttl_seconds: int) -> None:
        self._clock = clock
        self._record_ttl = timedelta(seconds=record_ttl_seconds)

    def order(self, envelope: Envelope, facts: Facts) -> Checked[OrderMessage]:
        """Check a message of the queue `orders`.

        Raises:
            PermanentError: with the reason of the first step that refuses it.
        """
        checked = self._checked(envelope, facts, validation.order_message)
        if isinstance(checked.body, OrderCommand):
            self._check_age(envelope)
        return checked

    def ledger_batch(self, envelope: Envelope, facts: Facts) -> Checked[LedgerBatch]:
        """Check a message of the queue `ledger`.

        Raises:
            PermanentError: with the reason of the first step that refuses it.
        """
        checked = self._checked(envelope, facts, validation.ledger_batch)
        self._check_age(envelope)
        return checked

    def entry(self, envelope: Envelope, facts: Facts) -> Checked[LedgerEntry]:
        """Check a message of the queue `ledger-entries`.

        Raises:
            PermanentError: with the reason of the first step that refuses it.
        """
        return self._checked(envelope, facts, validation.ledger_entry)

    def _checked(
        self, envelope: Envelope, facts: Facts, validated: Callable[[dict[str, object]], B]
    ) -> Checked[B]:
        facts.replay_count = reserved.replay_count(envelope.properties)
        original = _original(envelope)
        if not identity.is_cloud_event(envelope.content_type, envelope.properties):
            facts.dedup_key = original  # known even if the body can't be read
        encoding = envelope.properties.get(CONTENT_ENCODING)
        received = payload.read(envelope.body, None if encoding is None else str(encoding))
        event = identity.cloud_event(received.value, envelope.content_type, envelope.properties)
        value = event.body if event else received.value
        key = event.key if event else original
        facts.dedup_key = key
        facts.payload_hash = payload.payload_hash(value)
        try:
            body = validated(value)
        except validation.InvalidBody as exc:
            raise PermanentError(Reason.INVALID_MESSAGE, validation.describe(exc.violations)) from None
        identity.check_message_id(event.id if event else original, body)
        identity.check_session_id(envelope.session_id, body)
        return Checked(
            body=body,
            key=key,
            # Whoever places an order, and however: there is one document of it.
            document_id=identity.document_id(body.order_id)
            if isinstance(body, OrderPlaced)
            else identity.document_id(key, cloud_event=event is not None),
            payload_hash=facts.payload_hash,
            raw_hash=received.raw_hash,
            replay_count=facts.replay_count,
            enqueued_at=identity.rfc3339(reserved.original_enqueued_at(envelope.properties) or envelope.enqueued_at),
        )

    def _check_age(self, envelope: Envelope) -> None:
        """Refuse a message that is older than the record by which it would be recognised.

        The worker's own clock will do: it only refuses.
        """
        enqueued = min(envelope.enqueued_at, reserved.original_enqueued_at(envelope.properties) or envelope.enqueued_at)
        if self._clock.now() - enqueued > self._record_ttl - _MARGIN:
            raise PermanentError(
                Reason.DEDUP_EXPIRED, "enqueued so long ago that its record may have expired (RECORD_TTL_SECONDS)"
            )


def _original(envelope: Envelope) -> str:
    """The MessageId at first delivery: the broker's, or what the replay tool kept of it."""
    kept = envelope.properties.get(reserved.DEDUP_ID)
    original = kept if isinstance(kept, str) and reserved.replay_count(envelope.properties) else envelope.message_id
    if not original:
        raise PermanentError(Reason.MESSAGE_ID_MISSING, "the message has no message id, or an empty one")
    return original
