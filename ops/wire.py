"""Application properties with the types that they have on the wire.

The client's decoder gives strings and binaries alike as bytes, and each kind of whole number as int. Sent back so, a
long becomes an int and a binary a string. So a replay reads the properties from the encoded message itself (AMQP 1.0
part 1, section 1.6, and part 3, section 3.2.5).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_APPLICATION_PROPERTIES: Final = 0x74
# constructor: (name in the client, struct format)
_FIXED: Final[Mapping[int, tuple[str, str]]] = {
    0x50: ("UBYTE", ">B"),
    0x51: ("BYTE", ">b"),
    0x60: ("USHORT", ">H"),
    0x61: ("SHORT", ">h"),
    0x52: ("UINT", ">B"),
    0x70: ("UINT", ">I"),
    0x54: ("INT", ">b"),
    0x71: ("INT", ">i"),
    0x53: ("ULONG", ">B"),
    0x80: ("ULONG", ">Q"),
    0x55: ("LONG", ">b"),
    0x81: ("LONG", ">q"),
    0x72: ("FLOAT", ">f"),
    0x82: ("DOUBLE", ">d"),
    0x83: ("TIMESTAMP", ">q"),
    0x56: ("BOOL", ">?"),
}
_EMPTY: Final[Mapping[int, tuple[str, object]]] = {
    0x40: ("NULL", None),
    0x41: ("BOOL", True),
    0x42: ("BOOL", False),
    0x43: ("UINT", 0),
    0x44: ("ULONG", 0),
}
_VARIABLE: Final = {0xA0: "BINARY", 0xB0: "BINARY", 0xA1: "STRING", 0xB1: "STRING", 0xA3: "SYMBOL", 0xB3: "SYMBOL"}


@dataclass(frozen=True, slots=True)
class Typed:
    """A value and its AMQP type, as the client names types."""

    type: str
    value: object

    @property
    def for_client(self) -> object:
        """The value in the form in which the client's encoder keeps the type."""
        if self.type in ("STRING", "BOOL", "NULL", "DOUBLE"):
            return self.value
        return {"TYPE": self.type, "VALUE": self.value}


def properties_of(encoded: bytes) -> dict[str, Typed]:
    """The application properties of an encoded message, in order.

    Raises: ValueError for what is no AMQP 1.0 message.
    """
    try:
        return _Reader(encoded).application_properties()
    except (IndexError, struct.error) as exc:
        raise ValueError("the encoded message ends too early") from exc


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def application_properties(self) -> dict[str, Typed]:
        while self._at < len(self._data):
            if self._byte() != 0:
                raise ValueError("a section begins with a descriptor")
            if self._value().value == _APPLICATION_PROPERTIES:
                return self._map()
            self._skip()
        return {}

    def _map(self) -> dict[str, Typed]:
        size, count = self._compound()
        del size
        found: dict[str, Typed] = {}
        for _ in range(count // 2):
            name = self._value().value
            found[name if isinstance(name, str) else str(name)] = self._value()
        return found

    def _compound(self) -> tuple[int, int]:
        code = self._byte()
        if code == 0xC1:
            return self._byte(), self._byte()
        if code == 0xD1:
            size, count = struct.unpack(">II", self._take(8))
            return int(size), int(count)
        raise ValueError("application properties must be a map")

    def _value(self) -> Typed:
        code = self._byte()
        if code in _EMPTY:
            return Typed(*_EMPTY[code])
        if code in _FIXED:
            name, layout = _FIXED[code]
            return Typed(name, struct.unpack(layout, self._take(struct.calcsize(layout)))[0])
        if code == 0x98:
            return Typed("UUID", uuid.UUID(bytes=self._take(16)))
        if code == 0x73:
            return Typed("STRING", self._take(4).decode("utf-32-be"))
        if code not in _VARIABLE:
            raise ValueError(f"type 0x{code:02x} can't be a property's")
        data = self._take(self._byte() if code < 0xB0 else struct.unpack(">I", self._take(4))[0])
        name = _VARIABLE[code]
        return Typed(name, data if name == "BINARY" else data.decode("utf-8", "replace"))

    def _skip(self) -> None:
        """Pass over a section's value: its constructor says how long it is."""
        code = self._byte()
        width = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}.get(code >> 4)
        if width is None:
            width = self._byte() if code >> 4 in (0xA, 0xC, 0xE) else struct.unpack(">I", self._take(4))[0]
        self._take(width)

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise ValueError("the encoded message ends too early")
        self._at += count
        return self._data[self._at - count : self._at]
