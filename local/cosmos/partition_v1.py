"""The effective partition key of version 1: what containers have that are made without a version.

A hash of 32 bits as a number, then the value itself, cut to 100 characters, in an encoding that sorts as the values do.
"""

from __future__ import annotations

import struct

from local.cosmos.values import UNDEFINED, Value

_MASK = (1 << 32) - 1
_MASK_64 = (1 << 64) - 1
_MAX_TEXT = 100  # characters that are hashed, and bytes that are kept whole


def effective(value: Value) -> str:
    """The EPK of a key of one component."""
    if isinstance(value, str):
        value = value[:_MAX_TEXT]
    return (number(murmur3_32(_hashed(value))) + _sorted(value)).hex().upper()


def bound(share: float) -> str:
    """The EPK below which a share of all hashes lies."""
    return number(int((1 << 32) * share)).hex().upper()


def _hashed(value: Value) -> bytes:
    if isinstance(value, str):
        return b"\x08" + value.encode() + b"\x00"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return b"\x05" + struct.pack("<d", value)
    return _constant(value)


def _sorted(value: Value) -> bytes:
    if isinstance(value, str):
        raw = value.encode()
        moved = bytes(byte + 1 for byte in raw[: _MAX_TEXT + 1])  # leaves 0 free for the end
        return b"\x08" + moved + (b"\x00" if len(raw) <= _MAX_TEXT else b"")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return _constant(value)


def _constant(value: Value) -> bytes:
    if value is UNDEFINED:
        return b"\x00"
    if value is None:
        return b"\x01"
    if isinstance(value, bool):
        return b"\x03" if value else b"\x02"
    raise TypeError(f"no partition key: {value!r}")


def number(value: float) -> bytes:
    """A double in bytes that sort as the numbers do: 8 bits, then 7 in a byte whose last bit says that more follow."""
    [bits] = struct.unpack("<Q", struct.pack("<d", value))
    payload = bits ^ 1 << 63 if bits < 1 << 63 else -bits & _MASK_64
    made = bytearray([0x05, payload >> 56])
    payload = payload << 8 & _MASK_64
    while payload:
        made.append(payload >> 56 | 1)
        payload = payload << 7 & _MASK_64
    if len(made) == 2:
        made.append(0)
    made[-1] &= 0xFE
    return bytes(made)


def murmur3_32(data: bytes) -> int:
    """MurmurHash3, x86, 32 bits, seed 0 (public domain algorithm by Austin Appleby)."""
    result = 0
    for at in range(0, len(data), 4):
        block = data[at : at + 4]
        mixed = int.from_bytes(block, "little") * 0xCC9E2D51 & _MASK
        mixed = _rotate(mixed, 15) * 0x1B873593 & _MASK
        result ^= mixed
        if len(block) == 4:
            result = (_rotate(result, 13) * 5 + 0xE6546B64) & _MASK
    result ^= len(data)
    result = (result ^ result >> 16) * 0x85EBCA6B & _MASK
    result = (result ^ result >> 13) * 0xC2B2AE35 & _MASK
    return result ^ result >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
