"""Messages keep the sender's bytes, and show the rules and functions what they ask for."""

from __future__ import annotations

import struct
import uuid

import hypothesis.strategies as st
import pytest
from hypothesis import given

from local.broker import codec
from local.broker.codec import CodecError, Encoded, Symbol, Timestamp
from local.broker.messages import (
    build_message,
    encode_message,
    parse_batch,
    parse_message,
)


def section(code: int, value: bytes) -> bytes:
    return codec.described(code, value)


def data(body: bytes) -> bytes:
    return section(0x75, codec.encode(bytes(body)))


def test_every_field_that_the_rules_need_is_read() -> None:
    fields = ["id", None, "to", "subject", "reply", b"corr", Symbol("type"), None, None, None, "session", None, "rs"]
    annotations = {
        Symbol("x-opt-partition-key"): "p",
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(5500),
        Symbol("x-opt-locked-until"): Timestamp(1),
        Symbol("own"): 1,
    }
    message = parse_message(
        section(0x70, codec.encode_list([b"\x41", codec.ubyte(7), codec.uint(1500)]))
        + section(0x72, codec.encode_map(annotations))
        + section(0x73, codec.encode(fields))
        + section(0x74, codec.encode_map({"k": 2**40}))
        + data(b"body")
    )
    assert (message.durable, message.priority, message.ttl_seconds) == (b"\x41", codec.ubyte(7), 1.5)
    assert (message.message_id, message.correlation_id, message.session_id) == ("id", b"corr", "session")
    assert (message.to, message.subject, message.reply_to, message.content_type) == ("to", "subject", "reply", "type")
    assert (message.reply_to_session_id, message.partition_key, message.scheduled_at) == ("rs", "p", 5.5)
    assert message.application_properties == {"k": 2**40}
    assert set(message.annotations) == {"x-opt-partition-key", "x-opt-scheduled-enqueue-time", "own"}


@pytest.mark.parametrize(
    ("sections", "body", "has_text"),
    [
        (data(b"a") + data(b"b"), b"ab", True),
        (section(0x77, codec.encode("tä")), "tä".encode(), True),
        (section(0x77, codec.encode(b"raw")), b"raw", True),
        (section(0x77, codec.encode({"k": 1})), b"", False),
        (section(0x76, codec.encode(["a"])), b"", False),
        (b"", b"", True),
    ],
    ids=["data", "text", "bytes", "map", "sequence", "none"],
)
def test_a_body_is_what_a_function_that_binds_bytes_gets(sections: bytes, body: bytes, has_text: bool) -> None:
    assert (parse_message(sections).body, parse_message(sections).has_text) == (body, has_text)


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (b"\x40", "no section starts at offset 0"),
        (section(0x79, b"\x40"), "121 describes no section"),
        (codec.encode(codec.Described(Symbol("amqp:data:binary"), b"x")), "describes no section"),
        (section(0x75, codec.encode("text")), "the data section is no bytes"),
        (section(0x76, codec.encode("text")), "the sequence section is no list"),
        (section(0x74, codec.encode("text")), "the application properties section is no dict"),
        (section(0x73, codec.encode({})), "properties section is no list"),
        (section(0x73, codec.encode([True])), "property 0 is no message id"),
        (section(0x73, codec.encode([None, None, 7])), "property 2 is no text"),
        (section(0x73, b"\x45") * 2, "second section of code 0x73"),
        (section(0x70, codec.encode([None, None, "x"])), "ttl is no uint"),
        (section(0x72, codec.encode({Symbol("x-opt-partition-key"): 7})), "x-opt-partition-key is no str"),
        (section(0x72, codec.encode({Symbol("x-opt-partition-key"): b"\xff"})), "x-opt-partition-key is not UTF-8"),
        (section(0x72, codec.encode({Symbol("x-opt-scheduled-enqueue-time"): 7})), "is no timestamp"),
        (section(0x70, codec.encode({})), "the header section is no list"),
        (section(0x72, codec.encode({Symbol("own"): Encoded(b"\xa1\x01\xff")})), "not UTF-8"),
        (section(0x78, codec.encode([])), "the footer section is no dict"),
        (section(0x77, b"\xa1\x05x"), "exceeds"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(wire: bytes, reason: str) -> None:
    with pytest.raises(CodecError, match=reason):
        parse_message(wire)


@given(st.binary(max_size=120))
def test_any_bytes_are_a_message_or_are_refused(wire: bytes) -> None:
    try:
        message = parse_message(b"\x00\x53" + wire)
    except CodecError:
        return
    assert isinstance(message.body, bytes)


def test_a_change_replaces_one_value_and_leaves_the_other_bytes() -> None:
    wide = struct.pack(">BI", 0xB1, 2) + b"to"
    message = parse_message(
        section(0x73, codec.encode_list([codec.NULL, b"\xa0\x01u", wide]))
        + section(0x74, codec.encode_map({"a": codec.uint(1), "b": codec.ubyte(2)}))
        + data(b"x")
    )
    filled = message.with_message_id("new")
    assert codec.raw_items(filled.properties) == [codec.encode("new"), b"\xa0\x01u", wide]
    moved = message.with_session_id("s")
    assert codec.raw_items(moved.properties)[10] == codec.encode("s")
    changed = message.with_properties({"b": "new", "c": 1.5})
    raw = codec.raw_map(changed.application_properties_map)
    assert raw == {"a": codec.uint(1), "b": codec.encode("new"), "c": codec.encode(1.5)}
    assert message.with_properties({}) is message


def test_a_delivery_has_the_brokers_header_and_annotations_before_the_senders_sections() -> None:
    bare = section(0x73, codec.encode(["id"])) + section(0x74, codec.encode_map({"k": 1})) + data(b"x")
    footer = section(0x78, codec.encode_map({Symbol("f"): 1}))
    token = uuid.UUID(int=9)
    wire = encode_message(
        parse_message(bare + footer),
        delivery_count=3,
        ttl_seconds=2.5,
        annotations={"x-opt-sequence-number": codec.long(7)},
        lock_token=token,
    )
    header = section(0x70, codec.encode_list([codec.NULL, codec.NULL, codec.uint(2500), codec.NULL, codec.uint(3)]))
    ours = section(0x71, codec.encode_map({Symbol("x-opt-lock-token"): token}))
    numbers = section(0x72, codec.encode_map({Symbol("x-opt-sequence-number"): codec.long(7)}))
    assert wire == header + ours + numbers + bare + footer


def test_the_senders_delivery_annotations_are_passed_on_but_for_the_lock_token() -> None:
    own, token = {Symbol("own"): Encoded(codec.encode("value"))}, uuid.UUID(int=9)
    stale = {Symbol("x-opt-lock-token"): uuid.UUID(int=8)}
    message = parse_message(section(0x71, codec.encode_map({**own, **stale})) + data(b"x"))
    assert message.delivery_annotations == own
    assert message.size == parse_message(section(0x72, codec.encode_map(own)) + data(b"x")).size
    for locked, expected in ((None, {}), (token, {Symbol("x-opt-lock-token"): token})):
        wire = encode_message(message, delivery_count=0, ttl_seconds=None, annotations={}, lock_token=locked)
        assert section(0x71, codec.encode_map({**own, **expected})) in wire


def test_a_partition_key_in_bytes_is_its_text() -> None:  # the Python client sends a received message on like that
    message = parse_message(section(0x72, codec.encode_map({Symbol("x-opt-partition-key"): "tä".encode()})))
    assert message.partition_key == "tä"
    assert message.annotations == {"x-opt-partition-key": codec.encode("tä".encode())}


def test_a_batch_is_the_messages_in_its_data_sections() -> None:
    envelope = section(0x73, codec.encode(["first"]))  # copies the first message and counts for nothing
    messages = parse_batch(envelope + data(section(0x73, codec.encode(["1"])) + data(b"a")) + data(data(b"b")))
    assert [(message.message_id, message.body) for message in messages] == [("1", b"a"), (None, b"b")]
    for wrong in (envelope, section(0x75, codec.encode("text")), data(b"no message")):
        with pytest.raises(CodecError):
            parse_batch(wrong)


def test_a_message_built_in_process_is_what_a_client_would_send() -> None:
    message = build_message(
        b"b",
        message_id=7,
        session_id="s",
        correlation_id="c",
        subject="t",
        content_type="application/json",
        application_properties={"k": "v"},
        ttl_seconds=1.5,
        scheduled_at=100.0,
    )
    assert (message.message_id, message.session_id, message.correlation_id, message.subject) == (7, "s", "c", "t")
    assert (message.content_type, message.ttl_seconds, message.scheduled_at) == ("application/json", 1.5, 100.0)
    assert (message.application_properties, message.body) == ({"k": "v"}, b"b")
    assert message.encoded_message_id == codec.ulong(7)
