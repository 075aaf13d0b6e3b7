"""Frames between host and worker: two lengths, a JSON header, and bytes that nobody touches.

Used by both processes, so it needs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from typing import Final, TypeAlias

Header: TypeAlias = dict[str, object]

_LENGTHS: Final = struct.Struct(">II")
MAX_PART_BYTES: Final = 512 * 1024 * 1024


def encode_frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    """Make one frame."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(text), len(body)) + text + body


async def read_frame(reader: asyncio.StreamReader) -> tuple[Header, bytes] | None:
    """Read one frame; None at the end of the stream, also in the middle of a frame."""
    try:
        header_bytes, body_bytes = _lengths(await reader.readexactly(_LENGTHS.size))
        header = await reader.readexactly(header_bytes)
        return _header(header), await reader.readexactly(body_bytes)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive_frame(connection: socket.socket) -> tuple[Header, bytes] | None:
    """Read one frame from a blocking socket; None at the end of the stream."""
    try:
        header_bytes, body_bytes = _lengths(_exactly(connection, _LENGTHS.size))
        header = _exactly(connection, header_bytes)
        return _header(header), _exactly(connection, body_bytes)
    except (EOFError, OSError):
        return None


def _lengths(head: bytes) -> tuple[int, int]:
    header_bytes, body_bytes = _LENGTHS.unpack(head)
    if max(header_bytes, body_bytes) > MAX_PART_BYTES:
        raise ConnectionError(f"a frame of {header_bytes} + {body_bytes} bytes is not ours")
    return header_bytes, body_bytes


def _header(text: bytes) -> Header:
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ConnectionError("a frame without a header object is not ours")
    return header


def _exactly(connection: socket.socket, count: int) -> bytes:
    buffer = bytearray(count)
    view = memoryview(buffer)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return bytes(buffer)
