"""What is received and what is sent, free of SDK types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

PropertyValue = str | bool | int | float


class Role(StrEnum):
    """The logical name of a queue; the entity behind it is known to the settings only."""

    ORDERS = "orders"
    LEDGER = "ledger"
    LEDGER_ENTRIES = "ledger-entries"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Envelope:
    """One delivery. Identity, session and delivery count come from the broker's metadata, never from the body."""

    role: Role
    body: bytes
    message_id: str | None
    session_id: str | None
    sequence_number: int
    enqueued_at: datetime
    delivery_count: int
    content_type: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    traceparent: str | None = None
    tracestate: str | None = None


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message for a queue of this app."""

    message_id: str
    session_id: str
    body: bytes
    subject: str | None = None
    content_type: str | None = "application/json"
    correlation_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request; header names are lower-case."""

    body: bytes
    headers: Mapping[str, str]
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What an HTTP function answers."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
