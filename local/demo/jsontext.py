"""JSON as the contracts read it: strict, with numbers by their text, and the canonical form of RFC 8785.

Written for the demo's proof alone, which must not share code with what it judges.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from decimal import Decimal, InvalidOperation
from typing import NoReturn

Json = None | bool | Decimal | str | list["Json"] | dict[str, "Json"]

MOST_LEVELS = 64
_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


class JsonTextError(Exception):
    """The text is no JSON that the contracts accept; the message says why."""


def parse(text: str) -> Json:
    """Read one JSON value, refusing what can't be carried safely: numbers, duplicate members, lone surrogates.

    Raises: JsonTextError.
    """
    try:
        value: Json = json.loads(
            text, parse_int=_number, parse_float=_number, parse_constant=_constant, object_pairs_hook=_members
        )
    except JsonTextError:
        raise
    except RecursionError as exc:
        raise JsonTextError("too deeply nested") from exc
    except ValueError as exc:
        raise JsonTextError(str(exc)) from exc
    _refuse_surrogates(value)
    return value


def depth(value: Json) -> int:
    """Count the levels of nesting; a plain value has none."""
    deepest, pending = 0, [(value, 0)]
    while pending:
        item, level = pending.pop()
        inner = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else None
        if inner is not None:
            deepest = max(deepest, level + 1)
            pending += [(one, level + 1) for one in inner]
    return deepest


def compact(text: str) -> str:
    """Drop the white space between the tokens, and nothing else: numbers and escapes stay as written."""
    return _OUTSIDE_STRINGS.sub(lambda found: found.group(1) or "", text)


def canonical(value: Json) -> str:
    """Write a value in the form of RFC 8785."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))  # the RFC sorts UTF-16 code units
        return "{" + ",".join(f"{_string(name)}:{canonical(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Decimal):
        return _ecmascript(value)
    return json.dumps(value)


def payload_hash(body: dict[str, Json]) -> str:
    """Hash a message body as contracts 1 says: canonical form, without its top-level `meta`."""
    hashed = {name: value for name, value in body.items() if name != "meta"}
    return "sha256:jcs:v1:" + hashlib.sha256(canonical(hashed).encode()).hexdigest()


def url_text(data: bytes) -> str:
    """Write bytes as unpadded base64url."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(text: str) -> Decimal:
    nearest = float(text)
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent that Decimal can't hold: only a zero stands it
        value = Decimal(text.lower().partition("e")[0]) and Decimal("Infinity")
    if value.copy_abs() >= 2**53 or value != Decimal(repr(nearest)):
        raise JsonTextError(f"a number that a double can't carry: {text[:40]}")
    return value


def _constant(text: str) -> NoReturn:
    raise JsonTextError(f"no JSON: {text}")


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JsonTextError("a member name stands twice")
    return members


def _refuse_surrogates(value: Json) -> None:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, str) and any("\ud800" <= character <= "\udfff" for character in item):
            raise JsonTextError("a lone surrogate")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # escapes exactly what RFC 8785 escapes, in lower-case hex


def _ecmascript(value: Decimal) -> str:
    """Write a number as ECMAScript does: the shortest digits of its double, exponents only beyond 21 and -7."""
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    if digits == (0,):
        return "0"
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    minus = "-" if sign else ""
    if len(text) <= point <= 21:
        return minus + text + "0" * (point - len(text))
    if 0 < point <= 21:
        return f"{minus}{text[:point]}.{text[point:]}"
    if -6 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{minus}{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"
