"""Trigger metadata by the host's rules (functions-platform 2.2, 2.3, 3.1)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.broker.codec import Timestamp
from local.broker.messages import build_message
from local.broker.model import Delivery, MessageState
from local.host.metadata import message_id_text, trace_context, trigger_input

TOKEN = uuid.UUID("11112222-3333-4444-5555-666677778888")
ENQUEUED = 1_700_000_000.25


def delivery(
    body: bytes = b"{}", *, delivery_count: int = 0, expires_at: float | None = None, **fields: Any
) -> Delivery:
    fields = {"message_id": "m1", "session_id": "s1", **fields}
    return Delivery(
        queue="orders",
        lock_token=TOKEN,
        locked_until=ENQUEUED + 60,
        delivery_count=delivery_count,
        sequence_number=7,
        enqueue_sequence_number=7,
        enqueued_at=ENQUEUED,
        expires_at=expires_at,
        session_id=fields["session_id"],
        state=MessageState.ACTIVE,
        message=build_message(body, **fields),
    )


def metadata(given_delivery: Delivery, *, is_binary: bool = True) -> dict[str, tuple[str, str]]:
    given_input = trigger_input(
        given_delivery, is_binary=is_binary, namespace="localhost", session_locked_until=ENQUEUED + 60
    )
    return dict(given_input.metadata)


def test_every_name_of_the_extension_is_there_with_its_encoding() -> None:
    found = metadata(
        delivery(
            correlation_id="c1",
            subject="order.placed",
            content_type="application/json",
            delivery_count=2,
            application_properties={"a": 1, "b": "x", "c": True},
            expires_at=ENQUEUED + 3600,
        )
    )
    assert found["DeliveryCount"] == ("json", "3")  # one-based
    assert found["MessageId"] == ("string", "m1")
    assert found["SessionId"] == ("string", "s1")
    assert found["LockToken"] == ("string", str(TOKEN))
    assert found["SequenceNumber"] == ("json", "7")
    assert found["CorrelationId"] == ("string", "c1")
    assert found["Subject"] == found["Label"] == ("string", "order.placed")
    assert found["ContentType"] == ("string", "application/json")
    assert found["EnqueuedTimeUtc"] == ("json", '"2023-11-14T22:13:20.25"')  # no zone: the worker's value is naive
    assert found["EnqueuedTime"] == ("json", '"2023-11-14T22:13:20.25+00:00"')
    assert found["ExpiresAtUtc"] == ("json", '"2023-11-14T23:13:20.25"')
    assert found["ApplicationProperties"] == found["UserProperties"] == ("json", '{"a": 1, "b": "x", "c": true}')
    assert json.loads(found["SessionActions"][1]) == {"SessionLockedUntil": "2023-11-14T22:14:20.25+00:00"}
    assert {"MessageReceiver", "MessageSession", "MessageActions", "ReceiveActions", "Client"} <= found.keys()


def test_what_a_message_does_not_have_is_not_there() -> None:
    found = metadata(delivery(message_id=None))
    for name in (
        "MessageId",
        "CorrelationId",
        "Subject",
        "Label",
        "ContentType",
        "To",
        "ReplyTo",
        "ReplyToSessionId",
        "PartitionKey",
        "DeadLetterSource",
        "TransactionPartitionKey",
        "LockedUntil",
        "TimeToLive",
        "State",
        "DeadLetterReason",
        "ScheduledEnqueueTimeUtc",
        "EnqueuedSequenceNumber",
    ):
        assert name not in found, name
    assert found["UserProperties"] == ("json", "{}")
    assert found["ExpiresAtUtc"] == ("json", '"9999-12-31T23:59:59.9999999"')


def test_without_a_session_there_are_no_session_actions() -> None:
    given_input = trigger_input(delivery(), is_binary=True, namespace="n", session_locked_until=None)
    assert "SessionActions" not in given_input.metadata
    assert given_input.metadata["MessageReceiver"] == ("json", "{}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (17, "17"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x01\xab", "01-AB"),
        (None, None),
        ("", ""),
    ],
)
def test_message_ids_of_every_amqp_type_become_texts(value: object, text: str | None) -> None:
    assert message_id_text(value) == text


def test_application_properties_become_json_as_json_net_writes_it() -> None:
    properties = {
        "uuid": uuid.UUID(int=1),
        "bytes": b"\x00\x01",
        "when": Timestamp(1_700_000_000_250),
        "nan": float("nan"),
        "minus": float("-inf"),
        "null": None,
        "float": 1.5,
    }
    found = json.loads(metadata(delivery(application_properties=properties))["UserProperties"][1])
    assert found == {
        "uuid": "00000000-0000-0000-0000-000000000001",
        "bytes": "AAE=",
        "when": "2023-11-14T22:13:20.25Z",
        "nan": "NaN",
        "minus": "-Infinity",
        "null": None,
        "float": 1.5,
    }


SPOOF = b'{"messageId":"SPOOFED","SESSIONID":"other","deliveryCount":99,"lockToken":"zz","userProperties":{"x":1}}'


def test_a_json_body_overwrites_metadata_whatever_the_case_when_the_data_type_is_not_binary() -> None:
    """The platform's fault that BINARY avoids (2.2)."""
    found = metadata(delivery(SPOOF), is_binary=False)
    assert found["MessageId"] == ("string", "SPOOFED")
    assert found["SessionId"] == ("string", "other")
    assert found["DeliveryCount"] == ("string", "99")
    assert found["LockToken"] == ("string", "zz")
    assert found["UserProperties"] == ("json", '{"x": 1}')
    assert not {"messageId", "SESSIONID"} & found.keys()  # the first spelling stays


def test_a_binary_trigger_is_immune() -> None:
    assert metadata(delivery(SPOOF)) == metadata(delivery(b"\x00"))


@pytest.mark.parametrize(
    "body",
    [
        b'["messageId"]',
        b'{"messageId": null}',
        b'{"messageId": ["x"]}',
        b'{"messageId": "x"} more',
        b'{"messageId": "x"',
        b"",
        b"messageId",
        b'"messageId"',
        b"\xef\xbb\xbf{}",
    ],
)
def test_arrays_nulls_and_what_is_no_json_object_overwrite_nothing(body: bytes) -> None:
    assert metadata(delivery(body), is_binary=False) == metadata(delivery(b"\x00"))


@pytest.mark.parametrize(
    ("json_value", "text"),
    [
        ("true", "True"),
        ("1", "1"),
        ("1.0", "1"),
        ("1.5", "1.5"),
        ('"2024-02-03T04:05:06Z"', "02/03/2024 04:05:06"),
    ],
)
def test_overwriting_values_are_texts_as_net_casts_them(json_value: str, text: str) -> None:
    body = f'{{"messageId": {json_value}}}'.encode()
    assert metadata(delivery(body), is_binary=False)["MessageId"] == ("string", text)


def test_a_new_property_of_the_body_becomes_metadata_too() -> None:
    assert metadata(delivery(b' {"orderId": "ORD-1"} '), is_binary=False)["orderId"] == ("string", "ORD-1")


@given(st.binary(max_size=200))
def test_a_binary_body_arrives_byte_for_byte(body: bytes) -> None:
    given_input = trigger_input(delivery(body), is_binary=True, namespace="n", session_locked_until=None)
    assert (given_input.kind, given_input.body) == ("bytes", body)


def test_without_binary_invalid_utf_8_becomes_replacement_characters() -> None:
    given_input = trigger_input(delivery(b"a\xffb"), is_binary=False, namespace="n", session_locked_until=None)
    assert (given_input.kind, given_input.body) == ("string", "a\ufffdb".encode())


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_trace_parent_comes_from_either_property() -> None:
    assert trace_context({"traceparent": PARENT, "tracestate": "a=b"}) == {"traceparent": PARENT, "tracestate": "a=b"}
    assert trace_context({"Diagnostic-Id": PARENT}) == {"traceparent": PARENT, "tracestate": ""}
    assert trace_context({"traceparent": "garbage", "Diagnostic-Id": PARENT})["traceparent"] == PARENT
    assert trace_context({"traceparent": 7, "Diagnostic-Id": "|old.form."}) == {}
