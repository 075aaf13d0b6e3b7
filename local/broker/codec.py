"""The AMQP 1.0 type system: bytes to Python values and back.

Whatever must leave the broker as it came in (message ids, application properties, annotations) is handled as
`Encoded` slices of the sender's own bytes, because Python has one `int` for ten AMQP types. Decoding trusts nothing:
every size and count is checked against the bytes at hand and nesting is bounded, so hostile input costs an exception
and no more.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

_Key = TypeVar("_Key")

MAX_DEPTH = 32
_MAX_ZERO_WIDTH = 65536  # array elements without bytes of their own: their count is bounded by nothing else


class CodecError(ValueError):
    """The bytes are not AMQP, or the value has no AMQP form."""


class Symbol(str):
    """An AMQP symbol; equal to the string of the same text."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970 UTC: a number, because the protocol uses values that no `datetime` can hold."""

    __slots__ = ()


class Encoded(bytes):
    """A complete AMQP value in its wire form, written as it stands."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A described value whose descriptor means nothing to this module."""

    descriptor: object
    value: object


# ---------------------------------------------------------------------------------------------------------- decoding

def decode(data: bytes, at: int = 0) -> tuple[object, int]:
    """Decode one value; gives the value and the offset behind it."""
    try:
        return _decode(data, at, 0)
    except (IndexError, struct.error):
        raise CodecError("the value ends before its encoding does") from None


def decode_one(data: bytes) -> object:
    """Decode a value that must fill the bytes."""
    value, end = decode(data)
    if end != len(data):
        raise CodecError(f"{len(data) - end} bytes follow the value")
    return value


def _decode(data: bytes, at: int, depth: int) -> tuple[object, int]:
    code = data[at]
    if code == 0x00:
        if depth >= MAX_DEPTH:
            raise CodecError(f"nested deeper than {MAX_DEPTH}")
        descriptor, at = _decode(data, at + 1, depth + 1)
        value, at = _decode(data, at, depth + 1)
        return Described(descriptor, value), at
    return _body(code, data, at + 1, depth)


def _body(code: int, data: bytes, at: int, depth: int) -> tuple[object, int]:
    """Decode what follows the constructor byte."""
    fixed = _FIXED.get(code)
    if fixed is not None:
        width, read = fixed
        end = at + width
        if end > len(data):
            raise CodecError("the value ends before its encoding does")
        return read(data[at:end]), end
    variable = _VARIABLE.get(code)
    if variable is not None:
        size, at = _sized(data, at, 1 if code < 0xB0 else 4)
        return variable(data[at : at + size]), at + size
    if code in (0xC0, 0xD0):
        count, at, end = _compound(code, data, at)
        return _items(data, at, end, count, depth), end
    if code in (0xC1, 0xD1):
        count, at, end = _compound(code, data, at)
        return _map(_items(data, at, end, count, depth)), end
    if code in (0xE0, 0xF0):
        count, at, end = _compound(code, data, at)
        return _array(data, at, end, count, depth), end
    raise CodecError(f"0x{code:02x} is no AMQP constructor")


def _sized(data: bytes, at: int, width: int) -> tuple[int, int]:
    size = int.from_bytes(data[at : at + width], "big")
    at += width
    if at + size > len(data):
        raise CodecError(f"a size of {size} bytes exceeds the {max(0, len(data) - at)} at hand")
    return size, at


def _compound(code: int, data: bytes, at: int) -> tuple[int, int, int]:
    """Gives count, offset of the first item, offset behind the last one."""
    width = 1 if code < 0xD0 or code == 0xE0 else 4
    size, at = _sized(data, at, width)
    if size < width:
        raise CodecError("a compound value without a count")
    return int.from_bytes(data[at : at + width], "big"), at + width, at + size


def _items(data: bytes, at: int, end: int, count: int, depth: int) -> list[object]:
    if depth >= MAX_DEPTH:
        raise CodecError(f"nested deeper than {MAX_DEPTH}")
    if count > end - at:  # each item has at least its constructor byte
        raise CodecError(f"a count of {count} exceeds the {end - at} bytes at hand")
    items = []
    for _ in range(count):
        value, at = _decode(data, at, depth + 1)
        items.append(value)
    if at != end:
        raise CodecError("a compound value's size does not match its items")
    return items


def _map(items: list[object]) -> dict[object, object]:
    if len(items) % 2:
        raise CodecError("a map with a key and no value")
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise CodecError("a map key must be a simple value") from None


def _array(data: bytes, at: int, end: int, count: int, depth: int) -> list[object]:
    if depth >= MAX_DEPTH:
        raise CodecError(f"nested deeper than {MAX_DEPTH}")
    descriptors: list[object] = []
    code = data[at]
    while code == 0x00 and len(descriptors) < MAX_DEPTH:
        descriptor, at = _decode(data, at + 1, depth + 1)
        descriptors.append(descriptor)
        code = data[at]
    at += 1
    if count > max(end - at, _MAX_ZERO_WIDTH if code in _ZERO_WIDTH else 0):
        raise CodecError(f"a count of {count} exceeds the {end - at} bytes at hand")
    items = []
    for _ in range(count):
        value, at = _body(code, data, at, depth + 1)
        for descriptor in reversed(descriptors):
            value = Described(descriptor, value)
        items.append(value)
    if at != end:
        raise CodecError("an array's size does not match its items")
    return items


def _unsigned(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _boolean(data: bytes) -> bool:
    if data[0] > 1:
        raise CodecError(f"0x{data[0]:02x} is no boolean")
    return data[0] == 1


def _char(data: bytes) -> str:
    try:
        return data.decode("utf-32-be")
    except UnicodeDecodeError:
        raise CodecError("a char that is no Unicode character") from None


def _string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CodecError("a string that is not UTF-8") from None


def _symbol(data: bytes) -> Symbol:
    return Symbol(_string(data))


def _float(data: bytes) -> float:
    value: float = struct.unpack(">f" if len(data) == 4 else ">d", data)[0]
    return value


def _decimal(data: bytes) -> decimal.Decimal:
    """IEEE 754 decimal in binary integer encoding, whose exponent field moves when the coefficient is large."""
    bits = len(data) * 8
    exponent_bits, bias = {32: (8, 101), 64: (10, 398), 128: (14, 6176)}[bits]
    number = int.from_bytes(data, "big")
    sign, kind = number >> (bits - 1), (number >> (bits - 6)) & 0x1F
    if kind >= 0x1E:
        return decimal.Decimal("NaN" if kind == 0x1F else "-Infinity" if sign else "Infinity")
    shift = bits - 1 - exponent_bits
    if kind >> 3 == 3:
        shift -= 2
        coefficient = (number & ((1 << shift) - 1)) | (1 << (shift + 2))
    else:
        coefficient = number & ((1 << shift) - 1)
    exponent = ((number >> shift) & ((1 << exponent_bits) - 1)) - bias
    return decimal.Decimal((sign, tuple(int(digit) for digit in str(coefficient)), exponent))


_FIXED: dict[int, tuple[int, Callable[[bytes], object]]] = {
    0x40: (0, lambda _: None),
    0x41: (0, lambda _: True),
    0x42: (0, lambda _: False),
    0x43: (0, lambda _: 0),
    0x44: (0, lambda _: 0),
    0x45: (0, lambda _: []),
    0x50: (1, _unsigned),
    0x51: (1, _signed),
    0x52: (1, _unsigned),
    0x53: (1, _unsigned),
    0x54: (1, _signed),
    0x55: (1, _signed),
    0x56: (1, _boolean),
    0x60: (2, _unsigned),
    0x61: (2, _signed),
    0x70: (4, _unsigned),
    0x71: (4, _signed),
    0x72: (4, _float),
    0x73: (4, _char),
    0x74: (4, _decimal),
    0x80: (8, _unsigned),
    0x81: (8, _signed),
    0x82: (8, _float),
    0x83: (8, lambda data: Timestamp(_signed(data))),
    0x84: (8, _decimal),
    0x94: (16, _decimal),
    0x98: (16, lambda data: uuid.UUID(bytes=data)),
}
_ZERO_WIDTH = frozenset(code for code, (width, _) in _FIXED.items() if width == 0)
_VARIABLE: dict[int, Callable[[bytes], object]] = {
    0xA0: bytes,
    0xB0: bytes,
    0xA1: _string,
    0xB1: _string,
    0xA3: _symbol,
    0xB3: _symbol,
}


# ------------------------------------------------------------------------------------------------- slices of raw bytes


def skip(data: bytes, at: int = 0, depth: int = 0) -> int:
    """Offset behind the value at `at`, found from its sizes alone."""
    if at >= len(data):
        raise CodecError("the value ends before its encoding does")
    code = data[at]
    if code == 0x00:
        if depth >= MAX_DEPTH:
            raise CodecError(f"nested deeper than {MAX_DEPTH}")
        return skip(data, skip(data, at + 1, depth + 1), depth + 1)
    category, at = code >> 4, at + 1
    if category in _WIDTHS:
        end = at + _WIDTHS[category]
        if end > len(data):
            raise CodecError("the value ends before its encoding does")
        return end
    if category >= 0xA:
        size, at = _sized(data, at, 4 if category & 1 else 1)
        return at + size
    raise CodecError(f"0x{code:02x} is no AMQP constructor")


_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def raw_items(data: bytes) -> list[Encoded]:
    """The items of an encoded list or map, each in its own bytes."""
    code = data[0] if data else 0
    if code == 0x45:
        return []
    if code not in (0xC0, 0xC1, 0xD0, 0xD1):
        raise CodecError(f"0x{code:02x} starts no list and no map")
    count, at, end = _compound(code, data, 1)
    items = []
    for _ in range(min(count, end - at)):
        start, at = at, skip(data, at)
        items.append(Encoded(data[start:at]))
    if at != end or len(items) != count:
        raise CodecError("a compound value's size does not match its items")
    return items


def raw_map(data: bytes) -> dict[object, Encoded]:
    """An encoded map with its keys decoded and its values as they came."""
    items = raw_items(data)
    try:
        return {decode_one(key): value for key, value in zip(items[::2], items[1::2], strict=True)}
    except ValueError as exc:
        raise exc if isinstance(exc, CodecError) else CodecError("a map with a key and no value") from None
    except TypeError:
        raise CodecError("a map key must be a simple value") from None


# ---------------------------------------------------------------------------------------------------------- encoding

NULL = Encoded(b"\x40")


def encode(value: object) -> bytes:
    """Encode a Python value in its most compact form; numbers that need another AMQP type come as `uint`, `ulong`, ...

    Refuses what has no AMQP form.
    """
    if isinstance(value, Encoded):
        return value
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    for kind, encoder in _ENCODERS.items():
        if isinstance(value, kind):
            return encoder(value)
    if isinstance(value, Mapping):
        return encode_map(value)
    if isinstance(value, Sequence):
        return encode_list(encode(item) for item in value)
    raise CodecError(f"{type(value).__name__} has no AMQP form")


def uint(value: int) -> Encoded:
    """An AMQP uint."""
    if value == 0:
        return Encoded(b"\x43")
    return Encoded(bytes((0x52, value)) if value < 256 else struct.pack(">BI", 0x70, value))


def ulong(value: int) -> Encoded:
    """An AMQP ulong."""
    if value == 0:
        return Encoded(b"\x44")
    return Encoded(bytes((0x53, value)) if value < 256 else struct.pack(">BQ", 0x80, value))


def ubyte(value: int) -> Encoded:
    """An AMQP ubyte."""
    return Encoded(struct.pack(">BB", 0x50, value))


def ushort(value: int) -> Encoded:
    """An AMQP ushort."""
    return Encoded(struct.pack(">BH", 0x60, value))


def long(value: int) -> Encoded:
    """An AMQP long."""
    return Encoded(struct.pack(">Bb", 0x55, value) if -128 <= value < 128 else struct.pack(">Bq", 0x81, value))


def described(code: int, value: bytes) -> Encoded:
    """An encoded value under a numeric descriptor."""
    return Encoded(b"\x00" + ulong(code) + value)


def encode_list(items: Iterable[bytes]) -> Encoded:
    """A list of encoded items."""
    parts = list(items)
    return _compound_of(0xC0, 0xD0, len(parts), b"".join(parts)) if parts else Encoded(b"\x45")


def encode_map(items: Mapping[_Key, object]) -> Encoded:
    """A map; keys and values may be `Encoded` already."""
    return _compound_of(0xC1, 0xD1, 2 * len(items), b"".join(encode(k) + encode(v) for k, v in items.items()))


def array(kind: type, items: Sequence[object]) -> Encoded:
    """An array of long, timestamp, uuid, string or symbol, with the 32-bit constructors that fit every item.

    Refuses an empty one: the Python client misreads it, so the caller leaves the key out.
    """
    if not items:
        raise CodecError("an empty array must not be sent")
    code, write = _ARRAY_ITEMS[kind]
    return _compound_of(0xE0, 0xF0, len(items), bytes((code,)) + b"".join(write(item) for item in items))


def _compound_of(short: int, wide: int, count: int, body: bytes) -> Encoded:
    if count < 256 and len(body) < 255:
        return Encoded(bytes((short, len(body) + 1, count)) + body)
    return Encoded(struct.pack(">BII", wide, len(body) + 4, count) + body)


def _variable_of(short: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes((short, len(body))) + body
    return struct.pack(">BI", short + 0x10, len(body)) + body


def _encode_int(value: object) -> bytes:
    assert isinstance(value, int)  # noqa: S101 - the table's key says so; mypy can't
    if -128 <= value < 128:
        return struct.pack(">Bb", 0x54, value)
    if -(2**31) <= value < 2**31:
        return struct.pack(">Bi", 0x71, value)
    if -(2**63) <= value < 2**63:
        return struct.pack(">Bq", 0x81, value)
    raise CodecError(f"{value} does not fit in 64 bits")


def _encode_datetime(value: object) -> bytes:
    assert isinstance(value, dt.datetime)  # noqa: S101
    if value.tzinfo is None:
        raise CodecError("a date and time needs a time zone")
    return struct.pack(">Bq", 0x83, round(value.timestamp() * 1000))


def _encode_described(value: object) -> bytes:
    assert isinstance(value, Described)  # noqa: S101
    return b"\x00" + encode(value.descriptor) + encode(value.value)


_ENCODERS: dict[type, Callable[[object], bytes]] = {  # subclasses before their base classes
    type(None): lambda _: NULL,
    bool: lambda value: b"\x41" if value else b"\x42",
    Timestamp: lambda value: struct.pack(">Bq", 0x83, value),
    int: _encode_int,
    float: lambda value: struct.pack(">Bd", 0x82, value),
    Symbol: lambda value: _variable_of(0xA3, str(value).encode()),
    str: lambda value: _variable_of(0xA1, str(value).encode()),
    bytes: lambda value: _variable_of(0xA0, value),  # type: ignore[arg-type]  # the table's key says so
    uuid.UUID: lambda value: b"\x98" + value.bytes,  # type: ignore[attr-defined]  # the table's key says so
    dt.datetime: _encode_datetime,
    Described: _encode_described,
}
_ARRAY_ITEMS: dict[type, tuple[int, Callable[[object], bytes]]] = {
    int: (0x81, lambda value: struct.pack(">q", value)),
    Timestamp: (0x83, lambda value: struct.pack(">q", value)),
    uuid.UUID: (0x98, lambda value: value.bytes),  # type: ignore[attr-defined]  # the table's key says so
    str: (0xB1, lambda value: _wide(str(value).encode())),
    Symbol: (0xB3, lambda value: _wide(str(value).encode())),
}


def _wide(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body
