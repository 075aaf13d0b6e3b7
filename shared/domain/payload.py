"""Bodies: strict JSON, its canonical form, and the hashes over both.

What JSON can't carry safely is refused, not rounded: two bodies that a parser somewhere would take for one another
must not share a hash, and one body must not get two.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import rfc8785

from shared.errors import PermanentError, Reason

MAX_DECOMPRESSED_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 64
MAX_GZIP_MEMBERS = 64
LARGEST_NUMBER = 2**53  # exclusive: from here on neighbouring integers share a double
HASH_PREFIX = "sha256:jcs:v1:"
RAW_PREFIX = "sha256:raw:"

_SHOWN_NAME = 64
_SIGNIFICANT_DIGITS = 17  # no shortest form of a double has more
_HASH = re.compile(re.escape(HASH_PREFIX) + "[0-9a-f]{64}")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # unterminated: to the end, so it stays linear
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Payload:
    """A parsed body (its `meta` still in it) and the hash of the bytes as they were received."""

    value: dict[str, object]
    raw_hash: str


def read(body: bytes, content_encoding: str | None) -> Payload:
    """Parse a body; what any two JSON parsers could read differently is refused.

    Raises:
        PermanentError: UNSUPPORTED_ENCODING for any content encoding but gzip, else INVALID_MESSAGE, which names the
            place.
    """
    raw_hash = RAW_PREFIX + hashlib.sha256(body).hexdigest()
    if content_encoding is not None:
        if content_encoding != "gzip":
            raise PermanentError(Reason.UNSUPPORTED_ENCODING, "content-encoding must be gzip or absent")
        body = _decompressed(body)
    return Payload(_parsed(body), raw_hash)


def canonical(value: object) -> bytes:
    """The RFC 8785 form of a JSON value."""
    if _is_plain(value):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    return rfc8785.dumps(value)  # type: ignore[arg-type]  # the library checks the value itself


def payload_hash(body: Mapping[str, object]) -> str:
    """The hash by which a message is recognised: over the canonical form without the top-level `meta`."""
    hashed = {name: value for name, value in body.items() if name != "meta"}
    return HASH_PREFIX + hashlib.sha256(canonical(hashed)).hexdigest()


def is_known_hash(text: str) -> bool:
    """Whether this release can compare the hash: it knows its prefix."""
    return _HASH.fullmatch(text) is not None


def shown_name(name: str) -> str:
    """A member's name for a message to people: bounded, and without characters that break a line or can't be sent."""
    text = name if name.isprintable() else json.dumps(name[: _SHOWN_NAME + 1])[1:-1]
    return text if len(text) <= _SHOWN_NAME else text[:_SHOWN_NAME] + "…"


def pointer(path: tuple[str | int, ...]) -> str:
    """The JSON pointer (RFC 6901) of a place, with long names cut."""
    return "".join(f"/{shown_name(str(part)).replace('~', '~0').replace('/', '~1')}" for part in path)


def _is_plain(value: object) -> bool:
    """Whether the standard library writes a value as RFC 8785 does, at a tenth of the time.

    It differs in fractions (RFC 8785 writes them as ECMAScript does), and in the order of names beyond ASCII.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if item is None or isinstance(item, str):
            continue
        if isinstance(item, dict):
            if not all(map(str.isascii, item)):
                return False
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif not isinstance(item, int) or not -LARGEST_NUMBER < item < LARGEST_NUMBER:
            return False
    return True


def _invalid(what: str, path: tuple[str | int, ...] = ()) -> PermanentError:
    place = pointer(path)
    return PermanentError(Reason.INVALID_MESSAGE, f"{place or 'body'}: {what}", pointer=place)


def _decompressed(body: bytes) -> bytes:
    """Unpack gzip, and stop at the cap: a few bytes can unpack to a thousand times as many."""
    unpacked = bytearray()
    for _ in range(MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(wbits=31)  # 31: with a gzip header
        try:
            unpacked += member.decompress(body, MAX_DECOMPRESSED_BYTES - len(unpacked) + 1)
        except zlib.error as exc:
            raise _invalid("not gzip, though content-encoding says so") from exc
        if len(unpacked) > MAX_DECOMPRESSED_BYTES:
            raise _invalid(f"unpacks to more than {MAX_DECOMPRESSED_BYTES} bytes")
        if not member.eof:
            raise _invalid("gzip stream ends too early")
        if not member.unused_data:
            return bytes(unpacked)
        body = member.unused_data
    raise _invalid(f"more than {MAX_GZIP_MEMBERS} gzip members")


def _parsed(body: bytes) -> dict[str, object]:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise _invalid(f"not UTF-8 at byte {exc.start}") from None  # the cause holds the payload
    _check_depth(body)
    hooks = _Hooks()
    try:
        value: object = json.JSONDecoder(
            object_pairs_hook=hooks.members,
            parse_int=hooks.integer,
            parse_float=hooks.number,
            parse_constant=hooks.constant,
        ).decode(text)
    except json.JSONDecodeError as exc:
        raise _invalid(f"not JSON: {exc.msg} at character {exc.pos}") from None
    if hooks.is_flawed or _SURROGATE_ESCAPE.search(text):
        _raise_flaw(value, ())
    if not isinstance(value, dict):
        raise _invalid("must be a JSON object")
    return value


def _check_depth(body: bytes) -> None:
    """Refuse deep nesting before the parser meets it: a parser that recurses could run out of stack.

    Outside of strings, up to its first error, any parser sees the very brackets that are counted here.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _STRING.sub(b"", body).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _invalid(f"more than {MAX_DEPTH} levels deep")


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Stands in the parsed value for what must be refused, until its place is known."""

    what: str


class _Hooks:
    """What the parser asks at each object and number."""

    def __init__(self) -> None:
        self.is_flawed = False

    def members(self, pairs: list[tuple[str, object]]) -> object:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        return self._flaw(f"member {shown_name(twice)} appears twice")

    def integer(self, text: str) -> object:
        digits = text.lstrip("-")
        if len(digits) > 16 or int(digits) >= LARGEST_NUMBER:  # 2**53 has 16 digits
            return self._flaw("number too large: its magnitude must be below 2^53")
        return int(text)

    def number(self, text: str) -> object:
        value = exact_number(text)
        return self._flaw("number is too large or not exact in double precision") if value is None else value

    def constant(self, text: str) -> object:
        return self._flaw(f"{text} is not JSON")

    def _flaw(self, what: str) -> _Flaw:
        self.is_flawed = True
        return _Flaw(what)


def exact_number(text: str) -> int | float | None:
    """The number that a JSON text denotes, or None if a double doesn't hold it exactly.

    Exactly means: the shortest decimal form of the nearest double is the same number. The work is bounded by the
    text's length, however large its exponent.
    """
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).strip("0")
    if not digits:
        return 0
    magnitude = exponent.lstrip("+-0")
    if len(digits) > _SIGNIFICANT_DIGITS or len(magnitude) > 9:
        return None
    zeros = len(whole + fraction) - len((whole + fraction).rstrip("0"))
    scale = int(magnitude or "0") * (-1 if exponent.startswith("-") else 1) - len(fraction) + zeros
    if not -400 < scale < 400:  # beyond the range of doubles, whatever the digits
        return None
    short = f"{sign}{digits}e{scale}"
    nearest = float(short)
    if abs(nearest) >= LARGEST_NUMBER or Decimal(short) != Decimal(repr(nearest)):
        return None
    return int(nearest) if nearest.is_integer() else nearest


def _raise_flaw(value: object, path: tuple[str | int, ...]) -> None:
    """Name the first thing to refuse. The depth is bounded by `_check_depth`."""
    if isinstance(value, _Flaw):
        raise _invalid(value.what, path)
    if isinstance(value, str) and _has_surrogate(value):
        raise _invalid("lone surrogate", path)
    if isinstance(value, dict):
        for name, member in value.items():
            if _has_surrogate(name):
                raise _invalid("lone surrogate in the member's name", (*path, name))
            _raise_flaw(member, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _raise_flaw(item, (*path, index))


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
