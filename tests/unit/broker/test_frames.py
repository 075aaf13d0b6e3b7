"""Frames, performatives, serial numbers."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from local.broker import codec
from local.broker.codec import CodecError, Encoded, Symbol
from local.broker.frames import (
    AMQP_HEADER,
    MODIFIED,
    REJECTED,
    AmqpError,
    Attach,
    Begin,
    Flow,
    Frame,
    FrameReader,
    Open,
    Transfer,
    decode_performative,
    decode_state,
    encode_error,
    encode_frame,
    encode_performative,
    serial_add,
    serial_difference,
)


@pytest.mark.parametrize(
    "performative",
    [
        Open("c", "h", 65536, 4999, 240000),
        Begin(1, 0xFFFFFFFF, 2**31 - 1, 5, 255),
        Attach("n", 3, role=True, source=Encoded(b"\x00\x53\x28\x45"), properties={Symbol("k"): 1}),
        Flow(None, 1, 2, 3, 4, 5, 6, None, drain=True),
        Transfer(0, 0, b"", 0x80013700, settled=True, more=False),
    ],
)
def test_performatives_come_back_with_their_payload(performative: object) -> None:
    body = encode_performative(performative)  # type: ignore[arg-type]
    assert decode_performative(body + b"payload") == (performative, b"payload")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([codec.encode("n"), codec.uint(1)], "attach without role"),
        ([codec.encode(7), codec.uint(1), b"\x41"], "name of attach is no string"),
        ([codec.encode("n"), codec.encode("x"), b"\x41"], "handle of attach is no unsigned integer"),
        ([codec.encode("n"), codec.encode(-1), b"\x41"], "handle of attach is no unsigned integer"),
        ([codec.encode("n"), codec.ulong(2**32), b"\x41"], "handle of attach is no unsigned integer"),
        ([codec.encode("n"), b"\x41", b"\x41"], "handle of attach is no unsigned integer"),
        ([codec.encode("n"), codec.uint(1), b"\x41", codec.ushort(256)], "snd-settle-mode of attach is no ubyte"),
    ],
)
def test_a_field_that_is_wrong_or_missing_is_named(fields: list[bytes], reason: str) -> None:
    with pytest.raises(CodecError, match=reason):
        decode_performative(codec.described(0x12, codec.encode_list(fields)))


def test_an_error_has_all_three_fields_whatever_is_trimmed_elsewhere() -> None:
    assert len(codec.raw_items(encode_error("amqp:not-found", "")[3:])) == 3


def test_outcomes_are_read_with_string_or_symbol_keys() -> None:
    info = codec.encode_map({"DeadLetterReason": "r", Symbol("k"): codec.uint(1)})
    error = codec.described(0x1D, codec.encode_list([codec.encode(Symbol("c")), codec.NULL, info]))
    state = decode_state(codec.described(REJECTED, codec.encode_list([error])))
    assert state.properties == {"DeadLetterReason": codec.encode("r"), "k": codec.uint(1)}
    state = decode_state(codec.described(MODIFIED, codec.encode_list([b"\x41", b"\x41", info])))
    assert (state.is_undeliverable_here, set(state.properties)) == (True, {"DeadLetterReason", "k"})
    for wrong in (b"", b"\x40", codec.described(0x23, b"\x45"), codec.described(REJECTED, b"\x40")):
        with pytest.raises(CodecError):
            decode_state(Encoded(wrong))


@given(st.lists(st.binary(max_size=50), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_frames_are_found_whatever_the_chunks(bodies: list[bytes], sizes: list[int]) -> None:
    stream = AMQP_HEADER + b"".join(encode_frame(n, body) for n, body in enumerate(bodies))
    reader, found, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        found += list(reader.feed(stream[at : at + size]))
        at, turn = at + size, turn + 1
    assert found == [AMQP_HEADER, *(Frame(False, n, body) for n, body in enumerate(bodies))]


@pytest.mark.parametrize("head", [(7, 2, 0), (65537, 2, 0), (8, 1, 0), (8, 3, 0), (8, 2, 2)])
def test_a_frame_that_cannot_be_one_is_refused_before_it_is_read(head: tuple[int, int, int]) -> None:
    reader = FrameReader()
    reader.expects_header = False
    with pytest.raises(AmqpError, match="framing-error"):
        list(reader.feed(struct.pack(">IBBH", *head, 0)))


def test_serial_numbers_wrap() -> None:  # RFC 1982; .NET begins at 4294967295
    assert serial_add(0xFFFFFFFF, 1) == 0
    assert serial_difference(0, 0xFFFFFFFF) == 1
    assert serial_difference(0xFFFFFFFF, 0) == -1
    assert serial_difference(5, 5) == 0
