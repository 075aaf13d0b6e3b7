"""What a parked message looks like when it is sent again (docs/contracts.md, section 9). No I/O."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from ops.audit import Identity
from ops.bus import Outgoing
from ops.parking import Parked, moment, plain_of
from ops.wire import Typed
from shared.contracts.ledger import LedgerBatch, LedgerEntry
from shared.contracts.orders import OrderCommand, OrderMessage, OrderStatus
from shared.domain import identity, payload, reserved, validation
from shared.envelope import Envelope, Role
from shared.errors import PermanentError, Reason
from shared.handlers.intake import CONTENT_ENCODING, Facts, Intake
from shared.ports import Container

Body = OrderMessage | LedgerBatch | LedgerEntry

_EVENT_PREFIXES: Final = ("cloudEvents:", "cloudEvents_")


class RefusedError(Exception):
    """The message is not replayed; the text says why, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the app will make of the replay: the document that proves it, and the hash in it."""

    body: Body
    key: str
    document_id: str
    payload_hash: str

    @property
    def container(self) -> Container | None:
        """Where the document will be; an order.status has none."""
        if isinstance(self.body, OrderStatus):
            return None
        if isinstance(self.body, LedgerBatch):
            return Container.LEDGERS
        return Container.LEDGER_ENTRIES if isinstance(self.body, LedgerEntry) else Container.ORDERS

    @property
    def partition(self) -> str:
        """The document's partition key."""
        return identity.session_id_of(self.body)

    @property
    def is_unnumbered_command(self) -> bool:
        """Whether its place among the order's commands is known by its time alone."""
        return isinstance(self.body, OrderCommand) and self.body.sequence is None


@dataclass(frozen=True, slots=True)
class Replay:
    """The message to send. `warning`: why this release of the app would park it again; then nothing is expected."""

    parked: Parked
    count: int
    dedup_id: str
    message: Outgoing
    expected: Expected | None
    warning: str | None
    is_corrected: bool

    @property
    def old(self) -> Identity:
        """What the parked message was known by."""
        return Identity(
            message_id=self.parked.message_id,
            dedup_id=self.parked.original,
            session_id=self.parked.session_id,
            payload_hash=self.parked.notes.get("payload-hash"),
        )

    @property
    def new(self) -> Identity:
        """What the replay is known by."""
        return Identity(
            message_id=self.message.message_id,
            dedup_id=self.dedup_id,
            session_id=self.message.session_id,
            payload_hash=self.expected.payload_hash if self.expected else None,
        )


def replay_of(parked: Parked, intake: Intake, now: datetime, corrected: bytes | None = None) -> Replay:
    """Make the message to send.

    Raises: RefusedError, when its identity can't be made anew, its body can't be sent, or the corrected one is wrong.
    """
    if corrected is None and not parked.message.has_text:  # a copy of it would not be it, and the original would go
        raise RefusedError("its body is neither bytes nor text, so no function can read it; give it as JSON (--body)")
    source = _Source(parked, corrected)
    if parked.has_identity_fault:
        source.renew_identity()
    original = source.original
    if not original:
        raise RefusedError("it has no message id, and its body gives none; give a corrected body (--body)")
    count = parked.replay_count + 1
    properties = dict(source.properties)
    marks = {
        reserved.DEDUP_ID: original,
        reserved.REPLAY_COUNT: str(count),
        reserved.REPLAY_FAILURES: str(parked.replay_failures) if parked.replay_failures else None,
        reserved.ORIGINAL_SEQUENCE_NUMBER: str(parked.original_sequence_number),
        reserved.ORIGINAL_ENQUEUED_AT: moment(parked.original_enqueued_at),
    }
    properties |= {name: Typed("STRING", value) for name, value in marks.items() if value is not None}
    old = parked.message
    message = Outgoing(
        message_id=replay_id(original, count),
        session_id=source.session_id,
        body=source.body,
        subject=old.subject,
        content_type=old.content_type,
        content_encoding=None if corrected is not None else old.content_encoding,
        correlation_id=old.correlation_id,
        to=old.to,
        reply_to=old.reply_to,
        reply_to_session_id=old.reply_to_session_id,
        properties=properties,
    )
    try:
        expected, warning = _expected(parked.role, message, intake, now), None
    except PermanentError as error:
        if corrected is not None:
            raise RefusedError(f"the corrected body would be parked: {error.reason}: {error.description}") from None
        expected, warning = None, f"{error.reason}: {error.description}"
    return Replay(parked, count, original, message, expected, warning, corrected is not None)


def compressed(message: Outgoing) -> Outgoing | None:
    """The same message with its body compressed, which changes no payload hash; None if it is compressed already."""
    if CONTENT_ENCODING in message.properties:
        return None
    properties = {**message.properties, CONTENT_ENCODING: Typed("STRING", "gzip")}
    return replace(message, body=gzip.compress(message.body, mtime=0), properties=properties)


def check_limits(parked: Parked, now: datetime, *, replay_max: int, horizon: timedelta) -> None:
    """Refuse what was replayed too often, or is too old for its record to be relied on.

    Raises: RefusedError.
    """
    if parked.replay_failures >= replay_max:
        raise RefusedError(f"{parked.replay_failures} of its replays were parked again (REPLAY_MAX {replay_max})")
    age = now - parked.original_enqueued_at
    if age > horizon:
        days = f"{age.total_seconds() / 86400:.1f} days"
        raise RefusedError(f"first enqueued {days} ago, longer than REPLAY_HORIZON_SECONDS: its record may be gone")


def replay_id(original: str, count: int) -> str:
    """The broker's id of a replay: another one each time, so that duplicate detection can't swallow it."""
    plain = f"{original}~r{count}"
    if len(plain.encode("utf-16-le", "surrogatepass")) // 2 <= identity.MAX_MESSAGE_ID:
        return plain
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).digest()
    return f"~{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}~r{count}"


def message_of(role: Role, value: Mapping[str, object]) -> Body:
    """A parsed body as a message of this role.

    Raises: InvalidBody.
    """
    if role is Role.LEDGER:
        return validation.ledger_batch(value)
    if role is Role.LEDGER_ENTRIES:
        return validation.ledger_entry(value)
    return validation.order_message(value)


def body_of(parked: Parked) -> Body | None:
    """What a parked message says, if it can be read at all."""
    try:
        return _Source(parked, None).message()
    except RefusedError:
        return None


def _expected(role: Role, message: Outgoing, intake: Intake, now: datetime) -> Expected:
    envelope = Envelope(
        role=role,
        body=message.body,
        message_id=message.message_id,
        session_id=message.session_id,
        sequence_number=1,
        enqueued_at=now,
        delivery_count=1,
        content_type=message.content_type,
        properties=plain_of(message.properties),
    )
    if role is Role.LEDGER:
        batch = intake.ledger_batch(envelope, Facts())
        return Expected(batch.body, batch.key, batch.document_id, batch.payload_hash)
    if role is Role.LEDGER_ENTRIES:
        entry = intake.entry(envelope, Facts())
        return Expected(entry.body, entry.key, entry.document_id, entry.payload_hash)
    order = intake.order(envelope, Facts())
    return Expected(order.body, order.key, order.document_id, order.payload_hash)


class _Source:
    """A parked message on its way to a replay."""

    def __init__(self, parked: Parked, corrected: bytes | None) -> None:
        self._parked = parked
        self.body = parked.body if corrected is None else corrected
        self.properties = dict(parked.properties)
        if corrected is not None:
            self.properties.pop(CONTENT_ENCODING, None)  # a corrected body is plain JSON
        self.original = parked.original
        self.session_id = parked.session_id

    def renew_identity(self) -> None:
        """Take session and MessageId from the body; of a CloudEvent, correct the event's id instead."""
        value = self._value()
        event = self._event(value)
        message = self._message(event.body if event else value)
        self.session_id = identity.session_id_of(message)
        wanted = identity.message_id_of(message)
        if event is None or not self.original:
            self.original = wanted
        if event is None or event.id == wanted or self._parked.reason != Reason.MESSAGE_KEY_MISMATCH:
            return
        plain = plain_of(self.properties)
        prefix = next((each for each in _EVENT_PREFIXES if f"{each}specversion" in plain), None)
        if self._is_structured or prefix is None:
            self.properties.pop(CONTENT_ENCODING, None)
            self.body = json.dumps({**value, "id": wanted}, ensure_ascii=False, separators=(",", ":")).encode()
        else:
            self.properties[f"{prefix}id"] = Typed("STRING", wanted)

    def message(self) -> Body:
        """What the body says."""
        value = self._value()
        event = self._event(value)
        return self._message(event.body if event else value)

    @property
    def _is_structured(self) -> bool:
        return identity.is_cloud_event(self._parked.message.content_type, {})

    def _value(self) -> dict[str, object]:
        encoding = plain_of(self.properties).get(CONTENT_ENCODING)
        try:
            return payload.read(self.body, None if encoding is None else str(encoding)).value
        except PermanentError as error:
            raise _unreadable(error.description) from None

    def _event(self, value: dict[str, object]) -> identity.CloudEvent | None:
        try:
            return identity.cloud_event(value, self._parked.message.content_type, plain_of(self.properties))
        except PermanentError as error:
            raise _unreadable(error.description) from None

    def _message(self, value: Mapping[str, object]) -> Body:
        try:
            return message_of(self._parked.role, value)
        except validation.InvalidBody as invalid:
            raise _unreadable(validation.describe(invalid.violations)) from None


def _unreadable(why: str) -> RefusedError:
    return RefusedError(f"its identity can't be made anew from its body ({why}); give a corrected body (--body)")
