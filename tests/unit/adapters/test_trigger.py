"""From the host's message to an Envelope, through the library's own converter."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import azure.functions as func
import pytest
from azure.functions.meta import Datum
from azure.functions.servicebus import ServiceBusMessageInConverter

from shared.adapters.trigger import envelope_of, request_of, response_of
from shared.envelope import Envelope, HttpAnswer, Role

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"
METADATA: dict[str, Any] = {
    "MessageId": "ORD-1",
    "SessionId": "ORD-1",
    "CorrelationId": "corr-1",
    "ContentType": "application/json",
    "Subject": "order.placed",
    "To": "somewhere",
    "ReplyTo": "answers",
    "ReplyToSessionId": "S-9",
    "SequenceNumber": 4711,
    "DeliveryCount": 3,
    "EnqueuedTimeUtc": "2026-11-30T12:00:00.123",
    "ApplicationProperties": {"text": "ä", "yes": True, "int": 7, "double": 1.5, "nothing": None, "object": {"a": 1}},
}


def received(body: bytes = b"{}", **changes: Any) -> func.ServiceBusMessage:
    """A message as the worker hands it over; None takes a field away."""
    fields = {name: value for name, value in {**METADATA, **changes}.items() if value is not None}
    fields["UserProperties"] = fields["ApplicationProperties"]  # the host sends them under both names
    metadata = {
        name: Datum(value, "string")
        if isinstance(value, str) and "Time" not in name
        else Datum(json.dumps(value), "json")
        for name, value in fields.items()
    }
    converted = ServiceBusMessageInConverter.decode(Datum(body, "bytes"), trigger_metadata=metadata)
    assert isinstance(converted, func.ServiceBusMessage)
    return converted


def context(traceparent: str = "", tracestate: str = "") -> func.Context:
    trace = SimpleNamespace(trace_parent=traceparent, trace_state=tracestate)
    return cast("func.Context", SimpleNamespace(trace_context=trace))


def envelope(message: func.ServiceBusMessage | None = None, where: func.Context | None = None) -> Envelope:
    return envelope_of(Role.ORDERS, message or received(), where or context())


def test_everything_that_the_host_says_is_in_the_envelope() -> None:
    """C08 C11 C29: identity, session, count and times are the broker's."""
    found = envelope()
    assert (found.role, found.body) == (Role.ORDERS, b"{}")
    assert (found.message_id, found.session_id, found.correlation_id) == ("ORD-1", "ORD-1", "corr-1")
    assert (found.content_type, found.subject, found.to) == ("application/json", "order.placed", "somewhere")
    assert (found.reply_to, found.reply_to_session_id) == ("answers", "S-9")
    assert (found.sequence_number, found.delivery_count) == (4711, 3)


def test_body_is_bytes_as_they_came() -> None:
    """D09: what the raw hash is made of."""
    assert envelope(received(b"\xff\xfe\x00")).body == b"\xff\xfe\x00"


def test_times_are_utc_although_the_host_does_not_say_so() -> None:
    """R44: naive datetimes never meet aware ones."""
    assert envelope().enqueued_at == datetime(2026, 11, 30, 12, 0, 0, 123000, UTC)


def test_unknown_time_is_taken_for_the_oldest() -> None:
    """The age check then refuses what may have outlived its record."""
    assert envelope(received(EnqueuedTimeUtc=None)).enqueued_at == datetime.fromtimestamp(0, UTC)


@pytest.mark.parametrize("name", ["MessageId", "SessionId", "CorrelationId", "ContentType", "ReplyTo"])
def test_absent_field_is_none(name: str) -> None:
    """R26: nothing is made up."""
    found = envelope(received(**{name: None}))
    member = {"MessageId": "message_id", "SessionId": "session_id", "CorrelationId": "correlation_id"}.get(name)
    assert getattr(found, member or {"ContentType": "content_type", "ReplyTo": "reply_to"}[name]) is None


def test_empty_message_id_is_none() -> None:
    """R26: it identifies nothing."""
    assert envelope(received(MessageId="")).message_id is None


def test_empty_session_id_is_a_session_id() -> None:
    assert envelope(received(SessionId="")).session_id == ""


def test_properties_keep_their_kinds() -> None:
    """What is no plain value arrives as its JSON text; null is no value."""
    properties = envelope().properties
    assert properties == {"text": "ä", "yes": True, "int": 7, "double": 1.5, "object": '{"a": 1}'}
    assert properties["yes"] is True


@pytest.mark.parametrize(
    ("of_context", "properties", "expected"),
    [
        (TRACE, {"traceparent": OTHER}, TRACE),
        ("", {"traceparent": TRACE}, TRACE),
        ("", {"Diagnostic-Id": TRACE}, TRACE),
        ("garbage", {"traceparent": "00-zz", "Diagnostic-Id": OTHER}, OTHER),
        ("", {"traceparent": 7}, None),
        ("", {}, None),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", {}, None),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", {}, None),
        (TRACE + "\n", {}, None),
    ],
)
def test_first_trace_that_is_one_counts(of_context: str, properties: dict[str, Any], expected: str | None) -> None:
    """C31: garbage is ignored."""
    assert envelope(received(ApplicationProperties=properties), context(of_context)).traceparent == expected


def test_request_has_lower_case_headers_and_raw_body() -> None:
    request = func.HttpRequest(
        "POST", "http://x/api/orders", headers={"X-Correlation-Id": "c", "Traceparent": TRACE}, body=b"\xff"
    )
    found = request_of(request, context())
    assert (found.body, found.headers["x-correlation-id"], found.traceparent) == (b"\xff", "c", TRACE)


def test_answer_keeps_status_headers_and_content_type() -> None:
    answer = HttpAnswer(422, b"{}", "application/problem+json", {"Retry-After": "5"})
    made = response_of(answer)
    assert (made.status_code, made.get_body(), made.mimetype) == (422, b"{}", "application/problem+json")
    assert made.headers["Retry-After"] == "5"
