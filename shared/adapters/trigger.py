"""From what the Functions host hands over to an Envelope (and HTTP requests to ours, and back)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import azure.functions as func

from shared.envelope import Envelope, HttpAnswer, HttpRequest, PropertyValue, Role

# https://www.w3.org/TR/trace-context/#traceparent-header-field-values
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def envelope_of(role: Role, message: func.ServiceBusMessage, context: func.Context) -> Envelope:
    """One delivery. The host's datetimes are naive, in UTC; its delivery count is 1-based."""
    properties: dict[str, PropertyValue] = {
        str(name): value if isinstance(value, str | bool | int | float) else json.dumps(value)
        for name, value in message.application_properties.items()
        if value is not None
    }
    return Envelope(
        role=role,
        body=message.get_body(),
        message_id=message.message_id or None,
        session_id=_session_id(message),
        sequence_number=message.sequence_number or 0,
        enqueued_at=_utc(message.enqueued_time_utc),
        delivery_count=message.delivery_count or 1,
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        subject=message.subject or message.label,
        to=message.to,
        reply_to=message.reply_to,
        reply_to_session_id=message.reply_to_session_id,
        properties=properties,
        traceparent=_first_traceparent(
            context.trace_context.trace_parent, properties.get("traceparent"), properties.get("Diagnostic-Id")
        ),
        tracestate=context.trace_context.trace_state or None,
    )


def request_of(request: func.HttpRequest, context: func.Context) -> HttpRequest:
    """One HTTP request."""
    return HttpRequest(
        body=request.get_body(),
        headers={name.lower(): value for name, value in request.headers.items()},
        traceparent=_first_traceparent(context.trace_context.trace_parent, request.headers.get("traceparent")),
    )


def response_of(answer: HttpAnswer) -> func.HttpResponse:
    """One HTTP answer."""
    return func.HttpResponse(
        answer.body, status_code=answer.status, headers=dict(answer.headers), mimetype=answer.content_type
    )


def _session_id(message: func.ServiceBusMessage) -> str | None:
    """Some hosts leave the message's own field empty and tell the session beside it."""
    if message.session_id is not None:
        return message.session_id
    session = (message.metadata or {}).get("MessageSession")
    nested = session.get("SessionId") if isinstance(session, dict) else None
    return nested if isinstance(nested, str) else None


def _utc(moment: datetime | None) -> datetime:
    """The host always sends the enqueued time; without it the age is unknown, and the oldest is assumed."""
    if moment is None:
        return datetime.fromtimestamp(0, UTC)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _first_traceparent(*candidates: object) -> str | None:
    """The first that is one; garbage is ignored."""
    return next((text for text in candidates if isinstance(text, str) and _TRACEPARENT.fullmatch(text)), None)
