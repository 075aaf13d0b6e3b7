"""JSON as the service keeps it: every number is an IEEE double, text is Unicode, and what is neither is refused."""

from __future__ import annotations

import json
import math
from enum import Enum
from typing import TypeAlias

from local.cosmos.errors import CosmosError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Document: TypeAlias = dict[str, Json]


class Undefined(Enum):
    """The value of what is not there, which is not null."""

    UNDEFINED = "undefined"


UNDEFINED = Undefined.UNDEFINED
Value: TypeAlias = "Json | Undefined"

_EXACT = 2**53


def number(value: float) -> int | float:
    """A double as the service prints it: 1.0 comes back as 1."""
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def _parse_float(text: str) -> int | float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} does not fit a double")
    return number(value)


def _parse_int(text: str) -> int | float:
    # Beyond 2**53 a double has no room for every integer: the service hands back a rounded one.
    value = int(text) if len(text) < 18 else _EXACT + 1
    return value if -_EXACT <= value <= _EXACT else _parse_float(text)


def _refuse_constant(text: str) -> Json:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_parse_float, parse_int=_parse_int, parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)


def parse(data: bytes | str, what: str) -> Json:
    """Read JSON; `what` names it in the refusal (400)."""
    try:
        text = data if isinstance(data, str) else data.decode()
        value: Json = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            dump(value)  # half a surrogate pair is no Unicode: UnicodeEncodeError is a ValueError
    except (ValueError, RecursionError) as exc:
        raise CosmosError(400, f"The {what} is not valid JSON: {exc}.") from exc
    return value


def parse_stored(body: bytes) -> Json:
    """Read what `dump` wrote: its numbers are doubles already."""
    value: Json = json.loads(body.decode())
    return value


def parse_object(data: bytes | str, what: str) -> Document:
    value = parse(data, what)
    if not isinstance(value, dict):
        raise CosmosError(400, f"The {what} must be a JSON object.")
    return value


def dump(value: Json) -> bytes:
    """Compact UTF-8 JSON, always the same for the same value."""
    return _ENCODER.encode(value).encode()


def canonical(value: Json) -> str:
    """One text for equal values, whatever the order of their properties."""
    return _CANONICAL.encode(value)


def lookup(value: Json, path: tuple[str, ...]) -> Value:
    """The value at a path of property names, or UNDEFINED."""
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return UNDEFINED
        value = value[name]
    return value
