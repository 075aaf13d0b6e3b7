"""Who a message is: dedup key, document id, MessageId, session (docs/contracts.md, "From delivery to identity").

One function makes each id, on write and read paths alike, so that a document that was written is found again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from shared.contracts.ledger import LedgerBatch, LedgerEntry
from shared.contracts.orders import OrderCommand, OrderMessage, OrderPlaced, OrderStatus
from shared.domain import payload, validation
from shared.envelope import PropertyValue
from shared.errors import PermanentError, Reason

MAX_MESSAGE_ID = 128  # UTF-16 code units; the broker's limit

Body = OrderMessage | LedgerBatch | LedgerEntry

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]*")
_SOURCE = re.compile(r'[ !#-\[\]-~]{1,255}')  # printable ASCII but for the quotation mark and the backslash
_CONTENT_TYPE = "application/cloudevents+json"
_PREFIXES = ("cloudEvents:", "cloudEvents_")


def document_id(key: str, *, cloud_event: bool = False) -> str:
    """The id under which a dedup key is stored: injective, reversible, and safe for Cosmos DB whatever the key."""
    if cloud_event:
        return "~c~" + _base64url(key.encode())
    if _SAFE.fullmatch(key):
        return key
    return "~x~" + _base64url(key.encode())


def outbox_id(batch: str) -> str:
    """The id of the document that holds the messages of the ledger batch with this document id."""
    return "~outbox." + batch


def skip_id(what: str, first: int) -> str:
    """The id of the document that skips numbers of a stream, of the commands or of the batches."""
    return "~skip." + document_id(f"{what}.{first}")


def entry_id(order_id: str, stream: str, transaction_id: str) -> str:
    """MessageId and dedup key of a ledger entry; where the plain text is too long for the broker, it is hashed."""
    tail = f"{stream}:{transaction_id}"
    plain = f"{order_id}:{tail}"
    return plain if _utf16_units(plain) <= MAX_MESSAGE_ID else f"{order_id}:~{_digest(tail.encode())}"


def message_id_of(body: Body) -> str:
    """The MessageId that a body must be sent under."""
    if isinstance(body, LedgerEntry):
        return entry_id(body.order_id, body.stream, body.transaction_id)
    if isinstance(body, LedgerBatch):
        return f"{body.ledger_id}:{body.batch_id}"
    if isinstance(body, OrderPlaced):
        return body.order_id
    if isinstance(body, OrderStatus):
        return f"{body.order_id}:{validation.STATUS_PREFIX}{body.version}"
    if isinstance(body, OrderCommand):
        return f"{body.order_id}:{body.operation_id}"
    assert_never(body)


def session_id_of(body: Body) -> str:
    """The session that a body must be sent in; also its partition key."""
    return body.ledger_id if isinstance(body, LedgerBatch) else body.order_id


def check_message_id(original: str, body: Body) -> None:
    """Refuse a MessageId (of a CloudEvent: an event id) that is not what the body says.

    Ids hold no colon, so the text before the first one is the partition key: one key, one partition.

    Raises:
        PermanentError: MESSAGE_KEY_MISMATCH.
    """
    if isinstance(body, OrderStatus):
        is_right = original.startswith(f"{body.order_id}:") and _utf16_units(original) <= MAX_MESSAGE_ID
    else:
        is_right = original == message_id_of(body)
    if not is_right:
        raise PermanentError(Reason.MESSAGE_KEY_MISMATCH, f"message id must be {_message_id_form(body)} of the body")


def check_session_id(session_id: str | None, body: Body) -> None:
    """Refuse a session that is not the body's; the broker may have changed the case of ASCII letters, nothing else.

    Raises:
        PermanentError: SESSION_KEY_MISMATCH.
    """
    if session_id is None or _ascii_lower(session_id) != _ascii_lower(session_id_of(body)):
        member = "ledgerId" if isinstance(body, LedgerBatch) else "orderId"
        found = "none" if session_id is None else "another"
        raise PermanentError(Reason.SESSION_KEY_MISMATCH, f"session id must be the body's {member}, found {found}")


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """What identifies a CloudEvent, and the body that it carries."""

    id: str
    source: str
    body: dict[str, object]

    @property
    def key(self) -> str:
        """The dedup key: an event id is unique within its source only."""
        return payload.canonical([self.source, self.id]).decode()


def cloud_event(
    value: dict[str, object], content_type: str | None, properties: Mapping[str, PropertyValue]
) -> CloudEvent | None:
    """Unwrap a CloudEvent in structured or binary mode; None if the message is none.

    Raises:
        PermanentError: INVALID_MESSAGE, which names the attribute that is wrong.
    """
    if _is_structured(content_type):
        return _event(value, value.get("data"))
    prefix = _binary_prefix(properties)
    if prefix is None:
        return None
    attributes = {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}
    return _event(attributes, value)


def is_cloud_event(content_type: str | None, properties: Mapping[str, PropertyValue]) -> bool:
    """Whether a message says that it is a CloudEvent, so that its key is not its MessageId."""
    return _is_structured(content_type) or _binary_prefix(properties) is not None


def _is_structured(content_type: str | None) -> bool:
    """In structured mode the body is the event. Media types know no case."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == _CONTENT_TYPE


def _binary_prefix(properties: Mapping[str, PropertyValue]) -> str | None:
    """In binary mode the attributes are application properties."""
    return next((prefix for prefix in _PREFIXES if f"{prefix}specversion" in properties), None)


def _event(attributes: Mapping[str, object], data: object) -> CloudEvent:
    if attributes.get("specversion") != "1.0":
        raise PermanentError(Reason.INVALID_MESSAGE, "CloudEvents specversion: must be 1.0")
    texts = {}
    for name in ("id", "source", "type"):
        text = attributes.get(name)
        if not isinstance(text, str) or not text:
            raise PermanentError(Reason.INVALID_MESSAGE, f"CloudEvents {name}: must be a string and not empty")
        texts[name] = text
    if _utf16_units(texts["id"]) > MAX_MESSAGE_ID:
        raise PermanentError(Reason.MESSAGE_KEY_MISMATCH, "CloudEvents id: longer than any message id can be")
    if not _SOURCE.fullmatch(texts["source"]):
        expected = "must be 1 to 255 printable ASCII characters without quotation mark and backslash"
        raise PermanentError(Reason.INVALID_MESSAGE, f"CloudEvents source: {expected}")
    if not isinstance(data, dict):
        raise PermanentError(Reason.INVALID_MESSAGE, "CloudEvents data: must be a JSON object")
    return CloudEvent(texts["id"], texts["source"], {**data, "type": texts["type"]})


@dataclass(frozen=True, slots=True)
class Addressed:
    """A message of a producer, ready to be sent: MessageId, session, subject and bytes."""

    message_id: str
    session_id: str
    body: bytes
    subject: str


def address(body: object) -> Addressed:
    """Give a message its identity, for producers: what consumers will check is checked before it is sent.

    Takes one parsed JSON value of any message type. A ledger message may leave out its `type`. The body is sent as
    the value is given, with its `meta`; only spaces and the spelling of numbers may differ.

    Raises:
        PermanentError: INVALID_MESSAGE; the description names the member.
    """
    try:
        text = json.dumps(body)  # escapes all but ASCII, so that reading it names the place of a lone surrogate
    except (TypeError, ValueError, RecursionError) as exc:
        raise PermanentError(Reason.INVALID_MESSAGE, "body: must be a JSON value") from exc
    value = payload.read(text.encode(), None).value
    try:
        message = _message(value)
    except validation.InvalidBody as exc:
        raise PermanentError(Reason.INVALID_MESSAGE, validation.describe(exc.violations)) from None
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Addressed(message_id_of(message), session_id_of(message), compact, message.type)


def quarantine_message_id(role: str, sequence_number: int, enqueued_at_text: str, message_id: str | None) -> str:
    """The MessageId of a parked copy: the same on each redelivery of one broker message, another after a replay."""
    return "q~" + _digest(payload.canonical([role, str(sequence_number), enqueued_at_text, message_id]))


def rfc3339(moment: datetime) -> str:
    """A moment as text: UTC with `Z`, to the millisecond, so that texts sort as moments do."""
    if moment.tzinfo is None:
        raise ValueError("a moment needs a time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(value: dict[str, object]) -> Body:
    named = value.get("type")
    if named == "ledger.batch" or (named is None and "ledgerId" in value):
        return validation.ledger_batch(value)
    if named == "ledger.entry" or (named is None and "stream" in value):
        return validation.ledger_entry(value)
    return validation.order_message(value)


def _message_id_form(body: Body) -> str:
    if isinstance(body, LedgerEntry):
        return "<orderId>:<stream>:<transactionId>"
    if isinstance(body, LedgerBatch):
        return "<ledgerId>:<batchId>"
    if isinstance(body, OrderPlaced):
        return "<orderId>"
    if isinstance(body, OrderStatus):
        return f"<orderId>:{validation.STATUS_PREFIX}<version>"
    if isinstance(body, OrderCommand):
        return "<orderId>:<operationId>"
    assert_never(body)


def _ascii_lower(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").lower()  # bytes know ASCII letters only


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _digest(data: bytes) -> str:
    return _base64url(hashlib.sha256(data).digest())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
