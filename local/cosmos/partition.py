"""Partition keys: the header, the document's value, the effective partition key (EPK) and the ranges of it.

The EPK of version 2 is MurmurHash3 x64 128 over an encoding of the value; `partition_v1` has the older one. The SDK
computes it on its own side (change feed by key, feed ranges, session tokens), so it has to agree bit by bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring

from local.cosmos import partition_v1
from local.cosmos.errors import PARTITION_KEY_MISMATCH, PARTITION_KEY_RANGE_GONE, CosmosError
from local.cosmos.values import UNDEFINED, Document, Undefined, Value, dump, lookup, parse

MAX_KEY_BYTES = 2048
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """`text` is the canonical header, such as ["o1"], and [{}] where the property is absent."""

    text: str
    epk: str


@dataclass(frozen=True, slots=True)
class Range:
    """A physical partition's share of the EPK space, from inclusive to exclusive."""

    id: str
    start: str
    end: str

    def __contains__(self, epk: str) -> bool:
        return self.start <= epk < self.end


@lru_cache(maxsize=4096)
def key_from_header(text: str, version: int = 2) -> PartitionKey:
    """The key that the header x-ms-documentdb-partitionkey names. Refuses what is no key of one component."""
    components = parse(text, "partition key header")
    if not isinstance(components, list) or len(components) != 1:
        raise _mismatch()
    [value] = components
    return key_of(UNDEFINED if value == {} else value, version)


def key_of(value: Value, version: int = 2) -> PartitionKey:
    if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise CosmosError(400, f"The partition key value is longer than {MAX_KEY_BYTES} bytes.")
    text = _text(value)
    return PartitionKey(text, partition_v1.effective(value) if version == 1 else _effective(value))


def refuse_mismatch(key: PartitionKey, document: Document, path: tuple[str, ...]) -> None:
    """Refuse a document whose own key is not the one that the request names."""
    value = lookup(document, path)
    if isinstance(value, list | dict):
        value = UNDEFINED  # an object or array is no key, for the service and for every SDK: as if it were not there
    if _text(value) != key.text:
        raise _mismatch()


def _text(value: Value) -> str:
    if isinstance(value, list | dict):
        raise _mismatch()
    if isinstance(value, str) and value.isascii():
        return f"[{encode_basestring(value)}]"
    return "[{}]" if isinstance(value, Undefined) else dump([value]).decode()


def _mismatch() -> CosmosError:
    return CosmosError(
        400,
        "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition "
        "key field values specified in the document.",
        PARTITION_KEY_MISMATCH,
    )


def ranges(count: int, version: int = 2) -> tuple[Range, ...]:
    """Split the EPK space evenly: a hash of version 2 is always below "40", and the last range ends at "FF"."""
    if version == 1:
        inner = [partition_v1.bound(n / count) for n in range(1, count)]
    else:
        inner = [f"{(0x40 << 120) * n // count:032X}" for n in range(1, count)]
    bounds = ["", *inner, "FF"]
    return tuple(Range(str(n), bounds[n], bounds[n + 1]) for n in range(count))


def range_by_id(all_ranges: tuple[Range, ...], range_id: str) -> Range:
    for candidate in all_ranges:
        if candidate.id == range_id:
            return candidate
    raise CosmosError(410, f"The partition key range {range_id} is gone.", PARTITION_KEY_RANGE_GONE)


def overlapping(all_ranges: tuple[Range, ...], where: Range) -> tuple[Range, ...]:
    """The parts of the ranges that lie within `where`, in their order."""
    parts = (Range(each.id, max(each.start, where.start), min(each.end, where.end)) for each in all_ranges)
    return tuple(part for part in parts if part.start < part.end)


def _effective(value: Value) -> str:
    if value is UNDEFINED:
        encoded = b"\x00"
    elif value is None:
        encoded = b"\x01"
    elif isinstance(value, bool):
        encoded = b"\x03" if value else b"\x02"
    elif isinstance(value, int | float):
        encoded = b"\x05" + struct.pack("<d", value)
    elif isinstance(value, str):
        encoded = b"\x08" + value.encode("utf-8") + b"\xff"
    else:
        raise TypeError(f"no partition key: {value!r}")
    low, high = murmur3_128(encoded)
    hashed = bytearray(high.to_bytes(8, "big") + low.to_bytes(8, "big"))
    hashed[0] &= 0x3F
    return hashed.hex().upper()


def murmur3_128(data: bytes) -> tuple[int, int]:
    """MurmurHash3, x64, 128 bits, seed 0 (public domain algorithm by Austin Appleby)."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = 0
    blocks = len(data) // 16 * 16
    for at in range(0, blocks, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _rotate(k1 * c1 & _MASK, 31) * c2 & _MASK
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotate(k2 * c2 & _MASK, 33) * c1 & _MASK
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[blocks:]
    if len(tail) > 8:
        h2 ^= _rotate(int.from_bytes(tail[8:], "little") * c2 & _MASK, 33) * c1 & _MASK
    if tail:
        h1 ^= _rotate(int.from_bytes(tail[:8], "little") * c1 & _MASK, 31) * c2 & _MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _mix(h1), _mix(h2)
    h1 = (h1 + h2) & _MASK
    return h1, (h2 + h1) & _MASK


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _mix(value: int) -> int:
    value = (value ^ (value >> 33)) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ (value >> 33)
