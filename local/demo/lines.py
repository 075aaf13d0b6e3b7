"""The input file: one message a line, read and refused as a whole before anything is sent.

A line is a JSON object with `queue`, `messageId`, `sessionId`, `body` or `bodyBase64`, `properties`, `subject`,
`contentType`, `correlationId` and `repeat`. The text of `body` is what is sent: its white space goes, its numbers and
escapes stay, so a file can hold the very bytes that make trouble.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import NoReturn

from local.demo.jsontext import compact

ROLES = ("orders", "ledger", "ledger-entries")
MOST_COPIES = 10_000
MEMBERS = (
    "queue",
    "messageId",
    "sessionId",
    "body",
    "bodyBase64",
    "properties",
    "subject",
    "contentType",
    "correlationId",
    "repeat",
)

MOST_NAMED = 20

Property = str | bool | int | float


class LineError(Exception):
    """One line can't be used; the text says why."""


class InputError(Exception):
    """The file can't be used; the text names it and the lines."""


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the input, as it goes to the broker."""

    number: int
    role: str
    message_id: str | None
    session_id: str
    body: bytes
    properties: Mapping[str, Property] = field(default_factory=dict)
    subject: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Sending:
    """One copy of a line: when it goes out (round 0, or round 1 behind the broker's window)."""

    line: Line
    copy: int
    round: int


def read_lines(path: Path) -> list[Line]:
    """Read a file, all of it, so that bad lines are named before anything is sent.

    Raises: InputError, naming the file, the lines' numbers and the reasons.
    """
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        raise InputError(f"{path}: {getattr(exc, 'strerror', None) or exc}") from exc
    return parse_lines(data, str(path))


def parse_lines(data: bytes, name: str) -> list[Line]:
    """Read the lines of a file's bytes; blank ones are skipped, but counted.

    Raises: InputError, a line of text for each bad line, but for those beyond MOST_NAMED.
    """
    found: list[Line] = []
    faults: list[str] = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            found.append(_line(number, raw.decode("utf-8")))
        except UnicodeDecodeError as exc:
            faults.append(f"{name}: line {number}: not UTF-8 ({exc.reason} at byte {exc.start + 1})")
        except LineError as exc:
            faults.append(f"{name}: line {number}: {exc}")
    if len(faults) > MOST_NAMED:
        faults[MOST_NAMED:] = [f"{name}: and {len(faults) - MOST_NAMED} more bad lines"]
    if faults:
        raise InputError("\n".join(faults))
    return found


def plan(lines: Iterable[Line]) -> list[Sending]:
    """Say what is sent when: each line at its place, its copies by turns at once and behind the broker's window.

    The turns run through the whole file, so that of two lines sent twice one is doubled at once and one later. Of one
    queue everything goes out in this order, so the order of a session is that of the file.
    """
    turns = count()
    early: list[Sending] = []
    late: list[Sending] = []
    for line in lines:
        early.append(Sending(line, 1, 0))
        for copy in range(2, line.repeat + 1):
            round_ = next(turns) % 2
            (late if round_ else early).append(Sending(line, copy, round_))
    return early + late


def _line(number: int, text: str) -> Line:
    members = _raw_members(text)
    unknown = [name for name in members if name not in MEMBERS]
    if unknown:
        raise LineError(f"unknown member {unknown[0]!r}; known are {', '.join(MEMBERS)}")
    role = _text(members, "queue")
    if role not in ROLES:
        raise LineError(f"queue: one of {', '.join(ROLES)} expected" + (f", found {role!r}" if role else ""))
    session_id = _text(members, "sessionId")
    if session_id is None:
        raise LineError("sessionId: a string expected (it may be empty)")
    return Line(
        number=number,
        role=role,
        message_id=_text(members, "messageId"),
        session_id=session_id,
        body=_body(members),
        properties=_properties(members),
        subject=_text(members, "subject"),
        content_type=_text(members, "contentType"),
        correlation_id=_text(members, "correlationId"),
        repeat=_repeat(members),
    )


def _raw_members(text: str) -> dict[str, tuple[object, str]]:
    """Read an object's members with the text of each value, which a parser's result no longer has."""
    decoder = json.JSONDecoder(parse_int=_whole, parse_constant=_refuse_constant)
    try:
        whole = decoder.decode(text)
        if not isinstance(whole, dict):
            raise LineError("a JSON object expected")
        members: dict[str, tuple[object, str]] = {}
        at = _behind_space(text, text.index("{") + 1)
        while text[at] != "}":
            name, at = decoder.raw_decode(text, at)
            at = _behind_space(text, _behind_space(text, at) + 1)  # the colon
            start = at
            value, at = decoder.raw_decode(text, at)
            if name in members:
                raise LineError(f"member {name!r} stands twice")
            members[name] = value, text[start:at]
            at = _behind_space(text, at)
            if text[at] == ",":
                at = _behind_space(text, at + 1)
    except json.JSONDecodeError as exc:
        raise LineError(f"not JSON: {exc.msg} at column {exc.colno}") from exc
    except RecursionError as exc:
        raise LineError("too deeply nested to be read") from exc
    return members


def _behind_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _whole(text: str) -> int | Decimal:
    """Read an integer of any length; Python's own conversion has a limit."""
    return int(text) if len(text) < 30 else Decimal(text)


def _refuse_constant(name: str) -> NoReturn:
    raise LineError(f"not JSON: {name}")


def _text(members: Mapping[str, tuple[object, str]], name: str) -> str | None:
    value = members.get(name, (None, ""))[0]
    if value is None:
        return None
    if not isinstance(value, str):
        raise LineError(f"{name}: a string expected")
    return _encodable(name, value)


def _encodable(name: str, value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise LineError(f"{name}: a lone surrogate can't be sent") from None
    return value


def _body(members: Mapping[str, tuple[object, str]]) -> bytes:
    if ("body" in members) == ("bodyBase64" in members):
        raise LineError("exactly one of body and bodyBase64 expected")
    if "body" in members:
        return compact(members["body"][1]).encode("utf-8")
    value = members["bodyBase64"][0]
    if not isinstance(value, str):
        raise LineError("bodyBase64: a string expected")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:  # binascii.Error, and the plain one for a character that is no ASCII
        raise LineError("bodyBase64: not base64") from None


def _properties(members: Mapping[str, tuple[object, str]]) -> dict[str, Property]:
    value = members.get("properties", (None, ""))[0]
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise LineError("properties: an object expected")
    for name, item in value.items():
        _encodable("properties", name)
        if isinstance(item, str):
            _encodable(f"properties.{name}", item)
        elif isinstance(item, Decimal) or (isinstance(item, int) and not -(2**63) <= item < 2**63):
            raise LineError(f"properties.{name}: beyond 64 bits")
        elif not isinstance(item, bool | int | float):
            raise LineError(f"properties.{name}: a string, number or boolean expected")
    return value


def _repeat(members: Mapping[str, tuple[object, str]]) -> int:
    value, text = members.get("repeat", (1, "1"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LineError("repeat: a whole number expected")
    if not 1 <= value <= MOST_COPIES:  # before its text is read: Decimal can't hold every exponent
        raise LineError(f"repeat: 1 to {MOST_COPIES} expected")
    if Decimal(text) != int(value):
        raise LineError("repeat: a whole number expected")
    return int(value)


def total(lines: Sequence[Line]) -> int:
    """Count the messages that a file stands for."""
    return sum(line.repeat for line in lines)
