"""AMQP 1.0 frames and performatives: what travels between the two ends of a connection."""

from __future__ import annotations

import dataclasses
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from local.broker import codec
from local.broker.codec import CodecError, Encoded, Symbol

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MAX_FRAME_SIZE = 65536
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"

FRAMING_ERROR = "amqp:connection:framing-error"
DECODE_ERROR = "amqp:decode-error"

ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27
COORDINATOR = 0x30
_ERROR = 0x1D


class AmqpError(Exception):
    """The peer broke the protocol: the connection is closed with this condition."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


class Kind(Enum):
    """The AMQP type of a performative's field."""

    BOOLEAN = "boolean"
    NUMBER = "unsigned integer"
    UBYTE = "ubyte"
    USHORT = "ushort"
    ULONG = "ulong"
    TEXT = "string"
    BINARY = "binary"
    MAP = "map"
    RAW = "any type"  # kept in the sender's bytes


_PYTHON_TYPES: dict[Kind, type] = {
    Kind.BOOLEAN: bool,
    Kind.NUMBER: int,
    Kind.UBYTE: int,
    Kind.USHORT: int,
    Kind.ULONG: int,
    Kind.TEXT: str,
    Kind.BINARY: bytes,
    Kind.MAP: dict,
}


_LARGEST = {Kind.UBYTE: 0xFF, Kind.USHORT: 0xFFFF, Kind.ULONG: 2**64 - 1}


class Performative:
    """A frame's body. Fields are in wire order; one that is None is null on the wire."""

    __slots__ = ()
    code: ClassVar[int]
    kinds: ClassVar[tuple[Kind, ...]]
    required: ClassVar[tuple[str, ...]] = ()


@dataclass(slots=True)
class Open(Performative):
    code: ClassVar[int] = 0x10
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.TEXT, Kind.TEXT, Kind.NUMBER, Kind.USHORT, Kind.NUMBER)
    container_id: str | None = None
    hostname: str | None = None
    max_frame_size: int | None = None
    channel_max: int | None = None
    idle_time_out: int | None = None


@dataclass(slots=True)
class Begin(Performative):
    code: ClassVar[int] = 0x11
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.USHORT, Kind.NUMBER, Kind.NUMBER, Kind.NUMBER, Kind.NUMBER)
    required: ClassVar[tuple[str, ...]] = ("next_outgoing_id", "incoming_window", "outgoing_window")
    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int | None = None


@dataclass(slots=True)
class Attach(Performative):
    code: ClassVar[int] = 0x12
    kinds: ClassVar[tuple[Kind, ...]] = (
        *(Kind.TEXT, Kind.NUMBER, Kind.BOOLEAN, Kind.UBYTE, Kind.UBYTE, Kind.RAW, Kind.RAW),
        *(Kind.RAW, Kind.BOOLEAN, Kind.NUMBER, Kind.ULONG, Kind.RAW, Kind.RAW, Kind.MAP),
    )
    required: ClassVar[tuple[str, ...]] = ("name", "handle", "role")
    name: str = ""
    handle: int = 0
    role: bool = False  # True: the end that attaches is the receiver
    snd_settle_mode: int | None = None
    rcv_settle_mode: int | None = None
    source: Encoded | None = None
    target: Encoded | None = None
    unsettled: Encoded | None = None
    incomplete_unsettled: bool | None = None
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Encoded | None = None
    desired_capabilities: Encoded | None = None
    properties: dict[object, object] | None = None


@dataclass(slots=True)
class Flow(Performative):
    code: ClassVar[int] = 0x13
    kinds: ClassVar[tuple[Kind, ...]] = (
        *(Kind.NUMBER, Kind.NUMBER, Kind.NUMBER, Kind.NUMBER),
        *(Kind.NUMBER, Kind.NUMBER, Kind.NUMBER, Kind.NUMBER, Kind.BOOLEAN, Kind.BOOLEAN),
    )
    required: ClassVar[tuple[str, ...]] = ("incoming_window", "next_outgoing_id", "outgoing_window")
    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool | None = None
    echo: bool | None = None


@dataclass(slots=True)
class Transfer(Performative):
    code: ClassVar[int] = 0x14
    kinds: ClassVar[tuple[Kind, ...]] = (
        *(Kind.NUMBER, Kind.NUMBER, Kind.BINARY, Kind.NUMBER, Kind.BOOLEAN, Kind.BOOLEAN),
        *(Kind.UBYTE, Kind.RAW, Kind.BOOLEAN, Kind.BOOLEAN, Kind.BOOLEAN),
    )
    required: ClassVar[tuple[str, ...]] = ("handle",)
    handle: int = 0
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool | None = None
    rcv_settle_mode: int | None = None
    state: Encoded | None = None
    resume: bool | None = None
    aborted: bool | None = None
    batchable: bool | None = None


@dataclass(slots=True)
class Disposition(Performative):
    code: ClassVar[int] = 0x15
    kinds: ClassVar[tuple[Kind, ...]] = (
        *(Kind.BOOLEAN, Kind.NUMBER, Kind.NUMBER, Kind.BOOLEAN, Kind.RAW, Kind.BOOLEAN),
    )
    required: ClassVar[tuple[str, ...]] = ("role", "first")
    role: bool = False
    first: int = 0
    last: int | None = None
    settled: bool | None = None
    state: Encoded | None = None
    batchable: bool | None = None


@dataclass(slots=True)
class Detach(Performative):
    code: ClassVar[int] = 0x16
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.NUMBER, Kind.BOOLEAN, Kind.RAW)
    required: ClassVar[tuple[str, ...]] = ("handle",)
    handle: int = 0
    closed: bool | None = None
    error: Encoded | None = None


@dataclass(slots=True)
class End(Performative):
    code: ClassVar[int] = 0x17
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.RAW,)
    error: Encoded | None = None


@dataclass(slots=True)
class Close(Performative):
    code: ClassVar[int] = 0x18
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.RAW,)
    error: Encoded | None = None


@dataclass(slots=True)
class SaslMechanisms(Performative):
    code: ClassVar[int] = 0x40
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.RAW,)
    mechanisms: Encoded | None = None


@dataclass(slots=True)
class SaslInit(Performative):
    code: ClassVar[int] = 0x41
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.TEXT, Kind.BINARY, Kind.TEXT)
    required: ClassVar[tuple[str, ...]] = ("mechanism",)
    mechanism: str = ""
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(slots=True)
class SaslOutcome(Performative):
    code: ClassVar[int] = 0x44
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.UBYTE, Kind.BINARY)
    sasl_code: int = 0
    additional_data: bytes | None = None


_BY_CODE: dict[int, type[Performative]] = {
    kind.code: kind
    for kind in (
        *(Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close),
        *(SaslMechanisms, SaslInit, SaslOutcome),
    )
}
_NAMES: dict[int, tuple[str, ...]] = {
    code: tuple(spec.name for spec in dataclasses.fields(kind))  # type: ignore[arg-type]  # each is a dataclass
    for code, kind in _BY_CODE.items()
}


def decode_performative(body: bytes) -> tuple[Performative, bytes]:
    """A frame's performative and the payload behind it.

    Raises:
        CodecError: for bytes that are none, for a field of another type or a missing one; the text names it.
    """
    if body[:1] != b"\x00":
        raise CodecError("the frame's body is no performative")
    code, at = codec.decode(body, 1)
    kind = _BY_CODE.get(code) if isinstance(code, int) else None
    if kind is None:
        raise CodecError(f"{code!r} describes no performative")
    end = codec.skip(body, at)
    items = codec.raw_items(body[at:end])
    found: dict[str, object] = {}
    for name, field_kind, raw in zip(_NAMES[kind.code], kind.kinds, items, strict=False):
        if raw != codec.NULL:
            found[name] = raw if field_kind is Kind.RAW else _checked(kind, name, field_kind, codec.decode_one(raw))
    for name in kind.required:
        if name not in found:
            raise CodecError(f"{kind.__name__.lower()} without {name.replace('_', '-')}")
    return kind(**found), body[end:]


def _checked(kind: type[Performative], name: str, field_kind: Kind, value: object) -> object:
    wanted = _PYTHON_TYPES[field_kind]
    is_right = isinstance(value, wanted)
    if wanted is int and isinstance(value, int):
        is_right = not isinstance(value, bool) and 0 <= value <= _LARGEST.get(field_kind, 0xFFFFFFFF)
    if not is_right:
        raise CodecError(f"{name.replace('_', '-')} of {kind.__name__.lower()} is no {field_kind.value}")
    return value


_ENCODERS: dict[Kind, Callable[[int], bytes]] = {
    Kind.NUMBER: codec.uint,
    Kind.UBYTE: codec.ubyte,
    Kind.USHORT: codec.ushort,
    Kind.ULONG: codec.ulong,
}
_PLANS = {  # each performative's fields with their encoders, looked up once
    code: tuple(zip(_NAMES[code], (_ENCODERS.get(field_kind, codec.encode) for field_kind in kind.kinds), strict=True))
    for code, kind in _BY_CODE.items()
}


def encode_performative(performative: Performative) -> bytes:
    """A performative's bytes, trailing nulls left out."""
    items: list[bytes] = []
    for name, encoder in _PLANS[performative.code]:
        value = getattr(performative, name)
        items.append(codec.NULL if value is None else encoder(value))
    while items and items[-1] == codec.NULL:
        items.pop()
    return codec.described(performative.code, codec.encode_list(items))


def encode_frame(channel: int, body: bytes, *, is_sasl: bool = False) -> bytes:
    """A whole frame around a body."""
    return struct.pack(">IBBH", len(body) + 8, 2, int(is_sasl), channel) + body


def encode_error(condition: str, description: str) -> Encoded:
    """An AMQP error. All three fields are always there: the Python client reads the third without looking."""
    info = codec.encode_map({Symbol("com.microsoft:tracking-id"): str(uuid.uuid4())})
    fields = [codec.encode(Symbol(condition)), codec.encode(description), info]
    return codec.described(_ERROR, codec.encode_list(fields))


def encode_state(code: int, error: Encoded | None = None) -> Encoded:
    """An outcome without fields, or rejected with its error."""
    return codec.described(code, codec.encode_list([] if error is None else [error]))


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """An outcome that a receiver asks for."""

    code: int
    is_undeliverable_here: bool = False
    properties: Mapping[str, object] = dataclasses.field(default_factory=dict)  # values in the sender's bytes


def decode_state(raw: Encoded) -> DeliveryState:
    """Read an outcome.

    Raises:
        CodecError: when it is none of accepted, rejected, released, modified.
    """
    code, items = decode_composite(raw)
    if code == MODIFIED:
        undeliverable = len(items) > 1 and codec.decode_one(items[1]) is True
        return DeliveryState(code, undeliverable, _texts(items[2] if len(items) > 2 else codec.NULL))
    if code == REJECTED:
        error = items[0] if items else codec.NULL
        fields = [] if error == codec.NULL else decode_composite(error)[1]
        return DeliveryState(code, properties=_texts(fields[2] if len(fields) > 2 else codec.NULL))
    if code in (ACCEPTED, RELEASED):
        return DeliveryState(code)
    raise CodecError(f"0x{code:02x} is no outcome")


def decode_composite(raw: bytes) -> tuple[int, list[Encoded]]:
    """A described list: its code and its fields, each in its own bytes."""
    if raw[:1] != b"\x00":
        raise CodecError("a described value is missing")
    code, at = codec.decode(raw, 1)
    if not isinstance(code, int):
        raise CodecError(f"{code!r} is no descriptor that this broker knows")
    return code, codec.raw_items(raw[at:])


def _texts(raw: Encoded) -> dict[str, object]:
    """A map whose keys may be strings or symbols."""
    return {} if raw == codec.NULL else {str(key): value for key, value in codec.raw_map(raw).items()}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it arrived."""

    is_sasl: bool
    channel: int
    body: bytes  # empty: the peer only shows that it is alive


class FrameReader:
    """Cuts a byte stream into protocol headers and frames, whatever the chunks it comes in."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.expects_header = True  # the connection says so again after SASL

    def feed(self, data: bytes) -> Iterator[bytes | Frame]:
        """Protocol headers as bytes, frames as frames.

        Raises:
            AmqpError: framing-error for a frame that can't be one.
        """
        self._buffer += data
        while len(self._buffer) >= 8:
            if self.expects_header:
                header = bytes(self._buffer[:8])
                del self._buffer[:8]
                self.expects_header = False
                yield header
                continue
            size, offset, kind, channel = struct.unpack_from(">IBBH", self._buffer)
            if not 8 <= size <= MAX_FRAME_SIZE:
                raise AmqpError(FRAMING_ERROR, f"A frame of {size} bytes; allowed are 8 to {MAX_FRAME_SIZE}.")
            if offset < 2 or offset * 4 > size or kind > 1:
                raise AmqpError(FRAMING_ERROR, f"A frame of type {kind} with its body at word {offset}.")
            if len(self._buffer) < size:
                return
            body = bytes(self._buffer[offset * 4 : size])
            del self._buffer[:size]
            yield Frame(kind == 1, channel, body)


def serial_add(number: int, step: int) -> int:
    """Add in 32-bit serial number arithmetic (RFC 1982)."""
    return (number + step) & 0xFFFFFFFF


def serial_difference(later: int, earlier: int) -> int:
    """How far `later` is ahead in 32-bit serial number arithmetic; negative when it is behind."""
    return ((later - earlier + 0x80000000) & 0xFFFFFFFF) - 0x80000000
