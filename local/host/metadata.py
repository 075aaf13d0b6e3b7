"""What a Service Bus trigger gets: the body as a typed value, and the trigger metadata with the host's encodings.

Names, encodings and the one-based delivery count are those of the extension's ServiceBusTriggerBindingStrategy. The
rule that lets a JSON body overwrite metadata is Utility.ApplyBindingData of the host: it looks at *strings* only, so a
trigger with data type BINARY is immune.
"""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from local.broker.codec import Timestamp
from local.broker.model import Delivery

Typed: TypeAlias = tuple[str, str]  # kind of the value ("string", "json") and its text

_NEVER: Final = "9999-12-31T23:59:59.9999999"  # DateTimeOffset.MaxValue: a message without time to live
_TRACE_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# Json.NET reads texts of this form as dates, and a date becomes a string in the invariant culture's form.
_ISO_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z?")


@dataclass(frozen=True, slots=True)
class TriggerInput:
    """The trigger's value and its metadata, ready for the worker's converters."""

    kind: str  # "bytes" or "string"
    body: bytes
    metadata: Mapping[str, Typed]
    trace: Mapping[str, str]


def trigger_input(
    delivery: Delivery, *, is_binary: bool, namespace: str, session_locked_until: float | None
) -> TriggerInput:
    """Build the input of one message; invalid UTF-8 becomes U+FFFD unless the trigger is binary."""
    metadata = _metadata(delivery, namespace, session_locked_until)
    trace = trace_context(delivery.message.application_properties)
    body = delivery.message.body
    if is_binary:
        return TriggerInput("bytes", body, metadata, trace)
    text = body.decode("utf-8", errors="replace")
    return TriggerInput("string", text.encode(), _overwritten(metadata, text), trace)


def message_id_text(value: object) -> str | None:
    """A message id of any AMQP type as the .NET client shows it."""
    if value is None:
        return None
    return "-".join(f"{byte:02X}" for byte in value) if isinstance(value, bytes) else str(value)


def trace_context(properties: Mapping[str, object]) -> dict[str, str]:
    """The W3C context in a message's properties or a request's headers; what doesn't parse is ignored."""
    for name in ("traceparent", "Diagnostic-Id"):
        value = properties.get(name)
        if isinstance(value, str) and _TRACE_PARENT.fullmatch(value):
            state = properties.get("tracestate")
            return {"traceparent": value, "tracestate": state if isinstance(state, str) else ""}
    return {}


def _metadata(delivery: Delivery, namespace: str, session_locked_until: float | None) -> dict[str, Typed]:
    message = delivery.message
    actions = {} if session_locked_until is None else {"SessionLockedUntil": _offset_time(session_locked_until)}
    client = {"FullyQualifiedNamespace": namespace, "IsClosed": False, "TransportType": 0, "Identifier": namespace}
    properties = {name: _plain(value) for name, value in message.application_properties.items()}
    values: dict[str, object] = {
        "MessageReceiver": actions,
        "MessageSession": actions,
        "MessageActions": actions,
        "SessionActions": actions if session_locked_until is not None else None,
        "ReceiveActions": {},
        "Client": client,
        "DeliveryCount": delivery.delivery_count + 1,
        "LockToken": str(delivery.lock_token),
        # DateTimeOffset.DateTime has no zone, so the worker's values are naive; the twins below carry the offset.
        "ExpiresAtUtc": _NEVER if delivery.expires_at is None else naive_time(delivery.expires_at),
        "ExpiresAt": f"{_NEVER}+00:00" if delivery.expires_at is None else _offset_time(delivery.expires_at),
        "EnqueuedTimeUtc": naive_time(delivery.enqueued_at),
        "EnqueuedTime": _offset_time(delivery.enqueued_at),
        "MessageId": message_id_text(message.message_id),
        "ContentType": message.content_type,
        "ReplyTo": message.reply_to,
        "SequenceNumber": delivery.sequence_number,
        "To": message.to,
        "Subject": message.subject,
        "Label": message.subject,
        "CorrelationId": message_id_text(message.correlation_id),
        "ApplicationProperties": properties,
        "UserProperties": properties,
        "SessionId": delivery.session_id,
        "ReplyToSessionId": message.reply_to_session_id,
        "PartitionKey": message.partition_key,
    }
    as_json = {"ExpiresAtUtc", "ExpiresAt", "EnqueuedTimeUtc", "EnqueuedTime"}
    return {
        name: ("string", value) if isinstance(value, str) and name not in as_json else ("json", json.dumps(value))
        for name, value in values.items()
        if value is not None
    }


def _overwritten(metadata: Mapping[str, Typed], text: str) -> dict[str, Typed]:
    """Let the body's top-level properties overwrite the metadata, whatever their case; arrays and nulls don't."""
    result = dict(metadata)
    trimmed = text.strip()
    if not (trimmed.startswith("{") and trimmed.endswith("}")):
        return result
    try:
        parsed = json.loads(trimmed)
    except ValueError:
        return result
    spelt = {name.lower(): name for name in result}
    for name, value in parsed.items():
        if value is None or isinstance(value, list):
            continue
        key = spelt.setdefault(name.lower(), name)
        result[key] = ("json", json.dumps(value)) if isinstance(value, dict) else ("string", _net_text(value))
    return result


def _net_text(value: object) -> str:
    """A JSON scalar as .NET casts it to a string."""
    if isinstance(value, bool):
        return str(value)  # "True", "False" there too
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, str) and (date := _ISO_DATE.fullmatch(value)):
        year, month, day, clock = date.groups()
        return f"{month}/{day}/{year} {clock}"
    return str(value)


def _plain(value: object) -> object:
    """An application property as Json.NET writes it."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        case Timestamp():
            return _trimmed(datetime(1970, 1, 1) + timedelta(milliseconds=value)) + "Z"  # noqa: DTZ001
        case bool() | int() | float() | str() | None:
            return value
        case uuid.UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


def naive_time(moment: float) -> str:
    """A moment as Json.NET writes a date without zone."""
    return _trimmed(datetime(1970, 1, 1) + timedelta(seconds=moment))  # noqa: DTZ001  # naive on purpose


def _offset_time(moment: float) -> str:
    return f"{naive_time(moment)}+00:00"


def _trimmed(moment: datetime) -> str:
    """ISO 8601 without zone and, as Json.NET does it, without zeros at the end of the fraction."""
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    return text.rstrip("0").rstrip(".")
