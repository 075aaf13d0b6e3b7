"""The AMQP type system: exact on what is right, safe on what is not."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import uuid

import hypothesis.strategies as st
import pytest
from hypothesis import given

from local.broker import codec
from local.broker.codec import CodecError, Described, Encoded, Symbol, Timestamp

# Each AMQP constructor with a value, from the tables of the specification's part 1.
EXAMPLES: list[tuple[str, object]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("5601", True),
    ("5600", False),
    ("50ff", 255),
    ("60ffff", 65535),
    ("70ffffffff", 2**32 - 1),
    ("52ff", 255),
    ("43", 0),
    ("80ffffffffffffffff", 2**64 - 1),
    ("53ff", 255),
    ("44", 0),
    ("5180", -128),
    ("618000", -32768),
    ("7180000000", -(2**31)),
    ("5480", -128),
    ("818000000000000000", -(2**63)),
    ("5580", -128),
    ("723fc00000", 1.5),
    ("823ff8000000000000", 1.5),
    ("7300000041", "A"),
    ("730001f600", "\U0001f600"),
    ("830000000000000001", Timestamp(1)),
    ("98" + "00" * 15 + "05", uuid.UUID(int=5)),
    ("a0020102", b"\x01\x02"),
    ("b0000000020102", b"\x01\x02"),
    ("a102c3a4", "ä"),
    ("b100000002c3a4", "ä"),
    ("a30161", Symbol("a")),
    ("b30000000161", Symbol("a")),
    ("45", []),
    ("c003024041", [None, True]),
    ("d000000006000000024041", [None, True]),
    ("c10502a1016b41", {"k": True}),
    ("d10000000800000002a1016b41", {"k": True}),
    ("e0040250fffe", [255, 254]),
    ("f0000000070000000250fffe", [255, 254]),
    ("e0020341", [True, True, True]),
    ("00532445", Described(0x24, [])),
    ("00a3017840", Described(Symbol("x"), None)),
    ("e0080200a30178500102", [Described(Symbol("x"), 1), Described(Symbol("x"), 2)]),
]


@pytest.mark.parametrize(("wire", "value"), EXAMPLES, ids=[wire[:12] for wire, _ in EXAMPLES])
def test_every_constructor_decodes_and_its_size_is_known(wire: str, value: object) -> None:
    data = bytes.fromhex(wire)
    decoded = codec.decode_one(data)
    assert decoded == value
    assert type(decoded) is type(value)
    assert codec.skip(data) == len(data)


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        ("74" + f"{(101 << 23) | 1234:08x}", decimal.Decimal(1234)),
        ("74" + f"{(1 << 31) | (99 << 23) | 1234:08x}", decimal.Decimal("-12.34")),
        ("74" + "6cb8967f", decimal.Decimal("9999999")),  # the other form, of a large coefficient
        ("84" + f"{(396 << 53) | 1234:016x}", decimal.Decimal("12.34")),
        ("94" + f"{(6174 << 113) | 1234:032x}", decimal.Decimal("12.34")),
        ("94" + "78" + "00" * 15, decimal.Decimal("Infinity")),
    ],
)
def test_decimals_decode(wire: str, value: decimal.Decimal) -> None:
    assert codec.decode_one(bytes.fromhex(wire)) == value


@pytest.mark.parametrize(
    "wire",
    [
        *("", "00", "0053", "70ffff", "98ff", "a005ff", "b1ffffffff", "3f", "5f00", "a101ff", "5602", "7300110000"),
        *("730000d800", "c0", "c00001", "c00201", "c0020241", "c0ff0140", "d0ffffffff00000000", "c10201a1"),
        *("c1030140", "c104024540", "c10502c0010040", "e003", "e00103", "e006ff50010203"),
        *("f000000005ffffffff40", "f000000006000000025001", "4040", "e0020100"),
    ],
)
def test_what_is_cut_wrong_or_overlong_is_refused(wire: str) -> None:
    with pytest.raises(CodecError):
        codec.decode_one(bytes.fromhex(wire))


@pytest.mark.parametrize("unit", ["00", "c0ff01", "d0000fffff00000001", "e0ff0100"])
def test_nesting_is_bounded(unit: str) -> None:
    data = bytes.fromhex(unit * 5000)
    with pytest.raises(CodecError):
        codec.decode(data)
    assert _skipped(data) <= len(data)
    nested = codec.encode(None)
    for _ in range(codec.MAX_DEPTH + 1):
        nested = codec.encode_list([nested])
    with pytest.raises(CodecError, match="nested deeper than 32"):
        codec.decode_one(nested)


def _skipped(data: bytes) -> int:
    """How far `skip` gets, which looks at the outermost size only."""
    try:
        return codec.skip(data)
    except CodecError:
        return len(data)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for read in (codec.decode, codec.skip, codec.raw_items, codec.raw_map):
        try:
            read(data)  # type: ignore[operator]  # each takes bytes alone
        except CodecError:
            continue


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.uuids()
    | st.integers(-(2**62), 2**62).map(Timestamp),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=40,
)


@given(values)
def test_what_is_encoded_comes_back(value: object) -> None:
    data = codec.encode(value)
    assert codec.decode_one(data) == value
    assert codec.skip(data) == len(data)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (7, "5407"),
        (-1, "54ff"),
        (128, "7100000080"),
        (2**31, "810000000080000000"),
        (True, "41"),
        ("a", "a10161"),
        (Symbol("a"), "a30161"),
        ([], "45"),
        ({}, "c10100"),
        (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "8300000000000003e8"),
        (Described(Symbol("x"), 1), "00a301785401"),
        (Encoded(b"\x52\x05"), "5205"),
        (codec.uint(0), "43"),
        (codec.uint(5), "5205"),
        (codec.uint(256), "7000000100"),
        (codec.ulong(0), "44"),
        (codec.ulong(5), "5305"),
        (codec.ulong(256), "800000000000000100"),
        (codec.long(-1), "55ff"),
        (codec.long(128), "810000000000000080"),
        (codec.ubyte(1), "5001"),
        (codec.ushort(1), "600001"),
    ],
)
def test_values_take_their_most_compact_form(value: object, wire: str) -> None:
    assert codec.encode(value).hex() == wire


def test_long_values_take_the_wide_form() -> None:
    texts: list[object] = ["a" * 250, "b" * 250]
    for value in ("a" * 256, b"a" * 256, list(range(300)), dict.fromkeys(range(300), "x"), texts):
        data = codec.encode(value)
        assert data[0] >> 4 in (0xB, 0xD)
        assert codec.decode_one(data) == value


@pytest.mark.parametrize("value", [object(), 2**63, dt.datetime(2024, 1, 1), {"k": {1, 2}}])  # noqa: DTZ001 - the point
def test_what_has_no_wire_form_is_refused(value: object) -> None:
    with pytest.raises(CodecError):
        codec.encode(value)


def test_arrays_are_never_empty_and_decode_to_their_items() -> None:
    with pytest.raises(CodecError, match="empty array"):
        codec.array(str, [])
    tokens = [uuid.uuid4() for _ in range(20)]
    times, names = [Timestamp(5)], [Symbol("é")]
    for kind, items in ((uuid.UUID, tokens), (int, [1, -(2**60)]), (Timestamp, times), (Symbol, names)):
        assert codec.decode_one(codec.array(kind, items)) == items


def test_raw_items_keep_the_senders_bytes() -> None:
    odd = struct.pack(">BI", 0xB1, 1) + b"k"  # a longer form than needed
    data = codec.encode_list([odd, b"\x80" + bytes(8), b"\x43"])
    assert codec.raw_items(data) == [odd, b"\x80" + bytes(8), b"\x43"]
    assert codec.raw_map(codec.encode_map({Encoded(odd): Encoded(b"\x56\x01")})) == {"k": b"\x56\x01"}
    assert math.isnan(codec.decode_one(codec.encode(math.nan)))  # type: ignore[arg-type]
